// This file is generated from the Rust sources; see docs/c_abi.md. Do not edit.
// A producer's export: streams, graphs, buffers, state regions, identity. The builder makes one.
// Nothing here follows a handle of exec.h. retain and release may be called on any thread.
// SPDX-License-Identifier: Apache-2.0

#ifndef FLASHRT_RUNTIME_H
#define FLASHRT_RUNTIME_H

#include <stddef.h>
#include <stdint.h>
#include "flashrt/exec.h"

// An export or a model runtime in the making.
typedef struct frt_runtime_builder_s *frt_runtime_builder;

// Name of the factory symbol of a library that opens an export.
#define FRT_RUNTIME_OPEN_V1_SYMBOL "frt_runtime_open_v1"

// Version of the export layout.
#define FRT_RUNTIME_ABI_VERSION 1u

// Bits of frt_runtime_buffer_desc.role.
typedef enum frt_runtime_role {
  // Role bit of a buffer: written from outside before a tick.
  FRT_RT_ROLE_INPUT = 1,
  // Role bit of a buffer: read from outside after a tick.
  FRT_RT_ROLE_OUTPUT = 2,
  // Role bit of a buffer: carries state from tick to tick.
  FRT_RT_ROLE_STATE = 4,
  // Role bit of a buffer: working memory of one tick.
  FRT_RT_ROLE_SCRATCH = 8
} frt_runtime_role;

// Bits of frt_runtime_region_desc.flags.
typedef enum frt_runtime_region_flags {
  // Flag of a region: copied into a snapshot.
  FRT_RT_REGION_SNAPSHOT = 1,
  // Flag of a region: written by a restore.
  FRT_RT_REGION_RESTORE = 2
} frt_runtime_region_flags;

// A stream of the export.
typedef struct frt_runtime_stream_desc {
  // Name, NUL-terminated.
  const char *name;
  // Stream of the context, not negative.
  int32_t stream_id;
  // Priority, more negative is more urgent.
  int32_t priority;
  // The backend's stream; borrowed, may be null.
  void *native_handle;
} frt_runtime_stream_desc;

// A captured graph.
typedef struct frt_runtime_graph_desc {
  // Name, NUL-terminated.
  const char *name;
  // The graph.
  frt_graph handle;
  // Variant to fire when no key is given.
  frt_shape_key default_key;
  // Variants that exist at export.
  const frt_shape_key *keys;
  // Entries of `keys`.
  uint64_t n_keys;
  // Stream that it is replayed on.
  int32_t stream_id;
} frt_runtime_graph_desc;

// A named buffer.
typedef struct frt_runtime_buffer_desc {
  // Name, NUL-terminated.
  const char *name;
  // The buffer.
  frt_buffer handle;
  // Size in bytes.
  uint64_t bytes;
  // Bits `FRT_RT_ROLE_*`.
  uint32_t role;
  // 0.
  uint32_t reserved;
} frt_runtime_buffer_desc;

// A window of a buffer that makes up the state.
typedef struct frt_runtime_region_desc {
  // Name, NUL-terminated.
  const char *name;
  // Buffer that it lies in.
  frt_buffer buffer;
  // First byte.
  uint64_t offset;
  // Bytes, not 0.
  uint64_t bytes;
  // Bits `FRT_RT_REGION_*`.
  uint32_t flags;
  // 0.
  uint32_t reserved;
} frt_runtime_region_desc;

// Everything that a producer exports, version 1.
//
// Strings, arrays and handles are valid while a reference is held. `retain(owner)` adds one and `release(owner)` gives one back, on any
// thread; `owner` is not the producer's own pointer.
typedef struct frt_runtime_export_v1 {
  // `FRT_RUNTIME_ABI_VERSION`.
  uint32_t abi_version;
  // Bytes of this struct, at least 128.
  uint32_t struct_size;
  // Execution context; null for a provider without one.
  frt_ctx ctx;
  // Streams.
  const struct frt_runtime_stream_desc *streams;
  // Entries of `streams`.
  uint64_t n_streams;
  // Graphs.
  const struct frt_runtime_graph_desc *graphs;
  // Entries of `graphs`.
  uint64_t n_graphs;
  // Buffers.
  const struct frt_runtime_buffer_desc *buffers;
  // Entries of `buffers`.
  uint64_t n_buffers;
  // State regions.
  const struct frt_runtime_region_desc *capsule_regions;
  // Entries of `capsule_regions`.
  uint64_t n_capsule_regions;
  // FNV-1a of the identity.
  uint64_t fingerprint;
  // Canonical identity, NUL-terminated; the NUL is not hashed.
  const char *identity;
  // Manifest, NUL-terminated; null when there is none.
  const char *manifest_json;
  // Passed to `retain` and `release`.
  void *owner;
  // Adds a reference.
  void (*retain)(void *owner);
  // Gives a reference back.
  void (*release)(void *owner);
} frt_runtime_export_v1;

