//! The one error type of the crate.

use crate::{BackendKind, ShapeKey, Space};

/// Where in a capture something went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CapturePhase {
    /// Before the record callback ran: the context was not free to record.
    Begin,
    /// While the record callback ran.
    Record,
    /// After it: what was recorded could not become an executable.
    End,
}

impl std::fmt::Display for CapturePhase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            CapturePhase::Begin => "begin",
            CapturePhase::Record => "record",
            CapturePhase::End => "end",
        })
    }
}

/// Everything that can go wrong in this crate.
///
/// [`Error::code`] maps each variant to the status code that the C ABI answers with.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An argument outside its legal values.
    #[error("{what}: expected {expected}, got {got}")]
    Invalid {
        /// The argument.
        what: &'static str,
        /// What is legal.
        expected: String,
        /// What came.
        got: String,
    },
    /// A stream id that the context does not have.
    #[error("stream {stream} does not exist: expected 0 <= id < {count}")]
    BadStream {
        /// The id that came.
        stream: i32,
        /// Number of streams of the context.
        count: usize,
    },
    /// A window that leaves its buffer, or whose end overflows.
    #[error("buffer \"{buffer}\": window at {offset} of {len} bytes leaves its {bytes} bytes")]
    OutOfRange {
        /// Name of the buffer.
        buffer: String,
        /// Start of the window in bytes.
        offset: usize,
        /// Length of the window in bytes.
        len: usize,
        /// Length of the buffer in bytes.
        bytes: usize,
    },
    /// Source and destination of a copy differ in length.
    #[error("lengths differ: destination \"{dst}\" takes {dst_bytes} bytes, source \"{src}\" has {src_bytes}")]
    LengthMismatch {
        /// Name of the destination.
        dst: String,
        /// Its length in bytes.
        dst_bytes: usize,
        /// Name of the source.
        src: String,
        /// Its length in bytes.
        src_bytes: usize,
    },
    /// Source and destination of a copy share bytes.
    #[error("copy inside buffer \"{buffer}\" overlaps: {bytes} bytes from {src} to {dst}")]
    Overlap {
        /// Name of the buffer.
        buffer: String,
        /// Start of the source in bytes.
        src: usize,
        /// Start of the destination in bytes.
        dst: usize,
        /// Length of both in bytes.
        bytes: usize,
    },
    /// Direct access to a buffer that is not in host space.
    #[error("buffer \"{buffer}\" is in {got} space, expected {expected} space")]
    WrongSpace {
        /// Name of the buffer.
        buffer: String,
        /// The space that the call needs.
        expected: Space,
        /// The space of the buffer.
        got: Space,
    },
    /// An object of another context.
    #[error("{what} \"{name}\" belongs to another context")]
    ForeignContext {
        /// "buffer", "event" or "graph".
        what: &'static str,
        /// Its name (or id for an event).
        name: String,
    },
    /// The graph has no executable under this key (`None`: it has none at all).
    #[error("graph \"{graph}\" has no variant {}, it holds {count}", match .key { Some(k) => format!("for key {k}"), None => "to evict".into() })]
    NoVariant {
        /// Name of the graph.
        graph: String,
        /// The key that was asked for.
        key: Option<ShapeKey>,
        /// Number of variants that the graph holds.
        count: usize,
    },
    /// No buffer was bound to this port name.
    #[error("graph \"{graph}\" has no buffer bound to port \"{port}\"")]
    Unbound {
        /// Name of the graph.
        graph: String,
        /// Name of the port.
        port: String,
    },
    /// A capture failed; table and streams are as they were before.
    #[error("capture of graph \"{graph}\" key {key} failed in phase {phase}: {reason}")]
    Capture {
        /// Name of the graph.
        graph: String,
        /// Key under which it would have been stored.
        key: ShapeKey,
        /// Where it failed.
        phase: CapturePhase,
        /// Why.
        reason: String,
    },
    /// A command to the context while something is being recorded; it had no effect.
    #[error("`{call}` refused while {recording} is being recorded (phase record)")]
    Recording {
        /// The refused call.
        call: &'static str,
        /// The graph and key, or the stream, that is being recorded.
        recording: String,
    },
    /// A command from inside a kernel, or from inside a host access of the same context; it had no effect.
    #[error("`{call}` refused: this thread is inside a kernel or a host access")]
    Busy {
        /// The refused call.
        call: &'static str,
    },
    /// A kernel panicked while its stream ran. The rest of that launch was skipped.
    #[error("kernel `{kernel}` of {origin} on stream {stream} panicked: {message}")]
    KernelPanicked {
        /// Name given when it was recorded.
        kernel: &'static str,
        /// The graph and key that it belongs to, or "an eager call".
        origin: String,
        /// The stream that it ran on.
        stream: i32,
        /// The panic message.
        message: String,
    },
    /// A call to the operating system or to the driver failed.
    #[error("{backend} backend, {call}: {reason}")]
    Backend {
        /// The backend.
        backend: BackendKind,
        /// What was attempted.
        call: &'static str,
        /// Why it failed.
        reason: String,
    },
    /// A function of a foreign library answered with a status that is not success.
    #[error("`{symbol}` of the foreign library answered {status}: {}", if .reason.is_empty() { "it gives no reason" } else { .reason })]
    Library {
        /// The function.
        symbol: &'static str,
        /// What it answered.
        status: i32,
        /// Why, in the library's words; empty if it does not say.
        reason: String,
    },
    /// The backend cannot be used in this build or on this machine.
    #[error("{backend} backend is not available: {reason}")]
    BackendUnavailable {
        /// The backend.
        backend: BackendKind,
        /// Why.
        reason: String,
    },
    /// An allocation failed.
    #[error("buffer \"{buffer}\": no room for {bytes} bytes in {space} space{}", room(*bytes, *free))]
    OutOfMemory {
        /// Name of the buffer.
        buffer: String,
        /// Requested length in bytes.
        bytes: usize,
        /// Requested space.
        space: Space,
        /// Bytes that the device has free, where it says so.
        free: Option<usize>,
    },
    /// A plan edge that names a node the plan does not have, or a node after itself.
    #[error(
        "plan edge {node} after {dep} is not legal: expected two different nodes below {count}"
    )]
    BadEdge {
        /// The later node.
        node: usize,
        /// The node that it should follow.
        dep: usize,
        /// Number of nodes of the plan.
        count: usize,
    },
    /// A plan edge against the order in which nodes were added: it would order nothing.
    #[error("plan node {node} is declared after node {dep}, which runs later")]
    ForwardEdge {
        /// The earlier node.
        node: usize,
        /// The later node that it names.
        dep: usize,
    },
}

