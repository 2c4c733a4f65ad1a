"""What the demo needs to know of a deployment file: topics, rates, and copies of it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml


@dataclass(frozen=True)
class Wiring:
    """Topics and rates of one deployment file.

    Attributes:
        views: Names of the camera views, in the model's order.
        image_topics: One per view.
        joint_names: In the model's order.
        command_type: ``joint_trajectory``, ``float64_multi_array`` or ``joint_state``.
        control_rate_hz: Commands per second.
        execute_rows: Rows of each chunk that become commands; 0 is all.
        limits: ``(joints, 2)`` ranges of the commands in rad, or None.
    """

    views: tuple[str, ...]
    image_topics: tuple[str, ...]
    joint_topic: str
    joint_names: tuple[str, ...]
    prompt_topic: str
    command_topic: str
    command_type: str
    control_rate_hz: float
    execute_rows: int
    limits: np.ndarray | None

    def command_reader(self) -> tuple[type, Callable[[Any], np.ndarray]]:
        """Message type of the command topic, and what reads the joint targets out of it."""
        order = self.joint_names
        if self.command_type == "joint_trajectory":
            from trajectory_msgs.msg import JointTrajectory

            return JointTrajectory, lambda m: _ordered(order, m.joint_names, m.points[0].positions)
        if self.command_type == "joint_state":
            from sensor_msgs.msg import JointState

            return JointState, lambda m: _ordered(order, m.name, m.position)
        from std_msgs.msg import Float64MultiArray

        return Float64MultiArray, lambda m: np.asarray(m.data, np.float64)


def _ordered(order: Sequence[str], names: Sequence[str], values: Sequence[float]) -> np.ndarray:
    by_name = dict(zip(names, values, strict=True))
    return np.array([by_name[name] for name in order], np.float64)


def resolve(topic: str, node: str) -> str:
    """Absolute name of a topic that a node in the root namespace is given."""
    if topic.startswith("~"):
        return node + topic[1:]
    return "/" + topic.lstrip("/")


def read_wiring(config: Path, node: str = "/policy_node") -> Wiring:
    """Read a deployment file that policy_node itself will check."""
    tree = yaml.safe_load(config.read_text())
    ports, command, chunk = tree["ports"], tree["command"], tree["chunk"]
    prompt = ports.get("prompt", {})
    joints = tuple(joint["name"] for joint in ports["state"]["joints"])
    limits = command["limits"]
    return Wiring(
        views=tuple(image["view"] for image in ports["images"]),
        image_topics=tuple(resolve(image["topic"], node) for image in ports["images"]),
        joint_topic=resolve(ports["state"]["topic"], node),
        joint_names=joints,
        prompt_topic=resolve(prompt.get("topic", "~/prompt"), node),
        command_topic=resolve(command["topic"], node),
        command_type=command.get("type", "joint_trajectory"),
        control_rate_hz=float(chunk["control_rate_hz"]),
        execute_rows=int(chunk.get("execute_rows", 0)),
        limits=np.array([limits[name] for name in joints], np.float64) if isinstance(limits, dict) else None,
    )


def write_copy(config: Path, out: Path, changes: dict[str, Any]) -> Path:
    """A copy of a deployment file with some keys changed, for instance ``{"tick.mode": "trigger"}``.

    Relative paths in it are made absolute, since they are meant from the file's own folder.
    """
    tree = yaml.safe_load(config.read_text())
    for path in (("model", "weights"), ("capsules", "directory")):
        section = tree.get(path[0], {})
        if path[1] in section and not section[path[1]].startswith("$share"):
            section[path[1]] = str((config.parent / section[path[1]]).resolve())
    for key, value in changes.items():
        *sections, last = key.split(".")
        node = tree
        for section in sections:
            node = node.setdefault(section, {})
        node[last] = value
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(f"# Copy of {config.name} with {', '.join(changes)} changed.\n" + yaml.safe_dump(tree, sort_keys=False))
    return out


def slower_rate(rate_hz: float, step_ms: float, limit_ms: float = 70.0) -> float | None:
    """A control rate at which a simulator this slow keeps up, or None if it does already.

    One control step with its two pictures may take 70 % of the period; the rest is for the tick.
    """
    if step_ms <= limit_ms:
        return None
    period_ms = step_ms / 0.7
    # Whole tenths, so that the number reads well; never above the rate asked for.
    return min(rate_hz, max(0.1, int(10_000.0 / period_ms) / 10.0))
