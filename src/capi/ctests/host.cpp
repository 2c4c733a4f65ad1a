// A host in C++17: a capsule backend of its own over plain memory, an all-opaque model, threads that share a reference count, a context
// on each of four threads. Exit code 0 when all of it holds.
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "capsule/capsule.h"
#include "check.h"
#include "flashrt/model_runtime.h"

namespace {

// The names of the published enums are types too.
constexpr enum cap_tier kTier = CAP_TIER_HOST;
constexpr enum frt_rt_modality kText = FRT_RT_MOD_TEXT;
constexpr frt_status kGone = FRT_ERR_INVALID;

// ---- a capsule backend ----------------------------------------------------------------------------------------------------

struct Memory {
  std::map<void *, std::vector<unsigned char>> buffers;
  int events = 0, syncs = 0;

  std::vector<unsigned char> *find(cap_buffer buffer) {
    auto found = buffers.find(buffer);
    return found == buffers.end() ? nullptr : &found->second;
  }
  cap_buffer make(std::size_t bytes) {
    auto *key = new char;
    buffers[key].resize(bytes);
    return reinterpret_cast<cap_buffer>(key);
  }
  void free(cap_buffer buffer) {
    CHECK(buffers.erase(buffer) == 1);
    delete reinterpret_cast<char *>(buffer);
  }
  static Memory &of(void *self) { return *static_cast<Memory *>(self); }
};

cap_backend backend_over(Memory &memory) {
  cap_backend b{};
  b.abi_version = CAP_ABI_VERSION;
  b.struct_size = sizeof b;
  b.self = &memory;
  b.buffer_alloc = [](void *self, const char *, std::size_t bytes, int) { return Memory::of(self).make(bytes); };
  b.buffer_wrap = [](void *, const char *, void *, std::size_t, int) -> cap_buffer { return nullptr; };
  b.buffer_ptr = [](void *self, cap_buffer buffer) -> void * {
    auto *bytes = Memory::of(self).find(buffer);
    return bytes ? bytes->data() : nullptr;
  };
  b.buffer_bytes = [](void *self, cap_buffer buffer) -> std::size_t {
    auto *bytes = Memory::of(self).find(buffer);
    return bytes ? bytes->size() : 0;
  };
  b.buffer_copy = [](void *self, cap_buffer dst, std::size_t dst_off, cap_buffer src, std::size_t src_off, std::size_t n, int) {
    auto *to = Memory::of(self).find(dst), *from = Memory::of(self).find(src);
    if (!to || !from || dst_off + n > to->size() || src_off + n > from->size()) return -1;
    std::memcpy(to->data() + dst_off, from->data() + src_off, n);
    return 0;
  };
  b.buffer_upload = [](void *self, cap_buffer dst, std::size_t off, const void *src, std::size_t n, int) {
    auto *to = Memory::of(self).find(dst);
    if (!to || off + n > to->size()) return -1;
    std::memcpy(to->data() + off, src, n);
    return 0;
  };
  b.buffer_download = [](void *self, cap_buffer src, std::size_t off, void *dst, std::size_t n, int) {
    auto *from = Memory::of(self).find(src);
    if (!from || off + n > from->size()) return -1;
    std::memcpy(dst, from->data() + off, n);
    return 0;
  };
  b.buffer_free = [](void *self, cap_buffer buffer) { Memory::of(self).free(buffer); };
  b.graph_replay = [](void *, cap_graph, cap_shape_key, int) { return -1; };
  b.graph_has = [](void *, cap_graph, cap_shape_key) { return 0; };
  b.graph_bind = [](void *, cap_graph, const char *, cap_buffer) { return 0; };
  b.stream = [](void *, int) { return 1; };
  b.event = [](void *self) { return Memory::of(self).events++, reinterpret_cast<cap_event>(self); };
  b.event_record = [](void *, cap_event, int) { return 0; };
  b.event_query = [](void *, cap_event) { return 0; };
  b.stream_wait = [](void *, int, cap_event) { return 0; };
  b.sync = [](void *self, int) { return Memory::of(self).syncs++, 0; };
  b.event_free = [](void *self, cap_event) { Memory::of(self).events--; };
  b.fingerprint = [](void *) -> std::uint64_t { return 0x0123456789abcdefu; };
  return b;
}

void capsules_live_on_a_backend_of_the_hosts() {
  Memory memory;
  cap_backend backend = backend_over(memory);
  backend.struct_size--;
  CHECK(cap_ctx_create(&backend) == nullptr);
  backend.struct_size++;
  std::unique_ptr<std::remove_pointer_t<cap_ctx>, decltype(&cap_ctx_destroy)> ctx(cap_ctx_create(&backend), cap_ctx_destroy);
  CHECK(ctx);

  cap_buffer live = memory.make(8);
  std::memcpy(memory.find(live)->data(), "abcdefgh", 8);
  const std::array<cap_region, 2> regions{{{live, 4, 4}, {live, 0, 2}}};
  const cap_boundary boundary{regions.data(), 2, nullptr, 0};
  cap_capsule capsule = cap_snapshot(ctx.get(), &boundary, kTier, 0);
  CHECK(capsule);
  CHECK(cap_swap(ctx.get(), live, "########", 8, 0) == CAP_OK);
  CHECK(cap_swap(ctx.get(), live, "#########", 9, 0) == CAP_ERR_ARG); // nine bytes into eight
  CHECK(cap_restore(ctx.get(), capsule, 0) == CAP_OK);
  CHECK(std::memcmp(memory.find(live)->data(), "ab##efgh", 8) == 0);

  const cap_region outside{live, 6, 4};
  const cap_boundary bad{&outside, 1, nullptr, 0};
  CHECK(cap_snapshot(ctx.get(), &bad, kTier, 0) == nullptr);
  CHECK(std::string(cap_last_error()).size() > 0);

  // Another deployment.
  cap_backend changed = backend;
  changed.fingerprint = [](void *) -> std::uint64_t { return 1; };
  cap_ctx other = cap_ctx_create(&changed);
  CHECK(other && cap_restore_into(other, capsule, regions.data(), 2, 0) == CAP_ERR_FINGERPRINT);
  cap_ctx_destroy(other);

  cap_capsule_drop(ctx.get(), capsule);
  cap_capsule_drop(ctx.get(), capsule); // dead: ignored
  memory.free(live);
  CHECK(memory.buffers.empty() && memory.events == 0);
}

// ---- an all-opaque model ---------------------------------------------------------------------------------------------------

struct Engine {
  std::string prompt, text, error;
  std::vector<std::uint32_t> ran;
  std::atomic<int> released{0};
};

frt_model_runtime_v1 *opaque_model(Engine &engine) {
  static const std::int64_t any[] = {-1};
  frt_runtime_builder b = frt_model_runtime_builder_create_metadata();
  CHECK(b);
  CHECK(frt_runtime_builder_add_identity(b, "provider", "fixture") == 0);
  CHECK(frt_runtime_builder_add_stream(b, "main", 0, 0, nullptr) == -1); // a metadata builder owns nothing
  CHECK(frt_runtime_builder_add_port(b, "prompt", kText, FRT_RT_DTYPE_U8, FRT_RT_LAYOUT_FLAT, FRT_RT_PORT_IN, FRT_RT_PORT_STAGED, 1,
                                     any, 1, 0, nullptr, 0, 0) == 0);
  CHECK(frt_runtime_builder_add_port(b, "text", kText, FRT_RT_DTYPE_U8, FRT_RT_LAYOUT_FLAT, FRT_RT_PORT_OUT, FRT_RT_PORT_STAGED, 0,
                                     any, 1, 0, nullptr, 0, 0) == 0);
  const std::uint32_t first[] = {0}, both[] = {0, 1}, twice[] = {0, 0};
  CHECK(frt_runtime_builder_add_generic_stage(b, "prefill:main", FRT_GENERIC_STAGE_OPAQUE, 91, nullptr, 0) == 0);
  CHECK(frt_runtime_builder_add_generic_stage(b, "\xe9\x98\xb6\xe6\xae\xb5", FRT_GENERIC_STAGE_OPAQUE, 113, first, 1) == 0);
  CHECK(frt_runtime_builder_add_generic_stage(b, "emit", FRT_GENERIC_STAGE_OPAQUE, 7, twice, 2) == -1);
  CHECK(frt_runtime_builder_add_generic_stage(b, "emit", FRT_GENERIC_STAGE_OPAQUE, 7, both, 2) == 0);
  CHECK(frt_runtime_builder_set_generic_stage_runner(b, &engine, [](void *self, std::uint32_t ref) {
    auto &e = *static_cast<Engine *>(self);
    e.ran.push_back(ref);
    if (ref == 7) e.text = e.prompt + "!";
    return 0;
  }) == 0);

  frt_model_runtime_verbs verbs{};
  verbs.struct_size = sizeof verbs;
  verbs.set_input = [](void *self, std::uint32_t, const void *data, std::uint64_t bytes, int) {
    static_cast<Engine *>(self)->prompt.assign(static_cast<const char *>(data), bytes);
    return 0;
  };
  verbs.get_output = [](void *self, std::uint32_t, void *out, std::uint64_t capacity, std::uint64_t *written, int) {
    const auto &text = static_cast<Engine *>(self)->text;
    *written = text.size();
    if (capacity < text.size()) return -5;
    std::memcpy(out, text.data(), text.size());
    return 0;
  };
  verbs.last_error = [](void *self) { return static_cast<Engine *>(self)->error.c_str(); };
  auto *runtime = frt_runtime_builder_finish_model(b, &verbs, &engine, &engine, nullptr,
                                                   [](void *owner) { static_cast<Engine *>(owner)->released++; });
  CHECK(runtime);
  CHECK(runtime->exp->fingerprint == 0x70a152f17f4e7dd6u);
  return runtime;
}

void a_plan_of_opaque_stages_runs_in_order() {
  Engine engine;
  frt_model_runtime_v1 *runtime = opaque_model(engine);
  const void *found = nullptr;
  CHECK(runtime->query_extension(runtime, FRT_EXT_GENERIC_STAGE_PLAN_V1, 0, &found) == -1);
  CHECK(runtime->query_extension(runtime, FRT_EXT_GENERIC_STAGE_PLAN_V1 + (std::uint64_t{1} << 32), 1, &found) == -3);
  CHECK(runtime->query_extension(runtime, FRT_EXT_GENERIC_STAGE_PLAN_V1, 1, &found) == 0);
  const auto &plan = *static_cast<const frt_generic_stage_plan_ext_v1 *>(found);
  CHECK(plan.abi_version >= FRT_GENERIC_STAGE_PLAN_ABI_VERSION && plan.struct_size >= FRT_GENERIC_STAGE_PLAN_EXT_V1_SIZE);

  const auto &verbs = runtime->verbs;
  CHECK(verbs.set_input(runtime->self, 0, "hello", 5, -1) == 0);
  for (std::uint64_t i = 0; i < plan.n_stages; i++) CHECK(plan.run_opaque(plan.stage_self, plan.stages[i].executor_ref) == 0);
  CHECK((engine.ran == std::vector<std::uint32_t>{91, 113, 7}));
  char out[16];
  std::uint64_t written = 0;
  CHECK(verbs.get_output(runtime->self, 1, out, sizeof out, &written, -1) == 0 && std::string(out, written) == "hello!");
  CHECK(verbs.step(runtime->self) == -3);

  // The same declaration under other verbs; the base stays as long as the new object does.
  frt_model_runtime_verbs loud = verbs;
  loud.get_output = [](void *, std::uint32_t, void *, std::uint64_t, std::uint64_t *size, int) { return *size = 0, 0; };
  frt_model_runtime_v1 *over = frt_model_runtime_override_verbs(runtime, &loud, &engine, nullptr, nullptr, nullptr);
  CHECK(over && over->exp == runtime->exp);
  runtime->release(runtime->owner);
  CHECK(engine.released == 0);
  CHECK(over->verbs.get_output(over->self, 1, out, sizeof out, &written, -1) == 0 && written == 0);
  CHECK(over->query_extension(over, FRT_EXT_GENERIC_STAGE_PLAN_V1, 1, &found) == 0);
  over->release(over->owner);
  CHECK(engine.released == 1);
}

// ---- threads -----------------------------------------------------------------------------------------------------------------

void references_are_counted_across_threads() {
  Engine engine;
  frt_model_runtime_v1 *runtime = opaque_model(engine);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; t++) {
    runtime->retain(runtime->owner);
    threads.emplace_back([runtime] {
      for (int i = 0; i < 1000; i++) {
        runtime->retain(runtime->owner);
        CHECK(runtime->exp->identity[0] == 'f');
        runtime->release(runtime->owner);
      }
      runtime->release(runtime->owner);
    });
  }
  runtime->release(runtime->owner);
  for (auto &thread : threads) thread.join();
  CHECK(engine.released == 1);
}

