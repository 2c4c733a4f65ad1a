//! What the tests share: contexts, fresh random inputs, poisoned outputs, and one body run on every
//! thread count and instruction set.
#![allow(dead_code)]

use std::io::Write;
use std::sync::OnceLock;

use flashrt_exec::{Context, CpuOptions, Recorder, Space, StreamId, StreamOrder};
use flashrt_ops::{DType, Error, Isa, Tensor};

/// A context of so many threads.
pub fn context(threads: usize) -> Context {
    Context::cpu(CpuOptions {
        threads,
        order: StreamOrder::Submission,
    })
    .unwrap()
}

/// A context on device 0; `None` where there is none, after saying so once. With `FLASHRT_REQUIRE_CUDA` set that is a failure.
pub fn cuda() -> Option<Context> {
    static SAID: OnceLock<()> = OnceLock::new();
    match Context::cuda(0) {
        Ok(ctx) => Some(ctx),
        Err(e) if e.is_unavailable() && std::env::var_os("FLASHRT_REQUIRE_CUDA").is_none() => {
            // Not `eprintln`, whose text the harness keeps to itself when a test passes.
            SAID.get_or_init(|| {
                let _ = writeln!(std::io::stderr(), "the cuda tests are skipped: {e}");
            });
            None
        }
        Err(e) => panic!("{e}"),
    }
}

/// Runs `body` with 1, 2 and 3 threads on every instruction set there is, and on a GPU if there is one, and demands equal bits
/// (any NaN equals any NaN); returns the values.
pub fn everywhere(body: impl Fn(&Context) -> Vec<f32>) -> Vec<f32> {
    let mut first: Option<Vec<f32>> = None;
    let mut compare = |place: String, got: Vec<f32>| {
        let Some(want) = &first else {
            first = Some(got);
            return;
        };
        assert_eq!(got.len(), want.len());
        for (i, (g, w)) in got.iter().zip(want).enumerate() {
            let same = g.to_bits() == w.to_bits() || (g.is_nan() && w.is_nan());
            assert!(same, "{place}, element {i}: {g:e} is not {w:e}");
        }
    };
    for &isa in Isa::available() {
        for threads in [1, 2, 3] {
            let got = isa.with(|| body(&context(threads)));
            compare(format!("{isa:?}, {threads} threads"), got);
        }
    }
    if let Some(ctx) = cuda() {
        compare(ctx.isa().to_owned(), body(&ctx));
    }
    first.unwrap()
}

/// Records, runs and waits.
pub fn run(ctx: &Context, record: impl FnOnce(&mut Recorder<'_>) -> Result<(), Error>) {
    ctx.enqueue(StreamId(0), record).unwrap();
    ctx.synchronize(StreamId(0)).unwrap();
}

/// Records something that must be refused.
pub fn refused(
    ctx: &Context,
    record: impl FnOnce(&mut Recorder<'_>) -> Result<(), Error>,
) -> String {
    ctx.enqueue(StreamId(0), record)
        .expect_err("accepted")
        .to_string()
}

/// An f32 tensor with these values.
pub fn tensor(ctx: &Context, shape: &[usize], values: &[f32]) -> Tensor {
    let t = Tensor::alloc(ctx, "test", Space::Device, DType::F32, shape).unwrap();
    t.upload_f32(ctx, values).unwrap();
    t
}

/// An f32 tensor full of NaN, so that an element that is not written shows.
pub fn poisoned(ctx: &Context, shape: &[usize]) -> Tensor {
    tensor(ctx, shape, &vec![f32::NAN; shape.iter().product()])
}

/// A tensor of raw bytes in native order.
pub fn raw(ctx: &Context, dtype: DType, shape: &[usize], bytes: &[u8]) -> Tensor {
    let t = Tensor::alloc(ctx, "test", Space::Device, dtype, shape).unwrap();
    ctx.upload(t.slice(), bytes).unwrap();
    t
}

pub fn ints(ctx: &Context, values: &[i32]) -> Tensor {
    let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_ne_bytes()).collect();
    raw(ctx, DType::I32, &[values.len()], &bytes)
}

pub fn mask(ctx: &Context, values: &[u8]) -> Tensor {
    raw(ctx, DType::U8, &[values.len()], values)
}

pub fn f32_bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_ne_bytes()).collect()
}

/// Seeded values (splitmix64).
pub struct Seed(pub u64);

impl Seed {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Uniform in [-1, 1).
    pub fn unit(&mut self) -> f32 {
        (self.next() >> 40) as f32 / 8_388_608.0 - 1.0
    }

    pub fn values(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.unit()).collect()
    }

    pub fn scaled(&mut self, n: usize, scale: f32) -> Vec<f32> {
        (0..n).map(|_| self.unit() * scale).collect()
    }
}

/// Every element within `absolute + relative·|want|`.
pub fn close(got: &[f32], want: &[f64], absolute: f64, relative: f64) {
    assert_eq!(got.len(), want.len());
    for (i, (g, w)) in got.iter().zip(want).enumerate() {
        let error = (f64::from(*g) - w).abs();
        assert!(
            error <= absolute + relative * w.abs(),
            "element {i}: {g:e}, expected {w:e}, off by {error:e}"
        );
    }
}

pub fn gelu(x: f64) -> f64 {
    let u = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x);
    0.5 * x * (1.0 + u.tanh())
}

pub fn silu(x: f64) -> f64 {
    x / (1.0 + (-x).exp())
}
