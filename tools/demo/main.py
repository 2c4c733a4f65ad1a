"""The main job: an SO-101 arm and policy_node in closed loop, and a restore that is checked.

Started by ``make demo`` through run.sh, which makes what this needs.
"""

import argparse
import shlex
import signal
import statistics
import sys
import time
import traceback
from pathlib import Path
from types import FrameType

import numpy as np
from closedloop import plots
from closedloop.episode import EPISODE_START, Episode
from closedloop.lockstep import MIN_CHUNKS, clamp
from closedloop.process import NodeCommand
from closedloop.report import EpisodeRow, Summary, render
from closedloop.restore_check import Passes, run_check
from closedloop.session import CONFIG, ROOT, Robot, image_size, isolate_ros, noise_regions, robot
from closedloop.wiring import read_wiring, slower_rate, write_copy
from so101 import JOINTS, Task

STEP_S = 0.1
KEEP_EVERY = 4
OUT = ROOT / "out" / "demo"


def say(text: str) -> None:
    """A line of progress."""
    print(f"demo: {text}", flush=True)


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--episodes", type=int, default=3, help="episodes to run (default 3)")
    parser.add_argument("--seed0", type=int, default=910_000, help="seed of the first episode; the policy never saw any of these")
    parser.add_argument("--check-episode", type=int, default=0, help="episode of the restore check, from 0 (default the first)")
    parser.add_argument("--check-chunks", type=int, default=6, help="chunks that the restore check compares, at least 5")
    parser.add_argument("--record", action="store_true", help="record the run as a bag and replay it twice")
    parser.add_argument("--config", type=Path, default=CONFIG, help="deployment file")
    parser.add_argument("--node", help="start this, followed by the deployment file, instead of what the launch file names (tests)")
    options = parser.parse_args()
    if options.episodes < 1:
        parser.error("--episodes: at least 1")
    if options.check_chunks < MIN_CHUNKS:
        parser.error(f"--check-chunks: at least {MIN_CHUNKS}")
    if not 0 <= options.check_episode < options.episodes:
        parser.error(f"--check-episode: 0..{options.episodes - 1}")
    return options


def config_for(task: Task, config: Path) -> Path:
    """The deployment file, or a copy at a lower control rate if the simulator is slow here."""
    seen = task.reset(0)
    times = []
    for _ in range(9):
        start = time.perf_counter()
        task.step(seen.state)
        task.observe()
        times.append(1e3 * (time.perf_counter() - start))
    step_ms = statistics.median(times)
    rate_hz = read_wiring(config).control_rate_hz
    slower = slower_rate(rate_hz, step_ms)
    if slower is None:
        say(f"simulator: {step_ms:.0f} ms per control step and two pictures; control rate {rate_hz:g} Hz")
        return config
    say(f"simulator: {step_ms:.0f} ms per control step and two pictures: control rate {slower:g} Hz instead of {rate_hz:g}")
    changes = {"chunk.control_rate_hz": slower, "chunk.max_hold_ms": 10_000.0 / slower}
    return write_copy(config, OUT / "so101_demo_slow.yaml", changes)


def run_episodes(options: argparse.Namespace, bot: Robot, summary: Summary) -> Passes | None:
    """All episodes, with the restore check in one of them."""
    sim, policy = bot.sim, bot.policy
    taken = policy.snapshot(EPISODE_START)
    say(f"capsule {EPISODE_START!r}: {taken.capsule.bytes / 1024:.0f} KiB, {taken.capsule.regions} regions, {taken.duration_us:.0f} us")
    passes: Passes | None = None
    film: tuple[Episode, EpisodeRow] | None = None
    for number in range(options.episodes):
        if number > 0:
            policy.restore(EPISODE_START)
        episode = Episode(sim, policy, options.seed0 + number, KEEP_EVERY)
        episode.begin()
        say(f"episode {number + 1}/{options.episodes}: {sim.task.instruction!r}")
        note = ""
        if passes is None and number >= options.check_episode:
            passes = check_midway(options, bot, episode)
            note = "restore check" if passes else ""
        episode.run()
        done = episode.result()
        row = EpisodeRow(done.seed, done.instruction, done.success, done.steps, done.chunks, done.steps * STEP_S, done.seconds, note)
        summary.episodes.append(row)
        if film is None or (row.success and not film[1].success):
            film = (episode, row)
        say(f"episode {number + 1}/{options.episodes}: {'solved' if done.success else 'not solved'} after {done.steps} steps,"
            f" {done.chunks} chunks, {done.seconds:.0f} s")
    summary.chunks, summary.latencies_ms = policy.chunk_count, policy.latencies_ms()
    if film is not None:
        picture_film(summary, bot.wiring.views, *film)
    return passes


def check_midway(options: argparse.Namespace, bot: Robot, episode: Episode) -> Passes | None:
    """Run until two chunks are executed, then check a restore; None if the episode ends before."""
    regions = noise_regions(bot.described)
    if not regions:
        raise RuntimeError(f"describe names no region of the noise generator: {list(bot.described.regions)}")
    if not episode.run_to_boundary(chunks=2):
        say("the episode ended before its midway point; the next one is checked instead")
        return None
    passes = run_check(bot.sim, bot.policy, episode, regions, options.check_chunks, say)
    verdict = passes.verdict
    say(f"  first pass  {verdict.first}")
    say(f"  second pass {verdict.second}  {'equal' if verdict.restore_exact else 'DIFFERENT'}: {verdict.compared} chunks")
    say(f"  control     {verdict.control}  {'differs, as it must' if verdict.control_differs else 'DOES NOT DIFFER'}")
    say(f"  simulator: {verdict.frames_equal} of {verdict.frames_compared} frames equal to the recorded ones")
    episode.resume()
    return passes


