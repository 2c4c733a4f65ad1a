/* Every published function under the type that programs were compiled with: a header that drifts does not compile, and a library that
   lacks one does not link. C11 and C++17. */
#include <stddef.h>
#include <stdint.h>

#include "capsule/capsule.h"
#include "flashrt/model_runtime.h"

/* IS(result, name, arguments): `name` is exactly `result (*)(arguments)`. */
#define IS(result, name, ...)               \
  do {                                      \
    result (*function)(__VA_ARGS__) = name; \
    count += function != NULL;              \
  } while (0)

int main(void) {
  int count = 0;

  /* exec.h */
  IS(frt_ctx, frt_ctx_create, void);
  IS(void, frt_ctx_destroy, frt_ctx);
  IS(int, frt_ctx_stream, frt_ctx, int);
  IS(int, frt_ctx_wrap_stream, frt_ctx, void *);
  IS(frt_event, frt_ctx_event, frt_ctx);
  IS(void, frt_event_destroy, frt_event);
  IS(int, frt_event_record, frt_event, int);
  IS(int, frt_stream_wait, frt_ctx, int, frt_event);
  IS(frt_buffer, frt_buffer_alloc, frt_ctx, const char *, size_t);
  IS(frt_buffer, frt_buffer_wrap, frt_ctx, const char *, void *, size_t);
  IS(void *, frt_buffer_dptr, frt_buffer);
  IS(size_t, frt_buffer_bytes, frt_buffer);
  IS(const char *, frt_buffer_name, frt_buffer);
  IS(int, frt_buffer_copy, frt_ctx, frt_buffer, size_t, frt_buffer, size_t, size_t, int);
  IS(frt_graph, frt_graph_create, frt_ctx, const char *, size_t);
  IS(void, frt_graph_destroy, frt_graph);
  IS(int, frt_graph_capture, frt_graph, frt_shape_key, void (*)(void *, void *), void *);
  IS(int, frt_graph_adopt, frt_graph, frt_shape_key, void *);
  IS(int, frt_graph_bind, frt_graph, const char *, frt_buffer);
  IS(int, frt_graph_replay, frt_graph, frt_shape_key, int);
  IS(int, frt_graph_has_variant, frt_graph, frt_shape_key);
  IS(int, frt_graph_evict, frt_graph, frt_shape_key);
  IS(int, frt_graph_evict_lru, frt_graph);
  IS(size_t, frt_graph_variant_count, frt_graph);
  IS(frt_plan, frt_plan_create, frt_ctx);
  IS(void, frt_plan_destroy, frt_plan);
  IS(int, frt_plan_add, frt_plan, frt_graph, frt_shape_key, int);
  IS(int, frt_plan_after, frt_plan, int, int);
  IS(int, frt_plan_execute, frt_plan, frt_shape_key);
  IS(int, frt_plan_sync, frt_plan);

  /* runtime.h */
  IS(frt_runtime_builder, frt_runtime_builder_create, frt_ctx);
  IS(int, frt_runtime_builder_add_stream, frt_runtime_builder, const char *, int, int, void *);
  IS(int, frt_runtime_builder_add_graph, frt_runtime_builder, const char *, frt_graph, frt_shape_key, const frt_shape_key *,
     uint64_t, int);
  IS(int, frt_runtime_builder_add_buffer, frt_runtime_builder, const char *, frt_buffer, uint64_t, uint32_t);
  IS(int, frt_runtime_builder_add_region, frt_runtime_builder, const char *, frt_buffer, uint64_t, uint64_t, uint32_t);
  IS(int, frt_runtime_builder_add_identity, frt_runtime_builder, const char *, const char *);
  IS(int, frt_runtime_builder_set_manifest, frt_runtime_builder, const char *);
  IS(frt_runtime_export_v1 *, frt_runtime_builder_finish, frt_runtime_builder, void *, void (*)(void *), void (*)(void *));
  IS(uint64_t, frt_runtime_fingerprint, const void *, size_t);

  /* model_runtime.h */
  IS(int, frt_runtime_builder_add_port, frt_runtime_builder, const char *, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t,
     uint32_t, const int64_t *, uint32_t, uint32_t, frt_buffer, uint64_t, uint64_t);
  IS(int, frt_runtime_builder_add_stage, frt_runtime_builder, uint32_t, const uint32_t *, uint32_t);
  IS(int, frt_runtime_builder_add_generic_stage, frt_runtime_builder, const char *, uint32_t, uint32_t, const uint32_t *,
     uint32_t);
  IS(int, frt_runtime_builder_set_generic_stage_runner, frt_runtime_builder, void *, int (*)(void *, uint32_t));
  IS(frt_model_runtime_v1 *, frt_runtime_builder_finish_model, frt_runtime_builder, const frt_model_runtime_verbs *, void *,
     void *, void (*)(void *), void (*)(void *));
  IS(frt_runtime_builder, frt_model_runtime_builder_create_metadata, void);
  IS(frt_model_runtime_v1 *, frt_model_runtime_wrap, const frt_runtime_export_v1 *, const frt_runtime_port_desc *, uint64_t,
     const frt_runtime_stage_desc *, uint64_t, const frt_model_runtime_verbs *, void *, void *, void (*)(void *));
  IS(frt_model_runtime_v1 *, frt_model_runtime_override_verbs, const frt_model_runtime_v1 *, const frt_model_runtime_verbs *,
     void *, void *, void (*)(void *), void (*)(void *));

  /* capsule.h */
  IS(uint32_t, cap_abi_version, void);
  IS(cap_ctx, cap_ctx_create, const cap_backend *);
  IS(void, cap_ctx_destroy, cap_ctx);
  IS(uint64_t, cap_ctx_fingerprint, cap_ctx);
  IS(cap_capsule, cap_snapshot, cap_ctx, const cap_boundary *, int, int);
  IS(int, cap_capsule_ready, cap_ctx, cap_capsule);
  IS(int, cap_restore, cap_ctx, cap_capsule, int);
  IS(int, cap_restore_into, cap_ctx, cap_capsule, const cap_region *, int, int);
  IS(int, cap_regions, cap_ctx, cap_capsule, cap_region_view *, int *);
  IS(int, cap_tier_move, cap_ctx, cap_capsule, int, int);
  IS(int, cap_serialize, cap_ctx, cap_capsule, void *, size_t *);
  IS(cap_capsule, cap_load, cap_ctx, const void *, size_t);
  IS(void, cap_capsule_drop, cap_ctx, cap_capsule);
  IS(int, cap_fire, cap_ctx, const cap_stage *);
  IS(int, cap_drive_tick, cap_ctx, const cap_schedule *, uint64_t, int *);
  IS(int, cap_swap, cap_ctx, cap_buffer, const void *, size_t, int);
  IS(int, cap_sync, cap_ctx, int);

  return count == 64 ? 0 : 1;
}
