//! Buffers and the commands on them.

use super::context::{self, Child, ContextObject};
use super::host_function::unrecorded;
use super::{failed, foreign_code, frt_buffer, frt_ctx, name, stream_id};
use crate::handles::{need, Object};
use crate::status::Failure;
use flashrt_exec::{Buffer, Context, Error, Recorder, Slice, Space, StreamId};
use std::ffi::{c_char, c_int, c_void, CString};

pub(super) struct BufferObject {
    context: frt_ctx,
    pub(super) buffer: Buffer,
    /// As C gave it, which need not be UTF-8.
    name: CString,
}

// SAFETY: 4 is this type's number alone.
unsafe impl Object for BufferObject {
    const KIND: u32 = 4;
    const NAME: &'static str = "buffer";
}

/// # Safety
/// `label` is null or ends in a NUL; nobody destroys the context meanwhile.
pub(super) unsafe fn alloc(
    call: &str,
    ctx: frt_ctx,
    label: *const c_char,
    space: Space,
    bytes: usize,
) -> Result<frt_buffer, Failure> {
    // SAFETY: no foreign code runs in here.
    let context = unsafe { need::<ContextObject>(call, ctx.cast()) }?;
    // SAFETY: the caller's promise.
    let name = unsafe { name(label) };
    let buffer = context
        .exec
        .alloc(&name.to_string_lossy(), space, bytes)
        .map_err(|e| failed(call, &e))?;
    give(call, ctx, context, buffer, name)
}

/// # Safety
/// As [`alloc`], and `data` is null or the start of `bytes` bytes that stay valid, and nobody else's, as long as the
/// buffer and what captured it.
pub(super) unsafe fn wrap(
    ctx: frt_ctx,
    label: *const c_char,
    data: *mut c_void,
    bytes: usize,
) -> Result<frt_buffer, Failure> {
    let call = "frt_buffer_wrap";
    // SAFETY: no foreign code runs in here.
    let context = unsafe { need::<ContextObject>(call, ctx.cast()) }?;
    // SAFETY: the caller's promise.
    let name = unsafe { name(label) };
    let text = name.to_string_lossy();
    // SAFETY: the caller's promise.
    let buffer = unsafe { context.exec.wrap(&text, Space::Device, data.cast(), bytes) }
        .map_err(|e| failed(call, &e))?;
    drop(text);
    give(call, ctx, context, buffer, name)
}

fn give(
    call: &str,
    ctx: frt_ctx,
    context: &ContextObject,
    buffer: Buffer,
    name: CString,
) -> Result<frt_buffer, Failure> {
    let object = BufferObject {
        context: ctx,
        buffer,
        name,
    };
    Ok(context.adopt(call, Child::Buffer, object)?.cast())
}

/// # Safety
/// Nobody is in a call with the buffer.
pub(super) unsafe fn free(buf: frt_buffer) -> Result<c_int, Failure> {
    let call = "frt_buffer_free";
    // SAFETY: no foreign code runs in here.
    let context = unsafe { need::<BufferObject>(call, buf.cast()) }?.context;
    foreign_code::refuse_in_host_function(call, context)?;
    context::disown::<BufferObject>(call, Child::Buffer, context, buf.cast())?;
    Ok(0)
}

/// # Safety
/// Nobody destroys the buffer meanwhile.
pub(super) unsafe fn data(buf: frt_buffer) -> Result<*mut c_void, Failure> {
    // SAFETY: no foreign code runs in here.
    let buffer = unsafe { need::<BufferObject>("frt_buffer_dptr", buf.cast()) }?;
    Ok(buffer.buffer.all().as_ptr().cast())
}

/// # Safety
/// Nobody destroys the buffer meanwhile.
pub(super) unsafe fn bytes(buf: frt_buffer) -> Result<usize, Failure> {
    // SAFETY: no foreign code runs in here.
    let buffer = unsafe { need::<BufferObject>("frt_buffer_bytes", buf.cast()) }?;
    Ok(buffer.buffer.bytes())
}

/// # Safety
/// Nobody destroys the buffer while the result is in use.
pub(super) unsafe fn label(buf: frt_buffer) -> Result<*const c_char, Failure> {
    // SAFETY: no foreign code runs in here.
    let buffer = unsafe { need::<BufferObject>("frt_buffer_name", buf.cast()) }?;
    Ok(buffer.name.as_ptr())
}

/// # Safety
/// Nobody destroys the buffer meanwhile.
pub(super) unsafe fn space(buf: frt_buffer) -> Result<c_int, Failure> {
    // SAFETY: no foreign code runs in here.
    let buffer = unsafe { need::<BufferObject>("frt_buffer_space", buf.cast()) }?;
    Ok(match buffer.buffer.space() {
        Space::Device => super::FRT_SPACE_DEVICE,
        Space::Host => super::FRT_SPACE_HOST,
    })
}

/// A window on a buffer of `ctx`.
///
/// # Safety
/// Nobody destroys the buffer meanwhile.
unsafe fn window(
    call: &str,
    ctx: frt_ctx,
    buf: frt_buffer,
    offset: usize,
    bytes: usize,
) -> Result<Slice, Failure> {
    // SAFETY: the reference goes at once.
    let object = unsafe { need::<BufferObject>(call, buf.cast()) }?;
    let window = object
        .buffer
        .slice(offset, bytes)
        .map_err(|e| failed(call, &e))?;
    if object.context != ctx {
        let error = Error::ForeignContext {
            what: "buffer",
            name: object.buffer.name().into(),
        };
        return Err(failed(call, &error));
    }
    Ok(window)
}