// The factory symbol's type: 0 means that `*out` carries one reference.
typedef int (*frt_runtime_open_v1_fn)(const char *config_json, struct frt_runtime_export_v1 **out);

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Starts a declaration over the context `ctx`, which is stored and never looked into. Null for a null context.
frt_runtime_builder frt_runtime_builder_create(frt_ctx ctx);

// Additive: not in the published header.
// Ends a builder that is not wanted any more, a metadata builder too. Null and finished builders are ignored.
void frt_runtime_builder_destroy(frt_runtime_builder b);

// Declares a stream. 0, or -1: null builder or name, negative id, metadata builder. Names may repeat.
//
// Safety:
// `name` is null or NUL-terminated.
int frt_runtime_builder_add_stream(frt_runtime_builder b, const char *name, int stream_id, int priority, void *native_handle);

// Declares a graph with the `n_keys` variants that exist. 0, or -1: null builder, name or graph; null keys with a count; more than
// 2^20 keys; metadata builder. The stream may be undeclared, the default key need not be among the keys, the name may be empty.
//
// Safety:
// `name` is null or NUL-terminated; `keys` is null or has `n_keys` entries.
int frt_runtime_builder_add_graph(frt_runtime_builder b,
                                  const char *name,
                                  frt_graph graph,
                                  frt_shape_key default_key,
                                  const frt_shape_key *keys,
                                  uint64_t n_keys,
                                  int stream_id);

// Declares a buffer. 0, or -1: null builder, name or buffer; metadata builder. Size and role bits are taken as they are.
//
// Safety:
// `name` is null or NUL-terminated.
int frt_runtime_builder_add_buffer(frt_runtime_builder b, const char *name, frt_buffer buffer, uint64_t bytes, uint32_t role);

// Declares a state region. 0, or -1: null builder, name or buffer; 0 bytes; metadata builder. The window is not checked against the
// buffer, which need not be declared.
//
// Safety:
// `name` is null or NUL-terminated.
int frt_runtime_builder_add_region(frt_runtime_builder b, const char *name, frt_buffer buffer, uint64_t offset, uint64_t bytes, uint32_t flags);

// Adds a pair to the identity, unescaped. 0, or -1: null builder, key or value.
//
// Safety:
// `key` and `value` are null or NUL-terminated.
int frt_runtime_builder_add_identity(frt_runtime_builder b, const char *key, const char *value);

// Sets the manifest; the last call wins. 0, or -1: null builder or text. The text is not parsed.
//
// Safety:
// `json` is null or NUL-terminated.
int frt_runtime_builder_set_manifest(frt_runtime_builder b, const char *json);

// Ends the declaration as an export with one reference. `retain_owner(owner)` is called once here, `release_owner(owner)` once when the
// last reference is gone; each may be null.
//
// Null: a null or finished builder; ports, stages or a generic plan are declared (the builder stays usable, for `finish_model`); a
// metadata builder (which is destroyed).
//
// Safety:
// The callbacks accept `owner`.
struct frt_runtime_export_v1 *frt_runtime_builder_finish(frt_runtime_builder b,
                                                         void *owner,
                                                         void (*retain_owner)(void *owner),
                                                         void (*release_owner)(void *owner));

// 64-bit FNV-1a of `len` bytes at `data`. A null pointer counts as no bytes. Any thread.
//
// Safety:
// `data` is null, or points to `len` bytes that are readable and not written during the call.
uint64_t frt_runtime_fingerprint(const void *data, size_t len);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* FLASHRT_RUNTIME_H */
