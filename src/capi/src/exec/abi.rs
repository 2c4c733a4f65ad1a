//! `flashrt/exec.h`: the functions and types of the execution contract.
//!
//! # Safety
//!
//! For every function here. A handle may be anything: only live handles of the right kind are used, others are refused.
//! Names are null or end in a NUL. Other pointers are null or point to as many bytes as the call says. One context has
//! one driving thread at a time: the caller serialises the calls on a context and on the objects of it.
#![allow(non_camel_case_types)]
#![allow(clippy::missing_safety_doc)] // once for all, above

use super::{buffer, context, event, graph, host_function, plan, stream};
use crate::status::{guard, pointer, status, FRT_ERR_BACKEND};
use flashrt_exec::Space;
use std::ffi::{c_char, c_int, c_void};

pub use flashrt_runtime::abi::{frt_buffer, frt_ctx, frt_graph, frt_shape_key};

/// What a [`frt_plan`] points to. Never read on either side.
#[repr(C)]
pub struct frt_plan_s {
    _private: [u8; 0],
}
/// Handle of a plan.
pub type frt_plan = *mut frt_plan_s;

/// What a [`frt_event`] points to. Never read on either side.
#[repr(C)]
pub struct frt_event_s {
    _private: [u8; 0],
}
/// Handle of an event.
pub type frt_event = *mut frt_event_s;

/// Key of a plan node that takes the key of each execution. An ordinary key everywhere else.
pub const FRT_KEY_INHERIT: frt_shape_key = 0xffff_ffff_ffff_ffff;

/// Backend: host memory, host threads.
pub const FRT_BACKEND_CPU: c_int = 0;
/// Backend: an NVIDIA GPU.
pub const FRT_BACKEND_CUDA: c_int = 1;

/// Space of a buffer: memory of the device that runs the graphs.
pub const FRT_SPACE_DEVICE: c_int = 0;
/// Space of a buffer: memory that the host may touch directly (CUDA: page-locked).
pub const FRT_SPACE_HOST: c_int = 1;

/// A number on success, `on_failure` otherwise.
fn or<T>(on_failure: T, f: impl FnOnce() -> Result<T, crate::status::Failure>) -> T {
    guard(FRT_ERR_BACKEND, |_| on_failure, f)
}

/// Version of the library, such as "0.1.0". Any thread; valid for ever.
#[no_mangle]
pub extern "C" fn frt_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

// ---- contexts and streams ----

/// A new context with stream 0. Null on failure.
///
/// The environment decides: FLASHRT_BACKEND is cpu or cuda (unset: cuda if the device opens, otherwise cpu),
/// FLASHRT_DEVICE is the ordinal of the GPU (unset: 0), FLASHRT_THREADS the number of host threads that run CPU work
/// (unset or 0: one for each core). Another value is a failure.
#[no_mangle]
pub unsafe extern "C" fn frt_ctx_create() -> frt_ctx {
    pointer(context::create)
}

/// A new context with stream 0 on the backend FRT_BACKEND_CPU or FRT_BACKEND_CUDA. Null on failure. `ordinal` is that of
/// the GPU and counts for nothing on the CPU; FLASHRT_THREADS counts as in frt_ctx_create.
#[no_mangle]
pub unsafe extern "C" fn frt_ctx_create_with(kind: c_int, ordinal: c_int) -> frt_ctx {
    pointer(|| context::create_with(kind, ordinal))
}

/// Destroys the context and all that belongs to it: plans, graphs, buffers, events, streams, in this order. What was
/// adopted or wrapped is left alone. Submitted work that nobody waited for may be dropped. All handles of these objects
/// are dead from now on. Null does nothing; a call from inside a callback of the context is refused.
#[no_mangle]
pub unsafe extern "C" fn frt_ctx_destroy(ctx: frt_ctx) {
    // SAFETY: see the module.
    or((), || unsafe { context::destroy(ctx) })
}

/// FRT_BACKEND_CPU or FRT_BACKEND_CUDA; FRT_ERR_INVALID for a bad handle.
#[no_mangle]
pub unsafe extern "C" fn frt_ctx_backend(ctx: frt_ctx) -> c_int {
    // SAFETY: see the module.
    status(|| unsafe { context::backend(ctx) })
}

