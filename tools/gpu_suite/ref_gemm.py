"""PyTorch's side of gpu_bench_gemm: the same products, as often in one graph, over rotating operands."""

import json
import time

import torch

COUNT, REPLAYS = 16, 100


def main():
    torch.manual_seed(0)
    rows = []
    for m, n, k in [(712, 16384, 2048), (712, 2048, 16384), (712, 2048, 2048), (10, 4096, 1024)]:
        sets = [[torch.randn(*shape, device='cuda').to(torch.bfloat16) for shape in ((m, k), (n, k))] for _ in range(4)]
        out = torch.empty(m, n, device='cuda', dtype=torch.bfloat16)
        for x, w in sets:
            torch.mm(x, w.t(), out=out)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for i in range(COUNT):
                torch.mm(sets[i % 4][0], sets[i % 4][1].t(), out=out)
        times = []
        for i in range(REPLAYS + 20):
            torch.cuda.synchronize()
            begin = time.perf_counter()
            graph.replay()
            torch.cuda.synchronize()
            if i >= 20:
                times.append((time.perf_counter() - begin) * 1e6 / COUNT)
        times.sort()
        rows.append({'name': 'torch.mm', 'shape': f'[{m}, {k}] x [{n}, {k}]', 'dtype': 'bf16', 'us_p50': round(times[len(times) // 2], 1),
                     'us_p99': round(times[int(len(times) * 0.99)], 1), 'us_max': round(times[-1], 1), 'n': REPLAYS,
                     'tflop_per_s': round(2 * m * n * k / times[len(times) // 2] / 1e6, 1)})
    print(json.dumps({'bench': f'matrix products by PyTorch {torch.__version__}', 'device': torch.cuda.get_device_name(), 'rows': rows}))


if __name__ == '__main__':
    main()
