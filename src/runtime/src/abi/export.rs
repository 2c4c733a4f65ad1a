//! Layouts and numbers of an export (`runtime.h`).

use std::ffi::{c_char, c_int, c_void};

use super::{frt_buffer, frt_ctx, frt_graph, frt_shape_key, layout};

/// Version of the export layout.
pub const FRT_RUNTIME_ABI_VERSION: u32 = 1;

/// Role bit of a buffer: written from outside before a tick.
pub const FRT_RT_ROLE_INPUT: u32 = 1;
/// Role bit of a buffer: read from outside after a tick.
pub const FRT_RT_ROLE_OUTPUT: u32 = 2;
/// Role bit of a buffer: carries state from tick to tick.
pub const FRT_RT_ROLE_STATE: u32 = 4;
/// Role bit of a buffer: working memory of one tick.
pub const FRT_RT_ROLE_SCRATCH: u32 = 8;

/// Flag of a region: copied into a snapshot.
pub const FRT_RT_REGION_SNAPSHOT: u32 = 1;
/// Flag of a region: written by a restore.
pub const FRT_RT_REGION_RESTORE: u32 = 2;

/// Name of the factory symbol of a library that opens an export.
pub const FRT_RUNTIME_OPEN_V1_SYMBOL: &str = "frt_runtime_open_v1";

/// The factory symbol's type: 0 means that `*out` carries one reference.
pub type frt_runtime_open_v1_fn = Option<
    unsafe extern "C" fn(config_json: *const c_char, out: *mut *mut frt_runtime_export_v1) -> c_int,
>;

/// A stream of the export.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct frt_runtime_stream_desc {
    /// Name, NUL-terminated.
    pub name: *const c_char,
    /// Stream of the context, not negative.
    pub stream_id: i32,
    /// Priority, more negative is more urgent.
    pub priority: i32,
    /// The backend's stream; borrowed, may be null.
    pub native_handle: *mut c_void,
}
layout!(frt_runtime_stream_desc, 24; name 0, stream_id 8, priority 12, native_handle 16);

/// A captured graph.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct frt_runtime_graph_desc {
    /// Name, NUL-terminated.
    pub name: *const c_char,
    /// The graph.
    pub handle: frt_graph,
    /// Variant to fire when no key is given.
    pub default_key: frt_shape_key,
    /// Variants that exist at export.
    pub keys: *const frt_shape_key,
    /// Entries of `keys`.
    pub n_keys: u64,
    /// Stream that it is replayed on.
    pub stream_id: i32,
}
layout!(frt_runtime_graph_desc, 48; name 0, handle 8, default_key 16, keys 24, n_keys 32, stream_id 40);

/// A named buffer.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct frt_runtime_buffer_desc {
    /// Name, NUL-terminated.
    pub name: *const c_char,
    /// The buffer.
    pub handle: frt_buffer,
    /// Size in bytes.
    pub bytes: u64,
    /// Bits `FRT_RT_ROLE_*`.
    pub role: u32,
    /// 0.
    pub reserved: u32,
}
layout!(frt_runtime_buffer_desc, 32; name 0, handle 8, bytes 16, role 24, reserved 28);

/// A window of a buffer that makes up the state.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct frt_runtime_region_desc {
    /// Name, NUL-terminated.
    pub name: *const c_char,
    /// Buffer that it lies in.
    pub buffer: frt_buffer,
    /// First byte.
    pub offset: u64,
    /// Bytes, not 0.
    pub bytes: u64,
    /// Bits `FRT_RT_REGION_*`.
    pub flags: u32,
    /// 0.
    pub reserved: u32,
}
layout!(frt_runtime_region_desc, 40; name 0, buffer 8, offset 16, bytes 24, flags 32, reserved 36);

/// Everything that a producer exports, version 1.
///
/// Strings, arrays and handles are valid while a reference is held. `retain(owner)` adds one and `release(owner)` gives one back, on any
/// thread; `owner` is not the producer's own pointer.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct frt_runtime_export_v1 {
    /// [`FRT_RUNTIME_ABI_VERSION`].
    pub abi_version: u32,
    /// Bytes of this struct, at least 128.
    pub struct_size: u32,
    /// Execution context; null for a provider without one.
    pub ctx: frt_ctx,
    /// Streams.
    pub streams: *const frt_runtime_stream_desc,
    /// Entries of `streams`.
    pub n_streams: u64,
    /// Graphs.
    pub graphs: *const frt_runtime_graph_desc,
    /// Entries of `graphs`.
    pub n_graphs: u64,
    /// Buffers.
    pub buffers: *const frt_runtime_buffer_desc,
    /// Entries of `buffers`.
    pub n_buffers: u64,
    /// State regions.
    pub capsule_regions: *const frt_runtime_region_desc,
    /// Entries of `capsule_regions`.
    pub n_capsule_regions: u64,
    /// FNV-1a of the identity.
    pub fingerprint: u64,
    /// Canonical identity, NUL-terminated; the NUL is not hashed.
    pub identity: *const c_char,
    /// Manifest, NUL-terminated; null when there is none.
    pub manifest_json: *const c_char,
    /// Passed to `retain` and `release`.
    pub owner: *mut c_void,
    /// Adds a reference.
    pub retain: Option<unsafe extern "C" fn(owner: *mut c_void)>,
    /// Gives a reference back.
    pub release: Option<unsafe extern "C" fn(owner: *mut c_void)>,
}
layout!(
    frt_runtime_export_v1, 128;
    abi_version 0, struct_size 4, ctx 8, streams 16, n_streams 24, graphs 32, n_graphs 40, buffers 48, n_buffers 56,
    capsule_regions 64, n_capsule_regions 72, fingerprint 80, identity 88, manifest_json 96, owner 104, retain 112, release 120,
);
