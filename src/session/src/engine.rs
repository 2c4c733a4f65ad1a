//! The engine: lifecycle, threads and doors. See [`Engine`].

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, RwLock};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::chunk::Phase;
use crate::code::{ResultCode, SessionError};
use crate::command::{lock, Command, OpTable, Operation, Outcome};
use crate::config::{Config, TickMode};
use crate::core::{Core, Plan};
use crate::driver::{Driver, TickArgs, TickEnd};
use crate::io::{Clock, Event, ImageRef, JointsRef, PushOutcome, Sink};
use crate::lifecycle::{id, Callback, Machine, Refusal, State};
use crate::shared::{NotQueued, Queued, Shared, QUEUE};
use crate::status::{ConfigureReport, Status};

/// Finished operations that stay findable.
const KEPT_OPERATIONS: usize = 256;
/// Longest wait for the device thread to take up an activation or to end.
const DEVICE_PATIENCE: Duration = Duration::from_secs(10);
/// Longest sleep of an idle device thread.
const IDLE_NS: u64 = 1_000_000_000;

/// Opens the device side for a configuration. Runs on the device thread.
pub type CoreFactory = Box<dyn FnOnce(&Config) -> Result<Box<dyn Core>, SessionError> + Send>;

/// The engine: a live set with its inputs, outputs and history. `Send + Sync`, cheap to clone.
///
/// Threads: the device thread lives from configure to cleanup and is the only user of the live sets; the emitter lives from
/// activate to deactivate and cannot be held up by a tick. Every method may be called from any thread; `configure`,
/// `activate`, `deactivate`, `cleanup` and `shutdown` block, a second one meanwhile is answered BUSY.
#[derive(Clone)]
pub struct Engine {
    inner: Arc<Inner>,
}

struct Inner {
    clock: Arc<dyn Clock>,
    sink: Arc<dyn Sink>,
    lifecycle: Arc<Mutex<Machine>>,
    running: RwLock<Option<Arc<Running>>>,
    operations: Mutex<OpTable>,
}

struct Running {
    shared: Arc<Shared>,
    device: Mutex<Option<JoinHandle<()>>>,
    emitter: Mutex<Option<JoinHandle<()>>>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(running) = self.running.get_mut().ok().and_then(Option::take) {
            running.stop_emitter();
            // A device thread that is stuck in a tick is left behind: a drop must not hang.
            running.stop_device(Duration::from_secs(2));
        }
    }
}

impl Running {
    fn stop_emitter(&self) {
        self.shared.emitter_stops.store(true, Release);
        if let Some(thread) = lock(&self.emitter).take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }

    /// Closes every output. After this nothing is published.
    fn close_outputs(&self) {
        let shared = &self.shared;
        // Order: commands stop first, then chunks, then ticks.
        self.stop_emitter();
        lock(&shared.emission).close(shared.next_generation(), &shared.handover, &shared.stats);
        let mut is_open = lock(&shared.publication);
        *is_open = false;
        drop(is_open);
        shared.is_active.store(false, Release);
        shared.handover.wake_device();
    }

    /// True when the device thread ended within `patience`.
    fn stop_device(&self, patience: Duration) -> bool {
        self.shared.is_stopping.store(true, Release);
        self.shared.handover.wake_device();
        let mut device = lock(&self.device);
        let Some(thread) = device.take() else {
            return true;
        };
        let end = std::time::Instant::now() + patience;
        while !thread.is_finished() && std::time::Instant::now() < end {
            thread.thread().unpark();
            std::thread::sleep(Duration::from_millis(1));
        }
        if thread.is_finished() {
            let _ = thread.join();
            return true;
        }
        *device = Some(thread);
        false
    }
}

fn not_configured() -> SessionError {
    SessionError::new(
        ResultCode::NotConfigured,
        "no model is loaded: configure first",
    )
}

impl Engine {
    /// An engine in state Unconfigured.
    pub fn new(clock: Arc<dyn Clock>, sink: Arc<dyn Sink>) -> Engine {
        Engine {
            inner: Arc::new(Inner {
                clock,
                sink,
                lifecycle: Arc::default(),
                running: RwLock::new(None),
                operations: Mutex::new(OpTable::new(KEPT_OPERATIONS)),
            }),
        }
    }

    fn running(&self) -> Option<Arc<Running>> {
        self.inner
            .running
            .read()
            .unwrap_or_else(|p| p.into_inner())
            .clone()
    }

