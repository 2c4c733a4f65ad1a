//! Operations on f16 and bf16 against float64, from inputs that these types hold exactly.
//!
//! An element may be off by one rounding of its type and by a few of f32 in what it is made of.

mod common;

use common::{context, cuda, f32_bytes, refused, Seed};
use flashrt_exec::{Context, StreamId};
use flashrt_ops::*;
use half::{bf16, f16};

fn encode(dtype: DType, values: &[f32]) -> Vec<u8> {
    match dtype {
        DType::F16 => values
            .iter()
            .flat_map(|&v| f16::from_f32(v).to_ne_bytes())
            .collect(),
        DType::BF16 => values
            .iter()
            .flat_map(|&v| bf16::from_f32(v).to_ne_bytes())
            .collect(),
        _ => f32_bytes(values),
    }
}

fn decode(dtype: DType, bytes: &[u8]) -> Vec<f64> {
    let pair = |b: &[u8]| [b[0], b[1]];
    match dtype {
        DType::F16 => bytes
            .chunks(2)
            .map(|b| f16::from_ne_bytes(pair(b)).to_f64())
            .collect(),
        _ => bytes
            .chunks(2)
            .map(|b| bf16::from_ne_bytes(pair(b)).to_f64())
            .collect(),
    }
}

/// A tensor of random elements, and their exact values. It starts `skip` elements into its buffer.
fn random(
    ctx: &Context,
    seed: &mut Seed,
    dtype: DType,
    shape: &[usize],
    scale: f32,
    skip: usize,
) -> (Tensor, Vec<f64>) {
    let n: usize = shape.iter().product();
    let bytes = encode(dtype, &seed.scaled(n, scale));
    let t = view(ctx, dtype, shape, skip);
    ctx.upload(t.slice(), &bytes).unwrap();
    (t, decode(dtype, &bytes))
}

fn view(ctx: &Context, dtype: DType, shape: &[usize], skip: usize) -> Tensor {
    let bytes = shape.iter().product::<usize>() * dtype.bytes();
    let at = skip * dtype.bytes();
    let buffer = ctx
        .alloc("half", flashrt_exec::Space::Device, at + bytes + 16)
        .unwrap();
    // A guard on both sides, and NaN where the result goes.
    ctx.fill(&buffer.all(), 0xFF, StreamId(0)).unwrap();
    Tensor::new(buffer.slice(at, bytes).unwrap(), dtype, shape).unwrap()
}

/// An f32 row and its values.
fn row(ctx: &Context, seed: &mut Seed, n: usize) -> (Tensor, Vec<f64>) {
    let values = seed.values(n);
    (
        common::tensor(ctx, &[n], &values),
        values.iter().map(|&v| f64::from(v)).collect(),
    )
}

/// Records once, replays twice, compares with `want`, and looks whether the guards still stand.
fn check(
    ctx: &Context,
    name: &str,
    out: &Tensor,
    want: &[f64],
    absolute: f64,
    record: impl Fn(&mut flashrt_exec::Recorder<'_>) -> Result<(), Error>,
) {
    let graph = ctx.graph("half", 0).unwrap();
    graph.capture(0, record).unwrap();
    let mut first = Vec::new();
    for replay in 0..2 {
        graph.replay(0, StreamId(0)).unwrap();
        ctx.synchronize(StreamId(0)).unwrap();
        let mut bytes = vec![0; out.slice().bytes()];
        ctx.download(out.slice(), &mut bytes).unwrap();
        if replay == 1 {
            assert!(bytes == first, "{name}: another replay, other bytes");
            continue;
        }
        // One rounding: half of 2^-10 and of 2^-7, and a hair.
        let relative = if out.dtype() == DType::F16 {
            5.0e-4
        } else {
            4.0e-3
        };
        for (i, (got, want)) in decode(out.dtype(), &bytes).iter().zip(want).enumerate() {
            let off = (got - want).abs();
            assert!(
                off <= absolute + relative * want.abs(),
                "{name} {} [{i}]: {got} is not {want}",
                out.dtype()
            );
        }
        first = bytes;
    }
    let buffer = out.slice().buffer();
    let mut all = vec![0; buffer.bytes()];
    ctx.download(&buffer.all(), &mut all).unwrap();
    let (from, to) = (
        out.slice().offset(),
        out.slice().offset() + out.slice().bytes(),
    );
    assert!(
        all[..from].iter().chain(&all[to..]).all(|&b| b == 0xFF),
        "{name}: wrote beside its output"
    );
}

const HALVES: [DType; 2] = [DType::F16, DType::BF16];

fn gelu(x: f64) -> f64 {
    0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x)).tanh())
}

fn silu_of(x: f64) -> f64 {
    x / (1.0 + (-x).exp())
}

