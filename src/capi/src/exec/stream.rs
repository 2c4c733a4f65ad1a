//! Streams: ids, and what C takes for the stream itself.
//!
//! On CUDA that is the driver's stream. The CPU backend has none, so it is a handle of a [`StreamObject`].

use super::context::{self, Child, ContextObject};
use super::{failed, frt_ctx, lock, stream_id};
use crate::handles::{get, need, Object};
use crate::status::Failure;
use flashrt_exec::{Context, StreamId};
use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::sync::{LazyLock, Mutex};

/// A stream of a context.
#[derive(Clone)]
pub(super) struct StreamObject {
    pub(super) context: frt_ctx,
    pub(super) exec: Context,
    pub(super) stream: StreamId,
}

// SAFETY: 3 is this type's number alone.
unsafe impl Object for StreamObject {
    const KIND: u32 = 3;
    const NAME: &'static str = "stream";
}

/// Driver streams that C was told of, with their context and id.
static NATIVE: LazyLock<Mutex<HashMap<usize, (usize, StreamId)>>> = LazyLock::new(Mutex::default);

/// # Safety
/// Nobody destroys the context meanwhile.
pub(super) unsafe fn create(ctx: frt_ctx, priority: c_int) -> Result<c_int, Failure> {
    let call = "frt_ctx_stream";
    // SAFETY: the caller's promise.
    let exec = unsafe { context::exec(call, ctx) }?;
    let id = exec.stream(priority).map_err(|e| failed(call, &e))?;
    Ok(id.0)
}

/// # Safety
/// Nobody destroys the context meanwhile; `raw` is null or a stream of its device that outlives it.
pub(super) unsafe fn wrap(ctx: frt_ctx, raw: *mut c_void) -> Result<c_int, Failure> {
    let call = "frt_ctx_wrap_stream";
    // SAFETY: the caller's promise.
    let exec = unsafe { context::exec(call, ctx) }?;
    // SAFETY: the caller's promise.
    let id = unsafe { exec.wrap_stream(raw) }.map_err(|e| failed(call, &e))?;
    Ok(id.0)
}

/// # Safety
/// Nobody destroys the context meanwhile.
pub(super) unsafe fn sync(ctx: frt_ctx, stream: c_int) -> Result<c_int, Failure> {
    let call = "frt_stream_sync";
    // SAFETY: host functions that run in here are refused to destroy their context.
    let exec = &unsafe { need::<ContextObject>(call, ctx.cast()) }?.exec;
    let stream = stream_id(call, exec, stream)?;
    exec.synchronize(stream).map_err(|e| failed(call, &e))?;
    Ok(0)
}

/// What C takes for a stream of `ctx`; the same for every call.
///
/// # Safety
/// Nobody destroys the context meanwhile.
pub(super) unsafe fn handle(
    call: &str,
    ctx: frt_ctx,
    stream: c_int,
) -> Result<*mut c_void, Failure> {
    // SAFETY: no foreign code runs in here.
    let context = unsafe { need::<ContextObject>(call, ctx.cast()) }?;
    let stream = stream_id(call, &context.exec, stream)?;
    if context.exec.backend() == flashrt_exec::BackendKind::Cuda {
        let raw = context
            .exec
            .raw_stream(stream)
            .map_err(|e| failed(call, &e))?;
        return Ok(native(raw, ctx, stream));
    }
    let mut handles = lock(&context.stream_handles);
    if let Some(&handle) = handles.get(&stream.0) {
        return Ok(handle);
    }
    let object = StreamObject {
        context: ctx,
        exec: context.exec.clone(),
        stream,
    };
    let handle = context.adopt(call, Child::Stream, object)?;
    handles.insert(stream.0, handle);
    Ok(handle)
}

/// Remembers whose a driver stream is. Null, the legacy default stream, is nobody's.
pub(super) fn native(raw: *mut c_void, ctx: frt_ctx, stream: StreamId) -> *mut c_void {
    if !raw.is_null() {
        lock(&NATIVE).insert(raw.addr(), (ctx.addr(), stream));
    }
    raw
}

/// Forgets the driver streams of a context that goes.
pub(super) fn forget_native(ctx: frt_ctx) {
    lock(&NATIVE).retain(|_, (of, _)| *of != ctx.addr());
}

/// The stream that C means by `stream`.
///
/// # Safety
/// Nobody destroys its context meanwhile.
pub(super) unsafe fn find(call: &str, stream: *mut c_void) -> Result<StreamObject, Failure> {
    // SAFETY: the reference goes at once.
    if let Some(object) = unsafe { get::<StreamObject>(stream) } {
        return Ok(object.clone());
    }
    let found = lock(&NATIVE).get(&stream.addr()).copied();
    if let Some((ctx, id)) = found {
        let ctx: frt_ctx = std::ptr::without_provenance_mut(ctx);
        // SAFETY: the caller's promise.
        let exec = unsafe { context::exec(call, ctx) }?;
        return Ok(StreamObject {
            context: ctx,
            exec,
            stream: id,
        });
    }
    Err(Failure::invalid(
        call,
        format_args!(
            "stream: expected what a record callback got or frt_stream_handle gave, got {stream:p}"
        ),
    ))
}
