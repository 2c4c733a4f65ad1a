"""The node's services: results in every state, names, capsules and epochs."""

import threading
import time

import pytest
from flashrt_ros.msg import ResultCode

from support.graph import Graph, wait_until
from support.robot import time_message

TRIGGER = {'tick.mode': 'trigger'}

BAD_NAMES = ['../x', '/etc/x', 'a/b', '..', '.', '.hidden', 'a' * 129, 'smörgås', 'a b', '-x', 'x\n']


@pytest.fixture
def policy(start, robot):
    policy = start(TRIGGER).bring_up()
    robot.wait_for_subscribers()
    return policy


def tick(policy, robot, number):
    """Sends inputs, ticks on them, returns the answer."""
    stamp = time_message(robot.send(number))
    return policy.must('tick', stamp=stamp, not_before=stamp, wait_ms=20000)


def chunk(chunks, answer):
    return chunks.wait_for(lambda c: c.chunk_id == answer.chunk_id, f'chunk {answer.chunk_id}')


def test_every_service_answers_not_configured_before_configure(start):
    policy = start({})
    assert policy.code('snapshot', name='a') == 'NOT_CONFIGURED'
    assert policy.code('restore', name='a') == 'NOT_CONFIGURED'
    assert policy.code('rollback', steps=1) == 'NOT_CONFIGURED'
    assert policy.code('fork', name='a', session='alt') == 'NOT_CONFIGURED'
    assert policy.code('reset') == 'NOT_CONFIGURED'
    assert policy.code('drop_capsule', name='a') == 'NOT_CONFIGURED'
    assert policy.code('prepare', graph='', key=5) == 'NOT_CONFIGURED'
    assert policy.code('describe') == 'NOT_CONFIGURED'
    assert policy.code('tick') == 'NOT_CONFIGURED'
    assert policy.code('operation_status', op_id=77) == 'NOT_FOUND'
    assert policy.call('list_capsules').capsules == []


def test_calls_in_the_wrong_state_say_so(start):
    policy = start(TRIGGER)
    assert policy.change('configure')
    assert policy.code('tick') == 'WRONG_STATE'
    assert policy.code('snapshot', name='warm') == 'OK'
    assert policy.change('activate')
    assert policy.code('prepare', graph='', key=5) == 'WRONG_STATE'
    assert policy.state() == 'active'


def test_case_104_unknown_names_are_not_found(policy):
    assert policy.code('restore', name='nobody') == 'NOT_FOUND'
    assert policy.code('drop_capsule', name='nobody') == 'NOT_FOUND'
    assert policy.code('rollback', name='nobody') == 'NOT_FOUND'
    assert policy.code('fork', name='nobody', session='alt') == 'NOT_FOUND'


@pytest.mark.parametrize('name', BAD_NAMES)
def test_case_120_bad_names_are_refused(policy, name):
    assert policy.code('snapshot', name=name) == 'BAD_NAME'
    assert policy.code('restore', name=name) == 'BAD_NAME'
    assert policy.code('drop_capsule', name=name) == 'BAD_NAME'
    assert policy.call('list_capsules').capsules == []


def test_case_120_an_empty_name_gets_a_generated_one_and_cannot_be_restored(policy):
    assert policy.must('snapshot', name='').capsule.name
    assert policy.code('restore', name='') == 'BAD_NAME'


def test_bad_arguments_are_named(policy):
    assert policy.code('snapshot', name='a', tier='cloud') == 'BAD_ARGUMENT'
    assert policy.code('rollback') == 'BAD_ARGUMENT'
    assert policy.code('rollback', steps=1, name='a') == 'BAD_ARGUMENT'
    assert policy.code('rollback', age_s=float('nan')) == 'BAD_ARGUMENT'
    assert policy.code('rollback', age_s=-1.0) == 'BAD_ARGUMENT'
    assert 'cloud' in policy.call('snapshot', name='a', tier='cloud').message


def test_case_144_a_taken_name_is_refused_unless_overwrite_is_asked(policy):
    policy.must('snapshot', name='home')
    assert policy.code('snapshot', name='home') == 'EXISTS'
    policy.must('snapshot', name='home', overwrite=True)
    assert [c.name for c in policy.call('list_capsules').capsules] == ['home']


