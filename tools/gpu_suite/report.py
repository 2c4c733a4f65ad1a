"""Tables of docs/performance.md, from the files that `gpu_suite.py run` wrote. Every figure is one that a bench printed."""

import json
from pathlib import Path

#: Where the tables go in the page: between these lines everything is replaced.
BEGIN, END = '<!-- figures: begin -->', '<!-- figures: end -->'


def number(value):
    """About three digits, an exponent only for the smallest; words as they are."""
    if value is None:
        return ''
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    if isinstance(value, int) or abs(value) >= 1000:
        return f'{value:,.0f}'
    if value != 0 and abs(value) < 0.001:
        return f'{value:.1e}'
    return f'{value:.{2 if abs(value) >= 1 else 3}f}'


def table(head, rows):
    lines = [head, ['---', *['---:' if is_numeric(rows, i) else '---' for i in range(1, len(head))]], *rows]
    return '\n'.join('| ' + ' | '.join(number(cell) for cell in line) + ' |' for line in lines)


def is_numeric(rows, column):
    return all(isinstance(row[column], (int, float)) or row[column] in ('', None) for row in rows)


def read(out, name):
    path = out / f'{name}.json'
    return json.loads(path.read_text()) if path.exists() else None


def replay_floor(out):
    lines = read(out, 'replay_floor')
    if not lines:
        return None
    rows = [[r['name'], r['median_ns'], r['p99_ns'], r['max_ns'], r['iterations']] for r in lines if 'median_ns' in r]
    return '## Replay, against the driver alone\n\nOne executable of one node, launched both ways in turn.\n\n' + table(
        ['what', 'p50 ns', 'p99 ns', 'max ns', 'n'], rows)


def replay_abi(out):
    bench = read(out, 'replay_abi')
    if not bench:
        return None
    pairs = [(f'CPU, {p["kind"]}', p['operations'], p, 'replay_and_sync', 'direct') for p in bench['cpu']]
    for p in bench['cuda'] if isinstance(bench['cuda'], list) else []:
        pairs.append(('CUDA, call', p['operations'], p['call'], 'frt_graph_replay', 'cuGraphLaunch'))
        pairs.append(('CUDA, call and wait', p['operations'], p['call_and_sync'], 'frt', 'driver'))
    rows = [[what, n, p[ours]['p50_ns'], p[ours]['p99_ns'], p[direct]['p50_ns'], p[direct]['p99_ns'], p['overhead_p50_ns']]
            for what, n, p, ours, direct in pairs]
    return ('## Replay through the C ABI\n\n`frt_graph_replay` against the same work called directly, in turn: '
            f'{bench["iterations"]:,} times each.\n\n' +
            table(['what', 'operations', 'C ABI p50 ns', 'p99 ns', 'direct p50 ns', 'p99 ns', 'overhead ns'], rows))


def series(out, name, title):
    bench = read(out, name)
    if not bench:
        return None
    rows = [[s['name'], s['count'], s['bytes'], s['p50_us'], s['p99_us'], s['max_us'], s.get('p50_ratio')] for s in bench['series']]
    return f'## {title}\n\n' + table(['what', 'n', 'bytes', 'p50 us', 'p99 us', 'max us', 'of a plain copy'], rows)


def rows_of(out, path):
    """A bench of the common form: {"bench", "rows": [{...}]}; columns in the order in which they first appear."""
    bench = json.loads(path.read_text())
    if not isinstance(bench, dict) or not isinstance(bench.get('rows'), list) or not bench['rows']:
        return None
    columns = list(dict.fromkeys(key for row in bench['rows'] for key in row if not isinstance(row[key], (dict, list))))
    note = f'\n\n{bench["note"]}' if bench.get('note') else ''
    return f'## {bench.get("bench", path.stem)}{note}\n\n' + table(
        [c.replace('_', ' ') for c in columns], [[row.get(c) for c in columns] for row in bench['rows']])


def tables(out):
    summary = json.loads((out / 'summary.json').read_text())
    device, after = summary['device'], summary['device_after']
    yield '\n'.join([
        f'Commit {summary["commit"]}, {summary["date"]}. {device.get("name", "no GPU")}, driver {device.get("driver_version")}, '
        f'{device.get("memory.total")}; SM clock {after.get("clocks.sm")} after the run, at most {device.get("clocks.max.sm")}; '
        f'memory clock {after.get("clocks.mem")}. Host: {summary["host"]}.',
        f'{summary["tests"]["passed"]:,} tests passed, {summary["tests"]["failed"]} failed, {summary["tests"]["skipped"]} skipped.'])
    yield replay_floor(out)
    yield replay_abi(out)
    for backend in ('cuda', 'cpu'):
        yield series(out, f'policy_tick_{backend}', f'Demo policy, a tick, backend {backend}')
        yield series(out, f'policy_capsule_{backend}', f'Demo policy, a capsule, backend {backend}')
    for path in sorted(out.glob('*.json')):
        if path.stem.startswith(('gpu_bench_', 'ref_')):
            yield rows_of(out, path)


def write(out, page=None):
    """Puts the tables of `out` into `page` (docs/performance.md)."""
    page = Path(page) if page else Path(__file__).resolve().parents[2] / 'docs' / 'performance.md'
    text = page.read_text()
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    figures = '\n\n'.join(part for part in tables(Path(out)) if part)
    page.write_text(f'{before}{BEGIN}\n{figures}\n{END}{after}')
    print(f'gpu_suite: {page}')
