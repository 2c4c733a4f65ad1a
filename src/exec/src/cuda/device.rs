//! The primary context of one device: its streams, its failures, and what waits to be freed.

use super::capture::Parts;
use super::driver::{self, Answer, Driver, Failure, GraphExec, Raw, Stream};
use super::host::{lock, Host};
use crate::context::check_stream;
use crate::{BackendKind, Error, MemoryUse, Slice, Space, StreamId};
use cudarc::driver::sys;
use std::mem::ManuallyDrop;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::*};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// One device, shared by the context and by everything made with it, so that no order of drops is wrong.
pub(super) struct Device {
    pub(super) driver: &'static Driver,
    pub(super) ordinal: i32,
    pub(super) host: Arc<Host>,
    total_bytes: usize,
    priorities: RangeInclusive<i32>,
    /// Zeroes memory, moves uploads and downloads, and is where eager work is recorded.
    service: Stream,
    streams: RwLock<Streams>,
    /// The failure that spoiled the context of the driver.
    lost: OnceLock<String>,
    dead: Mutex<Vec<Dead>>,
    has_dead: AtomicBool,
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

/// The stream table. Calls of the driver that use a stream hold it for reading, so that no capture
/// begins under them; a capture begins and ends while it is held for writing.
pub(super) struct Streams {
    all: Vec<Entry>,
    is_capturing: bool,
}

pub(super) struct Entry {
    pub(super) raw: Stream,
    priority: i32,
    is_owned: bool,
    /// Streams that this one waited for since it was last synchronised, one bit each.
    upstream: AtomicU64,
}

/// What nothing refers to any more, but the device may still be using.
pub(super) enum Dead {
    Device(sys::CUdeviceptr),
    Host(usize),
    Event(Raw<sys::CUevent_st>),
    Exec(GraphExec, Parts),
}

/// The bit of a stream in a set of streams; the ones from 63 on share the last.
fn bit(stream: usize) -> u64 {
    1 << stream.min(63)
}

/// True when the failure of stream `failed` concerns whoever waited for stream `index` and `upstream`.
pub(super) fn covers(index: usize, upstream: u64, failed: i32) -> bool {
    usize::try_from(failed).is_ok_and(|failed| failed == index || upstream & bit(failed) != 0)
}

impl Streams {
    /// # Errors
    /// [`Error::BadStream`].
    pub(super) fn get(&self, id: StreamId) -> Result<(usize, &Entry), Error> {
        let index = check_stream(id, self.all.len())?;
        Ok((index, &self.all[index]))
    }

    pub(super) fn at(&self, index: usize) -> Option<&Entry> {
        self.all.get(index)
    }
}

impl Entry {
    /// Makes this stream a reader of stream `index` and of all that it waited for.
    pub(super) fn follow(&self, index: usize, other: &Entry) {
        self.upstream
            .fetch_or(bit(index) | other.upstream.load(Relaxed), Relaxed);
    }

    pub(super) fn upstream(&self) -> u64 {
        self.upstream.load(Relaxed)
    }

    pub(super) fn take_upstream(&self) -> u64 {
        self.upstream.swap(0, Relaxed)
    }

