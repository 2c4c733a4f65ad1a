//! Speed of the operations at the demo policy's shapes, on one and two threads.
//!
//! `cargo bench -p flashrt-ops`. Throughput is floating-point operations (a multiply-add is two) for
//! products and attention, "elem/s" there reads as FLOP/s; bytes read and written elsewhere. Each name
//! carries device, instruction set and threads. One iteration is one graph replay and its synchronisation.

use std::time::Duration;

use criterion::{criterion_group, criterion_main, Criterion, Throughput};
use flashrt_exec::{Context, CpuOptions, Recorder, Space, StreamId, StreamOrder};
use flashrt_ops::preprocess::{resize_normalize, Frame, PixelFormat};
use flashrt_ops::*;

/// Operations in one captured graph, so that the replay's own cost does not show.
const REPEAT: u64 = 8;

fn context(threads: usize) -> Context {
    Context::cpu(CpuOptions {
        threads,
        order: StreamOrder::Submission,
    })
    .unwrap()
}

fn tensor(ctx: &Context, shape: &[usize]) -> Tensor {
    let t = Tensor::alloc(ctx, "bench", Space::Device, DType::F32, shape).unwrap();
    let values: Vec<f32> = (0..t.numel())
        .map(|i| ((i * 37 % 101) as f32 - 50.0) / 50.0)
        .collect();
    t.upload_f32(ctx, &values).unwrap();
    t
}

fn weight(ctx: &Context, n: usize, k: usize) -> PackedWeight {
    let bytes: Vec<u8> = (0..n * k)
        .flat_map(|i| (((i * 53 % 97) as f32 - 48.0) / 480.0).to_ne_bytes())
        .collect();
    PackedWeight::from_bytes(ctx, "w", DType::F32, n, k, &bytes).unwrap()
}

