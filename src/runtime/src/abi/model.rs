//! Layouts and numbers of a model runtime (`model_runtime.h`).

use std::ffi::{c_char, c_int, c_void};

use super::{frt_buffer, frt_runtime_export_v1, frt_shape_key, layout};

/// Version of the model runtime layout.
pub const FRT_MODEL_RUNTIME_ABI_VERSION: u32 = 1;
/// Bytes of the published base of [`frt_model_runtime_v1`]: the most that a reader may require.
pub const FRT_MODEL_RUNTIME_V1_BASE_SIZE: u32 = 128;
/// `struct_size` from which on `query_extension` may be read.
pub const FRT_MODEL_RUNTIME_V1_QUERY_EXTENSION_SIZE: u32 = 136;

/// Extension id of the generic stage plan.
pub const FRT_EXT_GENERIC_STAGE_PLAN_V1: u64 = 1;
/// Version of the generic stage plan.
pub const FRT_GENERIC_STAGE_PLAN_ABI_VERSION: u32 = 1;
/// Least `struct_size` of a generic stage plan.
pub const FRT_GENERIC_STAGE_PLAN_EXT_V1_SIZE: u32 = 40;
/// Longest name of a generic stage, in bytes.
pub const FRT_GENERIC_STAGE_NAME_MAX_BYTES: u32 = 255;
/// Executor of a generic stage: a graph of the export, by index.
pub const FRT_GENERIC_STAGE_GRAPH: u32 = 0;
/// Executor of a generic stage: the producer's runner.
pub const FRT_GENERIC_STAGE_OPAQUE: u32 = 1;

/// Modality: raw elements.
pub const FRT_RT_MOD_TENSOR: u32 = 0;
/// Modality: an array of [`frt_image_view`].
pub const FRT_RT_MOD_IMAGE: u32 = 1;
/// Modality: UTF-8 text.
pub const FRT_RT_MOD_TEXT: u32 = 2;
/// Modality: robot state, raw elements.
pub const FRT_RT_MOD_STATE: u32 = 3;
/// Modality: action chunk, raw elements.
pub const FRT_RT_MOD_ACTION: u32 = 4;
/// Modality: PCM samples.
pub const FRT_RT_MOD_AUDIO: u32 = 5;
/// Modality: depth images, an array of [`frt_image_view`].
pub const FRT_RT_MOD_DEPTH: u32 = 6;
/// Modality: force or torque, raw elements.
pub const FRT_RT_MOD_FORCE: u32 = 7;

/// Element type: unsigned byte.
pub const FRT_RT_DTYPE_U8: u32 = 0;
/// Element type: IEEE binary32.
pub const FRT_RT_DTYPE_F32: u32 = 1;
/// Element type: IEEE binary16.
pub const FRT_RT_DTYPE_F16: u32 = 2;
/// Element type: bfloat16.
pub const FRT_RT_DTYPE_BF16: u32 = 3;
/// Element type: signed 32-bit integer.
pub const FRT_RT_DTYPE_I32: u32 = 4;
/// Element type: signed 64-bit integer.
pub const FRT_RT_DTYPE_I64: u32 = 5;

/// Layout: row-major without an image meaning.
pub const FRT_RT_LAYOUT_FLAT: u32 = 0;
/// Layout: height, width, channel.
pub const FRT_RT_LAYOUT_HWC: u32 = 1;
/// Layout: view, height, width, channel.
pub const FRT_RT_LAYOUT_NHWC: u32 = 2;
/// Layout: channel, height, width.
pub const FRT_RT_LAYOUT_CHW: u32 = 3;
/// Layout: view, channel, height, width.
pub const FRT_RT_LAYOUT_NCHW: u32 = 4;

/// Pixel format: red, green, blue.
pub const FRT_RT_PIXEL_RGB8: u32 = 0;
/// Pixel format: blue, green, red.
pub const FRT_RT_PIXEL_BGR8: u32 = 1;
/// Pixel format: red, green, blue, alpha.
pub const FRT_RT_PIXEL_RGBA8: u32 = 2;
/// Pixel format: blue, green, red, alpha.
pub const FRT_RT_PIXEL_BGRA8: u32 = 3;
/// Pixel format: one grey channel.
pub const FRT_RT_PIXEL_GRAY8: u32 = 4;

/// Direction of a port: into the model.
pub const FRT_RT_PORT_IN: u32 = 0;
/// Direction of a port: out of the model.
pub const FRT_RT_PORT_OUT: u32 = 1;

