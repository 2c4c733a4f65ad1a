//! What the tests of the execution contract share. They call the exported functions as C does.
#![allow(dead_code)]

use flashrt_capi::*;
use std::ffi::{c_int, c_void, CStr};
use std::ptr::null_mut;

/// Runs `test` with a context of each backend that this machine has.
pub fn on_each_backend(test: impl Fn(frt_ctx)) {
    // SAFETY: as for C, here and in all tests: handles are live or checked, pointers are of live memory.
    unsafe {
        let cpu = frt_ctx_create_with(FRT_BACKEND_CPU, 0);
        assert!(!cpu.is_null(), "{}", last());
        test(cpu);
        frt_ctx_destroy(cpu);
        if cfg!(miri) {
            return;
        }
        let cuda = frt_ctx_create_with(FRT_BACKEND_CUDA, 0);
        if cuda.is_null() {
            println!("skipped on cuda: {}", last());
        } else {
            println!("on cuda too");
            test(cuda);
            frt_ctx_destroy(cuda);
        }
    }
}

pub fn cpu() -> frt_ctx {
    // SAFETY: as above.
    let ctx = unsafe { frt_ctx_create_with(FRT_BACKEND_CPU, 0) };
    assert!(!ctx.is_null(), "{}", last());
    ctx
}

/// The text of the last failure on this thread.
pub fn last() -> String {
    // SAFETY: never null, and read before the next call.
    unsafe { CStr::from_ptr(frt_last_error()) }
        .to_string_lossy()
        .into_owned()
}

/// Checks a status, showing the text when it is another one.
#[track_caller]
pub fn expect(status: c_int, expected: c_int) {
    assert_eq!(status, expected, "last text: {}", last());
}

pub fn buffer(ctx: frt_ctx, bytes: usize) -> frt_buffer {
    // SAFETY: as above.
    let buffer = unsafe { frt_buffer_alloc(ctx, c"buffer".as_ptr(), bytes) };
    assert!(!buffer.is_null(), "{}", last());
    buffer
}

pub fn graph(ctx: frt_ctx, max_variants: usize) -> frt_graph {
    // SAFETY: as above.
    let graph = unsafe { frt_graph_create(ctx, c"graph".as_ptr(), max_variants) };
    assert!(!graph.is_null(), "{}", last());
    graph
}

/// A record callback over a closure.
pub unsafe extern "C" fn call_record<F: FnMut(*mut c_void)>(
    user: *mut c_void,
    stream: *mut c_void,
) {
    // SAFETY: `capture` passes a closure of this type.
    unsafe { (*user.cast::<F>())(stream) }
}

/// Captures what `record` does.
pub fn capture<F: FnMut(*mut c_void)>(g: frt_graph, key: u64, mut record: F) -> c_int {
    // SAFETY: the closure lives during the call, which alone uses it.
    unsafe { frt_graph_capture(g, key, Some(call_record::<F>), (&raw mut record).cast()) }
}

/// Captures setting all of `buffer` to `value`.
#[track_caller]
pub fn capture_fill(ctx: frt_ctx, g: frt_graph, key: u64, buffer: frt_buffer, value: u8) {
    // SAFETY: as above.
    let status = capture(g, key, |_| unsafe {
        let bytes = frt_buffer_bytes(buffer);
        expect(
            frt_buffer_fill(ctx, buffer, 0, value.into(), bytes, 0),
            FRT_OK,
        );
    });
    expect(status, FRT_OK);
}

/// A host function over a closure that is never freed.
pub unsafe extern "C" fn call_host<F: Fn()>(user: *mut c_void) {
    // SAFETY: `host_func` passes a closure of this type.
    unsafe { (*user.cast::<F>())() }
}

/// Puts `function` on a stream.
pub fn host_func<F: Fn() + 'static>(stream: *mut c_void, function: F) -> c_int {
    let user = Box::into_raw(Box::new(function)).cast();
    // SAFETY: the closure is never freed.
    unsafe { frt_stream_host_func(stream, Some(call_host::<F>), user) }
}

pub fn write(ctx: frt_ctx, buffer: frt_buffer, bytes: &[u8]) {
    // SAFETY: as above.
    unsafe {
        let (data, len) = (bytes.as_ptr().cast(), bytes.len());
        expect(frt_buffer_upload(ctx, buffer, 0, data, len, 0), FRT_OK);
    }
}

/// All bytes of a buffer, after the work of stream 0.
pub fn read(ctx: frt_ctx, buffer: frt_buffer) -> Vec<u8> {
    // SAFETY: as above.
    unsafe {
        let mut bytes = vec![0xee; frt_buffer_bytes(buffer)];
        let (data, len) = (bytes.as_mut_ptr().cast(), bytes.len());
        expect(frt_buffer_download(ctx, buffer, 0, data, len, 0), FRT_OK);
        bytes
    }
}

pub const NO_CTX: frt_ctx = null_mut();
pub const NO_BUFFER: frt_buffer = null_mut();
pub const NO_GRAPH: frt_graph = null_mut();
pub const NO_EVENT: frt_event = null_mut();
pub const NO_PLAN: frt_plan = null_mut();
