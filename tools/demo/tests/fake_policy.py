"""A stand-in for policy_node with the same ROS surface, so that the demo can be tried alone.

It answers the demo's services and runs the same tick modes. Its policy moves the
arm about its state with noise from a counter; it solves nothing.

    python tools/demo/tests/fake_policy.py CONFIG
"""

import hashlib
import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import rclpy
import yaml
from closedloop.lockstep import clamp
from closedloop.policy_client import set_stamp, stamp_ns
from closedloop.wiring import read_wiring
from flashrt_ros.msg import ActionChunk, ResultCode, Status, TickLog, TickPort
from flashrt_ros.srv import Describe, OperationStatus, Reset, Restore, Snapshot, Tick
from lifecycle_msgs.srv import ChangeState, GetState
from rcl_interfaces.msg import SetParametersResult
from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.executors import MultiThreadedExecutor
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSProfile
from sensor_msgs.msg import Image, JointState
from std_msgs.msg import String
from trajectory_msgs.msg import JointTrajectory, JointTrajectoryPoint

_HORIZON = 16


class FakePolicy(Node):
    """Continuation state: prompt, noise counter and seed. Everything else is of the world."""

    def __init__(self, config: Path) -> None:
        super().__init__("policy_node")
        tree = yaml.safe_load(config.read_text())
        self.wiring = wiring = read_wiring(config)
        self.fresh = tree["tick"].get("fresh", False)
        self.max_hold_ns = int(1e6 * tree["chunk"].get("max_hold_ms", 500))
        self.execute = wiring.execute_rows or _HORIZON
        self.lock = threading.Condition()
        self.state, self.mode, self.epoch, self.tick = 1, "chunk", 1, 0
        self.prompt, self.counter, self.rings = "", 0, {p: {} for p in (*wiring.views, "state")}
        self.rows, self.next_row, self.last_command_ns, self.last_emit = None, 0, 0, None
        self.capsules: dict[str, dict[str, Any]] = {}
        self.chunks = self.ops = 0
        group = ReentrantCallbackGroup()
        self.declare_parameter("tick_mode", "chunk")
        self.add_on_set_parameters_callback(self._on_parameters)
        for view, topic in zip(wiring.views, wiring.image_topics, strict=True):
            self.create_subscription(Image, topic, lambda m, v=view: self._push(v, m, bytes(m.data)), 10, callback_group=group)
        self.create_subscription(JointState, wiring.joint_topic,
                                 lambda m: self._push("state", m, np.asarray(m.position)), 10, callback_group=group)
        latched = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)
        self.create_subscription(String, wiring.prompt_topic, self._on_prompt, latched, callback_group=group)
        self.chunk_pub = self.create_publisher(ActionChunk, "~/action_chunk", 10)
        self.log_pub = self.create_publisher(TickLog, "~/tick_log", 10)
        self.status_pub = self.create_publisher(Status, "~/status", 10)
        self.command_pub = self.create_publisher(JointTrajectory, wiring.command_topic, 10)
        for kind, name, handler in (
            (ChangeState, "change_state", self._change_state), (GetState, "get_state", self._get_state),
            (Snapshot, "snapshot", self._snapshot), (Restore, "restore", self._restore), (Reset, "reset", self._reset),
            (Tick, "tick", self._tick_service), (Describe, "describe", self._describe),
            (OperationStatus, "operation_status", lambda q, r: r),
        ):
            self.create_service(kind, f"~/{name}", handler, callback_group=group)
        self.create_timer(0.1, self._publish_status, callback_group=group)
        threading.Thread(target=self._device, daemon=True).start()
        threading.Thread(target=self._emitter, daemon=True).start()

    def _on_parameters(self, parameters: list) -> SetParametersResult:
        with self.lock:
            self.mode = next((p.value for p in parameters if p.name == "tick_mode"), self.mode)
        return SetParametersResult(successful=True)

    def _push(self, port: str, message: Any, value: Any) -> None:
        with self.lock:
            self.rings[port][stamp_ns(message.header.stamp)] = value
            self.lock.notify_all()

    def _on_prompt(self, message: String) -> None:
        with self.lock:
            self.prompt = message.data

    def _publish_status(self) -> None:
        self.status_pub.publish(Status(state={1: "unconfigured", 2: "inactive", 3: "active"}[self.state], prompt=self.prompt,
                                       epoch=self.epoch, tick=self.tick, chunks=self.chunks))

    def _change_state(self, request: Any, response: Any) -> Any:
        self.state = {1: 2, 3: 3, 4: 2}.get(request.transition.id, self.state)
        response.success = True
        return response

    def _get_state(self, request: Any, response: Any) -> Any:
        response.current_state.label = {1: "unconfigured", 2: "inactive", 3: "active"}[self.state]
        return response

    def _describe(self, request: Any, response: Any) -> Any:
        response.model, response.backend, response.isa, response.fingerprint = "fake", "cpu", "python", "0" * 16
        response.regions = ["prompt:72:continuation", "rng:16:continuation"]
        return response

    def _snapshot(self, request: Any, response: Any) -> Any:
        with self.lock:
            saved = {"prompt": self.prompt, "counter": self.counter, "tick": self.tick}
            for region in request.exclude_regions:
                saved.pop({"rng": "counter"}.get(region, region))
            self.capsules[request.name] = saved
            response.capsule.name, response.capsule.epoch, response.capsule.tick = request.name, self.epoch, self.tick
            response.capsule.bytes = len(json.dumps(saved))
        return response

    def _new_epoch(self) -> None:
        self.epoch += 1
        self.rows = None
        for ring in self.rings.values():
            ring.clear()

    def _restore(self, request: Any, response: Any) -> Any:
        with self.lock:
            saved = self.capsules.get(request.name)
            if saved is None:
                response.code, response.message = ResultCode.NOT_FOUND, f"no capsule {request.name!r}"
                return response
            for name, value in saved.items():
                setattr(self, name, value)
            self._new_epoch()
            response.epoch = self.epoch
        return response

    def _reset(self, request: Any, response: Any) -> Any:
        with self.lock:
            self.prompt, self.counter, self.tick = "", 0, 0
            self._new_epoch()
            response.epoch = self.epoch
        return response

    def _usable(self, now: int, not_before: int) -> dict[str, int] | None:
        stamps = {port: max((s for s in ring if s <= now), default=0) for port, ring in self.rings.items()}
        return stamps if min(stamps.values()) >= max(1, not_before) and self.prompt else None

    def _run(self, now: int, stamps: dict[str, int]) -> ActionChunk:
        state = self.rings["state"][stamps["state"]]
        pixels = b"".join(self.rings[view][stamps[view]] for view in self.wiring.views)
        mixed = hashlib.sha256(pixels + self.prompt.encode() + self.counter.to_bytes(8, "little")).digest()
        noise = np.random.default_rng(int.from_bytes(mixed[:8], "little")).normal(size=(_HORIZON, len(state)))
        self.counter += 1
        self.tick += 1
        self.chunks += 1
        rows = (np.asarray(state) + 0.03 * noise.cumsum(axis=0)).astype(np.float32)
        time.sleep(0.04)
        chunk = ActionChunk(epoch=self.epoch, tick=self.tick, chunk_id=self.chunks, names=list(self.wiring.joint_names),
                            horizon=_HORIZON, execute_rows=self.execute, data=rows.ravel().tolist())
        log = TickLog(epoch=self.epoch, tick=self.tick, latency_ms=40.0 + 3 * float(noise[0, 0] ** 2))
        set_stamp(log.header.stamp, now)
        for port, used in stamps.items():
            entry = TickPort(name=port)
            set_stamp(entry.stamp, used)
            log.ports.append(entry)
        self.log_pub.publish(log)
        self.chunk_pub.publish(chunk)
        self.rows, self.next_row = rows, 0
        return chunk

    def _tick_service(self, request: Any, response: Any) -> Any:
        deadline = time.monotonic() + request.wait_ms / 1e3
        with self.lock:
            while True:
                now = stamp_ns(request.stamp) or self.get_clock().now().nanoseconds
                stamps = self._usable(now, stamp_ns(request.not_before))
                if stamps or time.monotonic() > deadline:
                    break
                self.lock.wait(0.005)
            if stamps is None:
                response.code, response.message = ResultCode.STALE_INPUT, "no input new enough"
                return response
            chunk = self._run(now, stamps)
            response.epoch, response.tick, response.chunk_id = self.epoch, chunk.tick, chunk.chunk_id
        return response

    def _device(self) -> None:
        while True:
            with self.lock:
                self.lock.wait(0.005)
                done = self.rows is None or self.next_row >= self.execute
                if self.state == 3 and self.mode == "chunk" and done:
                    now = self.get_clock().now().nanoseconds
                    stamps = self._usable(now, self.last_command_ns + 1 if self.fresh else 0)
                    if stamps:
                        self._run(now, stamps)

    def _emitter(self) -> None:
        period = 1.0 / self.wiring.control_rate_hz
        due = time.monotonic()
        while True:
            due = max(due + period, time.monotonic())
            time.sleep(max(0.0, due - time.monotonic()))
            with self.lock:
                if self.rows is None or self.state != 3:
                    continue
                if self.next_row < self.execute:
                    row, self.last_emit = self.next_row, time.monotonic()
                    self.next_row += 1
                elif time.monotonic() - self.last_emit < self.max_hold_ns / 1e9:
                    row = self.execute - 1
                else:
                    continue
                target = clamp(self.rows[row], self.wiring.limits)
                point = JointTrajectoryPoint(positions=target.tolist())
                command = JointTrajectory(joint_names=list(self.wiring.joint_names), points=[point])
                self.last_command_ns = self.get_clock().now().nanoseconds
                set_stamp(command.header.stamp, self.last_command_ns)
                self.command_pub.publish(command)


def main() -> None:
    """Serve until SIGINT."""
    rclpy.init(args=[])
    executor = MultiThreadedExecutor(4)
    executor.add_node(FakePolicy(Path(sys.argv[1])))
    try:
        executor.spin()
    except (KeyboardInterrupt, rclpy.executors.ExternalShutdownException):
        pass


if __name__ == "__main__":
    main()
