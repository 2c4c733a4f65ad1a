#!/usr/bin/env python3
"""The shipped policy in PyTorch on this machine's cores: p50 and p99 of one tick, for comparison with `flashrt bench tick`.

A tick is what the node times too: two uint8 images, six joints and an instruction in, a chunk of joint targets out. Needs
torch, numpy and safetensors, which the package itself does not need.

    python3 tools/bench_torch.py --threads 2 --json
"""

import argparse
import json
import math
import os
import sys
import time
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
    parser.add_argument("--flow-steps", type=int, help="default: the policy's own")
    parser.add_argument("--json", action="store_true", help="JSON in place of a line")
    options = parser.parse_args()
    if options.count < 1:
        parser.error("--count: at least 1")
    return options


def main() -> int:
    """Time the ticks and print p50 and p99 in milliseconds."""
    options = arguments()
    try:
        import numpy as np
        import torch
        from policy import Policy
    except ImportError as error:
        print(f"bench_torch: {error}: this comparison needs torch, numpy and safetensors", file=sys.stderr)
        return 2
    from closedloop.stats import percentile
    from so101.task import Observation

    torch.set_num_threads(options.threads)
    policy = Policy(options.policy)
    steps = options.flow_steps or policy.config.steps
    random, noise = np.random.default_rng(0), torch.Generator().manual_seed(0)
    side = policy.config.image
    times: list[float] = []
    for number in range(options.warmup + options.count):
        images = random.integers(0, 256, (2, side, side, 3), dtype=np.uint8)
        seen = Observation(images, random.uniform(-1, 1, 6).astype(np.float32), "put the cube on the red pad")
        start = time.perf_counter()
        policy.act(seen, noise, steps)
        if number >= options.warmup:
            times.append(1e3 * (time.perf_counter() - start))
    figures = {
        "what": "pytorch_tick", "torch": torch.__version__, "threads": options.threads, "flow_steps": steps,
        "count": len(times), "p50_ms": percentile(times, 50), "p99_ms": percentile(times, 99), "max_ms": max(times),
    }
    if not all(math.isfinite(figures[k]) for k in ("p50_ms", "p99_ms")):
        return 1
    print(
        json.dumps(figures) if options.json else
        f"pytorch {figures['torch']} tick, {options.threads} threads, {steps} flow steps, {len(times)} ticks:"
        f" p50 {figures['p50_ms']:.1f} ms, p99 {figures['p99_ms']:.1f} ms, max {figures['max_ms']:.1f} ms"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
