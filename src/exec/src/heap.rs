//! Blocks of heap memory that buffers in host space (and, on the CPU backend, in device space) live in.

use crate::{Error, Space};
use std::alloc::Layout;
use std::num::NonZeroUsize;
use std::ptr::NonNull;

/// One cache line, and the widest vector register.
const ALIGN: usize = 64;

/// Zeroed, aligned memory at a fixed address, freed on drop.
pub(crate) struct HeapBlock {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the memory is owned, and this type never touches its bytes.
unsafe impl Send for HeapBlock {}
// SAFETY: as above.
unsafe impl Sync for HeapBlock {}

impl HeapBlock {
    /// `name` and `space` are those of the buffer, for the error.
    pub(crate) fn new(name: &str, space: Space, bytes: NonZeroUsize) -> Result<HeapBlock, Error> {
        let no_room = || Error::OutOfMemory {
            buffer: name.into(),
            bytes: bytes.get(),
            space,
            free: None,
        };
        let layout = Layout::from_size_align(bytes.get(), ALIGN).map_err(|_| no_room())?;
        // SAFETY: the layout has the size `bytes`, which is not zero.
        let start = NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) });
        Ok(HeapBlock {
            start: start.ok_or_else(no_room)?,
            layout,
        })
    }

    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }
}

impl Drop for HeapBlock {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout; whoever used the address holds the block.
        unsafe { std::alloc::dealloc(self.start.as_ptr(), self.layout) };
    }
}
