"""How native calls reach a producer's Python functions, and how a model's references end.

The C callbacks are made once, for all models, and never freed: `self` and `owner` are a number under which the state of a
model is found. So a release may end a model's state while the callback that ends it still runs.

ctypes takes the interpreter lock before each callback and gives it back after, on any thread. No call into the library holds
it, so a thread that waits for it inside a callback never waits for a thread that waits for the library.
"""

from __future__ import annotations

import atexit
import ctypes
import itertools
import logging
import time
import traceback

from ._library import (
    GetOutput, LastError, ModelV1, OfPointer, Prepare, RunOpaque, SetInput, Step, VerbStatusError, Verbs, for_ever,
    is_finalizing,
)
from .payload import Views, decode, encode
from .specs import Direction, Update

_log = logging.getLogger("flashrt_runtime")
_numbers = itertools.count(1)
#: State of every model that has a reference, under its number. Calls on a dict are atomic.
_models = {}
#: Calls that are inside a callback now. Entered and left by one dict call each, which is atomic.
_inside = {}
_tokens = itertools.count()
_is_closing = False
#: Longest wait at exit, in seconds, for calls that are inside a callback.
_EXIT_WAIT_S = 5.0


class State:
    """What a model's callbacks need."""

    def __init__(self, ports, functions, context, kept):
        self.number = next(_numbers)
        #: (name, modality, direction, update) for each port
        self.ports = ports
        #: set_input, get_output, prepare, step, last_error, run_opaque; None where the producer has none
        self.functions = functions
        #: ExecContext below it, or None
        self.context = context
        #: Objects that live as long as the model
        self.kept = kept
        #: Address of the model, once it is built
        self.pointer = None
        self._text = ctypes.create_string_buffer(b"no failure yet")
        self._is_own_text = True

    def say(self, text: str) -> None:
        """Sets the text of last_error, valid until the next failure."""
        data = text.replace("\0", "\\0").encode("utf-8", "replace")
        self._text = ctypes.create_string_buffer(data)
        self._is_own_text = True

    def text_address(self) -> int:
        producers = self.functions["last_error"]
        if producers is not None and not self._is_own_text:
            try:
                self.say(str(producers()))
            except BaseException as error:
                self.say(f"last_error: {_last_line(error)}")
        return ctypes.addressof(self._text)

    def answered(self, verb: str, value) -> int:
        """Status of what a function returned."""
        if value is None:
            return 0
        if isinstance(value, bool) or not isinstance(value, int):
            self.say(f"{verb}: expected None or a status, got {value!r:.80} ({type(value).__name__})")
            return -1
        if not -(2**31) <= value <= 0:
            self.say(f"{verb}: expected 0 or a negative 32-bit status, got {value}")
            return -1
        if value < 0:
            self.say(f"{verb}: the producer answered {value}")
            self._is_own_text = False
        return value

    def failed(self, verb: str, error: BaseException) -> int:
        if isinstance(error, VerbStatusError):
            self.say(f"{verb}: {error}")
            return error.code
        self.say(f"{verb}: {_last_line(error)}")
        _log.debug("%s failed", verb, exc_info=error)
        return -1

    def backend_failed(self, verb: str):
        """-6 once after a host function of the context failed, because its graph could not say so."""
        error = self.context.take_failure() if self.context is not None else None
        if error is None:
            return None
        self.say(f"{verb}: an earlier host function failed: {_last_line(error)}")
        return -6

    def port(self, verb: str, port: int, direction):
        if port >= len(self.ports):
            raise VerbStatusError(-2, f"port {port}: the model has {len(self.ports)}")
        name, modality, own_direction, update = self.ports[port]
        if own_direction != direction:
            raise VerbStatusError(-1, f"port '{name}' is an {Direction(own_direction).name} port")
        if update == Update.SWAP:
            raise VerbStatusError(-3, f"port '{name}' is SWAP: its window is read and written, not {verb}")
        return f"port '{name}'", modality


def _last_line(error: BaseException) -> str:
    try:
        return traceback.format_exception_only(type(error), error)[-1].strip()
    except BaseException:  # its __str__ may fail
        return type(error).__name__


def enter() -> int:
    """Notes that this call is inside a callback, until `leave` of the same number."""
    token = next(_tokens)
    _inside[token] = None
    return token


def leave(token: int) -> None:
    _inside.pop(token, None)


def _verb(verb):
    """Makes a C callback's body safe: every way out of `body(state, *arguments)` is a status."""

    def around(body):
        def call(number, *arguments):
            token = enter()
            try:
                state = _models.get(number)
                if state is None:
                    return -1
                if _is_closing:
                    state.say(f"{verb}: the interpreter is shutting down")
                    return -6
                try:
                    return body(state, *arguments)
                except BaseException as error:
                    return state.failed(verb, error)
            except BaseException:  # no memory even for a text
                return -1
            finally:
                leave(token)

        return call

    return around


