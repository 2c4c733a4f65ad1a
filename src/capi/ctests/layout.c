/* Sizes, offsets and numbers that programs were compiled with. C11 and C++17; nothing of it runs. */
#include <assert.h>
#include <stddef.h>

#include "capsule/capsule.h"
#include "flashrt/model_runtime.h"

#define SIZE(type, size) static_assert(sizeof(type) == (size), #type " has " #size " bytes")
#define AT(type, field, offset) static_assert(offsetof(type, field) == (offset), #type "." #field " is at " #offset)
#define VALUE(name, value) static_assert((name) == (value), #name " is " #value)

static_assert(sizeof(void *) == 8, "the layouts are those of 64-bit programs");

/* ---- exec.h ---------------------------------------------------------------------------------------------------------- */
SIZE(frt_ctx, 8);
SIZE(frt_shape_key, 8);
static_assert((frt_shape_key)-1 > 0, "a shape key is unsigned");
VALUE(FRT_KEY_INHERIT, UINT64_MAX);
VALUE(FRT_OK, 0);
VALUE(FRT_ERR_INVALID, -1);
VALUE(FRT_ERR_NO_VARIANT, -2);
VALUE(FRT_ERR_UNBOUND, -3);
VALUE(FRT_ERR_CAPTURE, -4);
VALUE(FRT_ERR_BACKEND, -5);
VALUE(FRT_ERR_OOM, -6);
VALUE(FRT_BACKEND_CPU, 0);
VALUE(FRT_BACKEND_CUDA, 1);

/* ---- runtime.h ------------------------------------------------------------------------------------------------------- */
VALUE(FRT_RUNTIME_ABI_VERSION, 1u);
VALUE(FRT_RT_ROLE_INPUT, 1);
VALUE(FRT_RT_ROLE_OUTPUT, 2);
VALUE(FRT_RT_ROLE_STATE, 4);
VALUE(FRT_RT_ROLE_SCRATCH, 8);
VALUE(FRT_RT_REGION_SNAPSHOT, 1);
VALUE(FRT_RT_REGION_RESTORE, 2);
static_assert(sizeof(FRT_RUNTIME_OPEN_V1_SYMBOL) == sizeof("frt_runtime_open_v1"), "name of the export's factory");

SIZE(frt_runtime_stream_desc, 24);
AT(frt_runtime_stream_desc, name, 0);
AT(frt_runtime_stream_desc, stream_id, 8);
AT(frt_runtime_stream_desc, priority, 12);
AT(frt_runtime_stream_desc, native_handle, 16);

SIZE(frt_runtime_graph_desc, 48);
AT(frt_runtime_graph_desc, name, 0);
AT(frt_runtime_graph_desc, handle, 8);
AT(frt_runtime_graph_desc, default_key, 16);
AT(frt_runtime_graph_desc, keys, 24);
AT(frt_runtime_graph_desc, n_keys, 32);
AT(frt_runtime_graph_desc, stream_id, 40);

SIZE(frt_runtime_buffer_desc, 32);
AT(frt_runtime_buffer_desc, name, 0);
AT(frt_runtime_buffer_desc, handle, 8);
AT(frt_runtime_buffer_desc, bytes, 16);
AT(frt_runtime_buffer_desc, role, 24);
AT(frt_runtime_buffer_desc, reserved, 28);

SIZE(frt_runtime_region_desc, 40);
AT(frt_runtime_region_desc, name, 0);
AT(frt_runtime_region_desc, buffer, 8);
AT(frt_runtime_region_desc, offset, 16);
AT(frt_runtime_region_desc, bytes, 24);
AT(frt_runtime_region_desc, flags, 32);
AT(frt_runtime_region_desc, reserved, 36);

SIZE(frt_runtime_export_v1, 128);
AT(frt_runtime_export_v1, abi_version, 0);
AT(frt_runtime_export_v1, struct_size, 4);
AT(frt_runtime_export_v1, ctx, 8);
AT(frt_runtime_export_v1, streams, 16);
AT(frt_runtime_export_v1, n_streams, 24);
AT(frt_runtime_export_v1, graphs, 32);
AT(frt_runtime_export_v1, n_graphs, 40);
AT(frt_runtime_export_v1, buffers, 48);
AT(frt_runtime_export_v1, n_buffers, 56);
AT(frt_runtime_export_v1, capsule_regions, 64);
AT(frt_runtime_export_v1, n_capsule_regions, 72);
AT(frt_runtime_export_v1, fingerprint, 80);
AT(frt_runtime_export_v1, identity, 88);
AT(frt_runtime_export_v1, manifest_json, 96);
AT(frt_runtime_export_v1, owner, 104);
AT(frt_runtime_export_v1, retain, 112);
AT(frt_runtime_export_v1, release, 120);

