// This file is generated from the Rust sources; see docs/c_abi.md. Do not edit.
// Frozen execution state over a backend of the caller's: snapshot, restore, blobs, and the tick helpers.
// One cap_ctx is driven by one thread at a time. The core has no thread and no loop.
// SPDX-License-Identifier: Apache-2.0

#ifndef CAPSULE_CAPSULE_H
#define CAPSULE_CAPSULE_H

#include <stddef.h>
#include <stdint.h>

// A context over one backend.
typedef struct cap_ctx_s *cap_ctx;
// A frozen state.
typedef struct cap_capsule_s *cap_capsule;
// Memory of the backend.
typedef struct cap_buffer_s *cap_buffer;
// A graph of the backend.
typedef struct cap_graph_s *cap_graph;
// An event of the backend.
typedef struct cap_event_s *cap_event;
// Key of a graph variant; every value is a key.
typedef uint64_t cap_shape_key;
// What a frt_ctx of flashrt/exec.h points to.
struct frt_ctx_s;

// Version of this interface.
#define CAP_ABI_VERSION 1u

// Where a buffer lies.
typedef enum cap_space {
  // Memory of the device.
  CAP_DEV = 0,
  // Memory of the host.
  CAP_HOST = 1,
} cap_space;

// Where a capsule keeps its bytes.
typedef enum cap_tier {
  // Device memory.
  CAP_TIER_GPU = 0,
  // Host memory.
  CAP_TIER_HOST = 1,
  // Reserved; the same as host memory.
  CAP_TIER_DISK = 2,
} cap_tier;

// When a stage fires.
typedef enum cap_trigger {
  // In `cap_drive_tick`, by its cadence.
  CAP_EVERY = 0,
  // By `cap_fire` alone.
  CAP_ON_EVENT = 1,
  // By `cap_fire` alone.
  CAP_ON_DEMAND = 2,
} cap_trigger;

// How a call ended.
typedef enum cap_status {
  // Done.
  CAP_OK = 0,
  // Something inside the library broke.
  CAP_ERR = -1,
  // Made under another fingerprint than the backend has.
  CAP_ERR_FINGERPRINT = -2,
  // A null, misaligned, dead or foreign argument, or a window outside its buffer.
  CAP_ERR_ARG = -3,
  // No memory.
  CAP_ERR_NOMEM = -4,
  // A function of the backend failed.
  CAP_ERR_BACKEND = -5,
  // Another version of the interface or of the blob.
  CAP_ERR_VERSION = -6,
  // Bytes that are no whole blob.
  CAP_ERR_FORMAT = -7,
} cap_status;

// What a backend supplies. Every function is there and gets `self` first. An `int` result is 0 for success unless said
// otherwise. Offsets and sizes are bytes.
typedef struct cap_backend_s {
  // `CAP_ABI_VERSION`.
  uint32_t abi_version;
  // 168.
  uint32_t struct_size;
  // Passed to every function; valid until the context is destroyed.
  void *self;
  // A new buffer in `space` (one of `cap_space`), null on failure. `bytes` is never 0. The name need not be unique.
  cap_buffer (*buffer_alloc)(void *self, const char *name, size_t bytes, int space);
  // A buffer over memory of the caller. Not called by this library.
  cap_buffer (*buffer_wrap)(void *self, const char *name, void *ptr, size_t bytes, int space);
  // First byte of a buffer, in its own space.
  void *(*buffer_ptr)(void *self, cap_buffer buffer);
  // Bytes of a buffer.
  size_t (*buffer_bytes)(void *self, cap_buffer buffer);
  // Submits a copy between any two spaces.
  int (*buffer_copy)(void *self, cap_buffer dst, size_t dst_off, cap_buffer src, size_t src_off, size_t bytes, int stream);
  // Submits a copy from memory of the caller, which stays valid until the stream has run it.
  int (*buffer_upload)(void *self, cap_buffer dst, size_t off, const void *src, size_t bytes, int stream);
  // Submits a copy to memory of the caller, which stays valid until the stream has run it.
  int (*buffer_download)(void *self, cap_buffer src, size_t off, void *dst, size_t bytes, int stream);
  // Frees a buffer of `buffer_alloc`.
  void (*buffer_free)(void *self, cap_buffer buffer);
  // Submits one replay.
  int (*graph_replay)(void *self, cap_graph graph, cap_shape_key key, int stream);
  // 1 when the graph has the variant, 0 when not.
  int (*graph_has)(void *self, cap_graph graph, cap_shape_key key);
  // Notes the buffer of a port. Not called by this library.
  int (*graph_bind)(void *self, cap_graph graph, const char *port, cap_buffer buffer);
  // A new stream, negative on failure. Not called by this library.
  int (*stream)(void *self, int priority);
  // A new event, null on failure.
  cap_event (*event)(void *self);
  // Marks what was submitted to `stream` so far.
  int (*event_record)(void *self, cap_event event, int stream);
  // 0 when the mark was reached, above 0 when not yet, below 0 for an error. Never waits.
  int (*event_query)(void *self, cap_event event);
  // Makes what is submitted to `stream` from now on run after the mark of `event`.
  int (*stream_wait)(void *self, int stream, cap_event event);
  // Waits for everything submitted to `stream`.
  int (*sync)(void *self, int stream);
  // Frees an event.
  void (*event_free)(void *self, cap_event event);
  // Number of what runs: weights, quantisation, kernels, hardware.
  uint64_t (*fingerprint)(void *self);
} cap_backend_s;

