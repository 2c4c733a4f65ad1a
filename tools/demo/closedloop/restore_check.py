"""Freeze arm and node in mid-episode, go on, return, and compare the bytes.

First pass: the arm runs free; every frame, tick and chunk is kept. Second pass:
capsule and simulator are put back, the recorded frames are sent again with their
own stamps, one tick per trigger, and the arm executes what comes. Control: the
same with a capsule that leaves the noise generator out.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .episode import Episode
from .lockstep import Chunk, Frame, Recording, Segment, Tick, Verdict, clamp, compare, segments
from .policy_client import PolicyClient, PolicyError, as_chunk
from .sim_node import SimNode

MIDWAY, MIDWAY_NO_NOISE, RESUME = "midway", "midway_without_noise", "resume"
Say = Callable[[str], None]


@dataclass(frozen=True)
class Passes:
    """What the check leaves for the report.

    Attributes:
        verdict: The comparison.
        segments: First pass, cut at its ticks.
        second, control: Chunks of the other passes, per segment.
        lead_in: Joint states before the restore point, oldest first, rad.
        snapshot_us, restore_us, capsule_bytes: Cost of the capsule used.
    """

    verdict: Verdict
    segments: list[Segment]
    second: list[Chunk]
    control: list[Chunk]
    lead_in: np.ndarray
    snapshot_us: float
    restore_us: float
    capsule_bytes: int


def run_check(
    sim: SimNode, policy: PolicyClient, episode: Episode, noise_regions: tuple[str, ...], chunks: int, say: Say
) -> Passes:
    """Run the three passes within ``episode``, and leave the arm where the first one ended.

    The episode must stand at a chunk's last row, with that row's frame not yet
    published: then no row of an older chunk is still to come.

    Args:
        noise_regions: Regions that hold the noise generator's state.
        chunks: Chunks to compare, at least 5.
    """
    lead_in = np.stack(episode.states)
    policy.set_tick_mode("trigger")
    taken = policy.snapshot(MIDWAY)
    policy.snapshot(MIDWAY_NO_NOISE, exclude=noise_regions)
    world = sim.task.snapshot()
    epoch, tick = taken.capsule.epoch, policy.last_tick()
    say(f"midway after tick {tick}: capsule of {taken.capsule.bytes / 1024:.0f} KiB in {taken.duration_us:.0f} us, and the simulator")

    first = _first_pass(sim, policy, episode, epoch, tick, chunks)
    say(f"first pass: {chunks} more chunks, free running")

    restored = policy.restore(MIDWAY)
    sim.task.restore(world)
    second, frames = _again(sim, policy, first, with_frames=True)
    say(f"second pass: restored in {restored.duration_us:.0f} us, {len(second)} ticks in lockstep on the recorded frames")
    after = sim.task.snapshot()
    policy.snapshot(RESUME)

    policy.restore(MIDWAY_NO_NOISE, allow_partial=True)
    sim.task.restore(world)
    control, _ = _again(sim, policy, first, with_frames=False)
    say("control pass: the same with the noise generator left out of the capsule")

    policy.restore(RESUME)
    sim.task.restore(after)
    policy.set_tick_mode("chunk")
    verdict = compare(
        [s.chunk.rows for s in first], [c.rows for c in second], [c.rows for c in control], frames
    )
    return Passes(
        verdict, first, second, control, lead_in, taken.duration_us, restored.duration_us, taken.capsule.bytes
    )


def _first_pass(
    sim: SimNode, policy: PolicyClient, episode: Episode, epoch: int, tick: int, chunks: int
) -> list[Segment]:
    """Let the arm go on for ``chunks`` chunks, solved or not, and cut what it did at the ticks."""
    episode.recording = recording = Recording()
    policy.set_tick_mode("chunk")
    episode.resume()
    while not _executed(recording, *policy.history(epoch, tick), chunks):
        episode.step()
    policy.set_tick_mode("trigger")
    episode.recording = None
    # A tick that the last frame started belongs to nobody: its rows are not executed.
    ticks, published = policy.history(epoch, tick)
    first = segments(recording, ticks, published, sim.wiring.limits)[:chunks]
    if len(first) < chunks:
        raise PolicyError(f"the first pass logged {len(first)} ticks with their chunks, {chunks} were executed")
    return first


def _executed(recording: Recording, ticks: list[Tick], published: list[Chunk], chunks: int) -> bool:
    """Whether every row of the ``chunks``-th chunk has been executed."""
    if len(ticks) < chunks or len(published) < chunks:
        return False
    used = max(ticks[chunks - 1].input_stamps_ns.values())
    older = sum(frame.stamp_ns < used for frame in recording.frames)
    return len(recording.commands) - older >= published[chunks - 1].execute_rows


def _again(
    sim: SimNode, policy: PolicyClient, first: list[Segment], with_frames: bool
) -> tuple[list[Chunk], tuple[int, int]]:
    """One tick per recorded one; the arm executes the rows that come now."""
    out: list[Chunk] = []
    equal = total = 0
    for segment in first:
        for frame in segment.frames:
            sim.publish_frame(frame)
        newest = segment.frames[-1].stamp_ns
        chunk = as_chunk(policy.tick(segment.tick.time_ns, newest))
        out.append(chunk)
        for move, recorded in zip(segment.moves, segment.results, strict=True):
            sim.task.step(move.target if move.row is None else clamp(chunk.rows[move.row], sim.wiring.limits))
            if with_frames:
                seen = sim.task.observe()
                equal += Frame(0, seen.images, seen.state).same_content(recorded)
                total += 1
    return out, (equal, total)
