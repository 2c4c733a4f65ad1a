//! The device side of the engine, without its thread: ticks and commands on one [`Core`], in the order in which they are
//! called. The device thread drives it live, [`crate::replay`] drives it offline.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{Arc, TryLockError};

use flashrt_runtime::{ImageView, PixelFormat};
use xxhash_rust::xxh3::xxh3_64;

use crate::code::{ResultCode, SessionError};
use crate::command::{lock, Command, Outcome, RollbackTarget};
use crate::core::{Core, Plan, Restored, SnapshotSpec};
use crate::emission::last_row_ros_ns;
use crate::gate::{self, GatePort, GateRefusal};
use crate::image::MAX_VIEWS;
use crate::inlet::Slot;
use crate::io::{ChunkRef, Event, TickPortRecord, TickRecord};
use crate::ring::Ring;
use crate::shared::Shared;

/// One tick to run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TickArgs {
    /// Tick time, ROS.
    pub tick_ns: i64,
    /// Required ports must have inputs at least this new.
    pub not_before_ns: Option<i64>,
    /// `None`: by cadence.
    pub plan: Option<Plan>,
    /// `None`: the configured bucket.
    pub key: Option<u64>,
}

/// How a tick ended.
#[derive(Debug)]
pub(crate) enum TickEnd {
    /// A chunk was computed.
    Done {
        /// 0: it was not published, because its epoch or the activation ended meanwhile.
        chunk_id: u64,
        latency_ns: u64,
    },
    /// Nothing ran, or its result cannot be used; the next tick may go on.
    Refused(SessionError),
    /// The device side failed: the engine must enter its error state.
    Failed(SessionError),
}

pub(crate) struct Driver {
    pub shared: Arc<Shared>,
    core: Box<dyn Core>,
    rings: Vec<Ring<Box<Slot>>>,
    names: Vec<Arc<str>>,
    joint_names: Vec<String>,
    joint_units: Vec<String>,
    /// Index of the live set that ticks.
    active: usize,
    epochs: Vec<u64>,
    prompts: Vec<Arc<str>>,
    /// Prompt after configure.
    first_prompt: Arc<str>,
    /// Prompt that each capsule was taken under.
    capsule_prompts: HashMap<String, Arc<str>>,
    record: TickRecord,
    action_bytes: Vec<u8>,
    /// `[horizon, joints]`: the columns that have a joint.
    used_bytes: Vec<u8>,
    used: Vec<f32>,
    chunk_id: u64,
    /// Requests of the emitter that are answered.
    pub answered: u64,
    warned_deadline_ns: Option<u64>,
    refusal_text: String,
    is_hot: bool,
    /// Inputs were taken from the rings that the model does not hold yet, because it refused them or what came before them.
    owes_images: bool,
    owes_state: bool,
}

impl Driver {
    /// Checks that the configuration fits the model and sets the first prompt in every live set.
    pub fn new(shared: Arc<Shared>, core: Box<dyn Core>) -> Result<Driver, SessionError> {
        let config = shared.config.clone();
        let info = core.info();
        let joints = config.state.joints.len();
        let rings = (0..shared.inlets.len())
            .map(|i| Ring::with_capacity(shared.ring_capacity(i)))
            .collect();
        let chunk_bytes = info.horizon * info.action_dim * 4;
        let used = info.horizon * joints;
        let first_prompt: Arc<str> = Arc::from(config.prompt.text.as_str());
        let driver = Driver {
            rings,
            names: config
                .sessions
                .iter()
                .map(|s| Arc::from(s.as_str()))
                .collect(),
            joint_names: config.joint_names(),
            joint_units: config
                .state
                .joints
                .iter()
                .map(|j| j.unit.name().to_string())
                .collect(),
            active: 0,
            epochs: vec![0; config.sessions.len()],
            prompts: vec![first_prompt.clone(); config.sessions.len()],
            first_prompt,
            capsule_prompts: HashMap::new(),
            record: TickRecord::with_capacity(shared.inlets.len()),
            action_bytes: vec![0; chunk_bytes],
            used_bytes: Vec::with_capacity(used * 4),
            used: Vec::with_capacity(used),
            chunk_id: 0,
            answered: 0,
            warned_deadline_ns: None,
            refusal_text: String::with_capacity(256),
            is_hot: false,
            owes_images: false,
            owes_state: false,
            shared,
            core,
        };
        lock(&driver.shared.texts).prompt = driver.first_prompt.to_string();
        driver.publish_capsules();
        driver.publish_place()?;
        Ok(driver)
    }

