//! Types, numbers and functions of `capsule/capsule.h`, version 1, for LP64 targets.
//!
//! The functions only guard the boundary; the work is done beside this file.
#![allow(non_camel_case_types)]

use super::call::{pointer, run, status};
use super::{context, drive, frt, load, state};
use flashrt_runtime::abi::frt_ctx_s;
use std::ffi::{c_char, c_int, c_void};

#[cfg(not(target_pointer_width = "64"))]
compile_error!("the published layouts are those of 64-bit targets");

/// Version of this interface.
pub const CAP_ABI_VERSION: u32 = 1;

macro_rules! opaque {
    ($(#[$m:meta])* $alias:ident, $tag:ident) => {
        /// What the handle of that name points to. Never read on this side.
        #[repr(C)]
        pub struct $tag {
            _private: [u8; 0],
        }
        $(#[$m])*
        pub type $alias = *mut $tag;
    };
}

opaque! {
    /// Handle of a context: one backend, one thread at a time.
    cap_ctx, cap_ctx_s
}
opaque! {
    /// Handle of a capsule: frozen bytes of named regions.
    cap_capsule, cap_capsule_s
}
opaque! {
    /// Memory of a backend. Only its backend knows what it points to.
    cap_buffer, cap_buffer_s
}
opaque! {
    /// Replayable work of a backend.
    cap_graph, cap_graph_s
}
opaque! {
    /// Event of a backend.
    cap_event, cap_event_s
}

/// Key of a graph variant.
pub type cap_shape_key = u64;

/// Where a buffer lies.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum cap_space {
    /// Memory of the device.
    CAP_DEV = 0,
    /// Memory of the host.
    CAP_HOST = 1,
}

/// Where a capsule keeps its bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum cap_tier {
    /// Device memory.
    CAP_TIER_GPU = 0,
    /// Host memory.
    CAP_TIER_HOST = 1,
    /// Reserved; the same as host memory.
    CAP_TIER_DISK = 2,
}

/// When a stage fires.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum cap_trigger {
    /// In `cap_drive_tick`, by its cadence.
    CAP_EVERY = 0,
    /// By `cap_fire` alone.
    CAP_ON_EVENT = 1,
    /// By `cap_fire` alone.
    CAP_ON_DEMAND = 2,
}

/// How a call ended.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum cap_status {
    /// Done.
    CAP_OK = 0,
    /// Something inside the library broke.
    CAP_ERR = -1,
    /// Made under another fingerprint than the backend has.
    CAP_ERR_FINGERPRINT = -2,
    /// A null, misaligned, dead or foreign argument, or a window outside its buffer.
    CAP_ERR_ARG = -3,
    /// No memory.
    CAP_ERR_NOMEM = -4,
    /// A function of the backend failed.
    CAP_ERR_BACKEND = -5,
    /// Another version of the interface or of the blob.
    CAP_ERR_VERSION = -6,
    /// Bytes that are no whole blob.
    CAP_ERR_FORMAT = -7,
}

/// Checks the size of a struct and the offset of each of its fields while compiling.
macro_rules! layout {
    ($type:ty, $size:literal; $($field:ident $offset:literal),+ $(,)?) => {
        const _: () = assert!(std::mem::size_of::<$type>() == $size);
        const _: () = assert!(std::mem::align_of::<$type>() == 8);
        $(const _: () = assert!(std::mem::offset_of!($type, $field) == $offset);)+
    };
}

/// A window on a buffer.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cap_region {
    /// Buffer.
    pub buf: cap_buffer,
    /// First byte.
    pub off: usize,
    /// Bytes; 0 is legal.
    pub bytes: usize,
}
layout!(cap_region, 24; buf 0, off 8, bytes 16);

/// What a snapshot freezes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cap_boundary {
    /// Regions; their order is what a later restore goes by.
    pub regions: *const cap_region,
    /// Entries of `regions`, 0 to 1048576.
    pub n_regions: c_int,
    /// Bytes that travel with the capsule and are never looked at; null when `meta_len` is 0.
    pub meta: *const c_void,
    /// Bytes at `meta`.
    pub meta_len: usize,
}
layout!(cap_boundary, 32; regions 0, n_regions 8, meta 16, meta_len 24);

