#!/usr/bin/env bash
# Long runs, by hand before a release. Each part runs; the exit code is 1 if any failed.
#   memory  resident memory over 10 000 ticks with snapshots and restores, and over 20 configures
#   ros     the ROS tests again and again, ROUNDS=20
#   demo    the arm for EPISODES=50, recorded and replayed offline
#   sanitize  the C ABI under AddressSanitizer, UndefinedBehaviorSanitizer and ThreadSanitizer: tools/capi/sanitize.sh
#   miri    unsafe Rust of exec, runtime and the C ABI in the Miri interpreter
#   loom    interleavings of the table of handles and of the worker pool, by model check
#   fuzz    every fuzz target, SECONDS_EACH=600: tools/fuzz.sh
# sanitize and miri take a nightly toolchain, which rustup completes when it can.
# Usage: soak.sh [PART...]   QUICK=1 shortens each part to minutes at most, to see that it works
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
if [ "${QUICK:-0}" = 0 ]; then
  rounds=${ROUNDS:-20} episodes=${EPISODES:-50} each=${SECONDS_EACH:-600}
else
  rounds=${ROUNDS:-1} episodes=${EPISODES:-2} each=${SECONDS_EACH:-5}
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

sanitize() {
  local failed=0
  tools/capi/sanitize.sh address || failed=1
  tools/capi/sanitize.sh thread || failed=1
  return $failed
}

# Tests that count allocations, need the clock, or repeat thousands of random calls stay out: the interpreter is some hundred times slower.
miri() {
  rustup component add --toolchain nightly miri rust-src >/dev/null 2>&1
  local failed=0 out=target/miri
  # miri_test FLAGS ARGUMENTS...: what the tests of one crate need.
  miri_test() {
    local flags=$1
    shift
    echo "==== miri: $*"
    CARGO_TARGET_DIR=$out FLASHRT_THREADS=1 MIRIFLAGS="-Zmiri-disable-isolation $flags" cargo +nightly miri test --locked "$@" || failed=1
  }
  # Tables of handles and libraries live as long as the program: no leak check over the C ABI.
  miri_test -Zmiri-ignore-leaks --package flashrt-capi --lib
  if [ "${QUICK:-0}" = 0 ]; then
    local tests=() test
    for test in src/capi/tests/{exec,runtime,capsule}_*.rs; do
      test=$(basename "$test" .rs)
      case $test in *allocate* | *random* | *any_order* | *environment*) ;; *) tests+=(--test "$test") ;; esac
    done
    miri_test -Zmiri-ignore-leaks --package flashrt-capi --no-fail-fast "${tests[@]}"
    miri_test -Zmiri-permissive-provenance --package flashrt-exec --no-default-features --no-fail-fast \
      --test kernels_cannot_call_their_context --test a_kernel_panic_reaches_the_next_synchronize --test pool_runs_every_task_once
  fi
  return $failed
}

loom() {
  local failed=0
  model_check() { CARGO_TARGET_DIR=target/loom RUSTFLAGS="--cfg loom" cargo test --locked --release --package "$1" --lib "$2" || failed=1; }
  model_check flashrt-capi handles
  model_check flashrt-exec pool
  return $failed
}

fuzz() {
  SECONDS_EACH=$each tools/fuzz.sh
}

[ $# -gt 0 ] || set -- memory ros demo sanitize miri loom fuzz
results=()
for part in "$@"; do
  case $part in
    memory | ros | demo | sanitize | miri | loom | fuzz) ;;
    *) echo "usage: soak.sh [memory | ros | demo | sanitize | miri | loom | fuzz]..." >&2; exit 2 ;;
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
