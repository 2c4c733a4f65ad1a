"""Closed-loop success rate of a shipped policy, by the task package's own rule.

Each episode has a fixed seed, at most 150 control steps at 10 Hz and no retry. The
controls show what the policy depends on: ``black`` blanks the images,
``instruction`` names the other visible pad while the true goal stays.

    python evaluate.py --policy ../../config/so101_policy --episodes 100
"""

import argparse
import json
import math
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path

import torch
from policy import Policy
from so101 import COLORS, Observation, Task

MAX_STEPS = 150
FIRST_SEED = 900_000
CONTROLS = ("none", "black", "instruction")

_worker: "Evaluator"


class Evaluator:
    """Runs episodes with one policy and one simulator."""

    def __init__(self, args: argparse.Namespace):
        torch.set_num_threads(1)
        self.policy = Policy(args.policy)
        self.task = Task(hz=10, image_size=self.policy.config.image)
        self.rows = args.execute_rows or self.policy.execute_rows
        self.flow_steps = args.flow_steps or self.policy.config.steps
        self.control = args.control

    def disturb(self, seen: Observation) -> Observation:
        if self.control == "black":
            return replace(seen, images=seen.images * 0)
        if self.control == "instruction":
            return replace(seen, instruction=f"put the cube on the {COLORS[self.task.other]} pad")
        return seen

    def episode(self, seed: int) -> dict:
        noise = torch.Generator().manual_seed(seed)
        seen = self.task.reset(seed)
        taken = 0
        while taken < MAX_STEPS:
            chunk = self.policy.act(self.disturb(seen), noise, self.flow_steps)
            for targets in chunk[: min(self.rows, MAX_STEPS - taken)]:
                taken += 1
                if self.task.step(targets):
                    return {"seed": seed, "success": True, "carried": True, "steps": taken}
            seen = self.task.observe()
        return {"seed": seed, "success": False, "carried": self.task.carried, "steps": taken}


def _start(args: argparse.Namespace) -> None:
    global _worker
    _worker = Evaluator(args)


def _episode(seed: int) -> dict:
    return _worker.episode(seed)


def wilson(successes: int, n: int, z: float = 1.96) -> tuple[float, float]:
    """Wilson's 95 % interval of a success rate."""
    p = successes / n
    center = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    return max(0.0, center - half), min(1.0, center + half)


def evaluate(args: argparse.Namespace) -> list[dict]:
    """Results of all episodes, in the order of their seeds."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(args.workers, context, initializer=_start, initargs=(args,)) as pool:
        return list(pool.map(_episode, range(args.first_seed, args.first_seed + args.episodes)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policy", type=Path, required=True)
    parser.add_argument("--first-seed", type=int, default=FIRST_SEED)
    parser.add_argument("--episodes", type=int, default=100)
    parser.add_argument("--execute-rows", type=int, help="default: the policy's own")
    parser.add_argument("--flow-steps", type=int, help="default: the policy's own")
    parser.add_argument("--control", choices=CONTROLS, default="none")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--json", type=Path, help="write every episode's result here")
    args = parser.parse_args()
    results = evaluate(args)
    if args.json:
        args.json.write_text(json.dumps(results) + "\n")
    successes = sum(r["success"] for r in results)
    carried = sum(r["carried"] for r in results)
    low, high = wilson(successes, len(results))
    described = json.loads((args.policy / "config.json").read_text())
    print(
        f"success {successes}/{len(results)} = {successes / len(results):.3f} [{low:.3f}, {high:.3f}] "
        f"carried {carried} control {args.control} rows {args.execute_rows or described['execute_rows']} "
        f"flow_steps {args.flow_steps or described['steps']} "
        f"seeds {args.first_seed}..{args.first_seed + args.episodes - 1}",
        flush=True,
    )


if __name__ == "__main__":
    main()
