// This file is generated from the Rust sources; see docs/c_abi.md. Do not edit.
// One tickable model over an export: ports, stages, verbs, and the three ways to make one.
// Check abi_version, then struct_size (never for equality, always >=), then the field behind it.
// SPDX-License-Identifier: Apache-2.0

#ifndef FLASHRT_MODEL_RUNTIME_H
#define FLASHRT_MODEL_RUNTIME_H

#include <stddef.h>
#include <stdint.h>
#include "flashrt/runtime.h"

// Name of the factory symbol of a library that opens a model runtime.
#define FRT_MODEL_RUNTIME_OPEN_V1_SYMBOL "frt_model_runtime_open_v1"

// Version of the model runtime layout.
#define FRT_MODEL_RUNTIME_ABI_VERSION 1u

// Bytes of the published base of `frt_model_runtime_v1`: the most that a reader may require.
#define FRT_MODEL_RUNTIME_V1_BASE_SIZE 128u

// `struct_size` from which on `query_extension` may be read.
#define FRT_MODEL_RUNTIME_V1_QUERY_EXTENSION_SIZE 136u

// Extension id of the generic stage plan.
#define FRT_EXT_GENERIC_STAGE_PLAN_V1 UINT64_C(1)

// Version of the generic stage plan.
#define FRT_GENERIC_STAGE_PLAN_ABI_VERSION 1u

// Least `struct_size` of a generic stage plan.
#define FRT_GENERIC_STAGE_PLAN_EXT_V1_SIZE 40u

// Longest name of a generic stage, in bytes.
#define FRT_GENERIC_STAGE_NAME_MAX_BYTES 255u

// Executor of a generic stage: a graph of the export, by index.
#define FRT_GENERIC_STAGE_GRAPH 0u

// Executor of a generic stage: the producer's runner.
#define FRT_GENERIC_STAGE_OPAQUE 1u

// What a port carries.
typedef enum frt_rt_modality {
  // Modality: raw elements.
  FRT_RT_MOD_TENSOR = 0,
  // Modality: an array of `frt_image_view`.
  FRT_RT_MOD_IMAGE = 1,
  // Modality: UTF-8 text.
  FRT_RT_MOD_TEXT = 2,
  // Modality: robot state, raw elements.
  FRT_RT_MOD_STATE = 3,
  // Modality: action chunk, raw elements.
  FRT_RT_MOD_ACTION = 4,
  // Modality: PCM samples.
  FRT_RT_MOD_AUDIO = 5,
  // Modality: depth images, an array of `frt_image_view`.
  FRT_RT_MOD_DEPTH = 6,
  // Modality: force or torque, raw elements.
  FRT_RT_MOD_FORCE = 7
} frt_rt_modality;

// Element type of a port.
typedef enum frt_rt_dtype {
  // Element type: unsigned byte.
  FRT_RT_DTYPE_U8 = 0,
  // Element type: IEEE binary32.
  FRT_RT_DTYPE_F32 = 1,
  // Element type: IEEE binary16.
  FRT_RT_DTYPE_F16 = 2,
  // Element type: bfloat16.
  FRT_RT_DTYPE_BF16 = 3,
  // Element type: signed 32-bit integer.
  FRT_RT_DTYPE_I32 = 4,
  // Element type: signed 64-bit integer.
  FRT_RT_DTYPE_I64 = 5
} frt_rt_dtype;

// Order of a port's axes.
typedef enum frt_rt_layout {
  // Layout: row-major without an image meaning.
  FRT_RT_LAYOUT_FLAT = 0,
  // Layout: height, width, channel.
  FRT_RT_LAYOUT_HWC = 1,
  // Layout: view, height, width, channel.
  FRT_RT_LAYOUT_NHWC = 2,
  // Layout: channel, height, width.
  FRT_RT_LAYOUT_CHW = 3,
  // Layout: view, channel, height, width.
  FRT_RT_LAYOUT_NCHW = 4
} frt_rt_layout;

// Pixel format of a frt_image_view.
typedef enum frt_rt_pixel_format {
  // Pixel format: red, green, blue.
  FRT_RT_PIXEL_RGB8 = 0,
  // Pixel format: blue, green, red.
  FRT_RT_PIXEL_BGR8 = 1,
  // Pixel format: red, green, blue, alpha.
  FRT_RT_PIXEL_RGBA8 = 2,
  // Pixel format: blue, green, red, alpha.
  FRT_RT_PIXEL_BGRA8 = 3,
  // Pixel format: one grey channel.
  FRT_RT_PIXEL_GRAY8 = 4
} frt_rt_pixel_format;

