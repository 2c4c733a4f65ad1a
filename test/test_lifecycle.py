"""The managed lifecycle over ROS, against the installed rcl_lifecycle."""

import pytest
from lifecycle_msgs.msg import TransitionEvent
from lifecycle_msgs.srv import ChangeState, GetAvailableStates, GetAvailableTransitions
from rclpy.lifecycle import LifecycleNode

from support.graph import wait_until


def states(answer):
    return {(state.id, state.label) for state in answer.available_states}


def edges(answer):
    return {(edge.transition.id, edge.transition.label, edge.start_state.id, edge.start_state.label, edge.goal_state.id,
             edge.goal_state.label) for edge in answer.available_transitions}


@pytest.fixture
def reference(graph):
    """A lifecycle node of rclpy, which is rcl_lifecycle's own machine."""
    node = LifecycleNode('reference', context=graph.context)
    graph._executor.add_node(node)
    yield 'reference'
    graph._executor.remove_node(node)
    node.destroy_node()


def test_ids_and_labels_are_those_of_rcl_lifecycle(graph, start, reference):
    start()

    def both(kind, service):
        return [graph.call(kind, f'{name}/{service}') for name in ('policy_node', reference)]

    ours, theirs = both(GetAvailableStates, 'get_available_states')
    assert states(ours) == states(theirs)
    ours, theirs = both(GetAvailableTransitions, 'get_transition_graph')
    assert edges(ours) == edges(theirs)
    ours, theirs = both(GetAvailableTransitions, 'get_available_transitions')
    assert edges(ours) == edges(theirs)


def test_a_full_cycle_reaches_every_primary_state_and_publishes_each_edge(graph, start):
    policy = start({})
    events = graph.collect(TransitionEvent, 'policy_node/transition_event')
    wait_until(lambda: graph.node.count_publishers('policy_node/transition_event'), 'transition events')
    assert policy.state() == 'unconfigured'
    for label, state in [('configure', 'inactive'), ('activate', 'active'), ('deactivate', 'inactive'), ('cleanup', 'unconfigured'),
                         ('configure', 'inactive'), ('shutdown', 'finalized')]:
        assert policy.change(label), policy.log()
        assert policy.state() == state
    wait_until(lambda: len(events) >= 12, 'two events for each transition')
    seen = [(e.start_state.label, e.goal_state.label) for e in events.all()]
    assert seen == [('unconfigured', 'configuring'), ('configuring', 'inactive'), ('inactive', 'activating'), ('activating', 'active'),
                    ('active', 'deactivating'), ('deactivating', 'inactive'), ('inactive', 'cleaningup'),
                    ('cleaningup', 'unconfigured'), ('unconfigured', 'configuring'), ('configuring', 'inactive'),
                    ('inactive', 'shuttingdown'), ('shuttingdown', 'finalized')]


def test_case_76_a_second_activate_answers_false_and_changes_nothing(start):
    policy = start({}).bring_up()
    assert not policy.change('activate')
    assert policy.state() == 'active'


def test_transitions_that_the_state_does_not_have_answer_false(start):
    policy = start({})
    for label in ('activate', 'deactivate', 'cleanup', 'no_such_label'):
        assert not policy.change(label)
        assert policy.state() == 'unconfigured'


def test_a_second_request_during_a_configure_answers_false_at_once(graph, start):
    policy = start({})
    first = policy.change_later('configure')
    second = policy.change_later('configure')
    assert sorted([first(), second()]) == [False, True]
    assert policy.state() == 'inactive'


def test_unknown_transition_ids_answer_false(graph, start):
    start({})
    request = ChangeState.Request().transition
    request.id = 200
    assert not graph.call(ChangeState, 'policy_node/change_state', transition=request).success


@pytest.mark.parametrize('changes, words', [
    ({'model.weights': '/nonexistent/weights'}, ['/nonexistent/weights']),
    ({'ports.state.joints.0.name': 'shoulder_lift'}, ['shoulder_lift']),
    ({'command.limits.wrist_roll': None}, ['wrist_roll']),
    ({'model.flow_steps': [0]}, ['flow_steps', '0']),
    ({'capsules.device_budget_mib': 0, 'capsules.host_budget_mib': 0}, []),
])
def test_case_86_a_bad_deployment_fails_whole_and_a_corrected_one_works(tmp_path, start, changes, words):
    from support import deployment
    policy = start(changes)
    is_budget = 'capsules.device_budget_mib' in changes
    if is_budget:
        # No memory for capsules is a valid choice: the snapshot is what fails.
        assert policy.change('configure')
        assert policy.code('snapshot', name='a') == 'NO_SPACE'
        assert policy.change('cleanup')
    else:
        assert not policy.change('configure')
        assert policy.state() == 'unconfigured'
        policy.wait_for_log('configure failed', 'the reason in the log')
        for word in words:
            assert word in policy.log()
    good = deployment.write(tmp_path, name='good.yaml')
    assert policy.set_parameter('config', str(good)).successful
    policy.bring_up()


def test_case_94_deactivate_and_cleanup_with_inputs_arriving(start, robot):
    policy = start({})
    policy.bring_up()
    robot.start(rate_hz=100)
    chunks = policy.collect_chunks()
    wait_until(lambda: len(chunks) > 0, 'a chunk')
    assert policy.change('deactivate')
    assert policy.change('cleanup')
    assert policy.state() == 'unconfigured'
    status = policy.collect_status()
    status.wait_for(lambda s: s.state == 'unconfigured', 'status of the unconfigured node')
    policy.bring_up()
    before = len(chunks)
    wait_until(lambda: len(chunks) > before, 'chunks again')
    assert policy.process.poll() is None
