//! Linear layers over weights of half precision, for the few rows of a decode step or an action chunk.

use flashrt_exec::{BackendKind, Recorder};
use half::{bf16, f16};

use crate::check::{operand, Check};
use crate::device::{is_packed, Call, GEMV, PACK};
use crate::lanes::Lanes;
use crate::launch::{record, Kernel, Ptr};
use crate::{DType, Error, Tensor};

/// Most rows of [`gemv`] and [`geglu_gemv`]: the weights are read once for all of them.
pub const MAX_GEMV_ROWS: usize = 4;

/// What [`gemv`] does with `y = x·wᵀ + bias` before it is rounded and stored.
#[derive(Clone, Copy, Debug)]
pub enum GemvEpilogue<'a> {
    /// `out = y`
    None,
    /// `out = gelu_tanh(y)`
    GeluTanh,
    /// `out = y·σ(y)`
    Silu,
    /// `out = residual + y`; residual `[M, N]` of x's type, may be `out` itself.
    Residual(&'a Tensor),
}

/// `out[M, N] = epilogue(x[M, K]·wᵀ + bias)`, bound by reading `w` once.
///
/// `x` `[M, K]`, `w` `[N, K]` row-major as in checkpoints, `out` `[M, N]`, all f16 or all bf16; M in 1..=[`MAX_GEMV_ROWS`]; `bias` `[N]`
/// f32. Sums are f32; the CPU adds in the order of K, a GPU in an order of its own, so the two agree within rounding, and each gives the
/// same bits every time. On CUDA K is a multiple of 8 and all three start on 16 bytes, as whole buffers do.
///
/// # Errors
/// [`Error::Shape`], [`Error::DType`], [`Error::Overlap`]; the recorder's own errors.
pub fn gemv(
    r: &mut Recorder<'_>,
    x: &Tensor,
    w: &Tensor,
    bias: Option<&Tensor>,
    epilogue: GemvEpilogue<'_>,
    out: &Tensor,
) -> Result<(), Error> {
    let c = Check("gemv");
    let (m, n, k) = shapes(c, r.backend(), x, &[("w", w)], out)?;
    let mut touches = vec![x, w, out];
    if let Some(bias) = bias {
        c.f32_shape("bias", bias, &[n])?;
        c.apart(operand("out", out), &[operand("bias", bias)])?;
        touches.push(bias);
    }
    let (finish, other) = match epilogue {
        GemvEpilogue::None => (Finish::None, None),
        GemvEpilogue::GeluTanh => (Finish::GeluTanh, None),
        GemvEpilogue::Silu => (Finish::Silu, None),
        GemvEpilogue::Residual(t) => {
            c.like("residual", t, out)?;
            c.same_or_apart(operand("out", out), &[operand("residual", t)])?;
            touches.push(t);
            (Finish::Residual, Some(t))
        }
    };
    go(
        r,
        c.0,
        &touches,
        Linear {
            m,
            n,
            k,
            finish,
            x,
            w,
            other,
            bias,
            out,
        },
    )
}

/// `out[M, N] = gelu_tanh(x·gateᵀ)·(x·upᵀ)`: the first half of a gated feed-forward, both weights in one pass.
///
/// `x` `[M, K]`, `gate` and `up` `[N, K]`, `out` `[M, N]`; types, limits and order as in [`gemv`].
///
/// # Errors
/// As [`gemv`].
pub fn geglu_gemv(
    r: &mut Recorder<'_>,
    x: &Tensor,
    gate: &Tensor,
    up: &Tensor,
    out: &Tensor,
) -> Result<(), Error> {
    let c = Check("geglu_gemv");
    let (m, n, k) = shapes(c, r.backend(), x, &[("gate", gate), ("up", up)], out)?;
    let linear = Linear {
        m,
        n,
        k,
        finish: Finish::Geglu,
        x,
        w: up,
        other: Some(gate),
        bias: None,
        out,
    };
    go(r, c.0, &[x, gate, up, out], linear)
}