/// Bytes of one region of a capsule, where they lie.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cap_region_view {
    /// First byte, in the space of the capsule's tier; null for an empty region.
    pub ptr: *mut c_void,
    /// Bytes.
    pub bytes: usize,
}
layout!(cap_region_view, 16; ptr 0, bytes 8);

/// One graph of a schedule.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cap_stage {
    /// Graph.
    pub graph: cap_graph,
    /// Its variant.
    pub key: cap_shape_key,
    /// Stream that it is replayed on.
    pub stream: c_int,
    /// Hint for the backend; not read here.
    pub priority: c_int,
    /// Due when `clock mod cadence_den < cadence_num`: `1/1` at each tick, `1/4` at every fourth.
    pub cadence_num: c_int,
    /// See `cadence_num`; 0 or less: always due.
    pub cadence_den: c_int,
    /// One of `cap_trigger`.
    pub trigger: c_int,
}
layout!(
    cap_stage, 40;
    graph 0, key 8, stream 16, priority 20, cadence_num 24, cadence_den 28, trigger 32,
);

/// Stages and their order across streams.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cap_schedule {
    /// Stages, in firing order.
    pub stages: *const cap_stage,
    /// Entries of `stages`.
    pub n_stages: c_int,
    /// Pairs `{waiter, dependency}` of indices into `stages`.
    pub deps: *const [c_int; 2],
    /// Entries of `deps`.
    pub n_deps: c_int,
}
layout!(cap_schedule, 32; stages 0, n_stages 8, deps 16, n_deps 24);

