"""Record the run as a rosbag2 bag, replay it without DDS, compare the bytes."""

import hashlib
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from ament_index_python.packages import get_package_prefix
from flashrt_ros.msg import ActionChunk
from mcap.reader import make_reader
from rclpy.serialization import deserialize_message

from .lockstep import digest
from .process import Child
from .session import ROOT
from .wiring import Wiring

# tick_log, action_chunk, prompt and status
_TOPICS_OF_A_NODE = 4


@contextmanager
def recorder(wiring: Wiring, node: str, folder: Path, log: Path) -> Iterator[Child]:
    """Record everything that goes in and out of the node into ``folder``, which is replaced.

    Yields once every topic is being recorded.
    """
    shutil.rmtree(folder, ignore_errors=True)
    topics = [*wiring.image_topics, wiring.joint_topic, wiring.command_topic]
    script = ROOT / "tools" / "ros" / "record_bag.py"
    with Child([sys.executable, str(script), "--out", str(folder), "--node", node, *topics], log) as child:
        deadline = time.monotonic() + 20.0
        while log.read_text().count("recording /") < len(topics) + _TOPICS_OF_A_NODE:
            child.check()
            if time.monotonic() > deadline:
                raise RuntimeError(f"the recorder did not find every topic; its log {log} ends:\n{child.tail()}")
            time.sleep(0.05)
        yield child


def chunks_of(bag: Path, topic: str) -> dict[int, np.ndarray]:
    """Raw data of every recorded chunk, ordered by chunk id.

    A bag is read by log time, and lockstep ticks on recorded frames have the times of the past: the order of the
    file is not the order in which the chunks were made.
    """
    out: dict[int, np.ndarray] = {}
    with bag.open("rb") as file:
        for _, _, message in make_reader(file).iter_messages(topics=[topic]):
            chunk = deserialize_message(message.data, ActionChunk)
            if chunk.chunk_id in out:
                raise RuntimeError(f"{bag.name} holds chunk {chunk.chunk_id} twice")
            out[chunk.chunk_id] = np.asarray(chunk.data, np.float32)
    return dict(sorted(out.items()))


def replay_twice(
    config: Path, folder: Path, node: str, live: Mapping[int, np.ndarray], say: Callable[[str], None]
) -> bool:
    """Whether two offline replays give, chunk for chunk, the bytes that the live node gave."""
    program = Path(get_package_prefix("flashrt_ros"), "lib", "flashrt_ros", "flashrt")
    bag = next(folder.glob("*.mcap"))
    say(f"bag: {bag.relative_to(ROOT)}, {bag.stat().st_size / 2**20:.1f} MiB; replaying it twice without DDS")
    exact, files = True, []
    expected = digest(list(live.values()))
    say(f"  live     {expected}")
    for number in (1, 2):
        out = folder.parent / f"replay{number}.mcap"
        argv = [str(program), "replay", "--config", str(config), "--bag", str(bag), "--out", str(out)]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        (folder.parent / f"replay{number}.log").write_text(done.stdout + done.stderr)
        if done.returncode != 0:
            say(f"replay {number} ended with status {done.returncode}: {(done.stderr or done.stdout).strip()[-400:]}")
            return False
        again = chunks_of(out, f"{node}/action_chunk")
        sha = digest(list(again.values()))
        same = list(again) == list(live) and sha == expected
        exact &= same
        files.append(hashlib.sha256(out.read_bytes()).hexdigest())
        say(f"  replay {number} {sha}  {'equal' if same else 'DIFFERENT'}: {len(again)} of {len(live)} chunks")
    if files[0] != files[1]:
        say("  the two result bags differ")
    return exact and files[0] == files[1]
