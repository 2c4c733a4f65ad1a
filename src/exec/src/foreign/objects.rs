//! Buffers, events and graphs over handles of the library.

use super::library::Handle;
use super::Core;
use crate::heap::HeapBlock;
use crate::{Error, ShapeKey, StreamId};
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};
use std::sync::Arc;

/// Memory of a buffer: heap in host space, the library's in device space.
pub(crate) struct ForeignMemory {
    pub(super) core: Arc<Core>,
    pub(super) bytes: usize,
    pub(super) place: Place,
}

pub(super) enum Place {
    Host(HeapBlock),
    /// Address and handle. An adopted buffer is not ours to free.
    Device {
        addr: usize,
        handle: Handle,
        owned: bool,
    },
}

impl ForeignMemory {
    /// A device address is a number here.
    pub(crate) fn ptr(&self) -> *mut u8 {
        match &self.place {
            Place::Host(block) => block.start().as_ptr(),
            Place::Device { addr, .. } => *addr as *mut u8,
        }
    }

    pub(crate) fn with_mut<R>(
        &self,
        call: &'static str,
        f: impl FnOnce(&mut [u8]) -> R,
    ) -> Result<R, Error> {
        let _inside = self.core.enter(call)?;
        match &self.place {
            // SAFETY: the block holds `bytes` initialised bytes for as long as `self`. The gate keeps out
            // every other access, also one nested in `f`, and the library never learns the address
            // except for the time of one call inside the gate.
            Place::Host(block) => Ok(f(unsafe {
                std::slice::from_raw_parts_mut(block.start().as_ptr(), self.bytes)
            })),
            Place::Device { .. } => Err(super::not_possible(call)),
        }
    }
}

impl Drop for ForeignMemory {
    fn drop(&mut self) {
        let bytes = match &self.place {
            Place::Host(_) => &self.core.host_bytes,
            Place::Device { owned: true, .. } => &self.core.device_bytes,
            Place::Device { .. } => return,
        };
        bytes.fetch_sub(self.bytes, Relaxed);
        self.core.buffers.fetch_sub(1, Relaxed);
        if let Place::Device { handle, .. } = self.place {
            self.core.end(super::Ended::Buffer(handle, self.bytes));
        }
    }
}

/// An event of the library, made by this context.
pub(crate) struct ForeignEvent {
    pub(super) core: Arc<Core>,
    pub(super) handle: Handle,
    /// Where it was recorded last; -1 before the first time.
    recorded_on: AtomicI32,
}

impl ForeignEvent {
    pub(super) fn new(core: &Arc<Core>, handle: Handle) -> ForeignEvent {
        ForeignEvent {
            core: core.clone(),
            handle,
            recorded_on: AtomicI32::new(-1),
        }
    }

    pub(super) fn set_recorded_on(&self, stream: StreamId) {
        self.recorded_on.store(stream.0, Relaxed);
    }

    /// The stream of the last record.
    pub(super) fn recorded_on(&self) -> Option<StreamId> {
        let stream = self.recorded_on.load(Relaxed);
        (stream >= 0).then_some(StreamId(stream))
    }
}

impl Drop for ForeignEvent {
    fn drop(&mut self) {
        self.core.end(super::Ended::Event(self.handle));
    }
}

/// A graph that the model holds.
pub(crate) struct ForeignGraph {
    pub(super) core: Arc<Core>,
    pub(super) handle: Handle,
}

impl ForeignGraph {
    pub(crate) fn replay(&self, key: ShapeKey, stream: StreamId) -> Result<(), Error> {
        let mut state = self.core.enter("replay")?;
        state.library.graph_replay(self.handle, key, stream.0)
    }

    /// False also when it cannot be asked.
    pub(crate) fn has_variant(&self, key: ShapeKey) -> bool {
        let state = self.core.enter("has_variant");
        state.is_ok_and(|mut state| state.library.graph_has_variant(self.handle, key))
    }

    /// 0 also when it cannot be asked.
    pub(crate) fn variant_count(&self) -> usize {
        let state = self.core.enter("variant_count");
        state.map_or(0, |mut state| {
            state.library.graph_variant_count(self.handle)
        })
    }

    pub(crate) fn evict(&self, key: ShapeKey) -> Result<(), Error> {
        let mut state = self.core.enter("evict")?;
        state.library.graph_evict(self.handle, key)
    }
}
