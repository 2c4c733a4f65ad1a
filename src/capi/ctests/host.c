/* A host in C: graphs on the CPU, a model that it builds and ticks, a capsule of its state. Exit code 0 when all of it holds. */
#include <stdint.h>
#include <string.h>

#include "capsule/capsule.h"
#include "check.h"
#include "flashrt/model_runtime.h"

enum { COUNT = 16, BYTES = COUNT * (int)sizeof(float) };

/* ---- work that graphs record ------------------------------------------------------------------------------------------- */

/* next = 2 * state + input, element by element. */
struct cell {
  const float *input;
  float *state;
  frt_buffer input_buffer, state_buffer;
};

static void advance(void *user) {
  const struct cell *cell = (const struct cell *)user;
  int i;
  for (i = 0; i < COUNT; i++) cell->state[i] = 2.0f * cell->state[i] + cell->input[i];
}

static void record_advance(void *user, void *stream) { CHECK(frt_stream_host_func(stream, advance, user) == FRT_OK); }

static void record_nothing(void *user, void *stream) {
  (void)stream;
  ++*(int *)user;
}

static void fill(frt_ctx ctx, frt_buffer buffer, float first, float step) {
  float values[COUNT];
  int i;
  for (i = 0; i < COUNT; i++) values[i] = first + step * (float)i;
  CHECK(frt_buffer_upload(ctx, buffer, 0, values, BYTES, 0) == FRT_OK);
}

/* True when the buffer holds first, first + step, ... */
static int holds(frt_ctx ctx, frt_buffer buffer, float first, float step) {
  float values[COUNT];
  int i;
  CHECK(frt_buffer_download(ctx, buffer, 0, values, BYTES, 0) == FRT_OK);
  for (i = 0; i < COUNT; i++) {
    if (values[i] != first + step * (float)i) return 0;
  }
  return 1;
}

/* ---- exec.h ------------------------------------------------------------------------------------------------------------ */

static void statuses_name_what_was_wrong(frt_ctx ctx) {
  frt_graph graph = frt_graph_create(ctx, "empty", 2);
  int calls = 0;
  CHECK(graph != NULL);
  CHECK(frt_graph_replay(graph, 7, 0) == FRT_ERR_NO_VARIANT);
  CHECK(frt_graph_replay(graph, 7, 99) == FRT_ERR_NO_VARIANT); /* the key is looked up first */
  CHECK(frt_graph_replay(NULL, 7, 0) == FRT_ERR_INVALID);
  CHECK(strlen(frt_last_error()) > 0);
  CHECK(frt_graph_evict_lru(graph) == FRT_ERR_NO_VARIANT);
  CHECK(frt_buffer_alloc(ctx, "none", 0) == NULL);
  CHECK(frt_ctx_stream(NULL, 0) == FRT_ERR_INVALID);

  /* Two variants fit: the third takes the place of the least recently used. */
  CHECK(frt_graph_capture(graph, 1, record_nothing, &calls) == FRT_OK);
  CHECK(frt_graph_capture(graph, 2, record_nothing, &calls) == FRT_OK);
  CHECK(frt_graph_replay(graph, 1, 0) == FRT_OK);
  CHECK(frt_graph_capture(graph, 3, record_nothing, &calls) == FRT_OK);
  CHECK(calls == 3);
  CHECK(frt_graph_variant_count(graph) == 2);
  CHECK(frt_graph_has_variant(graph, 1) == 1 && frt_graph_has_variant(graph, 2) == 0 && frt_graph_has_variant(graph, 3) == 1);
  frt_graph_destroy(graph);
  CHECK(frt_graph_replay(graph, 1, 0) == FRT_ERR_INVALID); /* destroyed handles are recognised */
}

static void a_plan_orders_two_streams(frt_ctx ctx, struct cell *cell) {
  frt_graph graph = frt_graph_create(ctx, "advance", 0);
  frt_plan plan = frt_plan_create(ctx);
  frt_event event = frt_ctx_event(ctx);
  int side = frt_ctx_stream(ctx, -1);
  CHECK(graph != NULL && plan != NULL && event != NULL && side == 1);
  CHECK(frt_graph_capture(graph, 5, record_advance, cell) == FRT_OK);

  fill(ctx, cell->state_buffer, 0.0f, 0.0f);
  fill(ctx, cell->input_buffer, 1.0f, 1.0f);
  CHECK(frt_plan_add(plan, graph, FRT_KEY_INHERIT, 0) == 0);
  CHECK(frt_plan_add(plan, graph, 5, side) == 1);
  CHECK(frt_plan_after(plan, 1, 0) == FRT_OK);
  CHECK(frt_plan_after(plan, 1, 1) == FRT_ERR_INVALID);
  CHECK(frt_plan_execute(plan, 5) == FRT_OK);
  CHECK(frt_plan_sync(plan) == FRT_OK);
  CHECK(holds(ctx, cell->state_buffer, 3.0f, 3.0f)); /* 2 * input + input */

  /* The same by hand: the side stream waits for stream 0. */
  CHECK(frt_graph_replay(graph, 5, 0) == FRT_OK);
  CHECK(frt_event_record(event, 0) == FRT_OK);
  CHECK(frt_stream_wait(ctx, side, event) == FRT_OK);
  CHECK(frt_graph_replay(graph, 5, side) == FRT_OK);
  CHECK(frt_stream_sync(ctx, side) == FRT_OK);
  CHECK(frt_event_query(event) == 0);
  CHECK(holds(ctx, cell->state_buffer, 15.0f, 15.0f)); /* 2 * (2 * 3 + 1) + 1 */

  frt_event_destroy(event);
  frt_plan_destroy(plan);
  frt_graph_destroy(graph);
}