    fn publish_place(&self) -> Result<(), SessionError> {
        let stats = &self.shared.stats;
        stats.session.store(self.active, Relaxed);
        stats.epoch.store(self.epochs[self.active], Relaxed);
        stats
            .tick
            .store(self.core.fields(self.active)?.tick, Relaxed);
        Ok(())
    }

    fn publish_capsules(&self) {
        let list = self.core.list(self.active, self.shared.clock.steady_ns());
        let stats = &self.shared.stats;
        stats.capsules.store(list.capsules.len(), Relaxed);
        stats.capsule_device_bytes.store(list.device_bytes, Relaxed);
        stats.capsule_host_bytes.store(list.host_bytes, Relaxed);
    }

    /// Moves what the pushers handed over into the rings.
    pub fn drain_inputs(&mut self) {
        for (ring, inlet) in self.rings.iter_mut().zip(&self.shared.inlets) {
            while let Some(slot) = inlet.inbox.pop() {
                ring.insert(slot.stamp_ns, slot, &mut |old| {
                    let _ = inlet.free.push(old);
                });
            }
            let counters = ring.counters();
            inlet.publish_counters(counters.used, counters.superseded);
        }
    }

    fn flush_inputs(&mut self) {
        self.drain_inputs();
        for (ring, inlet) in self.rings.iter_mut().zip(&self.shared.inlets) {
            ring.flush(&mut |old| {
                let _ = inlet.free.push(old);
            });
            let counters = ring.counters();
            inlet.publish_counters(counters.used, counters.superseded);
            inlet.publish_age(None);
        }
    }

    /// Whether the inputs that a context tick at `tick_ns` would use are good enough.
    pub fn ready(&self, tick_ns: i64, not_before_ns: Option<i64>) -> Result<(), SessionError> {
        if self.core.info().has_prompt && self.prompts[self.active].is_empty() {
            return Err(SessionError::new(
                ResultCode::PromptEmpty,
                "no instruction yet",
            ));
        }
        let max_skew_ns = self.shared.config.max_skew_ms.map(|ms| (ms * 1e6) as i64);
        let ports = self
            .rings
            .iter()
            .zip(&self.shared.inlets)
            .map(|(ring, inlet)| GatePort {
                name: &inlet.name,
                is_required: true,
                max_age_ns: Some(inlet.max_age_ns),
                stamp_ns: ring.candidate(tick_ns).map(|c| c.stamp_ns),
            });
        for port in ports.clone().zip(&self.shared.inlets) {
            port.1
                .publish_age(port.0.stamp_ns.map(|s| tick_ns.saturating_sub(s)));
        }
        gate::check(ports, tick_ns, not_before_ns, max_skew_ns)
            .map(drop)
            .map_err(|refusal| {
                let text = self
                    .ahead_text(&refusal, tick_ns)
                    .unwrap_or_else(|| refusal.to_string());
                SessionError::new(refusal.code(), text)
            })
    }

    /// A port whose inputs are all stamped after the tick: that is a wrong clock, not a missing camera.
    fn ahead_text(&self, refusal: &GateRefusal<'_>, tick_ns: i64) -> Option<String> {
        let GateRefusal::Missing { port } = refusal else {
            return None;
        };
        let index = self.shared.inlets.iter().position(|i| *i.name == **port)?;
        let ahead_ns = self.rings[index].earliest_ns()?.saturating_sub(tick_ns);
        Some(format!(
            "{port}: no input at or before the tick; the earliest is stamped {:.1} ms after it",
            ahead_ns as f64 / 1e6
        ))
    }