// What a backend supplies.
typedef struct cap_backend_s cap_backend;

// A window on a buffer.
typedef struct cap_region {
  // Buffer.
  cap_buffer buf;
  // First byte.
  size_t off;
  // Bytes; 0 is legal.
  size_t bytes;
} cap_region;

// What a snapshot freezes.
typedef struct cap_boundary {
  // Regions; their order is what a later restore goes by.
  const struct cap_region *regions;
  // Entries of `regions`, 0 to 1048576.
  int n_regions;
  // Bytes that travel with the capsule and are never looked at; null when `meta_len` is 0.
  const void *meta;
  // Bytes at `meta`.
  size_t meta_len;
} cap_boundary;

// Bytes of one region of a capsule, where they lie.
typedef struct cap_region_view {
  // First byte, in the space of the capsule's tier; null for an empty region.
  void *ptr;
  // Bytes.
  size_t bytes;
} cap_region_view;

// One graph of a schedule.
typedef struct cap_stage {
  // Graph.
  cap_graph graph;
  // Its variant.
  cap_shape_key key;
  // Stream that it is replayed on.
  int stream;
  // Hint for the backend; not read here.
  int priority;
  // Due when `clock mod cadence_den < cadence_num`: `1/1` at each tick, `1/4` at every fourth.
  int cadence_num;
  // See `cadence_num`; 0 or less: always due.
  int cadence_den;
  // One of `cap_trigger`.
  int trigger;
} cap_stage;

// Stages and their order across streams.
typedef struct cap_schedule {
  // Stages, in firing order.
  const struct cap_stage *stages;
  // Entries of `stages`.
  int n_stages;
  // Pairs `{waiter, dependency}` of indices into `stages`.
  const int (*deps)[2];
  // Entries of `deps`.
  int n_deps;
} cap_schedule;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// `CAP_ABI_VERSION` of the library. Any thread.
uint32_t cap_abi_version(void);

// Additive: not in the published header.
// Why the last failed call on this thread failed; empty if none did. Never null. The same text as `frt_last_error`.
//
// The text is valid until the next call into the library on this thread. A call that succeeds leaves it as it is.
const char *cap_last_error(void);

// A new context over a copy of `*backend`. Calls no function of it.
//
// Null unless `abi_version` is 1, `struct_size` is 168 and no function is null. The backend behind `self` outlives the
// context. One thread at a time uses a context and its capsules.
//
// Safety:
// `backend` is null, or points to a `cap_backend` whose functions keep to their descriptions (or, if it says another
// version or size, to 8 bytes).
cap_ctx cap_ctx_create(const cap_backend *backend);

// Destroys a context. Capsules that were not dropped go with it, by functions of the backend; without such capsules the
// backend is not called. Null is a no-op.
//
// Safety:
// The backend is valid, and no other thread is in a call with the context or a capsule of it.
void cap_ctx_destroy(cap_ctx ctx);