/* ---- runtime.h, model_runtime.h ------------------------------------------------------------------------------------------ */

struct model {
  frt_ctx ctx;
  frt_graph graph;
  struct cell cell;
  int retained, released;
  const char *error;
};

static int set_input(void *self, uint32_t port, const void *data, uint64_t bytes, int stream) {
  struct model *model = (struct model *)self;
  if (port != 0) return model->error = "the only input is port 0", -2;
  if (bytes != BYTES) return model->error = "the input has 16 floats", -4;
  return frt_buffer_upload(model->ctx, model->cell.input_buffer, 0, data, BYTES, stream < 0 ? 0 : stream) == FRT_OK ? 0 : -6;
}

static int get_output(void *self, uint32_t port, void *out, uint64_t capacity, uint64_t *written, int stream) {
  struct model *model = (struct model *)self;
  if (port != 1) return model->error = "the only output is port 1", -2;
  *written = BYTES;
  if (capacity < BYTES) return model->error = "the output needs 64 bytes", -5;
  return frt_buffer_download(model->ctx, model->cell.state_buffer, 0, out, BYTES, stream < 0 ? 0 : stream) == FRT_OK ? 0 : -6;
}

static int step(void *self) {
  struct model *model = (struct model *)self;
  return frt_graph_replay(model->graph, 5, 0) == FRT_OK ? 0 : -6;
}

static const char *last_error(void *self) { return ((struct model *)self)->error; }
static void retain_model(void *owner) { ((struct model *)owner)->retained++; }
static void release_model(void *owner) { ((struct model *)owner)->released++; }

static frt_model_runtime_v1 *build_model(struct model *model) {
  static const int64_t shape[] = {COUNT};
  const frt_shape_key key = 5;
  frt_model_runtime_verbs verbs;
  frt_model_runtime_v1 *runtime;
  frt_runtime_builder b = frt_runtime_builder_create(model->ctx);
  CHECK(b != NULL);
  CHECK(frt_runtime_builder_add_identity(b, "model", "host.c") == 0);
  CHECK(frt_runtime_builder_add_stream(b, "main", 0, 0, NULL) == 0);
  CHECK(frt_runtime_builder_add_graph(b, "advance", model->graph, key, &key, 1, 0) == 0);
  CHECK(frt_runtime_builder_add_buffer(b, "input", model->cell.input_buffer, BYTES, FRT_RT_ROLE_INPUT) == 0);
  CHECK(frt_runtime_builder_add_buffer(b, "state", model->cell.state_buffer, BYTES, FRT_RT_ROLE_STATE | FRT_RT_ROLE_OUTPUT) == 0);
  CHECK(frt_runtime_builder_add_region(b, "state", model->cell.state_buffer, 0, BYTES,
                                       FRT_RT_REGION_SNAPSHOT | FRT_RT_REGION_RESTORE) == 0);
  CHECK(frt_runtime_builder_add_port(b, "input", FRT_RT_MOD_TENSOR, FRT_RT_DTYPE_F32, FRT_RT_LAYOUT_FLAT, FRT_RT_PORT_IN,
                                     FRT_RT_PORT_STAGED, 1, shape, 1, 0, NULL, 0, 0) == 0);
  CHECK(frt_runtime_builder_add_port(b, "state", FRT_RT_MOD_ACTION, FRT_RT_DTYPE_F32, FRT_RT_LAYOUT_FLAT, FRT_RT_PORT_OUT,
                                     FRT_RT_PORT_STAGED, 0, shape, 1, 0, NULL, 0, 0) == 0);
  CHECK(frt_runtime_builder_add_stage(b, 0, NULL, 0) == 0);
  CHECK(frt_runtime_builder_add_stage(b, 1, NULL, 0) == FRT_ERR_INVALID); /* there is one graph */

  /* A STAGED port without its verb is refused, and the builder can go on. */
  CHECK(frt_runtime_builder_finish_model(b, NULL, NULL, model, retain_model, release_model) == NULL);
  CHECK(model->retained == 0);

  memset(&verbs, 0, sizeof verbs);
  verbs.struct_size = sizeof verbs;
  verbs.set_input = set_input;
  verbs.get_output = get_output;
  verbs.step = step;
  verbs.last_error = last_error;
  runtime = frt_runtime_builder_finish_model(b, &verbs, model, model, retain_model, release_model);
  CHECK(runtime != NULL);
  CHECK(model->retained == 1 && model->released == 0);
  return runtime;
}

