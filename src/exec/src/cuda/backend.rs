//! The calls of a CUDA context.

use super::capture::{CudaCapture, CudaExec};
use super::device::Device;
use super::driver::{is_not_ready, Stream};
use super::event::CudaEvent;
use super::host::lock;
use super::memory::CudaMemory;
use super::streams::covers;
use crate::{Error, MemoryUse, ShapeKey, Slice, Space, StreamId};
use std::ffi::c_void;
use std::num::NonZeroUsize;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};

/// The backend of [`crate::Context::cuda`].
///
/// Calls check, enter the stream table and call the driver once. Nothing on the hot path allocates.
pub(crate) struct CudaBackend {
    isa: String,
    /// Eager work under way: it owns its kernels and buffers. Not in the device, which buffers hold.
    eager: Mutex<Vec<(CudaEvent, CudaExec)>>,
    device: Arc<Device>,
}

impl CudaBackend {
    pub(crate) fn new(ordinal: i32) -> Result<CudaBackend, Error> {
        let device = Device::open(ordinal)?;
        Ok(CudaBackend {
            isa: device.isa()?,
            eager: Mutex::new(Vec::new()),
            device,
        })
    }

    pub(crate) fn ordinal(&self) -> i32 {
        self.device.ordinal
    }

    pub(crate) fn isa(&self) -> &str {
        &self.isa
    }

    pub(crate) fn threads(&self) -> usize {
        self.device.host.threads()
    }

    pub(crate) fn memory(&self) -> MemoryUse {
        self.device.memory()
    }

    pub(crate) fn check_free(&self, call: &'static str) -> Result<(), Error> {
        self.device.check_free(call)
    }

    // ---- streams ----

    pub(crate) fn stream(&self, priority: i32) -> Result<StreamId, Error> {
        self.device.add_stream(priority)
    }

    /// # Safety
    /// That of [`crate::Context::wrap_stream`].
    pub(crate) unsafe fn wrap_stream(&self, raw: *mut c_void) -> Result<StreamId, Error> {
        // SAFETY: the caller's promise; the context waits for the stream before it goes.
        unsafe { self.device.wrap_stream(raw.cast()) }
    }

    pub(crate) fn raw_stream(&self, id: StreamId) -> Result<*mut c_void, Error> {
        let streams = self.device.read();
        Ok(streams.get(id)?.1.raw.0.cast())
    }

    pub(crate) fn priority(&self, id: StreamId) -> Result<i32, Error> {
        Ok(self.device.read().get(id)?.1.priority())
    }

    pub(crate) fn synchronize(&self, id: StreamId) -> Result<(), Error> {
        let (index, upstream) = {
            let streams = self.device.enter("synchronize")?;
            let (index, stream) = streams.get(id)?;
            let upstream = stream.take_upstream();
            self.device.wait_for(stream)?;
            (index, upstream)
        };
        self.let_go();
        self.device
            .host
            .report(|failed| covers(index, upstream, failed))
    }

    pub(crate) fn synchronize_all(&self, call: &'static str) -> Result<(), Error> {
        {
            let streams = self.device.enter(call)?;
            self.device.wait_for_all(&streams)?;
        }
        self.let_go();
        self.device.host.report_any()
    }

    /// Lets go of eager work that has ended and of what could not be freed when it was dropped.
    fn let_go(&self) {
        let ended: Vec<_> = {
            let mut eager = lock(&self.eager);
            if eager.is_empty() {
                Vec::new()
            } else {
                let (ended, open) = std::mem::take(&mut *eager)
                    .into_iter()
                    .partition(|(event, _)| matches!(self.is_past(event), Ok(true)));
                *eager = open;
                ended
            }
        };
        // Outside the lock: kernels have foreign drop code.
        ended.into_iter().for_each(|(_, exec)| exec.drop_ended());
        self.device.sweep();
    }

    // ---- memory ----

    pub(crate) fn alloc(
        &self,
        name: &str,
        space: Space,
        bytes: NonZeroUsize,
    ) -> Result<CudaMemory, Error> {
        drop(self.device.enter("alloc")?);
        self.device.sweep();
        CudaMemory::new(&self.device, name, space, bytes)
    }

