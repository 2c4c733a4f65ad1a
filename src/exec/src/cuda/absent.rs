//! A build without CUDA: the calls of the backend, over types that cannot exist.
//!
//! [`CudaBackend::new`] says why there is none. Every other call takes a value that only it could have
//! made, so the compiler proves that none of them is reached.

use crate::recorder::HostKernel;
use crate::{BackendKind, Error, MemoryUse, ShapeKey, Slice, Space, StreamId};
use std::any::Any;
use std::convert::Infallible;
use std::ffi::c_void;
use std::num::NonZeroUsize;
use std::ptr::NonNull;
use std::sync::Arc;

/// Device or pinned host memory.
pub(crate) struct CudaMemory(Infallible);

impl CudaMemory {
    pub(crate) fn ptr(&self) -> *mut u8 {
        match self.0 {}
    }

    pub(crate) fn with_mut<R>(
        &self,
        _: &'static str,
        _: impl FnOnce(&mut [u8]) -> R,
    ) -> Result<R, Error> {
        match self.0 {}
    }
}

/// A driver event.
pub(crate) struct CudaEvent(Infallible);

/// An instantiated graph.
pub(crate) struct CudaExec(Infallible);

impl CudaExec {
    pub(crate) fn raw(&self) -> *mut c_void {
        match self.0 {}
    }
}

/// A stream in capture mode, or a live one.
pub(crate) struct CudaCapture(Infallible);

impl CudaCapture {
    pub(crate) fn is_empty(&self) -> bool {
        match self.0 {}
    }

    pub(crate) fn raw_stream(&self) -> *mut c_void {
        match self.0 {}
    }

    pub(crate) fn copy(&mut self, _dst: &Slice, _src: &Slice) -> Result<(), Error> {
        match self.0 {}
    }

    pub(crate) fn fill(&mut self, _dst: &Slice, _value: u8) -> Result<(), Error> {
        match self.0 {}
    }

    pub(crate) fn host_kernel(
        &mut self,
        _: &'static str,
        _: &[&Slice],
        _: Box<dyn HostKernel>,
    ) -> Result<(), Error> {
        match self.0 {}
    }

    pub(crate) fn device_work(
        &mut self,
        _: &'static str,
        _: &[&Slice],
        _: Option<Arc<dyn Any + Send + Sync>>,
        _: impl FnOnce(*mut c_void) -> Result<(), String>,
    ) -> Result<(), Error> {
        match self.0 {}
    }
}

/// The backend of [`crate::Context::cuda`].
pub(crate) struct CudaBackend(Infallible);

#[allow(unused_variables)] // the names are the documentation of the seam
impl CudaBackend {
    pub(crate) fn new(ordinal: i32) -> Result<CudaBackend, Error> {
        if ordinal < 0 {
            return Err(Error::Invalid {
                what: "device ordinal",
                expected: "0 or more".into(),
                got: ordinal.to_string(),
            });
        }
        Err(Error::BackendUnavailable {
            backend: BackendKind::Cuda,
            reason: format!("device {ordinal} was asked for, but this build has no feature `cuda`"),
        })
    }

    pub(crate) fn ordinal(&self) -> i32 {
        match self.0 {}
    }

    pub(crate) fn isa(&self) -> &str {
        match self.0 {}
    }

    pub(crate) fn threads(&self) -> usize {
        match self.0 {}
    }

    pub(crate) fn memory(&self) -> MemoryUse {
        match self.0 {}
    }

    pub(crate) fn stream(&self, priority: i32) -> Result<StreamId, Error> {
        match self.0 {}
    }

    /// # Safety
    /// That of [`crate::Context::wrap_stream`].
    pub(crate) unsafe fn wrap_stream(&self, raw: *mut c_void) -> Result<StreamId, Error> {
        match self.0 {}
    }

    pub(crate) fn raw_stream(&self, id: StreamId) -> Result<*mut c_void, Error> {
        match self.0 {}
    }

    pub(crate) fn priority(&self, id: StreamId) -> Result<i32, Error> {
        match self.0 {}
    }

    pub(crate) fn alloc(
        &self,
        name: &str,
        space: Space,
        bytes: NonZeroUsize,
    ) -> Result<CudaMemory, Error> {
        match self.0 {}
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
        match self.0 {}
    }

    pub(crate) fn copy(&self, dst: &Slice, src: &Slice, id: StreamId) -> Result<(), Error> {
        match self.0 {}
    }

    pub(crate) fn copy_many(&self, pairs: &[(&Slice, &Slice)], id: StreamId) -> Result<(), Error> {
        match self.0 {}
    }

    pub(crate) fn fill(&self, dst: &Slice, value: u8, id: StreamId) -> Result<(), Error> {
        match self.0 {}
    }

    pub(crate) fn check_free(&self, call: &'static str) -> Result<(), Error> {
        match self.0 {}
    }

    pub(crate) fn begin_capture(&self) -> Result<CudaCapture, Error> {
        match self.0 {}
    }

    pub(crate) fn finish_capture(
        &self,
        capture: CudaCapture,
        graph: &str,
        key: ShapeKey,
    ) -> Result<CudaExec, Error> {
        match self.0 {}
    }

    /// # Safety
    /// That of [`crate::Graph::adopt_raw`].
    pub(crate) unsafe fn adopt_raw(&self, raw: *mut c_void) -> Result<CudaExec, Error> {
        match self.0 {}
    }

    pub(crate) fn begin_eager(&self, id: StreamId) -> Result<CudaCapture, Error> {
        match self.0 {}
    }

    pub(crate) fn finish_eager(&self, capture: CudaCapture, id: StreamId) -> Result<(), Error> {
        match self.0 {}
    }

    pub(crate) fn launch(&self, exec: Arc<CudaExec>, id: StreamId) -> Result<(), Error> {
        match self.0 {}
    }

    pub(crate) fn event(&self) -> Result<CudaEvent, Error> {
        match self.0 {}
    }

    pub(crate) fn record(&self, event: &CudaEvent, id: StreamId) -> Result<(), Error> {
        match self.0 {}
    }

    pub(crate) fn wait(&self, id: StreamId, event: &CudaEvent) -> Result<(), Error> {
        match self.0 {}
    }

    pub(crate) fn query(&self, event: &CudaEvent) -> Result<bool, Error> {
        match self.0 {}
    }

    pub(crate) fn sync_event(&self, event: &CudaEvent) -> Result<(), Error> {
        match self.0 {}
    }

    pub(crate) fn synchronize(&self, id: StreamId) -> Result<(), Error> {
        match self.0 {}
    }

    pub(crate) fn synchronize_all(&self, call: &'static str) -> Result<(), Error> {
        match self.0 {}
    }

    pub(crate) fn upload(&self, dst: &Slice, bytes: &[u8]) -> Result<(), Error> {
        match self.0 {}
    }

    pub(crate) fn download(&self, src: &Slice, out: &mut [u8]) -> Result<(), Error> {
        match self.0 {}
    }
}
