//! The gated delta rule, the causal convolution and their gates against float64: f32 everywhere with equal bits, bf16 on CUDA.

mod common;

use common::{close, context, cuda, everywhere, f32_bytes, raw, refused, silu, tensor, Seed};
use flashrt_exec::{Context, Recorder, Space, StreamId};
use flashrt_ops::*;
use half::bf16;

/// Random inputs of the rule, as the numbers that the tensors hold.
struct Case {
    shape: DeltaShape,
    tokens: usize,
    qkv: Vec<f32>,
    g: Vec<f32>,
    beta: Vec<f32>,
    state: Vec<f32>,
}

impl Case {
    /// `forget`: decays are between e^-forget and 1.
    fn new(shape: DeltaShape, tokens: usize, forget: f32, dtype: DType, seed: &mut Seed) -> Case {
        let n = tokens * shape.value_heads;
        // Keys that are not normalised are short, else the rule itself diverges.
        let scale = if shape.normalize { 1.0 } else { 0.15 };
        let values = seed.scaled(tokens * shape.columns(), scale);
        Case {
            shape,
            tokens,
            qkv: match dtype {
                DType::F32 => values,
                _ => values.iter().map(|v| bf16::from_f32(*v).to_f32()).collect(),
            },
            g: (0..n).map(|_| -seed.unit().abs() * forget).collect(),
            beta: (0..n).map(|_| seed.unit().abs()).collect(),
            state: seed.values(shape.value_heads * shape.key_dim * shape.value_dim),
        }
    }

    /// (outputs, state) by the rule as it is written, in float64.
    fn want(&self) -> (Vec<f64>, Vec<f64>) {
        let s = &self.shape;
        let (dk, dv) = (s.key_dim, s.value_dim);
        let mut state: Vec<f64> = self.state.iter().map(|v| f64::from(*v)).collect();
        let mut out = vec![0.0; self.tokens * s.value_heads * dv];
        let vector = |row: &[f32], at: usize, n: usize| -> Vec<f64> {
            let v: Vec<f64> = row[at..at + n].iter().map(|v| f64::from(*v)).collect();
            let sum: f64 = v.iter().map(|x| x * x).sum();
            let by = if s.normalize {
                (sum + 1e-6).sqrt()
            } else {
                1.0
            };
            v.iter().map(|x| x / by).collect()
        };
        for t in 0..self.tokens {
            let row = &self.qkv[t * s.columns()..(t + 1) * s.columns()];
            for h in 0..s.value_heads {
                let kh = h / (s.value_heads / s.key_heads);
                let q = vector(row, kh * dk, dk);
                let k = vector(row, (s.key_heads + kh) * dk, dk);
                let v = &row[2 * s.key_heads * dk + h * dv..][..dv];
                let decay = f64::from(self.g[t * s.value_heads + h]).exp();
                let beta = f64::from(self.beta[t * s.value_heads + h]);
                let state = &mut state[h * dk * dv..(h + 1) * dk * dv];
                state.iter_mut().for_each(|x| *x *= decay);
                for c in 0..dv {
                    let seen: f64 = (0..dk).map(|d| k[d] * state[d * dv + c]).sum();
                    let change = beta * (f64::from(v[c]) - seen);
                    for d in 0..dk {
                        state[d * dv + c] += k[d] * change;
                    }
                    let o: f64 = (0..dk).map(|d| q[d] * state[d * dv + c]).sum();
                    out[(t * s.value_heads + h) * dv + c] = o * f64::from(s.scale);
                }
            }
        }
        (out, state)
    }