    /// Bound of mode `chunk` with `tick.fresh`: inputs must be newer than the last emitted row.
    pub fn fresh_bound_ns(&self) -> Option<i64> {
        if !self.shared.config.tick.fresh {
            return None;
        }
        last_row_ros_ns(&self.shared.handover).map(|ns| ns.saturating_add(1))
    }

    /// Plan by cadence.
    fn plan_now(&self) -> Result<Plan, SessionError> {
        let every = self.shared.config.tick.context_every;
        let fields = self.core.fields(self.active)?;
        Ok(match every {
            0 | 1 => Plan::Full,
            _ if fields.context_stamp_count == 0 || fields.ticks_since_context + 1 >= every => {
                Plan::ContextAction
            }
            _ => Plan::Action,
        })
    }

    /// Whether the next tick by cadence reads inputs.
    pub fn needs_inputs(&self) -> bool {
        self.plan_now() != Ok(Plan::Action)
    }

    /// One tick, from gate to the sink's chunk. After warm-up it allocates nothing unless it is refused.
    pub fn tick(&mut self, args: &TickArgs) -> TickEnd {
        let started_ns = self.shared.clock.steady_ns();
        let generation = self.shared.generation.load(Acquire);
        self.record.stamp_ns = args.tick_ns;
        self.record.session.clone_from(&self.names[self.active]);
        self.record.prompt.clone_from(&self.prompts[self.active]);
        self.record.epoch = self.epochs[self.active];
        self.record.key = args.key.unwrap_or(self.shared.config.model.default_key());
        self.record.ports.clear();
        self.record.plan = "";
        self.record.actions_hash = 0;
        self.record.chunk_id = 0;
        self.record.latency_ms = 0.0;
        match self.compute(args) {
            Ok(context_age_ticks) => {
                self.publish(args.tick_ns, generation, started_ns, context_age_ticks)
            }
            Err(error) => {
                self.refuse(&error);
                // A device that failed is not asked again; an input that was refused may be followed by a better one.
                match error.code {
                    ResultCode::Device | ResultCode::Poisoned | ResultCode::Internal => {
                        TickEnd::Failed(error)
                    }
                    _ => TickEnd::Refused(error),
                }
            }
        }
    }

    /// Gate to action bytes. Returns the age of the context in ticks.
    fn compute(&mut self, args: &TickArgs) -> Result<u32, SessionError> {
        let set = self.active;
        let mut fields = self.core.fields(set)?;
        self.record.tick = fields.tick;
        let plan = match args.plan {
            Some(plan) => plan,
            None => self.plan_now()?,
        };
        self.record.plan = plan.name();
        self.drain_inputs();
        if plan == Plan::Action {
            if fields.context_stamp_count == 0 {
                return Err(SessionError::new(
                    ResultCode::WrongState,
                    "action_only needs a context: none was computed in this state",
                ));
            }
            fields.ticks_since_context = fields.ticks_since_context.saturating_add(1);
        } else {
            self.ready(args.tick_ns, args.not_before_ns)?;
            self.hand_over_inputs(args.tick_ns)?;
            fields.ticks_since_context = 0;
            let mut stamps = [0i64; MAX_VIEWS + 1];
            for (stamp, port) in stamps.iter_mut().zip(&self.record.ports) {
                *stamp = port.stamp_ns;
            }
            let count = self.record.ports.len().min(stamps.len());
            fields
                .set_context_stamps(&stamps[..count])
                .map_err(|e| SessionError::new(ResultCode::Internal, e.to_string()))?;
        }
        self.core.run(set, plan, self.record.key)?;
        self.core.read_actions(set, &mut self.action_bytes)?;
        fields.tick += 1;
        self.core.set_fields(set, &fields)?;
        self.record.tick = fields.tick;
        self.use_columns()?;
        Ok(fields.ticks_since_context)
    }

