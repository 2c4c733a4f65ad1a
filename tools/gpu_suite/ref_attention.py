#!/usr/bin/env python3
"""PyTorch's scaled_dot_product_attention on the shapes of src/ops/examples/gpu_bench_attention.rs, the best of its backends.

Each backend is captured many times in one CUDA graph, as the bench does, with key heads repeated beforehand and with enable_gqa;
decode steps rotate through caches of more than twice the L2 cache. Prints one JSON object.
"""

import json
import time

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

#: M, Hq, Hkv, N, D, causal, operations a graph, replays.
PREFILL = [(712, 8, 1, 712, 256, False, 20, 200), (968, 8, 1, 968, 256, True, 20, 200), (256, 16, 16, 256, 72, False, 20, 200),
           (1024, 16, 4, 1024, 64, True, 20, 200), (2048, 32, 8, 2048, 128, True, 10, 200), (16384, 16, 4, 16384, 256, True, 1, 20)]
#: M, Hq, Hkv, N, D.
DECODE = [(1, 32, 8, 8192, 128), (1, 8, 1, 32768, 256), (4, 16, 2, 16384, 256), (16, 32, 8, 16384, 128), (1, 16, 16, 4096, 64),
          (10, 8, 1, 968, 256)]
ROTATE = 150 << 20
BACKENDS = (SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION, SDPBackend.EFFICIENT_ATTENTION)


def measure(step, count, replays):
    """Microseconds of one of `count` steps: p50, p99, max over the replays."""
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        step(0)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(count):
            step(i)
    times = []
    for i in range(replays + 10):
        begin = time.perf_counter()
        graph.replay()
        torch.cuda.synchronize()
        if i >= 10:
            times.append((time.perf_counter() - begin) * 1e6 / count)
    times.sort()
    return [times[int((len(times) - 1) * share)] for share in (0.5, 0.99, 1.0)]


def best(m, hq, hkv, n, d, causal, count, replays):
    """(backend, times) of the fastest one."""
    random = lambda heads, rows: torch.rand(1, heads, rows, d, device='cuda', dtype=torch.bfloat16) * 2 - 1
    q = random(hq, m)
    caches = [(random(hkv, n), random(hkv, n)) for _ in range(count if m < n else 1)]
    found = []
    for backend in BACKENDS:
        for repeated in (True, False):
            kv = [[x.repeat_interleave(hq // hkv, 1) for x in pair] for pair in caches] if repeated and hq != hkv else caches

            def step(i):
                F.scaled_dot_product_attention(q, *kv[i % len(kv)], is_causal=causal, enable_gqa=not repeated)

            try:
                with sdpa_kernel(backend):
                    found.append((measure(step, count, replays), f'{backend.name}{"" if repeated else " enable_gqa"}'))
            except RuntimeError:
                pass  # this backend does not take this shape
            del kv
    return min(found)


def main():
    rows = []
    cases = [('prefill causal' if c[5] else 'prefill', *c) for c in PREFILL]
    for m, hq, hkv, n, d in DECODE:
        cases.append(('decode', m, hq, hkv, n, d, False, max(2, min(48, ROTATE // (4 * n * hkv * d))), 200))
    for name, m, hq, hkv, n, d, causal, count, replays in cases:
        times, backend = best(m, hq, hkv, n, d, causal, count, replays)
        row = {'name': name, 'shape': f'{m} of {n} keys, {hq}/{hkv} heads of {d}', 'dtype': 'bf16',
               **{key: round(us, 2) for key, us in zip(('us_p50', 'us_p99', 'us_max'), times)}, 'n': replays}
        if name == 'decode':
            row['gb_per_s'] = round(4 * n * hkv * d / times[0] / 1e3)
        else:
            row['tflops'] = round(4 * m * n * hq * d / (2 if causal else 1) / times[0] / 1e6)
        rows.append({**row, 'reference': backend})
    print(json.dumps({'bench': 'attention of PyTorch', 'device': f'{torch.cuda.get_device_name()}, PyTorch {torch.__version__}',
                      'rows': rows}, indent=1))


if __name__ == '__main__':
    main()
