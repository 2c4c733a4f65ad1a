//! Products against f64, over all epilogues and sizes that no tile divides.
//! Tolerance: K rounding steps of f32 on the sum of magnitudes, plus 1e-6 for the epilogue.

mod common;
use common::*;
use flashrt_ops::{matmul, DType, Epilogue, PackedWeight};
use half::{bf16, f16};

struct Case {
    m: usize,
    n: usize,
    k: usize,
    a: Vec<f32>,
    w: Vec<f32>,
    bias: Vec<f32>,
    residual: Vec<f32>,
    gate: Vec<f32>,
}

fn case(m: usize, n: usize, k: usize) -> Case {
    let mut s = Seed((m * 1_000_000 + n * 1000 + k) as u64);
    Case {
        m,
        n,
        k,
        a: s.values(m * k),
        w: s.values(n * k),
        bias: s.values(n),
        residual: s.values(m * n),
        gate: s.values(n),
    }
}

/// Product plus bias in f64 and the error that K f32 steps may make.
fn reference(c: &Case, bias: bool) -> Vec<(f64, f64)> {
    let mut out = Vec::new();
    for i in 0..c.m {
        for j in 0..c.n {
            let (mut sum, mut size) = (0.0, 0.0);
            for p in 0..c.k {
                let t = f64::from(c.a[i * c.k + p]) * f64::from(c.w[j * c.k + p]);
                sum += t;
                size += t.abs();
            }
            if bias {
                sum += f64::from(c.bias[j]);
                size += 1.0;
            }
            out.push((sum, size * (c.k as f64 + 2.0) * 6e-8 + 1e-7));
        }
    }
    out
}

fn check(got: &[f32], want: impl Iterator<Item = (f64, f64)>) {
    for (i, (g, (w, e))) in got.iter().zip(want).enumerate() {
        let error = (f64::from(*g) - w).abs();
        assert!(
            error <= e + 1e-6 * w.abs(),
            "element {i}: {g:e}, expected {w:e}"
        );
    }
}

fn pack(ctx: &flashrt_exec::Context, c: &Case) -> PackedWeight {
    PackedWeight::from_bytes(ctx, "w", DType::F32, c.n, c.k, &f32_bytes(&c.w)).unwrap()
}

#[test]
fn plain_and_bias_products_on_sizes_that_no_tile_divides() {
    for (m, n, k) in [
        (1, 1, 1),
        (1, 288, 33),
        (2, 16, 5),
        (3, 17, 7),
        (5, 31, 1),
        (7, 33, 64),
        (13, 48, 19),
        (15, 6, 128),
        (16, 384, 128),
        (29, 65, 40),
        (64, 100, 3),
        (306, 16, 128),
        (101, 96, 96),
    ] {
        let c = case(m, n, k);
        for bias in [false, true] {
            let got = everywhere(|ctx| {
                let a = tensor(ctx, &[m, k], &c.a);
                let b = tensor(ctx, &[n], &c.bias);
                let w = pack(ctx, &c);
                let out = poisoned(ctx, &[m, n]);
                run(ctx, |r| {
                    matmul(r, &a, &w, bias.then_some(&b), Epilogue::None, &out)
                });
                out.download_f32(ctx).unwrap()
            });
            check(&got, reference(&c, bias).into_iter());
        }
    }
}

#[test]
fn every_epilogue_with_its_operands_also_in_place() {
    for (m, n, k) in [(9, 37, 20), (16, 64, 48), (31, 16, 96)] {
        let c = case(m, n, k);
        let reference = reference(&c, true);
        for which in 0..5 {
            for in_place in [false, true] {
                let got = everywhere(|ctx| {
                    let a = tensor(ctx, &[m, k], &c.a);
                    let b = tensor(ctx, &[n], &c.bias);
                    let gate = tensor(ctx, &[n], &c.gate);
                    let residual = tensor(ctx, &[m, n], &c.residual);
                    let w = pack(ctx, &c);
                    let out = if in_place && which >= 2 {
                        residual.clone()
                    } else {
                        poisoned(ctx, &[m, n])
                    };
                    let e = match which {
                        0 => Epilogue::GeluTanh,
                        1 => Epilogue::Silu,
                        2 => Epilogue::Residual(&residual),
                        3 => Epilogue::ResidualGate {
                            residual: &residual,
                            gate: &gate,
                        },
                        _ => Epilogue::GegluUp { gate: &residual },
                    };
                    run(ctx, |r| matmul(r, &a, &w, Some(&b), e, &out));
                    out.download_f32(ctx).unwrap()
                });
                let want = reference.iter().enumerate().map(|(i, &(y, e))| {
                    let x = f64::from(c.residual[i]);
                    let y = match which {
                        0 => gelu(y),
                        1 => silu(y),
                        2 => x + y,
                        3 => x + y * f64::from(c.gate[i % n]),
                        _ => gelu(x) * y,
                    };
                    (y, 1.2 * e)
                });
                check(&got, want);
            }
        }
    }
}

