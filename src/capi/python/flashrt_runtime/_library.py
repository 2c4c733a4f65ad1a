"""The C library: where it is, its structs and prototypes, and how its failures become exceptions."""

from __future__ import annotations

import ctypes
import os
import sys
from ctypes import (
    CFUNCTYPE, POINTER, c_char_p, c_int, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p,
)
from pathlib import Path

#: Environment variable with the path of the C library; it goes before every other place.
LIBRARY_VARIABLE = "FLASHRT_LIBRARY"

#: The name that the loader knows the library by; its number grows when the ABI breaks.
_SONAME = "libflashrt.so.0"
#: The same library as cargo calls it.
_BUILT = "libflashrt_capi.so"


class FlashrtError(RuntimeError):
    """A call of the C library failed. `code` is its status; -1 where the call answers with null."""

    def __init__(self, code: int, text: str):
        super().__init__(text)
        self.code = code


class VerbStatusError(Exception):
    """Raised by a callback of a producer: the verb answers `code`, its `last_error` is the text.

    `code` is -1 invalid, -2 not found, -3 unsupported, -4 shape or format, -5 storage too small, -6 backend.
    """

    def __init__(self, code: int, text: str = ""):
        if not isinstance(code, int) or isinstance(code, bool) or not -(2**31) <= code < 0:
            raise ValueError(f"status of a verb: expected a negative 32-bit int, got {code!r}")
        super().__init__(text or f"status {code}")
        self.code = code


class ImageViewStruct(ctypes.Structure):
    """`frt_image_view`, 48 bytes."""

    _fields_ = [
        ("struct_size", c_uint32), ("pixel_format", c_uint32), ("data", c_void_p), ("bytes", c_uint64),
        ("width", c_int32), ("height", c_int32), ("stride_bytes", c_int32), ("reserved", c_uint32),
        ("timestamp_ns", c_uint64),
    ]


class PortDesc(ctypes.Structure):
    """`frt_runtime_port_desc`, 72 bytes."""

    _fields_ = [
        ("name", c_char_p), ("modality", c_uint32), ("dtype", c_uint32), ("layout", c_uint32),
        ("direction", c_uint32), ("update", c_uint32), ("required", c_uint32), ("shape", POINTER(c_int64)),
        ("rank", c_uint32), ("cadence_hint_hz", c_uint32), ("buffer", c_void_p), ("offset", c_uint64),
        ("bytes", c_uint64),
    ]


class StageDesc(ctypes.Structure):
    """`frt_runtime_stage_desc`, 16 bytes."""

    _fields_ = [("graph", c_uint32), ("n_after", c_uint32), ("after", POINTER(c_uint32))]


class GenericStageDesc(ctypes.Structure):
    """`frt_generic_stage_desc_v1`, 32 bytes."""

    _fields_ = [
        ("name", c_char_p), ("executor_kind", c_uint32), ("executor_ref", c_uint32), ("n_after", c_uint32),
        ("after", POINTER(c_uint32)),
    ]


#: `set_input(self, port, data, bytes, stream)`
SetInput = CFUNCTYPE(c_int, c_void_p, c_uint32, c_void_p, c_uint64, c_int)
#: `get_output(self, port, out, capacity, written, stream)`
GetOutput = CFUNCTYPE(c_int, c_void_p, c_uint32, c_void_p, c_uint64, c_void_p, c_int)
#: `prepare(self, graph, key)`
Prepare = CFUNCTYPE(c_int, c_void_p, c_uint32, c_uint64)
#: `step(self)`
Step = CFUNCTYPE(c_int, c_void_p)
#: `last_error(self)`; the address of a text, because ctypes does not own what a callback returns
LastError = CFUNCTYPE(c_void_p, c_void_p)
#: `run_opaque(stage_self, executor_ref)`
RunOpaque = CFUNCTYPE(c_int, c_void_p, c_uint32)
#: `retain(owner)`, `release(owner)`, a host function
OfPointer = CFUNCTYPE(None, c_void_p)
#: `record(user, stream)`
Record = CFUNCTYPE(None, c_void_p, c_void_p)


class GenericStagePlan(ctypes.Structure):
    """`frt_generic_stage_plan_ext_v1`, 40 bytes."""

    _fields_ = [
        ("abi_version", c_uint32), ("struct_size", c_uint32), ("stages", POINTER(GenericStageDesc)),
        ("n_stages", c_uint64), ("stage_self", c_void_p), ("run_opaque", RunOpaque),
    ]


class Verbs(ctypes.Structure):
    """`frt_model_runtime_verbs`, 48 bytes."""

    _fields_ = [
        ("struct_size", c_uint32), ("reserved", c_uint32), ("set_input", SetInput), ("get_output", GetOutput),
        ("prepare", Prepare), ("step", Step), ("last_error", LastError),
    ]