// Fingerprint of the backend; 0 for a handle that is no context.
//
// Safety:
// As every call with a context: the backend is valid, and no other thread is in a call with the context.
uint64_t cap_ctx_fingerprint(cap_ctx ctx);

// Freezes the regions of `*boundary` into a new capsule of `tier`, stamped with the backend's fingerprint. Allocates.
//
// Copies are submitted to `stream`; `cap_capsule_ready` tells when they have run. Every window is checked against its
// buffer before the first byte moves. Null on any failure, and then everything that was made is freed again (after a
// `sync` of the stream, so that no copy is under way).
//
// Safety:
// `boundary` is null or points to a boundary with its regions and its meta; buffers are those of the context's backend.
cap_capsule cap_snapshot(cap_ctx ctx, const struct cap_boundary *boundary, int tier, int stream);

// Whether the bytes of a capsule are complete: 0 yes, above 0 not yet, below 0 a status. Never waits; takes no memory and
// no lock. A restore does not change the answer; a tier move renews it.
//
// Safety:
// As every call with a context: the backend is valid, and no other thread is in a call with the context.
int cap_capsule_ready(cap_ctx ctx, cap_capsule capsule);

// Submits copies of a capsule's bytes to `stream`, back to where they were taken from. Done when the stream is.
//
// A loaded capsule has no such place (`CAP_ERR_ARG`). The fingerprint must be that of the backend, and every window is
// checked against its buffer again, before the first copy. On another stream than that of the snapshot the copies wait for
// the snapshot. When the backend fails midway (`CAP_ERR_BACKEND`), regions before that one may have their old bytes back.
//
// Safety:
// The buffers that the capsule was taken from still exist.
int cap_restore(cap_ctx ctx, cap_capsule capsule, int stream);

// `cap_restore` into other windows: `n` is the number of regions of the capsule, and each window has at least the bytes of
// the region at its place; those further behind stay as they are. For branches and for loaded capsules.
//
// Safety:
// `dst` is null or points to `n` regions; their buffers are those of the context's backend.
int cap_restore_into(cap_ctx ctx, cap_capsule capsule, const struct cap_region *dst, int n, int stream);

// Where the bytes of a capsule lie. `out` null: `*n` becomes the number of regions. Otherwise at most `*n` of them are
// written, and `*n` becomes the number of all. Valid until the capsule is moved or dropped.
//
// Safety:
// `n` is null or points to an `int`; `out` is null or has room for `*n` views.
int cap_regions(cap_ctx ctx, cap_capsule capsule, struct cap_region_view *out, int *n);

// Additive: not in the published header.
// The meta of a capsule, taken or loaded; `*meta` is null when there is none. Valid until the capsule is dropped.
//
// Safety:
// `meta` and `len` are null or point to a pointer and a size.
int cap_capsule_meta(cap_ctx ctx, cap_capsule capsule, const void **meta, size_t *len);

// Moves the bytes of a capsule to another tier; the same tier is a no-op. Waits for `stream`.
//
// All new memory is taken and filled before the first old byte is freed: on any failure the capsule is whole in its old
// tier. The capsule's readiness is that of the move afterwards. Restores that still read the old bytes on other streams
// must be over.
//
// Safety:
// As every call with a context: the backend is valid, and no other thread is in a call with the context.
int cap_tier_move(cap_ctx ctx, cap_capsule capsule, int tier, int stream);

// Writes a capsule as a blob. `out` null: `*len` becomes its size. Otherwise `*len` is the room at `out`, too little is
// `CAP_ERR_ARG`, and `*len` becomes the bytes written.
//
// Waits for the snapshot first: its event is queried; while it is pending, the snapshot's stream is waited for and the event
// queried again, and one that stays pending is `CAP_ERR_BACKEND`. Then the bytes are read on stream 0, which is waited for.
// After a failure `*len` is unchanged and the bytes at `out` are nothing.
//
// Safety:
// `len` is null or points to a size; `out` is null or has room for `*len` bytes, read and written by nobody else.
int cap_serialize(cap_ctx ctx, cap_capsule capsule, void *out, size_t *len);

