// This file is generated from the Rust sources; see docs/c_abi.md. Do not edit.
// Contexts, streams, events, named buffers, graphs and plans.
// A handle that is null, dead or of another kind is answered with FRT_ERR_INVALID or null, never followed.
// Names are null or end in a NUL; other pointers are null or point to as many bytes as the call says.
// One context is driven by one thread at a time. A status is 0 or negative; frt_last_error() has the text.
// SPDX-License-Identifier: Apache-2.0

#ifndef FLASHRT_EXEC_H
#define FLASHRT_EXEC_H

#include <stddef.h>
#include <stdint.h>

// An execution context; owns everything that is made from it.
typedef struct frt_ctx_s *frt_ctx;
// Named memory of a context.
typedef struct frt_buffer_s *frt_buffer;
// Table from shape key to captured executable.
typedef struct frt_graph_s *frt_graph;
// Replays in a fixed order, with waits between streams.
typedef struct frt_plan_s *frt_plan;
// A point in a stream.
typedef struct frt_event_s *frt_event;
// Key of a graph variant; every value is a key.
typedef uint64_t frt_shape_key;

// How a call ends.
typedef enum frt_status {
  // Success.
  FRT_OK = 0,
  // A null, dead or wrong handle, a bad argument, a bad stream id, or a range error.
  FRT_ERR_INVALID = -1,
  // The graph has no variant for the key.
  FRT_ERR_NO_VARIANT = -2,
  // A port is not bound. Never returned: binding is bookkeeping.
  FRT_ERR_UNBOUND = -3,
  // A capture failed.
  FRT_ERR_CAPTURE = -4,
  // A stream, event, copy or launch call failed.
  FRT_ERR_BACKEND = -5,
  // An allocation failed, in a call that returns a status.
  FRT_ERR_OOM = -6
} frt_status;

// Backend: host memory, host threads.
#define FRT_BACKEND_CPU 0

// Backend: an NVIDIA GPU.
#define FRT_BACKEND_CUDA 1

// Space of a buffer: memory of the device that runs the graphs.
#define FRT_SPACE_DEVICE 0

// Space of a buffer: memory that the host may touch directly (CUDA: page-locked).
#define FRT_SPACE_HOST 1

// Key of a plan node that takes the key of each execution. An ordinary key everywhere else.
#define FRT_KEY_INHERIT ((frt_shape_key)18446744073709551615ull)

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Additive: not in the published header.
// Why the last failed call on this thread failed; empty if none did. Never null.
//
// The text is valid until the next call into the library on this thread. A call that succeeds leaves it as it is.
const char *frt_last_error(void);

// Additive: not in the published header.
// Version of the library, such as "0.1.0". Any thread; valid for ever.
const char *frt_version(void);

// A new context with stream 0. Null on failure.
//
// The environment decides: FLASHRT_BACKEND is cpu or cuda (unset: cuda if the device opens, otherwise cpu),
// FLASHRT_DEVICE is the ordinal of the GPU (unset: 0), FLASHRT_THREADS the number of host threads that run CPU work
// (unset or 0: one for each core). Another value is a failure.
frt_ctx frt_ctx_create(void);

// Additive: not in the published header.
// A new context with stream 0 on the backend FRT_BACKEND_CPU or FRT_BACKEND_CUDA. Null on failure. `ordinal` is that of
// the GPU and counts for nothing on the CPU; FLASHRT_THREADS counts as in frt_ctx_create.
frt_ctx frt_ctx_create_with(int kind, int ordinal);

// Destroys the context and all that belongs to it: plans, graphs, buffers, events, streams, in this order. What was
// adopted or wrapped is left alone. Submitted work that nobody waited for may be dropped. All handles of these objects
// are dead from now on. Null does nothing; a call from inside a callback of the context is refused.
void frt_ctx_destroy(frt_ctx ctx);

// Additive: not in the published header.
// FRT_BACKEND_CPU or FRT_BACKEND_CUDA; FRT_ERR_INVALID for a bad handle.
int frt_ctx_backend(frt_ctx ctx);

// A new stream; returns its id, counting from 1. More negative is more urgent; clamped to the range of the device.
int frt_ctx_stream(frt_ctx ctx, int priority);