    /// # Safety
    /// That of [`crate::Context::wrap`].
    pub(crate) unsafe fn wrap(
        &self,
        name: &str,
        space: Space,
        start: NonNull<u8>,
        bytes: usize,
    ) -> Result<CudaMemory, Error> {
        self.device.check_free("wrap")?;
        // SAFETY: the caller's promise.
        unsafe { CudaMemory::wrap(&self.device, name, space, start, bytes) }
    }

    pub(crate) fn copy(&self, dst: &Slice, src: &Slice, id: StreamId) -> Result<(), Error> {
        let streams = self.device.enter("copy")?;
        let stream = streams.get(id)?.1.raw;
        self.device.check(self.device.copy(dst, src, stream))
    }

    pub(crate) fn copy_many(&self, pairs: &[(&Slice, &Slice)], id: StreamId) -> Result<(), Error> {
        let streams = self.device.enter("copy_many")?;
        let stream = streams.get(id)?.1.raw;
        self.device.copy_many(pairs, stream)
    }

    pub(crate) fn fill(&self, dst: &Slice, value: u8, id: StreamId) -> Result<(), Error> {
        let streams = self.device.enter("fill")?;
        let stream = streams.get(id)?.1.raw;
        self.device.check_reach(dst)?;
        self.device.check(self.device.fill(dst, value, stream))
    }

    pub(crate) fn upload(&self, dst: &Slice, bytes: &[u8]) -> Result<(), Error> {
        self.synchronize_all("upload")?;
        // SAFETY: the caller checked that the lengths agree. An upload only reads the plain bytes.
        unsafe { self.transfer("upload", dst, bytes.as_ptr().cast_mut(), true) }
    }

    pub(crate) fn download(&self, src: &Slice, out: &mut [u8]) -> Result<(), Error> {
        self.synchronize_all("download")?;
        // SAFETY: the caller checked that the lengths agree.
        unsafe { self.transfer("download", src, out.as_mut_ptr(), false) }
    }

    /// # Safety
    /// `plain` is valid for the length of the window, for writes if `is_upload` is false, and no part of a
    /// buffer.
    unsafe fn transfer(
        &self,
        call: &'static str,
        window: &Slice,
        plain: *mut u8,
        is_upload: bool,
    ) -> Result<(), Error> {
        let _streams = self.device.enter(call)?;
        if window.bytes() == 0 {
            return Ok(());
        }
        if window.buffer().space() == Space::Device {
            // SAFETY: the caller's promise.
            return unsafe { self.device.transfer(window, plain, is_upload) };
        }
        let _inside = self.device.host.enter(call)?;
        let (from, to) = match is_upload {
            true => (plain.cast_const(), window.as_ptr()),
            false => (window.as_ptr().cast_const(), plain),
        };
        // SAFETY: a checked window on host memory that the slice holds; the streams were waited for, and
        // the gate keeps out kernels and host accesses.
        unsafe { std::ptr::copy_nonoverlapping(from, to, window.bytes()) };
        Ok(())
    }

    // ---- recorded work ----

    pub(crate) fn begin_capture(&self) -> Result<CudaCapture, Error> {
        CudaCapture::begin(&self.device, "capture", false)
    }

    pub(crate) fn finish_capture(
        &self,
        capture: CudaCapture,
        graph: &str,
        key: ShapeKey,
    ) -> Result<CudaExec, Error> {
        capture.finish_graph(graph, key)
    }

    /// # Safety
    /// That of [`crate::Graph::adopt_raw`].
    pub(crate) unsafe fn adopt_raw(&self, raw: *mut c_void) -> Result<CudaExec, Error> {
        Ok(CudaExec::borrowed(&self.device, raw.cast()))
    }

    pub(crate) fn launch(&self, exec: Arc<CudaExec>, id: StreamId) -> Result<(), Error> {
        let streams = self.device.enter("replay")?;
        exec.launch(id.0, streams.get(id)?.1.raw)
    }

    /// Eager work is captured and launched once: all of it or nothing, in the order in which it was
    /// recorded, that of other users of the raw stream included.
    pub(crate) fn begin_eager(&self, id: StreamId) -> Result<CudaCapture, Error> {
        self.device.read().get(id)?;
        CudaCapture::begin(&self.device, "enqueue", true)
    }