/// A new stream; returns its id, counting from 1. More negative is more urgent; clamped to the range of the device.
#[no_mangle]
pub unsafe extern "C" fn frt_ctx_stream(ctx: frt_ctx, priority: c_int) -> c_int {
    // SAFETY: see the module.
    status(|| unsafe { stream::create(ctx, priority) })
}

/// An id for a stream of the caller, which is never destroyed here. CUDA: a CUstream that outlives the context; null is
/// the legacy default stream. CPU: a new queue, whatever is passed.
#[no_mangle]
pub unsafe extern "C" fn frt_ctx_wrap_stream(ctx: frt_ctx, stream: *mut c_void) -> c_int {
    // SAFETY: see the module.
    status(|| unsafe { stream::wrap(ctx, stream) })
}

/// Runs all work of the stream; FRT_ERR_BACKEND if some of it failed.
#[no_mangle]
pub unsafe extern "C" fn frt_stream_sync(ctx: frt_ctx, stream_id: c_int) -> c_int {
    // SAFETY: see the module.
    status(|| unsafe { stream::sync(ctx, stream_id) })
}

/// The stream itself, as record callbacks get it. CUDA: the CUstream (null for the legacy default stream). CPU: something
/// that only frt_stream_host_func understands. Null on failure.
#[no_mangle]
pub unsafe extern "C" fn frt_stream_handle(ctx: frt_ctx, stream_id: c_int) -> *mut c_void {
    // SAFETY: see the module.
    pointer(|| unsafe { stream::handle("frt_stream_handle", ctx, stream_id) })
}

/// Puts a host function on a stream: what a record callback got (then it is recorded, and each replay calls it), or what
/// frt_stream_handle gave (then it is submitted, and called once).
///
/// It is called between the operations before and after it, on some thread of the library or of the caller. It must not
/// use its context: such calls are refused. A Rust panic out of it is told by the next synchronise; a C++ exception must
/// not leave it.
#[no_mangle]
pub unsafe extern "C" fn frt_stream_host_func(
    stream: *mut c_void,
    function: Option<unsafe extern "C" fn(user: *mut c_void)>,
    user: *mut c_void,
) -> c_int {
    // SAFETY: see the module.
    status(|| unsafe { host_function::enqueue(stream, function, user) })
}

// ---- events ----

/// A new event, recorded nowhere yet. It belongs to the context. Null on failure.
#[no_mangle]
pub unsafe extern "C" fn frt_ctx_event(ctx: frt_ctx) -> frt_event {
    // SAFETY: see the module.
    pointer(|| unsafe { event::create(ctx) })
}

/// Destroys an event. Null does nothing.
#[no_mangle]
pub unsafe extern "C" fn frt_event_destroy(ev: frt_event) {
    // SAFETY: see the module.
    or((), || unsafe { event::destroy(ev) })
}

/// Marks all work that the stream was given so far.
#[no_mangle]
pub unsafe extern "C" fn frt_event_record(ev: frt_event, stream_id: c_int) -> c_int {
    // SAFETY: see the module.
    status(|| unsafe { event::record(ev, stream_id) })
}

/// Makes later work of the stream run after the mark of an event of the same context. One that was never recorded holds
/// nothing up.
#[no_mangle]
pub unsafe extern "C" fn frt_stream_wait(ctx: frt_ctx, stream_id: c_int, ev: frt_event) -> c_int {
    // SAFETY: see the module.
    status(|| unsafe { event::wait(ctx, stream_id, ev) })
}

/// 0 when all work before the mark is done (or the event was never recorded), 1 while it is not, or a negative status.
/// Never blocks: on the CPU one call runs at most one submitted item.
#[no_mangle]
pub unsafe extern "C" fn frt_event_query(ev: frt_event) -> c_int {
    // SAFETY: see the module.
    status(|| unsafe { event::query(ev) })
}

/// Runs all work before the mark.
#[no_mangle]
pub unsafe extern "C" fn frt_event_sync(ev: frt_event) -> c_int {
    // SAFETY: see the module.
    status(|| unsafe { event::sync(ev) })
}