void drive_a_context(int seed) {
  frt_ctx ctx = frt_ctx_create_with(FRT_BACKEND_CPU, 0);
  CHECK(ctx);
  frt_buffer buffer = frt_buffer_alloc(ctx, "n", sizeof(std::uint64_t));
  frt_graph graph = frt_graph_create(ctx, "count", 0);
  auto *value = static_cast<std::uint64_t *>(frt_buffer_dptr(buffer));
  CHECK(buffer && graph && value);
  CHECK(frt_graph_capture(graph, 0, [](void *user, void *stream) {
    CHECK(frt_stream_host_func(stream, [](void *n) { ++*static_cast<std::uint64_t *>(n); }, user) == FRT_OK);
  }, value) == FRT_OK);

  std::uint64_t start = std::uint64_t(seed), end = 0;
  CHECK(frt_buffer_upload(ctx, buffer, 0, &start, sizeof start, 0) == FRT_OK);
  for (int i = 0; i < 200; i++) CHECK(frt_graph_replay(graph, 0, 0) == FRT_OK);
  CHECK(frt_buffer_download(ctx, buffer, 0, &end, sizeof end, 0) == FRT_OK);
  CHECK(end == start + 200);

  // The text of a failure belongs to the thread.
  CHECK(frt_buffer_download(ctx, buffer, 8, &end, 1, 0) == kGone);
  CHECK(std::strstr(frt_last_error(), "frt_buffer_download"));
  frt_ctx_destroy(ctx);
  CHECK(frt_buffer_dptr(buffer) == nullptr);
  CHECK(frt_graph_replay(graph, 0, 0) == kGone);
}

void every_thread_drives_a_context_of_its_own() {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; t++) {
    threads.emplace_back([t] {
      for (int round = 0; round < 5; round++) drive_a_context(100 * t + round);
    });
  }
  for (auto &thread : threads) thread.join();
}

} // namespace

int main() {
  capsules_live_on_a_backend_of_the_hosts();
  a_plan_of_opaque_stages_runs_in_order();
  references_are_counted_across_threads();
  every_thread_drives_a_context_of_its_own();
  std::printf("host.cpp: ok, library %s\n", frt_version());
  return 0;
}