class ExportV1(ctypes.Structure):
    """`frt_runtime_export_v1`, 128 bytes."""

    _fields_ = [
        ("abi_version", c_uint32), ("struct_size", c_uint32), ("ctx", c_void_p),
        ("streams", c_void_p), ("n_streams", c_uint64), ("graphs", c_void_p), ("n_graphs", c_uint64),
        ("buffers", c_void_p), ("n_buffers", c_uint64), ("capsule_regions", c_void_p),
        ("n_capsule_regions", c_uint64), ("fingerprint", c_uint64), ("identity", c_char_p),
        ("manifest_json", c_char_p), ("owner", c_void_p), ("retain", OfPointer), ("release", OfPointer),
    ]


class ModelV1(ctypes.Structure):
    """`frt_model_runtime_v1` up to `release`, 128 bytes: all that a reader may require."""

    _fields_ = [
        ("abi_version", c_uint32), ("struct_size", c_uint32), ("exp", POINTER(ExportV1)),
        ("ports", POINTER(PortDesc)), ("n_ports", c_uint64), ("stages", POINTER(StageDesc)),
        ("n_stages", c_uint64), ("self_", c_void_p), ("verbs", Verbs), ("owner", c_void_p),
        ("retain", OfPointer), ("release", OfPointer),
    ]


class ModelV1Tail(ctypes.Structure):
    """`frt_model_runtime_v1` with `query_extension`, 136 bytes; only where `struct_size` says so."""

    _fields_ = [
        ("base", ModelV1),
        ("query_extension", CFUNCTYPE(c_int, c_void_p, c_uint64, c_uint32, POINTER(c_void_p))),
    ]


for _struct, _size in (
    (ImageViewStruct, 48), (PortDesc, 72), (StageDesc, 16), (GenericStageDesc, 32), (GenericStagePlan, 40),
    (Verbs, 48), (ExportV1, 128), (ModelV1, 128), (ModelV1Tail, 136),
):
    if ctypes.sizeof(_struct) != _size:
        raise ImportError(
            f"{_struct.__name__}: expected {_size} bytes, got {ctypes.sizeof(_struct)}; only 64-bit platforms work"
        )

_P, _S, _I, _U32, _U64, _N = c_void_p, c_char_p, c_int, c_uint32, c_uint64, c_size_t
_PROTOTYPES = {
    "frt_last_error": (_S,),
    "frt_version": (_S,),
    "frt_ctx_create": (_P,),
    "frt_ctx_create_with": (_P, _I, _I),
    "frt_ctx_destroy": (None, _P),
    "frt_ctx_backend": (_I, _P),
    "frt_ctx_stream": (_I, _P, _I),
    "frt_ctx_wrap_stream": (_I, _P, _P),
    "frt_stream_sync": (_I, _P, _I),
    "frt_stream_handle": (_P, _P, _I),
    "frt_stream_host_func": (_I, _P, OfPointer, _P),
    "frt_buffer_alloc": (_P, _P, _S, _N),
    "frt_buffer_alloc_host": (_P, _P, _S, _N),
    "frt_buffer_wrap": (_P, _P, _S, _P, _N),
    "frt_buffer_free": (_I, _P),
    "frt_buffer_dptr": (_P, _P),
    "frt_buffer_bytes": (_N, _P),
    "frt_buffer_space": (_I, _P),
    "frt_buffer_copy": (_I, _P, _P, _N, _P, _N, _N, _I),
    "frt_buffer_fill": (_I, _P, _P, _N, _I, _N, _I),
    "frt_buffer_upload": (_I, _P, _P, _N, _P, _N, _I),
    "frt_buffer_download": (_I, _P, _P, _N, _P, _N, _I),
    "frt_graph_create": (_P, _P, _S, _N),
    "frt_graph_destroy": (None, _P),
    "frt_graph_capture": (_I, _P, _U64, Record, _P),
    "frt_graph_adopt": (_I, _P, _U64, _P),
    "frt_graph_executable": (_P, _P, _U64),
    "frt_graph_bind": (_I, _P, _S, _P),
    "frt_graph_replay": (_I, _P, _U64, _I),
    "frt_graph_has_variant": (_I, _P, _U64),
    "frt_graph_evict": (_I, _P, _U64),
    "frt_graph_evict_lru": (_I, _P),
    "frt_graph_variant_count": (_N, _P),
    "frt_runtime_builder_create": (_P, _P),
    "frt_model_runtime_builder_create_metadata": (_P,),
    "frt_runtime_builder_destroy": (None, _P),
    "frt_runtime_builder_add_stream": (_I, _P, _S, _I, _I, _P),
    "frt_runtime_builder_add_graph": (_I, _P, _S, _P, _U64, POINTER(_U64), _U64, _I),
    "frt_runtime_builder_add_buffer": (_I, _P, _S, _P, _U64, _U32),
    "frt_runtime_builder_add_region": (_I, _P, _S, _P, _U64, _U64, _U32),
    "frt_runtime_builder_add_identity": (_I, _P, _S, _S),
    "frt_runtime_builder_set_manifest": (_I, _P, _S),
    "frt_runtime_builder_add_port": (
        _I, _P, _S, _U32, _U32, _U32, _U32, _U32, _U32, POINTER(c_int64), _U32, _U32, _P, _U64, _U64,
    ),
    "frt_runtime_builder_add_stage": (_I, _P, _U32, POINTER(_U32), _U32),
    "frt_runtime_builder_add_generic_stage": (_I, _P, _S, _U32, _U32, POINTER(_U32), _U32),
    "frt_runtime_builder_set_generic_stage_runner": (_I, _P, _P, RunOpaque),
    "frt_runtime_builder_finish_model": (_P, _P, POINTER(Verbs), _P, _P, OfPointer, OfPointer),
    "frt_runtime_fingerprint": (_U64, _P, _N),
}