fn bench(
    c: &mut Criterion,
    ctx: &Context,
    group: &str,
    name: &str,
    work: Throughput,
    record: impl Fn(&mut Recorder<'_>) -> Result<(), Error>,
) {
    let graph = ctx.graph(name, 1).unwrap();
    graph
        .capture(0, |r| -> Result<(), Error> {
            for _ in 0..REPEAT {
                record(r)?;
            }
            Ok(())
        })
        .unwrap();
    let mut g = c.benchmark_group(group);
    g.throughput(match work {
        Throughput::Bytes(n) => Throughput::Bytes(n * REPEAT),
        Throughput::Elements(n) => Throughput::Elements(n * REPEAT),
        other => other,
    });
    g.bench_function(name, |b| {
        b.iter(|| {
            graph.replay(0, StreamId(0)).unwrap();
            ctx.synchronize(StreamId(0)).unwrap();
        })
    });
    g.finish();
}

fn tag(isa: Isa, threads: usize) -> String {
    format!("cpu/{isa:?}/{threads}t").to_lowercase()
}

fn vectorised() -> impl Iterator<Item = Isa> {
    Isa::available()
        .iter()
        .copied()
        .filter(|i| *i != Isa::Portable)
}

fn products(c: &mut Criterion) {
    let shapes = [
        (306, 384, 128),
        (306, 128, 384),
        (306, 16, 128),
        (128, 128, 192),
        (16, 384, 128),
        (16, 128, 384),
        (16, 128, 128),
        (1, 384, 128),
        (256, 1024, 1024),
    ];
    for isa in vectorised() {
        for threads in [1, 2] {
            let ctx = context(threads);
            isa.with(|| {
                for (m, n, k) in shapes {
                    let (a, w, out) = (
                        tensor(&ctx, &[m, k]),
                        weight(&ctx, n, k),
                        tensor(&ctx, &[m, n]),
                    );
                    let name = format!("{m}x{k}x{n}/{}", tag(isa, threads));
                    let work = Throughput::Elements(2 * (m * n * k) as u64);
                    bench(c, &ctx, "matmul_flop", &name, work, |r| {
                        matmul(r, &a, &w, None, Epilogue::None, &out)
                    });
                }
                let (m, n, k) = (306, 384, 128);
                let (a, w, out) = (
                    tensor(&ctx, &[m, k]),
                    weight(&ctx, n, k),
                    tensor(&ctx, &[m, n]),
                );
                let name = format!("{m}x{k}x{n}_bias_gelu/{}", tag(isa, threads));
                let bias = tensor(&ctx, &[n]);
                let work = Throughput::Elements(2 * (m * n * k) as u64);
                bench(c, &ctx, "matmul_flop", &name, work, |r| {
                    matmul(r, &a, &w, Some(&bias), Epilogue::GeluTanh, &out)
                });
            });
        }
    }
}

fn attentions(c: &mut Criterion) {
    // Rows, query heads, key heads, head dimension, keys of the prefix.
    let shapes = [
        (306, 8, 1, 16, 0),
        (16, 8, 1, 16, 306),
        (64, 4, 4, 24, 0),
        (256, 16, 16, 72, 0),
    ];
    for isa in vectorised() {
        for threads in [1, 2] {
            let ctx = context(threads);
            isa.with(|| {
                for (m, hq, hkv, d, prefix) in shapes {
                    let (q, out) = (tensor(&ctx, &[m, hq, d]), tensor(&ctx, &[m, hq, d]));
                    let own = tensor(&ctx, &[m, hkv, d]);
                    let cached = tensor(&ctx, &[prefix.max(1), hkv, d]);
                    let mut parts = vec![KvPart {
                        k: &own,
                        v: &own,
                        mask: None,
                    }];
                    if prefix > 0 {
                        parts.insert(
                            0,
                            KvPart {
                                k: &cached,
                                v: &cached,
                                mask: None,
                            },
                        );
                    }
                    let keys = m + prefix;
                    let name = format!("q{m}x{hq}x{d}_kv{keys}x{hkv}/{}", tag(isa, threads));
                    let work = Throughput::Elements(4 * (m * hq * keys * d) as u64);
                    bench(c, &ctx, "attention_flop", &name, work, |r| {
                        attention(r, &q, &parts, 0.25, &out)
                    });
                }
            });
        }
    }
}

fn moved(c: &mut Criterion) {
    let (m, d, ff) = (306, 128, 384);
    for threads in [1, 2] {
        let ctx = context(threads);
        let tag = tag(Isa::selected(), threads);
        let (x, out) = (tensor(&ctx, &[m, d]), tensor(&ctx, &[m, d]));
        let (w, style) = (tensor(&ctx, &[d]), tensor(&ctx, &[3 * d]));
        let (gate, up) = (tensor(&ctx, &[m, ff]), tensor(&ctx, &[m, ff]));
        let rows = Throughput::Bytes(8 * (m * d) as u64);
        let one = |c: &mut Criterion, op: &str, work, f: &dyn Fn(&mut Recorder<'_>) -> _| {
            bench(c, &ctx, "bytes", &format!("{op}/{tag}"), work, f)
        };
        one(c, "layer_norm_306x128", rows.clone(), &|r| {
            layer_norm(r, &x, &w, &w, 1e-6, &out)
        });
        one(c, "rms_norm_306x128", rows.clone(), &|r| {
            rms_norm(r, &x, &w, 1e-6, &out)
        });
        one(c, "ada_rms_norm_306x128", rows, &|r| {
            ada_rms_norm(r, &x, &style, 1e-6, &out)
        });
        let wide = Throughput::Bytes(12 * (m * ff) as u64);
        let gated = tensor(&ctx, &[m, ff]);
        one(c, "geglu_306x384", wide, &|r| geglu(r, &gate, &up, &gated));
        let (heads, table) = (x.view(&[m, 8, 16]).unwrap(), tensor(&ctx, &[m, 16]));
        // Apart: turned in place again and again, the values would leave the normal range.
        let turned = out.view(&[m, 8, 16]).unwrap();
        let work = Throughput::Bytes(8 * (m * d) as u64);
        one(c, "rope_306x8x16", work, &|r| {
            rope(r, &heads, &table, &turned)
        });
        let (views, patches) = (tensor(&ctx, &[2, 64, 64, 3]), tensor(&ctx, &[128, 192]));
        let work = Throughput::Bytes(8 * 128 * 192);
        one(c, "im2col_2x64x64x3", work, &|r| {
            im2col(r, &views, 8, &patches)
        });
        let positions = Tensor::alloc(&ctx, "p", Space::Device, DType::I32, &[m]).unwrap();
        let work = Throughput::Bytes(4 * (m * 16) as u64);
        one(c, "rope_table_306x16", work, &|r| {
            rope_table(r, &positions, 1e4, &table)
        });
        let rng = Tensor::alloc(&ctx, "rng", Space::Device, DType::U64, &[2]).unwrap();
        let noise = tensor(&ctx, &[50, 32]);
        one(
            c,
            "philox_normal_50x32",
            Throughput::Bytes(4 * 1600),
            &|r| philox_normal(r, &rng, &noise),
        );
    }
}

fn frames(c: &mut Criterion) {
    let data = vec![77u8; 640 * 480 * 3];
    let mut g = c.benchmark_group("preprocess_out_bytes");
    for (w, h, side) in [(640, 480, 224), (640, 480, 64), (64, 64, 64)] {
        let frame = Frame {
            format: PixelFormat::Rgb8,
            width: w,
            height: h,
            stride_bytes: w * 3,
            data: &data,
        };
        let mut out = vec![0f32; side * side * 3];
        g.throughput(Throughput::Bytes(4 * out.len() as u64));
        g.bench_function(format!("rgb8_{w}x{h}_to_{side}x{side}/cpu/1t"), |b| {
            b.iter(|| resize_normalize(&frame, side, side, &mut out).unwrap())
        });
    }
    g.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_millis(700));
    targets = products, attentions, moved, frames
}
criterion_main!(benches);
