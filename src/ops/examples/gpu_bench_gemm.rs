//! Matrix products of a π0.5 prefix, by a tuned plan. `tools/gpu_suite/ref_gemm.py` is PyTorch's side.
//!
//! `cargo run --release -p flashrt-ops --example gpu_bench_gemm`
//!
//! Products are captured many times in one graph over rotating operands; one's time is the replay's divided by their number. Prints
//! one JSON object.

use std::time::Instant;

use flashrt_exec::{Context, Space, StreamId};
use flashrt_ops::{DType, Error, GemmPlan, GemmShape, Tensor};

type Failure = Box<dyn std::error::Error>;

const S0: StreamId = StreamId(0);
const COUNT: usize = 16;
const REPLAYS: usize = 100;

fn main() -> Result<(), Failure> {
    let ctx = Context::cuda(0)?;
    let mut rows = Vec::new();
    for (m, n, k) in [
        (712, 16_384, 2048),
        (712, 2048, 16_384),
        (712, 2048, 2048),
        (10, 4096, 1024),
    ] {
        let dtype = DType::BF16;
        let plan = GemmPlan::tune(&ctx, GemmShape { m, n, k, dtype })?;
        let tensor = |shape: &[usize]| {
            let t = Tensor::alloc(&ctx, "bench", Space::Device, dtype, shape)?;
            // Random bits of ordinary exponents: the power that a product draws depends on its operands.
            let mut x = 1u64;
            let bytes: Vec<u8> = (0..t.numel())
                .flat_map(|_| {
                    x = x
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1_442_695_040_888_963_407);
                    (0x3C00u16 | ((x >> 40) as u16 & 0x83FF)).to_ne_bytes()
                })
                .collect();
            ctx.upload(t.slice(), &bytes)?;
            Ok::<_, Error>(t)
        };
        let sets = (0..4)
            .map(|_| Ok((tensor(&[m, k])?, tensor(&[n, k])?, tensor(&[m, n])?)))
            .collect::<Result<Vec<_>, Error>>()?;
        let graph = ctx.graph("bench", 0)?;
        graph.capture::<Error>(0, |r| {
            (0..COUNT).try_for_each(|i| {
                let (x, w, out) = &sets[i % 4];
                plan.record(r, x, w, false, out)
            })
        })?;
        let mut times = Vec::new();
        for i in 0..REPLAYS + 20 {
            let begin = Instant::now();
            graph.replay(0, S0)?;
            ctx.synchronize(S0)?;
            if i >= 20 {
                times.push(begin.elapsed().as_secs_f64() * 1e6 / COUNT as f64);
            }
        }
        times.sort_by(f64::total_cmp);
        let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
        rows.push(format!(
            "{{\"name\": \"gemm\", \"shape\": \"[{m}, {k}] x [{n}, {k}]\", \"dtype\": \"bf16\", \"us_p50\": {:.1}, \"us_p99\": {:.1}, \
             \"us_max\": {:.1}, \"n\": {REPLAYS}, \"tflop_per_s\": {:.1}}}",
            at(0.5),
            at(0.99),
            at(1.0),
            2.0 * (m * n * k) as f64 / at(0.5) / 1e6
        ));
    }
    println!(
        "{{\"bench\": \"matrix products by cuBLASLt\", \"device\": \"{}\", \"rows\": [\n{}\n]}}",
        ctx.isa(),
        rows.join(",\n")
    );
    Ok(())
}
