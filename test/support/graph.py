"""A ROS graph that belongs to one test: context, node, executor thread, clients and collected messages."""

import threading
import time

import rclpy
from rclpy.executors import SingleThreadedExecutor
from rclpy.qos import QoSDurabilityPolicy, QoSProfile, QoSReliabilityPolicy

LATCHED = QoSProfile(depth=1, durability=QoSDurabilityPolicy.TRANSIENT_LOCAL)
RELIABLE = QoSProfile(depth=1000, reliability=QoSReliabilityPolicy.RELIABLE)
BEST_EFFORT = QoSProfile(depth=5, reliability=QoSReliabilityPolicy.BEST_EFFORT)

# Long enough for a loaded machine; nothing waits this long unless it fails.
PATIENCE_S = 60.0


def wait_until(condition, what, timeout_s=PATIENCE_S, describe=lambda: ''):
    """Polls until the condition gives something true and returns that; fails with `what` after the timeout."""
    end = time.monotonic() + timeout_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f'{what}: not within {timeout_s} s. {describe()}')
        time.sleep(0.01)


class Collector:
    """Keeps every message of a subscription."""

    def __init__(self):
        self._messages = []
        self._lock = threading.Lock()

    def __call__(self, message):
        with self._lock:
            self._messages.append(message)

    def all(self):
        with self._lock:
            return list(self._messages)

    def last(self):
        messages = self.all()
        return messages[-1] if messages else None

    def __len__(self):
        return len(self.all())

    def wait_for(self, condition, what, timeout_s=PATIENCE_S):
        """The first message, past or to come, that the condition holds for."""
        return wait_until(lambda: next((m for m in self.all() if condition(m)), None), what, timeout_s,
                          lambda: f'{len(self)} messages came')


class Graph:
    """rclpy in a domain of its own, spun by a thread."""

    def __init__(self, domain):
        self.domain = domain
        self.context = rclpy.Context()
        rclpy.init(context=self.context, domain_id=domain)
        self.node = rclpy.create_node('tester', context=self.context)
        self._executor = SingleThreadedExecutor(context=self.context)
        self._executor.add_node(self.node)
        self._thread = threading.Thread(target=self._spin, daemon=True)
        self._thread.start()
        self._clients = {}

    def _spin(self):
        try:
            self._executor.spin()
        except rclpy.executors.ExternalShutdownException:
            pass

    def close(self):
        self._executor.shutdown()
        self._thread.join(timeout=10)
        self.node.destroy_node()
        self.context.try_shutdown()

    def collect(self, kind, topic, qos=RELIABLE):
        collector = Collector()
        self.node.create_subscription(kind, topic, collector, qos)
        return collector

    def call(self, kind, service, /, **fields):
        """Calls a service; fails when it does not answer."""
        return self.call_later(kind, service, **fields)()

    def call_later(self, kind, service, /, **fields):
        """Sends a request now; what is returned waits for the answer."""
        client = self._clients.get(service)
        if client is None:
            client = self._clients[service] = self.node.create_client(kind, service)
        assert client.wait_for_service(timeout_sec=PATIENCE_S), f'no service {service}'
        future = client.call_async(kind.Request(**fields))

        def answer(timeout_s=PATIENCE_S):
            return wait_until(lambda: future.done() and future.result(), f'answer of {service}', timeout_s)

        return answer
