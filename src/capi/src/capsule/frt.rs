//! A backend over the execution ABI of this library.
//!
//! `self` is a checked handle, and every buffer, graph and event is one too: whatever is dead or foreign is refused by the
//! execution functions, whose text the capsule verbs pass on.

use super::abi::{cap_backend, cap_buffer, cap_event, cap_graph, cap_space, CAP_ABI_VERSION};
use super::call::Call;
use crate::exec::*;
use crate::handles::{self, Object};
use crate::status::{status, Failure, FRT_ERR_INVALID};
use std::ffi::{c_char, c_int, c_void};
use std::ptr::null_mut;

/// What `self` stands for.
#[derive(Clone, Copy)]
struct Adapter {
    context: frt_ctx,
    fingerprint: u64,
}

// SAFETY: no other type has this number.
unsafe impl Object for Adapter {
    const KIND: u32 = 34;
    const NAME: &'static str = "backend of cap_backend_init_frt";
}

/// A copy of the adapter, or none and a text when it was ended.
fn adapter(this: *mut c_void) -> Option<Adapter> {
    let mut found = None;
    status(|| {
        // SAFETY: copied at once.
        found = Some(*unsafe { handles::need::<Adapter>("cap_backend", this) }?);
        Ok(0)
    });
    found
}

/// The execution context; without one the function that runs returns `$failed`.
macro_rules! context {
    ($this:ident, else $failed:expr) => {
        match adapter($this) {
            Some(adapter) => adapter.context,
            None => return $failed,
        }
    };
}

/// # Safety
/// That of `cap_backend_init_frt`.
pub(super) unsafe fn init(
    call: Call,
    out: *mut cap_backend,
    context: frt_ctx,
    fingerprint: u64,
) -> Result<c_int, Failure> {
    call.place("out", out)?;
    // SAFETY: a handle may be anything; the other rules are those of this call.
    if unsafe { frt_ctx_backend(context) } < 0 {
        return Err(call.arg(format_args!("{context:p} is no execution context")));
    }
    let adapter = Adapter {
        context,
        fingerprint,
    };
    let this = handles::issue(Box::new(adapter));
    if this.is_null() {
        return Err(call.fail(super::abi::cap_status::CAP_ERR_NOMEM, "no handle is left"));
    }
    let table = cap_backend {
        abi_version: CAP_ABI_VERSION,
        struct_size: size_of::<cap_backend>() as u32,
        self_: this,
        buffer_alloc: Some(buffer_alloc),
        buffer_wrap: Some(buffer_wrap),
        buffer_ptr: Some(buffer_ptr),
        buffer_bytes: Some(buffer_bytes),
        buffer_copy: Some(buffer_copy),
        buffer_upload: Some(buffer_upload),
        buffer_download: Some(buffer_download),
        buffer_free: Some(buffer_free),
        graph_replay: Some(graph_replay),
        graph_has: Some(graph_has),
        graph_bind: Some(graph_bind),
        stream: Some(stream),
        event: Some(event),
        event_record: Some(event_record),
        event_query: Some(event_query),
        stream_wait: Some(stream_wait),
        sync: Some(sync),
        event_free: Some(event_free),
        fingerprint: Some(fingerprint_of),
    };
    // SAFETY: `place` checked the address, the caller promises the room.
    unsafe { out.write(table) };
    Ok(0)
}

/// # Safety
/// That of `cap_backend_done_frt`.
pub(super) unsafe fn done(call: Call, backend: *mut cap_backend) -> Result<c_int, Failure> {
    if backend.is_null() {
        return Ok(0);
    }
    call.place("backend", backend)?;
    // SAFETY: `place` checked the address, the caller promises a backend there.
    let this = unsafe { &raw mut (*backend).self_ };
    // SAFETY: as above.
    if handles::take::<Adapter>(unsafe { this.read() }).is_some() {
        // SAFETY: as above.
        unsafe { this.write(null_mut()) };
    }
    Ok(0)
}

// The functions of the table. Their arguments are what their description in `abi` says, which is what the execution
// functions ask for; handles may be anything.

unsafe extern "C" fn buffer_alloc(
    this: *mut c_void,
    name: *const c_char,
    bytes: usize,
    space: c_int,
) -> cap_buffer {
    let context = context!(this, else null_mut());
    const HOST: c_int = cap_space::CAP_HOST as c_int;
    // SAFETY: see above.
    let buffer = unsafe {
        match space {
            HOST => frt_buffer_alloc_host(context, name, bytes),
            _ => frt_buffer_alloc(context, name, bytes),
        }
    };
    buffer.cast()
}

unsafe extern "C" fn buffer_wrap(
    this: *mut c_void,
    name: *const c_char,
    ptr: *mut c_void,
    bytes: usize,
    space: c_int,
) -> cap_buffer {
    let context = context!(this, else null_mut());
    // SAFETY: see above.
    unsafe {
        let is_device = frt_ctx_backend(context) != FRT_BACKEND_CPU;
        if is_device && space == cap_space::CAP_HOST as c_int {
            return null_mut();
        }
        frt_buffer_wrap(context, name, ptr, bytes).cast()
    }
}

