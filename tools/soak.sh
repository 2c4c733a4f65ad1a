#!/usr/bin/env bash
# Long runs, by hand before a release. Each part runs; the exit code is 1 if any failed.
#   memory  resident memory over 10 000 ticks with snapshots and restores, and over 20 configures
#   ros     the ROS tests again and again, ROUNDS=20
#   demo    the arm for EPISODES=50, recorded and replayed offline
# Usage: soak.sh [PART...]   QUICK=1 shortens each to about a minute, to see that it works
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
if [ "${QUICK:-0}" = 0 ]; then
  rounds=${ROUNDS:-20} episodes=${EPISODES:-50}
else
  rounds=${ROUNDS:-1} episodes=${EPISODES:-2}
  export FLASHRT_SOAK_TICKS=${FLASHRT_SOAK_TICKS:-1500}
fi

memory() {
  cargo test --locked --release --package flashrt-session --test soak -- --ignored --nocapture
}

ros() {
  tools/ros/in_env.sh tools/ros/build.sh || return
  local round failed=0
  for round in $(seq "$rounds"); do
    echo "==== round $round of $rounds"
    tools/ros/in_env.sh python3 -m pytest -q test || failed=$((failed + 1))
  done
  echo "soak: $failed of $rounds rounds failed"
  [ "$failed" = 0 ]
}

demo() {
  EPISODES=$episodes RECORD=1 tools/demo/run.sh
}

[ $# -gt 0 ] || set -- memory ros demo
results=()
for part in "$@"; do
  case $part in
    memory | ros | demo) ;;
    *) echo "usage: soak.sh [memory | ros | demo]..." >&2; exit 2 ;;
  esac
done
status=0
for part in "$@"; do
  echo "==== soak: $part"
  start=$SECONDS
  if "$part"; then results+=("$part: ok, $((SECONDS - start)) s"); else results+=("$part: FAILED, $((SECONDS - start)) s") status=1; fi
done
printf '\n==== soak\n'
printf '%s\n' "${results[@]}"
exit $status
