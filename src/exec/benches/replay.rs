//! Cost of the contract itself: one replay call, a launch of many operations, copies, a kernel's wake.
//!
//! Device: cpu. Every measured unit ends in a synchronise. `cargo bench -p flashrt-exec`.

use criterion::{criterion_group, criterion_main, BenchmarkId, Criterion, Throughput};
use flashrt_exec::{Context, CpuOptions, Error, Graph, Pool, Space, StreamId, StreamOrder};
use std::hint::black_box;

const S0: StreamId = StreamId(0);

fn context(threads: usize) -> Context {
    Context::cpu(CpuOptions {
        threads,
        order: StreamOrder::Submission,
    })
    .expect("a CPU context")
}

/// A graph of `ops` one-byte fills.
fn small_ops(ctx: &Context, ops: usize) -> Graph {
    let buffer = ctx.alloc("buffer", Space::Device, 64).expect("64 bytes");
    let graph = ctx.graph("ops", 0).expect("a graph");
    let window = buffer.slice(0, 1).expect("one byte");
    graph
        .capture::<Error>(0, |r| (0..ops).try_for_each(|i| r.fill(&window, i as u8)))
        .expect("a capture");
    graph
}

fn replay(c: &mut Criterion) {
    let ctx = context(1);
    let mut group = c.benchmark_group("replay+synchronize, cpu");
    for ops in [1, 500] {
        let graph = small_ops(&ctx, ops);
        group.bench_function(BenchmarkId::from_parameter(format!("{ops} ops")), |b| {
            b.iter(|| {
                graph.replay(0, S0).expect("a replay");
                ctx.synchronize(S0).expect("a synchronise");
            })
        });
    }
    let graph = small_ops(&ctx, 1);
    let mut plan = ctx.plan();
    let s1 = ctx.stream(0).expect("a stream");
    for (node, stream) in [S0, s1, S0].into_iter().enumerate() {
        plan.add(&graph, 0, stream).expect("a node");
        if node > 0 {
            plan.after(node, node - 1).expect("an edge");
        }
    }
    group.bench_function("plan of 3 nodes on 2 streams", |b| {
        b.iter(|| {
            plan.execute(0).expect("an execution");
            plan.sync().expect("a synchronise");
        })
    });
    group.finish();
}

fn copy(c: &mut Criterion) {
    let ctx = context(1);
    let mut group = c.benchmark_group("copy+synchronize, cpu");
    for bytes in [4 << 10, 1 << 20, 64 << 20] {
        let src = ctx.alloc("src", Space::Host, bytes).expect("memory");
        let dst = ctx.alloc("dst", Space::Device, bytes).expect("memory");
        let (src, dst) = (src.all(), dst.all());
        group.throughput(Throughput::Bytes(bytes as u64));
        group.bench_function(BenchmarkId::new("host to device", bytes), |b| {
            b.iter(|| {
                ctx.copy(&dst, &src, S0).expect("a copy");
                ctx.synchronize(S0).expect("a synchronise");
            })
        });
        let (from, mut to) = (vec![1u8; bytes], vec![0u8; bytes]);
        group.bench_function(BenchmarkId::new("plain memcpy", bytes), |b| {
            b.iter(|| to.copy_from_slice(black_box(&from)))
        });
    }
    group.finish();
}

fn wake(c: &mut Criterion) {
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    let pool = Pool::new(threads).expect("a pool");
    let mut group = c.benchmark_group(format!("for_each, {threads} threads"));
    group.bench_function("back to back, 2 tasks a thread", |b| {
        b.iter(|| {
            pool.for_each(2 * threads, &|i| {
                black_box(i);
            })
        })
    });
    group.bench_function("workers parked", |b| {
        b.iter_custom(|rounds| {
            let mut total = std::time::Duration::ZERO;
            for _ in 0..rounds.min(2000) {
                std::thread::sleep(std::time::Duration::from_micros(300));
                let begin = std::time::Instant::now();
                pool.for_each(2 * threads, &|i| {
                    black_box(i);
                });
                total += begin.elapsed();
            }
            total * u32::try_from(rounds).unwrap_or(u32::MAX) / rounds.min(2000) as u32
        })
    });
    group.finish();
}

criterion_group!(benches, replay, copy, wake);
criterion_main!(benches);
