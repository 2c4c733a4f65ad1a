/* A native producer in C: a small deterministic policy behind the published interface, on the CPU backend.
 *
 *   cc -std=c11 -shared -fPIC -I<include folder> toy_policy.c -o libtoy_policy.so -L<library folder> -lflashrt_capi
 *
 * Ports: images (IMAGE STAGED), state (STATE STAGED), prompt (TEXT STAGED), noise (TENSOR SWAP), actions (ACTION STAGED).
 * A tick: `context` condenses images and prompt to two numbers, `action` writes a chunk and draws new noise. The noise is
 * what one tick leaves to the next: it is the declared region.
 *
 *   action[r][c] = state[c] + bright + word + noise[r][c]        in f32, added from left to right
 *   bright = (sum of all image bytes mod 256) / 256,   word = (sum of (i + 1) * prompt byte i, mod 1024) / 1024
 *   new noise[r][c] = ((floor(1024 * noise[r][c]) * 5 + r * dim + c + 1) mod 1024) / 1024
 *
 * Configuration, one flat JSON object: plan (graph, opaque, mixed or step), seed, views, height, width, state_dim, horizon,
 * dim, regions (0: declare none, so that no capsule can be made). Images of another size are sampled to height x width by nearest neighbour.
 *
 * Error texts are per thread for open, per model for the rest. One thread at a time drives a model. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "flashrt/exec.h"
#include "flashrt/model_runtime.h"
#include "flashrt/runtime.h"

#define EXPORT __attribute__((visibility("default")))
#define PROMPT_BYTES 64

enum { PORT_IMAGES, PORT_STATE, PORT_PROMPT, PORT_NOISE, PORT_ACTIONS, PORTS };
enum { STAGE_CONTEXT = 4, STAGE_WEIGH = 7, STAGE_ACTION = 91 };
enum { STREAM_MAIN = 0 };

typedef struct {
  uint32_t sums[2]; /* of image bytes, of weighted prompt bytes */
  float weights[2]; /* bright, word */
} context_state;

typedef struct {
  frt_ctx ctx;
  int action_stream;
  frt_graph context, action;
  frt_buffer images, state, prompt, noise, digest, chunk;
  /* Where they are: host functions call nothing of their context. */
  struct {
    const uint8_t *images, *prompt;
    const float* state;
    float *noise, *chunk;
    context_state* digest;
  } at;
  frt_event context_done;
  int64_t views, height, width, state_dim, horizon, dim, regions;
  char plan[16];
  uint8_t* image_staging; /* of one payload, so that a refused one changes nothing */
  char error[256];
} toy;

static int fail(toy* t, int code, const char* text) {
  snprintf(t->error, sizeof t->error, "%s", text);
  return code;
}

/* ---- the policy, on the CPU backend's memory ---- */

static size_t image_bytes(const toy* t) { return (size_t)(t->views * t->height * t->width * 3); }
static size_t noise_bytes(const toy* t) { return (size_t)(t->horizon * t->dim) * sizeof(float); }

static void sum_up(void* user) {
  toy* t = user;
  uint32_t image = 0, word = 0;
  for (size_t i = 0; i < image_bytes(t); i++) image += t->at.images[i];
  for (uint32_t i = 0; i < PROMPT_BYTES; i++) word += (i + 1) * t->at.prompt[i];
  t->at.digest->sums[0] = image;
  t->at.digest->sums[1] = word;
}

static void weigh(void* user) {
  toy* t = user;
  context_state* s = t->at.digest;
  s->weights[0] = (float)(s->sums[0] % 256) / 256.0f;
  s->weights[1] = (float)(s->sums[1] % 1024) / 1024.0f;
}

static void act(void* user) {
  toy* t = user;
  const context_state* s = t->at.digest;
  float* noise = t->at.noise;
  for (int64_t r = 0; r < t->horizon; r++) {
    for (int64_t c = 0; c < t->dim; c++) {
      int64_t at = r * t->dim + c;
      float value = c < t->state_dim ? t->at.state[c] : 0.0f;
      value += s->weights[0];
      value += s->weights[1];
      value += noise[at];
      t->at.chunk[at] = value;
      /* Noise from outside may be any number. */
      int64_t draw = fabsf(noise[at]) < 1e6f ? (int64_t)floorf(noise[at] * 1024.0f) : 0;
      noise[at] = (float)((draw * 5 + at + 1) & 1023) / 1024.0f;
    }
  }
}

