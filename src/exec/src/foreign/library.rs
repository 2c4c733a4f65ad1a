//! Every call into the other library: one place for `unsafe`, for statuses and for what comes back.

use super::ForeignTable;
use crate::{BackendKind, Error, ShapeKey, Space};
use std::ffi::{c_char, c_int, c_void, CString};
use std::ptr::NonNull;

/// Longest reason that is read from the library, in bytes.
const MAX_REASON: usize = 1024;

/// Something that the library knows by this address. Never dereferenced here.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Handle(NonNull<c_void>);

// SAFETY: an address, which is only ever given back to the library, inside the gate.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

impl Handle {
    /// `None` for null.
    pub(super) fn new(raw: *mut c_void) -> Option<Handle> {
        NonNull::new(raw).map(Handle)
    }

    fn raw(self) -> *mut c_void {
        self.0.as_ptr()
    }
}

/// The functions and the context that they are called with.
///
/// What makes the calls sound: the creator of the context promised that the functions keep the ABI and
/// that the context lives; handles come from the library itself or from whoever promised that they are
/// live, and each is destroyed once, by its one owner; and the library's one-thread rule holds, because
/// `&mut self` is only to be had inside the gate.
pub(super) struct Library {
    table: ForeignTable,
    ctx: Handle,
}

/// Calls one function of the table, or says that it is not there.
macro_rules! call {
    ($self:ident.$field:ident($($argument:expr),*)) => {
        match $self.table.$field {
            // SAFETY: see `Library`; pointers to memory are those of slices that outlive the call.
            Some(function) => Ok(unsafe { function($($argument),*) }),
            None => Err(missing(concat!("frt_", stringify!($field)))),
        }
    };
}

fn missing(symbol: &'static str) -> Error {
    Error::BackendUnavailable {
        backend: BackendKind::Foreign,
        reason: format!("the library has no `{symbol}`"),
    }
}

impl Library {
    pub(super) fn new(table: ForeignTable, ctx: Handle) -> Library {
        Library { table, ctx }
    }

    pub(super) fn has(&self, optional: fn(&ForeignTable) -> bool) -> bool {
        optional(&self.table)
    }

    // ---- what comes back ----

    /// An error for every status but 0.
    fn check(&mut self, symbol: &'static str, status: c_int) -> Result<(), Error> {
        match status {
            0 => Ok(()),
            status => Err(self.failed(symbol, status)),
        }
    }

    fn failed(&mut self, symbol: &'static str, status: c_int) -> Error {
        Error::Library {
            symbol,
            status,
            reason: self.reason(),
        }
    }

    /// An error of a call that should have answered something else.
    pub(super) fn bad_answer(&mut self, call: &'static str, what: String) -> Error {
        let reason = match self.reason() {
            reason if reason.is_empty() => what,
            reason => format!("{what}: {reason}"),
        };
        Error::Backend {
            backend: BackendKind::Foreign,
            call,
            reason,
        }
    }

