//! Streams in capture mode, and the executables that come out of them.

use super::device::Device;
use super::driver::{GraphExec, Raw, Stream};
use super::free::Dead;
use super::host::{HostCall, Origin};
use crate::recorder::HostKernel;
use crate::{BackendKind, Buffer, Error, ShapeKey, Slice, StreamId};
use cudarc::driver::sys;
use std::any::Any;
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::Arc;

/// What an executable refers to by address.
#[derive(Default)]
pub(super) struct Parts {
    // Held, not read. Boxed: the driver has their addresses.
    #[allow(clippy::vec_box)]
    calls: Vec<Box<HostCall>>,
    buffers: BTreeMap<u64, Buffer>,
    /// What other layers launched from, each once.
    kept: Vec<Arc<dyn Any + Send + Sync>>,
}

/// A stream in capture mode. Dropping it ends the capture and throws away what was recorded.
pub(crate) struct CudaCapture {
    device: Arc<Device>,
    stream: Stream,
    is_open: bool,
    /// Calls of the recorder that succeeded, empty copies among them.
    recorded: usize,
    origin: Arc<Origin>,
    parts: Parts,
}

/// An instantiated graph: owned, with all that it touches, or borrowed.
pub(crate) struct CudaExec {
    raw: GraphExec,
    /// `None` for a borrowed one.
    parts: Option<Parts>,
    origin: Arc<Origin>,
    device: Arc<Device>,
}

impl CudaCapture {
    /// Puts stream 0 into capture mode for a graph; for eager work a stream that nothing else runs on.
    pub(super) fn begin(
        device: &Arc<Device>,
        call: &'static str,
        is_eager: bool,
    ) -> Result<CudaCapture, Error> {
        Ok(CudaCapture {
            stream: device.begin_capture(call, is_eager)?,
            device: device.clone(),
            is_open: true,
            recorded: 0,
            origin: Arc::default(),
            parts: Parts::default(),
        })
    }

    /// True while neither the recorder nor somebody with the raw stream recorded anything. A broken
    /// capture is not empty: its end tells what broke it.
    pub(crate) fn is_empty(&self) -> bool {
        if self.recorded > 0 || self.device.make_current().is_err() {
            return false;
        }
        let (mut status, mut count) = (0, 0);
        // SAFETY: a stream of this context; writes two numbers, and may leave the others out.
        let answer = unsafe {
            self.device.driver.cuStreamGetCaptureInfo_v2(
                self.stream.0,
                &mut status,
                std::ptr::null_mut(),
                std::ptr::null_mut(),
                std::ptr::null_mut(),
                &mut count,
            )
        };
        // Whatever comes first in the stream becomes what the next operation would depend on.
        let active = sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE as u32;
        answer.is_ok() && status == active && count == 0
    }

    pub(crate) fn raw_stream(&self) -> *mut c_void {
        self.stream.0.cast()
    }

    pub(crate) fn copy(&mut self, dst: &Slice, src: &Slice) -> Result<(), Error> {
        self.device.check_reach(dst)?;
        self.device.check_reach(src)?;
        self.record(&[dst, src], |device, stream| {
            device.check(device.copy(dst, src, stream))
        })
    }

    pub(crate) fn fill(&mut self, dst: &Slice, value: u8) -> Result<(), Error> {
        self.device.check_reach(dst)?;
        self.record(&[dst], |device, stream| {
            device.check(device.fill(dst, value, stream))
        })
    }

    pub(crate) fn host_kernel(
        &mut self,
        name: &'static str,
        touches: &[&Slice],
        kernel: Box<dyn HostKernel>,
    ) -> Result<(), Error> {
        let call = HostCall::new(name, kernel, &self.origin, &self.device.host);
        let data = std::ptr::from_ref(&*call).cast_mut().cast();
        self.record(touches, |device, stream| {
            // SAFETY: the call is boxed and stays with the executable, which outlives its launches.
            device.check(unsafe {
                device
                    .driver
                    .cuLaunchHostFunc(stream.0, Some(HostCall::run), data)
            })
        })?;
        self.parts.calls.push(call);
        Ok(())
    }