/* ---- model_runtime.h ------------------------------------------------------------------------------------------------- */
VALUE(FRT_MODEL_RUNTIME_ABI_VERSION, 1u);
VALUE(FRT_MODEL_RUNTIME_V1_BASE_SIZE, 128u);
VALUE(FRT_MODEL_RUNTIME_V1_QUERY_EXTENSION_SIZE, 136u);
VALUE(FRT_EXT_GENERIC_STAGE_PLAN_V1, 1u);
VALUE(FRT_GENERIC_STAGE_PLAN_ABI_VERSION, 1u);
VALUE(FRT_GENERIC_STAGE_PLAN_EXT_V1_SIZE, 40u);
VALUE(FRT_GENERIC_STAGE_NAME_MAX_BYTES, 255u);
VALUE(FRT_GENERIC_STAGE_GRAPH, 0u);
VALUE(FRT_GENERIC_STAGE_OPAQUE, 1u);
VALUE(FRT_RT_MOD_TENSOR, 0);
VALUE(FRT_RT_MOD_IMAGE, 1);
VALUE(FRT_RT_MOD_TEXT, 2);
VALUE(FRT_RT_MOD_STATE, 3);
VALUE(FRT_RT_MOD_ACTION, 4);
VALUE(FRT_RT_MOD_AUDIO, 5);
VALUE(FRT_RT_MOD_DEPTH, 6);
VALUE(FRT_RT_MOD_FORCE, 7);
VALUE(FRT_RT_DTYPE_U8, 0);
VALUE(FRT_RT_DTYPE_F32, 1);
VALUE(FRT_RT_DTYPE_F16, 2);
VALUE(FRT_RT_DTYPE_BF16, 3);
VALUE(FRT_RT_DTYPE_I32, 4);
VALUE(FRT_RT_DTYPE_I64, 5);
VALUE(FRT_RT_LAYOUT_FLAT, 0);
VALUE(FRT_RT_LAYOUT_HWC, 1);
VALUE(FRT_RT_LAYOUT_NHWC, 2);
VALUE(FRT_RT_LAYOUT_CHW, 3);
VALUE(FRT_RT_LAYOUT_NCHW, 4);
VALUE(FRT_RT_PIXEL_RGB8, 0);
VALUE(FRT_RT_PIXEL_BGR8, 1);
VALUE(FRT_RT_PIXEL_RGBA8, 2);
VALUE(FRT_RT_PIXEL_BGRA8, 3);
VALUE(FRT_RT_PIXEL_GRAY8, 4);
VALUE(FRT_RT_PORT_IN, 0);
VALUE(FRT_RT_PORT_OUT, 1);
VALUE(FRT_RT_PORT_SWAP, 0);
VALUE(FRT_RT_PORT_STAGED, 1);
VALUE(FRT_RT_PORT_SETUP, 2);
static_assert(sizeof(FRT_MODEL_RUNTIME_OPEN_V1_SYMBOL) == sizeof("frt_model_runtime_open_v1"),
              "name of the model runtime's factory");

SIZE(frt_image_view, 48);
AT(frt_image_view, struct_size, 0);
AT(frt_image_view, pixel_format, 4);
AT(frt_image_view, data, 8);
AT(frt_image_view, bytes, 16);
AT(frt_image_view, width, 24);
AT(frt_image_view, height, 28);
AT(frt_image_view, stride_bytes, 32);
AT(frt_image_view, reserved, 36);
AT(frt_image_view, timestamp_ns, 40);

SIZE(frt_runtime_port_desc, 72);
AT(frt_runtime_port_desc, name, 0);
AT(frt_runtime_port_desc, modality, 8);
AT(frt_runtime_port_desc, dtype, 12);
AT(frt_runtime_port_desc, layout, 16);
AT(frt_runtime_port_desc, direction, 20);
AT(frt_runtime_port_desc, update, 24);
AT(frt_runtime_port_desc, required, 28);
AT(frt_runtime_port_desc, shape, 32);
AT(frt_runtime_port_desc, rank, 40);
AT(frt_runtime_port_desc, cadence_hint_hz, 44);
AT(frt_runtime_port_desc, buffer, 48);
AT(frt_runtime_port_desc, offset, 56);
AT(frt_runtime_port_desc, bytes, 64);

SIZE(frt_runtime_stage_desc, 16);
AT(frt_runtime_stage_desc, graph, 0);
AT(frt_runtime_stage_desc, n_after, 4);
AT(frt_runtime_stage_desc, after, 8);

SIZE(frt_generic_stage_desc_v1, 32);
AT(frt_generic_stage_desc_v1, name, 0);
AT(frt_generic_stage_desc_v1, executor_kind, 8);
AT(frt_generic_stage_desc_v1, executor_ref, 12);
AT(frt_generic_stage_desc_v1, n_after, 16);
AT(frt_generic_stage_desc_v1, after, 24);

