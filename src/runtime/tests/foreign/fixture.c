/* A native model that breaks one rule at a time, named in its configuration. Layouts are written down from the published
 * numbers, not from the project's headers, so that a wrong header shows.
 *
 * Configuration: {"case": "<name>", "log": "<file>"}. Every open, retain, release and unload adds a line to the log. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct { const char* name; int32_t id; int32_t priority; void* native; } stream_desc;
typedef struct { const char* name; void* handle; uint64_t key; const uint64_t* keys; uint64_t n_keys; int32_t stream; } graph_desc;
typedef struct { const char* name; void* handle; uint64_t bytes; uint32_t role, reserved; } buffer_desc;
typedef struct { const char* name; void* buffer; uint64_t offset, bytes; uint32_t flags, reserved; } region_desc;
typedef struct {
  uint32_t abi, size;
  void* ctx;
  const stream_desc* streams; uint64_t n_streams;
  const graph_desc* graphs; uint64_t n_graphs;
  const buffer_desc* buffers; uint64_t n_buffers;
  const region_desc* regions; uint64_t n_regions;
  uint64_t fingerprint;
  const char* identity;
  const char* manifest;
  void* owner;
  void (*retain)(void*);
  void (*release)(void*);
} export_v1;
typedef struct {
  const char* name;
  uint32_t modality, dtype, layout, direction, update, required;
  const int64_t* shape;
  uint32_t rank, cadence;
  void* buffer;
  uint64_t offset, bytes;
} port_desc;
typedef struct { uint32_t graph, n_after; const uint32_t* after; } stage_desc;
typedef struct { const char* name; uint32_t kind, ref, n_after; const uint32_t* after; } generic_desc;
typedef struct {
  uint32_t abi, size;
  const generic_desc* stages; uint64_t n_stages;
  void* self;
  int (*run)(void*, uint32_t);
} generic_plan;
typedef struct {
  uint32_t size, reserved;
  int (*set_input)(void*, uint32_t, const void*, uint64_t, int);
  int (*get_output)(void*, uint32_t, void*, uint64_t, uint64_t*, int);
  int (*prepare)(void*, uint32_t, uint64_t);
  int (*step)(void*);
  const char* (*last_error)(void*);
} verbs_v1;
typedef struct model_v1 {
  uint32_t abi, size;
  const export_v1* exp;
  const port_desc* ports; uint64_t n_ports;
  const stage_desc* stages; uint64_t n_stages;
  void* self;
  verbs_v1 verbs;
  void* owner;
  void (*retain)(void*);
  void (*release)(void*);
  int (*query)(const struct model_v1*, uint64_t, uint32_t, const void**);
} model_v1;
_Static_assert(sizeof(export_v1) == 128 && sizeof(port_desc) == 72 && sizeof(stage_desc) == 16, "sizes");
_Static_assert(sizeof(generic_desc) == 32 && sizeof(generic_plan) == 40 && sizeof(verbs_v1) == 48, "sizes");
_Static_assert(sizeof(model_v1) == 136 && sizeof(graph_desc) == 48, "sizes");

typedef struct {
  model_v1 model;
  export_v1 exp;
  generic_plan plan;
  int refs;
  float values[4];
  int steps;
} world;

static char g_case[64], g_log[512];
static int64_t dims1[1] = {4}, dims2[2] = {1, 4}, dims4[4] = {1, 2, 2, 3};
static uint32_t zero_dep[1] = {0}, later_dep[1] = {7}, twice_dep[2] = {0, 0};
static port_desc ports[4];
static graph_desc graphs[2] = {{"context", (void*)16, 0, 0, 0, 0}, {"action", (void*)32, 0, 0, 0, 0}};
static buffer_desc buffers[1] = {{"memory", (void*)48, 64, 4, 0}};
static region_desc regions[1] = {{"memory", (void*)48, 0, 64, 3, 0}};
static stage_desc stages[2] = {{0, 0, 0}, {1, 1, zero_dep}};
static generic_desc generic[3] = {{"context", 1, 4, 0, 0}, {"action", 1, 91, 1, zero_dep}, {"emit", 1, 7, 2, 0}};
static char endless[70001];

static int is(const char* name) { return strcmp(g_case, name) == 0; }
static int has(const char* part) { return strstr(g_case, part) != 0; }

static void note(const char* what) {
  FILE* f = g_log[0] ? fopen(g_log, "a") : 0;
  if (f) { fprintf(f, "%s\n", what); fclose(f); }
}
__attribute__((destructor)) static void unload(void) { note("unload"); }

static void read_text(const char* json, const char* key, char* out, size_t room) {
  char quoted[32];
  snprintf(quoted, sizeof quoted, "\"%s\"", key);
  const char* at = strstr(json, quoted);
  out[0] = 0;
  if (!at || !(at = strchr(at + strlen(quoted), '"'))) return;
  size_t n = 0;
  for (at++; *at && *at != '"' && n + 1 < room; at++) out[n++] = *at;
  out[n] = 0;
}

static uint64_t fnv(const char* text) {
  uint64_t h = 0xcbf29ce484222325ull;
  for (; *text; text++) h = (h ^ (unsigned char)*text) * 0x100000001b3ull;
  return h;
}

static void retain(void* owner) { ((world*)owner)->refs++; note("retain"); }
static void release(void* owner) {
  note("release");
  if (--((world*)owner)->refs == 0) { note("free"); free(owner); }
}

static int set_input(void* self, uint32_t port, const void* data, uint64_t bytes, int stream) {
  (void)stream;
  if (is("input-positive")) return 7;
  if (is("input-shape") || has("text-")) return -4;
  (void)port;
  if (bytes == 16) memcpy(((world*)self)->values, data, 16);
  return 0;
}
static int get_output(void* self, uint32_t port, void* out, uint64_t room, uint64_t* written, int stream) {
  (void)port, (void)stream;
  if (is("output-overrun")) { *written = room + 1; return 0; }
  if (is("output-small")) { *written = 999; return -5; }
  if (is("output-min")) { *written = 3; return -2147483647 - 1; }
  if (room < 16) { *written = 16; return -5; }
  memcpy(out, ((world*)self)->values, 16);
  *written = 16;
  return 0;
}
static int step(void* self) {
  world* w = self;
  if (is("step-stub") || is("graph-step-stub")) return -3;
  if (is("step-fails") || is("verbs-null")) return -6;
  if (is("step-positive")) return 3;
  w->steps++;
  if (is("robot-fails-later") && w->steps == 2) return -1;
  for (int i = 0; i < 4; i++) w->values[i] += 1;
  return 0;
}
static int prepare(void* self, uint32_t graph, uint64_t key) { (void)self, (void)graph, (void)key; return -2; }
static const char* last_error(void* self) {
  (void)self;
  if (is("text-null")) return 0;
  if (is("text-endless")) return endless;
  if (is("text-latin")) return "caf\xe9";
  return "the fixture says so";
}
static int run(void* self, uint32_t ref) {
  world* w = self;
  if (is("opaque-fails")) return -1;
  w->values[0] = w->values[0] * 10 + (float)ref;
  return 0;
}
static int query(const model_v1* rt, uint64_t id, uint32_t least, const void** out) {
  *out = 0;
  note("query");
  if (is("query-garbage")) return 5;
  if (is("query-null")) return 0;
  if (id != 1 || least > 1 || !(has("opaque") || has("plan-"))) return -3;
  *out = &((world*)rt->owner)->plan;
  return 0;
}

#ifdef EXPORT_ONLY
static
#endif
int frt_model_runtime_open_v1(const char* config, model_v1** out) {
  memset(endless, 'x', sizeof endless - 1);
  read_text(config, "case", g_case, sizeof g_case);
  read_text(config, "log", g_log, sizeof g_log);
  note("open");
  *out = 0;
  if (is("open-fails")) return -2;
  if (is("open-positive")) return 7;
  if (is("open-null")) return 0;
  world* w = calloc(1, sizeof *w);
  w->refs = 1;
  ports[0] = (port_desc){"state", 3, 1, 0, 0, 1, 1, dims1, 1, 0, 0, 0, 0};
  ports[1] = (port_desc){"actions", 4, 1, 0, 1, 1, 0, dims1, 1, 0, 0, 0, 16};
  ports[2] = (port_desc){"noise", 0, 1, 0, 0, 0, 0, dims1, 1, 0, (void*)48, 0, 16};
  w->exp = (export_v1){.abi = 1, .size = 128, .identity = "frt-runtime-identity-v1\nmodel=fixture\n", .owner = w,
                       .retain = retain, .release = release, .manifest = "{}"};
  w->model = (model_v1){.abi = 1, .size = 136, .exp = &w->exp, .ports = ports, .n_ports = 2, .self = w,
                        .verbs = {48, 0, set_input, get_output, prepare, step, last_error}, .owner = w, .retain = retain,
                        .release = release, .query = query};
  w->plan = (generic_plan){1, 40, generic, 2, w, run};
  model_v1* m = &w->model;
  export_v1* e = &w->exp;
  stages[1].n_after = 1, stages[1].after = zero_dep, stages[0].graph = 0;
  generic[0] = (generic_desc){"context", 1, 4, 0, 0};
  generic[1] = (generic_desc){"action", 1, 91, 1, zero_dep};

  if (is("size-127")) m->size = 127;
  if (is("size-128")) m->size = 128;
  if (is("size-200")) m->size = 200;
  if (is("abi-2")) m->abi = 2;
  if (is("no-release")) m->release = 0;
  if (is("no-retain")) m->retain = 0;
  if (is("export-null")) m->exp = 0;
  if (is("export-abi")) e->abi = 3;
  if (is("export-size")) e->size = 120;
  if (is("export-no-release")) e->release = 0;
  if (is("ports-null")) m->ports = 0;
  if (is("ports-absurd")) m->n_ports = 1ull << 40;
  if (is("streams-null")) e->n_streams = 2;
  if (is("graphs-null")) e->n_graphs = 1;
  if (is("buffers-absurd")) e->buffers = buffers, e->n_buffers = (1ull << 20) + 1;
  if (is("regions-null")) e->n_regions = 1;
  if (is("shape-null")) ports[0].shape = 0;
  if (is("name-null")) ports[0].name = 0;
  if (is("name-empty")) ports[0].name = "";
  if (is("name-latin")) ports[0].name = "caf\xe9";
  if (is("direction-2")) ports[0].direction = 2;
  if (is("update-3")) ports[0].update = 3;
  if (is("staged-in")) m->verbs.set_input = 0;
  if (is("staged-out")) m->verbs.get_output = 0;
  if (has("robot")) {
    /* What a node needs: cameras, joints, a chunk. */
    ports[0] = (port_desc){"images", 1, 0, 2, 0, 1, 1, dims4, 4, 0, 0, 0, 0};
    ports[1] = (port_desc){"state", 3, 1, 0, 0, 1, 1, dims1, 1, 0, 0, 0, 0};
    ports[2] = (port_desc){"actions", 4, 1, 0, 1, 1, 0, dims2, 2, 0, 0, 0, 16};
    m->n_ports = 3;
    if (is("robot-needs-more")) ports[3] = (port_desc){"force", 7, 1, 0, 0, 1, 1, dims1, 1, 0, 0, 0, 0}, m->n_ports = 4;
    if (is("robot-half-actions")) ports[2].dtype = 2;
    if (is("robot-flat-actions")) ports[2].shape = dims1, ports[2].rank = 1;
    if (is("robot-swap-images")) ports[0].update = 0;
    if (is("robot-no-actions")) m->n_ports = 2;
  }
  if (is("verbs-null")) {
    ports[0].update = 2, m->n_ports = 1;
    m->verbs = (verbs_v1){48, 0, 0, 0, 0, step, 0};
  }
  if (is("verbs-40")) m->verbs.size = 40;
  if (is("verbs-40-bare")) m->verbs.size = 40, m->n_ports = 0;
  if (is("identity-null")) e->identity = 0;
  if (is("graph-handle-null")) e->graphs = graphs, e->n_graphs = 1;
  if (is("nothing-to-run")) m->verbs.step = 0;
  if (has("graph-")) e->graphs = graphs, e->n_graphs = 2, m->stages = stages, m->n_stages = 2, e->ctx = (void*)8;
  graphs[0].handle = is("graph-handle-null") ? 0 : (void*)16;
  if (has("graph-no-step")) m->verbs.step = 0;
  if (is("graph-range")) stages[0].graph = 2;
  if (is("graph-later")) stages[1].after = later_dep;
  if (is("graph-after-null")) stages[1].after = 0;
  if (has("regions-")) e->buffers = buffers, e->n_buffers = 1, e->ctx = (void*)8;
  if (is("regions-out-of-reach")) e->regions = regions, e->n_regions = 1, m->n_ports = 3;
  if (is("plan-both")) e->graphs = graphs, e->n_graphs = 2, m->stages = stages, m->n_stages = 2;
  if (is("plan-abi-0")) w->plan.abi = 0;
  if (is("plan-size-39")) w->plan.size = 39;
  if (is("plan-empty")) w->plan.n_stages = 0;
  if (is("plan-null")) w->plan.stages = 0;
  if (is("plan-no-runner")) w->plan.run = 0;
  if (is("plan-no-text")) m->verbs.last_error = 0;
  if (is("plan-kind-2")) generic[0].kind = 2;
  if (is("plan-graph-range")) generic[0].kind = 0;
  if (is("plan-name-twice")) generic[1].name = "context";
  if (is("plan-name-control")) generic[1].name = "a\nb";
  if (is("plan-name-latin")) generic[1].name = "caf\xe9";
  if (is("plan-deps-later")) generic[1].after = later_dep;
  if (is("plan-deps-twice")) generic[1].n_after = 2, generic[1].after = twice_dep;
  if (is("plan-only-graphs")) e->graphs = graphs, e->n_graphs = 2, generic[0] = (generic_desc){"c", 0, 0, 0, 0}, generic[1] = (generic_desc){"a", 0, 1, 1, zero_dep};
  e->fingerprint = e->identity ? fnv(e->identity) : 0;
  if (is("fingerprint-off")) e->fingerprint ^= 1;
  *out = m;
  return 0;
}

#ifdef EXPORT_ONLY
/* The export alone: of a library that has no other factory. */
int frt_runtime_open_v1(const char* config, const export_v1** out) {
  model_v1* model = 0;
  int code = frt_model_runtime_open_v1(config, &model);
  *out = model ? model->exp : 0;
  return code;
}
#endif
