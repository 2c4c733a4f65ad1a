#!/usr/bin/env python3
"""The JSON of `flashrt bench ... --json`, of bench_torch.py or of the bench `replay_abi` as a table.

python3 tools/bench_table.py FILE
"""

import json
import sys
from pathlib import Path


def rows(series: list[dict]) -> list[list[str]]:
    """Head and one row per series; in ms if these are times of ticks, else in us."""
    in_ms = max(s["p50_us"] for s in series) >= 1000
    unit, scale = ("ms", 1e3) if in_ms else ("us", 1.0)
    has_ratio = any(s.get("p50_ratio") is not None for s in series)
    table = [["what", "runs", "bytes", f"p50 {unit}", f"p99 {unit}", f"max {unit}", *(["p50 / memcpy"] if has_ratio else [])]]
    for s in series:
        size = "" if s["bytes"] is None else f"{s['bytes']:,}"
        ratio = [f"{s['p50_ratio']:.2f}"] if has_ratio else []
        table.append([s["name"], str(s["count"]), size, *(f"{s[key] / scale:.2f}" for key in ("p50_us", "p99_us", "max_us")), *ratio])
    return table


def abi_rows(bench: dict) -> list[list[str]]:
    """Head and one row per pair of the bench `replay_abi`: the call through the C ABI, and the same work without it."""
    pairs = [(f"CPU, {p['kind']}", p["operations"], p, "replay_and_sync", "direct") for p in bench["cpu"]]
    for p in bench["cuda"] if isinstance(bench["cuda"], list) else []:
        pairs.append(("CUDA, call", p["operations"], p["call"], "frt_graph_replay", "cuGraphLaunch"))
        pairs.append(("CUDA, call and wait", p["operations"], p["call_and_sync"], "frt", "driver"))
    table = [["what", "operations", "C ABI p50 ns", "p99 ns", "direct p50 ns", "p99 ns", "overhead p50 ns"]]
    for what, operations, p, ours, direct in pairs:
        times = (p[side][key] for side in (ours, direct) for key in ("p50_ns", "p99_ns"))
        table.append([what, str(operations), *(f"{t:,}" for t in times), f"{p['overhead_p50_ns']:,}"])
    return table


def show(table: list[list[str]]) -> None:
    """Print columns: the first one to the left, numbers to the right."""
    widths = [max(len(row[i]) for row in table) for i in range(len(table[0]))] if table else []
    for row in table:
        cells = [f"{c:<{w}}" if i == 0 else f"{c:>{w}}" for i, (c, w) in enumerate(zip(row, widths, strict=True))]
        print("  ".join(cells))


def main() -> None:
    """Print the table of the file on the command line."""
    bench = json.loads(Path(sys.argv[1]).read_text())
    if bench.get("bench") == "replay_abi":
        show(abi_rows(bench))
        if isinstance(bench["cuda"], dict):
            print(f"CUDA left out: {bench['cuda']['skipped']}")
        return
    isa = f", {bench['isa']}" if "isa" in bench else ""
    print(f"{bench['backend']}{isa}, {bench['threads']} threads on {bench['cores']} cores, {bench['warm_up']} runs of warm-up")
    show(rows(bench["series"]) if bench["series"] else [])
    if memory := bench.get("memory"):
        before, after, growth = (memory[k] / 1024 for k in ("resident_before", "resident_after", "growth"))
        print(f"resident memory over {memory['ticks']} ticks, {memory['snapshots']} snapshots, {memory['restores']} restores:"
              f" {before:.0f} KiB before, {after:.0f} KiB after, growth {growth:.0f} KiB: {'flat' if memory['is_flat'] else 'not flat'}")


if __name__ == "__main__":
    main()
