"""Recorded frames on disk, and the processes that record them.

A shard is an uncompressed ``.npz``: ``images`` (n, view, h, w, 3) u8, ``states``
(n, 6) f32, ``aux`` (n, 5) f32 (cube xyz, goal xy), ``colors`` (n,) i64, and but for
static scenes ``chunks`` (n, rows, 6) f32, the expert's targets from that frame on.
"""

import multiprocessing
import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from so101 import Observation, Task

CHUNK_ROWS = 16


def aux_labels(task: Task) -> np.ndarray:
    """True positions that the prefix learns to predict: cube xyz and goal xy."""
    return np.concatenate([task.block, task.goal[:2]]).astype(np.float32)


class Recorder:
    """Collects frames and writes them as numbered shards of one worker."""

    def __init__(self, out: Path, name: str, worker: int, frames_per_shard: int = 2000):
        self._out, self._name = out, f"{name}-{worker:03d}"
        self._limit = frames_per_shard
        self._columns: dict[str, list] = {}
        out.mkdir(parents=True, exist_ok=True)
        self._next = len(list(out.glob(f"{self._name}-*.npz")))

    def add(
        self, task: Task, seen: Observation, chunk: np.ndarray | None = None, aux: np.ndarray | None = None
    ) -> None:
        """Record one frame with the labels of the task's present state, or with ``aux``."""
        frame = {
            "images": seen.images,
            "states": seen.state,
            "aux": aux_labels(task) if aux is None else aux,
            "colors": np.int64(task.target),
        }
        if chunk is not None:
            frame["chunks"] = chunk.astype(np.float32)
        for key, value in frame.items():
            self._columns.setdefault(key, []).append(value)
        if len(self._columns["states"]) >= self._limit:
            self.flush()

    def add_episode(self, task: Task, frames: dict, actions: list[np.ndarray]) -> None:
        """Record the observed ``frames`` (step → observation and aux) of one expert run.

        The chunk of step i holds the actions from i on; past the end the last repeats.
        """
        table = np.stack(actions)
        for step, (seen, aux) in frames.items():
            rows = np.minimum(step + np.arange(CHUNK_ROWS), len(table) - 1)
            self.add(task, seen, table[rows], aux)

    def flush(self) -> None:
        """Write what is pending; the file appears whole or not at all."""
        if not self._columns:
            return
        final = self._out / f"{self._name}-{self._next:04d}.npz"
        partial = final.with_suffix(".partial")
        with open(partial, "wb") as file:
            np.savez(file, **{k: np.stack(v) for k, v in self._columns.items()})
        partial.rename(final)
        self._next += 1
        self._columns = {}


class Deadline:
    """Tells a worker to stop: after ``seconds``, or once a file appears."""

    def __init__(self, seconds: float | None = None, stop_file: Path | None = None):
        self._end = None if seconds is None else time.monotonic() + seconds
        self._file = stop_file

    def passed(self) -> bool:
        late = self._end is not None and time.monotonic() > self._end
        return late or (self._file is not None and self._file.exists())


def run_workers(work: Callable[..., None], workers: int, *args) -> None:
    """Run ``work(index, workers, *args)`` in that many fresh processes and wait.

    Where ``$RENDER_GPUS`` is more than 1, rendering is spread over that many GPUs.

    Raises:
        RuntimeError: a worker failed.
    """
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=work, args=(i, workers, *args)) for i in range(workers)]
    gpus = int(os.environ.get("RENDER_GPUS", 1))
    for i, process in enumerate(processes):
        if gpus > 1:
            os.environ["MUJOCO_EGL_DEVICE_ID"] = str(i % gpus)
        process.start()
    for process in processes:
        process.join()
    failed = [p.exitcode for p in processes if p.exitcode]
    if failed:
        raise RuntimeError(f"{len(failed)} of {workers} workers failed, first exit code {failed[0]}")
