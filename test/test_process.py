"""Start and end of the node's process: signals, parameters, a bad command line."""

import signal

import pytest

from support.graph import wait_until
from support.policy import PROGRAM, Process


@pytest.mark.parametrize('signal_number', [signal.SIGTERM, signal.SIGINT])
def test_case_92_a_signal_while_active_ends_the_node_within_two_seconds(start, robot, graph, signal_number):
    from lifecycle_msgs.msg import TransitionEvent
    policy = start({}).bring_up()
    events = graph.collect(TransitionEvent, 'policy_node/transition_event')
    chunks = policy.collect_chunks()
    robot.wait_for_subscribers()
    robot.start()
    wait_until(lambda: len(chunks) > 0, 'a chunk')
    code, seconds = policy.end(signal_number)
    assert code == 0
    assert seconds < 2.0
    assert 'finalized' in policy.log()
    events.wait_for(lambda e: e.goal_state.label == 'shuttingdown', 'the shutdown transition')


def test_case_92_a_signal_right_after_start_ends_the_node(graph, tmp_path):
    for number in range(3):
        process = Process([PROGRAM], graph.domain, tmp_path / f'early{number}.log')
        code, seconds = process.end(signal.SIGTERM)
        # Before main runs the signal's default action holds.
        assert code in (0, -signal.SIGTERM)
        assert seconds < 2.0


def test_a_signal_while_unconfigured_ends_the_node(start):
    policy = start({})
    assert policy.state() == 'unconfigured'
    code, seconds = policy.end(signal.SIGTERM)
    assert (code, seconds < 2.0) == (0, True)


def test_case_108_an_empty_list_is_a_clear_error_and_no_panic(graph, tmp_path):
    process = Process([PROGRAM, '--ros-args', '-p', 'cameras:=[]'], graph.domain, tmp_path / 'list.log')
    assert process.process.wait(timeout=20) == 1
    assert 'cameras' in process.log() and 'empty list' in process.log()
    assert 'panicked' not in process.log()


def test_case_108_an_empty_list_in_a_file_is_a_clear_error(graph, tmp_path):
    (tmp_path / 'params.yaml').write_text('/**:\n  ros__parameters:\n    cameras: []\n')
    process = Process([PROGRAM, '--ros-args', '--params-file', tmp_path / 'params.yaml'], graph.domain, tmp_path / 'list.log')
    assert process.process.wait(timeout=20) == 1
    assert 'cameras' in process.log() and 'params.yaml' in process.log()


def test_a_parameter_of_the_wrong_type_is_named(graph, tmp_path):
    process = Process([PROGRAM, '--ros-args', '-p', 'autostart:=3'], graph.domain, tmp_path / 'type.log')
    assert process.process.wait(timeout=20) == 1
    assert 'autostart' in process.log()


def test_case_110_nested_names_on_the_command_line_fail_configure_with_the_nearest_key(start):
    policy = start({}, parameters={'ports.front.topic': '/front'})
    assert not policy.change('configure')
    assert policy.state() == 'unconfigured'
    assert 'ports.front.topic' in policy.log() and 'nearest' in policy.log()


@pytest.mark.parametrize('changes, key, nearest', [
    ({'tick.mod': 'chunk'}, 'tick.mod', 'tick.mode'),
    ({'ports.images.0.max_age': 100}, 'max_age', 'max_age_ms'),
    ({'comand': {}}, 'comand', 'command'),
])
def test_case_110_an_unknown_key_of_the_deployment_fails_configure_with_the_nearest_key(start, changes, key, nearest):
    policy = start(changes)
    assert not policy.change('configure')
    assert policy.state() == 'unconfigured'
    policy.wait_for_log('configure failed', 'the reason in the log')
    assert key in policy.log() and nearest in policy.log()


def test_a_missing_deployment_file_fails_configure(start):
    policy = start(config='/nonexistent/deployment.yaml')
    assert not policy.change('configure')
    assert '/nonexistent/deployment.yaml' in policy.log()


def test_no_deployment_file_fails_configure_and_says_what_to_set(start):
    policy = start()
    assert not policy.change('configure')
    assert 'config' in policy.log()


def test_autostart_reaches_active(start):
    policy = start({}, parameters={'autostart': 'true'})
    wait_until(lambda: policy.state() == 'active', 'active by itself')


def test_autostart_with_a_bad_deployment_leaves_the_node_unconfigured_and_alive(start):
    policy = start({'tick.mod': 'chunk'}, parameters={'autostart': 'true'})
    policy.wait_for_log('autostart ends here', 'the end of autostart')
    assert policy.state() == 'unconfigured'


def test_the_node_follows_its_remapped_name_and_namespace(start, graph):
    policy = start({}, arguments=(), name='left', parameters={'autostart': 'true'})
    wait_until(lambda: policy.state() == 'active', 'active')
    assert graph.node.count_publishers('left/action_chunk') == 1
