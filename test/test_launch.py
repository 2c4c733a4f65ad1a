"""The launch files: what they start is started here, and reaches Active."""

import pytest
from lifecycle_msgs.srv import GetState

from support.deployment import SHARE, write
from support.graph import wait_until
from support.launch_files import commands, really_parses
from support.policy import Process

FILES = ['policy.launch.py', 'policy.launch.xml']


@pytest.fixture
def launch(graph, tmp_path):
    """Starts every node of a launch file; returns their full names and processes."""
    started = []

    def run(file, **given):
        found = commands(SHARE / 'launch' / file, given)
        for number, command in enumerate(found):
            started.append((command, Process(command.argv(tmp_path), graph.domain, tmp_path / f'launched{number}.log')))
        return started

    yield run
    for _, process in started:
        process.close()


def state(graph, name):
    return graph.call(GetState, f'{name}/get_state').current_state.label


@pytest.mark.parametrize('file', FILES)
def test_a_launch_file_without_arguments_reaches_active(graph, launch, file):
    (command, process), = launch(file)
    assert command.full_name() == '/policy_node'
    wait_until(lambda: state(graph, 'policy_node') == 'active', 'active', describe=process.log)
    assert process.end()[0] == 0


@pytest.mark.parametrize('file', FILES)
def test_every_argument_of_a_launch_file_has_its_effect(graph, launch, tmp_path, file):
    config = write(tmp_path)
    (command, process), = launch(file, config=str(config), name='left', namespace='robot', prompt='put the cube on the green pad',
                                 tick_mode='trigger')
    assert command.full_name() == '/robot/left'
    wait_until(lambda: state(graph, 'robot/left') == 'active', 'active', describe=process.log)
    from flashrt_ros.msg import Status
    from support.graph import LATCHED
    status = graph.collect(Status, 'robot/left/status', LATCHED)
    status.wait_for(lambda s: (s.prompt, s.tick_mode) == ('put the cube on the green pad', 'trigger'), 'prompt and tick mode')


@pytest.mark.parametrize('file', FILES)
def test_autostart_false_leaves_the_node_to_a_manager(graph, launch, file):
    launch(file, autostart='false')
    assert state(graph, 'policy_node') == 'unconfigured'


def test_both_launch_files_start_the_same():
    for given in ({}, {'config': '/x.yaml', 'name': 'n', 'namespace': 'a/b', 'prompt': 'p', 'use_sim_time': 'true', 'autostart': 'false'}):
        from_py, from_xml = (commands(SHARE / 'launch' / file, given) for file in FILES)
        assert from_py == from_xml


def test_an_unknown_argument_is_an_error():
    for file in FILES:
        with pytest.raises(AssertionError, match='no_such'):
            commands(SHARE / 'launch' / file, {'no_such': '1'})


@pytest.mark.parametrize('file', FILES)
def test_the_installed_launch_packages_take_the_file(file):
    if really_parses(SHARE / 'launch' / file) is None:
        pytest.skip('launch_ros is not installed')