    /// Takes the selected inputs from the rings and hands the new ones to the model.
    fn hand_over_inputs(&mut self, tick_ns: i64) -> Result<(), SessionError> {
        let (owed_images, owed_state) = (self.owes_images, self.owes_state);
        let views = self.rings.len() - 1;
        for (index, (ring, inlet)) in self.rings.iter_mut().zip(&self.shared.inlets).enumerate() {
            let candidate = ring.take(tick_ns, &mut |old| {
                let _ = inlet.free.push(old);
            });
            let counters = ring.counters();
            inlet.publish_counters(counters.used, counters.superseded);
            let (Some(candidate), Some(current)) = (candidate, ring.current()) else {
                continue;
            };
            let is_owed = if index < views {
                self.owes_images |= candidate.is_new;
                owed_images
            } else {
                self.owes_state |= candidate.is_new;
                owed_state
            };
            self.record.ports.push(TickPortRecord {
                name: inlet.name.clone(),
                stamp_ns: candidate.stamp_ns,
                hash: current.item.hash,
                is_new: candidate.is_new || is_owed,
            });
        }
        if self.owes_images {
            let nothing = ImageView {
                format: PixelFormat::Rgb8,
                width: 0,
                height: 0,
                stride_bytes: 0,
                data: &[],
                timestamp_ns: 0,
            };
            let mut images = [nothing; MAX_VIEWS];
            for (image, ring) in images.iter_mut().zip(&self.rings[..views]) {
                let Some(current) = ring.current() else {
                    continue;
                };
                let slot = &current.item;
                *image = ImageView {
                    format: slot.format,
                    width: slot.width,
                    height: slot.height,
                    stride_bytes: 0,
                    data: &slot.bytes,
                    timestamp_ns: slot.stamp_ns.max(0) as u64,
                };
            }
            self.core.set_images(self.active, &images[..views])?;
            self.owes_images = false;
        }
        if self.owes_state {
            if let Some(current) = self.rings[views].current() {
                self.core.set_state(self.active, &current.item.floats)?;
            }
            self.owes_state = false;
        }
        Ok(())
    }

    /// Cuts the chunk to the columns that have a joint and tests that every value is finite.
    fn use_columns(&mut self) -> Result<(), SessionError> {
        let info = self.core.info();
        let joints = self.joint_names.len();
        self.used_bytes.clear();
        self.used.clear();
        for row in self.action_bytes.chunks_exact(info.action_dim * 4) {
            self.used_bytes.extend_from_slice(&row[..joints * 4]);
        }
        for value in self.used_bytes.chunks_exact(4) {
            self.used
                .push(f32::from_le_bytes([value[0], value[1], value[2], value[3]]));
        }
        match self.used.iter().position(|v| !v.is_finite()) {
            Some(at) => Err(SessionError::new(
                ResultCode::NonFinite,
                format!(
                    "action row {}, {} is {}",
                    at / joints,
                    self.joint_names[at % joints],
                    self.used[at]
                ),
            )),
            None => Ok(()),
        }
    }

    /// Chunk to sink, rows to the emitter, record to the log.
    fn publish(
        &mut self,
        tick_ns: i64,
        generation: u64,
        started_ns: u64,
        context_age_ticks: u32,
    ) -> TickEnd {
        let shared = self.shared.clone();
        let fields = match self.core.fields(self.active) {
            Ok(fields) => fields,
            Err(error) => return TickEnd::Failed(error),
        };
        let context_stamp_ns = fields.context_stamps().iter().copied().max().unwrap_or(0);
        self.record.code = ResultCode::Ok;
        self.record.actions_hash = xxh3_64(&self.used_bytes);
        let is_published = {
            // Uncontended but for the moment in which an activation or an epoch ends.
            let is_open = lock(&shared.publication);
            let is_current = *is_open && shared.generation.load(Acquire) == generation;
            if is_current {
                self.chunk_id = self.chunk_id.wrapping_add(1);
                shared.sink.chunk(&ChunkRef {
                    session: &self.names[self.active],
                    epoch: self.epochs[self.active],
                    tick: self.record.tick,
                    chunk_id: self.chunk_id,
                    stamp_ns: context_stamp_ns,
                    observation_age_ns: tick_ns.saturating_sub(context_stamp_ns),
                    context_stamp_ns,
                    context_age_ticks,
                    dt_ns: shared.config.control_period_ns() as i64,
                    names: &self.joint_names,
                    units: &self.joint_units,
                    representation: "absolute",
                    horizon: self.core.info().horizon as u32,
                    execute_rows: shared.execute_rows,
                    data: &self.used,
                });
            }
            is_current
        };
        let latency_ns = shared.clock.steady_ns().saturating_sub(started_ns);
        if is_published {
            if let Some(mut slot) = shared.handover.take_slot() {
                slot.generation = generation;
                slot.chunk_id = self.chunk_id;
                slot.session.clone_from(&self.names[self.active]);
                slot.epoch = self.epochs[self.active];
                slot.rows.clear();
                slot.rows.extend_from_slice(&self.used);
                slot.anchor.clear();
                if let Some(state) = self.rings.last().and_then(Ring::current) {
                    slot.anchor.extend_from_slice(&state.item.topic);
                }
                if let Err(slot) = shared.handover.chunks.push(slot) {
                    shared.handover.give_back(slot);
                }
            }
            self.record.chunk_id = self.chunk_id;
            shared.stats.chunks.fetch_add(1, Relaxed);
        }
        self.record.latency_ms = latency_ns as f64 / 1e6;
        shared.stats.tick.store(self.record.tick, Relaxed);
        shared.stats.latency.record(latency_ns);
        shared.sink.tick_log(&self.record);
        self.watch_deadline(latency_ns);
        TickEnd::Done {
            chunk_id: if is_published { self.chunk_id } else { 0 },
            latency_ns,
        }
    }

