//! Device memory and pinned host memory, at addresses that never change.

use super::device::Device;
use super::driver::is_out_of_memory;
use super::free::Dead;
use crate::{BackendKind, Error, Space};
use cudarc::driver::sys;
use std::ffi::c_void;
use std::num::NonZeroUsize;
use std::ptr::NonNull;
use std::sync::Arc;

/// Memory that is counted in its context and freed when nothing can use it any more, or wrapped.
pub(crate) struct CudaMemory {
    start: NonNull<u8>,
    bytes: usize,
    space: Space,
    is_owned: bool,
    device: Arc<Device>,
}

// SAFETY: device memory is an address that only the driver uses. Host memory is owned, or its owner
// promised as much, and this type reads and writes it only inside the gate of its context.
unsafe impl Send for CudaMemory {}
// SAFETY: as above; kernels, which use the bare address, run inside the same gate.
unsafe impl Sync for CudaMemory {}

impl CudaMemory {
    pub(super) fn new(
        device: &Arc<Device>,
        name: &str,
        space: Space,
        bytes: NonZeroUsize,
    ) -> Result<CudaMemory, Error> {
        let bytes = bytes.get();
        let no_room = || Error::OutOfMemory {
            buffer: name.into(),
            bytes,
            space,
            free: (space == Space::Device)
                .then(|| device.free_bytes())
                .flatten(),
        };
        if bytes > device.limit(space) {
            return Err(no_room());
        }
        let _relaxed = device.relaxed();
        let mut start: *mut c_void = std::ptr::null_mut();
        let answer = match space {
            Space::Device => {
                let mut address: sys::CUdeviceptr = 0;
                // SAFETY: writes one address; the context is current.
                let answer = unsafe { device.driver.cuMemAlloc_v2(&mut address, bytes) };
                start = address as usize as *mut c_void;
                answer
            }
            // SAFETY: as above.
            Space::Host => unsafe {
                device
                    .driver
                    .cuMemHostAlloc(&mut start, bytes, sys::CU_MEMHOSTALLOC_PORTABLE)
            },
        };
        answer.map_err(|failure| match is_out_of_memory(failure) {
            true => no_room(),
            false => device.fail(failure),
        })?;
        let start = NonNull::new(start.cast::<u8>()).ok_or_else(no_room)?;
        device.count(space, bytes);
        // From here on dropping it gives it back.
        let memory = CudaMemory {
            start,
            bytes,
            space,
            is_owned: true,
            device: device.clone(),
        };
        match space {
            Space::Device => device.clear(memory.ptr(), bytes)?,
            // SAFETY: `bytes` bytes of host memory that nobody else knows yet.
            Space::Host => unsafe { start.as_ptr().write_bytes(0, bytes) },
        }
        Ok(memory)
    }

    /// # Safety
    /// That of [`crate::Context::wrap`].
    pub(super) unsafe fn wrap(
        device: &Arc<Device>,
        name: &str,
        space: Space,
        start: NonNull<u8>,
        bytes: usize,
    ) -> Result<CudaMemory, Error> {
        // Wherever an empty window lies, nobody follows its address.
        if space == Space::Device && bytes > 0 && !device.owns_address(start.as_ptr()) {
            return Err(Error::Invalid {
                what: "memory to wrap",
                expected: format!("memory of {} device {}", BackendKind::Cuda, device.ordinal),
                got: format!("{start:p} for \"{name}\""),
            });
        }
        Ok(CudaMemory {
            start,
            bytes,
            space,
            is_owned: false,
            device: device.clone(),
        })
    }

    /// Memory of the device, or pinned memory of our own.
    pub(crate) fn is_reached_by_the_device(&self) -> bool {
        self.is_owned || self.space == Space::Device
    }

    pub(crate) fn ptr(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// The caller checked that this is host memory.
    pub(crate) fn with_mut<R>(
        &self,
        call: &'static str,
        f: impl FnOnce(&mut [u8]) -> R,
    ) -> Result<R, Error> {
        debug_assert_eq!(self.space, Space::Host);
        let _inside = self.device.host.enter(call)?;
        // SAFETY: `bytes` initialised bytes of host memory, as long as `self`. The gate keeps out kernels
        // and every other host access, and the owner of wrapped memory keeps out. Copies by the device
        // are no accesses of this program; whoever needs their order synchronises first.
        Ok(f(unsafe {
            std::slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes)
        }))
    }
}

impl Drop for CudaMemory {
    fn drop(&mut self) {
        if !self.is_owned {
            return;
        }
        self.device.uncount(self.space, self.bytes);
        self.device.bury(match self.space {
            Space::Device => Dead::Device(self.start.as_ptr() as usize as sys::CUdeviceptr),
            Space::Host => Dead::Host(self.start.as_ptr() as usize),
        });
    }
}
