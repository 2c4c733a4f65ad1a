#!/usr/bin/env python3
"""The JSON of `flashrt bench ... --json` or of bench_torch.py as a table.

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


def main() -> None:
    """Print the table of the file on the command line."""
    bench = json.loads(Path(sys.argv[1]).read_text())
    isa = f", {bench['isa']}" if "isa" in bench else ""
    print(f"{bench['backend']}{isa}, {bench['threads']} threads on {bench['cores']} cores, {bench['warm_up']} runs of warm-up")
    table = rows(bench["series"]) if bench["series"] else []
    widths = [max(len(row[i]) for row in table) for i in range(len(table[0]))] if table else []
    for row in table:
        cells = [f"{c:<{w}}" if i == 0 else f"{c:>{w}}" for i, (c, w) in enumerate(zip(row, widths, strict=True))]
        print("  ".join(cells))
    if memory := bench.get("memory"):
        before, after, growth = (memory[k] / 1024 for k in ("resident_before", "resident_after", "growth"))
        print(f"resident memory over {memory['ticks']} ticks, {memory['snapshots']} snapshots, {memory['restores']} restores:"
              f" {before:.0f} KiB before, {after:.0f} KiB after, growth {growth:.0f} KiB: {'flat' if memory['is_flat'] else 'not flat'}")


if __name__ == "__main__":
    main()
