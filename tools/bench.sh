#!/usr/bin/env bash
# Every figure of `make bench` in one run, as tables and as JSON in out/bench. By hand: figures of a busy machine mean nothing.
#   COUNT=1000     timed ticks and capsules
#   TICKS=10000    ticks of the memory run
#   TORCH=0        leaves PyTorch out (some GB of download the first time, into .bench)
#   BENCH_ALL=1    also the benches of the crates, by criterion
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
out=out/bench
config=config/so101_demo.yaml
count=${COUNT:-1000} ticks=${TICKS:-10000}

say() { printf '%s\n' "$@"; }

# measure NAME COMMAND...: runs it, keeps its JSON, prints it as a table with what ran and how busy the machine was before.
measure() {
  local name=$1
  shift
  say "" "==== $name" "\$ $*" "load average before: $(cut -d' ' -f1-3 /proc/loadavg)"
  "$@" >"$out/$name.json.part"
  mv "$out/$name.json.part" "$out/$name.json"
  python3 tools/bench_table.py "$out/$name.json"
}

# Makes .bench/venv: PyTorch, and behind it the Python that the demo made, with its simulator.
make_torch() {
  local wanted
  wanted=$(cat tools/bench_requirements.txt .demo/stamp | sha256sum | cut -c1-16)
  [ "$(cat .bench/stamp 2>/dev/null)" != "$wanted" ] || return 0
  say "bench: PyTorch from wheels into .bench (some GB)" >&2
  rm -rf .bench
  python -m venv .bench/venv
  .bench/venv/bin/pip install --quiet --disable-pip-version-check --requirement tools/bench_requirements.txt
  python -c 'import sysconfig, sys; print(sysconfig.get_path("purelib")); print(*(p for p in sys.path if p.endswith("site-packages")), sep="\n")' \
    >"$(.bench/venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/demo_python.pth"
  .bench/venv/bin/python -c 'import torch, safetensors, mujoco'
  echo "$wanted" >.bench/stamp
}

torch_skipped() { say "" "==== pytorch" "skipped: $*"; }

pytorch() {
  if [ "${TORCH:-1}" = 0 ]; then torch_skipped "TORCH=0"; return; fi
  # The scripts of the policy import the simulator, which lies in the demo's Python.
  if ! tools/demo/env.sh "$PWD/tools/bench.sh" --make-torch >"$out/setup-torch.log" 2>&1; then
    torch_skipped "PyTorch could not be installed (a package index must be reachable the first time): $(tail -n1 "$out/setup-torch.log")"
    return
  fi
  measure pytorch .bench/venv/bin/python tools/bench_torch.py --threads "$(nproc)" --count "$count" --json
}

bench() {
  say "machine: $(uname -srm), $(nproc) cores, $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n1)"
  say "commit: $(git describe --always --dirty 2>/dev/null || echo unknown), $(date -u +%Y-%m-%dT%H:%MZ)"
  measure tick target/release/flashrt bench tick --config "$config" --count "$count" --json
  pytorch
  measure pipeline target/release/flashrt bench pipeline --config "$config" --count "$count" --json
  measure capsule target/release/flashrt bench capsule --config "$config" --count "$count" --json
  measure memory target/release/flashrt bench memory --config "$config" --count "$ticks" --json
  # Replay through the C ABI against the same operations called directly.
  measure abi cargo bench --locked --quiet --package flashrt-capi --bench replay_abi
  [ "${BENCH_ALL:-0}" = 0 ] || cargo bench --locked --workspace --benches 2>&1 | tee "$out/criterion.txt"
}

if [ "${1:-}" = --make-torch ]; then make_torch; exit; fi # called by pytorch() above, in the demo's environment
mkdir -p "$out"
rm -f "$out"/*.json "$out"/*.txt
CARGO_TARGET_DIR=target cargo build --locked --quiet --release --package flashrt-nodes --bin flashrt
bench | tee "$out/report.txt"
say "" "bench: this text and the JSON files are in $out"