    fn begin(&self, transition: u8) -> Result<(), SessionError> {
        let edge = lock(&self.inner.lifecycle)
            .begin(transition)
            .map_err(|refusal| {
                let code = match refusal {
                    Refusal::Busy(_) => ResultCode::Busy,
                    Refusal::NotPossible { .. } => ResultCode::WrongState,
                };
                SessionError::new(code, refusal.to_string())
            })?;
        self.inner.sink.event(Event::Transition(*edge));
        Ok(())
    }

    fn finish<T>(&self, result: Result<T, SessionError>) -> Result<T, SessionError> {
        let callback = if result.is_ok() {
            Callback::Success
        } else {
            Callback::Failure
        };
        let edge = lock(&self.inner.lifecycle).finish(callback);
        if let Some(edge) = edge {
            self.inner.sink.event(Event::Transition(*edge));
        }
        result
    }

    /// Unconfigured to Inactive: loads, allocates, captures and warms every declared bucket in every live set.
    ///
    /// # Errors
    /// Whatever is wrong, with names and numbers; nothing is left behind and the state is Unconfigured again.
    pub fn configure(&self, config: Config) -> Result<ConfigureReport, SessionError> {
        self.configure_with(config, Box::new(crate::live::open))
    }

    /// [`Engine::configure`] with another device side, for tests.
    ///
    /// # Errors
    /// As [`Engine::configure`].
    pub fn configure_with(
        &self,
        config: Config,
        factory: CoreFactory,
    ) -> Result<ConfigureReport, SessionError> {
        self.begin(id::CONFIGURE)?;
        let result = self.start_device(config, factory);
        self.finish(result)
    }

    fn start_device(
        &self,
        config: Config,
        factory: CoreFactory,
    ) -> Result<ConfigureReport, SessionError> {
        let started_ns = self.inner.clock.steady_ns();
        let warnings = config_warnings(&config);
        let config = Arc::new(config);
        let (clock, sink) = (self.inner.clock.clone(), self.inner.sink.clone());
        let lifecycle = self.inner.lifecycle.clone();
        let (answer, opened) = mpsc::sync_channel(1);
        let thread = std::thread::Builder::new()
            .name("flashrt-device".into())
            .spawn(move || {
                let opened = catch_unwind(AssertUnwindSafe(|| {
                    open_driver(config, factory, clock, sink)
                }))
                .unwrap_or_else(|panic| Err(panicked("configure", &*panic)));
                match opened {
                    Ok(driver) => {
                        driver.shared.handover.set_device(std::thread::current());
                        if answer.send(Ok(driver.shared.clone())).is_ok() {
                            DeviceThread::new(driver, lifecycle).run();
                        }
                    }
                    Err(error) => {
                        let _ = answer.send(Err(error));
                    }
                }
            })
            .map_err(|e| {
                SessionError::new(
                    ResultCode::Internal,
                    format!("cannot start the device thread: {e}"),
                )
            })?;
        let opened = opened.recv().unwrap_or_else(|_| {
            Err(SessionError::new(
                ResultCode::Internal,
                "the device thread ended early",
            ))
        });
        match opened {
            Ok(shared) => {
                let description = shared.info.description.clone();
                let running = Running {
                    shared,
                    device: Mutex::new(Some(thread)),
                    emitter: Mutex::new(None),
                };
                *self
                    .inner
                    .running
                    .write()
                    .unwrap_or_else(|p| p.into_inner()) = Some(Arc::new(running));
                let duration_ms =
                    self.inner.clock.steady_ns().saturating_sub(started_ns) as f64 / 1e6;
                Ok(ConfigureReport {
                    description,
                    duration_ms,
                    warnings,
                })
            }
            Err(error) => {
                // The thread's stack owns everything that was built: it is gone when this returns.
                let _ = thread.join();
                Err(error)
            }
        }
    }

    /// Inactive to Active: a new epoch, ticks and commands start.
    ///
    /// # Errors
    /// WRONG_STATE when already Active, POISONED in the error state, TIMEOUT when a command takes too long, DEVICE after a
    /// cleanup that gave up; the state does not change.
    pub fn activate(&self) -> Result<(), SessionError> {
        self.begin(id::ACTIVATE)?;
        let result = self.start_ticking();
        self.finish(result)?;
        // A tick may have failed before the machine was Active: then it is this call that leaves the state again.
        if let Some(running) = self.running().filter(|r| r.shared.has_error.load(Acquire)) {
            let error = lock(&running.shared.texts).error.clone();
            // The device thread may have left Active already.
            let _ = self.deactivate();
            return Err(SessionError::new(ResultCode::Poisoned, error));
        }
        Ok(())
    }

