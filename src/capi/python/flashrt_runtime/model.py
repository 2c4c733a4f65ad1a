"""Builds model runtimes, and holds a reference to one."""

from __future__ import annotations

import ctypes
import json
from ctypes import POINTER, byref, c_int64, c_uint32, c_uint64, c_void_p
from typing import Any, Callable, List, Mapping, Optional, Sequence, Tuple, Union

from . import _callbacks
from ._library import (
    GenericStagePlan, ModelV1, ModelV1Tail, OfPointer, array, checked, i32, i64, integer, lib, not_null, text, u32, u64,
)
from .context import ExecContext
from .specs import (
    BufferSpec, Direction, DType, Executor, GenericStageSpec, GraphSpec, Layout, Modality, PortSpec, Region, RegionSpec, Role,
    StageSpec, StreamSpec, Update, enumeration, mask,
)

_FUNCTIONS = ("set_input", "get_output", "prepare", "step", "last_error", "run_opaque")
Identity = Union[Mapping[str, Any], Sequence[Tuple[str, Any]]]


class ModelRuntime:
    """One reference to a model runtime, given back by `release`, at the end of a `with` block, or with the object."""

    def __init__(self, ptr: int):
        """Takes over one reference to the `frt_model_runtime_v1` at `ptr`."""
        self._ptr = None
        base = ModelV1.from_address(integer("ptr", ptr, 1, 2**64 - 1))
        if base.abi_version != 1 or base.struct_size < ctypes.sizeof(ModelV1):
            raise ValueError(
                f"model runtime: expected version 1 and at least 128 bytes, got {base.abi_version} and {base.struct_size}")
        self._ptr = ptr

    @property
    def ptr(self) -> int:
        """Address of the `frt_model_runtime_v1`. Raises ValueError after release."""
        if self._ptr is None:
            raise ValueError("the model runtime is released")
        return self._ptr

    @property
    def export_ptr(self) -> int:
        """Address of its `frt_runtime_export_v1`, valid while a reference is held."""
        return ctypes.addressof(self._model.exp.contents)

    @property
    def fingerprint(self) -> int:
        return self._model.exp.contents.fingerprint

    @property
    def identity(self) -> str:
        """The canonical identity text that the fingerprint is the hash of."""
        return (self._model.exp.contents.identity or b"").decode("utf-8", "surrogateescape")

    @property
    def manifest(self) -> Optional[str]:
        data = self._model.exp.contents.manifest_json
        return None if data is None else data.decode("utf-8", "surrogateescape")

    def ports(self) -> List[dict]:
        """The declared ports, as the native struct has them."""
        model = self._model
        return [
            {
                "name": p.name.decode("utf-8", "surrogateescape"), "modality": p.modality, "dtype": p.dtype,
                "layout": p.layout, "direction": p.direction, "update": p.update, "required": p.required,
                "shape": p.shape[: p.rank], "cadence_hz": p.cadence_hint_hz, "buffer": p.buffer or 0, "offset": p.offset,
                "bytes": p.bytes,
            }
            for p in model.ports[: model.n_ports]
        ]

    def stages(self) -> List[dict]:
        """The graph stages; empty for a generic plan and a step-only model."""
        model = self._model
        return [{"graph": s.graph, "after": s.after[: s.n_after]} for s in model.stages[: model.n_stages]]

    def generic_stages(self) -> List[dict]:
        """The stages of the generic plan; empty without one."""
        model = self._model
        if model.struct_size < ctypes.sizeof(ModelV1Tail):
            return []
        query = ModelV1Tail.from_address(self.ptr).query_extension
        table = c_void_p()
        if not query or query(self.ptr, 1, 1, byref(table)) != 0 or not table:
            return []
        plan = GenericStagePlan.from_address(table.value)
        return [
            {
                "name": s.name.decode("utf-8", "surrogateescape"), "executor_kind": s.executor_kind,
                "executor_ref": s.executor_ref, "after": s.after[: s.n_after],
            }
            for s in plan.stages[: plan.n_stages]
        ]

    def retain(self) -> "ModelRuntime":
        """A second object with a reference of its own."""
        model = self._model
        model.retain(model.owner)
        return ModelRuntime(self.ptr)

    def hand_over(self) -> int:
        """Gives this object's reference to native code, which must release it. The object is as after `release`."""
        ptr, self._ptr = self.ptr, None
        return ptr

    def release(self) -> None:
        """Gives the reference back; the second call does nothing. References of others keep the model alive."""
        if self._ptr is not None:
            model, self._ptr = self._model, None
            model.release(model.owner)

    @property
    def _model(self) -> ModelV1:
        return ModelV1.from_address(self.ptr)

    def __enter__(self) -> "ModelRuntime":
        return self

    def __exit__(self, *_) -> None:
        self.release()

    def __del__(self) -> None:
        # At exit one reference of the exit handler remains anyway.
        if getattr(self, "_ptr", None) is not None and not _callbacks.is_closing():
            self.release()

    def __repr__(self) -> str:
        if self._ptr is None:
            return "<ModelRuntime, released>"
        return f"<ModelRuntime at {self._ptr:#x}, fingerprint {self.fingerprint:016x}>"


