//! The gated delta rule and the causal convolution on one GPU: time, and error against the rule in float64.
//!
//! `cargo run --release -p flashrt-ops --example gpu_bench_delta`; the same shapes by another implementation:
//! `tools/gpu_suite/ref_delta.py`.
//!
//! An operation is captured several times in one graph over operands that rotate through more than twice the L2 cache; its time is the
//! replay's, from call to completion, divided by that number. Random data. Prints one JSON object.

use std::time::Instant;

use flashrt_exec::{Context, Recorder, Space, StreamId};
use flashrt_ops::*;
use half::bf16;

type Failure = Box<dyn std::error::Error>;

const S0: StreamId = StreamId(0);
const REPLAYS: usize = 200;
/// Heads whose errors are looked at: the reference is slow.
const CHECKED: usize = 2;

fn main() -> Result<(), Failure> {
    let mut b = Bench {
        ctx: Context::cuda(0)?,
        rows: Vec::new(),
        seed: 1,
    };
    prepare(&b.ctx, KernelSet::All)?;
    for (tokens, key_heads, value_heads, dim) in [
        (2048, 32, 32, 128),
        (2048, 16, 32, 128),
        (512, 32, 32, 128),
        (2048, 32, 32, 64),
    ] {
        let shape = DeltaShape {
            key_heads,
            value_heads,
            key_dim: dim,
            value_dim: dim,
            normalize: true,
            scale: 1.0 / (dim as f32).sqrt(),
        };
        b.prefill(&shape, tokens)?;
        if tokens == 2048 {
            b.step(&shape)?;
        }
    }
    for tokens in [2048, 1] {
        b.convolution(tokens, 8192)?;
    }
    println!(
        "{{\"bench\": \"gated delta rule\", \"device\": \"{}\", \"note\": \"error: relative L2 error against the recurrence in float64; \
         an output that is rounded to bf16 has 1.6e-3 by that alone\", \"rows\": [\n{}\n]}}",
        b.ctx.isa(),
        b.rows.join(",\n")
    );
    Ok(())
}

struct Bench {
    ctx: Context,
    rows: Vec<String>,
    seed: u64,
}

/// Operands of one call.
struct Set {
    qkv: Tensor,
    g: Tensor,
    beta: Tensor,
    state: Tensor,
    out: Tensor,
    scratch: Tensor,
}

impl Set {
    fn operands(&self) -> GatedDelta<'_> {
        GatedDelta {
            qkv: &self.qkv,
            g: &self.g,
            beta: &self.beta,
            state: &self.state,
            out: &self.out,
        }
    }
}

impl Bench {
    /// Uniform in [-1, 1), xorshift.
    fn unit(&mut self) -> f32 {
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        (self.seed >> 40) as f32 / 8_388_608.0 - 1.0
    }

    fn floats(&mut self, shape: &[usize], map: impl Fn(f32) -> f32) -> Result<Tensor, Failure> {
        let t = Tensor::alloc(&self.ctx, "bench", Space::Device, DType::F32, shape)?;
        let values: Vec<f32> = (0..t.numel()).map(|_| map(self.unit())).collect();
        t.upload_f32(&self.ctx, &values)?;
        Ok(t)
    }

    fn halves(&mut self, shape: &[usize]) -> Result<Tensor, Failure> {
        let t = Tensor::alloc(&self.ctx, "bench", Space::Device, DType::BF16, shape)?;
        let bytes: Vec<u8> = (0..t.numel())
            .flat_map(|_| bf16::from_f32(self.unit()).to_ne_bytes())
            .collect();
        self.ctx.upload(t.slice(), &bytes)?;
        Ok(t)
    }

