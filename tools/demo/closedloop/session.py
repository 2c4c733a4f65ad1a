"""policy_node as a child process, brought to Active, with the simulated robot beside it."""

import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import rclpy
import yaml
from flashrt_ros.srv import Describe
from rclpy.executors import SingleThreadedExecutor
from rclpy.signals import SignalHandlerOptions
from so101 import Task

from .policy_client import PolicyClient
from .process import Child, NodeCommand
from .sim_node import SimNode
from .wiring import Wiring, read_wiring

ROOT = Path(__file__).resolve().parents[3]
CONFIG = ROOT / "config" / "so101_demo.yaml"
LAUNCH = ROOT / "launch" / "policy.launch.py"


@dataclass(frozen=True)
class Robot:
    """Everything in closed loop.

    Attributes:
        described: The node's own description after configure.
    """

    sim: SimNode
    policy: PolicyClient
    child: Child
    wiring: Wiring
    described: Describe.Response


def isolate_ros() -> int:
    """Take a DDS domain of this machine for this process and its children; returns it.

    Discovery stays on this machine, and publishers get room for images in shared memory.
    """
    try:
        from domain_coordinator import domain_id

        # Holds the domain until the process ends.
        _held.append(domain_id())
        domain = _held[-1].__enter__()
    except ImportError:
        domain = 1 + os.getpid() % 100
    os.environ["ROS_DOMAIN_ID"] = str(domain)
    os.environ["ROS_AUTOMATIC_DISCOVERY_RANGE"] = "LOCALHOST"
    os.environ["FASTRTPS_DEFAULT_PROFILES_FILE"] = str(ROOT / "config" / "fastdds_shm.xml")
    return int(domain)


_held: list = []


def policy_command(config: Path, folder: Path) -> NodeCommand:
    """What ``ros2 launch flashrt_ros policy.launch.py config:=... autostart:=false`` starts.

    ``ros2 launch`` itself is not on PyPI; the reader of launch files is the one that the launch tests use. The
    parameter file goes into ``folder``.
    """
    sys.path.append(str(ROOT / "test"))
    from support.launch_files import commands

    (command,) = commands(LAUNCH, {"config": str(config), "autostart": "false"})
    return NodeCommand(command.argv(folder), command.full_name())


def image_size(config: Path) -> int:
    """Pixels per side of the pictures that the policy of a deployment file takes."""
    weights = yaml.safe_load(config.read_text())["model"]["weights"]
    folder = Path(weights.replace("$share", str(ROOT)))
    return int(json.loads((config.parent / folder / "config.json").read_text())["image"])


@contextmanager
def robot(
    task: Task, config: Path, log: Path, say: Callable[[str], None], command: NodeCommand | None = None
) -> Iterator[Robot]:
    """Start policy_node on ``config``, configure and activate it; end everything afterwards.

    Args:
        log: File for the node's own output.
        command: Another command line that serves the same names, for tests.
    """
    command = command or policy_command(config, log.parent)
    wiring = read_wiring(config, command.name)
    rclpy.init(args=[], signal_handler_options=SignalHandlerOptions.NO)
    executor = SingleThreadedExecutor()
    spinning: threading.Thread | None = None
    sim = policy = None
    try:
        sim, policy = SimNode(task, wiring), PolicyClient(command.name)
        for node in (sim, policy):
            executor.add_node(node)
        spinning = threading.Thread(target=_spin, args=(executor,), daemon=True)
        spinning.start()
        with Child(command.argv, log) as child:
            policy.wait_for_services(60.0, child.check)
            try:
                policy.configure()
                policy.activate()
                described = policy.describe()
                state = policy.state_label()
            except Exception as error:
                raise RuntimeError(f"{error}\nThe node's log {log} ends:\n{child.tail()}") from error
            say(f"policy_node is {state}: {described.model} on {described.backend} ({described.isa}),"
                f" fingerprint {described.fingerprint}")
            yield Robot(sim, policy, child, wiring, described)
    finally:
        executor.shutdown()
        if spinning is not None:
            spinning.join(5.0)
        for node in (sim, policy):
            if node is not None:
                node.destroy_node()
        rclpy.try_shutdown()


def _spin(executor: SingleThreadedExecutor) -> None:
    try:
        executor.spin()
    except rclpy.executors.ExternalShutdownException:
        pass


def noise_regions(described: Describe.Response) -> tuple[str, ...]:
    """Names of the regions that hold the noise generator: ``describe`` lists name:bytes:class."""
    names = [entry.split(":")[0] for entry in described.regions]
    return tuple(name for name in names if "rng" in name)