// ---- buffers ----

/// A new buffer of `bytes` device bytes, all zero, 64-byte aligned. It belongs to the context. The name is copied, null is
/// the empty one. Null for 0 bytes and on failure.
#[no_mangle]
pub unsafe extern "C" fn frt_buffer_alloc(
    ctx: frt_ctx,
    name: *const c_char,
    bytes: usize,
) -> frt_buffer {
    let call = "frt_buffer_alloc";
    // SAFETY: see the module.
    pointer(|| unsafe { buffer::alloc(call, ctx, name, Space::Device, bytes) })
}

/// As frt_buffer_alloc, in memory that the host may touch at frt_buffer_dptr while no work on it is submitted.
#[no_mangle]
pub unsafe extern "C" fn frt_buffer_alloc_host(
    ctx: frt_ctx,
    name: *const c_char,
    bytes: usize,
) -> frt_buffer {
    let call = "frt_buffer_alloc_host";
    // SAFETY: see the module.
    pointer(|| unsafe { buffer::alloc(call, ctx, name, Space::Host, bytes) })
}

/// A buffer over `bytes` device bytes of the caller (CPU: any memory), which are never freed here and stay valid as long
/// as the buffer and what captured it. 0 bytes are legal, a null address is not.
#[no_mangle]
pub unsafe extern "C" fn frt_buffer_wrap(
    ctx: frt_ctx,
    name: *const c_char,
    dptr: *mut c_void,
    bytes: usize,
) -> frt_buffer {
    // SAFETY: see the module.
    pointer(|| unsafe { buffer::wrap(ctx, name, dptr, bytes) })
}

/// Destroys a buffer before its context goes. Its memory is freed when no captured variant and no submitted work of
/// frt_buffer_copy, _fill holds it; other work on its address is the caller's care.
#[no_mangle]
pub unsafe extern "C" fn frt_buffer_free(buf: frt_buffer) -> c_int {
    // SAFETY: see the module.
    status(|| unsafe { buffer::free(buf) })
}

/// Address of the first byte, the same for the buffer's life. Null for a bad handle.
#[no_mangle]
pub unsafe extern "C" fn frt_buffer_dptr(buf: frt_buffer) -> *mut c_void {
    // SAFETY: see the module.
    pointer(|| unsafe { buffer::data(buf) })
}

/// Length in bytes. 0 for a bad handle.
#[no_mangle]
pub unsafe extern "C" fn frt_buffer_bytes(buf: frt_buffer) -> usize {
    // SAFETY: see the module.
    or(0, || unsafe { buffer::bytes(buf) })
}

/// The name, byte for byte as it was given; the buffer owns it. "" for a bad handle.
#[no_mangle]
pub unsafe extern "C" fn frt_buffer_name(buf: frt_buffer) -> *const c_char {
    // SAFETY: see the module.
    or(c"".as_ptr(), || unsafe { buffer::label(buf) })
}

/// FRT_SPACE_DEVICE or FRT_SPACE_HOST.
#[no_mangle]
pub unsafe extern "C" fn frt_buffer_space(buf: frt_buffer) -> c_int {
    // SAFETY: see the module.
    status(|| unsafe { buffer::space(buf) })
}

/// Submits a copy of `bytes` bytes between two buffers of the context, of either space. The bytes must not overlap. In a
/// record callback, on stream 0, the copy is recorded.
#[no_mangle]
pub unsafe extern "C" fn frt_buffer_copy(
    ctx: frt_ctx,
    dst: frt_buffer,
    dst_offset: usize,
    src: frt_buffer,
    src_offset: usize,
    bytes: usize,
    stream_id: c_int,
) -> c_int {
    // SAFETY: see the module.
    status(|| unsafe { buffer::copy(ctx, dst, dst_offset, src, src_offset, bytes, stream_id) })
}

/// Submits setting `bytes` bytes to the low 8 bits of `value`. In a record callback, on stream 0, it is recorded.
#[no_mangle]
pub unsafe extern "C" fn frt_buffer_fill(
    ctx: frt_ctx,
    dst: frt_buffer,
    offset: usize,
    value: c_int,
    bytes: usize,
    stream_id: c_int,
) -> c_int {
    // SAFETY: see the module.
    status(|| unsafe { buffer::fill(ctx, dst, offset, value, bytes, stream_id) })
}