    fn start_ticking(&self) -> Result<(), SessionError> {
        let running = self.running().ok_or_else(not_configured)?;
        let shared = running.shared.clone();
        let operation = lock(&self.inner.operations).open("activate");
        let queued = Queued {
            operation: operation.clone(),
            command: None,
            queued_ns: shared.clock.steady_ns(),
        };
        shared.enqueue(queued).map_err(|_| {
            operation.cell.finish(Outcome::new(
                operation.op_id,
                operation.kind,
                ResultCode::Cancelled,
                "the device thread is ending",
            ));
            SessionError::new(
                ResultCode::Device,
                "a cleanup waits for the device thread, which is stuck or ending: clean up again, or restart the process",
            )
        })?;
        let outcome = operation.wait(DEVICE_PATIENCE).unwrap_or_else(|| {
            let given_up = Outcome::new(
                operation.op_id,
                "activate",
                ResultCode::Timeout,
                format!(
                    "the device thread did not answer within {} s",
                    DEVICE_PATIENCE.as_secs()
                ),
            );
            match operation.cell.finish(given_up.clone()) {
                true => given_up,
                // It answered at the last moment: then it is active.
                false => operation.poll().unwrap_or(given_up),
            }
        });
        if !outcome.code.is_ok() {
            return Err(SessionError::new(outcome.code, outcome.message));
        }
        shared.emitter_stops.store(false, Release);
        let lifecycle = self.inner.lifecycle.clone();
        let emitter = std::thread::Builder::new()
            .name("flashrt-emitter".into())
            .spawn(move || {
                let end = catch_unwind(AssertUnwindSafe(|| emit_loop(&shared)));
                if let Err(panic) = end {
                    fail(&shared, &lifecycle, &panicked("the emitter", &*panic));
                }
            });
        match emitter {
            Ok(thread) => {
                *lock(&running.emitter) = Some(thread);
                Ok(())
            }
            Err(e) => {
                running.close_outputs();
                Err(SessionError::new(
                    ResultCode::Internal,
                    format!("cannot start the emitter thread: {e}"),
                ))
            }
        }
    }

    /// Active to Inactive. Commands stop first, then chunks, then ticks; when it returns no command and no chunk is published
    /// any more. A tick that is under way ends by itself and its chunk is dropped: a stuck one does not hold this up. The tick
    /// log gets its record all the same, because it changed the state.
    ///
    /// # Errors
    /// WRONG_STATE when not Active.
    pub fn deactivate(&self) -> Result<(), SessionError> {
        self.begin(id::DEACTIVATE)?;
        if let Some(running) = self.running() {
            running.close_outputs();
        }
        self.finish(Ok(()))
    }

    /// Inactive to Unconfigured: queued operations are cancelled, everything is freed.
    ///
    /// # Errors
    /// WRONG_STATE when not Inactive; DEVICE when the device thread is stuck.
    pub fn cleanup(&self) -> Result<(), SessionError> {
        self.begin(id::CLEANUP)?;
        let result = self.release();
        self.finish(result)
    }

    fn release(&self) -> Result<(), SessionError> {
        let Some(running) = self.running() else {
            return Ok(());
        };
        running.close_outputs();
        if !running.stop_device(DEVICE_PATIENCE) {
            return Err(SessionError::new(
                ResultCode::Device,
                format!(
                    "the device thread is stuck for more than {} s: restart the process",
                    DEVICE_PATIENCE.as_secs()
                ),
            ));
        }
        *self
            .inner
            .running
            .write()
            .unwrap_or_else(|p| p.into_inner()) = None;
        Ok(())
    }

    /// To Finalized, from any primary state.
    ///
    /// # Errors
    /// BUSY during another transition, WRONG_STATE when Finalized already.
    pub fn shutdown(&self) -> Result<(), SessionError> {
        let transition = match self.state() {
            State::Unconfigured => id::UNCONFIGURED_SHUTDOWN,
            State::Active => id::ACTIVE_SHUTDOWN,
            _ => id::INACTIVE_SHUTDOWN,
        };
        self.begin(transition)?;
        let result = self.release();
        self.finish(result)
    }