@pytest.mark.parametrize('tier', ['device', 'host'])
def test_a_restore_gives_the_same_chunk_again(policy, robot, tier):
    chunks = policy.collect_chunks()
    tick(policy, robot, 0)
    taken = policy.must('snapshot', name='here', tier=tier)
    assert taken.capsule.tier == tier and taken.capsule.bytes > 0 and taken.duration_us > 0
    first = chunk(chunks, tick(policy, robot, 1))
    second = chunk(chunks, tick(policy, robot, 1))
    assert list(first.data) != list(second.data), 'the noise generator moves on, so the same picture gives another chunk'
    restored = policy.must('restore', name='here')
    assert restored.bytes == taken.capsule.bytes
    again = chunk(chunks, tick(policy, robot, 1))
    assert list(again.data) == list(first.data)
    assert again.epoch > first.epoch


def test_a_capsule_without_the_noise_generator_is_partial_and_gives_another_chunk(policy, robot):
    chunks = policy.collect_chunks()
    tick(policy, robot, 0)
    assert policy.must('snapshot', name='partial', exclude_regions=['rng']).capsule.is_partial
    first = chunk(chunks, tick(policy, robot, 1))
    assert policy.code('restore', name='partial') == 'PARTIAL'
    policy.must('restore', name='partial', allow_partial=True)
    assert list(chunk(chunks, tick(policy, robot, 1)).data) != list(first.data)
    assert policy.code('snapshot', name='x', exclude_regions=['no_such_region']) in ('NOT_FOUND', 'BAD_ARGUMENT')


def test_case_98_nothing_of_an_old_epoch_comes_after_a_restore(start, robot, graph):
    policy = start({}).bring_up()
    chunks = policy.collect_chunks()
    robot.wait_for_subscribers()
    robot.start()
    wait_until(lambda: len(chunks) >= 2, 'chunks')
    policy.must('snapshot', name='here')
    for service, fields in [('restore', {'name': 'here'}), ('rollback', {'name': 'here'}), ('reset', {})]:
        answer = policy.must(service, **fields)
        assert answer.epoch > chunks.last().epoch
        chunks.wait_for(lambda c: c.epoch >= answer.epoch, f'a chunk after {service}')
    epochs = [c.epoch for c in chunks.all()]
    assert epochs == sorted(epochs), 'once a chunk of an epoch is out, none of an older one follows'
    last = epochs[-1]
    assert policy.change('deactivate')
    assert policy.change('activate')
    chunks.wait_for(lambda c: c.epoch > last, 'a chunk of the new activation')
    epochs = [c.epoch for c in chunks.all()]
    assert epochs == sorted(epochs)


def test_a_restored_prompt_wins_over_the_latched_one_until_a_newer_comes(policy, robot):
    status = policy.collect_status()
    robot.say('put the cube on the green pad')
    status.wait_for(lambda s: s.prompt == 'put the cube on the green pad', 'the first prompt')
    policy.must('snapshot', name='green')
    robot.say('put the cube on the blue pad')
    status.wait_for(lambda s: s.prompt == 'put the cube on the blue pad', 'the second prompt')
    assert policy.must('restore', name='green').prompt == 'put the cube on the green pad'
    time.sleep(0.5)
    assert status.last().prompt == 'put the cube on the green pad'
    robot.say('put the cube on the red pad')
    status.wait_for(lambda s: s.prompt == 'put the cube on the red pad', 'the third prompt')


def test_rollback_by_steps_name_and_age(policy, robot):
    for number, name in enumerate(['one', 'two', 'three']):
        tick(policy, robot, number)
        policy.must('snapshot', name=name)
    tick(policy, robot, 3)
    assert policy.must('rollback', steps=1).name == 'three'
    assert policy.must('rollback', steps=1).name == 'two'
    assert policy.must('rollback', name='one').name == 'one'
    assert policy.code('rollback', steps=9) == 'NOT_FOUND'
    assert policy.code('rollback', age_s=3600.0) == 'NOT_FOUND'
    time.sleep(0.05)
    assert policy.code('rollback', age_s=0.01) == 'OK'


