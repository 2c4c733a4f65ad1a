/* Numbers of the FlashRT C ABI that this library implements. Copyright the flashrt_ros authors; Apache-2.0. */
#ifndef FLASHRT_CONSTANTS_H
#define FLASHRT_CONSTANTS_H

#include <stdint.h>

/* Status codes of the exec functions. */
#define FRT_OK 0
#define FRT_ERR_INVALID -1
#define FRT_ERR_NO_VARIANT -2
#define FRT_ERR_UNBOUND -3
#define FRT_ERR_CAPTURE -4
#define FRT_ERR_BACKEND -5
#define FRT_ERR_OOM -6

/* Shape key of a plan node that takes the key of the call. */
#define FRT_KEY_INHERIT UINT64_MAX

/* Versions of the export and model runtime layouts. */
#define FRT_RUNTIME_ABI_VERSION 1
#define FRT_MODEL_RUNTIME_ABI_VERSION 1

#ifdef __cplusplus
extern "C" {
#endif

/* 64-bit FNV-1a of `len` bytes at `data`. A null pointer counts as no bytes. Any thread. */
uint64_t frt_runtime_fingerprint(const void* data, uint64_t len);

#ifdef __cplusplus
}
#endif

#endif
