"""policy_node as a process, and its services."""

import os
import re
import signal
import subprocess
import time

from flashrt_ros.msg import ActionChunk, ResultCode, Status, TickLog
from flashrt_ros.srv import (Describe, DropCapsule, Fork, ListCapsules, OperationStatus, Prepare, Reset, Restore, Rollback, Snapshot,
                             Tick)
from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState, GetState
from rcl_interfaces.msg import Parameter, ParameterType, ParameterValue
from rcl_interfaces.srv import SetParameters

from .deployment import PREFIX
from .graph import LATCHED, wait_until

PROGRAM = PREFIX / 'lib' / 'flashrt_ros' / 'policy_node'

CODE_NAMES = {getattr(ResultCode, name): name for name in dir(ResultCode) if name.isupper() and isinstance(getattr(ResultCode, name), int)}

SERVICES = {
    'snapshot': Snapshot, 'restore': Restore, 'rollback': Rollback, 'fork': Fork, 'reset': Reset, 'list_capsules': ListCapsules,
    'drop_capsule': DropCapsule, 'prepare': Prepare, 'describe': Describe, 'operation_status': OperationStatus, 'tick': Tick,
}


def environment(domain):
    """The environment of a process in the test's domain."""
    return {**os.environ, 'ROS_DOMAIN_ID': str(domain), 'ROS_AUTOMATIC_DISCOVERY_RANGE': 'LOCALHOST', 'RUST_BACKTRACE': '1'}


class Process:
    """A program whose output goes to a file, ended with the test."""

    def __init__(self, command, domain, log):
        self.log_path = log
        with open(log, 'wb') as out:
            self.process = subprocess.Popen([str(word) for word in command], env=environment(domain), stdout=out,
                                            stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)

    def log(self):
        # Without the colours of the console.
        return re.sub(r'\x1b\[[0-9;]*m', '', self.log_path.read_text(errors='replace'))

    def end(self, signal_number=signal.SIGINT, timeout_s=10.0):
        """Sends a signal; returns the exit code and the seconds that it took."""
        start = time.monotonic()
        self.process.send_signal(signal_number)
        code = self.process.wait(timeout=timeout_s)
        return code, time.monotonic() - start

    def close(self):
        if self.process.poll() is None:
            try:
                self.end()
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


class Policy(Process):
    """policy_node and the services it offers."""

    def __init__(self, graph, log, config=None, name='policy_node', parameters=None, arguments=()):
        self.graph = graph
        self.name = name
        command = [PROGRAM, *arguments, '--ros-args', '-r', f'__node:={name}']
        for key, value in {**({'config': config} if config else {}), **(parameters or {})}.items():
            command += ['-p', f'{key}:={value}']
        super().__init__(command, graph.domain, log)

    def collect_status(self):
        return self.graph.collect(Status, f'{self.name}/status', LATCHED)

    def collect_chunks(self):
        return self.graph.collect(ActionChunk, f'{self.name}/action_chunk')

    def collect_ticks(self):
        return self.graph.collect(TickLog, f'{self.name}/tick_log')

    def call(self, service, /, **fields):
        """Calls one of our services."""
        return self.call_later(service, **fields)()

    def call_later(self, service, /, **fields):
        kind = SERVICES[service]
        if 'wait_ms' in kind.Request.get_fields_and_field_types():
            fields.setdefault('wait_ms', 20000)
        return self.graph.call_later(kind, f'{self.name}/{service}', **fields)

    def code(self, service, /, **fields):
        """The name of the result code that a service answers with; the answer must have a text unless it is OK."""
        answer = self.call(service, **fields)
        name = CODE_NAMES[answer.code]
        assert name == 'OK' or answer.message, f'{service}: {name} without a message'
        return name

    def must(self, service, /, **fields):
        """Calls a service that has to succeed."""
        answer = self.call(service, **fields)
        assert answer.code == ResultCode.OK, f'{service}: {CODE_NAMES[answer.code]}: {answer.message}\n{self.log()[-2000:]}'
        return answer

    def state(self):
        return self.graph.call(GetState, f'{self.name}/get_state').current_state.label

    def change(self, label):
        """One transition by its label; True if it succeeded."""
        return self.change_later(label)()

    def change_later(self, label):
        answer = self.graph.call_later(ChangeState, f'{self.name}/change_state', transition=Transition(label=label))
        return lambda: answer().success

    def bring_up(self):
        """To Active."""
        for label in ('configure', 'activate'):
            assert self.change(label), f'{label} failed\n{self.log()[-3000:]}'
        return self

    def set_parameter(self, name, text):
        value = ParameterValue(type=ParameterType.PARAMETER_STRING, string_value=text)
        answer = self.graph.call(SetParameters, f'{self.name}/set_parameters', parameters=[Parameter(name=name, value=value)])
        return answer.results[0]

    def wait_for_log(self, text, what):
        return wait_until(lambda: text in self.log(), what, describe=lambda: self.log()[-2000:])