static void tick(frt_model_runtime_v1 *runtime, float first, float step_) {
  float input[COUNT];
  int i;
  for (i = 0; i < COUNT; i++) input[i] = first + step_ * (float)i;
  CHECK(runtime->verbs.set_input(runtime->self, 0, input, sizeof input, -1) == 0);
  CHECK(runtime->verbs.step(runtime->self) == 0);
}

static void a_model_is_built_and_ticked(frt_model_runtime_v1 *runtime) {
  static const char identity[] =
      "frt-runtime-identity-v1\nmodel=host.c\ngraph:advance:0\nregion:0:state:0:64:3\n"
      "port:0:input:0:1:0:0:1:1:16:-1:0:0\nport:1:state:4:1:0:1:1:0:16:-1:0:0\nstage:0:0:\n";
  const frt_runtime_export_v1 *exp = runtime->exp;
  float out[COUNT];
  uint64_t written = 0;
  const void *plan = &out;
  int i;
  CHECK(runtime->abi_version == FRT_MODEL_RUNTIME_ABI_VERSION && runtime->struct_size >= FRT_MODEL_RUNTIME_V1_BASE_SIZE);
  CHECK(exp->abi_version == FRT_RUNTIME_ABI_VERSION && exp->struct_size == sizeof *exp);
  CHECK(strcmp(exp->identity, identity) == 0);
  CHECK(exp->fingerprint == frt_runtime_fingerprint(identity, strlen(identity)));
  CHECK(exp->n_graphs == 1 && exp->graphs[0].keys[0] == 5 && exp->n_buffers == 2 && exp->n_capsule_regions == 1);
  CHECK(runtime->n_ports == 2 && runtime->ports[0].shape[0] == COUNT && runtime->n_stages == 1);

  tick(runtime, 1.0f, 0.0f);
  tick(runtime, 0.0f, 1.0f);
  CHECK(runtime->verbs.get_output(runtime->self, 1, out, sizeof out - 1, &written, -1) == -5 && written == BYTES);
  CHECK(strcmp(runtime->verbs.last_error(runtime->self), "the output needs 64 bytes") == 0);
  CHECK(runtime->verbs.get_output(runtime->self, 1, out, sizeof out, &written, -1) == 0);
  for (i = 0; i < COUNT; i++) CHECK(out[i] == 2.0f + (float)i);
  CHECK(runtime->verbs.prepare(runtime->self, 0, 6) == -3); /* a stub: the producer gave none */

  CHECK(runtime->struct_size >= FRT_MODEL_RUNTIME_V1_QUERY_EXTENSION_SIZE);
  CHECK(runtime->query_extension(runtime, FRT_EXT_GENERIC_STAGE_PLAN_V1, 1, &plan) == -3 && plan == NULL);
}

/* ---- capsule.h --------------------------------------------------------------------------------------------------------- */

