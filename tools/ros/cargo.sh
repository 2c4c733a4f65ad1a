#!/usr/bin/env bash
# cargo with the feature `ros`, as the colcon build calls it: same types of the interfaces, same target folder.
# Needs a finished build (build.sh) and a sourced ROS 2: tools/ros/in_env.sh tools/ros/cargo.sh test -p flashrt-nodes --features ros
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
build=$PWD/build/flashrt_ros
[ -d "$build/rust_prefix/share" ] || { echo "cargo.sh: build first: tools/ros/build.sh" >&2; exit 1; }
export AMENT_PREFIX_PATH=$build/rust_prefix:$AMENT_PREFIX_PATH CARGO_TARGET_DIR=$build/cargo
exec cargo "$@"