    pub(super) fn priority(&self) -> i32 {
        self.priority
    }
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

/// While it lives, this thread may allocate and free although some other thread captures in a strict mode.
pub(super) struct RelaxedMode<'a> {
    driver: &'a Driver,
    before: sys::CUstreamCaptureMode,
}

impl Drop for RelaxedMode<'_> {
    fn drop(&mut self) {
        // SAFETY: reads and writes one mode; it is that of this thread, since the guard cannot leave it.
        let _ = unsafe {
            self.driver
                .cuThreadExchangeStreamCaptureMode(&mut self.before)
        };
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
            return Err(unavailable(format!("the driver has {count}")));
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
            streams: RwLock::new(Streams {
                all: Vec::new(),
                is_capturing: false,
            }),
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

    /// Enters for calls that use streams. No capture begins or ends meanwhile.
    pub(super) fn enter(&self, call: &'static str) -> Result<RwLockReadGuard<'_, Streams>, Error> {
        self.check_free(call)?;
        let streams = self.read();
        match streams.is_capturing {
            true => Err(recording(call)),
            false => Ok(streams),
        }
    }

    /// Enters to change the stream table.
    fn enter_alone(&self, call: &'static str) -> Result<RwLockWriteGuard<'_, Streams>, Error> {
        self.check_free(call)?;
        let streams = self.streams.write().unwrap_or_else(PoisonError::into_inner);
        match streams.is_capturing {
            true => Err(recording(call)),
            false => Ok(streams),
        }
    }

    pub(super) fn read(&self) -> RwLockReadGuard<'_, Streams> {
        self.streams.read().unwrap_or_else(PoisonError::into_inner)
    }

    // ---- streams ----

    fn create_stream(&self, priority: i32) -> Result<Stream, Failure> {
        let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        let mut raw = std::ptr::null_mut();
        // SAFETY: writes one handle; the context is current.
        unsafe {
            self.driver
                .cuStreamCreateWithPriority(&mut raw, flags, priority)
        }?;
        Ok(Raw(raw))
    }

    pub(super) fn add_stream(&self, priority: i32) -> Result<StreamId, Error> {
        let mut streams = self.enter_alone("stream")?;
        let id = next_stream(&streams)?;
        let priority = priority.clamp(*self.priorities.start(), *self.priorities.end());
        let raw = self.create_stream(priority).map_err(|f| self.fail(f))?;
        streams.all.push(Entry {
            raw,
            priority,
            is_owned: true,
            upstream: AtomicU64::new(0),
        });
        Ok(id)
    }

    /// # Safety
    /// `raw` is null or a stream of this device's context, and outlives the context that wraps it.
    pub(super) unsafe fn wrap_stream(&self, raw: sys::CUstream) -> Result<StreamId, Error> {
        let mut streams = self.enter_alone("wrap_stream")?;
        let id = next_stream(&streams)?;
        let mut priority = 0;
        // SAFETY: the caller's promise; writes one number.
        self.check(unsafe { self.driver.cuStreamGetPriority(raw, &mut priority) })?;
        streams.all.push(Entry {
            raw: Raw(raw),
            priority,
            is_owned: false,
            upstream: AtomicU64::new(0),
        });
        Ok(id)
    }

    fn is_capturing(&self, stream: Stream) -> bool {
        let mut status = sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE as u32;
        // SAFETY: a stream of the table; the status is an unsigned int.
        let answer = unsafe {
            self.driver
                .cuStreamIsCapturing(stream.0, (&raw mut status).cast())
        };
        match answer {
            Ok(()) => status != sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE as u32,
            // The legacy default stream while some stream that it orders captures.
            Err(failure) => {
                failure.code == sys::CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT as u32
            }
        }
    }

    /// Waits for what was submitted to one stream. A wrapped one may be in a capture of its owner, which
    /// waiting would break.
    pub(super) fn wait_for(&self, entry: &Entry) -> Result<(), Error> {
        if !entry.is_owned && self.is_capturing(entry.raw) {
            return Err(Error::Invalid {
                what: "stream to wait for",
                expected: "one that its owner is not capturing".into(),
                got: format!("wrapped stream {:p}", entry.raw.0),
            });
        }
        // SAFETY: a stream of the table.
        self.check(unsafe { self.driver.cuStreamSynchronize(entry.raw.0) })
    }

    /// Waits for all streams; all are waited for, the first failure is told.
    pub(super) fn wait_for_all(&self, streams: &Streams) -> Result<(), Error> {
        let mut first = Ok(());
        for entry in &streams.all {
            entry.take_upstream();
            first = first.and(self.wait_for(entry));
        }
        first
    }

    /// Waits for all streams, or for none if one is being captured by somebody.
    fn settle(&self, streams: &Streams) -> bool {
        if streams.is_capturing || streams.all.iter().any(|s| self.is_capturing(s.raw)) {
            return false;
        }
        for entry in &streams.all {
            // SAFETY: a stream of the table.
            let answer = unsafe { self.driver.cuStreamSynchronize(entry.raw.0) };
            // Dropping tells nobody; the next call meets the failure again.
            let _ = self.check(answer);
        }
        true
    }

    /// The context goes: waits for all its work, and lets go of wrapped streams, which nobody promised to
    /// keep any longer. False if waiting was not possible.
    pub(super) fn finish_all(&self) -> bool {
        if self.host.is_inside() || self.make_current().is_err() {
            return false;
        }
        let mut streams = self.streams.write().unwrap_or_else(PoisonError::into_inner);
        let is_done = self.settle(&streams) && !self.is_lost();
        streams.all.retain(|entry| entry.is_owned);
        drop(streams);
        self.sweep();
        is_done
    }

    // ---- captures ----

    /// Puts stream 0, or the service stream for eager work, into capture mode.
    pub(super) fn begin_capture(
        &self,
        call: &'static str,
        is_eager: bool,
    ) -> Result<Stream, Error> {
        let mut streams = self.enter_alone(call)?;
        let stream = match is_eager {
            true => self.service,
            false => streams.all[0].raw,
        };
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: a stream of this context that nobody captures: the table says so and is held.
        self.check(unsafe { self.driver.cuStreamBeginCapture_v2(stream.0, mode) })?;
        streams.is_capturing = true;
        Ok(stream)
    }

    /// Ends the capture, whatever became of it. The graph is null where it failed.
    pub(super) fn end_capture(&self, stream: Stream) -> (sys::CUgraph, Result<(), Error>) {
        let mut graph = std::ptr::null_mut();
        let result = {
            let mut streams = self.streams.write().unwrap_or_else(PoisonError::into_inner);
            let result = self.make_current().and_then(|()| {
                // SAFETY: a stream of this context; writes one handle.
                self.check(unsafe { self.driver.cuStreamEndCapture(stream.0, &mut graph) })
            });
            streams.is_capturing = false;
            result
        };
        self.sweep();
        (graph, result)
    }

    // ---- memory ----

    /// Most bytes that one buffer of `space` can have.
    pub(super) fn limit(&self, space: Space) -> usize {
        match space {
            Space::Device => self.total_bytes,
            Space::Host => isize::MAX as usize,
        }
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

    /// True for host memory that the driver knows, so that the device reaches it inside a graph.
    pub(super) fn is_pinned(&self, address: *mut u8) -> bool {
        let mut value = 0u32;
        // SAFETY: the attribute is a 32-bit number; an unknown address is an answer, not a fault.
        let answer = unsafe {
            self.driver.cuPointerGetAttribute(
                (&raw mut value).cast(),
                sys::CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                address as usize as sys::CUdeviceptr,
            )
        };
        answer.is_ok()
    }

    /// Zeroes fresh device memory and waits for it.
    pub(super) fn clear(&self, start: *mut u8, bytes: usize) -> Result<(), Error> {
        let address = start as usize as sys::CUdeviceptr;
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

    pub(super) fn relaxed(&self) -> RelaxedMode<'_> {
        let mut mode = RelaxedMode {
            driver: self.driver,
            before: sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED,
        };
        // SAFETY: reads and writes one mode, of this thread.
        let _ = unsafe {
            self.driver
                .cuThreadExchangeStreamCaptureMode(&mut mode.before)
        };
        mode
    }

    // ---- the dead ----

    /// Frees `dead` once the device has done what was submitted: now, unless nothing may wait now.
    pub(super) fn bury(&self, dead: Dead) {
        lock(&self.dead).push(dead);
        self.has_dead.store(true, Release);
        self.sweep();
    }

    /// Events need no waiting: the driver keeps one until it is past. Kernels may call nothing at all.
    pub(super) fn drop_event(&self, event: Raw<sys::CUevent_st>) {
        if self.host.is_inside() {
            lock(&self.dead).push(Dead::Event(event));
            self.has_dead.store(true, Release);
            return;
        }
        drop(self.free(Dead::Event(event)));
    }

    /// Frees what is dead, unless nothing may wait now.
    pub(super) fn sweep(&self) {
        if !self.has_dead.load(Acquire) || self.host.is_inside() {
            return;
        }
        let dead = {
            let streams = self.read();
            // Taken before waiting: what is buried meanwhile may be in use by later work.
            let dead = std::mem::take(&mut *lock(&self.dead));
            self.has_dead.store(false, Release);
            if self.make_current().is_err() || !self.settle(&streams) {
                lock(&self.dead).extend(dead);
                self.has_dead.store(true, Release);
                return;
            }
            if self.is_lost() {
                // Nobody can say what the device still does with it.
                std::mem::forget(dead);
                return;
            }
            let _relaxed = self.relaxed();
            dead.into_iter().map(|d| self.free(d)).collect::<Vec<_>>()
        };
        // Outside the table's lock: kernels have foreign drop code, and buffers come back here.
        drop(dead);
    }

    /// Gives one thing back to the driver, which has no use for it any more. What remains is ours to drop.
    fn free(&self, dead: Dead) -> Option<Parts> {
        let (answer, parts) = match dead {
            // SAFETY: came from `cuMemAlloc_v2`; nobody holds it and no stream uses it.
            Dead::Device(address) => (unsafe { self.driver.cuMemFree_v2(address) }, None),
            // SAFETY: came from `cuMemHostAlloc`; as above.
            Dead::Host(address) => (
                unsafe { self.driver.cuMemFreeHost(address as *mut _) },
                None,
            ),
            // SAFETY: an event of this crate, with no handle left.
            Dead::Event(event) => (unsafe { self.driver.cuEventDestroy_v2(event.0) }, None),
            // SAFETY: an executable of this crate, with no handle left.
            Dead::Exec(exec, parts) => (
                unsafe { self.driver.cuGraphExecDestroy(exec.0) },
                Some(parts),
            ),
        };
        // A failure that matters comes again in the next call.
        let _ = self.check(answer);
        parts
    }

    /// As [`Device::bury`], for an executable that is known to have ended.
    pub(super) fn free_ended(&self, exec: GraphExec, parts: Parts) {
        match self.host.is_inside() || self.make_current().is_err() {
            true => self.bury(Dead::Exec(exec, parts)),
            false => drop(self.free(Dead::Exec(exec, parts))),
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
        if self.make_current().is_ok() {
            let streams = self
                .streams
                .get_mut()
                .unwrap_or_else(PoisonError::into_inner);
            let owned = streams.all.iter().filter(|entry| entry.is_owned);
            for stream in owned.map(|entry| entry.raw).chain([self.service]) {
                // SAFETY: created here, destroyed once. Pending work ends before its resources go.
                let _ = unsafe { self.driver.cuStreamDestroy_v2(stream.0) };
            }
        }
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

fn next_stream(streams: &Streams) -> Result<StreamId, Error> {
    i32::try_from(streams.all.len())
        .map(StreamId)
        .map_err(|_| Error::Invalid {
            what: "number of streams",
            expected: format!("at most {}", i32::MAX),
            got: streams.all.len().to_string(),
        })
}

/// A second thread's call while this context captures. The capturing thread's own calls are refused
/// before they come here, with the name of the graph.
fn recording(call: &'static str) -> Error {
    Error::Recording {
        call,
        recording: "other work".into(),
    }
}