// Direction of a port.
typedef enum frt_rt_port_direction {
  // Direction of a port: into the model.
  FRT_RT_PORT_IN = 0,
  // Direction of a port: out of the model.
  FRT_RT_PORT_OUT = 1
} frt_rt_port_direction;

// When and how a port may be written.
typedef enum frt_rt_port_update {
  // Update class of a port: bytes are exchanged with its window.
  FRT_RT_PORT_SWAP = 0,
  // Update class of a port: goes through a verb, hot.
  FRT_RT_PORT_STAGED = 1,
  // Update class of a port: never in a tick.
  FRT_RT_PORT_SETUP = 2
} frt_rt_port_update;

// A dynamic input or output.
typedef struct frt_runtime_port_desc {
  // Name, NUL-terminated, not empty.
  const char *name;
  // One of `FRT_RT_MOD_*`.
  uint32_t modality;
  // One of `FRT_RT_DTYPE_*`.
  uint32_t dtype;
  // One of `FRT_RT_LAYOUT_*`.
  uint32_t layout;
  // One of `FRT_RT_PORT_IN`, `FRT_RT_PORT_OUT`.
  uint32_t direction;
  // One of `FRT_RT_PORT_SWAP`, `FRT_RT_PORT_STAGED`, `FRT_RT_PORT_SETUP`.
  uint32_t update;
  // 1 when a tick needs it, 0 when not.
  uint32_t required;
  // Dimensions, -1 is variable.
  const int64_t *shape;
  // Entries of `shape`; 0 for a scalar.
  uint32_t rank;
  // Expected rate in Hz, 0 when unknown.
  uint32_t cadence_hint_hz;
  // Buffer of its window; null when there is none.
  frt_buffer buffer;
  // First byte of the window.
  uint64_t offset;
  // Bytes of the window.
  uint64_t bytes;
} frt_runtime_port_desc;

// A stage that replays a graph of the export.
typedef struct frt_runtime_stage_desc {
  // Index of the graph.
  uint32_t graph;
  // Entries of `after`.
  uint32_t n_after;
  // Earlier stages that must be complete before, by index.
  const uint32_t *after;
} frt_runtime_stage_desc;

// What a model runtime does. Size frozen.
//
// Return codes: 0 done, -1 invalid, -2 not found, -3 unsupported, -4 shape or format mismatch, -5 storage too small, -6 backend
// failure.
typedef struct frt_model_runtime_verbs {
  // Bytes of this struct, 48.
  uint32_t struct_size;
  // 0.
  uint32_t reserved;
  // Writes input `port`. Hot.
  int (*set_input)(void *self, uint32_t port, const void *data, uint64_t bytes, int stream);
  // Reads output `port`; `capacity` and `*written` are bytes. Hot.
  int (*get_output)(void *self, uint32_t port, void *out, uint64_t capacity, uint64_t *written, int stream);
  // Makes the variant `key` of graph `graph` exist. Never in a tick.
  int (*prepare)(void *self, uint32_t graph, frt_shape_key key);
  // Fires every declared stage once, in order. Hot.
  int (*step)(void *self);
  // Text of the last failure, valid until the next verb.
  const char *(*last_error)(void *self);
} frt_model_runtime_verbs;

// One tickable model, version 1.
//
// Descriptors are valid while a reference is held. `retain(owner)` adds one and `release(owner)` gives one back, on any thread.
// A foreign object may end after `release` (128 bytes): read fields through the raw pointer, never through a reference to the whole.
typedef struct frt_model_runtime_v1 {
  // `FRT_MODEL_RUNTIME_ABI_VERSION`.
  uint32_t abi_version;
  // Bytes of this struct, at least 128.
  uint32_t struct_size;
  // The export below it; never null.
  const frt_runtime_export_v1 *exp;
  // Ports.
  const struct frt_runtime_port_desc *ports;
  // Entries of `ports`.
  uint64_t n_ports;
  // Stages, all of them graphs.
  const struct frt_runtime_stage_desc *stages;
  // Entries of `stages`.
  uint64_t n_stages;
  // Passed to every verb.
  void *self;
  // Verbs.
  struct frt_model_runtime_verbs verbs;
  // Passed to `retain` and `release`.
  void *owner;
  // Adds a reference.
  void (*retain)(void *owner);
  // Gives a reference back.
  void (*release)(void *owner);
  // Asks for an extension; only there when `struct_size` is at least 136.
  //
  // Clears `*out` first. 0: `*out` is a table that lives as long as the runtime; -1: null argument or `min_version` 0; -3: not there.
  int (*query_extension)(const struct frt_model_runtime_v1 *rt, uint64_t id, uint32_t min_version, const void **out);
} frt_model_runtime_v1;

