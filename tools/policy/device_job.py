"""Make the policy from nothing on one machine with GPUs, unattended.

    python device_job.py --work /tmp/policy_job               # everything
    python device_job.py --work /tmp/policy_job --status      # what it does now

It records still scenes and demonstrations on all cores while training starts,
records corrections beside training, and evaluates at the end. Every step leaves a
mark in the work folder, so a second start goes on with the first unfinished step.
With two GPUs it trains two variants on the same data and the evaluation decides.
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
        collectors = args.cores - len(args.runs)
        if not args.init:
            options = ("--out", data / "static", "--scenes", args.scenes, "--workers", args.cores)
            self.once(data / "static.done", "static", "collect_static.py", *options)
        trained = self.work / "trained.done"
        if not trained.exists():
            self.train_and_correct(collectors)
            trained.touch()
        for rows, steps in COMPARED:
            for name in args.runs:
                self.evaluate(name, rows, steps)
        self.say("all done")
        (self.work / "job.done").touch()

    def train_and_correct(self, collectors: int) -> None:
        """Train while the cores record demonstrations, then corrections.

        A training that was cut off starts over, on the data that is there by then.
        """
        args, data = self.args, self.data
        stop = self.work / "corrections.stop"
        stop.unlink(missing_ok=True)
        trainers = self.start_trainers()
        demos = ("--out", data / "demos", "--episodes", DEMO_SEEDS, "--workers", collectors)
        self.once(data / "demos.done", "demos", "collect_demos.py", *demos, "--seconds", args.demo_seconds)
        policies = [args.init] if args.init else [self.work / name / "latest" for name in args.runs]
        if not args.init:
            # Until a policy exists the cores record more demonstrations.
            more = (*demos, "--first-seed", DEMO_SEEDS, "--seconds", args.more_demo_seconds)
            self.once(data / "more.done", "more", "collect_demos.py", *more)
        while not all((folder / "model.safetensors").exists() for folder in policies):
            self.check(trainers)
            time.sleep(1)
        options = ("--out", data / "corrections", "--stop-file", stop, "--workers", collectors)
        options += ("--first-seed", args.correction_seed)
        corrections = self.launch("corrections", "collect_corrections.py", "--policy", *policies, *options)
        for trainer in trainers.values():
            trainer.wait()
        stop.touch()
        self.say("training over")
        if corrections.wait():
            self.say("some correction workers failed, see corrections.log")
        self.check(trainers)

    def start_trainers(self) -> dict[str, subprocess.Popen]:
        """One trainer per run, each on a GPU of its own."""
        args, trainers = self.args, {}
        for gpu, (name, (size, *own)) in enumerate(args.runs.items()):
            options = ("--data", self.data, "--out", self.work / name, "--size", size)
            options += ("--minutes", args.train_minutes, "--polish-minutes", args.polish_minutes)
            options += ("--pretrain-minutes", args.pretrain_minutes, *own)
            options += ("--init", args.init) if args.init else ()
            trainers[name] = self.launch(f"train_{name}", "train.py", *options, gpu=gpu)
        return trainers

    def check(self, trainers: dict) -> None:
        for name, trainer in trainers.items():
            if trainer.poll():
                raise RuntimeError(f"training of {name} failed, see train_{name}.log")

    def evaluate(self, run: str, rows: int, steps: int) -> None:
        """Success on seeds that serve selection alone."""
        name = f"eval_{run}_{rows}_{steps}"
        policy = self.work / run / ("polished" if self.args.polish_minutes else "final")
        options = ("--policy", policy, "--first-seed", SELECTION_SEED)
        options += ("--episodes", self.args.eval_episodes, "--workers", self.args.cores)
        options += ("--execute-rows", rows, "--flow-steps", steps)
        self.once(self.work / f"{name}.done", name, "evaluate.py", *options)


def parse_run(text: str) -> tuple[str, list[str]]:
    """``name=size [options of train.py]``."""
    name, _, rest = text.partition("=")
    return name, rest.split()


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
    parser.add_argument(
        "--run",
        action="append",
        metavar="NAME=SIZE [OPTIONS]",
        help="a training run: preset of vla.py and options of train.py; one GPU each",
    )
    parser.add_argument("--cores", type=int, default=os.cpu_count())
    parser.add_argument("--scenes", type=int, default=22_000)
    parser.add_argument("--demo-seconds", type=float, default=75.0)
    parser.add_argument("--more-demo-seconds", type=float, default=45.0)
    parser.add_argument("--pretrain-minutes", type=float, default=0.6)
    parser.add_argument("--train-minutes", type=float, default=6.9)
    parser.add_argument("--polish-minutes", type=float, default=4.2)
    parser.add_argument("--init", type=Path, help="go on from this policy folder")
    parser.add_argument("--correction-seed", type=int, default=200_000)
    parser.add_argument("--eval-episodes", type=int, default=128)
    parser.add_argument("--status", action="store_true")
    args = parser.parse_args()
    if args.status:
        status(args.work)
        return
    args.runs = dict(parse_run(text) for text in args.run or ["large=large --seed 1"])
    args.work.mkdir(parents=True, exist_ok=True)
    job = Job(args)
    try:
        job.run()
    except Exception as error:
        job.say(f"failed: {error}")
        raise


if __name__ == "__main__":
    main()
