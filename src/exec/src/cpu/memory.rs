//! Memory of the CPU backend: both spaces are the heap, or memory of somebody else.

use super::Core;
use crate::heap::HeapBlock;
use crate::{Error, Space};
use std::num::NonZeroUsize;
use std::ptr::NonNull;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;

/// Bytes at a fixed address: heap memory that is counted in its context and freed on drop, or wrapped.
pub(crate) struct CpuMemory {
    start: NonNull<u8>,
    bytes: usize,
    space: Space,
    /// Where the bytes live; `None` when they belong to somebody else.
    owned: Option<HeapBlock>,
    core: Arc<Core>,
}

// SAFETY: the memory is owned, or its owner promised as much, and this type reads and writes it only
// under the gate of its context.
unsafe impl Send for CpuMemory {}
// SAFETY: as above; kernels, which use the bare address, run under the same gate.
unsafe impl Sync for CpuMemory {}

impl CpuMemory {
    pub(crate) fn new(
        core: &Arc<Core>,
        name: &str,
        space: Space,
        bytes: NonZeroUsize,
    ) -> Result<CpuMemory, Error> {
        let block = HeapBlock::new(name, space, bytes)?;
        core.bytes_in(space).fetch_add(bytes.get(), Relaxed);
        core.buffers.fetch_add(1, Relaxed);
        Ok(CpuMemory {
            start: block.start(),
            bytes: bytes.get(),
            space,
            owned: Some(block),
            core: core.clone(),
        })
    }

    /// # Safety
    /// That of [`crate::Context::wrap`].
    pub(super) unsafe fn wrap(
        core: &Arc<Core>,
        space: Space,
        start: NonNull<u8>,
        bytes: usize,
    ) -> CpuMemory {
        CpuMemory {
            start,
            bytes,
            space,
            owned: None,
            core: core.clone(),
        }
    }

    pub(crate) fn ptr(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    pub(crate) fn with_mut<R>(
        &self,
        call: &'static str,
        f: impl FnOnce(&mut [u8]) -> R,
    ) -> Result<R, Error> {
        let _inside = self.core.gate.enter(call)?;
        // SAFETY: the memory holds `bytes` initialised bytes for as long as `self`. The gate keeps out
        // kernels and every other host access, also one nested in `f`, and the owner of wrapped memory
        // keeps out, so this borrow is the only one.
        Ok(f(unsafe {
            std::slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes)
        }))
    }
}

impl Drop for CpuMemory {
    fn drop(&mut self) {
        if self.owned.is_some() {
            self.core
                .bytes_in(self.space)
                .fetch_sub(self.bytes, Relaxed);
            self.core.buffers.fetch_sub(1, Relaxed);
        }
    }
}