    fn watch_deadline(&mut self, latency_ns: u64) {
        let Some(deadline_ms) = self.shared.config.tick.deadline_ms else {
            return;
        };
        let latency_ms = latency_ns as f64 / 1e6;
        if latency_ms <= deadline_ms {
            return;
        }
        self.shared.stats.deadline_misses.fetch_add(1, Relaxed);
        let now_ns = self.shared.clock.steady_ns();
        if self
            .warned_deadline_ns
            .is_none_or(|t| now_ns.saturating_sub(t) >= 1_000_000_000)
        {
            self.warned_deadline_ns = Some(now_ns);
            self.shared.sink.event(Event::Warning(format!(
                "tick took {latency_ms:.1} ms, deadline {deadline_ms} ms"
            )));
        }
    }

    /// A tick that did not even start, for instance because an automatic one has no inputs.
    pub fn refuse_unstarted(&mut self, tick_ns: i64, error: &SessionError) {
        self.record.stamp_ns = tick_ns;
        self.record.session.clone_from(&self.names[self.active]);
        self.record.prompt.clone_from(&self.prompts[self.active]);
        self.record.epoch = self.epochs[self.active];
        self.record.ports.clear();
        self.record.plan = "";
        self.record.actions_hash = 0;
        self.record.chunk_id = 0;
        self.record.latency_ms = 0.0;
        self.record.tick = self.shared.stats.tick.load(Relaxed);
        self.refuse(error);
    }

    fn refuse(&mut self, error: &SessionError) {
        self.shared.stats.ticks_refused.fetch_add(1, Relaxed);
        self.refusal_text.clear();
        let _ = write!(self.refusal_text, "{error}");
        // A reader of the status must not hold the device thread up: then this text is left out.
        match self.shared.texts.try_lock() {
            Ok(mut texts) => texts.last_refusal.clone_from(&self.refusal_text),
            Err(TryLockError::Poisoned(texts)) => texts
                .into_inner()
                .last_refusal
                .clone_from(&self.refusal_text),
            Err(TryLockError::WouldBlock) => {}
        }
        self.record.code = error.code;
        self.record.actions_hash = 0;
        self.shared.sink.tick_log(&self.record);
    }

    /// A new epoch of set `set`. When it is the one that ticks, inputs, rows and holds of the old one are gone.
    fn begin_epoch(&mut self, set: usize, why: &str) -> Result<(), SessionError> {
        // A replayed log may stand at any number.
        self.epochs[set] = self.epochs[set].wrapping_add(1);
        if set == self.active {
            self.leave_generation();
        }
        self.shared.sink.event(Event::Info(format!(
            "epoch {} of {}: {why}",
            self.epochs[set], self.names[set]
        )));
        self.publish_place()
    }