/* ---- graphs ---- */

static void record_context(void* user, void* stream) {
  toy* t = user;
  frt_stream_host_func(stream, sum_up, t);
  if (strcmp(t->plan, "mixed") != 0) frt_stream_host_func(stream, weigh, t);
}

static void record_action(void* user, void* stream) { frt_stream_host_func(stream, act, user); }

/* ---- verbs ---- */

static int set_images(toy* t, const void* data, uint64_t bytes) {
  const frt_image_view* views = data;
  if (bytes != (uint64_t)t->views * sizeof(frt_image_view)) return fail(t, -4, "images: wrong number of views");
  for (int64_t v = 0; v < t->views; v++) {
    const frt_image_view* view = &views[v];
    if (view->struct_size < sizeof(frt_image_view) || !view->data) return fail(t, -1, "images: a view without data");
    int is_bgr = view->pixel_format == FRT_RT_PIXEL_BGR8;
    if (!is_bgr && view->pixel_format != FRT_RT_PIXEL_RGB8) return fail(t, -4, "images: neither rgb8 nor bgr8");
    if (view->width < 1 || view->height < 1) return fail(t, -4, "images: an empty view");
    int64_t stride = view->stride_bytes ? view->stride_bytes : (int64_t)view->width * 3;
    if (stride < (int64_t)view->width * 3) return fail(t, -4, "images: a stride shorter than a row");
    uint64_t need = (uint64_t)(stride * (view->height - 1) + (int64_t)view->width * 3);
    if (view->bytes < need) return fail(t, -5, "images: fewer bytes than rows");
    const uint8_t* from = view->data;
    uint8_t* to = t->image_staging + v * t->height * t->width * 3;
    for (int64_t y = 0; y < t->height; y++) {
      for (int64_t x = 0; x < t->width; x++) {
        const uint8_t* p = from + (y * view->height / t->height) * stride + (x * view->width / t->width) * 3;
        for (int k = 0; k < 3; k++) *to++ = p[is_bgr ? 2 - k : k];
      }
    }
  }
  return frt_buffer_upload(t->ctx, t->images, 0, t->image_staging, image_bytes(t), STREAM_MAIN);
}

static int set_prompt(toy* t, const void* data, uint64_t bytes) {
  uint8_t block[PROMPT_BYTES] = {0};
  if (bytes > PROMPT_BYTES) return fail(t, -4, "prompt: more than 64 bytes");
  if (bytes && !data) return fail(t, -1, "prompt: null");
  if (bytes) memcpy(block, data, (size_t)bytes);
  return frt_buffer_upload(t->ctx, t->prompt, 0, block, sizeof block, STREAM_MAIN);
}

static int set_state(toy* t, const void* data, uint64_t bytes) {
  const float* values = data;
  if (!data || bytes != (uint64_t)t->state_dim * sizeof(float)) return fail(t, -4, "state: wrong size");
  for (int64_t i = 0; i < t->state_dim; i++) {
    if (!isfinite(values[i])) return fail(t, -1, "state: a value that is not finite");
  }
  return frt_buffer_upload(t->ctx, t->state, 0, values, (size_t)bytes, STREAM_MAIN);
}

static int set_input(void* self, uint32_t port, const void* data, uint64_t bytes, int stream) {
  toy* t = self;
  (void)stream;
  switch (port) {
    case PORT_IMAGES: return set_images(t, data, bytes);
    case PORT_STATE: return set_state(t, data, bytes);
    case PORT_PROMPT: return set_prompt(t, data, bytes);
    case PORT_NOISE: return fail(t, -3, "noise: write its window");
    default: return fail(t, -2, "no such input");
  }
}

