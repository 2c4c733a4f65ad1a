"""A small face of the execution contract: a context, its buffers and its captured graphs.

One context has one driving thread at a time, and so have its buffers and graphs: the caller serialises.
"""

from __future__ import annotations

import ctypes
import itertools
import weakref
from enum import IntEnum
from typing import Callable, Optional, Union

from . import _callbacks
from ._library import OfPointer, Record, checked, for_ever, i32, integer, lib, not_null, text, u64
from .specs import enumeration

#: Context (weak) of each recorded host function, under the number that C passes back.
_host_functions = {}
#: (record function, graph) of the captures under way.
_captures = {}
_numbers = itertools.count(1)


class Backend(IntEnum):
    CPU = 0
    CUDA = 1


class Space(IntEnum):
    DEVICE = 0
    HOST = 1


def _nothing():
    return None


def _call_host_function(number):
    token = _callbacks.enter()
    try:
        context = _host_functions.get(number, _nothing)()
        if context is None or _callbacks.is_closing():
            return
        try:
            context.call_host_function(number)
        except BaseException as error:
            context.keep_failure(error.with_traceback(None))
    except BaseException:  # no memory even for that; nobody to tell
        pass
    finally:
        _callbacks.leave(token)


def _call_record(number, stream):
    capture = _captures[number]
    try:
        capture.record(Recorder(capture.context, stream))
    except BaseException as error:
        capture.error = error


_host_function_c = for_ever(OfPointer(_call_host_function))
_record_c = for_ever(Record(_call_record))