    pub(crate) fn finish_eager(&self, capture: CudaCapture, id: StreamId) -> Result<(), Error> {
        let Some(exec) = capture.finish_eager(id)? else {
            return Ok(());
        };
        let ended = CudaEvent::new(&self.device)?;
        {
            let streams = self.device.enter("enqueue")?;
            let (index, stream) = streams.get(id)?;
            exec.launch(id.0, stream.raw)?;
            self.record_on(&ended, index, stream.raw)?;
        }
        lock(&self.eager).push((ended, exec));
        self.let_go();
        Ok(())
    }

    // ---- events ----

    pub(crate) fn event(&self) -> Result<CudaEvent, Error> {
        CudaEvent::new(&self.device)
    }

    pub(crate) fn record(&self, event: &CudaEvent, id: StreamId) -> Result<(), Error> {
        let streams = self.device.enter("record")?;
        let (index, stream) = streams.get(id)?;
        self.record_on(event, index, stream.raw)
    }

    fn record_on(&self, event: &CudaEvent, index: usize, stream: Stream) -> Result<(), Error> {
        // SAFETY: an event and a stream of one context.
        let answer = unsafe { self.device.driver.cuEventRecord(event.raw.0, stream.0) };
        self.device.check(answer)?;
        event.set_stream(index);
        Ok(())
    }

    pub(crate) fn wait(&self, id: StreamId, event: &CudaEvent) -> Result<(), Error> {
        let streams = self.device.enter("wait")?;
        let (index, stream) = streams.get(id)?;
        // SAFETY: an event and a stream of one context.
        let answer = unsafe {
            self.device
                .driver
                .cuStreamWaitEvent(stream.raw.0, event.raw.0, 0)
        };
        self.device.check(answer)?;
        if let Some(from) = event.stream().filter(|&from| from != index) {
            if let Some(other) = streams.at(from) {
                stream.follow(from, other);
            }
        }
        Ok(())
    }

    pub(crate) fn query(&self, event: &CudaEvent) -> Result<bool, Error> {
        let is_past = {
            let _streams = self.device.enter("query")?;
            self.is_past(event)?
        };
        if is_past {
            self.report_for(event)?;
        }
        Ok(is_past)
    }

    fn is_past(&self, event: &CudaEvent) -> Result<bool, Error> {
        let _relaxed = self.device.relaxed();
        // SAFETY: an event of this context.
        match unsafe { self.device.driver.cuEventQuery(event.raw.0) } {
            Ok(()) => Ok(true),
            Err(failure) if is_not_ready(failure) => Ok(false),
            Err(failure) => Err(self.device.fail(failure)),
        }
    }

    pub(crate) fn sync_event(&self, event: &CudaEvent) -> Result<(), Error> {
        {
            let _streams = self.device.enter("sync_event")?;
            let _relaxed = self.device.relaxed();
            // SAFETY: an event of this context.
            let answer = unsafe { self.device.driver.cuEventSynchronize(event.raw.0) };
            self.device.check(answer)?;
        }
        self.report_for(event)
    }

    /// Tells a failure of the stream that the event was recorded on, or of one that it had waited for.
    fn report_for(&self, event: &CudaEvent) -> Result<(), Error> {
        let Some(index) = event.stream() else {
            return Ok(());
        };
        let upstream = match self.device.read().at(index) {
            Some(stream) => stream.upstream(),
            None => 0,
        };
        self.device
            .host
            .report(|failed| covers(index, upstream, failed))
    }
}

impl Drop for CudaBackend {
    fn drop(&mut self) {
        let eager = std::mem::take(&mut *lock(&self.eager));
        // Work under way may use wrapped streams, kernels and borrowed memory, which nobody promised to
        // keep after this.
        if self.device.finish_all() {
            eager.into_iter().for_each(|(_, exec)| exec.drop_ended());
        } else {
            // Inside a kernel or a foreign capture, or on a lost device: nothing is safe but to leak.
            std::mem::forget(eager);
        }
    }
}
