"""Every test gets a ROS domain of its own, so that tests can run side by side."""

import os
import pathlib
import sys

import domain_coordinator
import pytest

# Before rclpy is imported: nothing leaves this machine.
os.environ['ROS_AUTOMATIC_DISCOVERY_RANGE'] = 'LOCALHOST'
if not os.environ.get('FASTRTPS_DEFAULT_PROFILES_FILE'):
    os.environ.pop('FASTRTPS_DEFAULT_PROFILES_FILE', None)
sys.path.insert(0, str(pathlib.Path(__file__).parent))

from support import deployment  # noqa: E402
from support.graph import Graph  # noqa: E402
from support.policy import Policy  # noqa: E402
from support.robot import Robot  # noqa: E402

# One selector for the whole run: a domain is not used again right after the test before.
DOMAINS = domain_coordinator.impl.default_selector()


@pytest.fixture
def graph():
    with domain_coordinator.domain_id(selector=DOMAINS) as domain:
        graph = Graph(domain)
        yield graph
        graph.close()


@pytest.fixture
def robot(graph):
    robot = Robot(graph)
    yield robot
    robot.stop()


@pytest.fixture
def start(graph, tmp_path):
    """Starts policy_node with the demo's deployment, patient and changed as asked; ends it after the test."""
    started = []

    def run(changes=None, config=None, **options):
        if config is None and changes is not None:
            config = deployment.write(tmp_path, changes, f'deployment{len(started)}.yaml')
        policy = Policy(graph, tmp_path / f'policy_node{len(started)}.log', config=config, **options)
        started.append(policy)
        return policy

    yield run
    for policy in started:
        policy.close()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """Shows the end of every node's log below a failed test."""
    report = (yield).get_result()
    if report.failed and 'tmp_path' in item.funcargs:
        for log in sorted(item.funcargs['tmp_path'].glob('*.log')):
            report.sections.append((log.name, log.read_text(errors='replace')[-4000:]))
