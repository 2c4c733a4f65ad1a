"""One policy node, configured and activated by itself.

    ros2 launch flashrt_ros policy.launch.py config:=/path/to/deployment.yaml

The node manages its own bring-up (parameter autostart), so that the launch file needs no event handlers; autostart:=false leaves it
Unconfigured for a lifecycle manager.
"""

from launch import LaunchDescription
from launch.actions import DeclareLaunchArgument
from launch.substitutions import LaunchConfiguration, PathJoinSubstitution
from launch_ros.actions import Node
from launch_ros.parameter_descriptions import ParameterValue
from launch_ros.substitutions import FindPackageShare


def generate_launch_description():
    return LaunchDescription([
        DeclareLaunchArgument(
            'config',
            default_value=PathJoinSubstitution([FindPackageShare('flashrt_ros'), 'config', 'so101_demo.yaml']),
            description='Deployment file'),
        DeclareLaunchArgument('name', default_value='policy_node', description='Name of the node'),
        DeclareLaunchArgument('namespace', default_value='', description='Namespace of the node; its topics are relative to it'),
        DeclareLaunchArgument('autostart', default_value='true', description='Configure and activate after start'),
        DeclareLaunchArgument('prompt', default_value='', description='Instruction; empty: that of the deployment file'),
        DeclareLaunchArgument(
            'tick_mode', default_value='', description='chunk, rate or trigger; empty: that of the deployment file'),
        DeclareLaunchArgument('use_sim_time', default_value='false', description='Take ROS time from /clock'),
        Node(
            package='flashrt_ros',
            executable='policy_node',
            name=LaunchConfiguration('name'),
            namespace=LaunchConfiguration('namespace'),
            output='screen',
            parameters=[{
                'config': ParameterValue(LaunchConfiguration('config'), value_type=str),
                'autostart': ParameterValue(LaunchConfiguration('autostart'), value_type=bool),
                'prompt': ParameterValue(LaunchConfiguration('prompt'), value_type=str),
                'tick_mode': ParameterValue(LaunchConfiguration('tick_mode'), value_type=str),
                'use_sim_time': ParameterValue(LaunchConfiguration('use_sim_time'), value_type=bool),
            }]),
    ])
