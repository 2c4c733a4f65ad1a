#!/usr/bin/env python3
"""The Triton kernels of fla-core (https://github.com/fla-org/flash-linear-attention) on the shapes of gpu_bench_delta.rs.

Takes fla-core and einops from where Python finds them, or from wheels beside this file (`pip download --no-deps fla-core einops`).
Each operation is captured several times in one CUDA graph over rotating operands, as the bench does; without them it says so and
prints no row. Prints one JSON object.
"""

import json
import sys
import tempfile
import time
import zipfile
from pathlib import Path

import torch

#: Tokens, key heads, value heads, dimension.
SHAPES = [(2048, 32, 32, 128), (512, 32, 32, 128), (2048, 32, 32, 64)]
REPLAYS = 200


def find():
    wheels = sorted(Path(__file__).resolve().parent.glob('*.whl'))
    if wheels:
        folder = tempfile.mkdtemp()
        for wheel in wheels:
            zipfile.ZipFile(wheel).extractall(folder)
        sys.path.insert(0, folder)
    from fla.ops.gated_delta_rule import chunk_gated_delta_rule, fused_recurrent_gated_delta_rule
    return chunk_gated_delta_rule, fused_recurrent_gated_delta_rule


def measure(step, count):
    """Microseconds of one of `count` steps: p50, p99, max over the replays."""
    step(0)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(count):
            step(i)
    times = []
    for i in range(REPLAYS + 10):
        begin = time.perf_counter()
        graph.replay()
        torch.cuda.synchronize()
        if i >= 10:
            times.append((time.perf_counter() - begin) * 1e6 / count)
    times.sort()
    return [times[int((len(times) - 1) * share)] for share in (0.5, 0.99, 1.0)]


def operands(tokens, hk, hv, d):
    uniform = lambda *shape: torch.rand(*shape, device='cuda') * 2 - 1
    q, k = uniform(1, tokens, hk, d).bfloat16(), uniform(1, tokens, hk, d).bfloat16()
    v = uniform(1, tokens, hv, d).bfloat16()
    return q, k, v, -uniform(1, tokens, hv).abs(), uniform(1, tokens, hv).abs(), uniform(1, hv, d, d)


def error(outputs, inputs, d):
    """Relative L2 errors of output and state against the recurrence in float64."""
    q, k, v, g, beta, state = (x[0].double() for x in inputs)
    unit = lambda x: x / (x.square().sum(-1, keepdim=True) + 1e-6).sqrt()
    q, k, out = unit(q) * d**-0.5, unit(k), torch.empty_like(v)
    for t in range(v.shape[0]):
        state = state * g[t].exp()[:, None, None]
        change = beta[t][:, None] * (v[t] - torch.einsum('hk,hkv->hv', k[t], state))
        state = state + k[t][:, :, None] * change[:, None, :]
        out[t] = torch.einsum('hk,hkv->hv', q[t], state)
    relative = lambda got, want: ((got.double() - want).norm() / want.norm()).item()
    return relative(outputs[0][0], out), relative(outputs[1][0], state)


def main():
    rows, note = [], 'operations of Triton kernels in one CUDA graph; norms of q and k inside'
    try:
        chunk, recurrent = find()
    except ImportError as e:
        print(json.dumps({'bench': 'gated delta rule, fla-core', 'note': f'not measured: {e}', 'rows': []}))
        return
    for tokens, hk, hv, d in SHAPES:
        for name, op, count, n in [('chunk_gated_delta_rule', chunk, 8, tokens), ('fused_recurrent_gated_delta_rule', recurrent, 64, 1)]:
            if n == 1 and tokens != 2048:
                continue
            sets = [operands(n, hk, hv, d) for _ in range(4 if n > 1 else count)]

            def step(i):
                q, k, v, g, beta, state = sets[i % len(sets)]
                return op(q, k, v, g, beta, scale=d**-0.5, initial_state=state, output_final_state=True, use_qk_l2norm_in_kernel=True)

            with torch.no_grad():
                times = measure(step, count)
                row = {'name': name, 'shape': f'{n} tokens, {hk}/{hv} heads, state {d} x {d}', 'dtype': 'bf16',
                       **{key: round(us, 2) for key, us in zip(('us_p50', 'us_p99', 'us_max'), times)}, 'n': REPLAYS}
                if n > 1:
                    out, state = error(step(0), sets[0], d)
                    row.update(error_out=f'{out:.1e}', error_state=f'{state:.1e}')
            rows.append(row)
    print(json.dumps({'bench': 'gated delta rule, fla-core', 'device': torch.cuda.get_device_name(), 'note': note, 'rows': rows}))


if __name__ == '__main__':
    main()