/// What a backend supplies. Every function is there and gets `self` first. An `int` result is 0 for success unless said
/// otherwise. Offsets and sizes are bytes.
///
/// cbindgen:field-names=[abi_version, struct_size, self, buffer_alloc, buffer_wrap, buffer_ptr, buffer_bytes, buffer_copy, buffer_upload, buffer_download, buffer_free, graph_replay, graph_has, graph_bind, stream, event, event_record, event_query, stream_wait, sync, event_free, fingerprint]
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cap_backend_s {
    /// `CAP_ABI_VERSION`.
    pub abi_version: u32,
    /// 168.
    pub struct_size: u32,
    /// Passed to every function; valid until the context is destroyed.
    pub self_: *mut c_void,
    /// A new buffer in `space` (one of `cap_space`), null on failure. `bytes` is never 0. The name need not be unique.
    pub buffer_alloc: Option<
        unsafe extern "C" fn(
            self_: *mut c_void,
            name: *const c_char,
            bytes: usize,
            space: c_int,
        ) -> cap_buffer,
    >,
    /// A buffer over memory of the caller. Not called by this library.
    pub buffer_wrap: Option<
        unsafe extern "C" fn(
            self_: *mut c_void,
            name: *const c_char,
            ptr: *mut c_void,
            bytes: usize,
            space: c_int,
        ) -> cap_buffer,
    >,
    /// First byte of a buffer, in its own space.
    pub buffer_ptr:
        Option<unsafe extern "C" fn(self_: *mut c_void, buffer: cap_buffer) -> *mut c_void>,
    /// Bytes of a buffer.
    pub buffer_bytes: Option<unsafe extern "C" fn(self_: *mut c_void, buffer: cap_buffer) -> usize>,
    /// Submits a copy between any two spaces.
    pub buffer_copy: Option<
        unsafe extern "C" fn(
            self_: *mut c_void,
            dst: cap_buffer,
            dst_off: usize,
            src: cap_buffer,
            src_off: usize,
            bytes: usize,
            stream: c_int,
        ) -> c_int,
    >,
    /// Submits a copy from memory of the caller, which stays valid until the stream has run it.
    pub buffer_upload: Option<
        unsafe extern "C" fn(
            self_: *mut c_void,
            dst: cap_buffer,
            off: usize,
            src: *const c_void,
            bytes: usize,
            stream: c_int,
        ) -> c_int,
    >,
    /// Submits a copy to memory of the caller, which stays valid until the stream has run it.
    pub buffer_download: Option<
        unsafe extern "C" fn(
            self_: *mut c_void,
            src: cap_buffer,
            off: usize,
            dst: *mut c_void,
            bytes: usize,
            stream: c_int,
        ) -> c_int,
    >,
    /// Frees a buffer of `buffer_alloc`.
    pub buffer_free: Option<unsafe extern "C" fn(self_: *mut c_void, buffer: cap_buffer)>,
    /// Submits one replay.
    pub graph_replay: Option<
        unsafe extern "C" fn(
            self_: *mut c_void,
            graph: cap_graph,
            key: cap_shape_key,
            stream: c_int,
        ) -> c_int,
    >,
    /// 1 when the graph has the variant, 0 when not.
    pub graph_has: Option<
        unsafe extern "C" fn(self_: *mut c_void, graph: cap_graph, key: cap_shape_key) -> c_int,
    >,
    /// Notes the buffer of a port. Not called by this library.
    pub graph_bind: Option<
        unsafe extern "C" fn(
            self_: *mut c_void,
            graph: cap_graph,
            port: *const c_char,
            buffer: cap_buffer,
        ) -> c_int,
    >,
    /// A new stream, negative on failure. Not called by this library.
    pub stream: Option<unsafe extern "C" fn(self_: *mut c_void, priority: c_int) -> c_int>,
    /// A new event, null on failure.
    pub event: Option<unsafe extern "C" fn(self_: *mut c_void) -> cap_event>,
    /// Marks what was submitted to `stream` so far.
    pub event_record:
        Option<unsafe extern "C" fn(self_: *mut c_void, event: cap_event, stream: c_int) -> c_int>,
    /// 0 when the mark was reached, above 0 when not yet, below 0 for an error. Never waits.
    pub event_query: Option<unsafe extern "C" fn(self_: *mut c_void, event: cap_event) -> c_int>,
    /// Makes what is submitted to `stream` from now on run after the mark of `event`.
    pub stream_wait:
        Option<unsafe extern "C" fn(self_: *mut c_void, stream: c_int, event: cap_event) -> c_int>,
    /// Waits for everything submitted to `stream`.
    pub sync: Option<unsafe extern "C" fn(self_: *mut c_void, stream: c_int) -> c_int>,
    /// Frees an event.
    pub event_free: Option<unsafe extern "C" fn(self_: *mut c_void, event: cap_event)>,
    /// Number of what runs: weights, quantisation, kernels, hardware.
    pub fingerprint: Option<unsafe extern "C" fn(self_: *mut c_void) -> u64>,
}
layout!(
    cap_backend_s, 168;
    abi_version 0, struct_size 4, self_ 8, buffer_alloc 16, buffer_wrap 24, buffer_ptr 32, buffer_bytes 40, buffer_copy 48,
    buffer_upload 56, buffer_download 64, buffer_free 72, graph_replay 80, graph_has 88, graph_bind 96, stream 104, event 112,
    event_record 120, event_query 128, stream_wait 136, sync 144, event_free 152, fingerprint 160,
);

/// What a backend supplies.
pub type cap_backend = cap_backend_s;

/// `CAP_ABI_VERSION` of the library. Any thread.
#[no_mangle]
pub extern "C" fn cap_abi_version() -> u32 {
    CAP_ABI_VERSION
}

/// Why the last failed call on this thread failed; empty if none did. Never null. The same text as `frt_last_error`.
///
/// The text is valid until the next call into the library on this thread. A call that succeeds leaves it as it is.
#[no_mangle]
pub extern "C" fn cap_last_error() -> *const c_char {
    crate::status::frt_last_error()
}

// ---- context -----------------------------------------------------------------------------------------------------------

/// A new context over a copy of `*backend`. Calls no function of it.
///
/// Null unless `abi_version` is 1, `struct_size` is 168 and no function is null. The backend behind `self` outlives the
/// context. One thread at a time uses a context and its capsules.
///
/// # Safety
/// `backend` is null, or points to a `cap_backend` whose functions keep to their descriptions (or, if it says another
/// version or size, to 8 bytes).
#[no_mangle]
pub unsafe extern "C" fn cap_ctx_create(backend: *const cap_backend) -> cap_ctx {
    // SAFETY: the caller's promise.
    pointer("cap_ctx_create", |call| unsafe {
        context::create(call, backend)
    })
}