    fn set(&mut self, s: &DeltaShape, tokens: usize, out: DType) -> Result<Set, Failure> {
        let heads = [tokens, s.value_heads];
        let scratch = [s.scratch(DType::BF16, tokens)];
        let of_out = [tokens, s.value_heads, s.value_dim];
        Ok(Set {
            qkv: self.halves(&[tokens, s.columns()])?,
            g: self.floats(&heads, |x| -x.abs())?,
            beta: self.floats(&heads, f32::abs)?,
            state: self.floats(&[s.value_heads, s.key_dim, s.value_dim], |x| x)?,
            out: Tensor::alloc(&self.ctx, "bench", Space::Device, out, &of_out)?,
            scratch: Tensor::alloc(&self.ctx, "bench", Space::Device, DType::F32, &scratch)?,
        })
    }

    /// Microseconds of one of `count` operations: p50, p99, max over the replays.
    fn time(
        &self,
        count: usize,
        record: impl Fn(&mut Recorder<'_>, usize) -> Result<(), Error>,
    ) -> Result<[f64; 3], Failure> {
        let graph = self.ctx.graph("bench", 0)?;
        graph.capture::<Error>(0, |r| (0..count).try_for_each(|i| record(r, i)))?;
        let mut times = Vec::new();
        for i in 0..REPLAYS + 10 {
            let begin = Instant::now();
            graph.replay(0, S0)?;
            self.ctx.synchronize(S0)?;
            if i >= 10 {
                times.push(begin.elapsed().as_secs_f64() * 1e6 / count as f64);
            }
        }
        times.sort_by(f64::total_cmp);
        let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
        Ok([at(0.5), at(0.99), at(1.0)])
    }

    fn row(&mut self, name: &str, shape: &str, [p50, p99, max]: [f64; 3], more: &str) {
        self.rows.push(format!(
            "{{\"name\": \"{name}\", \"shape\": \"{shape}\", \"dtype\": \"bf16\", \"us_p50\": {p50:.2}, \"us_p99\": {p99:.2}, \
             \"us_max\": {max:.2}, \"n\": {REPLAYS}{more}}}"
        ));
    }

    fn prefill(&mut self, s: &DeltaShape, tokens: usize) -> Result<(), Failure> {
        let exact = self.set(s, tokens, DType::F32)?;
        let (out, state) = self.reference(s, tokens, &exact)?;
        self.ctx
            .enqueue::<Error>(S0, |r| gated_delta(r, s, &exact.operands(), &exact.scratch))?;
        self.ctx.synchronize(S0)?;
        let got_out = exact.out.download_f32(&self.ctx)?;
        let got_state = exact.state.download_f32(&self.ctx)?;
        let width = CHECKED * s.value_dim;
        let checked: Vec<f32> = got_out
            .chunks(s.value_heads * s.value_dim)
            .flat_map(|row| row[..width].to_vec())
            .collect();
        let errors = format!(
            ", \"error_out\": {:.1e}, \"error_state\": {:.1e}",
            relative(&checked, &out),
            relative(&got_state[..state.len()], &state)
        );
        let sets = (0..4)
            .map(|_| self.set(s, tokens, DType::BF16))
            .collect::<Result<Vec<_>, _>>()?;
        let times = self.time(8, |r, i| {
            let set = &sets[i % 4];
            gated_delta(r, s, &set.operands(), &set.scratch)
        })?;
        self.row("gated_delta", &describe(s, tokens), times, &errors);
        Ok(())
    }

    fn step(&mut self, s: &DeltaShape) -> Result<(), Failure> {
        // 2 MiB of state each.
        let sets = (0..64)
            .map(|_| self.set(s, 1, DType::BF16))
            .collect::<Result<Vec<_>, _>>()?;
        let times = self.time(64, |r, i| gated_delta_steps(r, s, &sets[i].operands()))?;
        let bytes = 2 * s.value_heads * s.key_dim * s.value_dim * 4;
        let more = format!(", \"gb_per_s\": {:.0}", bytes as f64 / times[0] / 1e3);
        self.row("gated_delta_steps", &describe(s, 1), times, &more);
        Ok(())
    }

    fn convolution(&mut self, tokens: usize, channels: usize) -> Result<(), Failure> {
        let count = 8;
        let weight = self.floats(&[channels, CONV_TAPS], |x| x)?;
        let state = self.floats(&[channels, CONV_TAPS - 1], |x| x)?;
        let make = |b: &mut Bench| {
            (0..count)
                .map(|_| b.halves(&[tokens, channels]))
                .collect::<Result<Vec<_>, _>>()
        };
        let (x, out) = (make(self)?, make(self)?);
        let times = self.time(count, |r, i| {
            let operands = Conv1d {
                x: &x[i],
                weight: &weight,
                bias: None,
                state: &state,
                out: &out[i],
            };
            causal_conv1d(r, &operands, true)
        })?;
        let bytes = 4 * tokens * channels;
        let copy = self.time(count, |r, i| latch(r, &x[i], &out[i]))?;
        let more = format!(
            ", \"gb_per_s\": {:.0}, \"ratio\": {:.3}",
            bytes as f64 / times[0] / 1e3,
            copy[0] / times[0]
        );
        let shape = format!("{tokens} tokens of {channels} channels; ratio to a copy");
        self.row("causal_conv1d", &shape, times, &more);
        Ok(())
    }

    /// Outputs and final state of the first heads, token by token in float64.
    fn reference(
        &self,
        s: &DeltaShape,
        tokens: usize,
        set: &Set,
    ) -> Result<(Vec<f64>, Vec<f64>), Failure> {
        let mut bytes = vec![0; set.qkv.slice().bytes()];
        self.ctx.download(set.qkv.slice(), &mut bytes)?;
        let qkv: Vec<f64> = bytes
            .chunks(2)
            .map(|b| bf16::from_ne_bytes([b[0], b[1]]).to_f64())
            .collect();
        let g = set.g.download_f32(&self.ctx)?;
        let beta = set.beta.download_f32(&self.ctx)?;
        let (dk, dv) = (s.key_dim, s.value_dim);
        let state = set.state.download_f32(&self.ctx)?;
        let mut state: Vec<f64> = state[..CHECKED * dk * dv]
            .iter()
            .map(|x| f64::from(*x))
            .collect();
        let unit = |x: &[f64]| -> Vec<f64> {
            let norm = (x.iter().map(|x| x * x).sum::<f64>() + 1e-6).sqrt();
            x.iter().map(|x| x / norm).collect()
        };
        let mut out = Vec::new();
        for (t, row) in qkv.chunks(s.columns()).enumerate().take(tokens) {
            for h in 0..CHECKED {
                let at = h / (s.value_heads / s.key_heads) * dk;
                let q = unit(&row[at..at + dk]);
                let k = unit(&row[s.key_heads * dk + at..][..dk]);
                let v = &row[2 * s.key_heads * dk + h * dv..][..dv];
                let state = &mut state[h * dk * dv..(h + 1) * dk * dv];
                let decay = f64::from(g[t * s.value_heads + h]).exp();
                let mut change = v.to_vec();
                for (row, k) in state.chunks_mut(dv).zip(&k) {
                    for (s, c) in row.iter_mut().zip(&mut change) {
                        *s *= decay;
                        *c -= k * *s;
                    }
                }
                let beta = f64::from(beta[t * s.value_heads + h]);
                let mut o = vec![0.0; dv];
                let scale = f64::from(s.scale);
                for ((row, k), q) in state.chunks_mut(dv).zip(&k).zip(&q) {
                    for ((s, c), o) in row.iter_mut().zip(&change).zip(&mut o) {
                        *s += k * beta * c;
                        *o += q * *s * scale;
                    }
                }
                out.extend(o);
            }
        }
        Ok((out, state))
    }
}

fn describe(s: &DeltaShape, tokens: usize) -> String {
    format!(
        "{tokens} tokens, {}/{} heads, state {} x {}",
        s.key_heads, s.value_heads, s.key_dim, s.value_dim
    )
}

/// √(Σ(got - want)²/Σwant²)
fn relative(got: &[f32], want: &[f64]) -> f64 {
    let off: f64 = got
        .iter()
        .zip(want)
        .map(|(g, w)| (f64::from(*g) - w).powi(2))
        .sum();
    (off / want.iter().map(|w| w * w).sum::<f64>()).sqrt()
}
