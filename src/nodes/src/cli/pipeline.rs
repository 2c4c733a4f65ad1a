//! The parts of a tick around the model, and the memory of a long run: the engine of the node on the deployment's own
//! policy, without ROS.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{anyhow, bail, ensure, Context as _, Result};
use flashrt_runtime::{HostFields, ImageView};
use flashrt_session::config::TickMode;
use flashrt_session::core::{CapsuleList, Core, CoreInfo, Plan, Restored, SnapshotSpec};
use flashrt_session::{
    live, messages, CapsuleReport, ChunkRef, Command, CommandRef, Config, Engine, Event, ImageRef,
    JointsRef, PushOutcome, RollbackTarget, SessionError, Sink, SystemClock, TickRecord,
    TickRequest,
};

use super::bench::{Series, WARM_UP};

/// Patience with one command of the device thread.
const PATIENCE: Duration = Duration::from_secs(60);

/// The instants of the tick in progress, nanoseconds since `zero`.
struct Marks {
    zero: Instant,
    run: AtomicU64,
    ran: AtomicU64,
}

impl Marks {
    fn now_ns(&self) -> u64 {
        // 500 years fit.
        self.zero.elapsed().as_nanos() as u64
    }
}

/// The deployment's device side, which notes when the model starts and when its actions are read.
struct Marked {
    core: Box<dyn Core>,
    marks: Arc<Marks>,
}

type Answer<T> = Result<T, SessionError>;

impl Core for Marked {
    fn info(&self) -> &CoreInfo {
        self.core.info()
    }
    fn set_images(&mut self, set: usize, views: &[ImageView<'_>]) -> Answer<()> {
        self.core.set_images(set, views)
    }
    fn set_state(&mut self, set: usize, state: &[f32]) -> Answer<()> {
        self.core.set_state(set, state)
    }
    fn set_prompt(&mut self, set: usize, text: &str) -> Answer<()> {
        self.core.set_prompt(set, text)
    }
    fn run(&mut self, set: usize, plan: Plan, key: u64) -> Answer<()> {
        self.marks.run.store(self.marks.now_ns(), Relaxed);
        self.core.run(set, plan, key)
    }
    fn read_actions(&mut self, set: usize, out: &mut [u8]) -> Answer<()> {
        let done = self.core.read_actions(set, out);
        self.marks.ran.store(self.marks.now_ns(), Relaxed);
        done
    }
    fn fields(&self, set: usize) -> Answer<HostFields> {
        self.core.fields(set)
    }
    fn set_fields(&mut self, set: usize, fields: &HostFields) -> Answer<()> {
        self.core.set_fields(set, fields)
    }
    fn snapshot(&mut self, set: usize, spec: &SnapshotSpec<'_>) -> Answer<CapsuleReport> {
        self.core.snapshot(set, spec)
    }
    fn restore(&mut self, set: usize, name: &str, allow_partial: bool) -> Answer<Restored> {
        self.core.restore(set, name, allow_partial)
    }
    fn rollback(&mut self, set: usize, to: &RollbackTarget, steady_ns: u64) -> Answer<Restored> {
        self.core.rollback(set, to, steady_ns)
    }
    fn reset(&mut self, set: usize) -> Answer<Restored> {
        self.core.reset(set)
    }
    fn drop_capsule(&mut self, name: &str) -> Answer<u64> {
        self.core.drop_capsule(name)
    }
    fn list(&self, set: usize, steady_ns: u64) -> CapsuleList {
        self.core.list(set, steady_ns)
    }
    fn prepare(&mut self, graph: &str, key: u64, evict: bool) -> Answer<u32> {
        self.core.prepare(graph, key, evict)
    }
    fn set_hot(&mut self, is_hot: bool) {
        self.core.set_hot(is_hot);
    }
    fn poison(&self, set: usize) -> Option<String> {
        self.core.poison(set)
    }
}

/// What one tick took, microseconds.
#[derive(Clone, Copy, Default)]
struct Parts {
    to_port: f64,
    model: f64,
    to_publish: f64,
}

/// Encodes each chunk as its subscribers get it and adds up the parts of its tick.
struct Stopwatch {
    marks: Arc<Marks>,
    last: Mutex<Parts>,
}

impl Sink for Stopwatch {
    fn chunk(&self, chunk: &ChunkRef<'_>) {
        std::hint::black_box(messages::encode_chunk(chunk));
        let ran = self.marks.ran.load(Relaxed);
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.model = micros(self.marks.run.load(Relaxed), ran);
        last.to_publish = micros(ran, self.marks.now_ns());
    }
    fn command(&self, _: &CommandRef<'_>) {}
    fn tick_log(&self, record: &TickRecord) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        // The engine's latency runs from the gate until the sink has the chunk.
        last.to_port = record.latency_ms * 1e3 - last.model - last.to_publish;
    }
    fn event(&self, _: Event) {}
}

fn micros(from_ns: u64, to_ns: u64) -> f64 {
    to_ns.saturating_sub(from_ns) as f64 / 1e3
}

/// An active engine that ticks on demand, with inputs for it.
struct Bench {
    engine: Engine,
    watch: Arc<Stopwatch>,
    views: Vec<String>,
    joints: Vec<String>,
    side: (u32, u32),
}

impl Bench {
    fn start(mut config: Config) -> Result<Bench> {
        ensure!(
            !config.prompt.text.is_empty(),
            "ports.prompt.text is empty: the engine would wait for an instruction"
        );
        config.tick.mode = TickMode::Trigger;
        // A slow tick is measured, not warned about; made-up stamps and positions are not judged.
        config.tick.deadline_ms = None;
        config.max_skew_ms = None;
        let views = config.images.iter().map(|i| i.view.clone()).collect();
        let joints = config.joint_names();
        let marks = Arc::new(Marks {
            zero: Instant::now(),
            run: AtomicU64::new(0),
            ran: AtomicU64::new(0),
        });
        let watch = Arc::new(Stopwatch {
            marks: Arc::clone(&marks),
            last: Mutex::default(),
        });
        let engine = Engine::new(Arc::new(SystemClock::default()), watch.clone());
        let factory = move |config: &Config| {
            let core = live::open(config)?;
            Ok(Box::new(Marked { core, marks }) as Box<dyn Core>)
        };
        let report = engine.configure_with(config, Box::new(factory))?;
        engine.activate()?;
        let images = report.description.ports.iter().find(|p| p.name == "images");
        let shape = &images.context("the model has no port 'images'")?.shape;
        let side = match shape[..] {
            [_, height, width, ..] => (u32::try_from(width)?, u32::try_from(height)?),
            _ => bail!("port 'images' has shape {shape:?}"),
        };
        Ok(Bench {
            engine,
            watch,
            views,
            joints,
            side,
        })
    }

