#!/usr/bin/env python3
"""The shipped policy in PyTorch (eager, float32) on this machine's cores, for comparison with `flashrt bench tick`.

A tick is what the node times too: two uint8 images, six joints and an instruction in, a chunk of joint targets out; once
whole, and once with the flow alone on a prefix that is kept. Needs torch and safetensors beside the demo's Python;
`make bench` has both in .bench/venv.

    python3 tools/bench_torch.py --threads 2 --json
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tools" / "policy"), str(ROOT / "tools" / "demo")]


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policy", type=Path, default=ROOT / "config" / "so101_policy", help="folder of the weights")
    parser.add_argument("--count", type=int, default=300, help="timed ticks")
    parser.add_argument("--warmup", type=int, default=20, help="ticks before the clock starts")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--flow-steps", type=int, nargs="+", default=[5, 10])
    parser.add_argument("--json", action="store_true", help="JSON in place of lines")
    options = parser.parse_args()
    if options.count < 1 or options.threads < 1 or min(options.flow_steps) < 1:
        parser.error("--count, --threads and --flow-steps: at least 1")
    return options


def measure(name: str, warmup: int, count: int, work: Callable[[], Callable[[], object]]) -> dict:
    """Time ``count`` calls of what ``work()`` returns; making it is not timed. Microseconds."""
    from closedloop.stats import percentile

    times: list[float] = []
    for number in range(warmup + count):
        call = work()
        start = time.perf_counter()
        call()
        if number >= warmup:
            times.append(1e6 * (time.perf_counter() - start))
    return {
        "name": name, "count": count, "bytes": None, "p50_us": percentile(times, 50), "p99_us": percentile(times, 99),
        "max_us": max(times),
    }


def keep_prefix(model: object) -> None:
    """From now on the model computes its prefix once, at the next call, and uses that again."""
    compute, kept = model.prefix, []

    def prefix(*inputs: object) -> object:
        if not kept:
            kept.append(compute(*inputs))
        return kept[0]

    model.prefix = prefix


def main() -> int:
    """Time the ticks and print p50, p99 and maximum."""
    options = arguments()
    try:
        import numpy as np
        import torch
        from policy import Policy
    except ImportError as error:
        print(f"bench_torch: {error}: this comparison needs torch, numpy and safetensors", file=sys.stderr)
        return 2
    from so101.task import Observation

    torch.set_num_threads(options.threads)
    policy = Policy(options.policy)
    random, noise = np.random.default_rng(0), torch.Generator().manual_seed(0)
    side = policy.config.image

    def tick(steps: int) -> Callable[[], Callable[[], object]]:
        def make() -> Callable[[], object]:
            images = random.integers(0, 256, (2, side, side, 3), dtype=np.uint8)
            seen = Observation(images, random.uniform(-1, 1, 6).astype(np.float32), "put the cube on the red pad")
            return lambda: policy.act(seen, noise, steps)

        return make

    series = [
        measure(f"PyTorch tick, full, {steps} flow steps", options.warmup, options.count, tick(steps)) for steps in options.flow_steps
    ]
    keep_prefix(policy.model)
    series += [
        measure(f"PyTorch tick, action, {steps} flow steps", options.warmup, options.count, tick(steps)) for steps in options.flow_steps
    ]
    about = {"backend": f"PyTorch {torch.__version__}, eager, float32", "threads": options.threads}
    if options.json:
        print(json.dumps({**about, "cores": os.cpu_count(), "warm_up": options.warmup, "series": series}))
        return 0
    print(f"{about['backend']}, {options.threads} threads")
    for row in series:
        print(f"{row['name']}, {row['count']} ticks: p50 {row['p50_us'] / 1e3:.2f} ms, p99 {row['p99_us'] / 1e3:.2f} ms,"
              f" max {row['max_us'] / 1e3:.2f} ms")
    return 0


if __name__ == "__main__":
    sys.exit(main())
