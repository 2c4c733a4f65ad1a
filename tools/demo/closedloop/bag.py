"""Record the run as a rosbag2 bag, replay it without DDS, compare the bytes."""

import hashlib
import shutil
import subprocess
import sys
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


@contextmanager
def recorder(wiring: Wiring, node: str, folder: Path, log: Path) -> Iterator[Child]:
    """Record everything that goes in and out of the node into ``folder``, which is replaced."""
    shutil.rmtree(folder, ignore_errors=True)
    topics = [*wiring.image_topics, wiring.joint_topic, wiring.command_topic]
    script = ROOT / "tools" / "ros" / "record_bag.py"
    with Child([sys.executable, str(script), "--out", str(folder), "--node", node, *topics], log) as child:
        yield child


def chunks_of(bag: Path, topic: str) -> dict[int, np.ndarray]:
    """Raw data of every recorded chunk, by chunk id, in order."""
    out: dict[int, np.ndarray] = {}
    with bag.open("rb") as file:
        for _, _, message in make_reader(file).iter_messages(topics=[topic]):
            chunk = deserialize_message(message.data, ActionChunk)
            out[chunk.chunk_id] = np.asarray(chunk.data, np.float32)
    return out


def replay_twice(
    config: Path, folder: Path, node: str, live: Mapping[int, np.ndarray], say: Callable[[str], None]
) -> bool:
    """Whether two offline replays give, chunk for chunk, the bytes that the live node gave."""
    program = Path(get_package_prefix("flashrt_ros"), "lib", "flashrt_ros", "flashrt")
    bag = next(folder.glob("*.mcap"))
    say(f"bag: {bag.relative_to(ROOT)}, {bag.stat().st_size / 2**20:.1f} MiB; replaying it twice without DDS")
    exact, files = True, []
    for number in (1, 2):
        out = folder.parent / f"replay{number}.mcap"
        argv = [str(program), "replay", "--config", str(config), "--bag", str(bag), "--out", str(out)]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        (folder.parent / f"replay{number}.log").write_text(done.stdout + done.stderr)
        if done.returncode != 0:
            say(f"replay {number} ended with status {done.returncode}: {(done.stderr or done.stdout).strip()[-400:]}")
            return False
        again = chunks_of(out, f"{node}/action_chunk")
        same = again.keys() == live.keys() and all(again[i].tobytes() == live[i].tobytes() for i in live)
        exact &= same
        files.append(hashlib.sha256(out.read_bytes()).hexdigest())
        say(f"  replay {number} {digest(list(again.values()))}  {'equal' if same else 'DIFFERENT'}: {len(again)} of {len(live)} chunks")
    say(f"  live     {digest(list(live.values()))}")
    if files[0] != files[1]:
        say("  the two result bags differ")
    return exact and files[0] == files[1]
