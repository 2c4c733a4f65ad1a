"""What one pass of the arm recorded, and the comparison of two passes. No ROS.

A pass starts at a committed boundary: nothing of an earlier chunk is still to be
emitted, and the simulator has not moved since. From then on the arm publishes a
frame (two images, six joints, one stamp), receives commands, moves one control
step per command and publishes the next frame. A tick names, per port, the stamp
of the message it used, so the frame behind every chunk is known.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True)
class Frame:
    """One observation as it was published.

    Attributes:
        stamp_ns: ROS time in nanoseconds, the same in all its messages.
        images: ``(view, height, width, rgb)``, uint8.
        state: Six joint positions in rad, float32.
    """

    stamp_ns: int
    images: np.ndarray
    state: np.ndarray

    def same_content(self, other: "Frame") -> bool:
        """Whether images and joints are equal byte for byte, whatever the stamps."""
        return (
            self.images.tobytes() == other.images.tobytes()
            and self.state.tobytes() == other.state.tobytes()
        )


@dataclass(frozen=True)
class Chunk:
    """The raw ``data`` of one ``ActionChunk``, before any limit.

    Attributes:
        tick: Tick number of the session.
        rows: ``(horizon, joints)``, float32.
        execute_rows: Rows the node emits before it takes the next chunk.
    """

    tick: int
    rows: np.ndarray
    execute_rows: int


@dataclass(frozen=True)
class Tick:
    """One entry of the tick log.

    Attributes:
        tick: Tick number of the session.
        time_ns: ROS time of the tick.
        input_stamps_ns: Stamp of the message used, per sensor port.
    """

    tick: int
    time_ns: int
    input_stamps_ns: dict[str, int]


@dataclass
class Recording:
    """Everything the arm saw and did since the boundary, in order.

    ``frames[i]`` was published before ``commands[i]`` was executed, so there is
    one more frame than commands once the arm rests.
    """

    frames: list[Frame] = field(default_factory=list)
    commands: list[np.ndarray] = field(default_factory=list)


@dataclass(frozen=True)
class Move:
    """One control step: a row of the current chunk, or a literal target (rad).

    A literal stands for a command that came from no row of the chunk.
    """

    row: int | None
    target: np.ndarray


@dataclass(frozen=True)
class Segment:
    """One tick of a pass and what the arm did until the next one.

    Attributes:
        tick: The tick that was logged.
        chunk: The chunk that it gave.
        frames: Frames to publish before the tick, the one it used last.
        moves: Control steps executed afterwards.
        results: The frames observed after each move.
    """

    tick: Tick
    chunk: Chunk
    frames: list[Frame]
    moves: list[Move]
    results: list[Frame]


_SAME_RAD = 1e-6


class RecordingError(RuntimeError):
    """The recorded pass cannot be replayed; the text says why."""


def clamp(rows: np.ndarray, limits: np.ndarray | None) -> np.ndarray:
    """Targets within ``limits`` (``(joints, 2)``, rad), float64."""
    wide = rows.astype(np.float64)
    return wide if limits is None else np.clip(wide, limits[:, 0], limits[:, 1])


def row_of(target: np.ndarray, chunk: Chunk, limits: np.ndarray | None = None) -> int | None:
    """Index of the chunk's row that this command came from, or None.

    The limits may be applied in float32 or float64, hence the tolerance; of rows that fit, the nearest.
    """
    distance = np.abs(clamp(chunk.rows, limits) - target).max(axis=1)
    nearest = int(distance.argmin())
    return nearest if distance[nearest] <= _SAME_RAD else None


def segments(
    recording: Recording, ticks: Sequence[Tick], chunks: Sequence[Chunk], limits: np.ndarray | None = None
) -> list[Segment]:
    """Cut a recording at its ticks.

    Args:
        recording: Frames and commands since the boundary.
        ticks: Accepted ticks since the boundary, in order.
        chunks: Chunks of those ticks; one that is missing ends the result.
        limits: Joint ranges into which the node moves its commands, rad.
    """
    index_of = {frame.stamp_ns: i for i, frame in enumerate(recording.frames)}
    by_tick = {chunk.tick: chunk for chunk in chunks}
    used: list[int] = []
    for tick in ticks:
        stamps = set(tick.input_stamps_ns.values())
        unknown = stamps - index_of.keys()
        if unknown:
            raise RecordingError(f"tick {tick.tick} used a message stamped {min(unknown)} that was never recorded")
        if len(stamps) != 1:
            raise RecordingError(f"tick {tick.tick} mixed messages of {len(stamps)} frames")
        used.append(index_of[stamps.pop()])
    out: list[Segment] = []
    sent = 0
    for i, tick in enumerate(ticks):
        chunk = by_tick.get(tick.tick)
        if chunk is None:
            break
        end = used[i + 1] if i + 1 < len(used) else len(recording.frames) - 1
        moves = [Move(row_of(target, chunk, limits), target) for target in recording.commands[used[i] : end]]
        out.append(
            Segment(
                tick=tick,
                chunk=chunk,
                frames=recording.frames[sent : used[i] + 1],
                moves=moves,
                results=recording.frames[used[i] + 1 : used[i] + 1 + len(moves)],
            )
        )
        sent = used[i] + 1
    return out


def digest(chunks: Sequence[np.ndarray]) -> str:
    """SHA-256 over the raw bytes of the chunks in order, as 64 hex digits."""
    total = hashlib.sha256()
    for rows in chunks:
        total.update(np.ascontiguousarray(rows, np.float32).tobytes())
    return total.hexdigest()


@dataclass(frozen=True)
class Verdict:
    """First pass, second pass and control, compared byte for byte.

    Attributes:
        compared: Chunks compared with the second pass.
        restore_exact: All of them, at least five, are equal.
        control_differs: The control pass gave other bytes.
        first, second, control: SHA-256 of the three passes.
        frames_equal, frames_compared: Frames the simulator reproduced, of how many.
    """

    compared: int
    restore_exact: bool
    control_differs: bool
    first: str
    second: str
    control: str
    frames_equal: int = 0
    frames_compared: int = 0


MIN_CHUNKS = 5


def compare(
    first: Sequence[np.ndarray],
    second: Sequence[np.ndarray],
    control: Sequence[np.ndarray],
    frames: tuple[int, int] = (0, 0),
) -> Verdict:
    """Judge the passes. Too few chunks, or none in the control, count as failure."""
    exact = (
        len(first) == len(second) >= MIN_CHUNKS
        and all(a.tobytes() == b.tobytes() for a, b in zip(first, second, strict=True))
    )
    shared = min(len(first), len(control))
    differs = shared > 0 and any(a.tobytes() != b.tobytes() for a, b in zip(first[:shared], control[:shared], strict=True))
    return Verdict(
        compared=len(second),
        restore_exact=exact,
        control_differs=differs,
        first=digest(first),
        second=digest(second),
        control=digest(control),
        frames_equal=frames[0],
        frames_compared=frames[1],
    )
