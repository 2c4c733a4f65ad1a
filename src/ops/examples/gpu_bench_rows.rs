//! Bandwidth of the operations that are bound by it, against a device copy of as many bytes, in one run on one GPU.
//!
//! `cargo run --release -p flashrt-ops --example gpu_bench_rows`
//!
//! An operation is captured many times in one graph, over operands that rotate through more than twice the L2 cache; its time is the
//! replay's, from call to completion, divided by that number. Bytes are those that it must read and write; a copy reads and writes
//! its bytes. Prints one JSON object.

use std::time::Instant;

use flashrt_exec::{Context, Recorder, Space, StreamId};
use flashrt_ops::*;

type Failure = Box<dyn std::error::Error>;

const S0: StreamId = StreamId(0);
/// Bytes that operands rotate through.
const ROTATE: usize = 256 << 20;
const REPLAYS: usize = 200;

struct Bench {
    ctx: Context,
    rows: Vec<String>,
}

fn main() -> Result<(), Failure> {
    let mut b = Bench {
        ctx: Context::cuda(0)?,
        rows: Vec::new(),
    };
    prepare(&b.ctx, KernelSet::All)?;
    for mib in [8, 64] {
        let ceiling = b.copy(mib << 20)?;
        for dtype in [DType::BF16, DType::F16] {
            b.elementwise(mib << 20, dtype, ceiling)?;
        }
    }
    let ceiling = b.copy(64 << 20)?;
    for (n, k) in [(12_288, 4096), (4096, 12_288), (4096, 4096), (1024, 2048)] {
        for rows in [1, 4] {
            b.gemv(rows, n, k, ceiling)?;
        }
    }
    println!(
        "{{\"bench\": \"kernels bound by bandwidth\", \"device\": \"{}\", \"note\": \"ratio: GB/s of the operation over GB/s of the copy\", \"rows\": [\n{}\n]}}",
        b.ctx.isa(),
        b.rows.join(",\n")
    );
    Ok(())
}