    /// Lifecycle state.
    pub fn state(&self) -> State {
        lock(&self.inner.lifecycle).state()
    }

    /// The deployed configuration, `None` before configure.
    pub fn config(&self) -> Option<Arc<Config>> {
        self.running().map(|r| r.shared.config.clone())
    }

    /// Image of a view. `stamp_ns` 0: unstamped, receive time is used.
    pub fn push_image(&self, view: &str, image: ImageRef<'_>, stamp_ns: i64) -> PushOutcome {
        let Some(running) = self.running() else {
            return PushOutcome::Ignored;
        };
        let shared = &running.shared;
        match shared.config.images.iter().position(|v| v.view == view) {
            Some(index) => {
                let outcome =
                    shared.inlets[index].push_image(&image, stamp_ns, shared.clock.ros_ns());
                note_input(shared, &outcome);
                outcome
            }
            None => PushOutcome::Ignored,
        }
    }

    /// Joint positions. `stamp_ns` 0: unstamped, receive time is used.
    pub fn push_joints(&self, joints: JointsRef<'_>, stamp_ns: i64) -> PushOutcome {
        let Some(running) = self.running() else {
            return PushOutcome::Ignored;
        };
        let shared = &running.shared;
        match shared.inlets.last() {
            Some(inlet) => {
                let outcome = inlet.push_joints(&joints, stamp_ns, shared.clock.ros_ns());
                note_input(shared, &outcome);
                outcome
            }
            None => PushOutcome::Ignored,
        }
    }

    /// A new instruction, applied at the next boundary.
    ///
    /// # Errors
    /// As [`Engine::submit`]. What the model says of the text is in the operation's outcome.
    pub fn push_prompt(&self, text: &str) -> Result<Operation, SessionError> {
        self.submit(Command::Prompt(text.to_string()))
    }

    /// Queues a command. It is applied in arrival order at a tick boundary, also while Inactive. `List` is answered in every
    /// state.
    ///
    /// # Errors
    /// NOT_CONFIGURED before configure, BUSY when 1024 commands wait already.
    pub fn submit(&self, command: Command) -> Result<Operation, SessionError> {
        let Some(running) = self.running() else {
            if command != Command::List {
                return Err(not_configured());
            }
            let operation = lock(&self.inner.operations).open(command.kind());
            operation.cell.finish(Outcome::new(
                operation.op_id,
                command.kind(),
                ResultCode::Ok,
                "no model is loaded",
            ));
            return Ok(operation);
        };
        let operation = lock(&self.inner.operations).open(command.kind());
        let queued_ns = running.shared.clock.steady_ns();
        let queued = Queued {
            operation: operation.clone(),
            command: Some(command),
            queued_ns,
        };
        match running.shared.enqueue(queued) {
            Ok(()) => {}
            Err(NotQueued::Stopping(queued)) => cancel(&queued, &self.inner.sink),
            Err(NotQueued::Full) => {
                let error = SessionError::new(
                    ResultCode::Busy,
                    format!("{QUEUE} commands wait, that is the most: the device thread is behind"),
                );
                // Nobody got its id: the table may forget it.
                operation.cell.finish(Outcome::new(
                    operation.op_id,
                    operation.kind,
                    error.code,
                    error.message.clone(),
                ));
                return Err(error);
            }
        }
        Ok(operation)
    }

    /// Queues a command and waits up to `wait`. An outcome with code ACCEPTED means that it still runs.
    pub fn call(&self, command: Command, wait: Duration) -> Outcome {
        let kind = command.kind();
        match self.submit(command) {
            Ok(operation) => operation.wait(wait).unwrap_or_else(|| {
                Outcome::new(
                    operation.op_id,
                    kind,
                    ResultCode::Accepted,
                    "still running: ask operation_status",
                )
            }),
            Err(error) => Outcome::new(0, kind, error.code, error.message),
        }
    }

    /// The operation of this id, running or finished; `None` if unknown (or forgotten: the newest 256 are kept).
    pub fn operation_status(&self, op_id: u64) -> Option<Operation> {
        lock(&self.inner.operations).find(op_id)
    }

    /// Changes the tick mode at run time. Ignored before configure.
    pub fn set_tick_mode(&self, mode: TickMode) {
        if let Some(running) = self.running() {
            running.shared.tick_mode.store(mode as u8, Relaxed);
            running.shared.handover.wake_device();
        }
    }