    fn reason(&mut self) -> String {
        let text: *const c_char = call!(self.last_error()).unwrap_or(std::ptr::null());
        if text.is_null() {
            return String::new();
        }
        let bytes: Vec<u8> = (0..MAX_REASON)
            // SAFETY: the text is NUL-terminated, and no byte behind the NUL is read.
            .map(|i| unsafe { *text.add(i) } as u8)
            .take_while(|&byte| byte != 0)
            .collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    // ---- context, streams, events ----

    /// 0 CPU, 1 CUDA; whatever it says if it says something else.
    pub(super) fn backend(&mut self) -> Option<c_int> {
        call!(self.ctx_backend(self.ctx.raw())).ok()
    }

    pub(super) fn stream(&mut self, priority: c_int) -> Result<c_int, Error> {
        match call!(self.ctx_stream(self.ctx.raw(), priority))? {
            id if id >= 0 => Ok(id),
            status => Err(self.failed("frt_ctx_stream", status)),
        }
    }

    pub(super) fn stream_sync(&mut self, stream: c_int) -> Result<(), Error> {
        let status = call!(self.stream_sync(self.ctx.raw(), stream))?;
        self.check("frt_stream_sync", status)
    }

    pub(super) fn event(&mut self) -> Result<Handle, Error> {
        let event = call!(self.ctx_event(self.ctx.raw()))?;
        Handle::new(event).ok_or_else(|| self.bad_answer("frt_ctx_event", "no event".into()))
    }

    pub(super) fn event_destroy(&mut self, event: Handle) {
        let _ = call!(self.event_destroy(event.raw()));
    }

    pub(super) fn event_record(&mut self, event: Handle, stream: c_int) -> Result<(), Error> {
        let status = call!(self.event_record(event.raw(), stream))?;
        self.check("frt_event_record", status)
    }

    pub(super) fn stream_wait(&mut self, stream: c_int, event: Handle) -> Result<(), Error> {
        let status = call!(self.stream_wait(self.ctx.raw(), stream, event.raw()))?;
        self.check("frt_stream_wait", status)
    }

    pub(super) fn event_query(&mut self, event: Handle) -> Result<bool, Error> {
        match call!(self.event_query(event.raw()))? {
            0 => Ok(true),
            1 => Ok(false),
            status => Err(self.failed("frt_event_query", status)),
        }
    }

    pub(super) fn event_sync(&mut self, event: Handle) -> Result<(), Error> {
        let status = call!(self.event_sync(event.raw()))?;
        self.check("frt_event_sync", status)
    }

    // ---- buffers ----

    pub(super) fn buffer_alloc(&mut self, name: &str, bytes: usize) -> Result<Handle, Error> {
        // C names end at their first NUL.
        let c_name = CString::new(name.split('\0').next().unwrap_or_default()).unwrap_or_default();
        let buffer = call!(self.buffer_alloc(self.ctx.raw(), c_name.as_ptr(), bytes))?;
        Handle::new(buffer).ok_or_else(|| Error::OutOfMemory {
            buffer: name.into(),
            bytes,
            space: Space::Device,
            free: None,
        })
    }

    pub(super) fn buffer_dptr(&mut self, buffer: Handle) -> Result<*mut c_void, Error> {
        call!(self.buffer_dptr(buffer.raw()))
    }

    pub(super) fn buffer_bytes(&mut self, buffer: Handle) -> Result<usize, Error> {
        call!(self.buffer_bytes(buffer.raw()))
    }

    /// Offsets and `bytes` are those of windows on the buffers.
    pub(super) fn buffer_copy(
        &mut self,
        (dst, dst_offset): (Handle, usize),
        (src, src_offset): (Handle, usize),
        bytes: usize,
        stream: c_int,
    ) -> Result<(), Error> {
        let status = call!(self.buffer_copy(
            self.ctx.raw(),
            dst.raw(),
            dst_offset,
            src.raw(),
            src_offset,
            bytes,
            stream
        ))?;
        self.check("frt_buffer_copy", status)
    }

    /// `src` is as long as the window.
    pub(super) fn buffer_upload(
        &mut self,
        (dst, offset): (Handle, usize),
        src: &[u8],
        stream: c_int,
    ) -> Result<(), Error> {
        let status = call!(self.buffer_upload(
            self.ctx.raw(),
            dst.raw(),
            offset,
            src.as_ptr().cast(),
            src.len(),
            stream
        ))?;
        self.check("frt_buffer_upload", status)
    }

    /// `dst` is as long as the window.
    pub(super) fn buffer_download(
        &mut self,
        (src, offset): (Handle, usize),
        dst: &mut [u8],
        stream: c_int,
    ) -> Result<(), Error> {
        let status = call!(self.buffer_download(
            self.ctx.raw(),
            src.raw(),
            offset,
            dst.as_mut_ptr().cast(),
            dst.len(),
            stream
        ))?;
        self.check("frt_buffer_download", status)
    }

    pub(super) fn buffer_fill(
        &mut self,
        (buffer, offset): (Handle, usize),
        value: u8,
        bytes: usize,
        stream: c_int,
    ) -> Result<(), Error> {
        let status = call!(self.buffer_fill(
            self.ctx.raw(),
            buffer.raw(),
            offset,
            c_int::from(value),
            bytes,
            stream
        ))?;
        self.check("frt_buffer_fill", status)
    }

    /// False when the library cannot free buffers.
    pub(super) fn buffer_free(&mut self, buffer: Handle) -> bool {
        // A drop has nobody to tell a status to.
        call!(self.buffer_free(buffer.raw())).is_ok()
    }

    // ---- graphs ----

    pub(super) fn graph_replay(
        &mut self,
        graph: Handle,
        key: ShapeKey,
        stream: c_int,
    ) -> Result<(), Error> {
        let status = call!(self.graph_replay(graph.raw(), key, stream))?;
        self.check("frt_graph_replay", status)
    }

    pub(super) fn graph_has_variant(&mut self, graph: Handle, key: ShapeKey) -> bool {
        call!(self.graph_has_variant(graph.raw(), key)) == Ok(1)
    }

    pub(super) fn graph_evict(&mut self, graph: Handle, key: ShapeKey) -> Result<(), Error> {
        let status = call!(self.graph_evict(graph.raw(), key))?;
        self.check("frt_graph_evict", status)
    }

    pub(super) fn graph_variant_count(&mut self, graph: Handle) -> usize {
        call!(self.graph_variant_count(graph.raw())).unwrap_or(0)
    }

    // ---- plans ----

    /// A plan of one node, which is never executed: it only names the stream to wait for.
    pub(super) fn plan_on(&mut self, graph: Handle, stream: c_int) -> Result<Handle, Error> {
        let plan = call!(self.plan_create(self.ctx.raw()))?;
        let plan = Handle::new(plan)
            .ok_or_else(|| self.bad_answer("frt_plan_create", "no plan".into()))?;
        let node = call!(self.plan_add(plan.raw(), graph.raw(), 0, stream))?;
        if node >= 0 {
            return Ok(plan);
        }
        let error = self.failed("frt_plan_add", node);
        self.plan_destroy(plan);
        Err(error)
    }

    pub(super) fn plan_sync(&mut self, plan: Handle) -> Result<(), Error> {
        let status = call!(self.plan_sync(plan.raw()))?;
        self.check("frt_plan_sync", status)
    }

    pub(super) fn plan_destroy(&mut self, plan: Handle) {
        let _ = call!(self.plan_destroy(plan.raw()));
    }
}
