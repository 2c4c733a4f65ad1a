#!/usr/bin/env python3
"""Records topics into a rosbag2 bag (mcap) with the raw bytes of every message, for machines that have no `ros2 bag`.

    tools/ros/in_env.sh tools/ros/record_bag.py --out out/bag --node /policy_node [TOPIC ...]

--node adds what exact replay needs of a node: its tick_log, action_chunk, prompt and status. A topic is recorded from the
moment its first publisher is seen, with the reliability and durability that its publishers offer. Prints `recording TOPIC` for
each topic and ends in order on SIGINT or SIGTERM. The bag is a folder that `ros2 bag info` and `ros2 bag play` take.
"""

import argparse
import importlib
import pathlib
import re
import signal
import sys
import time

import rclpy
import yaml
from ament_index_python.packages import get_package_share_directory
from rclpy.executors import ExternalShutdownException
from rclpy.qos import QoSDurabilityPolicy, QoSProfile, QoSReliabilityPolicy

try:
    from mcap.writer import CompressionType, Writer
except ImportError:
    sys.exit('record_bag: needs the Python package mcap: python3 -m pip install mcap')

# Topics of a node that replay reads, below its name.
OF_A_NODE = ('tick_log', 'action_chunk', 'prompt', 'status')
# Deep enough that a slow disk loses nothing.
DEPTH = 1000
# How rosbag2 writes a duration without end.
FOREVER = {'sec': 9223372036, 'nsec': 854775807}
# Words that message files start a field with and that are no message types.
PLAIN = re.compile(r'^(bool|byte|char|float32|float64|u?int(8|16|32|64)|w?string)\b')


def definition(type_name):
    """The text of a message type and of all that it uses, as rosbag2 stores it in an mcap schema."""
    def text_of(name):
        package, short = name.split('/')[0], name.split('/')[-1]
        return pathlib.Path(get_package_share_directory(package), 'msg', f'{short}.msg').read_text()

    def used_by(name):
        package = name.split('/')[0]
        for line in text_of(name).splitlines():
            words = line.split('#')[0].split()
            if len(words) < 2 or PLAIN.match(words[0]):
                continue
            used = words[0].split('[')[0].split('<')[0]
            yield used if '/' in used else f'{package}/{used}'

    package, _, short = type_name.split('/')
    order, queue = [], [f'{package}/{short}']
    while queue:
        name = queue.pop(0)
        if name not in order:
            order.append(name)
            queue += ['/'.join([used.split('/')[0], used.split('/')[-1]]) for used in used_by(name)]
    first, *others = order
    return ('\n' + '=' * 80 + '\n').join([text_of(first)] + [f'MSG: {name}\n{text_of(name)}' for name in others])


def message_class(type_name):
    package, kind, short = type_name.split('/')
    return getattr(importlib.import_module(f'{package}.{kind}'), short)


