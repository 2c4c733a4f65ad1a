#!/usr/bin/env bash
# Every fuzz target of every crate (src/*/fuzz) with libFuzzer and AddressSanitizer, SECONDS_EACH (60) seconds each. Needs nothing but
# cargo and a C++ compiler: the switches are those of cargo-fuzz. What they find lies in out/fuzz/CRATE-TARGET, beside the corpus.
# Usage: fuzz.sh [CRATE...]    such as session or capi; without one, all
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
seconds=${SECONDS_EACH:-60}
triple=$(rustc -vV | sed -n 's/^host: //p')
out=$PWD/out/fuzz
target=$PWD/target/fuzz

# Stable Rust takes these switches only with the first variable. With a target of its own they leave build scripts alone.
build() {
  RUSTC_BOOTSTRAP=1 CARGO_TARGET_DIR=$target \
    RUSTFLAGS="--cfg fuzzing -Zsanitizer=address -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
      -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
      -Cllvm-args=-sanitizer-coverage-trace-compares" \
    cargo build --quiet --release --target "$triple" --manifest-path "$1"
}

if [ $# -eq 0 ]; then
  for manifest in src/*/fuzz/Cargo.toml; do set -- "$@" "$(basename "$(dirname "$(dirname "$manifest")")")"; done
fi
failed=0 count=0
for crate in "$@"; do
  manifest=src/$crate/fuzz/Cargo.toml
  [ -f "$manifest" ] || { echo "fuzz: no $manifest" >&2; exit 2; }
  echo "==== fuzz: $crate, building"
  build "$manifest" || exit 1
  for source in "src/$crate"/fuzz/fuzz_targets/*.rs; do
    name=$(basename "$source" .rs) work=$out/$crate-$(basename "$source" .rs)
    mkdir -p "$work/corpus"
    echo "==== fuzz: $crate $name, $seconds s"
    count=$((count + 1))
    # With lines that matter only: the last ones, or the whole report of a crash.
    if "$target/$triple/release/$name" -max_total_time="$seconds" -rss_limit_mb=2048 -timeout=10 -print_final_stats=1 \
      -artifact_prefix="$work/" "$work/corpus" >"$work/log" 2>&1; then
      sed -nE 's/^stat::(number_of_executed_units|average_exec_per_sec|new_units_added|peak_rss_mb): */  \1 /p' "$work/log"
    else
      failed=$((failed + 1))
      tail -n 60 "$work/log"
    fi
  done
done
echo "fuzz: $failed of $count targets failed"
[ "$failed" = 0 ]
