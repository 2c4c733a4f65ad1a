//! What the engine reports about itself.

use crate::lifecycle::State;

/// Counters and freshness of one input port or view. `received = used + superseded + refused + pending`.
#[derive(Clone, Debug, PartialEq)]
pub struct PortStatus {
    /// Port, and view after a dot.
    pub name: String,
    /// Messages that came.
    pub received: u64,
    /// Used by a tick.
    pub used: u64,
    /// Never used because a newer one (or a new epoch) took its place.
    pub superseded: u64,
    /// Refused at the boundary.
    pub refused: u64,
    /// In the ring.
    pub pending: u64,
    /// Reason of the last refusal with numbers; empty if none.
    pub last_refusal: String,
    /// Age at the last tick; NaN before the first input.
    pub age_ms: f64,
    /// Limit; NaN if none.
    pub max_age_ms: f64,
    /// Age over the limit at the last tick.
    pub is_stale: bool,
    /// The last message had a zero stamp: receive time was used.
    pub is_unstamped: bool,
}

/// State of the engine. Maps onto `flashrt_ros/Status`.
#[derive(Clone, Debug, PartialEq)]
pub struct Status {
    /// Lifecycle state.
    pub state: State,
    /// Active live set.
    pub session: String,
    /// Its epoch.
    pub epoch: u64,
    /// Its tick number.
    pub tick: u64,
    /// Model name, see [`Description::label`].
    pub model: String,
    /// 16 hex digits; empty before configure.
    pub fingerprint: String,
    /// Prompt in force.
    pub prompt: String,
    /// `chunk`, `rate` or `trigger`.
    pub tick_mode: &'static str,
    /// `idle`, `pending`, `running`, `holding` or `starved`.
    pub chunk_state: &'static str,
    /// Rows still to be emitted.
    pub rows_left: u32,
    /// Chunks published.
    pub chunks: u64,
    /// Commands published, held ones included.
    pub commands: u64,
    /// Held commands.
    pub holds: u64,
    /// Ticks over the deadline.
    pub deadline_misses: u64,
    /// Ticks refused.
    pub ticks_refused: u64,
    /// Why the last one was.
    pub last_refusal: String,
    /// Latency of the last tick.
    pub tick_ms_last: f64,
    /// Median.
    pub tick_ms_p50: f64,
    /// 99th percentile.
    pub tick_ms_p99: f64,
    /// Maximum.
    pub tick_ms_max: f64,
    /// Largest jump at the last chunk seam, in action units.
    pub boundary_jump: f64,
    /// Inputs.
    pub ports: Vec<PortStatus>,
    /// Capsules stored.
    pub capsules: u32,
    /// Bytes of them in the device tier.
    pub capsule_device_bytes: u64,
    /// Bytes of them in the host tier.
    pub capsule_host_bytes: u64,
    /// Command values changed by a limit.
    pub limited: u64,
    /// Reason of the error state; empty otherwise.
    pub error: String,
}

/// One declared port of the model. Maps onto `flashrt_ros/PortInfo`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortDescription {
    /// Name.
    pub name: String,
    /// Modality, lower case.
    pub modality: String,
    /// Element type.
    pub dtype: String,
    /// Layout.
    pub layout: String,
    /// `in` or `out`.
    pub direction: String,
    /// `swap`, `staged` or `setup`.
    pub update: String,
    /// Must be given.
    pub is_required: bool,
    /// Shape.
    pub shape: Vec<i64>,
    /// Mapped topics, by view.
    pub topics: Vec<String>,
}

/// What is deployed. Maps onto `flashrt_ros/srv/Describe`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Description {
    /// Model name.
    pub model: String,
    /// `cpu` or `cuda`; `native` when a library brings the model.
    pub backend: String,
    /// Instruction set; empty for a native model, which does not say.
    pub isa: String,
    /// File of the native library; empty for a built-in model.
    pub library: String,
    /// File of the execution library that the native model's graphs are replayed through; `none` when it brings none, empty
    /// for a built-in model.
    pub exec_library: String,
    /// 16 hex digits.
    pub fingerprint: String,
    /// Canonical identity text.
    pub identity: String,
    /// Ports.
    pub ports: Vec<PortDescription>,
    /// Stages.
    pub stages: Vec<String>,
    /// Plans.
    pub plans: Vec<String>,
    /// Live sets.
    pub sessions: Vec<String>,
    /// `name:bytes:class`.
    pub regions: Vec<String>,
    /// Weights, shared by all live sets.
    pub weights_bytes: u64,
    /// Mutable memory per live set.
    pub live_bytes: u64,
    /// Payload of one capsule.
    pub capsule_bytes: u64,
    /// `declared regions`, or `closed` when the verifier passed.
    pub closure: String,
}

impl Description {
    /// Name of the model; with the file of its library when it comes out of one.
    pub fn label(&self) -> String {
        match self.library.as_str() {
            "" => self.model.clone(),
            library => format!("{} ({library})", self.model),
        }
    }
}

/// What configure did.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ConfigureReport {
    /// What is deployed.
    pub description: Description,
    /// Time to load, allocate, capture and warm.
    pub duration_ms: f64,
    /// Warnings that do not stop a configure (for instance a limit switched off).
    pub warnings: Vec<String>,
}