// The factory symbol's type: 0 means that `*out` carries one reference.
typedef int (*frt_model_runtime_open_v1_fn)(const char *config_json, struct frt_model_runtime_v1 **out);

// One image of an IMAGE or DEPTH payload.
typedef struct frt_image_view {
  // Bytes of this struct, at least 48.
  uint32_t struct_size;
  // One of `FRT_RT_PIXEL_*`.
  uint32_t pixel_format;
  // First pixel, host memory.
  const void *data;
  // Bytes readable at `data`.
  uint64_t bytes;
  // Pixels in a row.
  int32_t width;
  // Rows.
  int32_t height;
  // Bytes from row to row; 0 means tight rows.
  int32_t stride_bytes;
  // 0.
  uint32_t reserved;
  // Stamp in nanoseconds.
  uint64_t timestamp_ns;
} frt_image_view;

// A stage of a generic plan. The stride of an array of these is frozen.
typedef struct frt_generic_stage_desc_v1 {
  // Name, NUL-terminated, unique, 1 to 255 bytes of UTF-8 without control characters.
  const char *name;
  // One of `FRT_GENERIC_STAGE_*`.
  uint32_t executor_kind;
  // Index of a graph, or a number that only the runner understands.
  uint32_t executor_ref;
  // Entries of `after`.
  uint32_t n_after;
  // Earlier stages, strictly increasing.
  const uint32_t *after;
} frt_generic_stage_desc_v1;

// The generic stage plan of a model runtime (extension `FRT_EXT_GENERIC_STAGE_PLAN_V1`).
typedef struct frt_generic_stage_plan_ext_v1 {
  // At least `FRT_GENERIC_STAGE_PLAN_ABI_VERSION`.
  uint32_t abi_version;
  // Bytes of this struct, at least 40.
  uint32_t struct_size;
  // Stages in declared order.
  const struct frt_generic_stage_desc_v1 *stages;
  // Entries of `stages`.
  uint64_t n_stages;
  // Passed to `run_opaque`.
  void *stage_self;
  // Executes an OPAQUE stage; complete on return. 0 is success.
  int (*run_opaque)(void *stage_self, uint32_t executor_ref);
} frt_generic_stage_plan_ext_v1;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Starts a declaration of a provider that owns no streams, graphs or buffers: it takes identity pairs, a manifest, STAGED and SETUP
// ports without a window, and OPAQUE stages only.
frt_runtime_builder frt_model_runtime_builder_create_metadata(void);

// Declares a port. 0, or -1: null builder; null or empty name; direction above 1; update class above 2; null shape with a rank, or a
// rank above 2^20; in a metadata builder a SWAP port or a window. Other numbers are taken as they are.
//
// Safety:
// `name` is null or NUL-terminated; `shape` is null or has `rank` entries.
int frt_runtime_builder_add_port(frt_runtime_builder b,
                                 const char *name,
                                 uint32_t modality,
                                 uint32_t dtype,
                                 uint32_t layout,
                                 uint32_t direction,
                                 uint32_t update,
                                 uint32_t required,
                                 const int64_t *shape,
                                 uint32_t rank,
                                 uint32_t cadence_hint_hz,
                                 frt_buffer buffer,
                                 uint64_t offset,
                                 uint64_t bytes);

// Declares a stage that replays graph `graph` of the export. 0, or -1: null builder; metadata builder; a generic plan is present; null
// `after` with a count; a graph that is not declared yet; a dependency on a stage that is not earlier.
//
// Safety:
// `after` is null or has `n_after` entries.
int frt_runtime_builder_add_stage(frt_runtime_builder b, uint32_t graph, const uint32_t *after, uint32_t n_after);

