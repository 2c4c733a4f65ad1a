"""Everything the demo asks of policy_node, through its topics and services."""

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from flashrt_ros.msg import ActionChunk, ResultCode, Status, TickLog
from flashrt_ros.srv import Describe, OperationStatus, Reset, Restore, Snapshot
from flashrt_ros.srv import Tick as TickService
from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState, GetState
from rcl_interfaces.msg import Parameter, ParameterType, ParameterValue
from rcl_interfaces.srv import SetParameters
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy

from .lockstep import Chunk, Tick

CODE_NAMES: dict[int, str] = {
    value: name for name, value in vars(type(ResultCode)).get("_Metaclass_ResultCode__constants", {}).items()
}
_RELIABLE = QoSProfile(depth=100, reliability=ReliabilityPolicy.RELIABLE)


class PolicyError(RuntimeError):
    """policy_node refused a request, or did not answer."""


def stamp_ns(stamp: Any) -> int:
    """Nanoseconds of a ``builtin_interfaces/Time``."""
    return stamp.sec * 1_000_000_000 + stamp.nanosec


def set_stamp(stamp: Any, nanoseconds: int) -> None:
    """Write nanoseconds into a ``builtin_interfaces/Time``."""
    stamp.sec, stamp.nanosec = divmod(nanoseconds, 1_000_000_000)