unsafe extern "C" fn buffer_ptr(_: *mut c_void, buffer: cap_buffer) -> *mut c_void {
    // SAFETY: see above.
    unsafe { frt_buffer_dptr(buffer.cast()) }
}

unsafe extern "C" fn buffer_bytes(_: *mut c_void, buffer: cap_buffer) -> usize {
    // SAFETY: see above.
    unsafe { frt_buffer_bytes(buffer.cast()) }
}

unsafe extern "C" fn buffer_copy(
    this: *mut c_void,
    dst: cap_buffer,
    dst_off: usize,
    src: cap_buffer,
    src_off: usize,
    bytes: usize,
    stream: c_int,
) -> c_int {
    let context = context!(this, else FRT_ERR_INVALID);
    let (dst, src) = (dst.cast(), src.cast());
    // SAFETY: see above.
    unsafe { frt_buffer_copy(context, dst, dst_off, src, src_off, bytes, stream) }
}

unsafe extern "C" fn buffer_upload(
    this: *mut c_void,
    dst: cap_buffer,
    off: usize,
    src: *const c_void,
    bytes: usize,
    stream: c_int,
) -> c_int {
    let context = context!(this, else FRT_ERR_INVALID);
    // SAFETY: see above.
    unsafe { frt_buffer_upload(context, dst.cast(), off, src, bytes, stream) }
}

unsafe extern "C" fn buffer_download(
    this: *mut c_void,
    src: cap_buffer,
    off: usize,
    dst: *mut c_void,
    bytes: usize,
    stream: c_int,
) -> c_int {
    let context = context!(this, else FRT_ERR_INVALID);
    // SAFETY: see above.
    unsafe { frt_buffer_download(context, src.cast(), off, dst, bytes, stream) }
}

/// Needs no adapter: what is left of a context goes also after its backend was ended.
unsafe extern "C" fn buffer_free(_: *mut c_void, buffer: cap_buffer) {
    // SAFETY: see above. A buffer that went with its context is refused.
    unsafe { frt_buffer_free(buffer.cast()) };
}

unsafe extern "C" fn graph_replay(
    this: *mut c_void,
    graph: cap_graph,
    key: u64,
    stream: c_int,
) -> c_int {
    if adapter(this).is_none() {
        return FRT_ERR_INVALID;
    }
    // SAFETY: see above.
    unsafe { frt_graph_replay(graph.cast(), key, stream) }
}

unsafe extern "C" fn graph_has(this: *mut c_void, graph: cap_graph, key: u64) -> c_int {
    if adapter(this).is_none() {
        return FRT_ERR_INVALID;
    }
    // SAFETY: see above.
    unsafe { frt_graph_has_variant(graph.cast(), key) }
}

unsafe extern "C" fn graph_bind(
    _: *mut c_void,
    graph: cap_graph,
    port: *const c_char,
    buffer: cap_buffer,
) -> c_int {
    // SAFETY: see above.
    unsafe { frt_graph_bind(graph.cast(), port, buffer.cast()) }
}

unsafe extern "C" fn stream(this: *mut c_void, priority: c_int) -> c_int {
    let context = context!(this, else FRT_ERR_INVALID);
    // SAFETY: see above.
    unsafe { frt_ctx_stream(context, priority) }
}

unsafe extern "C" fn event(this: *mut c_void) -> cap_event {
    let context = context!(this, else null_mut());
    // SAFETY: see above.
    unsafe { frt_ctx_event(context) }.cast()
}

unsafe extern "C" fn event_record(_: *mut c_void, event: cap_event, stream: c_int) -> c_int {
    // SAFETY: see above.
    unsafe { frt_event_record(event.cast(), stream) }
}

unsafe extern "C" fn event_query(_: *mut c_void, event: cap_event) -> c_int {
    // SAFETY: see above.
    unsafe { frt_event_query(event.cast()) }
}

unsafe extern "C" fn stream_wait(this: *mut c_void, stream: c_int, event: cap_event) -> c_int {
    let context = context!(this, else FRT_ERR_INVALID);
    // SAFETY: see above.
    unsafe { frt_stream_wait(context, stream, event.cast()) }
}

unsafe extern "C" fn sync(this: *mut c_void, stream: c_int) -> c_int {
    let context = context!(this, else FRT_ERR_INVALID);
    // SAFETY: see above.
    unsafe { frt_stream_sync(context, stream) }
}

/// As `buffer_free`.
unsafe extern "C" fn event_free(_: *mut c_void, event: cap_event) {
    // SAFETY: see above.
    unsafe { frt_event_destroy(event.cast()) };
}

unsafe extern "C" fn fingerprint_of(this: *mut c_void) -> u64 {
    adapter(this).map_or(0, |adapter| adapter.fingerprint)
}
