"""Record still scenes: random cube, pads and arm pose, with true positions.

They teach the vision tower where things are before any action is learned.

    python collect_static.py --out data/static --scenes 20000 --workers 16
"""

import argparse
from pathlib import Path

import numpy as np
from lerobot_env_so101.pick_place_env import _SAMPLING_BOUNDS
from shards import Recorder, run_workers
from so101 import Task
from so101.expert import Expert

POSES_FROM_EPISODES = 6
POSE_NOISE_RAD = 0.05
MIN_GAP_M = 0.06
MARGIN_M = 0.02


def expert_poses(task: Task, rng: np.random.Generator) -> np.ndarray:
    """Joint positions that the expert passes through."""
    poses = []
    for _ in range(POSES_FROM_EPISODES):
        task.reset(int(rng.integers(1 << 30)), render=False)
        expert = Expert(task)
        while not expert.done and len(poses) < 1000:
            task.step(expert.act())
            poses.append(task.state())
    return np.stack(poses)


def work(index: int, workers: int, args: argparse.Namespace) -> None:
    rng = np.random.default_rng([args.seed, index])
    task = Task(hz=10, image_size=args.image_size)
    recorder = Recorder(args.out, "static", index)
    bounds = np.asarray(_SAMPLING_BOUNDS) + [[-MARGIN_M], [MARGIN_M]]
    for i in range(index, args.scenes, workers):
        if i % (workers * 200) == index:
            poses = expert_poses(task, rng)
        while True:
            cube, *pads = rng.uniform(*bounds, size=(3, 2))
            gaps = [np.linalg.norm(a - b) for a, b in ((cube, pads[0]), (cube, pads[1]), (pads[0], pads[1]))]
            if min(gaps) > MIN_GAP_M:
                break
        task.set_joints(poses[rng.integers(len(poses))] + rng.normal(0, POSE_NOISE_RAD, 6))
        task.place(cube, pads, rng.permutation(3)[:2])
        recorder.add(task, task.observe())
    recorder.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--scenes", type=int, default=20000)
    parser.add_argument("--seed", type=int, default=500_000)
    parser.add_argument("--image-size", type=int, default=96)
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    run_workers(work, args.workers, args)


if __name__ == "__main__":
    main()