impl Bench {
    fn tensor(&self, dtype: DType, shape: &[usize]) -> Result<Tensor, Failure> {
        let t = Tensor::alloc(&self.ctx, "bench", Space::Device, dtype, shape)?;
        // Some pattern of ordinary numbers: 0x3C3C is about 1 in f16 and 0.01 in bf16.
        self.ctx.fill(t.slice(), 0x3C, S0)?;
        Ok(t)
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

    fn row(
        &mut self,
        name: &str,
        shape: &str,
        dtype: &str,
        bytes: usize,
        [p50, p99, max]: [f64; 3],
        ceiling: Option<f64>,
    ) -> f64 {
        let rate = bytes as f64 / p50 / 1e3;
        let ratio = ceiling.map_or(String::new(), |c| format!(", \"ratio\": {:.3}", rate / c));
        self.rows.push(format!(
            "{{\"name\": \"{name}\", \"shape\": \"{shape}\", \"dtype\": \"{dtype}\", \"us_p50\": {p50:.2}, \"us_p99\": {p99:.2}, \
             \"us_max\": {max:.2}, \"n\": {REPLAYS}, \"gb_per_s\": {rate:.0}{ratio}}}"
        ));
        rate
    }

    /// GB/s of a device copy of `bytes`, read and written.
    fn copy(&mut self, bytes: usize) -> Result<f64, Failure> {
        let count = ROTATE / bytes;
        let make = || {
            (0..count)
                .map(|_| self.tensor(DType::U8, &[bytes]))
                .collect::<Result<Vec<_>, _>>()
        };
        let (from, to) = (make()?, make()?);
        let times = self.time(count, |r, i| latch(r, &from[i], &to[i]))?;
        Ok(self.row(
            "copy",
            &format!("{} MiB", bytes >> 20),
            "",
            2 * bytes,
            times,
            None,
        ))
    }

    fn elementwise(&mut self, bytes: usize, dtype: DType, ceiling: f64) -> Result<(), Failure> {
        let (cols, count) = (4096, ROTATE / bytes);
        let rows = bytes / dtype.bytes() / cols;
        let make = || {
            (0..count)
                .map(|_| self.tensor(dtype, &[rows, cols]))
                .collect::<Result<Vec<_>, _>>()
        };
        let (x, y, out) = (make()?, make()?, make()?);
        let shape = format!("[{rows}, {cols}]");
        let weight = self.tensor(DType::F32, &[cols])?;
        let style = self.tensor(DType::F32, &[3 * cols])?;
        let name = dtype.to_string();
        let times = self.time(count, |r, i| rms_norm(r, &x[i], &weight, 1e-6, &out[i]))?;
        self.row("rms_norm", &shape, &name, 2 * bytes, times, Some(ceiling));
        let times = self.time(count, |r, i| {
            layer_norm(r, &x[i], &weight, &weight, 1e-6, &out[i])
        })?;
        self.row("layer_norm", &shape, &name, 2 * bytes, times, Some(ceiling));
        let times = self.time(count, |r, i| ada_rms_norm(r, &x[i], &style, 1e-6, &out[i]))?;
        self.row(
            "ada_rms_norm",
            &shape,
            &name,
            2 * bytes,
            times,
            Some(ceiling),
        );
        let times = self.time(count, |r, i| silu(r, &x[i], &out[i]))?;
        self.row("silu", &shape, &name, 2 * bytes, times, Some(ceiling));
        let times = self.time(count, |r, i| gelu_tanh(r, &x[i], &out[i]))?;
        self.row("gelu_tanh", &shape, &name, 2 * bytes, times, Some(ceiling));
        let times = self.time(count, |r, i| geglu(r, &x[i], &y[i], &out[i]))?;
        self.row("geglu", &shape, &name, 3 * bytes, times, Some(ceiling));
        let times = self.time(count, |r, i| residual_add(r, &x[i], &y[i], &out[i]))?;
        self.row(
            "residual_add",
            &shape,
            &name,
            3 * bytes,
            times,
            Some(ceiling),
        );
        let (heads, d) = (32, 128);
        let table = self.tensor(DType::F32, &[rows, d])?;
        let heads_of = |t: &Tensor| t.view(&[rows, heads, d]);
        let times = self.time(count, |r, i| {
            rope(r, &heads_of(&x[i])?, &table, &heads_of(&out[i])?)
        })?;
        self.row(
            "rope",
            &format!("[{rows}, {heads}, {d}]"),
            &name,
            2 * bytes + rows * d * 4,
            times,
            Some(ceiling),
        );
        Ok(())
    }

    fn gemv(&mut self, rows: usize, n: usize, k: usize, ceiling: f64) -> Result<(), Failure> {
        let bytes = n * k * 2;
        let count = (2 * ROTATE / bytes).max(4);
        let weights = (0..count)
            .map(|_| self.tensor(DType::BF16, &[n, k]))
            .collect::<Result<Vec<_>, _>>()?;
        let (x, out) = (
            self.tensor(DType::BF16, &[rows, k])?,
            self.tensor(DType::BF16, &[rows, n])?,
        );
        let times = self.time(count, |r, i| {
            gemv(r, &x, &weights[i], None, GemvEpilogue::None, &out)
        })?;
        self.row(
            "gemv",
            &format!("[{rows}, {k}] x [{n}, {k}]"),
            "bf16",
            bytes,
            times,
            Some(ceiling),
        );
        if rows == 1 {
            let times = self.time(count / 2, |r, i| {
                geglu_gemv(r, &x, &weights[2 * i], &weights[2 * i + 1], &out)
            })?;
            self.row(
                "geglu_gemv",
                &format!("[{rows}, {k}] x 2 [{n}, {k}]"),
                "bf16",
                2 * bytes,
                times,
                Some(ceiling),
            );
        }
        Ok(())
    }
}