static int get_output(void* self, uint32_t port, void* out, uint64_t capacity, uint64_t* written, int stream) {
  toy* t = self;
  (void)stream;
  if (port != PORT_ACTIONS) return fail(t, -2, "no such output");
  if (!out || !written) return fail(t, -1, "actions: null");
  *written = noise_bytes(t);
  if (capacity < *written) return fail(t, -5, "actions: too little room");
  return frt_buffer_download(t->ctx, t->chunk, 0, out, noise_bytes(t), t->action_stream);
}

static int prepare(void* self, uint32_t graph, frt_shape_key key) {
  toy* t = self;
  frt_graph graphs[2] = {t->context, t->action};
  if (graph > 1 || frt_graph_has_variant(graphs[graph], key) != 1) return fail(t, -2, "no such variant");
  return 0;
}

static int step(void* self) {
  toy* t = self;
  int code = frt_graph_replay(t->context, 0, STREAM_MAIN);
  if (!code) code = frt_event_record(t->context_done, STREAM_MAIN);
  if (!code) code = frt_stream_wait(t->ctx, t->action_stream, t->context_done);
  if (!code) code = frt_graph_replay(t->action, 0, t->action_stream);
  if (!code) code = frt_stream_sync(t->ctx, t->action_stream);
  return code ? fail(t, -6, "step: a replay failed") : 0;
}

static int run_opaque(void* self, uint32_t executor_ref) {
  switch (executor_ref) {
    case STAGE_CONTEXT: sum_up(self); weigh(self); return 0;
    case STAGE_WEIGH: weigh(self); return 0;
    case STAGE_ACTION: act(self); return 0;
    default: return fail(self, -2, "no such stage");
  }
}

static const char* last_error(void* self) { return ((toy*)self)->error; }

/* ---- life ---- */

static void destroy(void* owner) {
  toy* t = owner;
  if (t->context_done) frt_event_destroy(t->context_done);
  if (t->context) frt_graph_destroy(t->context);
  if (t->action) frt_graph_destroy(t->action);
  if (t->ctx) frt_ctx_destroy(t->ctx);
  free(t->image_staging);
  free(t);
}

static _Thread_local char open_error[256];

EXPORT const char* toy_policy_open_last_error(void) { return open_error; }

static int refuse(toy* t, int code, const char* text) {
  snprintf(open_error, sizeof open_error, "%s", text);
  if (t) destroy(t);
  return code;
}

/* The text behind a key of a flat JSON object; null when it is not there. */
static const char* value_of(const char* json, const char* key) {
  char quoted[40];
  snprintf(quoted, sizeof quoted, "\"%s\"", key);
  const char* at = strstr(json, quoted);
  if (!at) return NULL;
  at += strlen(quoted);
  while (*at == ' ' || *at == ':') at++;
  return at;
}

static int64_t number(const char* json, const char* key, int64_t preset, int64_t least, int64_t most) {
  const char* at = value_of(json, key);
  if (!at) return preset;
  char* end = NULL;
  long long n = strtoll(at, &end, 10);
  return end == at || n < least || n > most ? -1 : n;
}

static int read_config(toy* t, const char* json, int64_t* seed) {
  const char* plan = value_of(json, "plan");
  snprintf(t->plan, sizeof t->plan, "graph");
  if (plan) {
    const char* known[] = {"graph", "opaque", "mixed", "step"};
    t->plan[0] = 0;
    for (int i = 0; i < 4; i++) {
      size_t n = strlen(known[i]);
      if (plan[0] == '"' && !strncmp(plan + 1, known[i], n) && plan[n + 1] == '"') strcpy(t->plan, known[i]);
    }
  }
  *seed = number(json, "seed", 0, 0, 1 << 30);
  t->views = number(json, "views", 1, 1, 8);
  t->height = number(json, "height", 8, 1, 64);
  t->width = number(json, "width", 8, 1, 64);
  t->state_dim = number(json, "state_dim", 6, 1, 64);
  t->horizon = number(json, "horizon", 4, 1, 64);
  t->dim = number(json, "dim", 6, 1, 64);
  t->regions = number(json, "regions", 1, 0, 1);
  return t->plan[0] && *seed >= 0 && t->views > 0 && t->height > 0 && t->width > 0 && t->state_dim > 0 && t->horizon > 0 &&
         t->dim > 0 && t->regions >= 0;
}

