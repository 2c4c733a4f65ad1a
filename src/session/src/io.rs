//! What goes in and out of the engine: borrowed views, the two clocks and the sink.

use std::sync::Arc;

use crate::code::ResultCode;

/// One image as a message carries it, borrowed. Nothing about it is trusted before [`crate::image::check`].
#[derive(Clone, Copy, Debug)]
pub struct ImageRef<'a> {
    /// Pixels per row.
    pub width: u32,
    /// Rows.
    pub height: u32,
    /// Encoding name as in `sensor_msgs/image_encodings`, for instance `"rgb8"`.
    pub encoding: &'a str,
    /// Byte order flag; no meaning for 8-bit channels.
    pub is_bigendian: bool,
    /// Bytes from the start of one row to the next.
    pub step: u32,
    /// Row-major bytes, `height * step` of them or more.
    pub data: &'a [u8],
}

/// Joint positions by name, borrowed.
#[derive(Clone, Copy, Debug)]
pub struct JointsRef<'a> {
    /// Joint names in the message's own order.
    pub names: &'a [String],
    /// Positions in the topic's unit (rad, m), one per name.
    pub positions: &'a [f64],
}

/// What became of a pushed message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PushOutcome {
    /// In the ring; a tick may use it.
    Accepted,
    /// Not used, counted under the reason; the last good input is kept.
    Refused {
        /// Code of the reason.
        code: ResultCode,
        /// Reason with numbers.
        reason: String,
    },
    /// Not configured (or no such port): ignored and not counted.
    Ignored,
}

/// Steady time for periods and deadlines, ROS time for stamps and ages.
pub trait Clock: Send + Sync {
    /// Nanoseconds on a clock that never goes back.
    fn steady_ns(&self) -> u64;
    /// Nanoseconds of ROS time (simulated time when `use_sim_time` is set).
    fn ros_ns(&self) -> i64;
    /// Parks the calling thread until about `steady_ns`, or until it is unparked, or for no reason at all: callers loop.
    fn park_until(&self, steady_ns: u64) {
        let now = self.steady_ns();
        if steady_ns > now {
            std::thread::park_timeout(std::time::Duration::from_nanos(steady_ns - now));
        }
    }
}

/// Clock of the operating system: `Instant` and `SystemTime`.
#[derive(Debug)]
pub struct SystemClock {
    start: std::time::Instant,
}

impl Default for SystemClock {
    fn default() -> Self {
        SystemClock {
            start: std::time::Instant::now(),
        }
    }
}

impl Clock for SystemClock {
    fn steady_ns(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }
    fn ros_ns(&self) -> i64 {
        std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(0, |d| d.as_nanos() as i64)
    }
}

/// One predicted chunk as the model gave it, before any limit. Maps onto `flashrt_ros/ActionChunk`.
#[derive(Clone, Copy, Debug)]
pub struct ChunkRef<'a> {
    /// Live set that produced it.
    pub session: &'a str,
    /// Epoch of that live set.
    pub epoch: u64,
    /// Tick number of that live set.
    pub tick: u64,
    /// Counts published chunks of this node, from 1.
    pub chunk_id: u64,
    /// Newest input the chunk was computed from, ROS time (`header.stamp`).
    pub stamp_ns: i64,
    /// Tick time minus `stamp_ns`.
    pub observation_age_ns: i64,
    /// Newest image or state that the cached context saw, ROS time.
    pub context_stamp_ns: i64,
    /// 0: the context was computed in this tick.
    pub context_age_ticks: u32,
    /// Time from one row to the next.
    pub dt_ns: i64,
    /// Action dimensions in column order.
    pub names: &'a [String],
    /// Unit per name, as the model gives it: `rad`, `deg`, `percent`, `m`.
    pub units: &'a [String],
    /// `"absolute"`: rows are targets.
    pub representation: &'a str,
    /// Rows.
    pub horizon: u32,
    /// Rows that will be emitted before the next chunk is taken.
    pub execute_rows: u32,
    /// `[horizon, names]` f32, row-major.
    pub data: &'a [f32],
}