def _candidates():
    """Paths and modes to try, in order; a bare name is for the search of the dynamic loader."""
    given = os.environ.get(LIBRARY_VARIABLE)
    if given:
        yield given, ctypes.DEFAULT_MODE
        return
    # A process has one: handles of one copy mean nothing to another.
    yield _SONAME, os.RTLD_NOLOAD | os.RTLD_NOW
    # Installed, the package is below PREFIX/lib and the library in PREFIX/lib; in a checkout it is where cargo puts it.
    for folder in list(Path(__file__).resolve().parents)[:6]:
        for path in (folder / "lib" / _SONAME, folder / "target" / "release" / _BUILT):
            if path.is_file():
                yield str(path), ctypes.DEFAULT_MODE
    yield _SONAME, ctypes.DEFAULT_MODE


def _load() -> ctypes.CDLL:
    tried = []
    for path, mode in _candidates():
        try:
            # CDLL gives the interpreter lock up during every call, which callbacks from other threads rely on.
            library = ctypes.CDLL(path, mode)
        except OSError as error:
            tried.append(str(error))
            continue
        for name, (result, *arguments) in _PROTOTYPES.items():
            try:
                function = getattr(library, name)
            except AttributeError:
                raise ImportError(f"{path} has no symbol {name}: it is not the FlashRT C library of this version") from None
            function.restype, function.argtypes = result, arguments
        return library
    raise ImportError(
        f"the FlashRT C library was not found; set {LIBRARY_VARIABLE} to its path. Tried: " + "; ".join(tried)
    )


lib = _load()


def last_error() -> str:
    """Text of the last failure in the library on this thread."""
    return (lib.frt_last_error() or b"").decode("utf-8", "replace")


def checked(status: int) -> int:
    """`status` if it is no failure; raises FlashrtError otherwise."""
    if status < 0:
        raise FlashrtError(status, last_error() or f"status {status}")
    return status


def not_null(pointer):
    """`pointer` if it is none; raises FlashrtError otherwise."""
    if not pointer:
        raise FlashrtError(-1, last_error() or "the library answered null")
    return pointer


def integer(what: str, value, low: int, high: int) -> int:
    """An int between both ends. ctypes would cut off what does not fit."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{what}: expected an int, got {value!r}")
    number = value.__index__()
    if not low <= number <= high:
        raise ValueError(f"{what}: expected {low} to {high}, got {number}")
    return number


def u32(what: str, value) -> int:
    return integer(what, value, 0, 2**32 - 1)


def u64(what: str, value) -> int:
    return integer(what, value, 0, 2**64 - 1)


def i32(what: str, value) -> int:
    return integer(what, value, -(2**31), 2**31 - 1)


def i64(what: str, value) -> int:
    return integer(what, value, -(2**63), 2**63 - 1)


def text(what: str, value) -> bytes:
    """UTF-8 of a str without NUL."""
    if not isinstance(value, str):
        raise TypeError(f"{what}: expected a str, got {value!r}")
    if "\0" in value:
        raise ValueError(f"{what}: {value!r} has a NUL, at which C ends a text")
    return value.encode("utf-8")


def array(kind, numbers):
    """A C array, or None for no numbers."""
    return (kind * len(numbers))(*numbers) if numbers else None


def for_ever(function):
    """Gives a C callback the life of the process: native code may hold its address longer than this module lives."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(function))
    return function


def is_finalizing() -> bool:
    return sys.is_finalizing()
