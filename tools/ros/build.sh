#!/usr/bin/env bash
# Builds the package with colcon into build/ and install/, below a ROS 2 that is sourced: see ros_env.sh.
# Usage: build.sh [further arguments of colcon build]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
exec colcon build --packages-select flashrt_ros --event-handlers console_direct- console_cohesion- "$@"
