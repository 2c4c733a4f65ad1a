"""Record corrections: the policy acts, then the expert takes over and finishes.

The policy runs a random number of steps into an episode; the expert picks up in
the phase that fits and only its part is recorded, if it succeeds. So the data
covers the states that the policy's own mistakes lead to. The newest weights of
the given folders are loaded again and again, which lets this run beside training.

    python collect_corrections.py --out data/corrections --policy run/latest --seconds 600
"""

import argparse
import shutil
from pathlib import Path

import numpy as np
import torch
from policy import Policy
from shards import Deadline, Recorder, aux_labels, run_workers
from so101 import Task
from so101.expert import Expert

LAST_TAKE_OVER = 110
EXPERT_STEPS = 110
EXECUTE_ROWS = (4, 6, 8, 10)
FLOW_STEPS = (5, 5, 10)
# Every frame soon after the take-over is kept; later ones resemble demonstrations.
DENSE_FRAMES = 24
LATER_FRACTION = 0.5
EXPERT_NOISE_RAD = (0.0, 0.0, 0.01)
RESERVE_BYTES = 5 << 30


class NewestPolicy:
    """Reloads a folder's policy when its weights file changed."""

    def __init__(self, folder: Path):
        self._folder, self._stamp, self._policy = folder, None, None

    def get(self) -> Policy:
        stamp = (self._folder / "model.safetensors").stat().st_mtime_ns
        if stamp != self._stamp:
            self._policy, self._stamp = Policy(self._folder), stamp
        return self._policy


def roll_out(task: Task, seed: int, policy: Policy, steps: int, rng: np.random.Generator) -> None:
    """Let the policy act for ``steps`` control steps, or until it succeeds."""
    noise = torch.Generator().manual_seed(seed)
    rows, flow_steps = int(rng.choice(EXECUTE_ROWS)), int(rng.choice(FLOW_STEPS))
    task.reset(seed, render=False)
    taken = 0
    while taken < steps:
        chunk = policy.act(task.observe(), noise, flow_steps)
        for targets in chunk[: min(rows, steps - taken)]:
            taken += 1
            if task.step(targets):
                return


def correct(task: Task, recorder: Recorder, rng: np.random.Generator) -> bool:
    """Let the expert finish; record its part if it succeeds."""
    expert = Expert(task)
    expert.take_over()
    level = rng.choice(EXPERT_NOISE_RAD)
    frames, actions = {}, []
    for step in range(EXPERT_STEPS):
        if step < DENSE_FRAMES or rng.random() < LATER_FRACTION:
            frames[step] = task.observe(), aux_labels(task)
        actions.append(expert.act())
        task.step(actions[-1] + np.append(rng.normal(0, level, 5), 0.0))
        if task.succeeded and expert.done:
            break
    if task.succeeded:
        recorder.add_episode(task, frames, actions)
    return task.succeeded


def work(index: int, workers: int, args: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    rng = np.random.default_rng([args.first_seed, index])
    newest = NewestPolicy(args.policy[index % len(args.policy)])
    task = Task(hz=10, image_size=newest.get().config.image)
    recorder = Recorder(args.out, "correction", index, frames_per_shard=1000)
    deadline = Deadline(args.seconds, args.stop_file)
    seed = args.first_seed + index
    tried = solved_alone = corrected = 0
    while not deadline.passed() and shutil.disk_usage(args.out).free > RESERVE_BYTES:
        roll_out(task, seed, newest.get(), int(rng.integers(LAST_TAKE_OVER + 1)), rng)
        tried += 1
        if task.succeeded:
            solved_alone += 1
        else:
            corrected += correct(task, recorder, rng)
        seed += workers
    recorder.flush()
    print(f"worker {index}: {tried} episodes, {solved_alone} solved alone, {corrected} corrected", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--policy", type=Path, nargs="+", required=True, help="policy folders, dealt to the workers")
    parser.add_argument("--first-seed", type=int, default=200_000)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--stop-file", type=Path, help="stop once this file exists")
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    if args.seconds is None and args.stop_file is None:
        parser.error("give --seconds or --stop-file")
    run_workers(work, args.workers, args)


if __name__ == "__main__":
    main()