def build_model_runtime(
    ctx: ExecContext,
    *,
    streams: Sequence[StreamSpec],
    graphs: Sequence[GraphSpec],
    buffers: Sequence[BufferSpec] = (),
    regions: Sequence[RegionSpec] = (),
    ports: Sequence[PortSpec] = (),
    stages: Sequence[StageSpec] = (),
    generic_stages: Sequence[GenericStageSpec] = (),
    identity: Identity,
    manifest: Union[None, str, Mapping[str, Any]] = None,
    set_input: Optional[Callable] = None,
    get_output: Optional[Callable] = None,
    prepare: Optional[Callable] = None,
    step: Optional[Callable] = None,
    last_error: Optional[Callable] = None,
    run_opaque: Optional[Callable] = None,
    owner: Any = None,
) -> ModelRuntime:
    """A model over captured graphs. The context, what the specs name, the callbacks and `owner` live as long as the model.

    Callbacks, on any thread, each None if the producer has none:

    * `set_input(port, payload, stream)`: `port` is an index. `payload` is a str for TEXT, a list of ImageView for IMAGE and
      DEPTH, otherwise a read-only memoryview of bytes, valid during the call.
    * `get_output(port, stream)` returns bytes, a buffer or, for TEXT, a str; or a negative status.
    * `prepare(graph, key)`, `step()`, `run_opaque(executor_ref)`.
    * `last_error()` returns the text for a status that a callback returned without raising.

    All but get_output return None or 0 for success, or a negative status. An exception is -1 with its last line as the text;
    VerbStatusError carries a status. A positive or other value is -1.

    Raises ValueError or TypeError for a bad declaration, FlashrtError where the library refuses. A failure keeps nothing.
    """
    functions = _functions(locals())
    _check_promises(ports, stages, generic_stages, functions)
    return _assemble(ctx, streams, graphs, buffers, regions, ports, stages, generic_stages, identity, manifest, functions, owner)


def build_metadata_model_runtime(
    *,
    identity: Identity,
    ports: Sequence[PortSpec] = (),
    generic_stages: Sequence[GenericStageSpec] = (),
    manifest: Union[None, str, Mapping[str, Any]] = None,
    set_input: Optional[Callable] = None,
    get_output: Optional[Callable] = None,
    prepare: Optional[Callable] = None,
    step: Optional[Callable] = None,
    last_error: Optional[Callable] = None,
    run_opaque: Optional[Callable] = None,
    owner: Any = None,
) -> ModelRuntime:
    """A model that owns no graphs and buffers: ports are STAGED or SETUP, stages are OPAQUE, or `step` alone does the work.

    Callbacks and errors as in build_model_runtime.
    """
    functions = _functions(locals())
    _check_promises(ports, (), generic_stages, functions)
    return _assemble(None, (), (), (), (), ports, (), generic_stages, identity, manifest, functions, owner)


def fingerprint(data: bytes) -> int:
    """FNV-1a, 64 bits: the hash of an identity text."""
    return lib.frt_runtime_fingerprint(bytes(data), len(data))


def _functions(arguments) -> dict:
    functions = {name: arguments[name] for name in _FUNCTIONS}
    for name, function in functions.items():
        if function is not None and not callable(function):
            raise TypeError(f"{name}: expected a callable or None, got {function!r}")
    return functions


def _check_promises(ports, stages, generic_stages, functions) -> None:
    """A promise is checked against the Python functions, because the C callbacks in front of them are always there."""
    for p in ports:
        if enumeration(Update, f"port '{p.name}': update", p.update) != Update.STAGED:
            continue
        direction = enumeration(Direction, f"port '{p.name}': direction", p.direction)
        needed = "set_input" if direction == Direction.IN else "get_output"
        if functions[needed] is None:
            side = "input" if direction == Direction.IN else "output"
            raise ValueError(f"port '{p.name}': STAGED {side} ports require {needed}")
    if stages and generic_stages:
        raise ValueError("stages and generic_stages: a model has one plan, both were given")
    if generic_stages and functions["run_opaque"] is None:
        raise ValueError("generic_stages require run_opaque")
    if functions["run_opaque"] is not None and not generic_stages:
        raise ValueError("run_opaque: there are no generic_stages to run")
    if not stages and not generic_stages and functions["step"] is None:
        raise ValueError("a model needs stages, generic_stages or step")


