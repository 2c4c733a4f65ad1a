//! Fixtures: a clock that tests move, a sink that keeps everything, a small deterministic core.
#![allow(dead_code)]

pub mod bag;

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use flashrt_runtime::{HostFields, ImageView};
use flashrt_session::core::{CapsuleList, Core, CoreInfo, Plan, Restored, SnapshotSpec};
use flashrt_session::lifecycle::State;
use flashrt_session::*;

/// Names of the toy deployment's joints, in model order.
pub const JOINTS: [&str; 2] = ["shoulder", "elbow"];
/// One millisecond.
pub const MS: i64 = 1_000_000;

/// A deployment file for [`ToyCore`]: one view, two joints, three rows a chunk.
pub fn toy_yaml(tick: &str, chunk: &str, command: &str) -> String {
    format!(
        "model: {{builtin: pi05, weights: nowhere}}\n\
         sessions: [main, alt]\n\
         ports:\n\
         \x20 images:\n\
         \x20   - {{view: front, topic: camera/image, max_age_ms: 100}}\n\
         \x20 state:\n\
         \x20   topic: joint_states\n\
         \x20   max_age_ms: 100\n\
         \x20   joints:\n\
         \x20     - {{name: shoulder}}\n\
         \x20     - {{name: elbow}}\n\
         \x20 prompt: {{text: go}}\n\
         tick: {tick}\n\
         chunk: {chunk}\n\
         command: {command}\n"
    )
}

/// Trigger mode, three rows at 10 Hz, no limits.
pub fn toy_config() -> Config {
    config(&toy_yaml(
        "{mode: trigger}",
        "{control_rate_hz: 10, max_hold_ms: 250}",
        "{topic: joint_command, limits: 'off', max_step: 'off'}",
    ))
}

/// Parses a deployment that is meant to be right.
pub fn config(yaml: &str) -> Config {
    Config::from_yaml(yaml).unwrap_or_else(|e| panic!("{e}\n{yaml}"))
}

/// The demo's deployment file with the repository's policy.
pub fn demo_config() -> Config {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config");
    Config::load(&root.join("so101_demo.yaml"), None).unwrap_or_else(|e| panic!("{e}"))
}

/// Time stands still until a test moves it.
pub struct FakeClock {
    steady: AtomicU64,
    ros: AtomicI64,
}

impl FakeClock {
    pub fn new() -> Arc<FakeClock> {
        Arc::new(FakeClock {
            steady: AtomicU64::new(1_000_000_000),
            ros: AtomicI64::new(1_000_000_000),
        })
    }
    /// Both clocks go on.
    pub fn advance_ms(&self, ms: u64) {
        self.ros.fetch_add(ms as i64 * MS, SeqCst);
        self.steady.fetch_add(ms * 1_000_000, SeqCst);
    }
    /// ROS time alone is set.
    pub fn set_ros_ns(&self, ns: i64) {
        self.ros.store(ns, SeqCst);
    }
}