impl Error {
    /// Status code of the C ABI: invalid -1, no variant -2, unbound -3, capture -4,
    /// backend -5, out of memory -6; a foreign library's status as it came, if it is one of these and not
    /// -3, otherwise -5. Zero (success) is never returned.
    pub fn code(&self) -> i32 {
        match self {
            Error::Invalid { .. }
            | Error::BadStream { .. }
            | Error::OutOfRange { .. }
            | Error::LengthMismatch { .. }
            | Error::Overlap { .. }
            | Error::WrongSpace { .. }
            | Error::ForeignContext { .. }
            | Error::Busy { .. }
            | Error::BadEdge { .. }
            | Error::ForwardEdge { .. } => -1,
            Error::NoVariant { .. } => -2,
            Error::Unbound { .. } => -3,
            Error::Capture { .. } | Error::Recording { .. } => -4,
            Error::KernelPanicked { .. }
            | Error::Backend { .. }
            | Error::BackendUnavailable { .. } => -5,
            Error::OutOfMemory { .. } => -6,
            Error::Library { status, .. } => match status {
                -1 | -2 | -4 | -6 => *status,
                _ => -5,
            },
        }
    }

    /// True when the backend itself cannot be used here; nothing else was attempted.
    pub fn is_unavailable(&self) -> bool {
        matches!(self, Error::BackendUnavailable { .. })
    }
}

/// What was needed and what is free, in MiB.
fn room(needed: usize, free: Option<usize>) -> String {
    let mib = |bytes: usize| bytes as f64 / f64::from(1 << 20);
    free.map_or(String::new(), |free| {
        format!(
            ": {:.1} MiB are needed, {:.1} MiB are free",
            mib(needed),
            mib(free)
        )
    })
}
