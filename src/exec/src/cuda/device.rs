//! The primary context of one device and its failures.

use super::driver::{self, Answer, Driver, Failure, Raw, Stream};
use super::free::Dead;
use super::gather::Gather;
use super::host::Host;
use super::streams::Streams;
use crate::{BackendKind, Error, MemoryUse, Space};
use cudarc::driver::sys;
use std::mem::ManuallyDrop;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use std::sync::{Arc, Mutex, OnceLock, RwLock};

/// One device, shared by the context and by everything made with it, so that no order of drops is wrong.
pub(super) struct Device {
    pub(super) driver: &'static Driver,
    pub(super) ordinal: i32,
    pub(super) host: Arc<Host>,
    total_bytes: usize,
    pub(super) priorities: RangeInclusive<i32>,
    /// Zeroes memory, moves uploads and downloads, and is where eager work is recorded.
    pub(super) service: Stream,
    pub(super) streams: RwLock<Streams>,
    /// Loaded by the first use.
    gather: OnceLock<Option<Gather>>,
    /// The failure that spoiled the context of the driver.
    lost: OnceLock<String>,
    pub(super) dead: Mutex<Vec<Dead>>,
    pub(super) has_dead: AtomicBool,
    device_bytes: AtomicUsize,
    host_bytes: AtomicUsize,
    buffers: AtomicUsize,
    // Let go of in `drop`, after the streams.
    primary: ManuallyDrop<Primary>,
}

/// A share in the primary context of a device.
struct Primary {
    driver: &'static Driver,
    device: sys::CUdevice,
    context: Raw<sys::CUctx_st>,
}

impl Primary {
    fn retain(driver: &'static Driver, device: sys::CUdevice) -> Result<Primary, Failure> {
        let mut context = std::ptr::null_mut();
        // SAFETY: `device` came from the driver; writes one handle.
        unsafe { driver.cuDevicePrimaryCtxRetain(&mut context, device) }?;
        Ok(Primary {
            driver,
            device,
            context: Raw(context),
        })
    }
}

impl Drop for Primary {
    fn drop(&mut self) {
        // SAFETY: gives back the share that `retain` took, once.
        let _ = unsafe { self.driver.cuDevicePrimaryCtxRelease_v2(self.device) };
    }
}

impl Device {
    /// # Errors
    /// [`Error::BackendUnavailable`] with the reason; [`Error::Invalid`] for a negative ordinal.
    pub(super) fn open(ordinal: i32) -> Result<Arc<Device>, Error> {
        if ordinal < 0 {
            return Err(Error::Invalid {
                what: "device ordinal",
                expected: "0 or more".into(),
                got: ordinal.to_string(),
            });
        }
        let unavailable = |reason: String| Error::BackendUnavailable {
            backend: BackendKind::Cuda,
            reason: format!("device {ordinal} was asked for, but {reason}"),
        };
        let driver = Driver::get().map_err(unavailable)?;
        let failed = |failure: Failure| unavailable(driver.text(failure));

        let mut count = 0;
        // SAFETY: writes one number.
        unsafe { driver.cuDeviceGetCount(&mut count) }.map_err(failed)?;
        if ordinal >= count {
            return Err(unavailable(format!("the driver has {count} of them")));
        }
        let mut device = 0;
        // SAFETY: writes one handle; the ordinal is below the count.
        unsafe { driver.cuDeviceGet(&mut device, ordinal) }.map_err(failed)?;
        let mut total_bytes = 0;
        // SAFETY: writes one number.
        unsafe { driver.cuDeviceTotalMem_v2(&mut total_bytes, device) }.map_err(failed)?;
        let primary = Primary::retain(driver, device).map_err(failed)?;
        make_current(driver, primary.context).map_err(failed)?;
        let (mut least, mut greatest) = (0, 0);
        // SAFETY: writes two numbers; the context is current.
        unsafe { driver.cuCtxGetStreamPriorityRange(&mut least, &mut greatest) }.map_err(failed)?;

        let mut this = Device {
            driver,
            ordinal,
            host: Host::new()?,
            total_bytes,
            // More urgent is lower.
            priorities: greatest.min(least)..=least.max(greatest),
            service: Raw(std::ptr::null_mut()),
            streams: RwLock::default(),
            gather: OnceLock::new(),
            lost: OnceLock::new(),
            dead: Mutex::new(Vec::new()),
            has_dead: AtomicBool::new(false),
            device_bytes: AtomicUsize::new(0),
            host_bytes: AtomicUsize::new(0),
            buffers: AtomicUsize::new(0),
            primary: ManuallyDrop::new(primary),
        };
        this.service = this.create_stream(0).map_err(failed)?;
        this.add_stream(0)?;
        Ok(Arc::new(this))
    }

