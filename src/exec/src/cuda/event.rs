//! Driver events without timing.

use super::device::Device;
use super::driver::Raw;
use crate::Error;
use cudarc::driver::sys;
use std::sync::atomic::{AtomicUsize, Ordering::*};
use std::sync::Arc;

const NEVER: usize = usize::MAX;

/// A driver event, destroyed with its last handle.
pub(crate) struct CudaEvent {
    pub(super) raw: Raw<sys::CUevent_st>,
    /// Index of the stream that it was last recorded on, to know whose failures it covers.
    stream: AtomicUsize,
    device: Arc<Device>,
}

impl CudaEvent {
    /// Legal while recording.
    pub(super) fn new(device: &Arc<Device>) -> Result<CudaEvent, Error> {
        device.make_current()?;
        let flags = sys::CUevent_flags::CU_EVENT_DISABLE_TIMING as u32;
        let mut raw = std::ptr::null_mut();
        let _relaxed = device.relaxed();
        // SAFETY: writes one handle; the context is current.
        device.check(unsafe { device.driver.cuEventCreate(&mut raw, flags) })?;
        Ok(CudaEvent {
            raw: Raw(raw),
            stream: AtomicUsize::new(NEVER),
            device: device.clone(),
        })
    }

    pub(super) fn set_stream(&self, index: usize) {
        self.stream.store(index, Release);
    }

    pub(super) fn stream(&self) -> Option<usize> {
        Some(self.stream.load(Acquire)).filter(|&index| index != NEVER)
    }
}

impl Drop for CudaEvent {
    fn drop(&mut self) {
        self.device.drop_event(self.raw);
    }
}
