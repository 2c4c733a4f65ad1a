"""Make the policy from nothing on one machine with GPUs, unattended.

    python device_job.py --work /tmp/policy_job --minutes 23      # everything
    python device_job.py --work /tmp/policy_job --status          # what it does now

It records still scenes and demonstrations on all cores while training starts,
records corrections beside training, and evaluates at the end. Every step leaves a
mark in the work folder, so a second start goes on with the first unfinished step.
With two GPUs it trains two sizes on the same data and the evaluation decides.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
DEMO_SEEDS = 100_000
SELECTION_SEED = 800_000
# Executed rows per chunk and flow steps.
COMPARED = ((8, 5), (5, 5), (8, 10))


class Job:
    def __init__(self, args: argparse.Namespace):
        self.args = args
        self.work: Path = args.work
        self.data = self.work / "data"
        self.start = time.monotonic()
        for name in ("static", "demos", "corrections"):
            (self.data / name).mkdir(parents=True, exist_ok=True)

    def say(self, text: str) -> None:
        with open(self.work / "job.log", "a") as log:
            print(f"{time.monotonic() - self.start:7.1f} s  {text}", file=log)

    def left(self) -> float:
        """Seconds until training has to be over."""
        return self.args.minutes * 60 - (time.monotonic() - self.start)

    def launch(self, name: str, script: str, *options, gpu: int = 0) -> subprocess.Popen:
        """Start a script with its output in ``name.log``."""
        environment = os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": str(gpu)}
        self.say(f"start {name}")
        with open(self.work / f"{name}.log", "a") as log:
            return subprocess.Popen(
                [sys.executable, HERE / script, *map(str, options)],
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
            )

    def once(self, mark: Path, name: str, script: str, *options) -> None:
        """Run a script to its end, unless its mark says that this was done."""
        if mark.exists():
            return
        if code := self.launch(name, script, *options).wait():
            raise RuntimeError(f"{name} failed with exit code {code}, see {self.work / name}.log")
        mark.touch()
        self.say(f"done {name}")

    def run(self) -> None:
        args, data = self.args, self.data
        cores = args.cores
        sizes = args.sizes
        static = ("--out", data / "static", "--scenes", args.scenes, "--workers", cores)
        self.once(data / "static.done", "static", "collect_static.py", *static)
        demos = ("--out", data / "demos", "--episodes", DEMO_SEEDS, "--seconds", args.demo_seconds)
        trainers = {}
        for gpu, size in enumerate(sizes):
            out = self.work / size
            if not (out / "final" / "model.safetensors").exists():
                minutes = (self.left() - args.demo_seconds - 90) / 60
                options = ("--data", data, "--out", out, "--size", size, "--minutes", minutes)
                options += ("--pretrain-minutes", max(0.3, (args.demo_seconds - 40) / 60), *args.train_options)
                trainers[size] = self.launch(f"train_{size}", "train.py", *options, gpu=gpu)
        self.once(data / "demos.done", "demos", "collect_demos.py", *demos, "--workers", cores - len(sizes))
        latest = [self.work / size / "latest" for size in sizes]
        while not all((folder / "model.safetensors").exists() for folder in latest):
            self.check(trainers)
            time.sleep(1)
        stop = self.work / "corrections.stop"
        options = ("--out", data / "corrections", "--stop-file", stop, "--workers", cores - len(sizes))
        corrections = self.launch("corrections", "collect_corrections.py", "--policy", *latest, *options)
        for name, trainer in trainers.items():
            if trainer.wait():
                self.say(f"train_{name} failed with exit code {trainer.returncode}")
        stop.touch()
        self.say("training over")
        corrections.wait()
        for rows, steps in COMPARED:
            for size in sizes:
                self.evaluate(size, rows, steps)
        self.say("all done")
        (self.work / "job.done").touch()

    def check(self, trainers: dict) -> None:
        for name, trainer in trainers.items():
            if trainer.poll():
                raise RuntimeError(f"training of {name} failed, see train_{name}.log")

    def evaluate(self, size: str, rows: int, steps: int) -> None:
        """Success on seeds that serve selection alone."""
        name = f"eval_{size}_{rows}_{steps}"
        options = ("--policy", self.work / size / "final", "--first-seed", SELECTION_SEED)
        options += ("--episodes", self.args.eval_episodes, "--workers", self.args.cores)
        options += ("--execute-rows", rows, "--flow-steps", steps)
        self.once(self.work / f"{name}.done", name, "evaluate.py", *options)


def status(work: Path) -> None:
    """Print the job's log, each trainer's last report and the evaluations."""
    print((work / "job.log").read_text(), end="")
    for log in sorted(work.glob("*/train.jsonl")):
        for line in log.read_text().splitlines()[-1:]:
            report = json.loads(line)
            print(log.parent.name, report)
    for log in sorted(work.glob("eval_*.log")):
        print(log.stem, log.read_text().strip().splitlines()[-1:])
    print(f"free disk {shutil.disk_usage(work).free >> 30} GiB, load {os.getloadavg()[0]:.0f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=23.0, help="from the start to the end of training")
    parser.add_argument("--sizes", nargs="+", default=["base"], help="presets of vla.py, one GPU each")
    parser.add_argument("--cores", type=int, default=os.cpu_count())
    parser.add_argument("--scenes", type=int, default=60_000)
    parser.add_argument("--demo-seconds", type=float, default=140.0)
    parser.add_argument("--eval-episodes", type=int, default=256)
    parser.add_argument("--train-options", nargs=argparse.REMAINDER, default=[], help="passed on to train.py")
    parser.add_argument("--status", action="store_true")
    args = parser.parse_args()
    if args.status:
        status(args.work)
        return
    args.work.mkdir(parents=True, exist_ok=True)
    job = Job(args)
    try:
        job.run()
    except Exception as error:
        job.say(f"failed: {error}")
        raise


if __name__ == "__main__":
    main()
