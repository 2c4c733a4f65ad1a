//! Attention in bf16: prefill against the arithmetic, decode against the bytes of its cache.
//!
//! `cargo run --release -p flashrt-ops --example gpu_bench_attention`
//!
//! An operation is captured many times in one graph; its time is the replay's, from call to completion, divided by that number.
//! Decode steps rotate through caches of more than twice the L2 cache together. FLOPs are 4·M·N·Hq·D, half of it under a causal mask.
//! Prints one JSON object; `tools/gpu_suite/ref_attention.py` prints PyTorch's for the same shapes.

use std::time::Instant;

use flashrt_exec::{Context, Recorder, Space, StreamId};
use flashrt_ops::*;

type Failure = Box<dyn std::error::Error>;

const S0: StreamId = StreamId(0);
/// Bytes that caches rotate through.
const ROTATE: usize = 150 << 20;

/// [M, Hq, Hkv, N, D], causal, operations a graph, replays.
const PREFILL: [([usize; 5], bool, usize, usize); 6] = [
    ([712, 8, 1, 712, 256], false, 20, 200),
    ([968, 8, 1, 968, 256], true, 20, 200),
    ([256, 16, 16, 256, 72], false, 20, 200),
    ([1024, 16, 4, 1024, 64], true, 20, 200),
    ([2048, 32, 8, 2048, 128], true, 10, 200),
    ([16_384, 16, 4, 16_384, 256], true, 1, 20),
];

/// M, Hq, Hkv, N, D.
const DECODE: [(usize, usize, usize, usize, usize); 6] = [
    (1, 32, 8, 8192, 128),
    (1, 8, 1, 32_768, 256),
    (4, 16, 2, 16_384, 256),
    (16, 32, 8, 16_384, 128),
    (1, 16, 16, 4096, 64),
    (10, 8, 1, 968, 256),
];

fn main() -> Result<(), Failure> {
    let ctx = Context::cuda(0)?;
    prepare(&ctx, KernelSet::All)?;
    let mut rows = Vec::new();
    for ([m, hq, hkv, n, d], causal, count, replays) in PREFILL {
        let (q, out) = (random(&ctx, &[m, hq, d])?, random(&ctx, &[m, hq, d])?);
        let (k, v) = (random(&ctx, &[n, hkv, d])?, random(&ctx, &[n, hkv, d])?);
        let scratch = scratch(&ctx, m, hq, hkv, d, n)?;
        let within = Within {
            causal: if causal { Causal::Last } else { Causal::No },
            scratch: scratch.as_ref(),
            ..Within::default()
        };
        let part = KvPart {
            k: &k,
            v: &v,
            mask: None,
        };
        let scale = (d as f32).powf(-0.5);
        let times = time(&ctx, count, replays, |r, _| {
            attention_within(r, &q, &[part], scale, within, &out)
        })?;
        let flop = 4.0 * (m * n * hq * d) as f64 / if causal { 2.0 } else { 1.0 };
        let name = if causal { "prefill causal" } else { "prefill" };
        let rate = format!("\"tflops\": {:.0}", flop / times[0] / 1e6);
        rows.push(row(name, [m, hq, hkv, n, d], times, replays, &rate));
    }
    for (m, hq, hkv, n, d) in DECODE {
        let bytes = 2 * n * hkv * d * 2;
        let caches = (ROTATE / bytes).clamp(2, 48);
        let (q, out) = (random(&ctx, &[m, hq, d])?, random(&ctx, &[m, hq, d])?);
        let scratch = scratch(&ctx, m, hq, hkv, d, n)?;
        let kv = (0..caches)
            .map(|_| Ok((random(&ctx, &[n, hkv, d])?, random(&ctx, &[n, hkv, d])?)))
            .collect::<Result<Vec<_>, Failure>>()?;
        let within = Within {
            scratch: scratch.as_ref(),
            ..Within::default()
        };
        let scale = (d as f32).powf(-0.5);
        let times = time(&ctx, caches, 200, |r, i| {
            let (k, v) = &kv[i];
            attention_within(r, &q, &[KvPart { k, v, mask: None }], scale, within, &out)
        })?;
        let rate = format!("\"gb_per_s\": {:.0}", bytes as f64 / times[0] / 1e3);
        rows.push(row("decode", [m, hq, hkv, n, d], times, 200, &rate));
    }
    println!(
        "{{\"bench\": \"attention\", \"device\": \"{}\", \"rows\": [\n{}\n]}}",
        ctx.isa(),
        rows.join(",\n")
    );
    Ok(())
}

/// bf16 numbers between -1 and 1.
fn random(ctx: &Context, shape: &[usize]) -> Result<Tensor, Failure> {
    let t = Tensor::alloc(ctx, "bench", Space::Device, DType::BF16, shape)?;
    let mut state = t.slice().as_ptr() as u32 | 1;
    let bytes: Vec<u8> = (0..t.numel())
        .flat_map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let value = (state >> 8) as f32 / 8_388_608.0 - 1.0;
            ((value.to_bits() >> 16) as u16).to_ne_bytes()
        })
        .collect();
    ctx.upload(t.slice(), &bytes)?;
    Ok(t)
}

fn scratch(
    ctx: &Context,
    m: usize,
    hq: usize,
    hkv: usize,
    d: usize,
    keys: usize,
) -> Result<Option<Tensor>, Failure> {
    Ok(match attention_scratch(m, hq, hkv, d, keys) {
        0 => None,
        n => Some(Tensor::alloc(
            ctx,
            "scratch",
            Space::Device,
            DType::F32,
            &[n],
        )?),
    })
}

/// Microseconds of one of `count` operations: p50, p99, max over the replays.
fn time(
    ctx: &Context,
    count: usize,
    replays: usize,
    record: impl Fn(&mut Recorder<'_>, usize) -> Result<(), Error>,
) -> Result<[f64; 3], Failure> {
    let graph = ctx.graph("bench", 0)?;
    graph.capture::<Error>(0, |r| (0..count).try_for_each(|i| record(r, i)))?;
    let mut times = Vec::new();
    for i in 0..replays + 10 {
        let begin = Instant::now();
        graph.replay(0, S0)?;
        ctx.synchronize(S0)?;
        if i >= 10 {
            times.push(begin.elapsed().as_secs_f64() * 1e6 / count as f64);
        }
    }
    times.sort_by(f64::total_cmp);
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
    Ok([at(0.5), at(0.99), at(1.0)])
}

fn row(
    name: &str,
    [m, hq, hkv, n, d]: [usize; 5],
    [p50, p99, max]: [f64; 3],
    replays: usize,
    rate: &str,
) -> String {
    format!(
        "{{\"name\": \"{name}\", \"shape\": \"{m} of {n} keys, {hq}/{hkv} heads of {d}\", \"dtype\": \"bf16\", \
         \"us_p50\": {p50:.2}, \"us_p99\": {p99:.2}, \"us_max\": {max:.2}, \"n\": {replays}, {rate}}}"
    )
}