static int make(toy* t, int64_t seed) {
  float noise[64 * 64];
  t->ctx = frt_ctx_create_with(FRT_BACKEND_CPU, 0);
  if (!t->ctx) return 0;
  t->action_stream = frt_ctx_stream(t->ctx, 0);
  t->images = frt_buffer_alloc(t->ctx, "images", image_bytes(t));
  t->state = frt_buffer_alloc(t->ctx, "state", (size_t)t->state_dim * sizeof(float));
  t->prompt = frt_buffer_alloc(t->ctx, "prompt", PROMPT_BYTES);
  t->noise = frt_buffer_alloc(t->ctx, "noise", noise_bytes(t));
  t->digest = frt_buffer_alloc(t->ctx, "digest", sizeof(context_state));
  t->chunk = frt_buffer_alloc(t->ctx, "chunk", noise_bytes(t));
  t->context = frt_graph_create(t->ctx, "context", 1);
  t->action = frt_graph_create(t->ctx, "action", 1);
  t->context_done = frt_ctx_event(t->ctx);
  t->image_staging = malloc(image_bytes(t));
  if (t->action_stream < 0 || !t->images || !t->state || !t->prompt || !t->noise || !t->digest || !t->chunk || !t->context ||
      !t->action || !t->context_done || !t->image_staging) {
    return 0;
  }
  t->at.images = frt_buffer_dptr(t->images);
  t->at.prompt = frt_buffer_dptr(t->prompt);
  t->at.state = frt_buffer_dptr(t->state);
  t->at.noise = frt_buffer_dptr(t->noise);
  t->at.chunk = frt_buffer_dptr(t->chunk);
  t->at.digest = frt_buffer_dptr(t->digest);
  for (int64_t i = 0; i < t->horizon * t->dim; i++) noise[i] = (float)((seed * 31 + i * 7) % 1024) / 1024.0f;
  return !frt_buffer_upload(t->ctx, t->noise, 0, noise, noise_bytes(t), STREAM_MAIN) &&
         !frt_graph_capture(t->context, 0, record_context, t) && !frt_graph_capture(t->action, 0, record_action, t);
}

static int declare_ports(toy* t, frt_runtime_builder b) {
  int64_t images[4] = {t->views, t->height, t->width, 3}, state[1] = {t->state_dim}, prompt[1] = {-1};
  int64_t chunk[2] = {t->horizon, t->dim};
  size_t bytes = noise_bytes(t);
  /* In the order of PORT_*. */
  return frt_runtime_builder_add_port(b, "images", FRT_RT_MOD_IMAGE, FRT_RT_DTYPE_U8, FRT_RT_LAYOUT_NHWC, FRT_RT_PORT_IN,
                                      FRT_RT_PORT_STAGED, 1, images, 4, 30, t->images, 0, image_bytes(t)) ||
         frt_runtime_builder_add_port(b, "state", FRT_RT_MOD_STATE, FRT_RT_DTYPE_F32, FRT_RT_LAYOUT_FLAT, FRT_RT_PORT_IN,
                                      FRT_RT_PORT_STAGED, 1, state, 1, 0, NULL, 0, 0) ||
         frt_runtime_builder_add_port(b, "prompt", FRT_RT_MOD_TEXT, FRT_RT_DTYPE_U8, FRT_RT_LAYOUT_FLAT, FRT_RT_PORT_IN,
                                      FRT_RT_PORT_STAGED, 1, prompt, 1, 0, NULL, 0, 0) ||
         frt_runtime_builder_add_port(b, "noise", FRT_RT_MOD_TENSOR, FRT_RT_DTYPE_F32, FRT_RT_LAYOUT_FLAT, FRT_RT_PORT_IN,
                                      FRT_RT_PORT_SWAP, 0, chunk, 2, 0, t->noise, 0, bytes) ||
         frt_runtime_builder_add_port(b, "actions", FRT_RT_MOD_ACTION, FRT_RT_DTYPE_F32, FRT_RT_LAYOUT_FLAT, FRT_RT_PORT_OUT,
                                      FRT_RT_PORT_STAGED, 0, chunk, 2, 0, NULL, 0, bytes);
}

