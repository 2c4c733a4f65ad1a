"""Recording, and offline replay of what was recorded: the same action bytes, twice."""

import hashlib
import pathlib
import signal
import subprocess
import sys

import pytest
from mcap.reader import make_reader
from rclpy.serialization import deserialize_message

from support.deployment import PREFIX, write
from support.graph import wait_until
from support.policy import Process
from support.robot import time_message

FLASHRT = PREFIX / 'lib' / 'flashrt_ros' / 'flashrt'
RECORDER = pathlib.Path(__file__).parent.parent / 'tools' / 'ros' / 'record_bag.py'
INPUTS = ['/camera/workspace/image', '/camera/wrist/image', '/joint_states']


def messages(bag, topic, kind):
    """Every message of a topic in an mcap file, in order."""
    with open(bag, 'rb') as file:
        return [deserialize_message(m.data, kind) for _, _, m in make_reader(file).iter_messages(topics=[topic], log_time_order=False)]


def chunks(bag):
    from flashrt_ros.msg import ActionChunk
    return [(c.session, c.epoch, c.tick, bytes(c.data)) for c in messages(bag, '/policy_node/action_chunk', ActionChunk)]


@pytest.fixture
def recorded(start, robot, graph, tmp_path):
    """A bag of ticks, a prompt, a snapshot and a restore; gives the deployment file and the mcap."""
    policy = start({'tick.mode': 'trigger'})
    recorder = Process([sys.executable, RECORDER, '--out', tmp_path / 'bag', '--node', '/policy_node', *INPUTS], graph.domain,
                       tmp_path / 'record_bag.log')
    robot.say('put the cube on the red pad')
    policy.bring_up()
    robot.wait_for_subscribers()
    topics = [*INPUTS, *(f'/policy_node/{t}' for t in ('tick_log', 'action_chunk', 'prompt', 'status'))]
    wait_until(lambda: all(f'recording {t}' in recorder.log() for t in topics), 'the recorder subscribes', describe=recorder.log)
    # Both the node and the recorder.
    wait_until(lambda: all(graph.node.count_subscribers(t) >= 2 for t in INPUTS), 'two subscribers of every input')

    def tick(number):
        stamp = time_message(robot.send(number))
        return policy.must('tick', stamp=stamp, not_before=stamp, wait_ms=20000)

    try:
        for number in range(3):
            tick(number)
        policy.must('snapshot', name='here')
        for number in range(3, 5):
            tick(number)
        robot.say('put the cube on the green pad')
        status = policy.collect_status()
        status.wait_for(lambda s: s.prompt == 'put the cube on the green pad', 'the new prompt')
        tick(5)
        policy.must('restore', name='here')
        for number in range(6, 8):
            tick(number)
        mcap = tmp_path / 'bag' / 'bag_0.mcap'
        recorder.end(signal.SIGINT)
        assert recorder.process.returncode == 0, recorder.log()
    finally:
        recorder.close()
    return policy, mcap


def replay(tmp_path, mcap, name):
    out = tmp_path / name
    done = subprocess.run([FLASHRT, 'replay', '--config', write(tmp_path, {'tick.mode': 'trigger'}, 'replay.yaml'), '--bag', mcap,
                           '--out', out], capture_output=True, text=True, timeout=120)
    return done, out


def test_offline_replay_gives_the_action_bytes_of_the_live_run(recorded, tmp_path):
    _, mcap = recorded
    live = chunks(mcap)
    assert len(live) == 8
    done, out = replay(tmp_path, mcap, 'first.mcap')
    assert done.returncode == 0, done.stdout + done.stderr
    assert chunks(out) == live
    again, second = replay(tmp_path, mcap, 'second.mcap')
    assert again.returncode == 0
    assert hashlib.sha256(out.read_bytes()).digest() == hashlib.sha256(second.read_bytes()).digest()


def test_a_bag_without_a_tick_log_is_refused(tmp_path):
    (tmp_path / 'no.mcap').write_bytes(b'not a bag')
    done, out = replay(tmp_path, tmp_path / 'no.mcap', 'out.mcap')
    assert done.returncode == 1
    assert 'no.mcap' in done.stderr
    assert not out.exists()


def test_the_recorded_folder_is_a_rosbag2_bag(recorded, tmp_path):
    from rosbags.rosbag2 import Reader
    _, mcap = recorded
    with Reader(mcap.parent) as bag:
        assert bag.message_count > 30
        assert {c.topic for c in bag.connections} >= set(INPUTS)