    /// Outputs, then state. The graph runs twice from the same state and gives the same; inputs stay.
    fn run(&self, ctx: &Context, dtype: DType, out_dtype: DType, is_chunked: bool) -> Vec<f32> {
        let s = &self.shape;
        let t = self.tokens;
        let bytes = encode(dtype, &self.qkv);
        let qkv = raw(ctx, dtype, &[t, s.columns()], &bytes);
        let g = tensor(ctx, &[t, s.value_heads], &self.g);
        let beta = tensor(ctx, &[t, s.value_heads], &self.beta);
        let state = tensor(ctx, &[s.value_heads, s.key_dim, s.value_dim], &self.state);
        let out = Tensor::alloc(
            ctx,
            "out",
            Space::Device,
            out_dtype,
            &[t, s.value_heads, s.value_dim],
        )
        .unwrap();
        let scratch = common::poisoned(ctx, &[s.scratch(dtype, t)]);
        let operands = GatedDelta {
            qkv: &qkv,
            g: &g,
            beta: &beta,
            state: &state,
            out: &out,
        };
        let run = replay_twice(
            ctx,
            |r| match is_chunked {
                true => gated_delta(r, s, &operands, &scratch),
                false => gated_delta_steps(r, s, &operands),
            },
            || {
                state.upload_f32(ctx, &self.state).unwrap();
                ctx.fill(out.slice(), 0xFF, StreamId(0)).unwrap();
            },
            || [download(ctx, &out), state.download_f32(ctx).unwrap()].concat(),
        );
        let mut after = vec![0; bytes.len()];
        ctx.download(qkv.slice(), &mut after).unwrap();
        assert!(after == bytes, "qkv changed");
        assert_eq!(g.download_f32(ctx).unwrap(), self.g);
        assert_eq!(beta.download_f32(ctx).unwrap(), self.beta);
        run
    }
}

fn encode(dtype: DType, values: &[f32]) -> Vec<u8> {
    match dtype {
        DType::F32 => f32_bytes(values),
        _ => values
            .iter()
            .flat_map(|v| bf16::from_f32(*v).to_ne_bytes())
            .collect(),
    }
}

fn download(ctx: &Context, t: &Tensor) -> Vec<f32> {
    if t.dtype() == DType::F32 {
        return t.download_f32(ctx).unwrap();
    }
    let mut bytes = vec![0; t.slice().bytes()];
    ctx.download(t.slice(), &mut bytes).unwrap();
    bytes
        .chunks(2)
        .map(|b| bf16::from_ne_bytes([b[0], b[1]]).to_f32())
        .collect()
}