/// One command row at control rate, after limits, in the topic's units.
#[derive(Clone, Copy, Debug)]
pub struct CommandRef<'a> {
    /// Live set.
    pub session: &'a str,
    /// Epoch it belongs to.
    pub epoch: u64,
    /// Chunk the row comes from.
    pub chunk_id: u64,
    /// Row of that chunk.
    pub row: u32,
    /// The last command again, because no new row is there yet.
    pub is_hold: bool,
    /// ROS time of emission.
    pub stamp_ns: i64,
    /// Control period: time in which the target should be reached.
    pub dt_ns: i64,
    /// Joint names.
    pub names: &'a [String],
    /// Targets, one per name, finite, rad or m.
    pub positions: &'a [f64],
}

/// What one port used in one tick. Maps onto `flashrt_ros/TickPort`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TickPortRecord {
    /// Port, and view after a dot: `images.wrist`, `state`.
    pub name: Arc<str>,
    /// Stamp of the message used, ROS time (receive time if it was unstamped).
    pub stamp_ns: i64,
    /// xxh3-64 of the port bytes handed to the model.
    pub hash: u64,
    /// False: the bytes of an earlier tick were used again.
    pub is_new: bool,
}

/// One entry of the tick log: a tick, or (when `operation` is not empty) a command that was applied at this boundary.
/// Maps onto `flashrt_ros/TickLog`. The engine reuses one record, so that logging allocates nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct TickRecord {
    /// Tick time (or time of the operation), ROS time (`header.stamp`).
    pub stamp_ns: i64,
    /// Live set that was active.
    pub session: Arc<str>,
    /// Epoch after the entry.
    pub epoch: u64,
    /// Tick number.
    pub tick: u64,
    /// Ok, or the reason of refusal.
    pub code: ResultCode,
    /// `full`, `context_action` or `action`; empty for an operation.
    pub plan: &'static str,
    /// Shape key: flow steps.
    pub key: u64,
    /// Inputs, in port order.
    pub ports: Vec<TickPortRecord>,
    /// Prompt in force.
    pub prompt: Arc<str>,
    /// xxh3-64 of the raw action bytes; 0 if refused.
    pub actions_hash: u64,
    /// Id of the chunk that was published; 0 if none.
    pub chunk_id: u64,
    /// Gate to chunk.
    pub latency_ms: f64,
    /// Empty for a tick; else `activate`, `snapshot`, `restore`, `rollback`, `fork`, `reset`, `drop`, `time_jump`.
    pub operation: &'static str,
    /// Capsule that the operation made, used or dropped (its final name).
    pub capsule: Arc<str>,
    /// Live set that a fork wrote or an activation ticks; empty otherwise.
    pub target: Arc<str>,
    /// Options of the operation, comma separated, for instance `tier=host,overwrite,exclude=rng`.
    pub options: Arc<str>,
}

impl TickRecord {
    /// An empty record with room for `ports` ports.
    pub fn with_capacity(ports: usize) -> TickRecord {
        let empty: Arc<str> = Arc::from("");
        TickRecord {
            stamp_ns: 0,
            session: empty.clone(),
            epoch: 0,
            tick: 0,
            code: ResultCode::Ok,
            plan: "",
            key: 0,
            ports: Vec::with_capacity(ports),
            prompt: empty.clone(),
            actions_hash: 0,
            chunk_id: 0,
            latency_ms: 0.0,
            operation: "",
            capsule: empty.clone(),
            target: empty.clone(),
            options: empty,
        }
    }
}

/// Something that happened outside the per-tick stream.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The lifecycle machine took an edge (begin and finish each give one).
    Transition(crate::lifecycle::Transition),
    /// The engine entered its error state: it ticks no more until cleanup and configure.
    Error {
        /// Code.
        code: ResultCode,
        /// Reason.
        message: String,
    },
    /// A throttled warning: over budget, inputs refused, commands limited.
    Warning(String),
    /// A note for the log at info level: a new epoch and why.
    Info(String),
    /// An operation ended.
    OperationDone(Box<crate::command::Outcome>),
}

/// Receives everything that the engine gives out. Called from the device thread (`chunk`, `tick_log`, `event`) and
/// from the emitter thread (`command`, `event`); must not call back into the engine and should not block.
pub trait Sink: Send + Sync {
    /// A new chunk. Device thread, hot.
    fn chunk(&self, chunk: &ChunkRef<'_>);
    /// A command row at control rate. Emitter thread, hot.
    fn command(&self, command: &CommandRef<'_>);
    /// A tick (refused ones too) or an applied operation. Device thread, hot.
    fn tick_log(&self, record: &TickRecord);
    /// Anything else.
    fn event(&self, event: Event);
}
