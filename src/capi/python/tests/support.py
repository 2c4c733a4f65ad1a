"""A host in Python: it reads the native structs and calls the function pointers in them, as a native host does."""

import ctypes
import os
import sys
import threading
from pathlib import Path

_PACKAGES = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(_PACKAGES))


def built(name):
    """A file that cargo built, or None. The environment says where it builds; release goes before debug."""
    root = Path(os.environ.get("CARGO_TARGET_DIR") or _PACKAGES.parents[2] / "target")
    for profile in ("release", "debug"):
        for path in (root / profile / name, root / profile / "examples" / name):
            if path.is_file():
                return path
    return None


if not os.environ.get("FLASHRT_LIBRARY") and built("libflashrt_capi.so"):
    os.environ["FLASHRT_LIBRARY"] = str(built("libflashrt_capi.so"))

import flashrt_runtime as rt  # noqa: E402
from flashrt_runtime._library import ExportV1, ImageViewStruct, ModelV1, Verbs  # noqa: E402, F401

#: Longest wait for a thread before a test calls it a deadlock, in seconds.
WAIT_S = 60


def environment():
    """Environment of a child process that imports the package."""
    path = os.pathsep.join(filter(None, [str(_PACKAGES), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path}


class Host:
    """Calls the verbs of a model with a reference of its own."""

    def __init__(self, runtime):
        self.runtime = runtime.retain()
        self.model = ModelV1.from_address(runtime.ptr)
        self.verbs = self.model.verbs

    def set_input(self, port, data, size=None):
        """`data`: bytes, a ctypes object, or None for null."""
        size = (0 if data is None else len(data) if isinstance(data, bytes) else ctypes.sizeof(data)) if size is None else size
        address = ctypes.cast(data, ctypes.c_void_p) if isinstance(data, bytes) else data and ctypes.addressof(data)
        return self.verbs.set_input(self.model.self_, port, address, size, -1)

    def get_output(self, port, capacity=64):
        """(status, bytes written into the buffer, *written)."""
        out = ctypes.create_string_buffer(b"\xee" * max(capacity, 1), max(capacity, 1))
        written = ctypes.c_uint64(2**64 - 1)
        status = self.verbs.get_output(self.model.self_, port, out, capacity, ctypes.addressof(written), -1)
        data = out.raw[: written.value] if status == 0 else out.raw[:capacity]
        return status, data, written.value

    def prepare(self, graph, key):
        return self.verbs.prepare(self.model.self_, graph, key)

    def step(self):
        return self.verbs.step(self.model.self_)

    def text(self):
        return ctypes.string_at(self.verbs.last_error(self.model.self_)).decode()

    def run_opaque(self, ref):
        from flashrt_runtime._library import GenericStagePlan, ModelV1Tail

        table = ctypes.c_void_p()
        query = ModelV1Tail.from_address(self.runtime.ptr).query_extension
        assert query(self.runtime.ptr, 1, 1, ctypes.byref(table)) == 0
        plan = GenericStagePlan.from_address(table.value)
        return plan.run_opaque(plan.stage_self, ref)

    def close(self):
        self.runtime.release()


def on_foreign_thread(function_pointer, argument):
    """Runs a native `void f(void*)` on a thread that Python did not make, and waits. False if it did not end in time."""
    libc = ctypes.CDLL(None)
    thread = ctypes.c_ulong()
    address = ctypes.cast(function_pointer, ctypes.c_void_p)
    libc.pthread_create.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
    assert libc.pthread_create(ctypes.byref(thread), None, address, argument) == 0
    libc.pthread_join.argtypes = [ctypes.c_ulong, ctypes.c_void_p]
    waiter = threading.Thread(target=libc.pthread_join, args=(thread.value, None), daemon=True)
    waiter.start()
    waiter.join(WAIT_S)
    return not waiter.is_alive()


def image(data, width, height, stride=0, pixel_format=0, stamp=0, size=None):
    """A filled `frt_image_view`, with the memory that it points to."""
    memory = ctypes.create_string_buffer(data, len(data)) if data is not None else None
    view = ImageViewStruct(
        48, pixel_format, ctypes.addressof(memory) if memory else None, len(data or b"") if size is None else size, width,
        height, stride, 0, stamp)
    view.memory = memory
    return view


def images(*views):
    """An IMAGE payload."""
    payload = (ImageViewStruct * len(views))(*views)
    payload.views = views
    return payload
