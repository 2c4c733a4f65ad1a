#!/usr/bin/env bash
# Every check of `make test`, one after the other, with a summary at the end. Goes on after a failed check, so that one run
# shows all; the exit code is 1 if any failed. The last line counts tests, as pytest's does.
# Usage: check.sh all | rust | ros
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
part=${1:-all}

logs=out/check
mkdir -p "$logs"
# The output goes through a pipe, so colour must be asked for.
if [ -t 1 ]; then export CARGO_TERM_COLOR=${CARGO_TERM_COLOR:-always} PY_COLORS=${PY_COLORS:-1}; fi

names=() results=() seconds=() tests=()
failed=0 passed_tests=0 failed_tests=0 skipped_tests=0

# sum REGEX FILE: the sum of the numbers in front of what the expression matches, as in "12 passed".
sum() { grep -oE "$1" "$2" | awk '{ n += $1 } END { print n + 0 }'; }

# count LOG: adds up what cargo, pytest and ctest said in a log; leaves the numbers in passed, broken and skipped.
count() {
  local plain=$1.plain
  sed 's/\x1b\[[0-9;]*m//g' "$1" | grep -E '^test result: |^=+ .* in [0-9.]+s.* =+$|tests failed out of' >"$plain"
  # ctest counts failures out of all.
  local all
  all=$(sed -nE 's/.* tests failed out of ([0-9]+)$/\1/p' "$plain" | awk '{ n += $1 } END { print n + 0 }')
  broken=$(($(sum '[0-9]+ (failed|error|tests failed)' "$plain")))
  passed=$(($(sum '[0-9]+ passed' "$plain") + all - $(sum '[0-9]+ tests failed' "$plain")))
  skipped=$(sum '[0-9]+ (skipped|ignored)' "$plain")
  rm "$plain"
}

# check NAME COMMAND...: runs it, keeps how it went and how long it took. Its output stays in out/check.
check() {
  local name=$1 start=$SECONDS log
  log=$logs/${1// /-}.log
  shift
  printf '\n==== %s\n' "$name"
  "$@" 2>&1 | tee "$log"
  local status=${PIPESTATUS[0]} passed broken skipped
  count "$log"
  if [ $((passed + broken + skipped)) = 0 ]; then tests+=(-); else tests+=("$passed"); fi
  if [ "$status" = 0 ]; then
    results+=(ok)
  else
    results+=(FAILED) failed=1
    [ "$broken" != 0 ] || broken=1 # it broke before or beside its tests
  fi
  passed_tests=$((passed_tests + passed)) failed_tests=$((failed_tests + broken)) skipped_tests=$((skipped_tests + skipped))
  names+=("$name") seconds+=($((SECONDS - start)))
}

summary() {
  printf '\n==== summary\n%-28s %-7s %8s %8s\n' step result passed seconds
  local i
  for i in "${!names[@]}"; do
    printf '%-28s %-7s %8s %8d\n' "${names[$i]}" "${results[$i]}" "${tests[$i]}" "${seconds[$i]}"
  done
  # A step that failed without a failed test counts as one.
  printf '==== %d passed, %d failed, %d skipped in %ds ====\n' "$passed_tests" "$failed_tests" "$skipped_tests" "$SECONDS"
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

# Every kernel for every architecture: by nvcc with warnings as errors, then by NVRTC through the library.
kernels() {
  python3 tools/kernels/check.py || return
  FLASHRT_NVRTC=$(python3 tools/kernels/check.py --nvrtc) cargo test --locked --package flashrt-ops --test kernels_are_compiled_and_kept
}

# With the C library that colcon has built, and a host in Rust beside it.
python_producers() {
  local target=$PWD/build/flashrt_ros/cargo
  cargo build --locked --release --target-dir "$target" --package flashrt-capi --example python_host || return
  CARGO_TARGET_DIR=$target python3 -m pytest -rs src/capi/python/tests
}

rust_checks() {
  check "format" cargo fmt --all --check
  check "clippy" cargo clippy --locked --workspace --all-targets -- -D warnings
  check "rustdoc" env RUSTDOCFLAGS=-Dwarnings cargo doc --locked --workspace --no-deps --quiet
  # Doc tests are part of it.
  check "Rust tests" cargo test --locked --workspace --no-fail-fast
  check "kernels" kernels
}

ros_checks() {
  check "ROS 2 prefix" tools/ros/ros_env.sh
  check "layers" in_ros python3 tools/layers.py
  check "colcon build" in_ros tools/ros/build.sh
  if [ "${results[-1]}" != ok ]; then return; fi
  check "clippy of the node" in_ros tools/ros/cargo.sh clippy --locked --release -p flashrt-nodes --features ros --bins --lib --test "ros_*" -- -D warnings
  check "Rust tests of the node" in_ros tools/ros/cargo.sh test --locked --release -p flashrt-nodes --features ros --lib --test "ros_*"
  check "interfaces from C++" in_ros ctest --test-dir build/flashrt_ros --tests-regex interfaces_cpp --output-on-failure
  check "Python producers" in_ros bash -c "$(declare -f python_producers); python_producers"
  check "ROS tests" in_ros python3 -m pytest -rs test
  # In the demo's Python, which has the simulator. PyTorch is no part of it: the tests of training skip, and say so.
  check "demo and policy tools" tools/demo/env.sh python -m pytest -rs tools/demo/tests tools/policy/tests
}

case $part in
  all) rust_checks; ros_checks ;;
  rust) rust_checks ;;
  ros) ros_checks ;;
  *) echo "usage: check.sh all | rust | ros" >&2; exit 2 ;;
esac
summary