    fn leave_generation(&mut self) {
        let shared = self.shared.clone();
        let mut emission = lock(&shared.emission);
        emission.clear(shared.next_generation(), &shared.handover, &shared.stats);
        self.answered = shared.handover.requests.load(Acquire);
        drop(emission);
        self.flush_inputs();
        (self.owes_images, self.owes_state) = (false, false);
    }

    /// Activation: a new epoch, publication opens.
    pub fn activate(&mut self) -> Result<(), SessionError> {
        self.require_usable()?;
        self.begin_epoch(self.active, "activate")?;
        self.core.set_hot(true);
        self.is_hot = true;
        {
            let shared = self.shared.clone();
            let mut is_open = lock(&shared.publication);
            let mut emission = lock(&shared.emission);
            emission.open(shared.next_generation(), &shared.handover, &shared.stats);
            self.answered = shared.handover.requests.load(Acquire);
            *is_open = true;
        }
        self.shared.is_active.store(true, Release);
        let target = self.names[self.active].clone();
        self.log_operation("activate", "", &target, "", self.shared.clock.ros_ns());
        Ok(())
    }

    /// What the device thread does when it sees that the activation ended.
    pub fn cool_down(&mut self) {
        if self.is_hot && !self.shared.is_active.load(Acquire) {
            self.is_hot = false;
            self.core.set_hot(false);
        }
    }

    fn require_usable(&self) -> Result<(), SessionError> {
        if self.shared.has_error.load(Acquire) {
            let reason = lock(&self.shared.texts).error.clone();
            return Err(SessionError::new(
                ResultCode::Poisoned,
                format!("error state ({reason}): cleanup and configure"),
            ));
        }
        Ok(())
    }

    /// Logs an operation with the place after it.
    pub(crate) fn log_operation(
        &mut self,
        operation: &'static str,
        capsule: &str,
        target: &str,
        options: &str,
        ros_ns: i64,
    ) {
        let mut record = TickRecord::with_capacity(0);
        record.stamp_ns = ros_ns;
        record.session = self.names[self.active].clone();
        record.epoch = self.epochs[self.active];
        record.tick = self.shared.stats.tick.load(Relaxed);
        record.prompt = self.prompts[self.active].clone();
        record.operation = operation;
        record.capsule = Arc::from(capsule);
        record.target = Arc::from(target);
        record.options = Arc::from(options);
        self.shared.sink.tick_log(&record);
    }

    fn set_prompt(&mut self, set: usize, text: &str) -> Result<(), SessionError> {
        if self.core.info().has_prompt {
            self.core.set_prompt(set, text)?;
        }
        self.note_prompt(set, Arc::from(text));
        Ok(())
    }

    fn note_prompt(&mut self, set: usize, text: Arc<str>) {
        if set == self.active {
            lock(&self.shared.texts).prompt = text.to_string();
        }
        self.prompts[set] = text;
    }

    /// The prompt in force.
    pub fn prompt(&self) -> &Arc<str> {
        &self.prompts[self.active]
    }

    /// Name of the live set that ticks.
    pub fn session(&self) -> &Arc<str> {
        &self.names[self.active]
    }

    /// Tick number of the live set that ticks.
    pub fn tick_number(&self) -> u64 {
        self.core.fields(self.active).map_or(0, |f| f.tick)
    }

    /// Epoch numbers go on from here (replay takes the live ones).
    pub fn align_epoch(&mut self, epoch: u64) {
        self.epochs[self.active] = epoch;
    }

    /// Ids of chunks go on from here (replay sets it so that ids equal the live ones).
    pub fn set_chunk_id(&mut self, last: u64) {
        self.chunk_id = last;
    }

    /// Applies a command at this boundary. `Command::Tick` is not handled here.
    pub fn apply(&mut self, op_id: u64, command: &Command) -> Outcome {
        let started_ns = self.shared.clock.steady_ns();
        let mut outcome = Outcome::new(op_id, command.kind(), ResultCode::Ok, "");
        if let Err(error) = self.apply_inner(command, &mut outcome) {
            outcome.code = error.code;
            outcome.message = error.message;
        }
        outcome.duration_us = self.shared.clock.steady_ns().saturating_sub(started_ns) as f64 / 1e3;
        if outcome.session.is_empty() {
            outcome.session = self.names[self.active].to_string();
            outcome.epoch = self.epochs[self.active];
            outcome.tick = self.tick_number();
            outcome.prompt = self.prompts[self.active].to_string();
        }
        outcome
    }

