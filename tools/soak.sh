#!/usr/bin/env bash
# Long runs, by hand before a release: the ROS tests again and again, and the ignored Rust tests.
# ROUNDS=20 sets how often.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
rounds=${ROUNDS:-20}
cargo test --locked --release --workspace -- --ignored
tools/ros/in_env.sh tools/ros/build.sh
for round in $(seq "$rounds"); do
  echo "==== round $round of $rounds"
  tools/ros/in_env.sh python3 -m pytest -q test
done