static int declare_plan(toy* t, frt_runtime_builder b) {
  const uint32_t first[1] = {0}, second[1] = {1};
  if (!strcmp(t->plan, "graph")) {
    return frt_runtime_builder_add_stage(b, 0, NULL, 0) || frt_runtime_builder_add_stage(b, 1, first, 1);
  }
  if (!strcmp(t->plan, "opaque")) {
    return frt_runtime_builder_add_generic_stage(b, "context", FRT_GENERIC_STAGE_OPAQUE, STAGE_CONTEXT, NULL, 0) ||
           frt_runtime_builder_add_generic_stage(b, "action", FRT_GENERIC_STAGE_OPAQUE, STAGE_ACTION, first, 1) ||
           frt_runtime_builder_set_generic_stage_runner(b, t, run_opaque);
  }
  if (!strcmp(t->plan, "mixed")) {
    return frt_runtime_builder_add_generic_stage(b, "context", FRT_GENERIC_STAGE_GRAPH, 0, NULL, 0) ||
           frt_runtime_builder_add_generic_stage(b, "weigh", FRT_GENERIC_STAGE_OPAQUE, STAGE_WEIGH, first, 1) ||
           frt_runtime_builder_add_generic_stage(b, "action", FRT_GENERIC_STAGE_GRAPH, 1, second, 1) ||
           frt_runtime_builder_set_generic_stage_runner(b, t, run_opaque);
  }
  return 0; /* step: no stage, the verb is the plan */
}

static int declare(toy* t, frt_runtime_builder b) {
  const frt_shape_key keys[1] = {0};
  return frt_runtime_builder_add_identity(b, "model", "toy_policy_c") ||
         frt_runtime_builder_add_identity(b, "stage_plan", t->plan) ||
         frt_runtime_builder_add_stream(b, "main", STREAM_MAIN, 0, NULL) ||
         frt_runtime_builder_add_stream(b, "action", t->action_stream, 0, NULL) ||
         frt_runtime_builder_add_graph(b, "context", t->context, 0, keys, 1, STREAM_MAIN) ||
         frt_runtime_builder_add_graph(b, "action", t->action, 0, keys, 1, t->action_stream) ||
         frt_runtime_builder_add_buffer(b, "images", t->images, image_bytes(t), FRT_RT_ROLE_INPUT) ||
         frt_runtime_builder_add_buffer(b, "noise", t->noise, noise_bytes(t), FRT_RT_ROLE_INPUT | FRT_RT_ROLE_STATE) ||
         (t->regions && frt_runtime_builder_add_region(b, "rollout", t->noise, 0, noise_bytes(t),
                                                       FRT_RT_REGION_SNAPSHOT | FRT_RT_REGION_RESTORE)) ||
         frt_runtime_builder_set_manifest(b, "{\"example\":\"c_producer\"}") || declare_ports(t, b) || declare_plan(t, b);
}

EXPORT int frt_model_runtime_open_v1(const char* config_json, frt_model_runtime_v1** out) {
  if (!config_json || !out) return -1;
  *out = NULL;
  toy* t = calloc(1, sizeof *t);
  int64_t seed = 0;
  if (!t) return refuse(NULL, -6, "no memory");
  if (!read_config(t, config_json, &seed)) return refuse(t, -1, "a key of the configuration has a value that is not allowed");
  if (!make(t, seed)) return refuse(t, -6, "the CPU backend refused");
  frt_runtime_builder b = frt_runtime_builder_create(t->ctx);
  if (!b) return refuse(t, -6, "no builder");
  frt_model_runtime_verbs verbs = {0};
  verbs.struct_size = sizeof verbs;
  verbs.set_input = set_input;
  verbs.get_output = get_output;
  verbs.prepare = prepare;
  verbs.step = !strcmp(t->plan, "step") ? step : NULL;
  verbs.last_error = last_error;
  frt_model_runtime_v1* model = NULL;
  if (!declare(t, b)) model = frt_runtime_builder_finish_model(b, &verbs, t, t, NULL, destroy);
  if (!model) {
    frt_runtime_builder_destroy(b);
    return refuse(t, -6, "the declaration was refused");
  }
  *out = model;
  return 0;
}