    fn apply_inner(
        &mut self,
        command: &Command,
        outcome: &mut Outcome,
    ) -> Result<(), SessionError> {
        match command {
            Command::List | Command::Describe => {}
            _ => self.require_usable()?,
        }
        let result = self.apply_usable(command, outcome);
        // A set that was left half-written is an error state, whatever the command says.
        for set in 0..self.names.len() {
            if let Some(reason) = self
                .core
                .poison(set)
                .filter(|_| !self.shared.has_error.load(Acquire))
            {
                let error = SessionError::new(
                    ResultCode::Poisoned,
                    format!("live set {}: {reason}", self.names[set]),
                );
                self.shared.enter_error(&error);
            }
        }
        result
    }

    fn apply_usable(
        &mut self,
        command: &Command,
        outcome: &mut Outcome,
    ) -> Result<(), SessionError> {
        let set = self.active;
        let ros_ns = self.shared.clock.ros_ns();
        let steady_ns = self.shared.clock.steady_ns();
        match command {
            Command::Snapshot {
                name,
                tier,
                overwrite,
                exclude,
            } => {
                let tier = tier.unwrap_or(self.shared.config.capsules.default_tier);
                let spec = SnapshotSpec {
                    name: name.as_deref().filter(|n| !n.is_empty()),
                    tier,
                    overwrite: *overwrite,
                    exclude,
                    tick: self.core.fields(set)?.tick,
                    epoch: self.epochs[set],
                    steady_ns,
                    ros_ns,
                };
                let report = self.core.snapshot(set, &spec)?;
                let kept = self.core.list(set, steady_ns);
                // History may have dropped others: their prompts go with them.
                self.capsule_prompts
                    .retain(|name, _| kept.capsules.iter().any(|c| c.name == *name));
                self.capsule_prompts
                    .insert(report.name.clone(), self.prompts[set].clone());
                self.publish_capsules();
                let mut options = format!("tier={}", tier.name());
                if *overwrite {
                    options.push_str(",overwrite");
                }
                for region in exclude {
                    let _ = write!(options, ",exclude={region}");
                }
                outcome.name.clone_from(&report.name);
                outcome.bytes = report.bytes;
                self.log_operation("snapshot", &report.name, "", &options, ros_ns);
                outcome.capsule = Some(report);
            }
            Command::Restore {
                name,
                allow_partial,
            } => {
                let prompt = self.capsule_prompts.get(name).cloned();
                let restored = self.core.restore(set, name, *allow_partial)?;
                self.after_restore(set, &restored, prompt, "restore", outcome)?;
                let options = if *allow_partial { "allow_partial" } else { "" };
                self.log_operation("restore", &restored.name, "", options, ros_ns);
            }
            Command::Rollback(target) => {
                if let RollbackTarget::AgeS(age_s) = target {
                    if !age_s.is_finite() || *age_s < 0.0 {
                        return Err(SessionError::new(
                            ResultCode::BadArgument,
                            format!("age_s is {age_s}: expected a finite number >= 0"),
                        ));
                    }
                }
                let restored = self.core.rollback(set, target, steady_ns)?;
                let prompt = self.capsule_prompts.get(&restored.name).cloned();
                self.after_restore(set, &restored, prompt, "rollback", outcome)?;
                self.log_operation("rollback", &restored.name, "", "", ros_ns);
            }
            Command::Fork {
                name,
                session,
                switch_to,
            } => self.fork(name, session, *switch_to, outcome, ros_ns)?,
            Command::Reset { keep_prompt } => {
                let before = self.prompts[set].clone();
                let restored = self.core.reset(set)?;
                let first = Some(self.first_prompt.clone());
                self.after_restore(set, &restored, first, "reset", outcome)?;
                if *keep_prompt && before != self.prompts[set] {
                    self.set_prompt(set, &before)?;
                    outcome.prompt = before.to_string();
                }
                let options = if *keep_prompt { "keep_prompt" } else { "" };
                self.log_operation("reset", "", "", options, ros_ns);
            }
            Command::Drop { name } => {
                outcome.bytes = self.core.drop_capsule(name)?;
                outcome.name.clone_from(name);
                self.capsule_prompts.remove(name);
                self.publish_capsules();
                self.log_operation("drop", name, "", "", ros_ns);
            }
            Command::List => {
                let list = self.core.list(set, steady_ns);
                outcome.capsules = list.capsules;
                outcome.cursor = list.cursor;
                outcome.device_bytes = list.device_bytes;
                outcome.device_budget_bytes = list.device_budget_bytes;
                outcome.host_bytes = list.host_bytes;
                outcome.host_budget_bytes = list.host_budget_bytes;
            }
            Command::Prepare { graph, key, evict } => {
                if self.shared.is_active.load(Acquire) {
                    return Err(SessionError::new(
                        ResultCode::WrongState,
                        "prepare runs outside Active only: deactivate first",
                    ));
                }
                self.cool_down();
                outcome.variants = self.core.prepare(graph, *key, *evict)?;
            }
            Command::Describe => {
                outcome.description = Some(Arc::new(self.core.info().description.clone()))
            }
            Command::Prompt(text) => self.set_prompt(set, text)?,
            Command::TimeJump { delta_ns } => {
                self.begin_epoch(
                    set,
                    &format!("ROS time jumped by {:.3} s", *delta_ns as f64 / 1e9),
                )?;
                self.log_operation("time_jump", "", "", "", ros_ns);
            }
            Command::Tick(_) => {
                return Err(SessionError::new(
                    ResultCode::Internal,
                    "a tick is no boundary command",
                ));
            }
        }
        Ok(())
    }

