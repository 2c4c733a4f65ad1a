#!/usr/bin/env python3
"""Closed-loop success rate of the shipped policy through policy_node.

Every episode has a fixed seed that training never saw, at most 150 control steps at 10 Hz, no retry, and the success
rule of the task package. The node runs in lockstep: one tick per call of ~/tick on a frame of that moment, then the arm
executes the rows that the deployment file says. The noise generator starts at its seed in every episode (~/reset), so
a result depends on the seed of the episode alone. Controls, which must collapse: --black blanks both images,
--wrong-instruction names the other visible pad.

    python3 tools/eval_closed_loop.py --episodes 100
    python3 tools/eval_closed_loop.py --episodes 100 --black
    python3 tools/eval_closed_loop.py --episodes 100 --wrong-instruction

Makes what it needs first, as `make demo` does. Results per seed: out/eval/*.json.
"""

import argparse
import json
import os
import sys
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).resolve().parents[1]
MAX_STEPS = 150
# The prompt and the first frame of an episode travel on different topics.
PROMPT_TRIES = 50

if TYPE_CHECKING:
    from closedloop.session import Robot
    from flashrt_ros.msg import ActionChunk
    from so101 import Observation


@dataclass(frozen=True)
class Result:
    """What became of one episode."""

    seed: int
    instruction: str
    told: str
    success: bool
    carried: bool
    steps: int
    ticks: int


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=100)
    parser.add_argument("--seed0", type=int, default=900_000, help="seed of the first episode (default 900000)")
    parser.add_argument("--config", type=Path, default=ROOT / "config" / "so101_demo.yaml", help="deployment file")
    parser.add_argument("--json", type=Path, help="where the results go (default out/eval/<control>.json)")
    control = parser.add_mutually_exclusive_group()
    control.add_argument("--black", action="store_true", help="control: black images")
    control.add_argument("--wrong-instruction", action="store_true", help="control: the instruction names the other pad")
    options = parser.parse_args()
    options.control = "black" if options.black else "wrong_instruction" if options.wrong_instruction else "none"
    options.json = options.json or ROOT / "out" / "eval" / f"{options.control}.json"
    return options


def told(bot: "Robot", control: str) -> str:
    """The instruction that the policy gets."""
    from so101 import COLORS

    task = bot.sim.task
    return f"put the cube on the {COLORS[task.other]} pad" if control == "wrong_instruction" else task.instruction


def predict(bot: "Robot", seen: "Observation", prompt: str) -> "ActionChunk":
    """One tick on this observation; repeated from the warm start if the prompt had not arrived yet."""
    from closedloop.policy_client import PolicyError

    for _ in range(PROMPT_TRIES):
        frame = bot.sim.publish_observation(seen)
        chunk = bot.policy.tick(frame.stamp_ns, frame.stamp_ns)
        if bot.policy.prompt_of(chunk) == prompt:
            return chunk
        bot.policy.reset()
        bot.sim.publish_prompt(prompt)
        time.sleep(0.01)
    raise PolicyError(f"the prompt {prompt!r} did not arrive in {PROMPT_TRIES} tries")


def episode(bot: "Robot", seed: int, control: str) -> Result:
    """One episode in lockstep; pictures are drawn only where a tick needs them."""
    from closedloop.lockstep import clamp
    from closedloop.policy_client import as_chunk

    task = bot.sim.task
    seen = task.reset(seed)
    prompt = told(bot, control)
    bot.policy.reset()
    bot.sim.publish_prompt(prompt)
    steps = ticks = 0
    while steps < MAX_STEPS and not task.succeeded:
        if control == "black":
            seen = replace(seen, images=seen.images * 0)
        chunk = as_chunk(predict(bot, seen, prompt))
        ticks += 1
        for target in clamp(chunk.rows[: chunk.execute_rows], bot.wiring.limits):
            steps += 1
            if task.step(target) or steps == MAX_STEPS:
                break
        else:
            seen = task.observe()
    return Result(seed, task.instruction, prompt, task.succeeded, task.carried, steps, ticks)


def evaluate(options: argparse.Namespace) -> list[Result]:
    """All episodes against one policy_node."""
    from closedloop.session import image_size, isolate_ros, robot
    from closedloop.wiring import write_copy
    from so101 import Task

    out = options.json.parent
    out.mkdir(parents=True, exist_ok=True)
    isolate_ros()
    config = write_copy(options.config, out / "trigger.yaml", {"tick.mode": "trigger"})
    task = Task(hz=10, image_size=image_size(options.config))
    results: list[Result] = []
    try:
        with robot(task, config, out / "policy_node.log", lambda text: print(f"eval: {text}", flush=True)) as bot:
            for number in range(options.episodes):
                results.append(episode(bot, options.seed0 + number, options.control))
                if (number + 1) % 10 == 0:
                    solved = sum(r.success for r in results)
                    print(f"eval: {number + 1}/{options.episodes} episodes, {solved} solved", flush=True)
    finally:
        task.close()
    return results


def main() -> int:
    """Run, write the results, print the rate with its interval."""
    options = arguments()
    from closedloop.stats import wilson

    started = time.monotonic()
    results = evaluate(options)
    solved, total = sum(r.success for r in results), len(results)
    low, high = wilson(solved, total)
    summary = {
        "control": options.control, "episodes": total, "success": solved, "wilson95": [low, high],
        "carried": sum(r.carried for r in results), "seeds": [options.seed0, options.seed0 + total - 1],
        "seconds": time.monotonic() - started,
    }
    options.json.write_text(json.dumps({**summary, "results": [asdict(r) for r in results]}, indent=1) + "\n")
    print(
        f"eval: control={options.control} success={solved}/{total} wilson95=[{low:.3f}, {high:.3f}]"
        f" carried={summary['carried']} seeds={options.seed0}..{options.seed0 + total - 1} seconds={summary['seconds']:.0f}",
        flush=True,
    )
    return 0


if __name__ == "__main__":
    # Outside the demo's environment, start again within it.
    if os.environ.get("FLASHRT_DEMO_ENV") != str(ROOT):
        wrapper = str(ROOT / "tools" / "demo" / "env.sh")
        os.execv(wrapper, [wrapper, "python", str(Path(__file__).resolve()), *sys.argv[1:]])
    sys.exit(main())
