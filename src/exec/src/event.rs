//! Marks in a stream that other streams, and the caller, can wait for.

use crate::cpu::CpuEvent;
use crate::cuda::CudaEvent;
use crate::foreign::ForeignEvent;
use std::sync::Arc;

/// A mark in a stream: "everything submitted before here".
///
/// Recording it again moves it; waits that were queued before keep the old mark. A handle: clones are
/// the same event. Used through [`crate::Context::record`], [`wait`](crate::Context::wait),
/// [`query`](crate::Context::query) and [`sync_event`](crate::Context::sync_event).
#[derive(Clone)]
pub struct Event {
    pub(crate) context: u64,
    pub(crate) id: u64,
    pub(crate) handle: Arc<EventHandle>,
}

pub(crate) enum EventHandle {
    Cpu(CpuEvent),
    Cuda(CudaEvent),
    Foreign(ForeignEvent),
}

impl std::fmt::Debug for Event {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Event(#{})", self.id)
    }
}