def test_fork_goes_to_an_idle_live_set(policy, robot):
    chunks = policy.collect_chunks()
    tick(policy, robot, 0)
    policy.must('snapshot', name='here')
    expected = chunk(chunks, tick(policy, robot, 1))
    assert policy.code('fork', name='here', session='nobody') == 'NO_SESSION'
    assert policy.code('fork', name='here', session='main') == 'NO_SESSION'
    policy.must('fork', name='here', session='alt', switch_to=True)
    forked = chunk(chunks, tick(policy, robot, 1))
    assert forked.session == 'alt'
    assert list(forked.data) == list(expected.data)


def test_prepare_evicts_and_captures_a_bucket_while_inactive(start):
    policy = start(TRIGGER)
    assert policy.change('configure')
    before = policy.must('prepare', graph='action', key=10).variants
    assert policy.must('prepare', graph='action', key=10, evict=True).variants == before - 1
    assert policy.must('prepare', graph='action', key=10).variants == before
    assert policy.code('prepare', graph='no_such_graph', key=10) == 'NOT_FOUND'


def test_describe_tells_what_is_deployed(policy):
    answer = policy.must('describe')
    assert {p.name for p in answer.ports} >= {'images', 'state', 'prompt', 'actions'}
    assert list(answer.sessions) == ['main', 'alt']
    assert len(answer.fingerprint) == 16
    assert answer.weights_bytes > 0 and answer.live_bytes > 0 and answer.capsule_bytes > 0
    images = next(p for p in answer.ports if p.name == 'images')
    assert list(images.topics) == ['camera/workspace/image', 'camera/wrist/image']


def test_case_100_a_caller_that_does_not_wait_learns_the_result_later(policy):
    answer = policy.call('snapshot', name='later', wait_ms=0)
    assert answer.code in (ResultCode.ACCEPTED, ResultCode.OK)
    assert answer.op_id > 0
    done = policy.call('operation_status', op_id=answer.op_id, wait_ms=20000)
    assert (done.code, done.is_done, done.kind, done.name) == (ResultCode.OK, True, 'snapshot', 'later')


def test_case_102_a_tick_that_is_given_up_on_does_not_answer_for_the_next(policy, robot):
    waiting = policy.call_later('tick', not_before=time_message(robot.now_ns()), wait_ms=1500)
    taken = policy.call_later('snapshot', name='between')
    answer = waiting()
    assert answer.code in (ResultCode.STALE_INPUT, ResultCode.TIMEOUT), answer.message
    assert taken().capsule.name == 'between'


def test_a_tick_without_inputs_names_the_port(policy):
    answer = policy.call('tick', wait_ms=0)
    assert answer.code == ResultCode.STALE_INPUT
    assert 'images' in answer.message or 'state' in answer.message


def test_two_clients_get_their_own_answers(graph, policy):
    """Two nodes call at once: each answer belongs to its request, and the capsules are all there."""
    from flashrt_ros.srv import Snapshot
    other = Graph(graph.domain)
    wrong = []

    def calls(client, who):
        for number in range(10):
            name = f'{who}{number}'
            answer = client.call(Snapshot, 'policy_node/snapshot', name=name, tier='host', wait_ms=20000)
            if (answer.code, answer.capsule.name) != (ResultCode.OK, name):
                wrong.append((name, answer))

    try:
        threads = [threading.Thread(target=calls, args=who) for who in ((graph, 'a'), (other, 'b'))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        other.close()
    assert not wrong
    assert len(policy.call('list_capsules').capsules) == 20


def test_waiting_calls_do_not_hold_up_others(policy):
    """Forty ticks wait for inputs that do not come; list and describe answer meanwhile."""
    far = time_message(2_000_000_000 * 10**9)
    waiting = [policy.call_later('tick', not_before=far, wait_ms=400) for _ in range(4)]
    start = time.monotonic()
    assert policy.state() == 'active'
    assert time.monotonic() - start < 5
    for answer in waiting:
        assert answer().code != ResultCode.OK


def test_the_budget_of_a_tier_is_kept(start):
    policy = start({**TRIGGER, 'capsules.device_budget_mib': 1, 'capsules.host_budget_mib': 1})
    assert policy.change('configure')
    codes = [policy.code('snapshot', name=f'h{n}', tier='host') for n in range(20)]
    assert codes[0] == 'OK' and codes[-1] == 'NO_SPACE'
    used = policy.call('list_capsules')
    assert used.host_bytes <= used.host_budget_bytes == 1 << 20
    policy.must('drop_capsule', name='h0')
    policy.must('snapshot', name='again', tier='host')
