"""What the node does with images, joint states and instructions, good and bad."""

import itertools
import math
import random
import time

import numpy as np
import pytest
from flashrt_ros.msg import ResultCode, Status

from support.deployment import JOINTS, PROMPT
from support.graph import LATCHED, wait_until
from support.robot import HOME, image_message, joint_message, picture, time_message

TRIGGER = {'tick.mode': 'trigger'}


@pytest.fixture
def policy(start, robot):
    """Active, ticking only on request, with subscriptions matched."""
    policy = start(TRIGGER).bring_up()
    robot.wait_for_subscribers()
    return policy


@pytest.fixture
def status(policy):
    return policy.collect_status()


def port(status, name):
    return next(p for p in status.ports if p.name == name)


def send_until(send, collector, condition, what):
    """Sends again and again, for a best-effort message may be lost, until a status satisfies the condition."""
    before = len(collector)

    def look():
        send()
        return next((s for s in collector.all()[before:] if condition(s)), None)

    def slowly():
        found = look()
        time.sleep(0.1)
        return found

    return wait_until(slowly, what)


def tick(policy, stamp_ns):
    """One tick that uses inputs stamped exactly `stamp_ns`."""
    return policy.must('tick', stamp=time_message(stamp_ns), not_before=time_message(stamp_ns), wait_ms=20000)


def ticked(policy, robot, ticks, number=0, positions=HOME):
    """Sends inputs, ticks on them and returns the tick's log entry."""
    stamp = robot.send(number, positions=positions)
    answer = tick(policy, stamp)
    return ticks.wait_for(lambda t: t.tick == answer.tick and not t.operation and t.code == ResultCode.OK, 'the log of the tick')


def hashes(entry):
    return {p.name: p.hash for p in entry.ports}


def test_chunks_come_from_images_joints_and_a_prompt(start, robot):
    policy = start({}).bring_up()
    chunks = policy.collect_chunks()
    robot.wait_for_subscribers()
    robot.start()
    chunk = chunks.wait_for(lambda c: True, 'a chunk')
    assert list(chunk.names) == JOINTS
    assert chunk.horizon * len(chunk.names) == len(chunk.data)
    assert all(math.isfinite(v) for v in chunk.data)
    assert chunk.representation == 'absolute'
    assert chunk.dt.nanosec == 100_000_000
    assert chunk.header.stamp.sec > 0
    assert chunk.observation_age.sec >= 0


def test_commands_come_at_control_rate_with_the_joints_of_the_deployment(start, robot, graph):
    from trajectory_msgs.msg import JointTrajectory
    policy = start({}).bring_up()
    commands = graph.collect(JointTrajectory, 'joint_command')
    robot.wait_for_subscribers()
    robot.start()
    wait_until(lambda: len(commands) >= 12, 'commands')
    assert all(list(c.joint_names) == JOINTS and len(c.points) == 1 for c in commands.all())
    assert policy.state() == 'active'


@pytest.mark.parametrize('kind, message, values', [
    ('float64_multi_array', 'Float64MultiArray', lambda m: m.data), ('joint_state', 'JointState', lambda m: m.position)])
def test_the_command_topic_has_the_type_that_the_deployment_names(start, robot, graph, kind, message, values):
    import sensor_msgs.msg
    import std_msgs.msg
    start({'command.type': kind}).bring_up()
    type_ = getattr(std_msgs.msg, message, None) or getattr(sensor_msgs.msg, message)
    commands = graph.collect(type_, 'joint_command')
    robot.wait_for_subscribers()
    robot.start()
    command = commands.wait_for(lambda c: True, 'a command')
    assert len(values(command)) == len(JOINTS)


def test_case_2_a_short_image_is_refused_with_both_numbers(policy, status, robot):
    whole = picture(0, 0, 640, 480)
    short = image_message(whole, robot.now_ns())
    short.data = whole.tobytes()[:100]
    seen = send_until(lambda: robot.cameras[0].publish(short), status, lambda s: port(s, 'images.workspace').refused > 0, 'a refusal')
    reason = port(seen, 'images.workspace').last_refusal
    assert '100' in reason and '921600' in reason
    assert policy.state() == 'active'


def test_case_2_padded_rows_give_the_same_port_bytes(policy, robot):
    ticks = policy.collect_ticks()
    plain = hashes(ticked(policy, robot, ticks, number=3))
    stamp = robot.now_ns()
    for view, camera in enumerate(robot.cameras):
        pixels = picture(3, view)
        rows = np.zeros((64, 64 * 3 + 40), np.uint8)
        rows[:, :64 * 3] = pixels.reshape(64, -1)
        rows[:, 64 * 3:] = 77
        message = image_message(pixels, stamp, step=rows.shape[1])
        message.data = rows.tobytes()
        camera.publish(message)
    robot.joints.publish(joint_message(HOME, stamp))
    answer = tick(policy, stamp)
    padded = hashes(ticks.wait_for(lambda t: t.tick == answer.tick and not t.operation, 'the log of the tick'))
    assert padded == plain


