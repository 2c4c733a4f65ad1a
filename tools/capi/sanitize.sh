#!/usr/bin/env bash
# The hosts of src/capi/ctests, and the Rust tests of the C ABI, under a sanitizer.
#   address  AddressSanitizer with its leak check; in C and C++ UndefinedBehaviorSanitizer too
#   thread   ThreadSanitizer
# The library and Rust's standard library are instrumented as well; that takes the nightly toolchain with rust-src, which rustup adds when
# it can. Without it `address` instruments the C side only and says so, and `thread` fails: half of the locks would be invisible.
# Takes some 10 minutes and some GB in target/sanitize-*, which may be deleted.
# Usage: sanitize.sh address|thread
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
kind=${1:-}
case $kind in
  address) flags=(-fsanitize=address,undefined -fno-sanitize-recover=all) ;;
  thread) flags=(-fsanitize=thread) ;;
  *) echo "usage: sanitize.sh address|thread" >&2; exit 2 ;;
esac
triple=$(rustc -vV | sed -n 's/^host: //p')
target=$PWD/target/sanitize-$kind
out=$PWD/out/sanitize-$kind
mkdir -p "$out"
private=(-lgcc_s -lutil -lrt -lpthread -lm -ldl)

rust_nightly() {
  rustup run nightly rustc --version >/dev/null 2>&1 || return
  [ -d "$(rustup run nightly rustc --print sysroot)/lib/rustlib/src/rust/library" ] || rustup component add --toolchain nightly rust-src
}
# cargo_instrumented COMMAND ARGUMENT...
cargo_instrumented() {
  local command=$1
  shift
  # Instrumented programs are large: no more of them than needed.
  CARGO_TARGET_DIR=$target CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_DEBUG=line-tables-only CARGO_PROFILE_TEST_DEBUG=line-tables-only \
    RUSTFLAGS=-Zsanitizer=$kind \
    cargo +nightly "$command" --locked -Zbuild-std --target "$triple" --package flashrt-capi "$@"
}

if rust_nightly; then
  has_rust=1
  cargo_instrumented build --lib
  library=$target/$triple/debug/libflashrt_capi.a
else
  [ "$kind" = address ] || { echo "sanitize: ThreadSanitizer needs 'rustup toolchain install nightly --component rust-src'" >&2; exit 1; }
  echo "sanitize: no nightly toolchain with rust-src: the C side only"
  has_rust=
  CARGO_TARGET_DIR=$target cargo build --locked --package flashrt-capi --lib
  library=$target/debug/libflashrt_capi.a
fi

# Rust's own runtime for threads: it knows what both compilers emit, which GCC's does not.
runtime=()
if [ "$kind" = thread ]; then
  archive=$(echo "$(rustup run nightly rustc --print sysroot)/lib/rustlib/$triple/lib"/librustc*_rt.tsan.a)
  runtime=(-Wl,--whole-archive "$archive" -Wl,--no-whole-archive)
fi

# host SOURCE COMPILER...
host() {
  local source=$1 program=$out/$1
  shift
  "$@" -Wall -Wextra -Werror -g -O1 "${flags[@]}" -Isrc/capi/include -c "src/capi/ctests/$source" -o "$program.o"
  if [ "$kind" = thread ]; then
    "$1" "$program.o" "$library" "${runtime[@]}" "${private[@]}" -lstdc++ -o "$program"
  else
    "$1" "${flags[@]}" "$program.o" "$library" "${private[@]}" -o "$program"
  fi
  echo "==== sanitize $kind: $source"
  ASAN_OPTIONS=detect_leaks=1:detect_stack_use_after_return=1 TSAN_OPTIONS=halt_on_error=1 "$program"
}
host host.c cc -std=c11
host host.cpp c++ -std=c++17

# The tests that build C programs of their own link without a sanitizer's runtime: they stay outside.
if [ -n "$has_rust" ]; then
  echo "==== sanitize $kind: Rust tests"
  # Tests ask for impossible sizes: the allocator answers null, as it does without a sanitizer. Those of exec and of the handles keep
  # their callbacks until the process ends, so there no leak is looked for.
  export ASAN_OPTIONS=allocator_may_return_null=1 TSAN_OPTIONS=allocator_may_return_null=1
  cargo_instrumented test --no-fail-fast --test "runtime_*" --test "capsule_*"
  ASAN_OPTIONS=$ASAN_OPTIONS:detect_leaks=0 cargo_instrumented test --no-fail-fast --lib --test "exec_*"
fi
echo "sanitize: $kind ok${has_rust:+, Rust side instrumented}"
