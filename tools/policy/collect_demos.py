"""Record the scripted expert solving episodes, with small disturbances.

    python collect_demos.py --out data/demos --episodes 4000 --workers 16
"""

import argparse
from pathlib import Path

import numpy as np
from lerobot_env_so101.scripted.pick_place import Phase
from shards import Deadline, Recorder, aux_labels, run_workers
from so101 import Task
from so101.expert import Expert

MAX_STEPS = 130
# Disturbance of the arm's targets, in rad; the labels stay the expert's.
NOISE_LEVELS = (0.0, 0.012, 0.02, 0.03)
NOISE_MEMORY = 0.8
CAREFUL_FACTOR = 0.3


def work(index: int, workers: int, args: argparse.Namespace) -> None:
    rng = np.random.default_rng([args.first_seed, index])
    task = Task(hz=10, image_size=args.image_size)
    recorder = Recorder(args.out, "demo", index)
    deadline = Deadline(args.seconds)
    solved = tried = 0
    for seed in range(args.first_seed + index, args.first_seed + args.episodes, workers):
        if deadline.passed():
            break
        seen = task.reset(seed)
        expert, frames, actions = Expert(task), {}, []
        level, noise = rng.choice(NOISE_LEVELS), np.zeros(6)
        for step in range(MAX_STEPS):
            frames[step] = seen, aux_labels(task)
            actions.append(expert.act())
            factor = 1.0 if expert.phase in (Phase.HOVER, Phase.TRAVERSE) else CAREFUL_FACTOR
            noise = NOISE_MEMORY * noise + factor * rng.normal(0, level, 6)
            noise[5] = 0.0
            task.step(actions[-1] + noise)
            if task.succeeded and expert.done:
                break
            seen = task.observe()
        tried += 1
        if task.succeeded:
            solved += 1
            recorder.add_episode(task, frames, actions)
    recorder.flush()
    print(f"worker {index}: {solved} of {tried} episodes solved", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--episodes", type=int, default=4000)
    parser.add_argument("--seconds", type=float, help="start no episode after this time")
    parser.add_argument("--image-size", type=int, default=96)
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    run_workers(work, args.workers, args)


if __name__ == "__main__":
    main()