def _assemble(ctx, streams, graphs, buffers, regions, ports, stages, generic_stages, identity, manifest, functions, owner):
    if ctx is None:
        builder = lib.frt_model_runtime_builder_create_metadata()
    else:
        builder = lib.frt_runtime_builder_create(_raw("ctx", ctx))
    not_null(builder)
    # finish_model takes the builder when it succeeds; destroying it again is harmless.
    try:
        declared = _Declaration(builder, streams, graphs, buffers)
        declared.add_all(regions, ports, stages, generic_stages)
        pairs = identity.items() if hasattr(identity, "items") else identity
        for key, value in pairs:
            checked(lib.frt_runtime_builder_add_identity(builder, text("identity key", str(key)), text("identity", str(value))))
        if manifest is not None:
            data = manifest if isinstance(manifest, str) else json.dumps(manifest, sort_keys=True)
            checked(lib.frt_runtime_builder_set_manifest(builder, text("manifest", data)))
        context = ctx if isinstance(ctx, ExecContext) else None
        kept = (ctx, list(streams), list(graphs), list(buffers), list(regions), list(ports), owner)
        return _finish(builder, declared.ports, functions, context, kept)
    finally:
        lib.frt_runtime_builder_destroy(builder)


def _finish(builder, ports, functions, context, kept) -> ModelRuntime:
    state = _callbacks.State(ports, functions, context, kept)
    if functions["run_opaque"] is not None:
        checked(lib.frt_runtime_builder_set_generic_stage_runner(builder, state.number, _callbacks.run_opaque_c))
    verbs = _callbacks.verbs(functions)
    _callbacks.register(state)
    if context is not None:
        context.add_model(state.number)
    try:
        state.pointer = not_null(lib.frt_runtime_builder_finish_model(
            builder, byref(verbs), state.number, state.number, OfPointer(), _callbacks.release_c))
    except BaseException:
        _callbacks.unregister(state)
        if context is not None:
            context.forget_model(state.number)
        raise
    return ModelRuntime(state.pointer)