    /// ROS time jumped: a new epoch at the next boundary. Ignored before configure.
    pub fn time_jump(&self, delta_ns: i64) {
        // Without a model there is nothing that a jump could make stale.
        let _ = self.submit(Command::TimeJump { delta_ns });
    }

    /// A snapshot of all counters. Does not wait for the device thread.
    pub fn status(&self) -> Status {
        let state = self.state();
        let Some(running) = self.running() else {
            return empty_status(state);
        };
        let shared = &running.shared;
        let stats = &shared.stats;
        let (prompt, last_refusal, error) = {
            let texts = lock(&shared.texts);
            (
                texts.prompt.clone(),
                texts.last_refusal.clone(),
                texts.error.clone(),
            )
        };
        Status {
            state,
            session: shared
                .config
                .sessions
                .get(stats.session.load(Relaxed))
                .cloned()
                .unwrap_or_default(),
            epoch: stats.epoch.load(Relaxed),
            tick: stats.tick.load(Relaxed),
            model: shared.info.description.label(),
            fingerprint: shared.info.description.fingerprint.clone(),
            prompt,
            tick_mode: shared.tick_mode().name(),
            chunk_state: Phase::from_number(stats.phase.load(Relaxed)).name(),
            rows_left: stats.rows_left.load(Relaxed) as u32,
            chunks: stats.chunks.load(Relaxed),
            commands: stats.commands.load(Relaxed),
            holds: stats.holds.load(Relaxed),
            deadline_misses: stats.deadline_misses.load(Relaxed),
            ticks_refused: stats.ticks_refused.load(Relaxed),
            last_refusal,
            tick_ms_last: stats.latency.last_ms(),
            tick_ms_p50: stats.latency.percentile_ms(0.5),
            tick_ms_p99: stats.latency.percentile_ms(0.99),
            tick_ms_max: stats.latency.max_ms(),
            boundary_jump: f64::from_bits(stats.boundary_jump_bits.load(Relaxed)),
            ports: shared.inlets.iter().map(|i| i.status()).collect(),
            capsules: stats.capsules.load(Relaxed) as u32,
            capsule_device_bytes: stats.capsule_device_bytes.load(Relaxed),
            capsule_host_bytes: stats.capsule_host_bytes.load(Relaxed),
            limited: stats.limited.load(Relaxed),
            error,
        }
    }
}

fn note_input(shared: &Shared, outcome: &PushOutcome) {
    if *outcome == PushOutcome::Accepted {
        shared.input_news.fetch_add(1, Release);
        shared.handover.wake_device();
    }
}

fn config_warnings(config: &Config) -> Vec<String> {
    let mut warnings = Vec::new();
    if config.command.limits.is_none() {
        warnings.push("command.limits is off: commands are not limited to a range".to_string());
    }
    if config.command.max_step.is_none() {
        warnings.push(
            "command.max_step is off: the change from one command to the next is not limited"
                .to_string(),
        );
    }
    warnings
}

fn open_driver(
    config: Arc<Config>,
    factory: CoreFactory,
    clock: Arc<dyn Clock>,
    sink: Arc<dyn Sink>,
) -> Result<Driver, SessionError> {
    let core = factory(&config)?;
    let info = core.info().clone();
    check_fit(&config, &info)?;
    let shared = Arc::new(Shared::new(config, info, clock, sink));
    Driver::new(shared, core)
}

/// The deployment file against the model's dimensions.
pub(crate) fn check_fit(config: &Config, info: &crate::core::CoreInfo) -> Result<(), SessionError> {
    let bad = |message: String| Err(SessionError::new(ResultCode::Shape, message));
    let joints = config.state.joints.len();
    if config.images.len() != info.views {
        let views: Vec<&str> = config.images.iter().map(|v| v.view.as_str()).collect();
        return bad(format!(
            "ports.images: the model takes {} views, got {} ({})",
            info.views,
            views.len(),
            views.join(", ")
        ));
    }
    if joints > info.state_dim {
        return bad(format!(
            "ports.state.joints: the model's state has {} values, got {joints} joints",
            info.state_dim
        ));
    }
    if joints > info.action_dim {
        return bad(format!(
            "ports.state.joints: the model's action has {} columns, got {joints} joints",
            info.action_dim
        ));
    }
    if config.chunk.execute_rows as usize > info.horizon {
        return bad(format!(
            "chunk.execute_rows: the model's chunk has {} rows, got {}",
            info.horizon, config.chunk.execute_rows
        ));
    }
    Ok(())
}