// An id for a stream of the caller, which is never destroyed here. CUDA: a CUstream that outlives the context; null is
// the legacy default stream. CPU: a new queue, whatever is passed.
int frt_ctx_wrap_stream(frt_ctx ctx, void *stream);

// Additive: not in the published header.
// Runs all work of the stream; FRT_ERR_BACKEND if some of it failed.
int frt_stream_sync(frt_ctx ctx, int stream_id);

// Additive: not in the published header.
// The stream itself, as record callbacks get it. CUDA: the CUstream (null for the legacy default stream). CPU: something
// that only frt_stream_host_func understands. Null on failure.
void *frt_stream_handle(frt_ctx ctx, int stream_id);

// Additive: not in the published header.
// Puts a host function on a stream: what a record callback got (then it is recorded, and each replay calls it), or what
// frt_stream_handle gave (then it is submitted, and called once).
//
// It is called between the operations before and after it, on some thread of the library or of the caller. It must not
// use its context: such calls are refused. A Rust panic out of it is told by the next synchronise; a C++ exception must
// not leave it.
int frt_stream_host_func(void *stream, void (*function)(void *user), void *user);

// A new event, recorded nowhere yet. It belongs to the context. Null on failure.
frt_event frt_ctx_event(frt_ctx ctx);

// Destroys an event. Null does nothing.
void frt_event_destroy(frt_event ev);

// Marks all work that the stream was given so far.
int frt_event_record(frt_event ev, int stream_id);

// Makes later work of the stream run after the mark of an event of the same context. One that was never recorded holds
// nothing up.
int frt_stream_wait(frt_ctx ctx, int stream_id, frt_event ev);

// Additive: not in the published header.
// 0 when all work before the mark is done (or the event was never recorded), 1 while it is not, or a negative status.
// Never blocks: on the CPU one call runs at most one submitted item.
int frt_event_query(frt_event ev);

// Additive: not in the published header.
// Runs all work before the mark.
int frt_event_sync(frt_event ev);

// A new buffer of `bytes` device bytes, all zero, 64-byte aligned. It belongs to the context. The name is copied, null is
// the empty one. Null for 0 bytes and on failure.
frt_buffer frt_buffer_alloc(frt_ctx ctx, const char *name, size_t bytes);

// Additive: not in the published header.
// As frt_buffer_alloc, in memory that the host may touch at frt_buffer_dptr while no work on it is submitted.
frt_buffer frt_buffer_alloc_host(frt_ctx ctx, const char *name, size_t bytes);

// A buffer over `bytes` device bytes of the caller (CPU: any memory), which are never freed here and stay valid as long
// as the buffer and what captured it. 0 bytes are legal, a null address is not.
frt_buffer frt_buffer_wrap(frt_ctx ctx, const char *name, void *dptr, size_t bytes);

// Additive: not in the published header.
// Destroys a buffer before its context goes. Its memory is freed when no captured variant and no submitted work of
// frt_buffer_copy, _fill holds it; other work on its address is the caller's care.
int frt_buffer_free(frt_buffer buf);

// Address of the first byte, the same for the buffer's life. Null for a bad handle.
void *frt_buffer_dptr(frt_buffer buf);

// Length in bytes. 0 for a bad handle.
size_t frt_buffer_bytes(frt_buffer buf);

// The name, byte for byte as it was given; the buffer owns it. "" for a bad handle.
const char *frt_buffer_name(frt_buffer buf);

// Additive: not in the published header.
// FRT_SPACE_DEVICE or FRT_SPACE_HOST.
int frt_buffer_space(frt_buffer buf);

// Submits a copy of `bytes` bytes between two buffers of the context, of either space. The bytes must not overlap. In a
// record callback, on stream 0, the copy is recorded.
int frt_buffer_copy(frt_ctx ctx, frt_buffer dst, size_t dst_offset, frt_buffer src, size_t src_offset, size_t bytes, int stream_id);

// Additive: not in the published header.
// Submits setting `bytes` bytes to the low 8 bits of `value`. In a record callback, on stream 0, it is recorded.
int frt_buffer_fill(frt_ctx ctx, frt_buffer dst, size_t offset, int value, size_t bytes, int stream_id);

