#!/usr/bin/env bash
# Every figure of `make bench`, as JSON and as text, in out/bench. By hand: figures of a busy machine mean nothing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
out=out/bench
mkdir -p "$out"
config=config/so101_demo.yaml
count=${COUNT:-1000}

cargo build --locked --release --package flashrt-nodes --bin flashrt
flashrt=target/release/flashrt
{ uname -srm; nproc; grep -m1 'model name' /proc/cpuinfo || true; uptime; } >"$out/machine.txt"
for what in tick capsule; do
  "$flashrt" bench $what --config "$config" --count "$count" --json >"$out/$what.json"
  "$flashrt" bench $what --config "$config" --count "$count" | tee "$out/$what.txt"
  echo
done
# Further benches of the crates, by criterion.
cargo bench --locked --workspace 2>&1 | tee "$out/criterion.txt"
echo "bench: JSON and tables in $out"