/// Update class of a port: bytes are exchanged with its window.
pub const FRT_RT_PORT_SWAP: u32 = 0;
/// Update class of a port: goes through a verb, hot.
pub const FRT_RT_PORT_STAGED: u32 = 1;
/// Update class of a port: never in a tick.
pub const FRT_RT_PORT_SETUP: u32 = 2;

/// Name of the factory symbol of a library that opens a model runtime.
pub const FRT_MODEL_RUNTIME_OPEN_V1_SYMBOL: &str = "frt_model_runtime_open_v1";

/// The factory symbol's type: 0 means that `*out` carries one reference.
pub type frt_model_runtime_open_v1_fn = Option<
    unsafe extern "C" fn(config_json: *const c_char, out: *mut *mut frt_model_runtime_v1) -> c_int,
>;

/// One image of an IMAGE or DEPTH payload.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct frt_image_view {
    /// Bytes of this struct, at least 48.
    pub struct_size: u32,
    /// One of `FRT_RT_PIXEL_*`.
    pub pixel_format: u32,
    /// First pixel, host memory.
    pub data: *const c_void,
    /// Bytes readable at `data`.
    pub bytes: u64,
    /// Pixels in a row.
    pub width: i32,
    /// Rows.
    pub height: i32,
    /// Bytes from row to row; 0 means tight rows.
    pub stride_bytes: i32,
    /// 0.
    pub reserved: u32,
    /// Stamp in nanoseconds.
    pub timestamp_ns: u64,
}
layout!(
    frt_image_view, 48;
    struct_size 0, pixel_format 4, data 8, bytes 16, width 24, height 28, stride_bytes 32, reserved 36, timestamp_ns 40,
);

/// A dynamic input or output.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct frt_runtime_port_desc {
    /// Name, NUL-terminated, not empty.
    pub name: *const c_char,
    /// One of `FRT_RT_MOD_*`.
    pub modality: u32,
    /// One of `FRT_RT_DTYPE_*`.
    pub dtype: u32,
    /// One of `FRT_RT_LAYOUT_*`.
    pub layout: u32,
    /// One of `FRT_RT_PORT_IN`, `FRT_RT_PORT_OUT`.
    pub direction: u32,
    /// One of `FRT_RT_PORT_SWAP`, `FRT_RT_PORT_STAGED`, `FRT_RT_PORT_SETUP`.
    pub update: u32,
    /// 1 when a tick needs it, 0 when not.
    pub required: u32,
    /// Dimensions, -1 is variable.
    pub shape: *const i64,
    /// Entries of `shape`; 0 for a scalar.
    pub rank: u32,
    /// Expected rate in Hz, 0 when unknown.
    pub cadence_hint_hz: u32,
    /// Buffer of its window; null when there is none.
    pub buffer: frt_buffer,
    /// First byte of the window.
    pub offset: u64,
    /// Bytes of the window.
    pub bytes: u64,
}
layout!(
    frt_runtime_port_desc, 72;
    name 0, modality 8, dtype 12, layout 16, direction 20, update 24, required 28, shape 32, rank 40, cadence_hint_hz 44,
    buffer 48, offset 56, bytes 64,
);

/// A stage that replays a graph of the export.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct frt_runtime_stage_desc {
    /// Index of the graph.
    pub graph: u32,
    /// Entries of `after`.
    pub n_after: u32,
    /// Earlier stages that must be complete before, by index.
    pub after: *const u32,
}
layout!(frt_runtime_stage_desc, 16; graph 0, n_after 4, after 8);

/// A stage of a generic plan. The stride of an array of these is frozen.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct frt_generic_stage_desc_v1 {
    /// Name, NUL-terminated, unique, 1 to 255 bytes of UTF-8 without control characters.
    pub name: *const c_char,
    /// One of `FRT_GENERIC_STAGE_*`.
    pub executor_kind: u32,
    /// Index of a graph, or a number that only the runner understands.
    pub executor_ref: u32,
    /// Entries of `after`.
    pub n_after: u32,
    /// Earlier stages, strictly increasing.
    pub after: *const u32,
}
layout!(frt_generic_stage_desc_v1, 32; name 0, executor_kind 8, executor_ref 12, n_after 16, after 24);

/// The generic stage plan of a model runtime (extension [`FRT_EXT_GENERIC_STAGE_PLAN_V1`]).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct frt_generic_stage_plan_ext_v1 {
    /// At least [`FRT_GENERIC_STAGE_PLAN_ABI_VERSION`].
    pub abi_version: u32,
    /// Bytes of this struct, at least 40.
    pub struct_size: u32,
    /// Stages in declared order.
    pub stages: *const frt_generic_stage_desc_v1,
    /// Entries of `stages`.
    pub n_stages: u64,
    /// Passed to `run_opaque`.
    pub stage_self: *mut c_void,
    /// Executes an OPAQUE stage; complete on return. 0 is success.
    pub run_opaque:
        Option<unsafe extern "C" fn(stage_self: *mut c_void, executor_ref: u32) -> c_int>,
}
layout!(
    frt_generic_stage_plan_ext_v1, 40;
    abi_version 0, struct_size 4, stages 8, n_stages 16, stage_self 24, run_opaque 32,
);