/// Copies `bytes` bytes of the host into a buffer, after all earlier work of the stream; complete on return. For set-up
/// and tests: it may wait for other streams too.
#[no_mangle]
pub unsafe extern "C" fn frt_buffer_upload(
    ctx: frt_ctx,
    dst: frt_buffer,
    offset: usize,
    src: *const c_void,
    bytes: usize,
    stream_id: c_int,
) -> c_int {
    // SAFETY: see the module.
    status(|| unsafe { buffer::upload(ctx, dst, offset, src, bytes, stream_id) })
}

/// Copies `bytes` bytes of a buffer to the host, after all earlier work of the stream; complete on return. For set-up and
/// tests: it may wait for other streams too.
#[no_mangle]
pub unsafe extern "C" fn frt_buffer_download(
    ctx: frt_ctx,
    src: frt_buffer,
    offset: usize,
    dst: *mut c_void,
    bytes: usize,
    stream_id: c_int,
) -> c_int {
    // SAFETY: see the module.
    status(|| unsafe { buffer::download(ctx, src, offset, dst, bytes, stream_id) })
}

// ---- graphs ----

/// A new graph without variants. It keeps at most `max_variants` (0: any number) and then evicts the least recently
/// captured, adopted or replayed one. It belongs to the context. Null on failure.
#[no_mangle]
pub unsafe extern "C" fn frt_graph_create(
    ctx: frt_ctx,
    name: *const c_char,
    max_variants: usize,
) -> frt_graph {
    // SAFETY: see the module.
    pointer(|| unsafe { graph::create(ctx, name, max_variants) })
}

/// Destroys a graph with its own executables; adopted ones are left alone. Null does nothing; refused while the graph is
/// being recorded.
#[no_mangle]
pub unsafe extern "C" fn frt_graph_destroy(g: frt_graph) {
    // SAFETY: see the module.
    or((), || unsafe { graph::destroy(g) })
}

/// Calls `record(user, stream)` once and stores what it recorded on `stream` under `key`, as the most recent variant.
/// Nothing of it runs now. Recording nothing is legal. FRT_ERR_CAPTURE on failure, a Rust panic out of the callback
/// included; then the table is as it was. A C++ exception must not leave the callback.
///
/// CUDA: `stream` is the CUstream being captured. CPU: frt_stream_host_func takes it. While it records, frt_buffer_copy and
/// frt_buffer_fill on stream 0 are recorded, and every other command to the context is refused.
#[no_mangle]
pub unsafe extern "C" fn frt_graph_capture(
    g: frt_graph,
    key: frt_shape_key,
    record: Option<unsafe extern "C" fn(user: *mut c_void, stream: *mut c_void)>,
    user: *mut c_void,
) -> c_int {
    // SAFETY: see the module.
    status(|| unsafe { graph::capture(g, key, record, user) })
}

/// Stores an executable of somebody else under `key`, as the most recent variant; it is never destroyed here. CUDA: a
/// CUgraphExec that stays valid as long as it is in the graph. CPU: what frt_graph_executable gave, of a variant that is
/// still there. One of frt_graph_executable is shared, so its first owner may go.
#[no_mangle]
pub unsafe extern "C" fn frt_graph_adopt(
    g: frt_graph,
    key: frt_shape_key,
    exec: *mut c_void,
) -> c_int {
    // SAFETY: see the module.
    status(|| unsafe { graph::adopt(g, key, exec) })
}

/// The executable under `key`, for frt_graph_adopt. Does not count as a use. Null on failure.
#[no_mangle]
pub unsafe extern "C" fn frt_graph_executable(g: frt_graph, key: frt_shape_key) -> *mut c_void {
    // SAFETY: see the module.
    pointer(|| unsafe { graph::executable(g, key) })
}

/// Notes which buffer of the same context a port is; the last note wins. Captured work keeps the memory that it was
/// captured with.
#[no_mangle]
pub unsafe extern "C" fn frt_graph_bind(
    g: frt_graph,
    port: *const c_char,
    buf: frt_buffer,
) -> c_int {
    // SAFETY: see the module.
    status(|| unsafe { graph::bind(g, port, buf) })
}

