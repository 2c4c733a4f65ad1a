"""The simulated robot on the ROS graph: two cameras, joint states, a command topic."""

import queue
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from sensor_msgs.msg import Image, JointState
from so101 import JOINTS, Observation, Task
from std_msgs.msg import String

from .lockstep import Frame
from .policy_client import set_stamp, stamp_ns
from .wiring import Wiring

_SENSOR = QoSProfile(depth=10, reliability=ReliabilityPolicy.RELIABLE)
_COMMAND = QoSProfile(depth=100, reliability=ReliabilityPolicy.RELIABLE)
_LATCHED = QoSProfile(
    depth=1, reliability=ReliabilityPolicy.RELIABLE, durability=DurabilityPolicy.TRANSIENT_LOCAL
)


@dataclass(frozen=True)
class Command:
    """One target of the command topic: six angles in rad; stamp 0 if it carries none."""

    target: np.ndarray
    stamp_ns: int


class SimNode(Node):
    """Publishes what the arm sees and collects what it is told.

    The thread that owns the ``Task`` calls everything but the subscription.
    """

    def __init__(self, task: Task, wiring: Wiring):
        """``wiring`` names the topics of the deployment file."""
        super().__init__("so101_sim")
        self.task, self.wiring = task, wiring
        self._images = [self.create_publisher(Image, topic, _SENSOR) for topic in wiring.image_topics]
        self._joints = self.create_publisher(JointState, wiring.joint_topic, _SENSOR)
        self._prompt = self.create_publisher(String, wiring.prompt_topic, _LATCHED)
        self._commands: queue.SimpleQueue[Command] = queue.SimpleQueue()
        kind, reader = wiring.command_reader()
        self._reader = reader
        self.create_subscription(kind, wiring.command_topic, self._on_command, _COMMAND)

    def _on_command(self, message: Any) -> None:
        header = getattr(message, "header", None)
        self._commands.put(Command(self._reader(message), stamp_ns(header.stamp) if header else 0))

    def next_command(self, timeout_s: float, not_before_ns: int = 0) -> Command | None:
        """The oldest waiting command, or None; older stamps than the limit are dropped."""
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                command = self._commands.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                return None
            if command.stamp_ns == 0 or command.stamp_ns >= not_before_ns:
                return command

    def drop_commands(self) -> int:
        """Forget every waiting command; how many there were."""
        dropped = 0
        while True:
            try:
                self._commands.get_nowait()
            except queue.Empty:
                return dropped
            dropped += 1

    def now_ns(self) -> int:
        """ROS time."""
        return self.get_clock().now().nanoseconds

    def publish_observation(self, seen: Observation) -> Frame:
        """Publish what the arm sees, stamped now."""
        frame = Frame(self.now_ns(), seen.images, seen.state)
        self.publish_frame(frame)
        return frame

    def publish_frame(self, frame: Frame) -> None:
        """Publish a frame with the stamp that it has."""
        for publisher, pixels in zip(self._images, frame.images, strict=True):
            height, width, channels = pixels.shape
            image = Image(height=height, width=width, encoding="rgb8", step=width * channels)
            image.data.frombytes(pixels.tobytes())
            set_stamp(image.header.stamp, frame.stamp_ns)
            publisher.publish(image)
        joints = JointState(name=list(JOINTS), position=frame.state.astype(np.float64).tolist())
        set_stamp(joints.header.stamp, frame.stamp_ns)
        self._joints.publish(joints)

    def publish_prompt(self, text: str) -> None:
        """Publish an instruction; late subscribers get the last one."""
        self._prompt.publish(String(data=text))