fn cancel(queued: &Queued, sink: &Arc<dyn Sink>) {
    let operation = &queued.operation;
    let outcome = Outcome::new(
        operation.op_id,
        operation.kind,
        ResultCode::Cancelled,
        "the node left the state it needs",
    );
    operation.cell.finish(outcome.clone());
    sink.event(Event::OperationDone(Box::new(outcome)));
}

pub(crate) fn panicked(what: &str, payload: &(dyn std::any::Any + Send)) -> SessionError {
    let text = payload
        .downcast_ref::<&str>()
        .map(|s| s.to_string())
        .or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".into());
    SessionError::new(ResultCode::Internal, format!("panic in {what}: {text}"))
}

/// The error state, from any thread of the engine. It is never silent: an Active node becomes Inactive.
fn fail(shared: &Shared, lifecycle: &Mutex<Machine>, error: &SessionError) {
    // A sink that panics again must not keep the node Active.
    let _ = catch_unwind(AssertUnwindSafe(|| shared.enter_error(error)));
    let _ = catch_unwind(AssertUnwindSafe(|| leave_active(shared, lifecycle)));
}

fn leave_active(shared: &Shared, lifecycle: &Mutex<Machine>) {
    let edges = {
        let mut machine = lock(lifecycle);
        match machine.begin(id::DEACTIVATE) {
            Ok(begin) => [Some(begin), machine.finish(Callback::Success)],
            // Another transition is under way, or the machine is not Active: it will see the error itself.
            Err(_) => [None, None],
        }
    };
    edges
        .into_iter()
        .flatten()
        .for_each(|edge| shared.sink.event(Event::Transition(*edge)));
}

fn emit_loop(shared: &Shared) {
    let period_ns = shared.config.control_period_ns().max(1);
    let mut due_ns = shared.clock.steady_ns();
    while !shared.emitter_stops.load(Acquire) {
        let now_ns = shared.clock.steady_ns();
        if now_ns < due_ns {
            shared.clock.park_until(due_ns);
            continue;
        }
        shared.emit();
        due_ns += period_ns;
        // After a pause the grid goes on from now: missed steps are not made up for in a burst.
        if due_ns <= now_ns {
            due_ns = now_ns + period_ns;
        }
    }
}

struct DeviceThread {
    driver: Driver,
    shared: Arc<Shared>,
    lifecycle: Arc<Mutex<Machine>>,
    /// A tick request that waits for inputs; later commands wait behind it.
    waiting: Option<Queued>,
    /// Earliest steady time of the next automatic attempt after a refusal.
    retry_ns: u64,
    /// Earliest steady time at which missing inputs are reported again.
    report_ns: u64,
    /// Since when an automatic tick waits for inputs.
    waits_since_ns: Option<u64>,
    rate_due_ns: u64,
}

impl DeviceThread {
    fn new(driver: Driver, lifecycle: Arc<Mutex<Machine>>) -> DeviceThread {
        DeviceThread {
            shared: driver.shared.clone(),
            driver,
            lifecycle,
            waiting: None,
            retry_ns: 0,
            report_ns: 0,
            waits_since_ns: None,
            rate_due_ns: 0,
        }
    }