/// Submits the variant under `key` to a stream. FRT_ERR_NO_VARIANT comes before FRT_ERR_INVALID for the stream. Takes no
/// memory.
#[no_mangle]
pub unsafe extern "C" fn frt_graph_replay(
    g: frt_graph,
    key: frt_shape_key,
    stream_id: c_int,
) -> c_int {
    // SAFETY: see the module.
    status(|| unsafe { graph::replay(g, key, stream_id) })
}

/// 1 if there is a variant under `key`, 0 if not, or for a bad handle. Does not count as a use.
#[no_mangle]
pub unsafe extern "C" fn frt_graph_has_variant(g: frt_graph, key: frt_shape_key) -> c_int {
    // SAFETY: see the module.
    or(0, || unsafe { graph::has_variant(g, key) })
}

/// Removes the variant under `key`. Only while no replay of it is under way.
#[no_mangle]
pub unsafe extern "C" fn frt_graph_evict(g: frt_graph, key: frt_shape_key) -> c_int {
    // SAFETY: see the module.
    status(|| unsafe { graph::evict(g, Some(key)) })
}

/// Removes the least recent variant. Only while no replay of it is under way.
#[no_mangle]
pub unsafe extern "C" fn frt_graph_evict_lru(g: frt_graph) -> c_int {
    // SAFETY: see the module.
    status(|| unsafe { graph::evict(g, None) })
}

/// Number of variants. 0 for a bad handle.
#[no_mangle]
pub unsafe extern "C" fn frt_graph_variant_count(g: frt_graph) -> usize {
    // SAFETY: see the module.
    or(0, || unsafe { graph::variant_count(g) })
}

// ---- plans ----

/// A new plan without nodes. It belongs to the context. Null on failure.
#[no_mangle]
pub unsafe extern "C" fn frt_plan_create(ctx: frt_ctx) -> frt_plan {
    // SAFETY: see the module.
    pointer(|| unsafe { plan::create(ctx) })
}

/// Destroys a plan. Null does nothing.
#[no_mangle]
pub unsafe extern "C" fn frt_plan_destroy(p: frt_plan) {
    // SAFETY: see the module.
    or((), || unsafe { plan::destroy(p) })
}

/// Adds a replay and returns its node number, counting from 0. With FRT_KEY_INHERIT it replays the key of each execution.
/// The variant need not exist yet.
#[no_mangle]
pub unsafe extern "C" fn frt_plan_add(
    p: frt_plan,
    g: frt_graph,
    key: frt_shape_key,
    stream_id: c_int,
) -> c_int {
    // SAFETY: see the module.
    status(|| unsafe { plan::add(p, g, key, stream_id) })
}

/// Makes a node wait for another one. An edge to a later node is taken and orders nothing.
#[no_mangle]
pub unsafe extern "C" fn frt_plan_after(p: frt_plan, node: c_int, dep: c_int) -> c_int {
    // SAFETY: see the module.
    status(|| unsafe { plan::after(p, node, dep) })
}

/// FRT_ERR_INVALID if a node is after a later one, which orders nothing.
#[no_mangle]
pub unsafe extern "C" fn frt_plan_validate(p: frt_plan) -> c_int {
    // SAFETY: see the module.
    status(|| unsafe { plan::validate(p) })
}

/// Submits all nodes in the order in which they were added; an empty plan succeeds. Ends with the status of the first
/// replay that fails: what was submitted before stays so. Takes no memory.
#[no_mangle]
pub unsafe extern "C" fn frt_plan_execute(p: frt_plan, key: frt_shape_key) -> c_int {
    // SAFETY: see the module.
    status(|| unsafe { plan::execute(p, key) })
}

/// Runs all work of each stream that the plan uses. 0, or FRT_ERR_BACKEND if some of the work failed.
#[no_mangle]
pub unsafe extern "C" fn frt_plan_sync(p: frt_plan) -> c_int {
    // SAFETY: see the module.
    status(|| unsafe { plan::sync(p) })
}