/// Destroys a context. Capsules that were not dropped go with it, by functions of the backend; without such capsules the
/// backend is not called. Null is a no-op.
///
/// # Safety
/// The backend is valid, and no other thread is in a call with the context or a capsule of it.
#[no_mangle]
pub unsafe extern "C" fn cap_ctx_destroy(ctx: cap_ctx) {
    if ctx.is_null() {
        return;
    }
    status("cap_ctx_destroy", |call| context::destroy(call, ctx));
}

/// Fingerprint of the backend; 0 for a handle that is no context.
///
/// # Safety
/// As every call with a context: the backend is valid, and no other thread is in a call with the context.
#[no_mangle]
pub unsafe extern "C" fn cap_ctx_fingerprint(ctx: cap_ctx) -> u64 {
    run(
        "cap_ctx_fingerprint",
        |_| 0,
        |call| Ok(context::backend(call, ctx)?.fingerprint()),
    )
}

// ---- state -------------------------------------------------------------------------------------------------------------

/// Freezes the regions of `*boundary` into a new capsule of `tier`, stamped with the backend's fingerprint. Allocates.
///
/// Copies are submitted to `stream`; `cap_capsule_ready` tells when they have run. Every window is checked against its
/// buffer before the first byte moves. Null on any failure, and then everything that was made is freed again (after a
/// `sync` of the stream, so that no copy is under way).
///
/// # Safety
/// `boundary` is null or points to a boundary with its regions and its meta; buffers are those of the context's backend.
#[no_mangle]
pub unsafe extern "C" fn cap_snapshot(
    ctx: cap_ctx,
    boundary: *const cap_boundary,
    tier: c_int,
    stream: c_int,
) -> cap_capsule {
    // SAFETY: the caller's promise.
    pointer("cap_snapshot", |call| unsafe {
        state::snapshot(call, ctx, boundary, tier, stream)
    })
}

/// Whether the bytes of a capsule are complete: 0 yes, above 0 not yet, below 0 a status. Never waits; takes no memory and
/// no lock. A restore does not change the answer; a tier move renews it.
///
/// # Safety
/// As every call with a context: the backend is valid, and no other thread is in a call with the context.
#[no_mangle]
pub unsafe extern "C" fn cap_capsule_ready(ctx: cap_ctx, capsule: cap_capsule) -> c_int {
    status("cap_capsule_ready", |call| state::ready(call, ctx, capsule))
}

/// Submits copies of a capsule's bytes to `stream`, back to where they were taken from. Done when the stream is.
///
/// A loaded capsule has no such place (`CAP_ERR_ARG`). The fingerprint must be that of the backend, and every window is
/// checked against its buffer again, before the first copy. On another stream than that of the snapshot the copies wait for
/// the snapshot. When the backend fails midway (`CAP_ERR_BACKEND`), regions before that one may have their old bytes back.
///
/// # Safety
/// The buffers that the capsule was taken from still exist.
#[no_mangle]
pub unsafe extern "C" fn cap_restore(ctx: cap_ctx, capsule: cap_capsule, stream: c_int) -> c_int {
    status("cap_restore", |call| {
        state::restore(call, ctx, capsule, stream)
    })
}

/// `cap_restore` into other windows: `n` is the number of regions of the capsule, and each window has at least the bytes of
/// the region at its place; those further behind stay as they are. For branches and for loaded capsules.
///
/// # Safety
/// `dst` is null or points to `n` regions; their buffers are those of the context's backend.
#[no_mangle]
pub unsafe extern "C" fn cap_restore_into(
    ctx: cap_ctx,
    capsule: cap_capsule,
    dst: *const cap_region,
    n: c_int,
    stream: c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    status("cap_restore_into", |call| unsafe {
        state::restore_into(call, ctx, capsule, dst, n, stream)
    })
}

/// Where the bytes of a capsule lie. `out` null: `*n` becomes the number of regions. Otherwise at most `*n` of them are
/// written, and `*n` becomes the number of all. Valid until the capsule is moved or dropped.
///
/// # Safety
/// `n` is null or points to an `int`; `out` is null or has room for `*n` views.
#[no_mangle]
pub unsafe extern "C" fn cap_regions(
    ctx: cap_ctx,
    capsule: cap_capsule,
    out: *mut cap_region_view,
    n: *mut c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    status("cap_regions", |call| unsafe {
        state::regions(call, ctx, capsule, out, n)
    })
}