    fn after_restore(
        &mut self,
        set: usize,
        restored: &Restored,
        prompt: Option<Arc<str>>,
        why: &str,
        outcome: &mut Outcome,
    ) -> Result<(), SessionError> {
        if let Some(prompt) = prompt {
            self.note_prompt(set, prompt);
        }
        let text = if restored.name.is_empty() {
            why.to_string()
        } else {
            format!("{why} of {:?}", restored.name)
        };
        self.begin_epoch(set, &text)?;
        self.publish_capsules();
        outcome.session = self.names[set].to_string();
        outcome.epoch = self.epochs[set];
        outcome.tick = self.core.fields(set)?.tick;
        outcome.name.clone_from(&restored.name);
        outcome.bytes = restored.bytes;
        outcome.promoted_bytes = restored.promoted_bytes;
        outcome.prompt = self.prompts[set].to_string();
        Ok(())
    }

    fn fork(
        &mut self,
        name: &str,
        session: &str,
        switch_to: bool,
        outcome: &mut Outcome,
        ros_ns: i64,
    ) -> Result<(), SessionError> {
        if self.shared.config.model.native.is_some() {
            return Err(SessionError::new(
                ResultCode::Unsupported,
                format!(
                    "no fork into {session:?}: a native model has one live set, {}",
                    self.names[self.active]
                ),
            ));
        }
        let Some(target) = self.names.iter().position(|n| **n == *session) else {
            return Err(SessionError::new(
                ResultCode::NoSession,
                format!(
                    "no live set named {session:?}: sessions are {}",
                    self.shared.config.sessions.join(", ")
                ),
            ));
        };
        if target == self.active {
            return Err(SessionError::new(
                ResultCode::NoSession,
                format!("live set {session} is the one that ticks: fork needs an idle one"),
            ));
        }
        let prompt = self.capsule_prompts.get(name).cloned();
        let restored = self.core.restore(target, name, false)?;
        self.after_restore(target, &restored, prompt, "fork", outcome)?;
        if switch_to {
            self.active = target;
            self.leave_generation();
            self.publish_place()?;
            lock(&self.shared.texts).prompt = self.prompts[target].to_string();
        }
        let options = if switch_to { "switch_to" } else { "" };
        self.log_operation("fork", &restored.name, session, options, ros_ns);
        Ok(())
    }
}
