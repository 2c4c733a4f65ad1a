#!/usr/bin/env bash
# Every check of `make test`, one after the other, with a summary at the end. Goes on after a failed check, so that one run
# shows all; the exit code is 1 if any failed.
# Usage: check.sh all | rust | ros
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
part=${1:-all}
export CARGO_TERM_COLOR=${CARGO_TERM_COLOR:-auto}

names=() results=() seconds=()
failed=0

# check NAME COMMAND...: runs it, keeps how it went and how long it took.
check() {
  local name=$1 start=$SECONDS
  shift
  printf '\n==== %s\n' "$name"
  if "$@"; then results+=(ok); else results+=(FAILED); failed=1; fi
  names+=("$name") seconds+=($((SECONDS - start)))
}

summary() {
  printf '\n==== summary\n'
  local i
  for i in "${!names[@]}"; do printf '%-34s %-7s %5d s\n' "${names[$i]}" "${results[$i]}" "${seconds[$i]}"; done
  printf '%-34s %-7s %5d s\n' total "$([ $failed = 0 ] && echo ok || echo FAILED)" "$SECONDS"
  exit $failed
}

# ---- what must be there ------------------------------------------------------------------------------------------------
missing=()
for tool in cargo c++ make; do command -v "$tool" >/dev/null || missing+=("$tool"); done
if [ ${#missing[@]} -gt 0 ]; then
  echo "check: not found: ${missing[*]} (needs Rust from rustup, a C++ compiler and make; Debian: apt install build-essential)" >&2
  exit 1
fi
for component in rustfmt clippy; do
  cargo "${component/rustfmt/fmt}" --version >/dev/null 2>&1 || rustup component add "$component" || exit 1
done

in_ros() { tools/ros/in_env.sh "$@"; }

rust_checks() {
  check "format" cargo fmt --all --check
  check "clippy" cargo clippy --locked --workspace --all-targets -- -D warnings
  check "rustdoc" env RUSTDOCFLAGS=-Dwarnings cargo doc --locked --workspace --no-deps --quiet
  # Doc tests are part of it.
  check "Rust tests" cargo test --locked --workspace --no-fail-fast
}

ros_checks() {
  check "ROS 2 prefix" tools/ros/ros_env.sh
  check "layers" in_ros python3 tools/layers.py
  check "colcon build" in_ros tools/ros/build.sh
  if [ "${results[-1]}" != ok ]; then return; fi
  check "clippy of the node" in_ros tools/ros/cargo.sh clippy --locked --release -p flashrt-nodes --features ros --bins --lib -- -D warnings
  check "Rust tests of the node" in_ros tools/ros/cargo.sh test --locked --release -p flashrt-nodes --features ros --lib
  check "interfaces from C++" in_ros ctest --test-dir build/flashrt_ros --tests-regex interfaces_cpp --output-on-failure
  check "ROS tests" in_ros python3 -m pytest test
}

case $part in
  all) rust_checks; ros_checks ;;
  rust) rust_checks ;;
  ros) ros_checks ;;
  *) echo "usage: check.sh all | rust | ros" >&2; exit 2 ;;
esac
summary