class Recorder:
    """Subscriptions on one side, a bag on the other."""

    def __init__(self, folder, topics):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True)
        self.file = self.folder / f'{self.folder.name}_0.mcap'
        self.writer = Writer(str(self.file), compression=CompressionType.NONE)
        self.writer.start(profile='ros2', library='flashrt_ros record_bag')
        self.node = rclpy.create_node('record_bag', start_parameter_services=False)
        self.wanted = set(topics)
        self.schemas = {}
        self.counts = {}
        self.first_ns = self.last_ns = None
        self.node.create_timer(0.05, self.look)

    def look(self):
        """Subscribes to topics whose publishers have come."""
        for topic in sorted(self.wanted):
            publishers = self.node.get_publishers_info_by_topic(topic)
            if publishers:
                self.wanted.remove(topic)
                self.subscribe(topic, publishers)

    def subscribe(self, topic, publishers):
        type_name = publishers[0].topic_type
        offered = [p.qos_profile for p in publishers]
        is_reliable = all(q.reliability == QoSReliabilityPolicy.RELIABLE for q in offered)
        is_latched = all(q.durability == QoSDurabilityPolicy.TRANSIENT_LOCAL for q in offered)
        qos = QoSProfile(
            depth=DEPTH,
            reliability=QoSReliabilityPolicy.RELIABLE if is_reliable else QoSReliabilityPolicy.BEST_EFFORT,
            durability=QoSDurabilityPolicy.TRANSIENT_LOCAL if is_latched else QoSDurabilityPolicy.VOLATILE)
        if type_name not in self.schemas:
            self.schemas[type_name] = self.writer.register_schema(type_name, 'ros2msg', definition(type_name).encode())
        profile = [{
            'history': 'keep_last', 'depth': DEPTH, 'reliability': 'reliable' if is_reliable else 'best_effort',
            'durability': 'transient_local' if is_latched else 'volatile', 'deadline': FOREVER, 'lifespan': FOREVER,
            'liveliness': 'automatic', 'liveliness_lease_duration': FOREVER, 'avoid_ros_namespace_conventions': False}]
        channel = self.writer.register_channel(
            topic, 'cdr', self.schemas[type_name], {'offered_qos_profiles': yaml.safe_dump(profile, sort_keys=False)})
        count = self.counts[topic] = {'type': type_name, 'profile': profile, 'messages': 0}
        sequence = iter(range(1 << 32))

        def write(data, info):
            now = time.time_ns()
            self.first_ns = now if self.first_ns is None else self.first_ns
            self.last_ns = now
            count['messages'] += 1
            self.writer.add_message(channel, now, data, info['source_timestamp'] or now, next(sequence))

        self.node.create_subscription(message_class(type_name), topic, write, qos, raw=True)
        print(f'recording {topic}', flush=True)

    def finish(self):
        self.writer.finish()
        start, end = self.first_ns or 0, self.last_ns or 0
        total = sum(count['messages'] for count in self.counts.values())
        span = {'nanoseconds': end - start}
        information = {
            'version': 9, 'storage_identifier': 'mcap', 'duration': span,
            'starting_time': {'nanoseconds_since_epoch': start}, 'message_count': total,
            'topics_with_message_count': [
                {'topic_metadata': {'name': topic, 'type': count['type'], 'serialization_format': 'cdr',
                                    'offered_qos_profiles': count['profile'], 'type_description_hash': ''},
                 'message_count': count['messages']}
                for topic, count in self.counts.items()],
            'compression_format': '', 'compression_mode': '', 'relative_file_paths': [self.file.name],
            'files': [{'path': self.file.name, 'starting_time': {'nanoseconds_since_epoch': start}, 'duration': span,
                       'message_count': total}],
            'custom_data': None, 'ros_distro': 'jazzy'}
        text = yaml.safe_dump({'rosbag2_bagfile_information': information}, sort_keys=False)
        (self.folder / 'metadata.yaml').write_text(text)
        for topic, count in self.counts.items():
            print(f'{count["messages"]:7d} {topic}')
        for topic in sorted(self.wanted):
            print(f'   none {topic}: no publisher came')


def stop(*_):
    raise KeyboardInterrupt


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--out', required=True, help='folder to make; must not exist')
    parser.add_argument('--node', action='append', default=[], help='full name of a policy node, for instance /policy_node')
    parser.add_argument('topics', nargs='*', help='full topic names')
    arguments = parser.parse_args()
    topics = arguments.topics + [f'{node}/{topic}' for node in arguments.node for topic in OF_A_NODE]
    if not topics:
        parser.error('no topics')
    signal.signal(signal.SIGTERM, stop)
    rclpy.init(signal_handler_options=rclpy.signals.SignalHandlerOptions.NO)
    try:
        recorder = Recorder(arguments.out, topics)
    except FileExistsError:
        sys.exit(f'record_bag: {arguments.out} exists already')
    try:
        rclpy.spin(recorder.node)
    except (KeyboardInterrupt, ExternalShutdownException):
        pass
    finally:
        recorder.finish()
        recorder.node.destroy_node()
        rclpy.try_shutdown()


if __name__ == '__main__':
    main()