def picture_film(summary: Summary, views: tuple[str, ...], episode: Episode, row: EpisodeRow) -> None:
    """The filmstrip of one episode."""
    caption = f"“{row.instruction}”: {'solved' if row.success else 'not solved'} after {row.simulated_s:.1f} s"
    path = OUT / "film.png"
    plots.filmstrip(path, episode.film, views, caption, STEP_S)
    size = episode.film[0][1].images.shape[1]
    summary.pictures.append(
        ("What the policy saw", path, f"Seed {row.seed}: workspace and wrist camera, {size}×{size} pixels enlarged, simulated time above.")
    )


def picture_passes(summary: Summary, passes: Passes, limits: np.ndarray | None) -> None:
    """The joint targets of the three passes."""
    executed = [[m.target for m in s.moves] for s in passes.segments]

    def again(chunks: list) -> np.ndarray:
        rows = [
            [m.target if m.row is None else clamp(c.rows[m.row], limits) for m in s.moves]
            for s, c in zip(passes.segments, chunks, strict=True)
        ]
        return np.concatenate([np.asarray(r, np.float64).reshape(-1, len(JOINTS)) for r in rows])

    starts = np.cumsum([0, *(len(moves) for moves in executed)])[:-1]
    traces = plots.ActionTraces(
        names=JOINTS,
        lead_in=passes.lead_in,
        first=again([s.chunk for s in passes.segments]),
        second=again(passes.second),
        control=again(passes.control),
        chunk_starts=[int(s) for s in starts],
        step_s=STEP_S,
    )
    path = OUT / "actions.png"
    plots.actions(path, traces)
    summary.pictures.append(
        ("Actions of both passes", path,
         "Executed joint targets after the restore point. Second pass (dashed) over first pass; the control restored everything"
         " but the noise generator and got the same frames. Dotted lines: a new chunk.")
    )


def main() -> int:
    """Run the demo; the exit status says whether it did what it promises."""
    options = arguments()

    def terminate(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, terminate)
    OUT.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    summary = Summary()
    task: Task | None = None
    try:
        domain = isolate_ros()
        task = Task(hz=1 / STEP_S, image_size=image_size(options.config))
        config = config_for(task, options.config)
        say(f"starting policy_node on DDS domain {domain}, this machine only; its log is out/demo/policy_node.log")
        command = NodeCommand([*shlex.split(options.node), str(config)], "/policy_node") if options.node else None
        with robot(task, config, OUT / "policy_node.log", say, command) as bot:
            passes = drive(options, bot, summary)
            summary.facts += facts(bot, passes)
            node, live = bot.policy.full_name, bot.policy.raw_chunks()
        if passes is not None:
            summary.verdict = passes.verdict
            picture_passes(summary, passes, read_wiring(config).limits)
        if summary.latencies_ms:
            path = OUT / "latency.png"
            plots.latency(path, summary.latencies_ms)
            summary.pictures.append(("Tick latency", path, "Every accepted tick of this run, as the node measured it."))
        if options.record and passes is not None:
            from closedloop.bag import replay_twice

            summary.bag_exact = replay_twice(config, OUT / "bag", node, live, say)
    except KeyboardInterrupt:
        say("interrupted")
        return 130
    except Exception as error:  # the report and the last line come whatever happened
        (OUT / "error.log").write_text(traceback.format_exc())
        say(f"failed: {error} (out/demo/error.log has where)")
    finally:
        if task is not None:
            task.close()
    summary.facts.append(("wall time of the run", f"{time.monotonic() - started:.0f} s"))
    report = OUT / "report.html"
    report.write_text(render(summary))
    say(f"report: {report.relative_to(ROOT)}")
    print(summary.last_line(), flush=True)
    return 0 if summary.ok else 1


def drive(options: argparse.Namespace, bot: Robot, summary: Summary) -> Passes | None:
    """The episodes, with a recorder beside them if asked for."""
    if not options.record:
        return run_episodes(options, bot, summary)
    from closedloop.bag import recorder

    with recorder(bot.wiring, bot.policy.full_name, OUT / "bag", OUT / "record_bag.log"):
        bot.policy.reset()  # replay starts from a state that the bag names
        passes = run_episodes(options, bot, summary)
        time.sleep(0.5)  # the last messages are on their way to the recorder
    return passes


def facts(bot: Robot, passes: Passes | None) -> list[tuple[str, str]]:
    """What ran, for the report's last table."""
    described = bot.described
    rows = [
        ("model", described.model),
        ("backend", f"{described.backend}, {described.isa}"),
        ("fingerprint", described.fingerprint),
        ("closure of the state", described.closure),
        ("weights", f"{described.weights_bytes / 2**20:.1f} MiB"),
        ("live set", f"{described.live_bytes / 2**20:.1f} MiB"),
        ("command line", " ".join(bot.child.argv)),
    ]
    if passes is not None:
        rows += [
            ("capsule", f"{passes.capsule_bytes / 1024:.1f} KiB"),
            ("snapshot", f"{passes.snapshot_us:.0f} us from call to verified completion"),
            ("restore", f"{passes.restore_us:.0f} us from call to verified completion"),
        ]
    refused = bot.policy.refused_ticks
    return [*rows, ("refused ticks", str(refused))]


if __name__ == "__main__":
    sys.exit(main())