/// Refuses two pieces of memory that share bytes.
fn apart(call: &str, a: *const u8, b: *const u8, bytes: usize) -> Result<(), Failure> {
    if a.addr().abs_diff(b.addr()) < bytes {
        return Err(Failure::invalid(
            call,
            format_args!("source and destination share bytes: {bytes} bytes at {b:p} and at {a:p}"),
        ));
    }
    Ok(())
}

/// Records on the capture that this thread makes on `ctx`, or submits.
fn command(
    call: &str,
    ctx: frt_ctx,
    stream: StreamId,
    record: impl FnOnce(&mut Recorder<'_>) -> Result<(), Error>,
    submit: impl FnOnce() -> Result<(), Error>,
) -> Result<c_int, Failure> {
    match foreign_code::recorder(ctx) {
        Some(recorder) if stream == StreamId(0) => {
            // SAFETY: the capture that this thread is inside of lent it out, and nothing uses it but the calls of
            // its callback, one at a time.
            record(unsafe { &mut *recorder }).map_err(|e| unrecorded(call, &e))?;
        }
        _ => submit().map_err(|e| failed(call, &e))?,
    }
    Ok(0)
}

/// # Safety
/// Nobody destroys the context or the buffers meanwhile.
pub(super) unsafe fn copy(
    ctx: frt_ctx,
    dst: frt_buffer,
    dst_offset: usize,
    src: frt_buffer,
    src_offset: usize,
    bytes: usize,
    stream: c_int,
) -> Result<c_int, Failure> {
    let call = "frt_buffer_copy";
    // SAFETY: the caller's promise.
    let exec = unsafe { context::exec(call, ctx) }?;
    // SAFETY: the caller's promise.
    let to = unsafe { window(call, ctx, dst, dst_offset, bytes) }?;
    // SAFETY: the caller's promise.
    let from = unsafe { window(call, ctx, src, src_offset, bytes) }?;
    let stream = stream_id(call, &exec, stream)?;
    apart(call, to.as_ptr(), from.as_ptr(), bytes)?;
    command(
        call,
        ctx,
        stream,
        |r| r.copy(&to, &from),
        || exec.copy(&to, &from, stream),
    )
}

/// # Safety
/// Nobody destroys the context or the buffer meanwhile.
pub(super) unsafe fn fill(
    ctx: frt_ctx,
    dst: frt_buffer,
    offset: usize,
    value: c_int,
    bytes: usize,
    stream: c_int,
) -> Result<c_int, Failure> {
    let call = "frt_buffer_fill";
    // SAFETY: the caller's promise.
    let exec = unsafe { context::exec(call, ctx) }?;
    // SAFETY: the caller's promise.
    let to = unsafe { window(call, ctx, dst, offset, bytes) }?;
    let stream = stream_id(call, &exec, stream)?;
    let value = value as u8;
    command(
        call,
        ctx,
        stream,
        |r| r.fill(&to, value),
        || exec.fill(&to, value, stream),
    )
}

/// The parts that upload and download share: all checks, and the stream's earlier work.
///
/// # Safety
/// Nobody destroys the context or the buffer meanwhile.
unsafe fn transfer(
    call: &str,
    ctx: frt_ctx,
    (buffer, offset): (frt_buffer, usize),
    memory: *const u8,
    bytes: usize,
    stream: c_int,
) -> Result<(Context, Slice), Failure> {
    // SAFETY: the caller's promise.
    let exec = unsafe { context::exec(call, ctx) }?;
    // SAFETY: the caller's promise.
    let window = unsafe { window(call, ctx, buffer, offset, bytes) }?;
    if memory.is_null() && bytes > 0 {
        return Err(Failure::invalid(
            call,
            format_args!("host memory: expected {bytes} bytes, got null"),
        ));
    }
    let stream = stream_id(call, &exec, stream)?;
    // A device address never is one of the host's; where the device is the host, it may be.
    if bytes > 0 {
        apart(call, window.as_ptr(), memory, bytes)?;
    }
    exec.synchronize(stream).map_err(|e| failed(call, &e))?;
    Ok((exec, window))
}

/// # Safety
/// `data` is null or `bytes` readable bytes, which nobody writes meanwhile. Nobody destroys the context or the buffer.
pub(super) unsafe fn upload(
    ctx: frt_ctx,
    dst: frt_buffer,
    offset: usize,
    data: *const c_void,
    bytes: usize,
    stream: c_int,
) -> Result<c_int, Failure> {
    let call = "frt_buffer_upload";
    let data = data.cast::<u8>();
    // SAFETY: the caller's promise.
    let (exec, to) = unsafe { transfer(call, ctx, (dst, offset), data, bytes, stream) }?;
    if bytes > 0 {
        // SAFETY: not null, since it passed; the caller promises `bytes` readable bytes, no more than a buffer has.
        let data = unsafe { std::slice::from_raw_parts(data, bytes) };
        exec.upload(&to, data).map_err(|e| failed(call, &e))?;
    }
    Ok(0)
}

/// # Safety
/// `out` is null or `bytes` writable bytes, which nobody else uses meanwhile. Nobody destroys the context or the buffer.
pub(super) unsafe fn download(
    ctx: frt_ctx,
    src: frt_buffer,
    offset: usize,
    out: *mut c_void,
    bytes: usize,
    stream: c_int,
) -> Result<c_int, Failure> {
    let call = "frt_buffer_download";
    let out = out.cast::<u8>();
    // SAFETY: the caller's promise.
    let (exec, from) = unsafe { transfer(call, ctx, (src, offset), out, bytes, stream) }?;
    if bytes > 0 {
        // SAFETY: as in `upload`, for writing; what the bytes hold before does not matter.
        let out = unsafe { std::slice::from_raw_parts_mut(out, bytes) };
        exec.download(&from, out).map_err(|e| failed(call, &e))?;
    }
    Ok(0)
}
