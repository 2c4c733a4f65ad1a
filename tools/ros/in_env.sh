#!/usr/bin/env bash
# Runs a command with ROS 2 and, when it is built, this package in its environment:
#
#     tools/ros/in_env.sh ros2-or-anything --with arguments
#
# Makes the ROS 2 prefix first when there is none.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
line=$("$root/tools/ros/ros_env.sh")
set +u # the setup files of ROS and colcon read unset variables
eval "$line"
if [ -f "$root/install/local_setup.bash" ]; then . "$root/install/local_setup.bash"; fi
set -u
# An empty name makes Fast DDS print an error.
[ -n "${FASTRTPS_DEFAULT_PROFILES_FILE:-}" ] || unset FASTRTPS_DEFAULT_PROFILES_FILE
exec "$@"