#[test]
fn norms_on_packed_and_odd_rows() {
    let Some(ctx) = cuda() else { return };
    let mut seed = Seed(11);
    let eps = 1e-6f32;
    for dtype in HALVES {
        for (rows, cols, skip) in [
            (1, 8, 0),
            (3, 2048, 0),
            (7, 1000, 0),
            (5, 33, 0),
            (2, 64, 1),
            (300, 4096, 0),
            (2, 12_288, 0),
        ] {
            let (x, xs) = random(&ctx, &mut seed, dtype, &[rows, cols], 3.0, skip);
            let out = view(&ctx, dtype, &[rows, cols], skip);
            let (w, ws) = row(&ctx, &mut seed, cols);
            let (b, bs) = row(&ctx, &mut seed, cols);
            let (style, styles) = row(&ctx, &mut seed, 3 * cols);
            let by_row = |f: &dyn Fn(&[f64], usize, usize) -> f64| -> Vec<f64> {
                (0..rows * cols)
                    .map(|i| f(&xs[i / cols * cols..][..cols], i, i % cols))
                    .collect()
            };
            let inverse = |row: &[f64], mean: f64| {
                let square: f64 = row.iter().map(|v| (v - mean) * (v - mean)).sum();
                1.0 / (square / cols as f64 + f64::from(eps)).sqrt()
            };
            let rms = by_row(&|row, i, j| xs[i] * inverse(row, 0.0) * (1.0 + ws[j]));
            check(&ctx, "rms_norm", &out, &rms, 1e-5, |r| {
                rms_norm(r, &x, &w, eps, &out)
            });
            let ada = by_row(&|row, i, j| {
                xs[i] * inverse(row, 0.0) * (1.0 + styles[j]) + styles[cols + j]
            });
            check(&ctx, "ada_rms_norm", &out, &ada, 1e-5, |r| {
                ada_rms_norm(r, &x, &style, eps, &out)
            });
            let layer = by_row(&|row, i, j| {
                let mean = row.iter().sum::<f64>() / cols as f64;
                (xs[i] - mean) * inverse(row, mean) * ws[j] + bs[j]
            });
            check(&ctx, "layer_norm", &out, &layer, 1e-5, |r| {
                layer_norm(r, &x, &w, &b, eps, &out)
            });
        }
    }
}

#[test]
fn activations_and_residuals_of_any_length() {
    let Some(ctx) = cuda() else { return };
    let mut seed = Seed(12);
    for dtype in HALVES {
        for (n, skip) in [(1, 0), (7, 0), (8, 0), (1001, 0), (4096, 3), (100_003, 0)] {
            let (x, xs) = random(&ctx, &mut seed, dtype, &[n], 6.0, skip);
            let (y, ys) = random(&ctx, &mut seed, dtype, &[n], 2.0, 0);
            let out = view(&ctx, dtype, &[n], skip);
            let map = |f: &dyn Fn(usize) -> f64| (0..n).map(f).collect::<Vec<_>>();
            check(&ctx, "gelu_tanh", &out, &map(&|i| gelu(xs[i])), 1e-6, |r| {
                gelu_tanh(r, &x, &out)
            });
            check(&ctx, "silu", &out, &map(&|i| silu_of(xs[i])), 1e-6, |r| {
                silu(r, &x, &out)
            });
            check(
                &ctx,
                "geglu",
                &out,
                &map(&|i| gelu(xs[i]) * ys[i]),
                1e-6,
                |r| geglu(r, &x, &y, &out),
            );
            check(
                &ctx,
                "residual_add",
                &out,
                &map(&|i| xs[i] + ys[i]),
                1e-6,
                |r| residual_add(r, &x, &y, &out),
            );
        }
    }
}

#[test]
fn rope_on_packed_and_odd_heads() {
    let Some(ctx) = cuda() else { return };
    let mut seed = Seed(13);
    for dtype in HALVES {
        for (m, h, d) in [(1, 1, 16), (5, 3, 64), (9, 2, 6), (17, 8, 256), (4, 1, 72)] {
            let positions: Vec<i32> = (0..m as i32).map(|i| i * 37 + 3).collect();
            let p = common::ints(&ctx, &positions);
            let table = common::poisoned(&ctx, &[m, d]);
            common::run(&ctx, |r| rope_table(r, &p, 10_000.0, &table));
            let angles = table.download_f32(&ctx).unwrap();
            let (x, xs) = random(&ctx, &mut seed, dtype, &[m, h, d], 2.0, 0);
            let out = view(&ctx, dtype, &[m, h, d], 0);
            let want: Vec<f64> = (0..m * h * d)
                .map(|i| {
                    let (at, j) = (i / d * d, i % d);
                    let angle = |c: usize| f64::from(angles[i / (h * d) * d + c]);
                    let half = d / 2;
                    match j < half {
                        true => xs[at + j] * angle(j) - xs[at + j + half] * angle(half + j),
                        false => xs[at + j] * angle(j - half) + xs[at + j - half] * angle(j),
                    }
                })
                .collect();
            check(&ctx, "rope", &out, &want, 1e-6, |r| {
                rope(r, &x, &table, &out)
            });
        }
    }
}