/// M, N and K of operands that fit each other.
fn shapes(
    c: Check,
    backend: BackendKind,
    x: &Tensor,
    weights: &[(&'static str, &Tensor)],
    out: &Tensor,
) -> Result<(usize, usize, usize), Error> {
    c.dtype("x", x, &[DType::F16, DType::BF16], "f16 or bf16")?;
    c.rank("x", x, 2, "[M, K]")?;
    let (m, k) = (x.shape()[0], x.shape()[1]);
    if m == 0 || m > MAX_GEMV_ROWS || k == 0 {
        return Err(c.bad_shape(
            "x",
            x,
            format!("[M, K] with M in 1..={MAX_GEMV_ROWS} and K above 0"),
        ));
    }
    let mut n: Option<usize> = None;
    for (name, w) in weights {
        let fits = w.rank() == 2 && w.shape()[1] == k && n.is_none_or(|n| n == w.shape()[0]);
        if !fits {
            let n = n.map_or("N".to_owned(), |n| n.to_string());
            return Err(c.bad_shape(name, w, format!("[{n}, {k}]")));
        }
        same_type(c, name, w, x)?;
        n = Some(w.shape()[0]);
        c.apart(operand("out", out), &[operand(name, w)])?;
    }
    let n = n.unwrap_or(0);
    same_type(c, "out", out, x)?;
    c.shape("out", out, &[m, n])?;
    c.apart(operand("out", out), &[operand("x", x)])?;
    if backend == BackendKind::Cuda {
        for (name, t) in weights.iter().copied().chain([("x", x)]) {
            if !is_packed(&[t], k) {
                return Err(c.bad_shape(
                    name,
                    t,
                    format!(
                        "rows of a multiple of {PACK} bytes on an address of {PACK} bytes, on cuda"
                    ),
                ));
            }
        }
    }
    Ok((m, n, k))
}

fn same_type(c: Check, operand: &'static str, t: &Tensor, x: &Tensor) -> Result<(), Error> {
    match t.dtype() == x.dtype() {
        true => Ok(()),
        false => Err(Error::DType {
            op: c.0,
            operand,
            expected: "x's type",
            got: t.dtype(),
        }),
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Finish {
    None,
    GeluTanh,
    Silu,
    Residual,
    Geglu,
}

/// One checked layer. `other`: the residual, or the weight of the gate.
struct Linear<'a> {
    m: usize,
    n: usize,
    k: usize,
    finish: Finish,
    x: &'a Tensor,
    w: &'a Tensor,
    other: Option<&'a Tensor>,
    bias: Option<&'a Tensor>,
    out: &'a Tensor,
}

fn go(
    r: &mut Recorder<'_>,
    op: &'static str,
    touches: &[&Tensor],
    l: Linear<'_>,
) -> Result<(), Error> {
    let calls = || {
        let kernel = match (l.m, l.x.dtype()) {
            (1, DType::F16) => "gemv_1_f16",
            (2, DType::F16) => "gemv_2_f16",
            (3, DType::F16) => "gemv_3_f16",
            (_, DType::F16) => "gemv_4_f16",
            (1, _) => "gemv_1_bf16",
            (2, _) => "gemv_2_bf16",
            (3, _) => "gemv_3_bf16",
            _ => "gemv_4_bf16",
        };
        vec![Call::new(&GEMV, kernel)
            .blocks(l.n.div_ceil(if l.m == 1 { 16 } else { 8 }), 1)
            .tensor(l.x)
            .tensor(l.w)
            .optional(l.bias)
            .tensor(l.out)
            .size(l.n)
            .size(l.k)
            .size(l.finish as usize)
            .optional(l.other)]
    };
    match l.x.dtype() {
        DType::F16 => record(r, op, touches, Rows::<f16>::of(&l), calls),
        _ => record(r, op, touches, Rows::<bf16>::of(&l), calls),
    }
}

/// An element of half precision.
trait Half: Copy + Send + Sync + 'static {
    fn to(self) -> f32;
    fn of(x: f32) -> Self;
}

impl Half for f16 {
    fn to(self) -> f32 {
        self.to_f32()
    }
    fn of(x: f32) -> f16 {
        f16::from_f32(x)
    }
}

impl Half for bf16 {
    fn to(self) -> f32 {
        self.to_f32()
    }
    fn of(x: f32) -> bf16 {
        bf16::from_f32(x)
    }
}

/// The CPU half: plain, for tests and for small layers.
struct Rows<T> {
    m: usize,
    n: usize,
    k: usize,
    finish: Finish,
    x: Ptr<T>,
    w: Ptr<T>,
    other: Option<Ptr<T>>,
    bias: Option<Ptr<f32>>,
    out: Ptr<T>,
}

impl<T> Rows<T> {
    fn of(l: &Linear<'_>) -> Rows<T> {
        Rows {
            m: l.m,
            n: l.n,
            k: l.k,
            finish: l.finish,
            x: Ptr::of(l.x),
            w: Ptr::of(l.w),
            other: Ptr::of_opt(l.other),
            bias: Ptr::of_opt(l.bias),
            out: Ptr::of(l.out),
        }
    }
}

/// Output columns of a task.
const COLUMNS: usize = 64;

impl<T: Half> Kernel for Rows<T> {
    fn tasks(&self) -> usize {
        self.n.div_ceil(COLUMNS)
    }

    #[inline(always)]
    unsafe fn run<V: Lanes>(&self, task: usize) {
        let one = |f: fn(V) -> V, x: f32| f(V::splat(x)).to_array()[0];
        for column in task * COLUMNS..((task + 1) * COLUMNS).min(self.n) {
            for row in 0..self.m {
                let dot = |w: *const T| {
                    let mut sum = 0f32;
                    for i in 0..self.k {
                        let x = (*self.x.get().add(row * self.k + i)).to();
                        sum = (*w.add(column * self.k + i)).to().mul_add(x, sum);
                    }
                    sum
                };
                let mut y = dot(self.w.get());
                if let Some(bias) = self.bias {
                    y += *bias.get().add(column);
                }
                let at = row * self.n + column;
                let y = match (self.finish, self.other) {
                    (Finish::GeluTanh, _) => one(crate::math::gelu_tanh, y),
                    (Finish::Silu, _) => one(crate::math::silu, y),
                    (Finish::Residual, Some(residual)) => (*residual.get().add(at)).to() + y,
                    (Finish::Geglu, Some(gate)) => one(crate::math::gelu_tanh, dot(gate.get())) * y,
                    _ => y,
                };
                *self.out.mut_ptr().add(at) = T::of(y);
            }
        }
    }
}