/// What a model runtime does. Size frozen.
///
/// Return codes: 0 done, -1 invalid, -2 not found, -3 unsupported, -4 shape or format mismatch, -5 storage too small, -6 backend
/// failure.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct frt_model_runtime_verbs {
    /// Bytes of this struct, 48.
    pub struct_size: u32,
    /// 0.
    pub reserved: u32,
    /// Writes input `port`. Hot.
    pub set_input: Option<
        unsafe extern "C" fn(
            self_: *mut c_void,
            port: u32,
            data: *const c_void,
            bytes: u64,
            stream: c_int,
        ) -> c_int,
    >,
    /// Reads output `port`; `capacity` and `*written` are bytes. Hot.
    pub get_output: Option<
        unsafe extern "C" fn(
            self_: *mut c_void,
            port: u32,
            out: *mut c_void,
            capacity: u64,
            written: *mut u64,
            stream: c_int,
        ) -> c_int,
    >,
    /// Makes the variant `key` of graph `graph` exist. Never in a tick.
    pub prepare:
        Option<unsafe extern "C" fn(self_: *mut c_void, graph: u32, key: frt_shape_key) -> c_int>,
    /// Fires every declared stage once, in order. Hot.
    pub step: Option<unsafe extern "C" fn(self_: *mut c_void) -> c_int>,
    /// Text of the last failure, valid until the next verb.
    pub last_error: Option<unsafe extern "C" fn(self_: *mut c_void) -> *const c_char>,
}
layout!(
    frt_model_runtime_verbs, 48;
    struct_size 0, reserved 4, set_input 8, get_output 16, prepare 24, step 32, last_error 40,
);

/// One tickable model, version 1.
///
/// Descriptors are valid while a reference is held. `retain(owner)` adds one and `release(owner)` gives one back, on any thread.
/// A foreign object may end after `release` (128 bytes): read fields through the raw pointer, never through a reference to the whole.
///
/// cbindgen:field-names=[abi_version, struct_size, exp, ports, n_ports, stages, n_stages, self, verbs, owner, retain, release, query_extension]
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct frt_model_runtime_v1 {
    /// [`FRT_MODEL_RUNTIME_ABI_VERSION`].
    pub abi_version: u32,
    /// Bytes of this struct, at least 128.
    pub struct_size: u32,
    /// The export below it; never null.
    pub exp: *const frt_runtime_export_v1,
    /// Ports.
    pub ports: *const frt_runtime_port_desc,
    /// Entries of `ports`.
    pub n_ports: u64,
    /// Stages, all of them graphs.
    pub stages: *const frt_runtime_stage_desc,
    /// Entries of `stages`.
    pub n_stages: u64,
    /// Passed to every verb.
    #[doc(alias = "self")]
    pub self_: *mut c_void,
    /// Verbs.
    pub verbs: frt_model_runtime_verbs,
    /// Passed to `retain` and `release`.
    pub owner: *mut c_void,
    /// Adds a reference.
    pub retain: Option<unsafe extern "C" fn(owner: *mut c_void)>,
    /// Gives a reference back.
    pub release: Option<unsafe extern "C" fn(owner: *mut c_void)>,
    /// Asks for an extension; only there when `struct_size` is at least 136.
    ///
    /// Clears `*out` first. 0: `*out` is a table that lives as long as the runtime; -1: null argument or `min_version` 0; -3: not there.
    pub query_extension: Option<
        unsafe extern "C" fn(
            rt: *const frt_model_runtime_v1,
            id: u64,
            min_version: u32,
            out: *mut *const c_void,
        ) -> c_int,
    >,
}
layout!(
    frt_model_runtime_v1, 136;
    abi_version 0, struct_size 4, exp 8, ports 16, n_ports 24, stages 32, n_stages 40, self_ 48, verbs 56, owner 104,
    retain 112, release 120, query_extension 128,
);

impl frt_model_runtime_verbs {
    /// A table of the published size without a verb.
    pub const fn empty() -> frt_model_runtime_verbs {
        frt_model_runtime_verbs {
            struct_size: 48,
            reserved: 0,
            set_input: None,
            get_output: None,
            prepare: None,
            step: None,
            last_error: None,
        }
    }
}