#[test]
fn gemv_with_every_epilogue_on_both_backends() {
    let mut seed = Seed(14);
    for ctx in [Some(context(2)), cuda()].into_iter().flatten() {
        for dtype in HALVES {
            for (m, n, k) in [
                (1, 1, 8),
                (1, 33, 256),
                (2, 7, 1032),
                (3, 100, 64),
                (4, 65, 2056),
                (1, 515, 4096),
            ] {
                let (x, xs) = random(&ctx, &mut seed, dtype, &[m, k], 1.0, 0);
                let (w, ws) = random(&ctx, &mut seed, dtype, &[n, k], 1.0, 0);
                let (g, gs) = random(&ctx, &mut seed, dtype, &[n, k], 0.1, 0);
                let (residual, rs) = random(&ctx, &mut seed, dtype, &[m, n], 2.0, 0);
                let (bias, bs) = row(&ctx, &mut seed, n);
                let out = view(&ctx, dtype, &[m, n], 0);
                let dot = |w: &[f64], i: usize| -> f64 {
                    let (row, column) = (i / n, i % n);
                    (0..k).map(|p| xs[row * k + p] * w[column * k + p]).sum()
                };
                let map = |f: &dyn Fn(usize) -> f64| (0..m * n).map(f).collect::<Vec<_>>();
                // A sum of k products of size one in f32.
                let slack = 1e-5 * (k as f64).sqrt();
                use GemvEpilogue as E;
                check(&ctx, "gemv", &out, &map(&|i| dot(&ws, i)), slack, |r| {
                    gemv(r, &x, &w, None, E::None, &out)
                });
                let biased = map(&|i| gelu(dot(&ws, i) + bs[i % n]));
                check(&ctx, "gemv gelu", &out, &biased, slack, |r| {
                    gemv(r, &x, &w, Some(&bias), E::GeluTanh, &out)
                });
                let want = map(&|i| silu_of(dot(&ws, i)));
                check(&ctx, "gemv silu", &out, &want, slack, |r| {
                    gemv(r, &x, &w, None, E::Silu, &out)
                });
                let want = map(&|i| rs[i] + dot(&ws, i) + bs[i % n]);
                check(&ctx, "gemv residual", &out, &want, slack, |r| {
                    gemv(r, &x, &w, Some(&bias), E::Residual(&residual), &out)
                });
                let want = map(&|i| gelu(dot(&gs, i)) * dot(&ws, i));
                let slack = slack * (k as f64).sqrt();
                check(&ctx, "geglu_gemv", &out, &want, slack, |r| {
                    geglu_gemv(r, &x, &g, &w, &out)
                });
            }
        }
    }
}

#[test]
fn bad_operands_are_refused_by_name() {
    let ctx = context(1);
    let half = |shape: &[usize]| view(&ctx, DType::BF16, shape, 0);
    let (x, w, out) = (half(&[1, 16]), half(&[4, 16]), half(&[1, 4]));
    let e = GemvEpilogue::None;
    let (long, long_out, short_w, wide) =
        (half(&[5, 16]), half(&[5, 4]), half(&[4, 8]), half(&[1, 5]));
    let (f16_w, few, f32_x) = (
        view(&ctx, DType::F16, &[4, 16], 0),
        half(&[3, 16]),
        common::tensor(&ctx, &[1, 16], &[0.0; 16]),
    );
    let f32_w = common::tensor(&ctx, &[16], &[0.0; 16]);
    for (text, want) in [
        (
            refused(&ctx, |r| gemv(r, &long, &w, None, e, &long_out)),
            "x has shape [5, 16]",
        ),
        (
            refused(&ctx, |r| gemv(r, &x, &short_w, None, e, &out)),
            "w has shape [4, 8], expected [N, 16]",
        ),
        (
            refused(&ctx, |r| gemv(r, &x, &f16_w, None, e, &out)),
            "w is f16, expected x's type",
        ),
        (
            refused(&ctx, |r| gemv(r, &x, &w, None, e, &wide)),
            "out has shape [1, 5], expected [1, 4]",
        ),
        (
            refused(&ctx, |r| gemv(r, &f32_x, &w, None, e, &out)),
            "x is f32",
        ),
        (
            refused(&ctx, |r| geglu_gemv(r, &x, &w, &few, &out)),
            "up has shape [3, 16], expected [4, 16]",
        ),
        (
            refused(&ctx, |r| silu(r, &x, &x)),
            "x is bf16, expected f32 (f16 and bf16 on cuda only)",
        ),
        (
            refused(&ctx, |r| rms_norm(r, &x, &f32_w, 0.0, &x)),
            "on cuda only",
        ),
    ] {
        assert!(text.contains(want), "{text}");
    }
    let Some(gpu) = cuda() else { return };
    let half = |shape: &[usize], skip| view(&gpu, DType::BF16, shape, skip);
    let out = half(&[1, 4], 0);
    let (x, odd, w, odd_w) = (
        half(&[1, 12], 0),
        half(&[1, 16], 1),
        half(&[4, 12], 0),
        half(&[4, 16], 0),
    );
    let text = refused(&gpu, |r| gemv(r, &x, &w, None, e, &out));
    assert!(text.contains("rows of a multiple of 16 bytes"), "{text}");
    let text = refused(&gpu, |r| gemv(r, &odd, &odd_w, None, e, &out));
    assert!(text.contains("x has shape"), "{text}");
}