class _Declaration:
    """Adds entries to a native builder, with names resolved to what C takes."""

    def __init__(self, builder, streams, graphs, buffers):
        self.builder = builder
        self.ports = []
        self.stream_ids = _by_name("stream", streams, lambda i, s: i32(f"stream '{s.name}': stream_id", s.stream_id))
        self.graphs = _by_name("graph", graphs, lambda i, g: i)
        self.buffers = _by_name("buffer", buffers, lambda i, b: b.buffer)
        for s in streams:
            checked(lib.frt_runtime_builder_add_stream(
                builder, text("stream", s.name), s.stream_id, i32(f"stream '{s.name}': priority", s.priority),
                u64(f"stream '{s.name}': native_handle", s.native_handle)))
        for g in graphs:
            self._graph(g)
        for b in buffers:
            what = f"buffer '{b.name}'"
            checked(lib.frt_runtime_builder_add_buffer(
                builder, text("buffer", b.name), _raw(what, b.buffer),
                u64(what, _size(what, b.buffer) if b.nbytes is None else b.nbytes), u32(what, mask(Role, f"{what}: role", b.role))))

    def _graph(self, g) -> None:
        what = f"graph '{g.name}'"
        if isinstance(g.stream, str):
            if g.stream not in self.stream_ids:
                raise ValueError(f"{what}: unknown stream '{g.stream}', declared are {_names(self.stream_ids)}")
            stream = self.stream_ids[g.stream]
        else:
            stream = i32(f"{what}: stream", g.stream)
            if stream not in self.stream_ids.values():
                raise ValueError(f"{what}: stream {stream} is not declared")
        keys = [u64(f"{what}: key", k) for k in g.keys]
        checked(lib.frt_runtime_builder_add_graph(
            self.builder, text("graph", g.name), _raw(what, g.graph), u64(f"{what}: default_key", g.default_key),
            array(c_uint64, keys), len(keys), stream))

    def add_all(self, regions, ports, stages, generic_stages) -> None:
        for r in regions:
            what = f"region '{r.name}'"
            buffer = self._buffer(what, r.buffer)
            size = self._window(what, buffer, r.offset, r.nbytes)
            checked(lib.frt_runtime_builder_add_region(
                self.builder, text("region", r.name), _raw(what, buffer), r.offset, size,
                u32(what, mask(Region, f"{what}: flags", r.flags))))
        _by_name("port", ports, lambda i, p: i)
        for p in ports:
            self._port(p)
        self._stages(stages)
        self._generic_stages(generic_stages)

    def _port(self, p) -> None:
        what = f"port '{p.name}'"
        modality = enumeration(Modality, f"{what}: modality", p.modality)
        direction = enumeration(Direction, f"{what}: direction", p.direction)
        update = enumeration(Update, f"{what}: update", p.update)
        shape = [i64(f"{what}: shape", n) for n in p.shape]
        raw, size, offset = None, 0 if p.nbytes is None else u64(f"{what}: nbytes", p.nbytes), u64(f"{what}: offset", p.offset)
        if p.buffer is not None:
            buffer = self._buffer(what, p.buffer)
            raw, size = _raw(what, buffer), self._window(what, buffer, offset, p.nbytes)
        elif update == Update.SWAP:
            raise ValueError(f"{what}: a SWAP port needs a buffer")
        checked(lib.frt_runtime_builder_add_port(
            self.builder, text("port", p.name), modality, enumeration(DType, f"{what}: dtype", p.dtype),
            enumeration(Layout, f"{what}: layout", p.layout), direction, update, int(bool(p.required)),
            array(c_int64, shape), len(shape), u32(f"{what}: cadence_hz", p.cadence_hz), raw, offset, size))
        self.ports.append((p.name, modality, direction, update))

    def _stages(self, stages) -> None:
        names = _by_name("stage", stages, lambda i, s: i, lambda s: s.graph if s.name is None else s.name)
        for i, s in enumerate(stages):
            what = f"stage {i} of graph '{s.graph}'"
            if s.graph not in self.graphs:
                raise ValueError(f"{what}: unknown graph, declared are {_names(self.graphs)}")
            after = _after(what, i, s.after, names)
            checked(lib.frt_runtime_builder_add_stage(self.builder, self.graphs[s.graph], array(c_uint32, after), len(after)))

    def _generic_stages(self, stages) -> None:
        names = _by_name("stage", stages, lambda i, s: i)
        for i, s in enumerate(stages):
            what = f"stage '{s.name}'"
            kind = enumeration(Executor, f"{what}: executor_kind", s.executor_kind)
            ref = s.executor_ref
            if isinstance(ref, str):
                if kind != Executor.GRAPH or ref not in self.graphs:
                    raise ValueError(f"{what}: executor_ref '{ref}' is no declared graph")
                ref = self.graphs[ref]
            after = _after(what, i, s.after, names)
            checked(lib.frt_runtime_builder_add_generic_stage(
                self.builder, text("stage", s.name), kind, u32(f"{what}: executor_ref", ref), array(c_uint32, after), len(after)))

    def _buffer(self, what, buffer):
        if not isinstance(buffer, str):
            return buffer
        if buffer not in self.buffers:
            raise ValueError(f"{what}: unknown buffer '{buffer}', declared are {_names(self.buffers)}")
        return self.buffers[buffer]

    @staticmethod
    def _window(what, buffer, offset, nbytes) -> int:
        """Length of a window, checked against the buffer where that tells its length."""
        offset = u64(f"{what}: offset", offset)
        if nbytes is not None and not hasattr(buffer, "nbytes"):
            return u64(f"{what}: nbytes", nbytes)
        whole = _size(what, buffer)
        size = max(whole - offset, 0) if nbytes is None else u64(f"{what}: nbytes", nbytes)
        if offset + size > whole:
            raise ValueError(f"{what}: bytes {offset} to {offset + size} of a buffer of {whole}")
        return size


def _by_name(kind, specs, value, name_of=lambda s: s.name) -> dict:
    found = {}
    for i, spec in enumerate(specs):
        name = name_of(spec)
        if name in found:
            raise ValueError(f"{kind} '{name}' is declared twice")
        found[name] = value(i, spec)
    return found


def _after(what, own, after, names) -> List[int]:
    """Dependencies as indices of earlier stages, in the given order."""
    result = []
    for dep in after:
        if isinstance(dep, str):
            if dep not in names:
                raise ValueError(f"{what}: after unknown stage '{dep}', declared are {_names(names)}")
            dep = names[dep]
        dep = u32(f"{what}: after", dep)
        if dep >= own:
            raise ValueError(f"{what}: after stage {dep}, expected an earlier one")
        result.append(dep)
    return result


def _names(found) -> str:
    return ", ".join(f"'{n}'" for n in found) or "none"


def _raw(what, handle) -> int:
    """The native handle of an object of this package, of any object with `raw()`, or a number."""
    raw = getattr(handle, "raw", None)
    return integer(f"{what}: handle", raw() if callable(raw) else handle, 1, 2**64 - 1)


def _size(what, buffer) -> int:
    size = getattr(buffer, "nbytes", None)
    if callable(size):
        size = size()
    if size is None:
        raise ValueError(f"{what}: nbytes is needed, because the buffer does not tell its length")
    return size
