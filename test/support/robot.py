"""A robot that publishes: two cameras and six joints, the same picture for the same number every time."""

import threading
import time

import numpy as np
from builtin_interfaces.msg import Time
from sensor_msgs.msg import Image, JointState
from std_msgs.msg import String

from .deployment import JOINTS, VIEWS
from .graph import BEST_EFFORT, LATCHED, wait_until

HOME = [0.1, -0.5, 0.6, 0.9, 0.0, 0.4]


def time_message(ns):
    return Time(sec=ns // 1_000_000_000, nanosec=ns % 1_000_000_000)


def picture(number, view, width=64, height=64):
    """[height, width, 3] u8: a gradient with a bright square whose place depends on the number."""
    rows, columns = np.mgrid[0:height, 0:width]
    pixels = np.stack([rows * 3 + view * 40, columns * 3, (rows + columns) % 256], axis=-1).astype(np.uint8)
    at = (number * 7) % (min(width, height) - 8)
    pixels[at:at + 8, at:at + 8] = (250, 20, 30)
    return pixels


def image_message(pixels, stamp_ns, encoding='rgb8', **fields):
    height, width = pixels.shape[:2]
    message = Image(height=height, width=width, encoding=encoding, step=width * pixels.shape[2])
    message.header.stamp = time_message(stamp_ns)
    message.data = pixels.tobytes()
    for name, value in fields.items():
        setattr(message, name, value)
    return message


def joint_message(positions, stamp_ns, names=JOINTS):
    message = JointState(name=list(names), position=[float(p) for p in positions])
    message.header.stamp = time_message(stamp_ns)
    return message


class Robot:
    """Publishers of everything that the demo's deployment listens to."""

    def __init__(self, graph):
        self.graph = graph
        node = graph.node
        self.cameras = [node.create_publisher(Image, f'camera/{view}/image', BEST_EFFORT) for view in VIEWS]
        self.joints = node.create_publisher(JointState, 'joint_states', BEST_EFFORT)
        self.prompts = {}
        self._stop = None
        self.number = 0

    def now_ns(self):
        return self.graph.node.get_clock().now().nanoseconds

    def wait_for_subscribers(self):
        """A best-effort message sent earlier is lost."""
        publishers = [*self.cameras, self.joints]
        wait_until(lambda: all(p.get_subscription_count() > 0 for p in publishers), 'the node subscribes')
        # Matched here is not yet matched there.
        time.sleep(0.2)

    def send(self, number=None, stamp_ns=None, positions=HOME):
        """One picture per view and one joint state, all with one stamp; returns the stamp."""
        number = self.number if number is None else number
        stamp_ns = self.now_ns() if stamp_ns is None else stamp_ns
        for view, camera in enumerate(self.cameras):
            camera.publish(image_message(picture(number, view), stamp_ns))
        self.joints.publish(joint_message(positions, stamp_ns))
        self.number = number + 1
        return stamp_ns

    def say(self, text, topic='policy_node/prompt'):
        """Publishes an instruction, latched."""
        if topic not in self.prompts:
            self.prompts[topic] = self.graph.node.create_publisher(String, topic, LATCHED)
        self.prompts[topic].publish(String(data=text))

    def start(self, rate_hz=20.0):
        """Sends again and again until stop()."""
        self._stop = threading.Event()

        def run(stop):
            while not stop.wait(1.0 / rate_hz):
                self.send()

        self._thread = threading.Thread(target=run, args=(self._stop,), daemon=True)
        self._thread.start()

    def stop(self):
        if self._stop is not None:
            self._stop.set()
            self._thread.join()
            self._stop = None
