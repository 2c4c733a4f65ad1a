"""Cutting a recording at its ticks, and judging the passes."""

import numpy as np
import pytest
from closedloop.lockstep import Chunk, Frame, Recording, RecordingError, Tick, compare, digest, row_of, segments

ROWS = 2


def frame(stamp):
    return Frame(stamp, np.full((2, 2, 2, 3), stamp % 251, np.uint8), np.full(6, stamp, np.float32))


def chunk(tick):
    rows = (np.arange(24, dtype=np.float32).reshape(4, 6) + 100 * tick) / 7
    return Chunk(tick, rows, ROWS)


def tick(number, stamp):
    return Tick(number, stamp + 5, {"workspace": stamp, "wrist": stamp, "state": stamp})


def recorded(ticks):
    recording = Recording([frame(10)], [])
    for number in range(1, ticks + 1):
        for row in range(ROWS):
            recording.commands.append(chunk(number).rows[row].astype(np.float64))
            recording.frames.append(frame(recording.frames[-1].stamp_ns + 10))
    return recording


def test_every_command_belongs_to_the_tick_before_it():
    cut = segments(recorded(3), [tick(n, 10 + 20 * (n - 1)) for n in (1, 2, 3)], [chunk(n) for n in (1, 2, 3)])
    assert [[m.row for m in s.moves] for s in cut] == [[0, 1]] * 3
    assert [[f.stamp_ns for f in s.frames] for s in cut] == [[10], [20, 30], [40, 50]]
    assert [[f.stamp_ns for f in s.results] for s in cut] == [[20, 30], [40, 50], [60, 70]]


def test_a_tick_on_an_unknown_or_mixed_frame_is_refused():
    with pytest.raises(RecordingError, match="never recorded"):
        segments(recorded(1), [tick(1, 11)], [chunk(1)])
    mixed = Tick(1, 40, {"workspace": 10, "wrist": 20, "state": 20})
    with pytest.raises(RecordingError, match="mixed"):
        segments(recorded(1), [mixed], [chunk(1)])


def test_a_limited_command_is_still_recognised():
    limits = np.tile([-1.0, 1.0], (6, 1))
    rows = np.array([[0, 0, 0, 0, 0, 2], [0.5, 0, 0, 0, 0, 3]], np.float32)
    assert row_of(np.array([0.5, 0, 0, 0, 0, 1.0]), Chunk(1, rows, 2), limits) == 1
    assert row_of(np.array([0.5, 0, 0, 0, 0, 1.0]), Chunk(1, rows, 2)) is None


def passes(count, change=None):
    made = [np.full((4, 6), n, np.float32) for n in range(count)]
    if change is not None:
        made[change][3, 5] = np.nextafter(made[change][3, 5], np.float32(9))
    return made


def test_equal_passes_and_another_control_are_the_good_verdict():
    verdict = compare(passes(5), passes(5), passes(5, change=4))
    assert verdict.restore_exact and verdict.control_differs
    assert verdict.first == verdict.second != verdict.control


@pytest.mark.parametrize("second", [passes(5, change=2), passes(4), passes(6)])
def test_one_bit_or_one_chunk_more_or_less_is_not_exact(second):
    assert not compare(passes(5), second, passes(5, change=0)).restore_exact


def test_fewer_than_five_chunks_prove_nothing():
    assert not compare(passes(4), passes(4), passes(4, change=0)).restore_exact


def test_an_equal_or_missing_control_fails():
    assert not compare(passes(5), passes(5), passes(5)).control_differs
    assert not compare(passes(5), passes(5), []).control_differs


def test_minus_zero_is_other_bytes():
    assert digest([np.zeros(6, np.float32)]) != digest([-np.zeros(6, np.float32)])