@_verb("set_input")
def _set_input(state, port, data, size, stream):
    failed = state.backend_failed("set_input")
    if failed is not None:
        return failed
    what, modality = state.port("set_input", port, Direction.IN)
    views = Views()
    status = -1
    try:
        status = state.answered("set_input", _given(state, what, modality, port, data, size, stream, views))
    except BaseException as error:
        # The frames of the traceback hold the views.
        status = state.failed("set_input", error.with_traceback(None))
    if not views.take_back() and status >= 0:
        state.say(f"set_input: {what}: a view of the payload was kept; keep a copy instead, such as bytes(payload)")
        return -1
    return status


def _given(state, what, modality, port, data, size, stream, views):
    # A frame of its own, so that no local of the caller holds the payload.
    return state.functions["set_input"](port, decode(what, modality, data, size, views), stream)


@_verb("get_output")
def _get_output(state, port, out, capacity, written, stream):
    failed = state.backend_failed("get_output")
    if failed is not None:
        return failed
    what, _ = state.port("get_output", port, Direction.OUT)
    if not written:
        raise VerbStatusError(-1, f"{what}: written is null")
    if capacity and not out:
        raise VerbStatusError(-1, f"{what}: out is null with a capacity of {capacity} bytes")
    value = state.functions["get_output"](port, stream)
    if isinstance(value, int):
        status = state.answered("get_output", value)
        if status == 0:
            raise VerbStatusError(-1, f"{what}: expected bytes, a buffer or a str, got {value!r}")
        return status
    data = encode(what, value)
    ctypes.c_uint64.from_address(written).value = data.nbytes
    if data.nbytes > capacity:
        state.say(f"get_output: {what}: {data.nbytes} bytes are needed, the host gives {capacity}")
        return -5
    if data.nbytes:
        memoryview((ctypes.c_ubyte * data.nbytes).from_address(out)).cast("B")[:] = data
    return 0


@_verb("prepare")
def _prepare(state, graph, key):
    return state.answered("prepare", state.functions["prepare"](graph, key))


@_verb("step")
def _step(state):
    failed = state.backend_failed("step")
    if failed is not None:
        return failed
    return state.answered("step", state.functions["step"]())


@_verb("run_opaque")
def _run_opaque(state, executor_ref):
    failed = state.backend_failed("run_opaque")
    if failed is not None:
        return failed
    return state.answered("run_opaque", state.functions["run_opaque"](executor_ref))


_UNKNOWN = ctypes.create_string_buffer(b"the model is gone")


def _last_error(number):
    try:
        state = _models.get(number)
        return ctypes.addressof(_UNKNOWN) if state is None else state.text_address()
    except BaseException:
        return ctypes.addressof(_UNKNOWN)


def _release(number):
    token = enter()
    try:
        # The last reference to the producer's objects may go here: their finalisers run on this thread.
        state = _models.pop(number, None)
        if state is not None and state.context is not None:
            state.context.forget_model(number)
        del state
    except BaseException as error:
        _log.debug("release failed", exc_info=error)
    finally:
        leave(token)


_set_input_c = for_ever(SetInput(_set_input))
_get_output_c = for_ever(GetOutput(_get_output))
_prepare_c = for_ever(Prepare(_prepare))
_step_c = for_ever(Step(_step))
_last_error_c = for_ever(LastError(_last_error))
run_opaque_c = for_ever(RunOpaque(_run_opaque))
release_c = for_ever(OfPointer(_release))


def verbs(functions) -> Verbs:
    """The C table: a function that the producer has not is null there. last_error is always there, for exceptions."""
    table = Verbs(struct_size=ctypes.sizeof(Verbs), last_error=_last_error_c)
    for name, callback in (
        ("set_input", _set_input_c), ("get_output", _get_output_c), ("prepare", _prepare_c), ("step", _step_c),
    ):
        if functions[name] is not None:
            setattr(table, name, callback)
    return table


def register(state: State) -> None:
    if _is_closing or is_finalizing():
        raise RuntimeError("the interpreter is shutting down")
    _models[state.number] = state


def unregister(state: State) -> None:
    _models.pop(state.number, None)


def is_closing() -> bool:
    """True from the exit handler on: native objects are left to the end of the process then."""
    return _is_closing or is_finalizing()


def live_models() -> int:
    """Number of models of this process that still have a reference."""
    return len(_models)


@atexit.register
def _at_exit():
    """Before the interpreter goes: later verbs are refused, and no later release comes back into Python."""
    global _is_closing
    _is_closing = True
    for state in list(_models.values()):
        if state.pointer:
            # One more reference, never given back: native code of other threads only counts from here on.
            model = ModelV1.from_address(state.pointer)
            model.retain(model.owner)
    # Calls that are inside a callback, or wait at its door for the interpreter lock, get it while this thread sleeps.
    end = time.monotonic() + _EXIT_WAIT_S
    time.sleep(0.01)
    while _inside and time.monotonic() < end:
        time.sleep(0.005)
