//! The engine.

use std::sync::Arc;
use std::time::Duration;

use crate::code::{ResultCode, SessionError};
use crate::command::{Command, Operation, Outcome};
use crate::config::{Config, TickMode};
use crate::io::{Clock, ImageRef, JointsRef, PushOutcome, Sink};
use crate::lifecycle::State;
use crate::status::{ConfigureReport, Status};

/// Handle of the engine: `Send + Sync`, cheap to clone.
#[derive(Clone)]
pub struct Engine {
    _inner: Arc<()>,
}

fn unimplemented<T>() -> Result<T, SessionError> {
    Err(SessionError::new(ResultCode::Internal, "not written yet"))
}

impl Engine {
    /// An engine in state Unconfigured.
    pub fn new(_clock: Arc<dyn Clock>, _sink: Arc<dyn Sink>) -> Engine {
        Engine {
            _inner: Arc::new(()),
        }
    }
    /// Loads, allocates, captures and warms everything. Blocks; failure leaves nothing behind.
    pub fn configure(&self, _config: Config) -> Result<ConfigureReport, SessionError> {
        unimplemented()
    }
    /// Starts ticking and emitting.
    pub fn activate(&self) -> Result<(), SessionError> {
        unimplemented()
    }
    /// Stops emitting, then ticking.
    pub fn deactivate(&self) -> Result<(), SessionError> {
        unimplemented()
    }
    /// Frees everything.
    pub fn cleanup(&self) -> Result<(), SessionError> {
        unimplemented()
    }
    /// The end, from any primary state.
    pub fn shutdown(&self) -> Result<(), SessionError> {
        unimplemented()
    }
    /// Lifecycle state.
    pub fn state(&self) -> State {
        State::Unconfigured
    }
    /// The deployed configuration, `None` before configure.
    pub fn config(&self) -> Option<Arc<Config>> {
        None
    }
    /// Image of a view. `stamp_ns` 0: unstamped, receive time is used.
    pub fn push_image(&self, _view: &str, _image: ImageRef<'_>, _stamp_ns: i64) -> PushOutcome {
        PushOutcome::Ignored
    }
    /// Joint positions.
    pub fn push_joints(&self, _joints: JointsRef<'_>, _stamp_ns: i64) -> PushOutcome {
        PushOutcome::Ignored
    }
    /// A new instruction, applied at the next boundary.
    pub fn push_prompt(&self, text: &str) -> Result<Operation, SessionError> {
        self.submit(Command::Prompt(text.to_string()))
    }
    /// Queues a command. It is applied in arrival order at a tick boundary.
    pub fn submit(&self, _command: Command) -> Result<Operation, SessionError> {
        unimplemented()
    }
    /// Queues a command and waits up to `wait`; an outcome with code ACCEPTED means that it still runs.
    pub fn call(&self, command: Command, _wait: Duration) -> Outcome {
        Outcome::new(0, command.kind(), ResultCode::Internal, "not written yet")
    }
    /// The operation of this id, running or finished; `None` if unknown (or forgotten: the newest 256 are kept).
    pub fn operation_status(&self, _op_id: u64) -> Option<Operation> {
        None
    }
    /// Changes the tick mode at run time.
    pub fn set_tick_mode(&self, _mode: TickMode) {}
    /// ROS time jumped: a new epoch.
    pub fn time_jump(&self, _delta_ns: i64) {}
    /// A snapshot of all counters.
    pub fn status(&self) -> Status {
        Status {
            state: State::Unconfigured,
            session: String::new(),
            epoch: 0,
            tick: 0,
            model: String::new(),
            fingerprint: String::new(),
            prompt: String::new(),
            tick_mode: "chunk",
            chunk_state: "idle",
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
}
