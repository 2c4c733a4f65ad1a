//! The functions of a backend, behind results.

use super::abi::{
    cap_backend, cap_buffer, cap_event, cap_graph, cap_shape_key, cap_space, cap_status,
    CAP_ABI_VERSION,
};
use super::call::Call;
use crate::status::{failures, text_since, Failure};
use std::ffi::{c_char, c_int, c_void};

macro_rules! functions {
    ($($name:ident: fn($($arg:ty),*) $(-> $ret:ty)?),+ $(,)?) => {
        /// A whole vtable. A copy: no reference into a context is held while a function of it runs.
        #[derive(Clone, Copy)]
        pub(super) struct Backend {
            this: *mut c_void,
            $($name: unsafe extern "C" fn(*mut c_void $(, $arg)*) $(-> $ret)?,)+
        }

        impl Backend {
            /// Every function must be there, also those that are not called from here.
            fn whole(call: Call, table: &cap_backend) -> Result<Backend, Failure> {
                let missing = |name: &str| call.arg(format_args!("`{name}` of the backend is null"));
                for (name, is_null) in [
                    ("buffer_wrap", table.buffer_wrap.is_none()),
                    ("graph_bind", table.graph_bind.is_none()),
                    ("stream", table.stream.is_none()),
                ] {
                    if is_null {
                        return Err(missing(name));
                    }
                }
                Ok(Backend {
                    this: table.self_,
                    $($name: table.$name.ok_or_else(|| missing(stringify!($name)))?,)+
                })
            }
        }
    };
}

functions! {
    buffer_alloc: fn(*const c_char, usize, c_int) -> cap_buffer,
    buffer_ptr: fn(cap_buffer) -> *mut c_void,
    buffer_bytes: fn(cap_buffer) -> usize,
    buffer_copy: fn(cap_buffer, usize, cap_buffer, usize, usize, c_int) -> c_int,
    buffer_upload: fn(cap_buffer, usize, *const c_void, usize, c_int) -> c_int,
    buffer_download: fn(cap_buffer, usize, *mut c_void, usize, c_int) -> c_int,
    buffer_free: fn(cap_buffer),
    graph_replay: fn(cap_graph, cap_shape_key, c_int) -> c_int,
    graph_has: fn(cap_graph, cap_shape_key) -> c_int,
    event: fn() -> cap_event,
    event_record: fn(cap_event, c_int) -> c_int,
    event_query: fn(cap_event) -> c_int,
    stream_wait: fn(c_int, cap_event) -> c_int,
    sync: fn(c_int) -> c_int,
    event_free: fn(cap_event),
    fingerprint: fn() -> u64,
}

// SAFETY: `this` is only handed back to the functions that came with it. The interface lets one thread at a time use a
// context and whatever belongs to it, on whichever thread that is.
unsafe impl Send for Backend {}
// SAFETY: as above.
unsafe impl Sync for Backend {}

/// A window on a buffer of the caller.
#[derive(Clone, Copy)]
pub(super) struct Window {
    pub(super) buffer: cap_buffer,
    pub(super) offset: usize,
}

impl Backend {
    /// A checked copy of a vtable.
    ///
    /// # Safety
    /// `table` is null or as `cap_ctx_create` says.
    pub(super) unsafe fn read(call: Call, table: *const cap_backend) -> Result<Backend, Failure> {
        call.place("backend", table)?;
        // SAFETY: two u32 at its start are there whatever version it is of. No reference: the rest may be absent.
        let (version, size) = unsafe { ((*table).abi_version, (*table).struct_size) };
        let expected = (CAP_ABI_VERSION, size_of::<cap_backend>() as u32);
        if (version, size) != expected {
            return Err(call.fail(
                cap_status::CAP_ERR_VERSION,
                format_args!(
                    "`abi_version` and `struct_size` of the backend are {version} and {size}, expected {} and {}",
                    expected.0, expected.1
                ),
            ));
        }
        // SAFETY: version and size are ours, so the caller promises a whole one; `place` checked its address.
        Backend::whole(call, &unsafe { table.read() })
    }