SIZE(frt_generic_stage_plan_ext_v1, 40);
AT(frt_generic_stage_plan_ext_v1, abi_version, 0);
AT(frt_generic_stage_plan_ext_v1, struct_size, 4);
AT(frt_generic_stage_plan_ext_v1, stages, 8);
AT(frt_generic_stage_plan_ext_v1, n_stages, 16);
AT(frt_generic_stage_plan_ext_v1, stage_self, 24);
AT(frt_generic_stage_plan_ext_v1, run_opaque, 32);

SIZE(frt_model_runtime_verbs, 48);
AT(frt_model_runtime_verbs, struct_size, 0);
AT(frt_model_runtime_verbs, reserved, 4);
AT(frt_model_runtime_verbs, set_input, 8);
AT(frt_model_runtime_verbs, get_output, 16);
AT(frt_model_runtime_verbs, prepare, 24);
AT(frt_model_runtime_verbs, step, 32);
AT(frt_model_runtime_verbs, last_error, 40);

SIZE(frt_model_runtime_v1, 136);
AT(frt_model_runtime_v1, abi_version, 0);
AT(frt_model_runtime_v1, struct_size, 4);
AT(frt_model_runtime_v1, exp, 8);
AT(frt_model_runtime_v1, ports, 16);
AT(frt_model_runtime_v1, n_ports, 24);
AT(frt_model_runtime_v1, stages, 32);
AT(frt_model_runtime_v1, n_stages, 40);
AT(frt_model_runtime_v1, self, 48);
AT(frt_model_runtime_v1, verbs, 56);
AT(frt_model_runtime_v1, owner, 104);
AT(frt_model_runtime_v1, retain, 112);
AT(frt_model_runtime_v1, release, 120);
AT(frt_model_runtime_v1, query_extension, 128);

/* ---- capsule.h ------------------------------------------------------------------------------------------------------- */
VALUE(CAP_ABI_VERSION, 1u);
VALUE(CAP_DEV, 0);
VALUE(CAP_HOST, 1);
VALUE(CAP_TIER_GPU, 0);
VALUE(CAP_TIER_HOST, 1);
VALUE(CAP_TIER_DISK, 2);
VALUE(CAP_EVERY, 0);
VALUE(CAP_ON_EVENT, 1);
VALUE(CAP_ON_DEMAND, 2);
VALUE(CAP_OK, 0);
VALUE(CAP_ERR, -1);
VALUE(CAP_ERR_FINGERPRINT, -2);
VALUE(CAP_ERR_ARG, -3);
VALUE(CAP_ERR_NOMEM, -4);
VALUE(CAP_ERR_BACKEND, -5);
VALUE(CAP_ERR_VERSION, -6);
VALUE(CAP_ERR_FORMAT, -7);

SIZE(cap_region, 24);
AT(cap_region, buf, 0);
AT(cap_region, off, 8);
AT(cap_region, bytes, 16);

SIZE(cap_boundary, 32);
AT(cap_boundary, regions, 0);
AT(cap_boundary, n_regions, 8);
AT(cap_boundary, meta, 16);
AT(cap_boundary, meta_len, 24);

SIZE(cap_region_view, 16);
AT(cap_region_view, ptr, 0);
AT(cap_region_view, bytes, 8);

SIZE(cap_stage, 40);
AT(cap_stage, graph, 0);
AT(cap_stage, key, 8);
AT(cap_stage, stream, 16);
AT(cap_stage, priority, 20);
AT(cap_stage, cadence_num, 24);
AT(cap_stage, cadence_den, 28);
AT(cap_stage, trigger, 32);

SIZE(cap_schedule, 32);
AT(cap_schedule, stages, 0);
AT(cap_schedule, n_stages, 8);
AT(cap_schedule, deps, 16);
AT(cap_schedule, n_deps, 24);

SIZE(cap_backend, 168);
AT(cap_backend, abi_version, 0);
AT(cap_backend, struct_size, 4);
AT(cap_backend, self, 8);
AT(cap_backend, buffer_alloc, 16);
AT(cap_backend, buffer_wrap, 24);
AT(cap_backend, buffer_ptr, 32);
AT(cap_backend, buffer_bytes, 40);
AT(cap_backend, buffer_copy, 48);
AT(cap_backend, buffer_upload, 56);
AT(cap_backend, buffer_download, 64);
AT(cap_backend, buffer_free, 72);
AT(cap_backend, graph_replay, 80);
AT(cap_backend, graph_has, 88);
AT(cap_backend, graph_bind, 96);
AT(cap_backend, stream, 104);
AT(cap_backend, event, 112);
AT(cap_backend, event_record, 120);
AT(cap_backend, event_query, 128);
AT(cap_backend, stream_wait, 136);
AT(cap_backend, sync, 144);
AT(cap_backend, event_free, 152);
AT(cap_backend, fingerprint, 160);