    /// The kernel for many copies, if the driver takes it.
    pub(super) fn gather(&self) -> Option<&Gather> {
        self.gather.get_or_init(|| Gather::load(self)).as_ref()
    }

    pub(super) fn multiprocessors(&self) -> u32 {
        let mut value = 0;
        // SAFETY: writes one number.
        let answer = unsafe {
            self.driver.cuDeviceGetAttribute(
                &mut value,
                sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
                self.primary.device,
            )
        };
        answer.map_or(1, |()| value.max(1) as u32)
    }

    /// Compute capability, such as `sm_90`.
    pub(super) fn isa(&self) -> Result<String, Error> {
        use sys::CUdevice_attribute::*;
        let attribute = |attribute| {
            let mut value = 0;
            // SAFETY: writes one number.
            let answer = unsafe {
                self.driver
                    .cuDeviceGetAttribute(&mut value, attribute, self.primary.device)
            };
            self.check(answer).map(|()| value)
        };
        let major = attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
        let minor = attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
        Ok(format!("sm_{major}{minor}"))
    }

    // ---- failures ----

    /// The error for a failed call; remembers one that spoils the context.
    pub(super) fn fail(&self, failure: Failure) -> Error {
        let reason = self.driver.text(failure);
        if driver::spoils_the_context(failure.code) {
            return self.lost_error(failure.call, self.lost.get_or_init(|| reason));
        }
        Error::Backend {
            backend: BackendKind::Cuda,
            call: failure.call,
            reason: self.driver.meaning(failure.code),
        }
    }

    pub(super) fn check(&self, answer: Answer) -> Result<(), Error> {
        answer.map_err(|failure| self.fail(failure))
    }

    fn lost_error(&self, call: &'static str, first: &str) -> Error {
        Error::Backend {
            backend: BackendKind::Cuda,
            call,
            reason: format!(
                "device {} is lost to this process since {first}; restart the process",
                self.ordinal
            ),
        }
    }

    pub(super) fn is_lost(&self) -> bool {
        self.lost.get().is_some()
    }

    // ---- entering ----

    /// Refuses calls from kernels and host accesses, and all calls after a failure that spoiled the
    /// context. Makes the context current on this thread.
    pub(super) fn check_free(&self, call: &'static str) -> Result<(), Error> {
        self.host.check(call)?;
        match self.lost.get() {
            Some(first) => Err(self.lost_error(call, first)),
            None => self.make_current(),
        }
    }

    pub(super) fn make_current(&self) -> Result<(), Error> {
        self.check(make_current(self.driver, self.primary.context))
    }

    // ---- memory ----

    /// Most bytes that one buffer of `space` can have.
    pub(super) fn limit(&self, space: Space) -> usize {
        match space {
            Space::Device => self.total_bytes,
            Space::Host => isize::MAX as usize,
        }
    }

    /// What the driver has free of the device's memory.
    pub(super) fn free_bytes(&self) -> Option<usize> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: writes two numbers.
        let answer = unsafe { self.driver.cuMemGetInfo_v2(&mut free, &mut total) };
        answer.is_ok().then_some(free)
    }

    pub(super) fn count(&self, space: Space, bytes: usize) {
        self.bytes_in(space).fetch_add(bytes, Relaxed);
        self.buffers.fetch_add(1, Relaxed);
    }

    pub(super) fn uncount(&self, space: Space, bytes: usize) {
        self.bytes_in(space).fetch_sub(bytes, Relaxed);
        self.buffers.fetch_sub(1, Relaxed);
    }

    fn bytes_in(&self, space: Space) -> &AtomicUsize {
        match space {
            Space::Device => &self.device_bytes,
            Space::Host => &self.host_bytes,
        }
    }

    pub(super) fn memory(&self) -> MemoryUse {
        MemoryUse {
            device_bytes: self.device_bytes.load(Relaxed),
            host_bytes: self.host_bytes.load(Relaxed),
            buffers: self.buffers.load(Relaxed),
        }
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        if self.host.is_inside() {
            // The last handle went inside a kernel, where no call is allowed: nothing is safe but to leak.
            return;
        }
        // Every buffer and executable held the device, so what is dead now holds nothing of it.
        self.sweep();
        self.destroy_streams();
        drop(self.gather.take());
        // SAFETY: dropped here only, and not used again.
        unsafe { ManuallyDrop::drop(&mut self.primary) };
    }
}

/// Makes `context` the current one of this thread, unless it is.
fn make_current(driver: &Driver, context: Raw<sys::CUctx_st>) -> Answer {
    let mut current = std::ptr::null_mut();
    // SAFETY: writes one handle.
    unsafe { driver.cuCtxGetCurrent(&mut current) }?;
    if current == context.0 {
        return Ok(());
    }
    // SAFETY: a primary context that is retained.
    unsafe { driver.cuCtxSetCurrent(context.0) }
}