def test_case_6_an_empty_image_is_refused_and_counted(policy, status, robot):
    empty = image_message(picture(0, 0, 640, 480), robot.now_ns())
    empty.data = b''
    send_until(lambda: robot.cameras[1].publish(empty), status, lambda s: port(s, 'images.wrist').refused > 0, 'a refusal')
    assert policy.state() == 'active'


def test_case_8_untrusted_sizes_are_refused(policy, status, robot):
    huge = image_message(picture(0, 0), robot.now_ns())
    huge.width = huge.height = huge.step = 4294967295
    send_until(lambda: robot.cameras[0].publish(huge), status, lambda s: port(s, 'images.workspace').refused > 0, 'a refusal')
    assert policy.state() == 'active'


def test_case_10_the_endian_flag_of_8_bit_images_has_no_meaning(policy, robot):
    ticks = policy.collect_ticks()
    plain = hashes(ticked(policy, robot, ticks, number=5))
    stamp = robot.now_ns()
    for view, camera in enumerate(robot.cameras):
        camera.publish(image_message(picture(5, view), stamp, is_bigendian=1))
    robot.joints.publish(joint_message(HOME, stamp))
    answer = tick(policy, stamp)
    assert hashes(ticks.wait_for(lambda t: t.tick == answer.tick and not t.operation, 'the log of the tick')) == plain


def test_case_14_rgb8_and_bgr8_give_the_same_actions(policy, robot):
    """From one capsule, so that nothing but the pictures could make a difference."""
    ticks = policy.collect_ticks()
    policy.must('snapshot', name='before')
    as_rgb = ticked(policy, robot, ticks, number=9).actions_hash
    policy.must('restore', name='before')
    stamp = robot.now_ns()
    for view, camera in enumerate(robot.cameras):
        camera.publish(image_message(picture(9, view)[:, :, ::-1].copy(), stamp, encoding='bgr8'))
    robot.joints.publish(joint_message(HOME, stamp))
    answer = tick(policy, stamp)
    entry = ticks.wait_for(lambda t: (t.tick, t.epoch, t.operation) == (answer.tick, answer.epoch, ''), 'the log of the tick')
    assert entry.actions_hash == as_rgb


@pytest.mark.parametrize('encoding', ['8UC3', 'mono8', 'yuv422', 'no_such_encoding'])
def test_case_12_other_encodings_are_refused_by_name(policy, status, robot, encoding):
    other = image_message(picture(0, 0), robot.now_ns(), encoding=encoding)
    seen = send_until(lambda: robot.cameras[0].publish(other), status, lambda s: port(s, 'images.workspace').refused > 0, 'a refusal')
    assert encoding in port(seen, 'images.workspace').last_refusal


def test_case_40_every_order_of_joint_names_gives_the_same_port_bytes(policy, robot):
    ticks = policy.collect_ticks()
    pairs = list(zip(JOINTS, [0.1, -0.2, 0.3, -0.4, 0.5, 0.6]))
    seen = set()
    # All 720 orders are a unit test of the mapping; over the wire a fixed sample of them.
    orders = random.Random(40).sample(list(itertools.permutations(pairs)), 12)
    for order in orders:
        stamp = robot.now_ns()
        for view, camera in enumerate(robot.cameras):
            camera.publish(image_message(picture(1, view), stamp))
        robot.joints.publish(joint_message([p for _, p in order], stamp, [n for n, _ in order]))
        answer = tick(policy, stamp)
        seen.add(hashes(ticks.wait_for(lambda t: t.tick == answer.tick and not t.operation, 'the log of the tick'))['state'])
    assert len(seen) == 1


@pytest.mark.parametrize('names, positions', [
    (JOINTS, []), (JOINTS, HOME[:5]), (JOINTS[:5], HOME[:5]), ([], []), ([*JOINTS[:5], JOINTS[0]], HOME)])
def test_case_44_joint_states_that_do_not_fit_are_refused(policy, status, robot, names, positions):
    message = joint_message(positions, robot.now_ns(), names)
    seen = send_until(lambda: robot.joints.publish(message), status, lambda s: port(s, 'state').refused > 0, 'a refusal')
    assert port(seen, 'state').last_refusal
    assert policy.state() == 'active'


@pytest.mark.parametrize('value', [math.nan, math.inf, -math.inf, 1e308])
def test_case_46_no_number_that_is_not_finite_or_absurd_reaches_the_port(policy, status, robot, value):
    ticks = policy.collect_ticks()
    good = hashes(ticked(policy, robot, ticks, number=2))['state']
    bad = joint_message([*HOME[:2], value, *HOME[3:]], robot.now_ns())
    send_until(lambda: robot.joints.publish(bad), status, lambda s: port(s, 'state').refused > 0, 'a refusal')
    # The last good state is kept: a tick on new pictures still uses it.
    stamp = robot.now_ns()
    for view, camera in enumerate(robot.cameras):
        camera.publish(image_message(picture(2, view), stamp))
    answer = policy.must('tick', wait_ms=5000)
    entry = ticks.wait_for(lambda t: t.tick == answer.tick and not t.operation, 'the log of the tick')
    assert hashes(entry)['state'] == good


