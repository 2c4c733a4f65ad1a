"""ROS time that is simulated, and that jumps."""

import threading
import time

from rosgraph_msgs.msg import Clock

from support.robot import time_message


class SimulatedTime:
    """Publishes /clock; `now_ns` may be set to anything."""

    def __init__(self, graph, start_s):
        self.now_ns = start_s * 10**9
        self._publisher = graph.node.create_publisher(Clock, '/clock', 10)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        while not self._stop.wait(0.02):
            self.now_ns += 20_000_000
            self._publisher.publish(Clock(clock=time_message(self.now_ns)))

    def stop(self):
        self._stop.set()
        self._thread.join()


def test_case_58_time_that_jumps_back_starts_a_new_epoch_and_the_node_stays_active(graph, start, robot):
    clock = SimulatedTime(graph, 1000)
    try:
        policy = start({}, parameters={'use_sim_time': 'true'}).bring_up()
        status, chunks = policy.collect_status(), policy.collect_chunks()
        robot.wait_for_subscribers()
        robot.now_ns = lambda: clock.now_ns
        robot.start()
        before = chunks.wait_for(lambda c: c.header.stamp.sec >= 1000, 'a chunk in simulated time').epoch
        clock.now_ns = 10 * 10**9
        after = status.wait_for(lambda s: s.epoch > before, 'a new epoch')
        assert after.state == 'active'
        chunks.wait_for(lambda c: c.epoch > before and c.header.stamp.sec < 1000, 'a chunk after the jump')
    finally:
        robot.stop()
        clock.stop()


def test_case_60_jitter_of_a_few_milliseconds_is_no_jump(graph, start):
    clock = SimulatedTime(graph, 1000)
    try:
        policy = start({}, parameters={'use_sim_time': 'true'}).bring_up()
        status = policy.collect_status()
        first = status.wait_for(lambda s: s.state == 'active', 'active')
        for _ in range(10):
            clock.now_ns -= 30_000_000
            time.sleep(0.1)
        assert status.last().epoch == first.epoch
    finally:
        clock.stop()
