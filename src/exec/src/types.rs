//! Small value types shared by all parts of the crate.

/// Selects one executable of a graph, compared exactly. Every value is legal.
pub type ShapeKey = u64;

/// As the key of a plan node: use the key given to [`crate::Plan::execute`].
pub const KEY_INHERIT: ShapeKey = u64::MAX;

/// Which implementation a context runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BackendKind {
    /// Host memory, host threads.
    Cpu,
    /// An NVIDIA GPU.
    Cuda,
    /// Another execution library, reached through its C ABI.
    Foreign,
}

impl std::fmt::Display for BackendKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            BackendKind::Cpu => "cpu",
            BackendKind::Cuda => "cuda",
            BackendKind::Foreign => "foreign",
        })
    }
}

/// Where a buffer lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Space {
    /// Memory of the device that runs the graphs.
    Device,
    /// Memory that the calling thread may touch directly.
    Host,
}

impl std::fmt::Display for Space {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Space::Device => "device",
            Space::Host => "host",
        })
    }
}

/// Index into the stream table of a context. `StreamId(0)` always exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StreamId(pub i32);

impl std::fmt::Display for StreamId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Order in which a CPU context runs the work of its streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamOrder {
    /// The order in which the work was submitted, over all streams.
    Submission,
    /// Test mode: before every single operation a seeded generator picks one of the streams that
    /// may run. Work that is only right by luck of the order gives wrong results for some seed.
    Adversarial {
        /// The same seed and the same calls give the same order.
        seed: u64,
    },
}

/// Options of a CPU context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuOptions {
    /// Threads that run kernels, the driving thread included. 0 takes every core that the
    /// process may use. Results never depend on it.
    pub threads: usize,
    /// Order of the streams.
    pub order: StreamOrder,
}

impl Default for CpuOptions {
    fn default() -> Self {
        CpuOptions {
            threads: 0,
            order: StreamOrder::Submission,
        }
    }
}

/// Options of [`crate::Graph::capture_with`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CaptureOptions {
    /// A callback that records nothing gives a variant that does nothing, instead of an error.
    pub allow_empty: bool,
}

/// Memory that the buffers of a context own. Wrapped memory is its owner's and does not count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryUse {
    /// Bytes in device space.
    pub device_bytes: usize,
    /// Bytes in host space.
    pub host_bytes: usize,
    /// Number of live buffers in both.
    pub buffers: usize,
}
