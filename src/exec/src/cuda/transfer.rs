//! Copies, fills, and what the driver knows of an address.

use super::device::Device;
use super::driver::{Answer, Stream};
use crate::{Error, Slice, Space};
use cudarc::driver::sys;

impl Device {
    /// True for an address in memory of the driver, and in device memory of this device.
    pub(super) fn owns_address(&self, address: *mut u8) -> bool {
        use sys::CUpointer_attribute::*;
        let number = |attribute| {
            let mut value = 0u32;
            // SAFETY: both attributes are 32-bit numbers; an unknown address is an answer, not a fault.
            let answer = unsafe {
                self.driver.cuPointerGetAttribute(
                    (&raw mut value).cast(),
                    attribute,
                    address as usize as sys::CUdeviceptr,
                )
            };
            answer.ok().map(|()| value)
        };
        number(CU_POINTER_ATTRIBUTE_MEMORY_TYPE)
            == Some(sys::CUmemorytype::CU_MEMORYTYPE_DEVICE as u32)
            && number(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL) == Some(self.ordinal as u32)
    }

    /// Refuses windows on host memory that only the host reaches. Copies of live streams take them; memory
    /// operations and graphs do not, and the driver's refusal would break a capture.
    pub(super) fn check_reach(&self, window: &Slice) -> Result<(), Error> {
        if window.buffer().space() == Space::Device || window.bytes() == 0 {
            return Ok(());
        }
        let mut value = 0u32;
        // SAFETY: the attribute is a 32-bit number; an unknown address is an answer, not a fault.
        let answer = unsafe {
            self.driver.cuPointerGetAttribute(
                (&raw mut value).cast(),
                sys::CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                window.as_ptr() as usize as sys::CUdeviceptr,
            )
        };
        answer.map_err(|_| Error::Invalid {
            what: "host memory",
            expected: "pinned memory, which the device reaches".into(),
            got: format!("pageable memory behind \"{}\"", window.buffer().name()),
        })
    }

    /// Zeroes fresh device memory and waits for it.
    pub(super) fn clear(&self, start: *mut u8, bytes: usize) -> Result<(), Error> {
        let address = start as usize as sys::CUdeviceptr;
        let _relaxed = self.relaxed();
        // SAFETY: device memory of that length, which nobody else knows yet.
        self.check(unsafe {
            self.driver
                .cuMemsetD8Async(address, 0, bytes, self.service.0)
        })?;
        // SAFETY: a stream of this context.
        self.check(unsafe { self.driver.cuStreamSynchronize(self.service.0) })
    }

    /// Submits a copy between any two spaces to a live stream or one in capture mode.
    pub(super) fn copy(&self, dst: &Slice, src: &Slice, stream: Stream) -> Answer {
        let bytes = dst.bytes();
        if bytes == 0 {
            return Ok(());
        }
        let (to, from) = (dst.as_ptr(), src.as_ptr());
        let address = |pointer: *mut u8| pointer as usize as sys::CUdeviceptr;
        let spaces = (src.buffer().space(), dst.buffer().space());
        let (driver, stream) = (self.driver, stream.0);
        // SAFETY: checked windows of equal length that share no byte, on memory of their space. Whoever
        // frees the memory waits for the streams first.
        unsafe {
            match spaces {
                (Space::Device, Space::Device) => {
                    driver.cuMemcpyDtoDAsync_v2(address(to), address(from), bytes, stream)
                }
                (Space::Host, Space::Device) => {
                    driver.cuMemcpyHtoDAsync_v2(address(to), from.cast(), bytes, stream)
                }
                (Space::Device, Space::Host) => {
                    driver.cuMemcpyDtoHAsync_v2(to.cast(), address(from), bytes, stream)
                }
                (Space::Host, Space::Host) => {
                    driver.cuMemcpyAsync(address(to), address(from), bytes, stream)
                }
            }
        }
    }

    /// Submits setting every byte to a live stream or one in capture mode.
    pub(super) fn fill(&self, dst: &Slice, value: u8, stream: Stream) -> Answer {
        if dst.bytes() == 0 {
            return Ok(());
        }
        let address = dst.as_ptr() as usize as sys::CUdeviceptr;
        // SAFETY: as in `copy`.
        unsafe {
            self.driver
                .cuMemsetD8Async(address, value, dst.bytes(), stream.0)
        }
    }

    /// Copies between device memory and plain memory of the caller, and waits for it.
    ///
    /// # Safety
    /// `plain` is valid for the length of the window, for writes if `is_upload` is false.
    pub(super) unsafe fn transfer(
        &self,
        window: &Slice,
        plain: *mut u8,
        is_upload: bool,
    ) -> Result<(), Error> {
        let (address, stream) = (window.as_ptr() as usize as sys::CUdeviceptr, self.service.0);
        let _relaxed = self.relaxed();
        self.check(match is_upload {
            // SAFETY: a checked window on device memory, and the caller's promise.
            true => unsafe {
                self.driver
                    .cuMemcpyHtoDAsync_v2(address, plain.cast(), window.bytes(), stream)
            },
            // SAFETY: as above.
            false => unsafe {
                self.driver
                    .cuMemcpyDtoHAsync_v2(plain.cast(), address, window.bytes(), stream)
            },
        })?;
        // SAFETY: a stream of this context.
        self.check(unsafe { self.driver.cuStreamSynchronize(stream) })
    }
}