class ExecContext:
    """A context with stream 0 on one backend.

    `backend` None lets the environment decide (FLASHRT_BACKEND, FLASHRT_DEVICE); otherwise a Backend or its name. `ordinal` is
    that of the GPU. Raises FlashrtError when the backend cannot be opened.
    """

    def __init__(self, backend: Union[None, str, int] = None, ordinal: int = 0):
        self._pointer = None
        self._failure = None
        self._models = set()
        self._wrapped = []
        self._lent = []
        self._functions = {}
        self._is_closed = False
        if backend is None:
            self._pointer = not_null(lib.frt_ctx_create())
        else:
            kind = enumeration(Backend, "backend", backend)
            self._pointer = not_null(lib.frt_ctx_create_with(int(kind), i32("ordinal", ordinal)))
        # Asked once: host functions must not call into their context.
        self.backend = Backend(checked(lib.frt_ctx_backend(self._pointer)))

    def raw(self) -> int:
        """The `frt_ctx`. Raises ValueError after close."""
        if self._is_closed or self._pointer is None:
            raise ValueError("the context is closed")
        return self._pointer

    def stream(self, priority: int = 0) -> int:
        """Id of a new stream, counting from 1. A more negative priority is more urgent."""
        return checked(lib.frt_ctx_stream(self.raw(), i32("priority", priority)))

    def wrap_stream(self, handle: int) -> int:
        """Id for a stream of the caller, a CUstream as a number; 0 is the legacy default stream."""
        return checked(lib.frt_ctx_wrap_stream(self.raw(), u64("handle", handle)))

    def stream_handle(self, stream: int = 0) -> int:
        """The backend's stream as a number, as other CUDA libraries take it; 0 for the legacy default stream."""
        return lib.frt_stream_handle(self.raw(), i32("stream", stream)) or 0

    def sync(self, stream: int = 0) -> None:
        """Waits for all work of the stream. Raises what a host function raised since the last call."""
        status = lib.frt_stream_sync(self.raw(), i32("stream", stream))
        failure = self.take_failure()
        if failure is not None:
            raise failure
        checked(status)

    def alloc(self, name: str, nbytes: int, space: Union[str, int] = Space.DEVICE) -> "Buffer":
        """A new zeroed buffer of `nbytes` bytes, in device memory or in memory that the host may touch."""
        where = enumeration(Space, "space", space)
        make = lib.frt_buffer_alloc_host if where == Space.HOST else lib.frt_buffer_alloc
        return Buffer(self, not_null(make(self.raw(), text("name", name), u64("nbytes", nbytes))))

    def wrap(self, name: str, memory, nbytes: Optional[int] = None) -> "Buffer":
        """A buffer over memory of the caller: a writable object such as a bytearray (CPU only), or an address with `nbytes`.

        An object stays alive and keeps its size as long as the context; memory at an address is the caller's care.
        """
        if isinstance(memory, int):
            if nbytes is None:
                raise TypeError("nbytes: an address needs its length in bytes")
            address, size, lent = memory, u64("nbytes", nbytes), None
        else:
            if self.backend == Backend.CUDA:
                raise TypeError("memory: on CUDA a buffer wraps a device address, not a Python object")
            with memoryview(memory) as view:
                if view.readonly or not view.c_contiguous:
                    raise TypeError("memory: expected a writable contiguous object")
                size = view.nbytes if nbytes is None else integer("nbytes", nbytes, 0, view.nbytes)
                lent = (ctypes.c_ubyte * view.nbytes).from_buffer(memory)
            address = ctypes.addressof(lent)
        buffer = Buffer(self, not_null(lib.frt_buffer_wrap(self.raw(), text("name", name), address, size)))
        self._wrapped.append(lent)
        return buffer

    def graph(self, name: str, max_variants: int = 0) -> "Graph":
        """A graph without variants that keeps at most `max_variants` (0: any number)."""
        return Graph(self, not_null(lib.frt_graph_create(self.raw(), text("name", name), u64("max_variants", max_variants))), name)

    def copy(self, dst: "Buffer", src: "Buffer", nbytes: Optional[int] = None, *, dst_offset: int = 0, src_offset: int = 0,
             stream: int = 0) -> None:
        """Submits a copy between two buffers of the context. `nbytes` None copies to the end of `src`."""
        if nbytes is None:
            nbytes = max(src.nbytes - src_offset, 0)
        checked(lib.frt_buffer_copy(
            self.raw(), dst.raw(), u64("dst_offset", dst_offset), src.raw(), u64("src_offset", src_offset),
            u64("nbytes", nbytes), i32("stream", stream),
        ))

    def fill(self, dst: "Buffer", value: int, nbytes: Optional[int] = None, *, offset: int = 0, stream: int = 0) -> None:
        """Submits setting bytes to `value`, 0 to 255. `nbytes` None fills to the end."""
        if nbytes is None:
            nbytes = max(dst.nbytes - offset, 0)
        checked(lib.frt_buffer_fill(
            self.raw(), dst.raw(), u64("offset", offset), integer("value", value, 0, 255), u64("nbytes", nbytes),
            i32("stream", stream),
        ))

    def close(self) -> None:
        """Ends the context with its buffers, graphs and host functions; views that are left keep their memory.

        Raises ValueError while a model over it is not released.
        """
        if self._models:
            raise ValueError(f"the context is in use by {len(self._models)} model runtime(s) that are not released")
        self._is_closed = True
        self._forget_functions()
        if self._pointer is not None and not self._live_views():
            self._destroy()

    def _destroy(self) -> None:
        pointer, self._pointer = self._pointer, None
        lib.frt_ctx_destroy(pointer)
        self._forget_functions()
        self._wrapped.clear()

    def _forget_functions(self) -> None:
        for number in list(self._functions):
            _host_functions.pop(number, None)
        self._functions.clear()

    def __enter__(self) -> "ExecContext":
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def __del__(self) -> None:
        # At exit native threads may still replay; the end of the process frees what is left.
        if getattr(self, "_pointer", None) is not None and not _callbacks.is_closing():
            self._destroy()

    def _live_views(self) -> int:
        self._lent = [lent for lent in self._lent if lent() is not None]
        return len(self._lent)

    # ---- for models and callbacks of this package ----

    def lend(self, lent) -> None:
        if len(self._lent) > 64:
            self._live_views()
        self._lent.append(weakref.ref(lent))

    def keep_failure(self, error: BaseException) -> None:
        if self._failure is None:
            self._failure = error

    def take_failure(self) -> Optional[BaseException]:
        failure, self._failure = self._failure, None
        return failure

    def add_model(self, number: int) -> None:
        self._models.add(number)

    def forget_model(self, number: int) -> None:
        self._models.discard(number)

    def add_host_function(self, stream: int, function: Callable[[], None]) -> None:
        if not callable(function):
            raise TypeError(f"host function: expected a callable, got {function!r}")
        number = next(_numbers)
        # Kept until the context goes: any variant may still run it.
        self._functions[number] = function
        _host_functions[number] = weakref.ref(self)
        try:
            checked(lib.frt_stream_host_func(stream, _host_function_c, number))
        except BaseException:
            del self._functions[number], _host_functions[number]
            raise

    def call_host_function(self, number: int) -> None:
        function = self._functions.get(number)
        if function is not None:
            function()


class Buffer:
    """Memory of a context. It lives as long as the context, or until `free`."""

    def __init__(self, context: ExecContext, pointer: int):
        self.context = context
        self._pointer = pointer
        self.nbytes = lib.frt_buffer_bytes(pointer)
        #: Address of the first byte, in the memory of the backend; 0 for an empty buffer of none.
        self.address = lib.frt_buffer_dptr(pointer) or 0
        self.space = Space(checked(lib.frt_buffer_space(pointer)))

    def raw(self) -> int:
        """The `frt_buffer`. Raises ValueError after free or after the context's close."""
        if self._pointer is None:
            raise ValueError("the buffer is freed")
        self.context.raw()
        return self._pointer

    def upload(self, data, offset: int = 0, stream: int = 0) -> None:
        """Copies bytes of the host in, after all earlier work of the stream; complete on return."""
        view = memoryview(data)
        plain = view.tobytes()
        checked(lib.frt_buffer_upload(
            self.context.raw(), self.raw(), u64("offset", offset), plain, len(plain), i32("stream", stream)))

    def download(self, nbytes: Optional[int] = None, offset: int = 0, stream: int = 0) -> bytes:
        """The bytes from `offset` on, after all earlier work of the stream. `nbytes` None reads to the end."""
        size = max(self.nbytes - offset, 0) if nbytes is None else integer("nbytes", nbytes, 0, self.nbytes)
        data = ctypes.create_string_buffer(max(size, 1))
        checked(lib.frt_buffer_download(
            self.context.raw(), self.raw(), u64("offset", offset), data, size, i32("stream", stream)))
        return data.raw[:size]

    def view(self) -> memoryview:
        """The memory itself, for the host, while no work on it is submitted. Raises ValueError for device memory of a GPU.

        The memory stays as long as a view, or a part of one, is there, even after the context's close.
        """
        if self.context.backend == Backend.CUDA and self.space == Space.DEVICE:
            raise ValueError("view: the host cannot touch device memory; use upload and download")
        self.raw()
        if not self.nbytes:
            return memoryview(bytearray())
        lent = (ctypes.c_ubyte * self.nbytes).from_address(self.address)
        lent.context = self.context
        self.context.lend(lent)
        return memoryview(lent).cast("B")

    def free(self) -> None:
        """Destroys the buffer before its context goes. Captured variants keep its memory."""
        if self._pointer is not None:
            checked(lib.frt_buffer_free(self.raw()))
            self._pointer = None