def test_counters_of_a_port_add_up(policy, status, robot):
    ticks = policy.collect_ticks()
    for number in range(3):
        ticked(policy, robot, ticks, number)
    seen = status.wait_for(lambda s: s.ports and port(s, 'state').used >= 3, 'three used states')
    for p in seen.ports:
        assert p.received == p.used + p.superseded + p.refused + p.pending, p


def test_a_new_prompt_is_used_and_a_bad_one_leaves_the_old(policy, status, robot):
    ticks = policy.collect_ticks()
    assert ticked(policy, robot, ticks, 0).prompt == PROMPT
    robot.say('put the cube on the green pad')
    status.wait_for(lambda s: s.prompt == 'put the cube on the green pad', 'the new prompt')
    robot.say(' '.join(['cube'] * 500))
    policy.wait_for_log('PROMPT_TOO_LONG', 'the refusal in the log')
    assert ticked(policy, robot, ticks, 1).prompt == 'put the cube on the green pad'


def test_a_prompt_latched_before_configure_is_used(start, robot, graph):
    policy = start(TRIGGER)
    robot.say('put the cube on the green pad')
    status = policy.collect_status()
    policy.bring_up()
    status.wait_for(lambda s: s.prompt == 'put the cube on the green pad', 'the latched prompt')


def test_the_prompt_parameter_is_used_at_start_and_while_running(start, robot):
    policy = start(TRIGGER, parameters={'prompt': "'put the cube on the blue pad'"}).bring_up()
    status = policy.collect_status()
    status.wait_for(lambda s: s.prompt == 'put the cube on the blue pad', 'the prompt of the parameter')
    assert policy.set_parameter('prompt', 'put the cube on the red pad').successful
    status.wait_for(lambda s: s.prompt == 'put the cube on the red pad', 'the prompt set later')


def test_the_tick_mode_parameter_switches_while_running(start, robot):
    policy = start(TRIGGER).bring_up()
    status, chunks = policy.collect_status(), policy.collect_chunks()
    robot.wait_for_subscribers()
    robot.start()
    status.wait_for(lambda s: s.tick_mode == 'trigger', 'the mode of the deployment')
    assert len(chunks) == 0
    assert not policy.set_parameter('tick_mode', 'sometimes').successful
    assert policy.set_parameter('tick_mode', 'chunk').successful
    status.wait_for(lambda s: s.tick_mode == 'chunk', 'the mode of the parameter')
    chunks.wait_for(lambda c: True, 'a chunk')


def test_case_70_actions_status_and_diagnostics_are_published_reliably(policy, graph):
    from rclpy.qos import QoSReliabilityPolicy
    for topic in ('policy_node/action_chunk', 'joint_command', 'policy_node/status', 'policy_node/tick_log', '/diagnostics'):
        infos = wait_until(lambda: graph.node.get_publishers_info_by_topic(topic if topic[0] == '/' else '/' + topic), topic)
        assert [i.qos_profile.reliability for i in infos] == [QoSReliabilityPolicy.RELIABLE], topic


def test_case_36_old_frames_do_not_queue(policy, robot, graph):
    """Two hundred pictures in a burst: the next tick uses one of the last, not one of the first."""
    ticks = policy.collect_ticks()
    stamps = [robot.send(number) for number in range(200)]
    robot.send(200, stamp_ns=stamps[-1] + 1)
    answer = policy.must('tick', wait_ms=20000)
    entry = ticks.wait_for(lambda t: t.tick == answer.tick and not t.operation, 'the log of the tick')
    used = min(p.stamp.sec * 10**9 + p.stamp.nanosec for p in entry.ports)
    # Well after the middle of the burst: anything that queued would be at its start.
    assert used > stamps[100], f'{(stamps[-1] - used) / 1e6:.1f} ms before the last'


def test_diagnostics_name_the_node_and_its_ports(policy, graph):
    from diagnostic_msgs.msg import DiagnosticArray
    diagnostics = graph.collect(DiagnosticArray, '/diagnostics')
    seen = diagnostics.wait_for(lambda d: len(d.status) == 4, 'diagnostics of the node and three ports')
    assert [s.name for s in seen.status] == ['/policy_node', '/policy_node: images.workspace', '/policy_node: images.wrist',
                                             '/policy_node: state']


def test_status_is_latched_for_a_late_reader(policy, graph):
    seen = graph.collect(Status, 'policy_node/status', LATCHED).wait_for(lambda s: True, 'a status')
    assert seen.state in ('inactive', 'active')