// A host-tier capsule from a blob, for `cap_restore_into`. Null unless every byte of it is in order and it was made under the
// backend's fingerprint; `cap_load_status` tells why. Nothing is taken from the backend before the whole blob is checked.
//
// Safety:
// `blob` is null or points to `len` bytes, which nobody writes meanwhile. Any alignment.
cap_capsule cap_load(cap_ctx ctx, const void *blob, size_t len);

// Additive: not in the published header.
// How the last `cap_load` on this thread ended: `CAP_OK`, `CAP_ERR_ARG`, `CAP_ERR_FORMAT` (no whole blob),
// `CAP_ERR_VERSION`, `CAP_ERR_FINGERPRINT`, `CAP_ERR_NOMEM`, `CAP_ERR_BACKEND`. `CAP_OK` before the first.
int cap_load_status(void);

// Frees a capsule with its memory and its event, without waiting: a `buffer_free` that does not itself wait for copies must
// not be reached before they are over. Null is a no-op; a capsule of another context stays.
//
// Safety:
// As every call with a context: the backend is valid, and no other thread is in a call with the context.
void cap_capsule_drop(cap_ctx ctx, cap_capsule capsule);

// Submits one replay of `*stage`. A variant that is not there is `CAP_ERR_ARG`. Takes no memory and no lock.
//
// Safety:
// `stage` is null or points to a stage; its graph is one of the context's backend.
int cap_fire(cap_ctx ctx, const struct cap_stage *stage);

// Fires the `CAP_EVERY` stages that are due at `clock`, in the order of the array; others are left out.
//
// A pair `{waiter, dependency}` makes the waiter's stream wait for the dependency, if that fired earlier in this tick. An
// index outside the stages is `CAP_ERR_ARG`, and then nothing fires. `*failed` (unless null) becomes the first stage that
// failed, otherwise -1; the tick ends there with `CAP_ERR_BACKEND`, and what was fired before stays fired.
//
// The stages that others wait for get an event of the backend for the length of the call. The list of them is kept with the
// context: from the second tick on the library itself takes no memory.
//
// Safety:
// `schedule` is null or points to a schedule with its stages and pairs; `failed` is null or points to an `int`.
int cap_drive_tick(cap_ctx ctx, const struct cap_schedule *schedule, uint64_t clock, int *failed);

// Submits an upload of `n` bytes to the start of `dst`. More than `dst` holds is `CAP_ERR_ARG`; for 0 bytes there is nothing to
// submit. Takes no memory and no lock.
//
// Safety:
// `dst` is null or a buffer of the context's backend; `src` is null or points to `n` bytes that stay as they are until the
// stream has run the upload.
int cap_swap(cap_ctx ctx, cap_buffer dst, const void *src, size_t n, int stream);

// Waits for everything submitted to `stream`. Takes no memory and no lock.
//
// Safety:
// As every call with a context: the backend is valid, and no other thread is in a call with the context.
int cap_sync(cap_ctx ctx, int stream);

// Additive: not in the published header.
// Fills `*out` with a backend over an execution context of `flashrt/exec.h`, whose fingerprint is always `fingerprint`.
//
// Its buffers, graphs and events are the handles `frt_buffer`, `frt_graph` and `frt_event` of that context, cast, and its
// streams are the stream ids. Uploads and downloads are complete when they return. `buffer_wrap` in host space is only there
// on the CPU. Ends with `cap_backend_done_frt`; a backend that was ended, or whose context was destroyed, fails every call.
//
// Safety:
// `out` is null or has room for a `cap_backend`.
int cap_backend_init_frt(cap_backend *out, struct frt_ctx_s *ctx, uint64_t fingerprint);

// Additive: not in the published header.
// Ends a backend of `cap_backend_init_frt`, after the contexts over it; the execution context stays. Sets `self` to null.
// Null, a second call, and a backend of somebody else are a no-op.
//
// Safety:
// `backend` is null or points to a `cap_backend`.
void cap_backend_done_frt(cap_backend *backend);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* CAPSULE_CAPSULE_H */
