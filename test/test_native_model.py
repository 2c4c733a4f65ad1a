"""policy_node with a model out of a native library: the example producers in C and Rust, over DDS."""

import numpy as np
import pytest
from flashrt_ros.msg import ResultCode

from support import native
from support.graph import wait_until
from support.robot import HOME, time_message


@pytest.fixture(scope='module')
def libraries(tmp_path_factory):
    return native.producers(tmp_path_factory.mktemp('producers'))


class Native:
    """The node, inputs for it, and the description that it must follow."""

    def __init__(self, policy, robot):
        self.policy = policy
        self.robot = robot
        self.chunks = policy.collect_chunks()
        self.oracle = native.Oracle()

    def tick(self, number):
        """Actions of one tick, and what they must be."""
        positions = [p + number / 32 for p in HOME]
        stamp = time_message(self.robot.send(number, positions=positions))
        answer = self.policy.must('tick', stamp=stamp, not_before=stamp, wait_ms=20000)
        # Ids start again with each configure, stamps do not.
        chunk = self.chunks.wait_for(lambda c: c.chunk_id == answer.chunk_id and c.header.stamp == stamp, f'chunk {answer.chunk_id}')
        shape = (native.HORIZON, native.DIM)
        return np.asarray(chunk.data, dtype=np.float32).reshape(shape), self.oracle.tick(number, positions)

    def is_exact(self, number):
        got, expected = self.tick(number)
        assert got.tobytes() == expected.tobytes(), f'{got}\n{expected}'
        return got

    def has_in_memory(self, library):
        with open(f'/proc/{self.policy.process.pid}/maps') as maps:
            return str(library) in maps.read()


@pytest.fixture
def bring_up(start, robot, libraries, tmp_path):
    # The deployment has one camera.
    robot.cameras = robot.cameras[:1]

    def run(which='c', **config):
        policy = start(config=native.write(tmp_path, libraries[which], **config))
        made = Native(policy, robot)
        policy.bring_up()
        robot.wait_for_subscribers()
        return made

    return run


@pytest.mark.parametrize('which, plan', [('c', 'graph'), ('c', 'opaque'), ('c', 'mixed'), ('c', 'step'),
                                         ('rust', 'graph'), ('rust', 'mixed')])
def test_actions_are_those_of_the_description(bring_up, which, plan):
    made = bring_up(which, plan=plan)
    for number in range(5):
        made.is_exact(number)


@pytest.mark.parametrize('which', ['c', 'rust'])
def test_snapshot_and_restore_are_exact(bring_up, which):
    made = bring_up(which)
    made.is_exact(0)
    capsule = made.policy.must('snapshot', name='mid').capsule
    assert (capsule.regions, capsule.bytes) == (2, native.HORIZON * native.DIM * 4 + 128)
    made.policy.must('snapshot', name='host', tier='host')
    noise = made.oracle.noise
    first = [made.is_exact(number) for number in range(10, 13)]
    for name in ('mid', 'host'):
        made.policy.must('restore', name=name)
        made.oracle.noise = noise
        again = [made.is_exact(number) for number in range(10, 13)]
        assert [a.tobytes() for a in again] == [f.tobytes() for f in first]
    made.policy.must('rollback', steps=1)
    made.oracle.noise = noise
    assert made.is_exact(10).tobytes() == first[0].tobytes()
    made.policy.must('reset')
    made.oracle.noise = native.Oracle().noise
    made.is_exact(20)


def test_describe_and_status_name_both_libraries(bring_up, libraries):
    made = bring_up(plan='mixed')
    answer = made.policy.must('describe')
    assert (answer.model, answer.backend, answer.closure) == ('toy_policy_c', 'native', 'declared regions')
    assert answer.library == str(libraries['c'])
    assert 'libflashrt.so' in answer.exec_library
    assert answer.sessions == ['main']
    assert [port.name for port in answer.ports] == ['images', 'state', 'prompt', 'noise', 'actions']
    assert answer.stages[1] == '1: default/weigh opaque 7 after 0'
    status = made.policy.collect_status()
    status.wait_for(lambda s: s.model == f'toy_policy_c ({libraries["c"]})', 'the library in the status')


def test_a_new_prompt_reaches_the_library(bring_up):
    made = bring_up()
    made.robot.say('other words')
    status = made.policy.collect_status()
    status.wait_for(lambda s: s.prompt == 'other words', 'the prompt')
    made.oracle.prompt = 'other words'
    made.is_exact(1)


def test_what_a_native_model_cannot_do_is_unsupported(bring_up):
    made = bring_up(regions=0)
    made.is_exact(0)
    for service, fields in [('snapshot', {'name': 'a'}), ('restore', {'name': 'a'}), ('rollback', {'steps': 1}), ('reset', {}),
                            ('fork', {'name': 'a', 'session': 'alt'})]:
        answer = made.policy.call(service, **fields)
        assert answer.code == ResultCode.UNSUPPORTED, service
        assert 'native model' in answer.message, answer.message
    made.is_exact(1)


def test_cleanup_unloads_the_library_and_configure_loads_it_again(bring_up, libraries):
    made = bring_up()
    made.is_exact(0)
    made.policy.must('snapshot', name='kept')
    assert made.has_in_memory(libraries['c'])
    assert made.policy.change('deactivate')
    assert made.policy.change('cleanup')
    wait_until(lambda: not made.has_in_memory(libraries['c']), 'the library leaves')
    made.policy.bring_up()
    assert made.has_in_memory(libraries['c'])
    made.robot.wait_for_subscribers()
    made.oracle.noise = native.Oracle().noise
    made.is_exact(3)


@pytest.mark.parametrize('config, words', [
    ({'plan': 'nonsense'}, ['frt_model_runtime_open_v1 answers -1']),
    ({'dim': 3}, ['3']),
    ({'views': 2}, ['2']),
])
def test_a_configure_that_fails_leaves_nothing(start, libraries, tmp_path, config, words):
    policy = start(config=native.write(tmp_path, libraries['c'], **config))
    assert not policy.change('configure')
    assert policy.state() == 'unconfigured'
    policy.wait_for_log('configure failed', 'the reason in the log')
    for word in words:
        assert word in policy.log()
    with open(f'/proc/{policy.process.pid}/maps') as maps:
        assert str(libraries['c']) not in maps.read()
    good = native.write(tmp_path, libraries['c'], name='good.yaml')
    assert policy.set_parameter('config', str(good)).successful
    policy.bring_up()


def test_a_file_that_is_no_library_fails_the_configure(start, tmp_path):
    library = tmp_path / 'libnothing.so'
    library.write_text('nothing')
    policy = start(config=native.write(tmp_path, library))
    assert not policy.change('configure')
    policy.wait_for_log('libnothing.so', 'the file in the log')