class PolicyClient(Node):
    """One policy_node as its user sees it.

    Spin it in another thread: the methods block on answers.
    """

    def __init__(self, policy: str = "/policy_node", sensor_ports: tuple[str, ...] = ()):
        """Args:
        policy: Fully qualified name of the node.
        sensor_ports: Tick-log ports to keep; empty keeps all but the prompt.
        """
        super().__init__("demo_client")
        self.full_name = self._policy = policy
        self._sensor_ports = sensor_ports
        self._changed = threading.Condition()
        self._chunks: dict[int, ActionChunk] = {}
        self._ticks: list[TickLog] = []
        self._status: Status | None = None
        transient = QoSProfile(
            depth=1, reliability=ReliabilityPolicy.RELIABLE, durability=DurabilityPolicy.VOLATILE
        )
        self.create_subscription(ActionChunk, f"{policy}/action_chunk", self._on_chunk, _RELIABLE)
        self.create_subscription(TickLog, f"{policy}/tick_log", self._on_tick, _RELIABLE)
        self.create_subscription(Status, f"{policy}/status", self._on_status, transient)
        kinds = {
            "change_state": ChangeState,
            "get_state": GetState,
            "set_parameters": SetParameters,
            "snapshot": Snapshot,
            "restore": Restore,
            "reset": Reset,
            "tick": TickService,
            "describe": Describe,
            "operation_status": OperationStatus,
        }
        self._service_clients = {name: self.create_client(kind, f"{policy}/{name}") for name, kind in kinds.items()}

    # -- what the node publishes -------------------------------------------------

    def _on_chunk(self, message: ActionChunk) -> None:
        with self._changed:
            self._chunks[message.chunk_id] = message
            self._changed.notify_all()

    def _on_tick(self, message: TickLog) -> None:
        with self._changed:
            self._ticks.append(message)
            self._changed.notify_all()

    def _on_status(self, message: Status) -> None:
        with self._changed:
            self._status = message
            self._changed.notify_all()

    def wait_until(self, ready: Callable[[], bool], timeout_s: float) -> bool:
        """Block until ``ready`` holds; it is asked at every message received."""
        with self._changed:
            return self._changed.wait_for(ready, timeout_s)

    @property
    def status(self) -> Status | None:
        """The newest ``~/status``, if any came."""
        return self._status

    @property
    def chunk_count(self) -> int:
        """Chunks received so far."""
        return len(self._chunks)

    def newest_chunk(self) -> ActionChunk | None:
        """The chunk with the highest id received."""
        with self._changed:
            return self._chunks[max(self._chunks)] if self._chunks else None

    @property
    def refused_ticks(self) -> int:
        """Ticks of the log with a code other than OK."""
        with self._changed:
            return sum(t.code != ResultCode.OK and not t.operation for t in self._ticks)

    def raw_chunks(self) -> dict[int, np.ndarray]:
        """Raw data of every chunk received, by chunk id, in order."""
        with self._changed:
            return {i: np.asarray(self._chunks[i].data, np.float32) for i in sorted(self._chunks)}

    def latencies_ms(self) -> list[float]:
        """Latency of every accepted tick so far."""
        with self._changed:
            return [t.latency_ms for t in self._ticks if _accepted(t)]

    def chunk(self, chunk_id: int, timeout_s: float = 2.0) -> ActionChunk:
        """The chunk of this id, waiting for its message if need be."""
        if not self.wait_until(lambda: chunk_id in self._chunks, timeout_s):
            raise PolicyError(f"chunk {chunk_id} was announced but not received within {timeout_s} s")
        return self._chunks[chunk_id]

    def prompt_of(self, chunk: ActionChunk, timeout_s: float = 2.0) -> str:
        """The prompt that a chunk was computed with, from the tick log."""

        def entry() -> TickLog | None:
            return next((t for t in reversed(self._ticks) if t.chunk_id == chunk.chunk_id and _accepted(t)), None)

        if not self.wait_until(lambda: entry() is not None, timeout_s):
            raise PolicyError(f"chunk {chunk.chunk_id} has no entry in the tick log within {timeout_s} s")
        return entry().prompt

    def last_tick(self) -> int:
        """Highest tick number of the newest epoch in the log; -1 before the first."""
        with self._changed:
            newest = max((t.epoch for t in self._ticks), default=0)
            return max((t.tick for t in self._ticks if t.epoch == newest and _accepted(t)), default=-1)

    def history(self, epoch: int, after_tick: int) -> tuple[list[Tick], list[Chunk]]:
        """Accepted ticks of an epoch with a number above ``after_tick``, and their chunks."""
        with self._changed:
            logged = [t for t in self._ticks if t.epoch == epoch and t.tick > after_tick and _accepted(t)]
            published = [c for c in self._chunks.values() if c.epoch == epoch and c.tick > after_tick]
        ticks = [
            Tick(t.tick, stamp_ns(t.header.stamp), {p.name: stamp_ns(p.stamp) for p in t.ports if self._is_sensor(p.name)})
            for t in sorted(logged, key=lambda t: t.tick)
        ]
        return ticks, [as_chunk(c) for c in sorted(published, key=lambda c: c.tick)]

    def _is_sensor(self, port: str) -> bool:
        return port in self._sensor_ports if self._sensor_ports else "prompt" not in port

    # -- what it is asked ----------------------------------------------------------

    def call(self, service: str, request: Any, timeout_s: float = 30.0) -> Any:
        """Call a service and wait for the answer."""
        client = self._service_clients[service]
        if not client.service_is_ready() and not client.wait_for_service(timeout_s):
            raise PolicyError(f"service {self._policy}/{service} did not appear within {timeout_s} s")
        done = threading.Event()
        future = client.call_async(request)
        future.add_done_callback(lambda _: done.set())
        if not done.wait(timeout_s):
            raise PolicyError(f"{self._policy}/{service} did not answer within {timeout_s} s")
        return future.result()

    def _checked(self, service: str, request: Any, timeout_s: float = 30.0) -> Any:
        answer = self.call(service, request, timeout_s)
        if answer.code != ResultCode.OK:
            raise PolicyError(f"{service} answered {code_name(answer.code)}: {answer.message}")
        return answer

    def wait_for_services(self, timeout_s: float, alive: Callable[[], None]) -> None:
        """Block until every service is there; ``alive`` may raise if the node died."""
        deadline = time.monotonic() + timeout_s
        for name, client in self._service_clients.items():
            while not client.wait_for_service(0.2):
                alive()
                if time.monotonic() > deadline:
                    raise PolicyError(f"service {self._policy}/{name} did not appear within {timeout_s} s")

    def transition(self, transition_id: int, timeout_s: float = 60.0) -> None:
        """One lifecycle transition, for instance ``Transition.TRANSITION_CONFIGURE``."""
        request = ChangeState.Request()
        request.transition.id = transition_id
        if not self.call("change_state", request, timeout_s).success:
            raise PolicyError(f"transition {transition_id} failed; the node's own words are in its log")

    def configure(self) -> None:
        """unconfigured -> inactive."""
        self.transition(Transition.TRANSITION_CONFIGURE)

    def activate(self) -> None:
        """inactive -> active."""
        self.transition(Transition.TRANSITION_ACTIVATE)

    def deactivate(self) -> None:
        """active -> inactive."""
        self.transition(Transition.TRANSITION_DEACTIVATE)

    def state_label(self) -> str:
        """Lifecycle state, for instance "active"."""
        return self.call("get_state", GetState.Request()).current_state.label

    def set_tick_mode(self, mode: str) -> None:
        """``chunk`` (free running), ``rate`` or ``trigger``."""
        value = ParameterValue(type=ParameterType.PARAMETER_STRING, string_value=mode)
        request = SetParameters.Request(parameters=[Parameter(name="tick_mode", value=value)])
        result = self.call("set_parameters", request).results[0]
        if not result.successful:
            raise PolicyError(f"tick_mode:={mode} was refused: {result.reason}")

    def describe(self) -> Describe.Response:
        """Ports, stages, identity and budgets."""
        return self._checked("describe", Describe.Request())

    def snapshot(self, name: str, exclude: tuple[str, ...] = ()) -> Snapshot.Response:
        """Freeze the live set under this name; ``exclude`` makes a partial capsule."""
        request = Snapshot.Request(name=name, overwrite=True, exclude_regions=list(exclude), wait_ms=5000)
        return self._checked("snapshot", request)

    def restore(self, name: str, allow_partial: bool = False) -> Restore.Response:
        """Put a capsule back; the answer has the new epoch."""
        return self._checked("restore", Restore.Request(name=name, allow_partial=allow_partial, wait_ms=5000))

    def reset(self) -> Reset.Response:
        """Back to the warm start: noise generator at its seed, no prompt."""
        return self._checked("reset", Reset.Request(keep_prompt=False, wait_ms=5000))

    def try_tick(self, stamp: int, not_before: int, wait_ms: int = 2000) -> TickService.Response:
        """One tick at ROS time ``stamp`` (ns; 0 is now). The caller looks at the code."""
        request = TickService.Request(wait_ms=wait_ms)
        set_stamp(request.stamp, stamp)
        set_stamp(request.not_before, not_before)
        return self.call("tick", request)

    def tick(self, stamp: int, not_before: int, wait_ms: int = 2000) -> ActionChunk:
        """One tick, and the chunk that it published."""
        answer = self.try_tick(stamp, not_before, wait_ms)
        if answer.code != ResultCode.OK:
            raise PolicyError(f"tick answered {code_name(answer.code)}: {answer.message}")
        return self.chunk(answer.chunk_id)

    def wait_for_prompt(self, text: str, timeout_s: float = 5.0) -> None:
        """Block until the node says that this is the prompt in force."""
        if not self.wait_until(lambda: self._status is not None and self._status.prompt == text, timeout_s):
            seen = self._status.prompt if self._status else None
            raise PolicyError(f"prompt {text!r} was published, but the node still says {seen!r} after {timeout_s} s")


def _accepted(entry: TickLog) -> bool:
    """Whether a log entry is a tick that gave a chunk; the others are operations and refusals."""
    return not entry.operation and entry.code == ResultCode.OK


def code_name(code: int) -> str:
    """Name of a result code, for instance ``STALE_INPUT``."""
    return CODE_NAMES.get(code, str(code))


def as_chunk(message: ActionChunk) -> Chunk:
    """The raw rows of a message."""
    rows = np.asarray(message.data, np.float32).reshape(message.horizon, len(message.names))
    return Chunk(message.tick, rows, message.execute_rows)