    fn push_image(&self, view: &str, (width, height): (u32, u32), data: &[u8]) -> Result<()> {
        let image = ImageRef {
            width,
            height,
            encoding: "rgb8",
            is_bigendian: false,
            step: width * 3,
            data,
        };
        accepted(self.engine.push_image(view, image, 0))
    }

    fn push_joints(&self, positions: &[f64]) -> Result<()> {
        let names = &self.joints;
        accepted(self.engine.push_joints(JointsRef { names, positions }, 0))
    }

    /// One set of inputs, one tick.
    fn tick(&self, size: (u32, u32), data: &[u8], positions: &[f64]) -> Result<Parts> {
        for view in &self.views {
            self.push_image(view, size, data)?;
        }
        self.push_joints(positions)?;
        self.call(Command::Tick(TickRequest::default()))?;
        Ok(*self
            .watch
            .last
            .lock()
            .unwrap_or_else(PoisonError::into_inner))
    }

    fn call(&self, command: Command) -> Result<()> {
        let outcome = self.engine.call(command, PATIENCE);
        ensure!(
            outcome.code.is_ok(),
            "{}: {}: {}",
            outcome.kind,
            outcome.code,
            outcome.message
        );
        Ok(())
    }
}

fn accepted(outcome: PushOutcome) -> Result<()> {
    match outcome {
        PushOutcome::Accepted => Ok(()),
        other => Err(anyhow!("an input was not taken: {other:?}")),
    }
}

/// Message to ring, ring to port bytes and chunk to publish, for images of the model's size and of a usual camera.
///
/// # Errors
/// The deployment cannot be configured, or a tick is refused.
pub fn series(config: Config, count: usize) -> Result<Vec<Series>> {
    let bench = Bench::start(config)?;
    let mut all = Vec::new();
    let positions = vec![0.1; bench.joints.len()];
    for size in [bench.side, (640, 480)] {
        let name = format!("{}x{}", size.0, size.1);
        let data = vec![7; (size.0 * size.1 * 3) as usize];
        let (mut image, mut joint) = (Vec::new(), Vec::new());
        let (mut to_port, mut to_publish) = (Vec::new(), Vec::new());
        for number in 0..WARM_UP + count {
            // Not with the tick: a robot's messages come while the device thread waits.
            let start = Instant::now();
            bench.push_image(&bench.views[0], size, &data)?;
            let of_image = start.elapsed();
            let start = Instant::now();
            bench.push_joints(&positions)?;
            let of_joints = start.elapsed();
            let parts = bench.tick(size, &data, &positions)?;
            if number < WARM_UP {
                continue;
            }
            image.push(of_image.as_secs_f64() * 1e6);
            joint.push(of_joints.as_secs_f64() * 1e6);
            to_port.push(parts.to_port);
            to_publish.push(parts.to_publish);
        }
        all.push(
            Series::of(format!("message to ring, image {name}"), image).of_bytes(data.len() as u64),
        );
        if size == bench.side {
            all.push(Series::of("message to ring, joint state".into(), joint));
        }
        let bytes = (data.len() * bench.views.len()) as u64;
        let views = bench.views.len();
        all.push(
            Series::of(
                format!("gate, ring to port bytes, {views} images {name}"),
                to_port,
            )
            .of_bytes(bytes),
        );
        if size == bench.side {
            all.push(Series::of(
                "chunk to publish: actions read to message encoded".into(),
                to_publish,
            ));
        }
    }
    bench.engine.deactivate()?;
    Ok(all)
}

/// Resident memory over a long run.
pub struct Memory {
    /// Ticks after warm-up.
    pub ticks: usize,
    /// Snapshots and restores among them.
    pub snapshots: usize,
    /// Restores among them.
    pub restores: usize,
    /// Resident bytes after warm-up.
    pub before: u64,
    /// Resident bytes at the end.
    pub after: u64,
}

/// Ticks with new inputs, a snapshot every 100 and a restore every 500, as a robot would in a long run.
///
/// # Errors
/// As [`series`], or the system does not tell the resident memory.
pub fn memory(config: Config, ticks: usize) -> Result<Memory> {
    let bench = Bench::start(config)?;
    let mut data = vec![0; (bench.side.0 * bench.side.1 * 3) as usize];
    let mut seen = Memory {
        ticks,
        snapshots: 0,
        restores: 0,
        before: 0,
        after: 0,
    };
    // Long enough for one snapshot and one restore: memory that is kept for them is no growth.
    let warm_up = 500;
    for number in 0..warm_up + ticks {
        if number == warm_up {
            (seen.snapshots, seen.restores, seen.before) = (0, 0, resident_bytes()?);
        }
        data.fill(number as u8);
        let positions = vec![(number % 100) as f64 / 100.0; bench.joints.len()];
        bench.tick(bench.side, &data, &positions)?;
        if number % 100 == 50 {
            bench.call(Command::Snapshot {
                name: Some("bench".into()),
                tier: None,
                overwrite: true,
                exclude: Vec::new(),
            })?;
            seen.snapshots += 1;
        }
        if number % 500 == 60 {
            bench.call(Command::Restore {
                name: "bench".into(),
                allow_partial: false,
            })?;
            seen.restores += 1;
        }
    }
    seen.after = resident_bytes()?;
    bench.engine.deactivate()?;
    Ok(seen)
}

/// `VmRSS` of this process.
fn resident_bytes() -> Result<u64> {
    let text = std::fs::read_to_string("/proc/self/status").context("/proc/self/status")?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|rest| rest.trim().strip_suffix(" kB"));
    let kib: u64 = kib.context("no VmRSS in /proc/self/status")?.parse()?;
    Ok(kib * 1024)
}