// Additive: not in the published header.
// Copies `bytes` bytes of the host into a buffer, after all earlier work of the stream; complete on return. For set-up
// and tests: it may wait for other streams too.
int frt_buffer_upload(frt_ctx ctx, frt_buffer dst, size_t offset, const void *src, size_t bytes, int stream_id);

// Additive: not in the published header.
// Copies `bytes` bytes of a buffer to the host, after all earlier work of the stream; complete on return. For set-up and
// tests: it may wait for other streams too.
int frt_buffer_download(frt_ctx ctx, frt_buffer src, size_t offset, void *dst, size_t bytes, int stream_id);

// A new graph without variants. It keeps at most `max_variants` (0: any number) and then evicts the least recently
// captured, adopted or replayed one. It belongs to the context. Null on failure.
frt_graph frt_graph_create(frt_ctx ctx, const char *name, size_t max_variants);

// Destroys a graph with its own executables; adopted ones are left alone. Null does nothing; refused while the graph is
// being recorded.
void frt_graph_destroy(frt_graph g);

// Calls `record(user, stream)` once and stores what it recorded on `stream` under `key`, as the most recent variant.
// Nothing of it runs now. Recording nothing is legal. FRT_ERR_CAPTURE on failure, a Rust panic out of the callback
// included; then the table is as it was. A C++ exception must not leave the callback.
//
// CUDA: `stream` is the CUstream being captured. CPU: frt_stream_host_func takes it. While it records, frt_buffer_copy and
// frt_buffer_fill on stream 0 are recorded, and every other command to the context is refused.
int frt_graph_capture(frt_graph g, frt_shape_key key, void (*record)(void *user, void *stream), void *user);

// Stores an executable of somebody else under `key`, as the most recent variant; it is never destroyed here. CUDA: a
// CUgraphExec that stays valid as long as it is in the graph. CPU: what frt_graph_executable gave, of a variant that is
// still there. One of frt_graph_executable is shared, so its first owner may go.
int frt_graph_adopt(frt_graph g, frt_shape_key key, void *exec);

// Additive: not in the published header.
// The executable under `key`, for frt_graph_adopt. Does not count as a use. Null on failure.
void *frt_graph_executable(frt_graph g, frt_shape_key key);

// Notes which buffer of the same context a port is; the last note wins. Captured work keeps the memory that it was
// captured with.
int frt_graph_bind(frt_graph g, const char *port, frt_buffer buf);

// Submits the variant under `key` to a stream. FRT_ERR_NO_VARIANT comes before FRT_ERR_INVALID for the stream. Takes no
// memory.
int frt_graph_replay(frt_graph g, frt_shape_key key, int stream_id);

// 1 if there is a variant under `key`, 0 if not, or for a bad handle. Does not count as a use.
int frt_graph_has_variant(frt_graph g, frt_shape_key key);

// Removes the variant under `key`. Only while no replay of it is under way.
int frt_graph_evict(frt_graph g, frt_shape_key key);

// Removes the least recent variant. Only while no replay of it is under way.
int frt_graph_evict_lru(frt_graph g);

// Number of variants. 0 for a bad handle.
size_t frt_graph_variant_count(frt_graph g);

// A new plan without nodes. It belongs to the context. Null on failure.
frt_plan frt_plan_create(frt_ctx ctx);

// Destroys a plan. Null does nothing.
void frt_plan_destroy(frt_plan p);

// Adds a replay and returns its node number, counting from 0. With FRT_KEY_INHERIT it replays the key of each execution.
// The variant need not exist yet.
int frt_plan_add(frt_plan p, frt_graph g, frt_shape_key key, int stream_id);

// Makes a node wait for another one. An edge to a later node is taken and orders nothing.
int frt_plan_after(frt_plan p, int node, int dep);

// Additive: not in the published header.
// FRT_ERR_INVALID if a node is after a later one, which orders nothing.
int frt_plan_validate(frt_plan p);

// Submits all nodes in the order in which they were added; an empty plan succeeds. Ends with the status of the first
// replay that fails: what was submitted before stays so. Takes no memory.
int frt_plan_execute(frt_plan p, frt_shape_key key);

// Runs all work of each stream that the plan uses. 0, or FRT_ERR_BACKEND if some of the work failed.
int frt_plan_sync(frt_plan p);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* FLASHRT_EXEC_H */