static void a_capsule_brings_the_state_back(frt_model_runtime_v1 *runtime, struct model *model) {
  const frt_runtime_region_desc *region = &runtime->exp->capsule_regions[0];
  cap_backend backend;
  cap_region live, branch;
  cap_boundary boundary;
  cap_region_view view;
  cap_stage stage;
  cap_capsule capsule, loaded;
  cap_ctx cap;
  frt_buffer other = frt_buffer_alloc(model->ctx, "branch", BYTES);
  unsigned char *blob;
  size_t size = 0;
  const void *meta = NULL;
  int n = 0;

  CHECK(other != NULL);
  CHECK(cap_backend_init_frt(&backend, model->ctx, runtime->exp->fingerprint) == CAP_OK);
  cap = cap_ctx_create(&backend);
  CHECK(cap != NULL && cap_ctx_fingerprint(cap) == runtime->exp->fingerprint);

  live.buf = (cap_buffer)region->buffer;
  live.off = region->offset;
  live.bytes = region->bytes;
  boundary.regions = &live;
  boundary.n_regions = 1;
  boundary.meta = "tick 2";
  boundary.meta_len = 6;
  capsule = cap_snapshot(cap, &boundary, CAP_TIER_HOST, 0);
  CHECK(capsule != NULL);
  CHECK(cap_sync(cap, 0) == CAP_OK);
  CHECK(cap_capsule_ready(cap, capsule) == 0);
  CHECK(cap_regions(cap, capsule, NULL, &n) == CAP_OK && n == 1);
  CHECK(cap_regions(cap, capsule, &view, &n) == CAP_OK && view.bytes == BYTES && ((const float *)view.ptr)[3] == 5.0f);

  /* One more tick by the capsule core's own verb, then back, then the same tick: the same bytes. */
  memset(&stage, 0, sizeof stage);
  stage.graph = (cap_graph)model->graph;
  stage.key = 5;
  stage.cadence_num = stage.cadence_den = 1;
  CHECK(cap_fire(cap, &stage) == CAP_OK);
  CHECK(cap_sync(cap, 0) == CAP_OK);
  CHECK(holds(model->ctx, model->cell.state_buffer, 4.0f, 3.0f));
  CHECK(cap_restore(cap, capsule, 0) == CAP_OK);
  CHECK(cap_sync(cap, 0) == CAP_OK);
  CHECK(holds(model->ctx, model->cell.state_buffer, 2.0f, 1.0f));
  stage.key = 6;
  CHECK(cap_fire(cap, &stage) == CAP_ERR_ARG);

  /* As a blob, into another buffer. */
  CHECK(cap_serialize(cap, capsule, NULL, &size) == CAP_OK && size == 32 + 8 + 6 + BYTES);
  blob = (unsigned char *)malloc(size);
  CHECK(blob != NULL);
  CHECK(cap_serialize(cap, capsule, blob, &size) == CAP_OK);
  CHECK(memcmp(blob, "SPAC", 4) == 0);
  loaded = cap_load(cap, blob, size);
  CHECK(loaded != NULL && cap_load_status() == CAP_OK);
  CHECK(cap_capsule_meta(cap, loaded, &meta, &size) == CAP_OK && size == 6 && memcmp(meta, "tick 2", 6) == 0);
  CHECK(cap_restore(cap, loaded, 0) == CAP_ERR_ARG); /* it has no origin */
  branch.buf = (cap_buffer)other;
  branch.off = 0;
  branch.bytes = BYTES;
  CHECK(cap_restore_into(cap, loaded, &branch, 1, 0) == CAP_OK);
  CHECK(cap_sync(cap, 0) == CAP_OK);
  CHECK(holds(model->ctx, other, 2.0f, 1.0f));
  blob[8] ^= 1; /* another fingerprint */
  CHECK(cap_load(cap, blob, 32 + 8 + 6 + BYTES) == NULL && cap_load_status() == CAP_ERR_FINGERPRINT);
  free(blob);

  cap_capsule_drop(cap, loaded);
  cap_capsule_drop(cap, capsule);
  cap_ctx_destroy(cap);
  cap_backend_done_frt(&backend);
}

int main(void) {
  struct model model;
  frt_model_runtime_v1 *runtime;
  frt_ctx ctx = frt_ctx_create_with(FRT_BACKEND_CPU, 0);
  CHECK(ctx != NULL && frt_ctx_backend(ctx) == FRT_BACKEND_CPU);
  CHECK(cap_abi_version() == CAP_ABI_VERSION);
  statuses_name_what_was_wrong(ctx);

  memset(&model, 0, sizeof model);
  model.ctx = ctx;
  model.error = "";
  model.cell.input_buffer = frt_buffer_alloc(ctx, "input", BYTES);
  model.cell.state_buffer = frt_buffer_alloc(ctx, "state", BYTES);
  model.cell.input = (const float *)frt_buffer_dptr(model.cell.input_buffer);
  model.cell.state = (float *)frt_buffer_dptr(model.cell.state_buffer);
  CHECK(model.cell.input != NULL && model.cell.state != NULL);
  CHECK(strcmp(frt_buffer_name(model.cell.state_buffer), "state") == 0 && frt_buffer_bytes(model.cell.state_buffer) == BYTES);
  a_plan_orders_two_streams(ctx, &model.cell);

  model.graph = frt_graph_create(ctx, "advance", 1);
  CHECK(frt_graph_capture(model.graph, 5, record_advance, &model.cell) == FRT_OK);
  fill(ctx, model.cell.state_buffer, 0.0f, 0.0f);
  runtime = build_model(&model);
  a_model_is_built_and_ticked(runtime);
  a_capsule_brings_the_state_back(runtime, &model);

  runtime->retain(runtime->owner);
  runtime->release(runtime->owner);
  CHECK(model.released == 0);
  runtime->release(runtime->owner);
  CHECK(model.released == 1);
  frt_ctx_destroy(ctx);
  printf("host.c: ok, library %s\n", frt_version());
  return 0;
}