/// The meta of a capsule, taken or loaded; `*meta` is null when there is none. Valid until the capsule is dropped.
///
/// # Safety
/// `meta` and `len` are null or point to a pointer and a size.
#[no_mangle]
pub unsafe extern "C" fn cap_capsule_meta(
    ctx: cap_ctx,
    capsule: cap_capsule,
    meta: *mut *const c_void,
    len: *mut usize,
) -> c_int {
    // SAFETY: the caller's promise.
    status("cap_capsule_meta", |call| unsafe {
        state::meta(call, ctx, capsule, meta, len)
    })
}

/// Moves the bytes of a capsule to another tier; the same tier is a no-op. Waits for `stream`.
///
/// All new memory is taken and filled before the first old byte is freed: on any failure the capsule is whole in its old
/// tier. The capsule's readiness is that of the move afterwards. Restores that still read the old bytes on other streams
/// must be over.
///
/// # Safety
/// As every call with a context: the backend is valid, and no other thread is in a call with the context.
#[no_mangle]
pub unsafe extern "C" fn cap_tier_move(
    ctx: cap_ctx,
    capsule: cap_capsule,
    tier: c_int,
    stream: c_int,
) -> c_int {
    status("cap_tier_move", |call| {
        state::tier_move(call, ctx, capsule, tier, stream)
    })
}

/// Writes a capsule as a blob. `out` null: `*len` becomes its size. Otherwise `*len` is the room at `out`, too little is
/// `CAP_ERR_ARG`, and `*len` becomes the bytes written.
///
/// Waits for the snapshot first: its event is queried; while it is pending, the snapshot's stream is waited for and the event
/// queried again, and one that stays pending is `CAP_ERR_BACKEND`. Then the bytes are read on stream 0, which is waited for.
/// After a failure `*len` is unchanged and the bytes at `out` are nothing.
///
/// # Safety
/// `len` is null or points to a size; `out` is null or has room for `*len` bytes, read and written by nobody else.
#[no_mangle]
pub unsafe extern "C" fn cap_serialize(
    ctx: cap_ctx,
    capsule: cap_capsule,
    out: *mut c_void,
    len: *mut usize,
) -> c_int {
    // SAFETY: the caller's promise.
    status("cap_serialize", |call| unsafe {
        state::serialize(call, ctx, capsule, out, len)
    })
}

/// A host-tier capsule from a blob, for `cap_restore_into`. Null unless every byte of it is in order and it was made under the
/// backend's fingerprint; `cap_load_status` tells why. Nothing is taken from the backend before the whole blob is checked.
///
/// # Safety
/// `blob` is null or points to `len` bytes, which nobody writes meanwhile. Any alignment.
#[no_mangle]
pub unsafe extern "C" fn cap_load(ctx: cap_ctx, blob: *const c_void, len: usize) -> cap_capsule {
    // SAFETY: the caller's promise.
    load::noted(|call| unsafe { load::load(call, ctx, blob, len) })
}

/// How the last `cap_load` on this thread ended: `CAP_OK`, `CAP_ERR_ARG`, `CAP_ERR_FORMAT` (no whole blob),
/// `CAP_ERR_VERSION`, `CAP_ERR_FINGERPRINT`, `CAP_ERR_NOMEM`, `CAP_ERR_BACKEND`. `CAP_OK` before the first.
#[no_mangle]
pub extern "C" fn cap_load_status() -> c_int {
    load::last_status()
}

/// Frees a capsule with its memory and its event, without waiting: a `buffer_free` that does not itself wait for copies must
/// not be reached before they are over. Null is a no-op; a capsule of another context stays.
///
/// # Safety
/// As every call with a context: the backend is valid, and no other thread is in a call with the context.
#[no_mangle]
pub unsafe extern "C" fn cap_capsule_drop(ctx: cap_ctx, capsule: cap_capsule) {
    if capsule.is_null() {
        return;
    }
    status("cap_capsule_drop", |call| {
        state::drop_capsule(call, ctx, capsule)
    });
}

