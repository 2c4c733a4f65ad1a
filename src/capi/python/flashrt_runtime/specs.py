"""What a producer declares: numbers of the ABI and one dataclass for each kind of entry."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, IntFlag
from typing import Any, Optional, Sequence, Union


class Modality(IntEnum):
    TENSOR = 0
    IMAGE = 1
    TEXT = 2
    STATE = 3
    ACTION = 4
    AUDIO = 5
    DEPTH = 6
    FORCE = 7


class DType(IntEnum):
    U8 = 0
    F32 = 1
    F16 = 2
    BF16 = 3
    I32 = 4
    I64 = 5


class Layout(IntEnum):
    FLAT = 0
    HWC = 1
    NHWC = 2
    CHW = 3
    NCHW = 4


class PixelFormat(IntEnum):
    RGB8 = 0
    BGR8 = 1
    RGBA8 = 2
    BGRA8 = 3
    GRAY8 = 4

    @property
    def channels(self) -> int:
        """Bytes of one pixel."""
        return {PixelFormat.RGB8: 3, PixelFormat.BGR8: 3, PixelFormat.GRAY8: 1}.get(self, 4)


class Direction(IntEnum):
    IN = 0
    OUT = 1


class Update(IntEnum):
    """SWAP: the host writes or reads the window. STAGED: through a callback, hot. SETUP: never in a tick."""

    SWAP = 0
    STAGED = 1
    SETUP = 2


class Executor(IntEnum):
    GRAPH = 0
    OPAQUE = 1


class Role(IntFlag):
    INPUT = 1
    OUTPUT = 2
    STATE = 4
    SCRATCH = 8


class Region(IntFlag):
    SNAPSHOT = 1
    RESTORE = 2
    DEFAULT = 3


def enumeration(kind, what: str, value):
    """A member by itself, by number or by name in any case."""
    if isinstance(value, str):
        try:
            return kind[value.upper()]
        except KeyError:
            names = ", ".join(m.name.lower() for m in kind)
            raise ValueError(f"{what}: expected one of {names}, got {value!r}") from None
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{what}: expected {kind.__name__}, a name or a number, got {value!r}")
    try:
        return kind(int(value))
    except ValueError:
        numbers = ", ".join(str(int(m)) for m in kind)
        raise ValueError(f"{what}: expected one of {numbers}, got {int(value)}") from None


def mask(kind, what: str, value) -> int:
    """Bits by number, by name, or by several names."""
    if isinstance(value, int) and not isinstance(value, bool):
        return int(value)
    names = [value] if isinstance(value, str) else value
    bits = 0
    for name in names:
        bits |= int(enumeration(kind, what, name))
    return bits


@dataclass
class StreamSpec:
    """A stream of the context. `stream_id` as ExecContext.stream gave it, or 0."""

    name: str
    stream_id: int
    priority: int = 0
    native_handle: int = 0


@dataclass
class GraphSpec:
    """A captured graph. `stream` is the name of a StreamSpec, or the id of one."""

    name: str
    graph: Any
    default_key: int = 0
    keys: Sequence[int] = (0,)
    stream: Union[str, int] = "main"


@dataclass
class BufferSpec:
    """A named buffer. `role` is a Role, a name or several names; `nbytes` None takes the buffer's length."""

    name: str
    buffer: Any
    role: Union[int, str, Sequence[str]] = "input"
    nbytes: Optional[int] = None


@dataclass
class RegionSpec:
    """A window of a buffer that is state. `buffer` may be the name of a BufferSpec; `nbytes` None means to its end."""

    name: str
    buffer: Any
    offset: int = 0
    nbytes: Optional[int] = None
    flags: Union[int, str, Sequence[str]] = Region.DEFAULT


@dataclass
class PortSpec:
    """A dynamic input or output. Shape -1 is variable; `buffer` is the SWAP window, or the name of a BufferSpec."""

    name: str
    modality: Union[int, str]
    dtype: Union[int, str] = DType.F32
    layout: Union[int, str] = Layout.FLAT
    direction: Union[int, str] = Direction.IN
    update: Union[int, str] = Update.SWAP
    required: bool = False
    shape: Sequence[int] = ()
    cadence_hz: int = 0
    buffer: Any = None
    offset: int = 0
    nbytes: Optional[int] = None


@dataclass
class StageSpec:
    """A stage that replays a graph, given by name. `after`: earlier stages by name or index. `name` None is the graph's."""

    graph: str
    after: Sequence[Union[int, str]] = ()
    name: Optional[str] = None


@dataclass
class GenericStageSpec:
    """A stage of a generic plan. `executor_ref`: for OPAQUE any 32-bit number, for GRAPH a graph's name or index."""

    name: str
    executor_kind: Union[int, str]
    executor_ref: Union[int, str]
    after: Sequence[Union[int, str]] = ()