    pub(super) fn fingerprint(&self) -> u64 {
        // SAFETY: as `alloc`.
        unsafe { (self.fingerprint)(self.this) }
    }

    /// A new buffer for a region of a capsule.
    pub(super) fn alloc(
        &self,
        call: Call,
        bytes: usize,
        space: cap_space,
    ) -> Result<cap_buffer, Failure> {
        let before = failures();
        // SAFETY: the creator of the context promises that its functions are callable with its `self` and keep to their
        // descriptions; the arguments are what the description asks for.
        let buffer =
            unsafe { (self.buffer_alloc)(self.this, c"capsule".as_ptr(), bytes, space as c_int) };
        if buffer.is_null() {
            let what = with_reason("a region: `buffer_alloc` of the backend gave null", before);
            return Err(call.no_memory(&what, bytes));
        }
        Ok(buffer)
    }

    pub(super) fn free(&self, buffer: cap_buffer) {
        // SAFETY: as `alloc`; the buffer came from it and is freed once, by its owner.
        unsafe { (self.buffer_free)(self.this, buffer) }
    }

    pub(super) fn ptr(&self, call: Call, buffer: cap_buffer) -> Result<*mut c_void, Failure> {
        let before = failures();
        // SAFETY: as `alloc`.
        let ptr = unsafe { (self.buffer_ptr)(self.this, buffer) };
        if ptr.is_null() {
            let text = with_reason("`buffer_ptr` of the backend gave null", before);
            return Err(call.fail(cap_status::CAP_ERR_BACKEND, text));
        }
        Ok(ptr)
    }

    /// Refuses a window that does not lie in its buffer.
    pub(super) fn check(
        &self,
        call: Call,
        index: usize,
        window: Window,
        bytes: usize,
    ) -> Result<(), Failure> {
        if window.buffer.is_null() {
            return Err(call.arg(format_args!("region {index}: its buffer is null")));
        }
        // SAFETY: as `alloc`; the caller promises a buffer of this backend.
        let room = unsafe { (self.buffer_bytes)(self.this, window.buffer) };
        match window.offset.checked_add(bytes) {
            Some(end) if end <= room => Ok(()),
            _ => Err(call.arg(format_args!(
                "region {index}: {bytes} bytes at {} of a buffer of {room}",
                window.offset
            ))),
        }
    }

    /// Submits a copy between checked windows.
    pub(super) fn copy(
        &self,
        call: Call,
        dst: Window,
        src: Window,
        bytes: usize,
        stream: c_int,
    ) -> Result<(), Failure> {
        let before = failures();
        // SAFETY: as `alloc`; whoever calls checked both windows.
        let code = unsafe {
            (self.buffer_copy)(
                self.this, dst.buffer, dst.offset, src.buffer, src.offset, bytes, stream,
            )
        };
        answered(call, "buffer_copy", code, before)
    }

    /// Submits an upload to the start of a buffer of at least `bytes`.
    ///
    /// # Safety
    /// `src` points to `bytes` bytes that stay until the stream has run the upload.
    pub(super) unsafe fn upload(
        &self,
        call: Call,
        dst: cap_buffer,
        src: *const c_void,
        bytes: usize,
        stream: c_int,
    ) -> Result<(), Failure> {
        let before = failures();
        // SAFETY: as `alloc`, and the caller's promise.
        let code = unsafe { (self.buffer_upload)(self.this, dst, 0, src, bytes, stream) };
        answered(call, "buffer_upload", code, before)
    }

    /// Submits a download from the start of a buffer of at least `bytes`.
    ///
    /// # Safety
    /// `dst` has room for `bytes` bytes until the stream has run the download.
    pub(super) unsafe fn download(
        &self,
        call: Call,
        src: cap_buffer,
        dst: *mut c_void,
        bytes: usize,
        stream: c_int,
    ) -> Result<(), Failure> {
        let before = failures();
        // SAFETY: as `alloc`, and the caller's promise.
        let code = unsafe { (self.buffer_download)(self.this, src, 0, dst, bytes, stream) };
        answered(call, "buffer_download", code, before)
    }