/// Captures once, replays twice after `reset`, and demands the same results.
fn replay_twice(
    ctx: &Context,
    record: impl FnOnce(&mut Recorder<'_>) -> Result<(), Error>,
    reset: impl Fn(),
    read: impl Fn() -> Vec<f32>,
) -> Vec<f32> {
    let graph = ctx.graph("delta", 0).unwrap();
    graph.capture(0, record).unwrap();
    let once = || {
        reset();
        graph.replay(0, StreamId(0)).unwrap();
        ctx.synchronize(StreamId(0)).unwrap();
        read()
    };
    let (first, second) = (once(), once());
    let bits = |v: &[f32]| v.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    assert!(bits(&first) == bits(&second), "another replay, other bits");
    first
}

/// √(Σ(got - want)²/Σwant²)
fn relative(got: &[f32], want: &[f64]) -> f64 {
    assert_eq!(got.len(), want.len());
    let sum = |f: &dyn Fn(usize) -> f64| (0..want.len()).map(|i| f(i).powi(2)).sum::<f64>();
    (sum(&|i| f64::from(got[i]) - want[i]) / sum(&|i| want[i])).sqrt()
}

fn shape(key_heads: usize, value_heads: usize, key_dim: usize, value_dim: usize) -> DeltaShape {
    DeltaShape {
        key_heads,
        value_heads,
        key_dim,
        value_dim,
        normalize: true,
        scale: 1.0 / (key_dim as f32).sqrt(),
    }
}

#[test]
fn f32_in_chunks_and_in_steps_on_odd_sizes() {
    let mut seed = Seed(41);
    for (s, tokens, forget) in [
        (shape(1, 1, 1, 1), 1, 1.0),
        (shape(2, 4, 16, 16), 70, 0.5),
        (shape(2, 2, 7, 19), 63, 0.1),
        (shape(1, 3, 33, 5), 64, 3.0),
        (shape(2, 4, 64, 40), 65, 0.02),
        (shape(1, 2, 12, 33), 150, 40.0),
        (
            DeltaShape {
                normalize: false,
                scale: 1.0,
                ..shape(2, 4, 24, 16)
            },
            90,
            0.3,
        ),
    ] {
        let case = Case::new(s, tokens, forget, DType::F32, &mut seed);
        let (out, state) = case.want();
        for is_chunked in [true, false] {
            let got = everywhere(|ctx| case.run(ctx, DType::F32, DType::F32, is_chunked));
            let (got_out, got_state) = got.split_at(out.len());
            let errors = (relative(got_out, &out), relative(got_state, &state));
            assert!(
                // A chunk takes differences of sums of g, which are large where decays are.
                errors.0 < 1e-5 && errors.1 < 2e-6,
                "{s:?} {tokens} {is_chunked}: {errors:?}"
            );
        }
    }
}

#[test]
fn bf16_in_chunks_and_in_steps() {
    let Some(ctx) = cuda() else { return };
    let mut seed = Seed(42);
    for (s, tokens, forget) in [
        (shape(1, 1, 128, 32), 1, 1.0),
        (shape(2, 4, 128, 128), 63, 1.0),
        (shape(2, 4, 128, 96), 64, 0.02),
        (shape(2, 2, 64, 64), 65, 0.02),
        (shape(4, 8, 128, 128), 513, 0.1),
        (shape(2, 4, 64, 128), 300, 40.0),
        (
            DeltaShape {
                normalize: false,
                ..shape(1, 2, 128, 64)
            },
            130,
            2.0,
        ),
    ] {
        let case = Case::new(s, tokens, forget, DType::BF16, &mut seed);
        let (out, state) = case.want();
        for is_chunked in [true, false] {
            for (out_dtype, limit) in [(DType::F32, 1e-4), (DType::BF16, 2.5e-3)] {
                let got = case.run(&ctx, DType::BF16, out_dtype, is_chunked);
                let (got_out, got_state) = got.split_at(out.len());
                let errors = (relative(got_out, &out), relative(got_state, &state));
                // An output in bf16 has its rounding, of about 1.6e-3.
                assert!(
                    errors.0 < limit && errors.1 < 1e-4,
                    "{s:?} {tokens} {is_chunked} {out_dtype}: {errors:?}"
                );
            }
        }
    }
}

#[test]
fn a_prompt_may_be_given_in_pieces() {
    let mut seed = Seed(43);
    let s = shape(1, 2, 16, 16);
    let whole = Case::new(s, 100, 0.2, DType::F32, &mut seed);
    let (out, state) = whole.want();
    let piece = |from: usize, to: usize, state: &[f32]| Case {
        shape: s,
        tokens: to - from,
        qkv: whole.qkv[from * s.columns()..to * s.columns()].to_vec(),
        g: whole.g[from * 2..to * 2].to_vec(),
        beta: whole.beta[from * 2..to * 2].to_vec(),
        state: state.to_vec(),
    };
    let got = everywhere(|ctx| {
        let (mut got, mut state) = (Vec::new(), whole.state.clone());
        for (from, to, is_chunked) in [(0, 30, true), (30, 31, false), (31, 100, true)] {
            let now = piece(from, to, &state).run(ctx, DType::F32, DType::F32, is_chunked);
            let at = (to - from) * 2 * 16;
            got.extend_from_slice(&now[..at]);
            state = now[at..].to_vec();
        }
        got.extend(state);
        got
    });
    assert!(relative(&got[..out.len()], &out) < 2e-6);
    assert!(relative(&got[out.len()..], &state) < 2e-6);
}

/// Output, then state, of the convolution.
fn convolve(
    ctx: &Context,
    dtype: DType,
    t: usize,
    c: usize,
    in_: &[Vec<f32>; 4],
    is_silu: bool,
) -> Vec<f32> {
    let [x, weight, bias, state] = in_;
    let x = raw(ctx, dtype, &[t, c], &encode(dtype, x));
    let weight = tensor(ctx, &[c, CONV_TAPS], weight);
    let bias = tensor(ctx, &[c], bias);
    let kept = tensor(ctx, &[c, CONV_TAPS - 1], state);
    let out = Tensor::alloc(ctx, "out", Space::Device, dtype, &[t, c]).unwrap();
    let operands = Conv1d {
        x: &x,
        weight: &weight,
        bias: is_silu.then_some(&bias),
        state: &kept,
        out: &out,
    };
    replay_twice(
        ctx,
        |r| causal_conv1d(r, &operands, is_silu),
        || {
            kept.upload_f32(ctx, state).unwrap();
            ctx.fill(out.slice(), 0xFF, StreamId(0)).unwrap();
        },
        || [download(ctx, &out), kept.download_f32(ctx).unwrap()].concat(),
    )
}

#[test]
fn the_convolution_sees_the_three_tokens_before() {
    let mut seed = Seed(44);
    for dtype in [DType::F32, DType::BF16] {
        let ctx = cuda();
        if dtype == DType::BF16 && ctx.is_none() {
            return;
        }
        for (t, c, is_silu) in [
            (1, 1, false),
            (1, 33, true),
            (2, 128, true),
            (3, 17, false),
            (16, 64, true),
            (37, 200, true),
        ] {
            let round = |v: Vec<f32>| match dtype {
                DType::F32 => v,
                _ => v.iter().map(|x| bf16::from_f32(*x).to_f32()).collect(),
            };
            let inputs = [
                round(seed.values(t * c)),
                seed.values(c * CONV_TAPS),
                seed.values(c),
                round(seed.values(c * 3)),
            ];
            let [x, weight, bias, state] = &inputs;
            // Three rows of state, then x.
            let at = |token: usize, channel: usize| match token {
                0..=2 => state[channel * 3 + token],
                _ => x[(token - 3) * c + channel],
            };
            let mut want = Vec::new();
            for token in 0..t {
                for channel in 0..c {
                    let tap =
                        |j| f64::from(at(token + j, channel)) * f64::from(weight[channel * 4 + j]);
                    let mut y: f64 = (0..4).map(tap).sum();
                    if is_silu {
                        y = silu(y + f64::from(bias[channel]));
                    }
                    want.push(y);
                }
            }
            let got = match dtype {
                DType::F32 => everywhere(|ctx| convolve(ctx, dtype, t, c, &inputs, is_silu)),
                _ => convolve(ctx.as_ref().unwrap(), dtype, t, c, &inputs, is_silu),
            };
            let relative = if dtype == DType::F32 { 1e-6 } else { 4e-3 };
            close(&got[..t * c], &want, 1e-6, relative);
            for channel in 0..c {
                for j in 0..3 {
                    assert_eq!(got[t * c + channel * 3 + j], at(t + j, channel));
                }
            }
        }
    }
}

#[test]
fn gates_match_f64() {
    let mut seed = Seed(45);
    for (rows, cols) in [(1, 1), (5, 16), (7, 33), (40, 128)] {
        let n = rows * cols;
        let (x, gate) = (seed.scaled(n, 3.0), seed.scaled(n, 8.0));
        let (weight, bias) = (seed.values(cols), seed.scaled(cols, 3.0));
        let wide = |v: &[f32]| v.iter().map(|x| f64::from(*x)).collect::<Vec<f64>>();
        let (xs, gates, weights, biases) = (wide(&x), wide(&gate), wide(&weight), wide(&bias));
        let got = everywhere(|ctx| {
            let (x, gate) = (
                tensor(ctx, &[rows, cols], &x),
                tensor(ctx, &[rows, cols], &gate),
            );
            let (weight, bias) = (tensor(ctx, &[cols], &weight), tensor(ctx, &[cols], &bias));
            let out: Vec<Tensor> = (0..5)
                .map(|_| common::poisoned(ctx, &[rows, cols]))
                .collect();
            let delta = DeltaGates {
                a: &gate,
                b: &x,
                a_log: &weight,
                dt_bias: &bias,
                g: &out[3],
                beta: &out[4],
            };
            common::run(ctx, |r| {
                sigmoid_gate(r, &x, &gate, &out[0])?;
                silu_gate(r, &x, &gate, &out[1])?;
                gated_rms_norm(r, &x, &weight, &gate, 1e-6, &out[2])?;
                delta_gates(r, &delta)
            });
            out.iter()
                .flat_map(|t| t.download_f32(ctx).unwrap())
                .collect()
        });
        let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
        let norm = |i: usize| {
            let row = &xs[i / cols * cols..][..cols];
            let mean = row.iter().map(|x| x * x).sum::<f64>() / cols as f64;
            xs[i] / (mean + 1e-6).sqrt() * weights[i % cols] * silu(gates[i])
        };
        let forget =
            |i: usize| -weights[i % cols].exp() * (gates[i] + biases[i % cols]).exp().ln_1p();
        let each = |f: &dyn Fn(usize) -> f64| (0..n).map(f).collect::<Vec<f64>>();
        let want = [
            each(&|i| xs[i] * sigmoid(gates[i])),
            each(&|i| xs[i] * silu(gates[i])),
            each(&norm),
            each(&forget),
            each(&|i| sigmoid(xs[i])),
        ];
        for (got, want) in got.chunks(n).zip(&want) {
            close(got, want, 1e-6, 2e-6);
        }
    }
}

#[test]
fn gates_in_bf16() {
    let Some(ctx) = cuda() else { return };
    let mut seed = Seed(46);
    let (rows, cols) = (9, 128);
    let n = rows * cols;
    let values = |seed: &mut Seed| -> Vec<f32> {
        let v = seed.scaled(n, 3.0);
        v.iter().map(|x| bf16::from_f32(*x).to_f32()).collect()
    };
    let (x, gate, weight) = (values(&mut seed), values(&mut seed), seed.values(cols));
    let half = |v: &[f32]| raw(&ctx, DType::BF16, &[rows, cols], &encode(DType::BF16, v));
    let (xt, gt, wt) = (half(&x), half(&gate), tensor(&ctx, &[cols], &weight));
    let out = [half(&x), half(&x), half(&x)];
    common::run(&ctx, |r| {
        sigmoid_gate(r, &xt, &gt, &out[0])?;
        silu_gate(r, &xt, &gt, &out[1])?;
        gated_rms_norm(r, &xt, &wt, &gt, 1e-6, &out[2])
    });
    for i in 0..n {
        let (v, g) = (f64::from(x[i]), f64::from(gate[i]));
        let row = &x[i / cols * cols..][..cols];
        let mean = row.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() / cols as f64;
        let want = [
            v / (1.0 + (-g).exp()),
            v * silu(g),
            v / (mean + 1e-6).sqrt() * f64::from(weight[i % cols]) * silu(g),
        ];
        for (t, want) in out.iter().zip(want) {
            let got = f64::from(download(&ctx, t)[i]);
            assert!(
                (got - want).abs() <= 1e-6 + 4e-3 * want.abs(),
                "{i}: {got}, expected {want}"
            );
        }
    }
}

#[test]
fn a_part_of_each_head_is_rotated() {
    let mut seed = Seed(47);
    let (rows, heads, dim, part) = (5, 3, 32, 8);
    let x = seed.values(rows * heads * dim);
    let positions: Vec<i32> = (0..rows as i32).map(|i| i * 7).collect();
    let got = everywhere(|ctx| {
        let t = tensor(ctx, &[rows, heads, dim], &x);
        let table = common::poisoned(ctx, &[rows, part]);
        let positions = common::ints(ctx, &positions);
        common::run(ctx, |r| {
            rope_table(r, &positions, 10_000.0, &table)?;
            rope(r, &t, &table, &t)
        });
        t.download_f32(ctx).unwrap()
    });
    let mut want: Vec<f64> = x.iter().map(|v| f64::from(*v)).collect();
    for (row, position) in positions.iter().enumerate() {
        for head in 0..heads {
            let at = (row * heads + head) * dim;
            for j in 0..part / 2 {
                let angle = f64::from(*position) * 10_000f64.powf(-((2 * j) as f64) / part as f64);
                let (a, b) = (want[at + j], want[at + j + part / 2]);
                want[at + j] = a * angle.cos() - b * angle.sin();
                want[at + j + part / 2] = b * angle.cos() + a * angle.sin();
            }
        }
    }
    close(&got, &want, 1e-5, 0.0);
}

#[test]
fn bad_operands_are_refused_by_name() {
    let ctx = context(1);
    let s = shape(2, 4, 8, 8);
    let f = |shape: &[usize]| common::poisoned(&ctx, shape);
    let (qkv, g, beta) = (f(&[3, s.columns()]), f(&[3, 4]), f(&[3, 4]));
    let (state, out) = (f(&[4, 8, 8]), f(&[3, 4, 8]));
    let good = GatedDelta {
        qkv: &qkv,
        g: &g,
        beta: &beta,
        state: &state,
        out: &out,
    };
    let scratch = f(&[s.scratch(DType::F32, 3)]);
    let says = |shape: &DeltaShape, t: GatedDelta<'_>, scratch: &Tensor, word: &str| {
        let text = refused(&ctx, |r| gated_delta(r, shape, &t, scratch));
        assert!(
            text.starts_with("gated_delta: ") && text.contains(word),
            "{text}"
        );
    };
    let odd = DeltaShape { key_heads: 3, ..s };
    says(&odd, good, &scratch, "multiple of key_heads");
    let none = DeltaShape { key_dim: 0, ..s };
    says(&none, good, &scratch, "dimensions above 0");
    let scale = DeltaShape {
        scale: f32::NAN,
        ..s
    };
    says(&scale, good, &scratch, "scale");
    says(&s, good, &f(&[1]), "scratch");
    says(&s, GatedDelta { qkv: &g, ..good }, &scratch, "qkv");
    says(&s, GatedDelta { g: &qkv, ..good }, &scratch, "g has shape");
    says(&s, GatedDelta { beta: &qkv, ..good }, &scratch, "beta");
    says(&s, GatedDelta { state: &g, ..good }, &scratch, "state");
    says(&s, GatedDelta { out: &g, ..good }, &scratch, "out");
    let half = raw(
        &ctx,
        DType::BF16,
        &[3, s.columns()],
        &vec![0; 6 * s.columns()],
    );
    says(
        &s,
        GatedDelta { qkv: &half, ..good },
        &scratch,
        "bf16 on cuda only",
    );
    let inside = state.view(&[8, 4, 8]).unwrap().rows(0..3).unwrap();
    says(
        &s,
        GatedDelta {
            out: &inside,
            ..good
        },
        &scratch,
        "overlaps",
    );

    let (x, w, kept) = (f(&[3, 8]), f(&[8, 4]), f(&[8, 3]));
    let conv = Conv1d {
        x: &x,
        weight: &w,
        bias: None,
        state: &kept,
        out: &x,
    };
    let text = refused(&ctx, |r| causal_conv1d(r, &conv, true));
    assert!(text.contains("out overlaps x"), "{text}");
    let text = refused(&ctx, |r| {
        causal_conv1d(r, &Conv1d { state: &w, ..conv }, true)
    });
    assert!(
        text.contains("state has shape [8, 4], expected [8, 3]"),
        "{text}"
    );
    let text = refused(&ctx, |r| sigmoid_gate(r, &x, &w, &x));
    assert!(text.contains("gate has shape"), "{text}");
    let table = f(&[3, 4]);
    let (heads, other) = (f(&[3, 1, 8]), f(&[3, 1, 8]));
    let text = refused(&ctx, |r| rope(r, &heads, &table, &other));
    assert!(text.contains("out is another tensor"), "{text}");
}