class Recorder:
    """What a record function gets. Everything is recorded, nothing runs now. Valid inside the record function only."""

    def __init__(self, context: ExecContext, stream):
        self.context = context
        #: The stream being captured, as a number: the CUstream on CUDA.
        self.stream = stream or 0

    def copy(self, dst: Buffer, src: Buffer, nbytes: Optional[int] = None, *, dst_offset: int = 0, src_offset: int = 0) -> None:
        """Records a copy, as ExecContext.copy."""
        self.context.copy(dst, src, nbytes, dst_offset=dst_offset, src_offset=src_offset)

    def fill(self, dst: Buffer, value: int, nbytes: Optional[int] = None, *, offset: int = 0) -> None:
        """Records a fill, as ExecContext.fill."""
        self.context.fill(dst, value, nbytes, offset=offset)

    def host_func(self, function: Callable[[], None]) -> None:
        """Records a call of `function()` between what is recorded before and after it.

        It runs at each replay, on some native thread, and must not use its context. An exception of it is raised by the next
        ExecContext.sync, or answered with -6 by the next verb of a model over the context. It lives as long as the context.
        """
        self.context.add_host_function(self.stream, function)


class _Capture:
    def __init__(self, context, record):
        self.context = context
        self.record = record
        self.error = None


class Graph:
    """A table from shape key to captured work. It belongs to the context."""

    def __init__(self, context: ExecContext, pointer: int, name: str):
        self.context = context
        self.name = name
        self._pointer = pointer

    def raw(self) -> int:
        """The `frt_graph`. Raises ValueError after the context's close."""
        self.context.raw()
        return self._pointer

    def capture(self, key: int, record: Callable[[Recorder], None]) -> None:
        """Calls `record(recorder)` once and stores what it recorded under `key`. If it raises, the table is as it was."""
        if not callable(record):
            raise TypeError(f"record: expected a callable, got {record!r}")
        key = u64("key", key)
        graph = self.raw()
        # The library cannot learn of an exception, so the capture goes into a graph of its own first.
        trial = not_null(lib.frt_graph_create(self.context.raw(), text("name", self.name), 1))
        number = next(_numbers)
        capture = _captures[number] = _Capture(self.context, record)
        try:
            status = lib.frt_graph_capture(trial, key, _record_c, number)
            if capture.error is not None:
                raise capture.error
            checked(status)
            checked(lib.frt_graph_adopt(graph, key, not_null(lib.frt_graph_executable(trial, key))))
        finally:
            del _captures[number]
            lib.frt_graph_destroy(trial)

    def replay(self, key: int = 0, stream: int = 0) -> None:
        """Submits the variant under `key`. Raises FlashrtError, code -2, when there is none."""
        checked(lib.frt_graph_replay(self.raw(), u64("key", key), i32("stream", stream)))

    def bind(self, port: str, buffer: Buffer) -> None:
        """Notes which buffer a port is; captured work keeps the memory that it was captured with."""
        checked(lib.frt_graph_bind(self.raw(), text("port", port), buffer.raw()))

    def has_variant(self, key: int = 0) -> bool:
        return bool(lib.frt_graph_has_variant(self.raw(), u64("key", key)))

    def variant_count(self) -> int:
        return lib.frt_graph_variant_count(self.raw())

    def evict(self, key: int) -> None:
        """Removes a variant, only while no replay of it is under way."""
        checked(lib.frt_graph_evict(self.raw(), u64("key", key)))

    def executable(self, key: int = 0) -> int:
        """The executable as a number, for `adopt` of another graph."""
        return not_null(lib.frt_graph_executable(self.raw(), u64("key", key)))

    def adopt(self, key: int, executable: int) -> None:
        """Stores an executable of somebody else, who keeps it alive."""
        checked(lib.frt_graph_adopt(self.raw(), u64("key", key), u64("executable", executable)))