    pub(crate) fn device_work(
        &mut self,
        name: &'static str,
        touches: &[&Slice],
        keep: Option<Arc<dyn Any + Send + Sync>>,
        submit: impl FnOnce(*mut c_void) -> Result<(), String>,
    ) -> Result<(), Error> {
        self.record(touches, |_, stream| {
            submit(stream.0.cast()).map_err(|reason| Error::Backend {
                backend: BackendKind::Cuda,
                call: name,
                reason,
            })
        })?;
        if let Some(keep) = keep {
            if !self.parts.kept.iter().any(|kept| Arc::ptr_eq(kept, &keep)) {
                self.parts.kept.push(keep);
            }
        }
        Ok(())
    }

    fn record(
        &mut self,
        touches: &[&Slice],
        submit: impl FnOnce(&Device, Stream) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.device.make_current()?;
        submit(&self.device, self.stream)?;
        for window in touches {
            let buffer = window.buffer();
            self.parts
                .buffers
                .entry(buffer.id())
                .or_insert_with(|| buffer.clone());
        }
        self.recorded += 1;
        Ok(())
    }

    /// Ends the capture and makes an executable of it.
    pub(super) fn finish_graph(self, graph: &str, key: ShapeKey) -> Result<CudaExec, Error> {
        self.finish(format!("graph \"{graph}\" key {key}"))
    }

    /// As `finish_graph`, for work that is launched once. `None` if there is none.
    pub(super) fn finish_eager(self, stream: StreamId) -> Result<Option<CudaExec>, Error> {
        if self.is_empty() {
            return Ok(None);
        }
        self.origin.set_stream(stream.0);
        self.finish("an eager call".into()).map(Some)
    }

    fn finish(mut self, origin: String) -> Result<CudaExec, Error> {
        self.is_open = false;
        let (graph, ended) = self.device.end_capture(self.stream);
        let result = ended.and_then(|()| {
            let mut raw = std::ptr::null_mut();
            let _relaxed = self.device.relaxed();
            // SAFETY: the graph that the capture gave; writes one handle.
            self.device.check(unsafe {
                self.device
                    .driver
                    .cuGraphInstantiateWithFlags(&mut raw, graph, 0)
            })?;
            Ok(raw)
        });
        self.destroy(graph);
        let raw = Raw(result?);
        self.origin.set_text(origin);
        Ok(CudaExec {
            raw,
            parts: Some(std::mem::take(&mut self.parts)),
            origin: self.origin.clone(),
            device: self.device.clone(),
        })
    }

    fn destroy(&self, graph: sys::CUgraph) {
        if !graph.is_null() {
            // SAFETY: the graph that the capture gave, destroyed once. An executable does not need it.
            let _ = unsafe { self.device.driver.cuGraphDestroy(graph) };
        }
    }
}

impl Drop for CudaCapture {
    fn drop(&mut self) {
        if self.is_open {
            // The caller has its error already, or panics.
            let (graph, _) = self.device.end_capture(self.stream);
            self.destroy(graph);
        }
    }
}

impl CudaExec {
    pub(super) fn borrowed(device: &Arc<Device>, raw: sys::CUgraphExec) -> CudaExec {
        CudaExec {
            raw: Raw(raw),
            parts: None,
            origin: Arc::default(),
            device: device.clone(),
        }
    }

    pub(crate) fn raw(&self) -> *mut c_void {
        self.raw.0.cast()
    }

    /// Submits it to stream `id`. Allocates nothing.
    pub(super) fn launch(&self, id: i32, stream: Stream) -> Result<(), Error> {
        self.origin.set_stream(id);
        // SAFETY: an executable and a stream of one context. What it touches stays until the last handle is
        // gone and the streams were waited for.
        self.device
            .check(unsafe { self.device.driver.cuGraphLaunch(self.raw.0, stream.0) })
    }

    /// Drops it without waiting: it is known to have ended.
    pub(super) fn drop_ended(mut self) {
        if let Some(parts) = self.parts.take() {
            self.device.free_ended(self.raw, parts);
        }
    }
}

impl Drop for CudaExec {
    fn drop(&mut self) {
        if let Some(parts) = self.parts.take() {
            self.device.bury(Dead::Exec(self.raw, parts));
        }
    }
}