impl Clock for FakeClock {
    fn steady_ns(&self) -> u64 {
        self.steady.load(SeqCst)
    }
    fn ros_ns(&self) -> i64 {
        self.ros.load(SeqCst)
    }
    fn park_until(&self, _: u64) {
        std::thread::park_timeout(Duration::from_micros(200));
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct SeenChunk {
    pub session: String,
    pub epoch: u64,
    pub tick: u64,
    pub chunk_id: u64,
    pub stamp_ns: i64,
    pub observation_age_ns: i64,
    pub context_age_ticks: u32,
    pub names: Vec<String>,
    pub data: Vec<f32>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct SeenCommand {
    pub epoch: u64,
    pub chunk_id: u64,
    pub row: u32,
    pub is_hold: bool,
    pub names: Vec<String>,
    pub positions: Vec<f64>,
}

/// Keeps everything that came.
#[derive(Default)]
pub struct Recorder {
    pub chunks: Mutex<Vec<SeenChunk>>,
    pub commands: Mutex<Vec<SeenCommand>>,
    pub records: Mutex<Vec<TickRecord>>,
    pub events: Mutex<Vec<Event>>,
}

impl Sink for Recorder {
    fn chunk(&self, c: &ChunkRef<'_>) {
        self.chunks.lock().unwrap().push(SeenChunk {
            session: c.session.into(),
            epoch: c.epoch,
            tick: c.tick,
            chunk_id: c.chunk_id,
            stamp_ns: c.stamp_ns,
            observation_age_ns: c.observation_age_ns,
            context_age_ticks: c.context_age_ticks,
            names: c.names.to_vec(),
            data: c.data.to_vec(),
        });
    }
    fn command(&self, c: &CommandRef<'_>) {
        self.commands.lock().unwrap().push(SeenCommand {
            epoch: c.epoch,
            chunk_id: c.chunk_id,
            row: c.row,
            is_hold: c.is_hold,
            names: c.names.to_vec(),
            positions: c.positions.to_vec(),
        });
    }
    fn tick_log(&self, r: &TickRecord) {
        self.records.lock().unwrap().push(r.clone());
    }
    fn event(&self, e: Event) {
        self.events.lock().unwrap().push(e);
    }
}

impl Recorder {
    pub fn chunks(&self) -> Vec<SeenChunk> {
        self.chunks.lock().unwrap().clone()
    }
    pub fn commands(&self) -> Vec<SeenCommand> {
        self.commands.lock().unwrap().clone()
    }
    pub fn records(&self) -> Vec<TickRecord> {
        self.records.lock().unwrap().clone()
    }
    pub fn events(&self) -> Vec<Event> {
        self.events.lock().unwrap().clone()
    }
}

/// What a test may do to the core from outside.
#[derive(Default)]
pub struct ToyControl {
    pub panics_at_tick: AtomicU64,
    pub fails_at_tick: AtomicU64,
    pub gives_nan: AtomicBool,
    /// While set, `run` does not return.
    pub is_stuck: AtomicBool,
    pub is_in_run: AtomicBool,
    pub run_advances_ms: AtomicU64,
    pub clock: Mutex<Option<Arc<FakeClock>>>,
    /// Live ToyCores.
    pub alive: AtomicI64,
}

#[derive(Clone, Debug, PartialEq)]
struct ToyState {
    fields: HostFields,
    image_sum: u64,
    state: Vec<f32>,
    context: f32,
    context_state: Vec<f32>,
    prompt: String,
    rng: u64,
    actions: Vec<f32>,
}

/// Three rows of `action_dim` values: row r, column c = state[c] + 0.01 (r + 1) + noise; columns beyond the joints hold 77.
/// The noise generator advances with every run, so a run that is repeated without restoring it gives other bytes.
pub struct ToyCore {
    info: CoreInfo,
    sets: Vec<ToyState>,
    warm: Vec<ToyState>,
    store: Vec<(CapsuleReport, u64, ToyState)>,
    present: Vec<Option<String>>,
    unnamed: u64,
    control: Arc<ToyControl>,
    poison: Option<String>,
    hot: bool,
}

pub const ROWS: usize = 3;

impl ToyCore {
    pub fn new(config: &Config, control: Arc<ToyControl>, action_dim: usize) -> ToyCore {
        let set = ToyState {
            fields: HostFields::default(),
            image_sum: 0,
            state: vec![0.0; action_dim],
            context: 0.0,
            context_state: vec![0.0; action_dim],
            prompt: config.prompt.text.clone(),
            rng: 7,
            actions: vec![0.0; ROWS * action_dim],
        };
        control.alive.fetch_add(1, SeqCst);
        ToyCore {
            info: CoreInfo {
                description: Description {
                    model: "toy".into(),
                    fingerprint: "00".into(),
                    ..Description::default()
                },
                views: 1,
                state_dim: action_dim,
                horizon: ROWS,
                action_dim,
                image_bytes: 2 * 2 * 3,
                has_prompt: true,
            },
            sets: vec![set.clone(); config.sessions.len()],
            warm: vec![set; config.sessions.len()],
            store: Vec::new(),
            present: vec![None; config.sessions.len()],
            unnamed: 0,
            control,
            poison: None,
            hot: false,
        }
    }

    fn find(&self, name: &str) -> Result<usize, SessionError> {
        let ok = !name.is_empty()
            && name.len() <= 128
            && name.as_bytes()[0].is_ascii_alphanumeric()
            && name
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"_.-".contains(&b));
        if !ok {
            return Err(SessionError::new(
                ResultCode::BadName,
                format!("bad name {name:?}"),
            ));
        }
        self.store
            .iter()
            .position(|c| c.0.name == name)
            .ok_or_else(|| SessionError::new(ResultCode::NotFound, format!("no capsule {name}")))
    }
}

impl Drop for ToyCore {
    fn drop(&mut self) {
        self.control.alive.fetch_sub(1, SeqCst);
    }
}

impl Core for ToyCore {
    fn info(&self) -> &CoreInfo {
        &self.info
    }
    fn set_images(&mut self, set: usize, views: &[ImageView<'_>]) -> Result<(), SessionError> {
        if views[0].width > 4096 {
            return Err(SessionError::new(
                ResultCode::Shape,
                format!("width {} > 4096", views[0].width),
            ));
        }
        self.sets[set].image_sum = views
            .iter()
            .flat_map(|v| v.data)
            .map(|b| u64::from(*b))
            .sum();
        Ok(())
    }
    fn set_state(&mut self, set: usize, state: &[f32]) -> Result<(), SessionError> {
        assert!(
            state.iter().all(|v| v.is_finite()),
            "a non-finite state reached the model"
        );
        self.sets[set].state.copy_from_slice(state);
        Ok(())
    }
    fn set_prompt(&mut self, set: usize, text: &str) -> Result<(), SessionError> {
        match text.len() {
            0 => Err(SessionError::new(ResultCode::PromptEmpty, "0 tokens")),
            n if n > 20 => Err(SessionError::new(
                ResultCode::PromptTooLong,
                format!("{n} tokens > 20"),
            )),
            _ => {
                self.sets[set].prompt = text.into();
                Ok(())
            }
        }
    }
    fn run(&mut self, set: usize, plan: Plan, _key: u64) -> Result<(), SessionError> {
        self.control.is_in_run.store(true, SeqCst);
        while self.control.is_stuck.load(SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.control.is_in_run.store(false, SeqCst);
        if let Some(clock) = self.control.clock.lock().unwrap().as_ref() {
            clock.advance_ms(self.control.run_advances_ms.load(SeqCst));
        }
        let s = &mut self.sets[set];
        let next = s.fields.tick + 1;
        if self.control.panics_at_tick.load(SeqCst) == next {
            panic!("toy panic at tick {next}");
        }
        if self.control.fails_at_tick.load(SeqCst) == next {
            self.poison = Some("toy device failure".into());
            return Err(SessionError::new(
                ResultCode::Device,
                format!("toy device failure at tick {next}"),
            ));
        }
        if plan != Plan::Action {
            s.context = s.image_sum as f32 * 1e-4 + s.prompt.len() as f32 * 1e-3;
            s.context_state = s.state.clone();
        }
        s.rng = s
            .rng
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        let noise = (s.rng >> 40) as f32 * 1e-10;
        let width = self.info.action_dim;
        for (i, a) in s.actions.iter_mut().enumerate() {
            let (row, column) = (i / width, i % width);
            *a = match column < JOINTS.len() {
                true => s.context_state[column] + 0.01 * (row + 1) as f32 + s.context + noise,
                false => 77.0,
            };
        }
        if self.control.gives_nan.load(SeqCst) {
            s.actions[1] = f32::NAN;
        }
        Ok(())
    }
    fn read_actions(&mut self, set: usize, out: &mut [u8]) -> Result<(), SessionError> {
        for (o, v) in out.chunks_exact_mut(4).zip(&self.sets[set].actions) {
            o.copy_from_slice(&v.to_le_bytes());
        }
        Ok(())
    }
    fn fields(&self, set: usize) -> Result<HostFields, SessionError> {
        Ok(self.sets[set].fields)
    }
    fn set_fields(&mut self, set: usize, fields: &HostFields) -> Result<(), SessionError> {
        self.sets[set].fields = *fields;
        Ok(())
    }
    fn snapshot(
        &mut self,
        set: usize,
        spec: &SnapshotSpec<'_>,
    ) -> Result<CapsuleReport, SessionError> {
        let name = match spec.name {
            Some(name) => {
                match self.find(name) {
                    Ok(at) if spec.overwrite => drop(self.store.remove(at)),
                    Ok(_) => {
                        return Err(SessionError::new(
                            ResultCode::Exists,
                            format!("{name} exists"),
                        ))
                    }
                    Err(e) if e.code == ResultCode::NotFound => {}
                    Err(e) => return Err(e),
                }
                name.to_string()
            }
            None => {
                self.unnamed += 1;
                format!("auto-{}", self.unnamed)
            }
        };
        if self.store.len() >= 64 {
            return Err(SessionError::new(
                ResultCode::NoSpace,
                "64 capsules of at most 64",
            ));
        }
        let report = CapsuleReport {
            name: name.clone(),
            tier: spec.tier,
            bytes: 100,
            regions: 7 - spec.exclude.len() as u32,
            fingerprint: "00".into(),
            tick: spec.tick,
            epoch: spec.epoch,
            created_ns: spec.ros_ns,
            age_s: 0.0,
            is_pinned: false,
            is_partial: !spec.exclude.is_empty(),
        };
        self.store
            .push((report.clone(), spec.steady_ns, self.sets[set].clone()));
        self.present[set] = Some(name);
        Ok(report)
    }
    fn restore(
        &mut self,
        set: usize,
        name: &str,
        allow_partial: bool,
    ) -> Result<Restored, SessionError> {
        let at = self.find(name)?;
        if self.store[at].0.is_partial && !allow_partial {
            return Err(SessionError::new(ResultCode::Partial, "partial"));
        }
        let mut saved = self.store[at].2.clone();
        if self.store[at].0.is_partial {
            saved.rng = self.sets[set].rng;
        }
        self.sets[set] = saved;
        self.present[set] = Some(name.into());
        Ok(Restored {
            name: name.into(),
            bytes: 100,
            promoted_bytes: 0,
        })
    }
    fn rollback(
        &mut self,
        set: usize,
        target: &RollbackTarget,
        steady_ns: u64,
    ) -> Result<Restored, SessionError> {
        let name = match target {
            RollbackTarget::Name(name) => name.clone(),
            RollbackTarget::Steps(n) => {
                let at = self.store.len().checked_sub(*n as usize).filter(|_| *n > 0);
                let at = at
                    .ok_or_else(|| SessionError::new(ResultCode::NotFound, "history is shorter"))?;
                self.store[at].0.name.clone()
            }
            RollbackTarget::AgeS(age_s) => {
                let old =
                    |c: &&(CapsuleReport, u64, ToyState)| (steady_ns - c.1) as f64 / 1e9 >= *age_s;
                let found = self.store.iter().rev().find(old);
                found
                    .ok_or_else(|| SessionError::new(ResultCode::NotFound, "none is that old"))?
                    .0
                    .name
                    .clone()
            }
        };
        self.restore(set, &name, false)
    }
    fn reset(&mut self, set: usize) -> Result<Restored, SessionError> {
        self.sets[set] = self.warm[set].clone();
        Ok(Restored {
            name: String::new(),
            bytes: 100,
            promoted_bytes: 0,
        })
    }
    fn drop_capsule(&mut self, name: &str) -> Result<u64, SessionError> {
        let at = self.find(name)?;
        Ok(self.store.remove(at).0.bytes)
    }
    fn list(&self, _set: usize, steady_ns: u64) -> CapsuleList {
        let capsules = self
            .store
            .iter()
            .map(|(r, at, _)| CapsuleReport {
                age_s: (steady_ns - at) as f64 / 1e9,
                ..r.clone()
            })
            .collect();
        CapsuleList {
            capsules,
            cursor: -1,
            ..CapsuleList::default()
        }
    }
    fn prepare(&mut self, graph: &str, _key: u64, evict: bool) -> Result<u32, SessionError> {
        assert!(!self.hot, "prepare reached a hot core");
        match graph {
            "" | "action" => Ok(if evict { 1 } else { 2 }),
            name => Err(SessionError::new(
                ResultCode::NotFound,
                format!("no graph {name}"),
            )),
        }
    }
    fn set_hot(&mut self, hot: bool) {
        self.hot = hot;
    }
    fn poison(&self, _: usize) -> Option<String> {
        self.poison.clone()
    }
}

/// An engine over a toy core, with everything around it.
pub struct Rig {
    pub clock: Arc<FakeClock>,
    pub sink: Arc<Recorder>,
    pub control: Arc<ToyControl>,
    pub engine: Engine,
}

impl Rig {
    pub fn new() -> Rig {
        let clock = FakeClock::new();
        let sink = Arc::new(Recorder::default());
        let engine = Engine::new(clock.clone(), sink.clone());
        let control = Arc::new(ToyControl::default());
        Rig {
            clock,
            sink,
            control,
            engine,
        }
    }

    /// Configured with the toy core.
    pub fn configured(config: Config) -> Rig {
        Rig::with_width(config, JOINTS.len())
    }

    pub fn with_width(config: Config, action_dim: usize) -> Rig {
        let rig = Rig::new();
        rig.configure(config, action_dim).expect("configure");
        rig
    }

    pub fn configure(
        &self,
        config: Config,
        action_dim: usize,
    ) -> Result<ConfigureReport, SessionError> {
        let control = self.control.clone();
        self.engine.configure_with(
            config,
            Box::new(move |config| {
                Ok(Box::new(ToyCore::new(config, control, action_dim)) as Box<dyn Core>)
            }),
        )
    }

    pub fn active(config: Config) -> Rig {
        let rig = Rig::configured(config);
        rig.engine.activate().expect("activate");
        rig
    }

    pub fn call(&self, command: Command) -> Outcome {
        let outcome = self.engine.call(command, Duration::from_secs(20));
        assert_ne!(outcome.code, ResultCode::Accepted, "{outcome:?}");
        outcome
    }

    /// As `call`, and it must succeed.
    pub fn ok(&self, command: Command) -> Outcome {
        let outcome = self.call(command);
        assert_eq!(outcome.code, ResultCode::Ok, "{outcome:?}");
        outcome
    }

    pub fn now(&self) -> i64 {
        self.clock.ros_ns()
    }

    pub fn push_image(&self, fill: u8, stamp_ns: i64) {
        let data = [fill; 12];
        let outcome = self
            .engine
            .push_image("front", image(2, 2, "rgb8", 6, &data), stamp_ns);
        assert_eq!(outcome, PushOutcome::Accepted);
    }

    pub fn push_state(&self, positions: [f64; 2], stamp_ns: i64) {
        let names = JOINTS.map(String::from);
        let outcome = self.engine.push_joints(
            JointsRef {
                names: &names,
                positions: &positions,
            },
            stamp_ns,
        );
        assert_eq!(outcome, PushOutcome::Accepted);
    }

    /// Fresh image and state, stamped now.
    pub fn push_all(&self, fill: u8) {
        self.push_image(fill, self.now());
        self.push_state([0.1, 0.2], self.now());
    }

    /// Fresh inputs and one tick.
    pub fn tick(&self, fill: u8) -> Outcome {
        self.push_all(fill);
        self.ok(Command::Tick(TickRequest::default()))
    }
    /// Begins a tick that hangs until `control.is_stuck` is false again.
    pub fn hang(&self, fill: u8) -> Operation {
        self.control.is_stuck.store(true, SeqCst);
        self.push_all(fill);
        let tick = self
            .engine
            .submit(Command::Tick(TickRequest::default()))
            .unwrap();
        self.wait_for("the tick to hang", || self.control.is_in_run.load(SeqCst));
        tick
    }

    pub fn port(&self, name: &str) -> PortStatus {
        self.engine
            .status()
            .ports
            .into_iter()
            .find(|p| p.name == name)
            .expect("port")
    }

    pub fn wait_for(&self, what: &str, done: impl Fn() -> bool) {
        wait_for(what, done);
    }

    pub fn wait_state(&self, state: State) {
        wait_for(state.label(), || self.engine.state() == state);
    }

    /// Moves time by one control period and waits for what comes of it.
    pub fn step_commands(&self, expected: usize) {
        self.clock.advance_ms(100);
        wait_for("commands", || {
            self.sink.commands.lock().unwrap().len() >= expected
        });
    }
}

pub fn image<'a>(
    width: u32,
    height: u32,
    encoding: &'a str,
    step: u32,
    data: &'a [u8],
) -> ImageRef<'a> {
    ImageRef {
        width,
        height,
        encoding,
        is_bigendian: false,
        step,
        data,
    }
}

pub fn snapshot(name: &str) -> Command {
    Command::Snapshot {
        name: Some(name.into()),
        tier: None,
        overwrite: false,
        exclude: vec![],
    }
}

pub fn restore(name: &str) -> Command {
    Command::Restore {
        name: name.into(),
        allow_partial: false,
    }
}

/// Polls with ten-fold slack.
pub fn wait_for(what: &str, done: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !done() {
        assert!(Instant::now() < end, "waited 20 s for {what}");
        std::thread::sleep(Duration::from_micros(300));
    }
}

/// Gives the engine's threads time to do what they must not do.
pub fn settle() {
    std::thread::sleep(Duration::from_millis(30));
}