    pub(super) fn has(
        &self,
        call: Call,
        graph: cap_graph,
        key: cap_shape_key,
    ) -> Result<bool, Failure> {
        let before = failures();
        // SAFETY: as `alloc`.
        match unsafe { (self.graph_has)(self.this, graph, key) } {
            code if code < 0 => Err(failed(call, "graph_has", code, before)),
            code => Ok(code > 0),
        }
    }

    pub(super) fn replay(
        &self,
        call: Call,
        graph: cap_graph,
        key: cap_shape_key,
        stream: c_int,
    ) -> Result<(), Failure> {
        let before = failures();
        // SAFETY: as `alloc`.
        let code = unsafe { (self.graph_replay)(self.this, graph, key, stream) };
        answered(call, "graph_replay", code, before)
    }

    /// A new event that marks what was submitted to `stream` so far.
    pub(super) fn mark(&self, call: Call, stream: c_int) -> Result<cap_event, Failure> {
        let before = failures();
        // SAFETY: as `alloc`.
        let event = unsafe { (self.event)(self.this) };
        if event.is_null() {
            let text = with_reason("`event` of the backend gave null", before);
            return Err(call.fail(cap_status::CAP_ERR_BACKEND, text));
        }
        // SAFETY: as `alloc`.
        let code = unsafe { (self.event_record)(self.this, event, stream) };
        let recorded = answered(call, "event_record", code, before);
        if recorded.is_err() {
            self.free_event(event);
        }
        recorded.map(|()| event)
    }

    /// True when the mark was reached.
    pub(super) fn is_reached(&self, call: Call, event: cap_event) -> Result<bool, Failure> {
        let before = failures();
        // SAFETY: as `alloc`.
        match unsafe { (self.event_query)(self.this, event) } {
            code if code < 0 => Err(failed(call, "event_query", code, before)),
            code => Ok(code == 0),
        }
    }

    pub(super) fn wait(&self, call: Call, stream: c_int, event: cap_event) -> Result<(), Failure> {
        let before = failures();
        // SAFETY: as `alloc`.
        let code = unsafe { (self.stream_wait)(self.this, stream, event) };
        answered(call, "stream_wait", code, before)
    }

    pub(super) fn sync(&self, call: Call, stream: c_int) -> Result<(), Failure> {
        let before = failures();
        // SAFETY: as `alloc`.
        let code = unsafe { (self.sync)(self.this, stream) };
        answered(call, "sync", code, before)
    }

    pub(super) fn free_event(&self, event: cap_event) {
        // SAFETY: as `alloc`; the event came from `event` and is freed once, by its owner.
        unsafe { (self.event_free)(self.this, event) }
    }

    /// Bytes of a buffer of the caller.
    pub(super) fn bytes(&self, buffer: cap_buffer) -> usize {
        // SAFETY: as `alloc`; the caller promises a buffer of this backend.
        unsafe { (self.buffer_bytes)(self.this, buffer) }
    }
}

fn answered(call: Call, function: &str, code: c_int, before: u64) -> Result<(), Failure> {
    if code == 0 {
        return Ok(());
    }
    Err(failed(call, function, code, before))
}

fn failed(call: Call, function: &str, code: c_int, before: u64) -> Failure {
    let text = format!("`{function}` of the backend answered {code}");
    call.fail(cap_status::CAP_ERR_BACKEND, with_reason(&text, before))
}

/// A backend may itself stand on this library: then its reason is known, as the text of a failure since `before`.
fn with_reason(text: &str, before: u64) -> String {
    match text_since(before) {
        Some(reason) => format!("{text} ({reason})"),
        None => text.into(),
    }
}