    fn run(mut self) {
        while !self.shared.is_stopping.load(Acquire) {
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.turn())) {
                match self.shared.has_error.load(Acquire) {
                    false => self.fail(&panicked("the device thread", &*panic)),
                    // Told already. What panics at every turn must not take a core.
                    true => std::thread::sleep(Duration::from_millis(10)),
                }
            }
        }
        for queued in self
            .waiting
            .take()
            .into_iter()
            .chain(std::iter::from_fn(|| self.shared.dequeue()))
        {
            let _ = catch_unwind(AssertUnwindSafe(|| cancel(&queued, &self.shared.sink)));
        }
    }

    /// Commands, then the automatic tick that is due, then sleep until there is more.
    fn turn(&mut self) {
        self.driver.cool_down();
        let is_busy = self.commands();
        let wake_ns = match self.shared.is_active.load(Acquire) {
            // A command that waits holds up what comes after it, not the automatic ticks.
            true => self.automatic(),
            false => {
                self.driver.drain_inputs();
                self.shared.clock.steady_ns() + IDLE_NS
            }
        };
        let wake_ns = match &self.waiting {
            Some(queued) => wake_ns.min(wait_end_ns(queued)),
            None => wake_ns,
        };
        if !is_busy && self.shared.clock.steady_ns() < wake_ns {
            self.shared.clock.park_until(wake_ns);
        }
    }

    /// Applies what is queued. Returns true when more may be there.
    fn commands(&mut self) -> bool {
        let has_waited = self.waiting.is_some();
        let Some(queued) = self.waiting.take().or_else(|| self.shared.dequeue()) else {
            return false;
        };
        let operation = queued.operation.clone();
        let answered = catch_unwind(AssertUnwindSafe(|| match &queued.command {
            None => Some(self.activate(&operation)),
            Some(Command::Tick(_)) => self.requested_tick(&queued, has_waited),
            Some(command) => Some(self.driver.apply(operation.op_id, command)),
        }))
        .unwrap_or_else(|panic| {
            let error = panicked(operation.kind, &*panic);
            self.fail(&error);
            Some(Outcome::new(
                operation.op_id,
                operation.kind,
                error.code,
                error.message,
            ))
        });
        let Some(outcome) = answered else {
            self.waiting = Some(queued);
            return false;
        };
        if self.shared.has_error.load(Acquire) {
            leave_active(&self.shared, &self.lifecycle);
        }
        let is_taken = operation.cell.finish(outcome.clone());
        match queued.command {
            Some(_) => self
                .shared
                .sink
                .event(Event::OperationDone(Box::new(outcome))),
            None if !is_taken => self.shared.close_outputs(),
            None => {}
        }
        true
    }

    fn activate(&mut self, operation: &Operation) -> Outcome {
        // The caller may have given up while this waited behind a slow command.
        if operation.poll().is_some() {
            return Outcome::new(operation.op_id, operation.kind, ResultCode::Cancelled, "");
        }
        let now_ns = self.shared.clock.steady_ns();
        self.retry_ns = now_ns;
        self.report_ns = now_ns;
        self.waits_since_ns = None;
        self.rate_due_ns = now_ns;
        match self.driver.activate() {
            Ok(()) => Outcome::new(operation.op_id, operation.kind, ResultCode::Ok, ""),
            Err(error) => Outcome::new(operation.op_id, operation.kind, error.code, error.message),
        }
    }

    /// `None`: it still waits for inputs.
    fn requested_tick(&mut self, queued: &Queued, has_waited: bool) -> Option<Outcome> {
        let operation = &queued.operation;
        let Some(Command::Tick(request)) = &queued.command else {
            return None;
        };
        let fail = |error: SessionError| {
            Some(Outcome::new(
                operation.op_id,
                operation.kind,
                error.code,
                error.message,
            ))
        };
        if self.shared.has_error.load(Acquire) {
            return fail(SessionError::new(
                ResultCode::Poisoned,
                "error state: cleanup and configure",
            ));
        }
        if !self.shared.is_active.load(Acquire) {
            return fail(match has_waited {
                true => SessionError::new(
                    ResultCode::Cancelled,
                    "the activation ended while the tick waited for inputs",
                ),
                false => SessionError::new(ResultCode::WrongState, "a tick needs state active"),
            });
        }
        let tick_ns = match request.stamp_ns {
            0 => self.shared.clock.ros_ns(),
            stamp => stamp,
        };
        let not_before_ns = (request.not_before_ns != 0).then_some(request.not_before_ns);
        if not_before_ns.is_some() && !request.action_only {
            self.driver.drain_inputs();
            let is_ready = self.driver.ready(tick_ns, not_before_ns).is_ok();
            if !is_ready && self.shared.clock.steady_ns() < wait_end_ns(queued) {
                return None;
            }
        }
        let plan = request.action_only.then_some(Plan::Action);
        let end = self.tick(&TickArgs {
            tick_ns,
            not_before_ns,
            plan,
            key: None,
        });
        let mut outcome = Outcome::new(operation.op_id, operation.kind, ResultCode::Ok, "");
        outcome.session = self.driver.session().to_string();
        outcome.epoch = self.shared.stats.epoch.load(Relaxed);
        outcome.tick = self.shared.stats.tick.load(Relaxed);
        outcome.prompt = self.driver.prompt().to_string();
        match end {
            TickEnd::Done {
                chunk_id,
                latency_ns,
            } => {
                outcome.chunk_id = chunk_id;
                outcome.latency_ms = latency_ns as f64 / 1e6;
                if chunk_id == 0 {
                    outcome.code = ResultCode::Cancelled;
                    outcome.message = "the activation ended while the tick ran".into();
                }
            }
            TickEnd::Refused(error) | TickEnd::Failed(error) => {
                outcome.code = error.code;
                outcome.message = error.message;
            }
        }
        Some(outcome)
    }

    /// One tick with panics caught.
    fn tick(&mut self, args: &TickArgs) -> TickEnd {
        let end = catch_unwind(AssertUnwindSafe(|| self.driver.tick(args)))
            .unwrap_or_else(|panic| TickEnd::Failed(panicked("a tick", &*panic)));
        if let TickEnd::Failed(error) = &end {
            self.fail(error);
        }
        end
    }

    fn fail(&self, error: &SessionError) {
        fail(&self.shared, &self.lifecycle, error);
    }

    /// Runs the automatic tick that is due, if any. Returns the steady time at which to look again.
    fn automatic(&mut self) -> u64 {
        let now_ns = self.shared.clock.steady_ns();
        match self.shared.tick_mode() {
            TickMode::Trigger => now_ns + IDLE_NS,
            TickMode::Rate => {
                if now_ns < self.rate_due_ns {
                    return self.rate_due_ns;
                }
                let period_ns = ((1e9 / self.shared.config.tick.rate_hz) as u64).max(1);
                self.rate_due_ns += period_ns;
                if self.rate_due_ns <= now_ns {
                    self.rate_due_ns = now_ns + period_ns;
                }
                self.tick(&TickArgs {
                    tick_ns: self.shared.clock.ros_ns(),
                    not_before_ns: None,
                    plan: None,
                    key: None,
                });
                self.rate_due_ns
            }
            TickMode::Chunk => self.tick_on_request(now_ns),
        }
    }

    fn tick_on_request(&mut self, now_ns: u64) -> u64 {
        let requests = self.shared.handover.requests.load(Acquire);
        if requests == self.driver.answered {
            self.waits_since_ns = None;
            return now_ns + IDLE_NS;
        }
        if now_ns < self.retry_ns {
            return self.retry_ns;
        }
        let period_ns = self.shared.config.control_period_ns();
        let tick_ns = self.shared.clock.ros_ns();
        let not_before_ns = self.driver.fresh_bound_ns();
        if self.driver.needs_inputs() {
            self.driver.drain_inputs();
            if let Err(error) = self.driver.ready(tick_ns, not_before_ns) {
                let since_ns = *self.waits_since_ns.get_or_insert(now_ns);
                // Waiting for the next observation is no refusal while the hold lasts.
                let is_waiting = not_before_ns.is_some()
                    && (now_ns - since_ns) as f64 / 1e6 <= self.shared.config.chunk.max_hold_ms;
                if now_ns >= self.report_ns && !is_waiting {
                    self.driver.refuse_unstarted(tick_ns, &error);
                    self.report_ns = now_ns + period_ns;
                }
                return now_ns + period_ns;
            }
        }
        self.waits_since_ns = None;
        match self.tick(&TickArgs {
            tick_ns,
            not_before_ns,
            plan: None,
            key: None,
        }) {
            TickEnd::Done { .. } => self.driver.answered = requests,
            TickEnd::Refused(_) | TickEnd::Failed(_) => self.retry_ns = now_ns + period_ns,
        }
        now_ns
    }
}

fn wait_end_ns(queued: &Queued) -> u64 {
    match &queued.command {
        Some(Command::Tick(request)) => queued
            .queued_ns
            .saturating_add(u64::from(request.wait_ms) * 1_000_000),
        _ => queued.queued_ns,
    }
}

fn empty_status(state: State) -> Status {
    Status {
        state,
        session: String::new(),
        epoch: 0,
        tick: 0,
        model: String::new(),
        fingerprint: String::new(),
        prompt: String::new(),
        tick_mode: "",
        chunk_state: Phase::Idle.name(),
        rows_left: 0,
        chunks: 0,
        commands: 0,
        holds: 0,
        deadline_misses: 0,
        ticks_refused: 0,
        last_refusal: String::new(),
        tick_ms_last: 0.0,
        tick_ms_p50: 0.0,
        tick_ms_p99: 0.0,
        tick_ms_max: 0.0,
        boundary_jump: 0.0,
        ports: Vec::new(),
        capsules: 0,
        capsule_device_bytes: 0,
        capsule_host_bytes: 0,
        limited: 0,
        error: String::new(),
    }
}