#[test]
fn a_fused_epilogue_gives_the_bits_of_the_separate_operations() {
    let c = case(19, 43, 24);
    let ctx = context(2);
    let a = tensor(&ctx, &[19, 24], &c.a);
    let x = tensor(&ctx, &[19, 43], &c.residual);
    let gate = tensor(&ctx, &[43], &c.gate);
    let w = pack(&ctx, &c);
    let [y, fused, apart] = [0; 3].map(|_| poisoned(&ctx, &[19, 43]));
    run(&ctx, |r| {
        matmul(r, &a, &w, None, Epilogue::None, &y)?;
        matmul(r, &a, &w, None, Epilogue::GegluUp { gate: &x }, &fused)?;
        flashrt_ops::geglu(r, &x, &y, &apart)
    });
    assert_eq!(
        fused.download_f32(&ctx).unwrap(),
        apart.download_f32(&ctx).unwrap()
    );
    run(&ctx, |r| {
        let e = Epilogue::ResidualGate {
            residual: &x,
            gate: &gate,
        };
        matmul(r, &a, &w, None, e, &fused)?;
        flashrt_ops::gated_residual(r, &x, &y, &gate, &apart)
    });
    assert_eq!(
        fused.download_f32(&ctx).unwrap(),
        apart.download_f32(&ctx).unwrap()
    );
}

#[test]
fn half_precision_weights_are_widened_exactly() {
    let c = case(5, 18, 12);
    let ctx = context(1);
    let a = tensor(&ctx, &[5, 12], &c.a);
    for dtype in [DType::F16, DType::BF16] {
        let (bytes, wide): (Vec<u8>, Vec<f32>) = match dtype {
            DType::F16 => (
                c.w.iter()
                    .flat_map(|v| f16::from_f32(*v).to_ne_bytes())
                    .collect(),
                c.w.iter().map(|v| f16::from_f32(*v).to_f32()).collect(),
            ),
            _ => (
                c.w.iter()
                    .flat_map(|v| bf16::from_f32(*v).to_ne_bytes())
                    .collect(),
                c.w.iter().map(|v| bf16::from_f32(*v).to_f32()).collect(),
            ),
        };
        // Through a tensor in the context's memory, and a weight with more than two dimensions.
        let half = PackedWeight::pack(&ctx, &raw(&ctx, dtype, &[18, 3, 4], &bytes)).unwrap();
        let full =
            PackedWeight::from_bytes(&ctx, "w", DType::F32, 18, 12, &f32_bytes(&wide)).unwrap();
        let [x, y] = [0; 2].map(|_| poisoned(&ctx, &[5, 18]));
        run(&ctx, |r| {
            matmul(r, &a, &half, None, Epilogue::None, &x)?;
            matmul(r, &a, &full, None, Epilogue::None, &y)
        });
        assert_eq!(x.download_f32(&ctx).unwrap(), y.download_f32(&ctx).unwrap());
        assert_eq!(
            (half.n(), half.k(), half.bytes()),
            (18, 12, 2 * 12 * 16 * 4)
        );
    }
}

#[test]
fn each_output_is_one_fused_chain_in_the_order_of_k() {
    let c = case(6, 21, 50);
    let got = everywhere(|ctx| {
        let a = tensor(ctx, &[6, 50], &c.a);
        let w = pack(ctx, &c);
        let out = poisoned(ctx, &[6, 21]);
        run(ctx, |r| matmul(r, &a, &w, None, Epilogue::None, &out));
        out.download_f32(ctx).unwrap()
    });
    for i in 0..6 {
        for j in 0..21 {
            let chain = (0..50).fold(0f32, |s, p| c.a[i * 50 + p].mul_add(c.w[j * 50 + p], s));
            assert_eq!(got[i * 21 + j].to_bits(), chain.to_bits());
        }
    }
}