// ---- drive -------------------------------------------------------------------------------------------------------------

/// Submits one replay of `*stage`. A variant that is not there is `CAP_ERR_ARG`. Takes no memory and no lock.
///
/// # Safety
/// `stage` is null or points to a stage; its graph is one of the context's backend.
#[no_mangle]
pub unsafe extern "C" fn cap_fire(ctx: cap_ctx, stage: *const cap_stage) -> c_int {
    // SAFETY: the caller's promise.
    status("cap_fire", |call| unsafe { drive::fire(call, ctx, stage) })
}

/// Fires the `CAP_EVERY` stages that are due at `clock`, in the order of the array; others are left out.
///
/// A pair `{waiter, dependency}` makes the waiter's stream wait for the dependency, if that fired earlier in this tick. An
/// index outside the stages is `CAP_ERR_ARG`, and then nothing fires. `*failed` (unless null) becomes the first stage that
/// failed, otherwise -1; the tick ends there with `CAP_ERR_BACKEND`, and what was fired before stays fired.
///
/// The stages that others wait for get an event of the backend for the length of the call. The list of them is kept with the
/// context: from the second tick on the library itself takes no memory.
///
/// # Safety
/// `schedule` is null or points to a schedule with its stages and pairs; `failed` is null or points to an `int`.
#[no_mangle]
pub unsafe extern "C" fn cap_drive_tick(
    ctx: cap_ctx,
    schedule: *const cap_schedule,
    clock: u64,
    failed: *mut c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    status("cap_drive_tick", |call| unsafe {
        drive::tick(call, ctx, schedule, clock, failed)
    })
}

/// Submits an upload of `n` bytes to the start of `dst`. More than `dst` holds is `CAP_ERR_ARG`; for 0 bytes there is nothing to
/// submit. Takes no memory and no lock.
///
/// # Safety
/// `dst` is null or a buffer of the context's backend; `src` is null or points to `n` bytes that stay as they are until the
/// stream has run the upload.
#[no_mangle]
pub unsafe extern "C" fn cap_swap(
    ctx: cap_ctx,
    dst: cap_buffer,
    src: *const c_void,
    n: usize,
    stream: c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    status("cap_swap", |call| unsafe {
        drive::swap(call, ctx, dst, src, n, stream)
    })
}

/// Waits for everything submitted to `stream`. Takes no memory and no lock.
///
/// # Safety
/// As every call with a context: the backend is valid, and no other thread is in a call with the context.
#[no_mangle]
pub unsafe extern "C" fn cap_sync(ctx: cap_ctx, stream: c_int) -> c_int {
    status("cap_sync", |call| drive::sync(call, ctx, stream))
}

// ---- a backend of this library -----------------------------------------------------------------------------------------

/// Fills `*out` with a backend over an execution context of `flashrt/exec.h`, whose fingerprint is always `fingerprint`.
///
/// Its buffers, graphs and events are the handles `frt_buffer`, `frt_graph` and `frt_event` of that context, cast, and its
/// streams are the stream ids. Uploads and downloads are complete when they return. `buffer_wrap` in host space is only there
/// on the CPU. Ends with `cap_backend_done_frt`; a backend that was ended, or whose context was destroyed, fails every call.
///
/// # Safety
/// `out` is null or has room for a `cap_backend`.
#[no_mangle]
pub unsafe extern "C" fn cap_backend_init_frt(
    out: *mut cap_backend,
    ctx: *mut frt_ctx_s,
    fingerprint: u64,
) -> c_int {
    // SAFETY: the caller's promise.
    status("cap_backend_init_frt", |call| unsafe {
        frt::init(call, out, ctx, fingerprint)
    })
}

/// Ends a backend of `cap_backend_init_frt`, after the contexts over it; the execution context stays. Sets `self` to null.
/// Null, a second call, and a backend of somebody else are a no-op.
///
/// # Safety
/// `backend` is null or points to a `cap_backend`.
#[no_mangle]
pub unsafe extern "C" fn cap_backend_done_frt(backend: *mut cap_backend) {
    // SAFETY: the caller's promise.
    status("cap_backend_done_frt", |call| unsafe {
        frt::done(call, backend)
    });
}