// Declares a stage of a generic plan. 0, or -1: null builder; graph stages are present; a name that is not 1 to 255 bytes of UTF-8
// without control characters; kind above 1; null `after` with a count; in a metadata builder a GRAPH stage; a graph that is not declared
// yet; a name that is taken; dependencies that are not strictly increasing and earlier.
//
// Safety:
// `name` is null or NUL-terminated; `after` is null or has `n_after` entries.
int frt_runtime_builder_add_generic_stage(frt_runtime_builder b,
                                          const char *name,
                                          uint32_t executor_kind,
                                          uint32_t executor_ref,
                                          const uint32_t *after,
                                          uint32_t n_after);

// Sets what executes OPAQUE stages; a generic plan counts as present from here on. 0, or -1: null builder or function; graph stages are
// present; called twice.
//
// Safety:
// `run_opaque` accepts `stage_self` as long as the model lives.
int frt_runtime_builder_set_generic_stage_runner(frt_runtime_builder b, void *stage_self, int (*run_opaque)(void *stage_self, uint32_t executor_ref));

// Ends the declaration as a model with one reference, which its export shares. The verbs are copied; missing ones answer -3.
// `retain_owner(owner)` is called once here, `release_owner(owner)` once when the last reference is gone; each may be null.
//
// Null, with the builder still usable and nothing retained, checked in this order: a STAGED port without its verb; graph stages and a
// generic plan; a generic plan without a stage, an OPAQUE stage, a runner or `last_error`; neither stages nor `step`.
//
// Safety:
// `verbs` is null or as long as it says; the callbacks accept `owner`, the verbs `verbs_self`, as long as the model lives.
struct frt_model_runtime_v1 *frt_runtime_builder_finish_model(frt_runtime_builder b,
                                                              const struct frt_model_runtime_verbs *verbs,
                                                              void *verbs_self,
                                                              void *owner,
                                                              void (*retain_owner)(void *owner),
                                                              void (*release_owner)(void *owner));

// Puts ports, stages and verbs over an export that exists. Names, shapes and dependencies are copied, one reference to the export is
// taken. Identity and fingerprint are the export's. When the last reference is gone: `wrapper_release(wrapper_owner)`, then the export.
//
// Null, with nothing retained: an export that is null, of another version or too small, without context, `retain` or `release`, or with a
// null array and a count; no stages; a null array with a count; a port that the builder would refuse; a STAGED port without its verb; a
// stage whose graph the export lacks or that depends on a stage that is not earlier.
//
// Safety:
// `exp` is null or an export to which the caller holds a reference; arrays are null or as long as their counts say, names NUL-terminated;
// `verbs` is null or as long as it says; `wrapper_release` accepts `wrapper_owner`.
struct frt_model_runtime_v1 *frt_model_runtime_wrap(const frt_runtime_export_v1 *exp,
                                                    const struct frt_runtime_port_desc *ports,
                                                    uint64_t n_ports,
                                                    const struct frt_runtime_stage_desc *stages,
                                                    uint64_t n_stages,
                                                    const struct frt_model_runtime_verbs *verbs,
                                                    void *verbs_self,
                                                    void *wrapper_owner,
                                                    void (*wrapper_release)(void *owner));

// Keeps the declaration of the model `base` (export, ports, stages, generic plan) and replaces its verbs. One reference to the base is
// taken, then `retain_owner(owner)` is called; when the last reference is gone: `release_owner(owner)`, then the base. Over a generic plan
// the stages, their error texts and extension queries stay the base's.
//
// Null, with nothing retained: a base that is null, of another version, below 128 bytes, without export, `retain` or `release`, or with a
// null array and a count; a port or stage that could not have been declared; a STAGED port without its verb in the new table; a generic
// plan that is not whole, has a GRAPH stage or stands beside graph stages; neither stages nor a generic plan.
//
// Safety:
// `base` is null or a model to which the caller holds a reference and whose arrays are as long as their counts say; `verbs` is null or as
// long as it says; the callbacks accept `owner`, the verbs `verbs_self`, as long as the model lives.
struct frt_model_runtime_v1 *frt_model_runtime_override_verbs(const struct frt_model_runtime_v1 *base,
                                                              const struct frt_model_runtime_verbs *verbs,
                                                              void *verbs_self,
                                                              void *owner,
                                                              void (*retain_owner)(void *owner),
                                                              void (*release_owner)(void *owner));

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* FLASHRT_MODEL_RUNTIME_H */
