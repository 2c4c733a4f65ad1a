//! What one tensor lets through of another: gates of gated networks.

use flashrt_exec::{BackendKind, Recorder};

use crate::check::{operand, Check};
use crate::device::{Call, GATE};
use crate::lanes::{Lanes, LANES};
use crate::launch::{on_device, record, Kernel, Ptr};
use crate::math;
use crate::{DType, Error, Tensor};

/// `out = x·σ(gate)`; equal shapes, f32, on CUDA also bf16, `out` may be either operand itself.
///
/// # Errors
/// [`Error::Shape`], [`Error::DType`], [`Error::Overlap`]; the recorder's own errors.
pub fn sigmoid_gate(
    r: &mut Recorder<'_>,
    x: &Tensor,
    gate: &Tensor,
    out: &Tensor,
) -> Result<(), Error> {
    gated("sigmoid_gate", r, x, gate, out, false)
}

/// `out = x·gate·σ(gate)`, the second half of a SwiGLU; as [`sigmoid_gate`].
///
/// # Errors
/// As [`sigmoid_gate`].
pub fn silu_gate(
    r: &mut Recorder<'_>,
    x: &Tensor,
    gate: &Tensor,
    out: &Tensor,
) -> Result<(), Error> {
    gated("silu_gate", r, x, gate, out, true)
}

/// `out = x/√(mean(x²) + eps)·weight·gate·σ(gate)` over rows of `x` `[.., D]`; weight `[D]` f32 (as it is, not 1 + weight).
///
/// `x`, `gate` and `out` of one shape and type, f32, on CUDA also bf16; `out` may be `x` or `gate` itself.
///
/// # Errors
/// As [`sigmoid_gate`]; [`Error::Argument`] for a bad `eps`.
pub fn gated_rms_norm(
    r: &mut Recorder<'_>,
    x: &Tensor,
    weight: &Tensor,
    gate: &Tensor,
    eps: f32,
    out: &Tensor,
) -> Result<(), Error> {
    let c = Check("gated_rms_norm");
    operands(c, r.backend(), x, gate, out)?;
    let (rows, cols) = c.rows("x", x)?;
    c.f32_shape("weight", weight, &[cols])?;
    c.apart(operand("out", out), &[operand("weight", weight)])?;
    let fits = eps.is_finite() && eps >= 0.0;
    c.argument("eps", fits, "a finite number >= 0", eps)?;
    let call = |kernel| {
        Call::new(&GATE, kernel)
            .blocks(rows.div_ceil(16), 1)
            .tensor(x)
            .tensor(weight)
            .tensor(gate)
            .tensor(out)
            .size(rows)
            .size(cols)
            .float(eps)
    };
    let touches = [x, weight, gate, out];
    if x.dtype() != DType::F32 {
        return on_device(r, c.0, &touches, vec![call("gated_rms_norm_bf16")]);
    }
    let kernel = GatedNorm {
        x: Ptr::of(x),
        weight: Ptr::of(weight),
        gate: Ptr::of(gate),
        out: Ptr::of(out),
        rows,
        cols,
        eps,
    };
    record(r, c.0, &touches, kernel, || {
        vec![call("gated_rms_norm_f32")]
    })
}

/// Operands of [`delta_gates`]: `[T, H]`, or `[H]` where one value serves all tokens.
#[derive(Clone, Copy, Debug)]
pub struct DeltaGates<'a> {
    /// Projection for the decay, `[T, H]` f32, on CUDA also bf16.
    pub a: &'a Tensor,
    /// Projection for the strength, of a's shape and type.
    pub b: &'a Tensor,
    /// `[H]` f32.
    pub a_log: &'a Tensor,
    /// `[H]` f32.
    pub dt_bias: &'a Tensor,
    /// Logarithm of the decay, `[T, H]` f32.
    pub g: &'a Tensor,
    /// `[T, H]` f32.
    pub beta: &'a Tensor,
}

/// `g = -exp(a_log)·ln(1 + exp(a + dt_bias))`, `beta = σ(b)`: the gates of [`crate::gated_delta`] from their projections.
///
/// # Errors
/// As [`sigmoid_gate`].
pub fn delta_gates(r: &mut Recorder<'_>, t: &DeltaGates<'_>) -> Result<(), Error> {
    let c = Check("delta_gates");
    float(c, "a", t.a, r.backend())?;
    c.rank("a", t.a, 2, "[T, H]")?;
    let heads = t.a.shape()[1];
    c.like("b", t.b, t.a)?;
    c.f32_shape("a_log", t.a_log, &[heads])?;
    c.f32_shape("dt_bias", t.dt_bias, &[heads])?;
    c.f32_shape("g", t.g, t.a.shape())?;
    c.f32_shape("beta", t.beta, t.a.shape())?;
    let inputs = [
        operand("a", t.a),
        operand("b", t.b),
        operand("a_log", t.a_log),
        operand("dt_bias", t.dt_bias),
    ];
    c.apart(operand("g", t.g), &inputs)?;
    c.apart(operand("beta", t.beta), &inputs)?;
    c.apart(operand("beta", t.beta), &[operand("g", t.g)])?;
    let n = t.a.numel();
    let call = |kernel| {
        Call::new(&GATE, kernel)
            .each(n)
            .tensor(t.a)
            .tensor(t.b)
            .tensor(t.a_log)
            .tensor(t.dt_bias)
            .tensor(t.g)
            .tensor(t.beta)
            .size(n)
            .size(heads)
    };
    let touches = [t.a, t.b, t.a_log, t.dt_bias, t.g, t.beta];
    if t.a.dtype() != DType::F32 {
        return on_device(r, c.0, &touches, vec![call("delta_gates_bf16")]);
    }
    let kernel = Gates {
        a: Ptr::of(t.a),
        b: Ptr::of(t.b),
        a_log: Ptr::of(t.a_log),
        dt_bias: Ptr::of(t.dt_bias),
        g: Ptr::of(t.g),
        beta: Ptr::of(t.beta),
        n,
        heads,
    };
    record(r, c.0, &touches, kernel, || vec![call("delta_gates_f32")])
}

fn float(c: Check, name: &'static str, t: &Tensor, backend: BackendKind) -> Result<(), Error> {
    match backend {
        BackendKind::Cuda => c.dtype(name, t, &[DType::F32, DType::BF16], "f32 or bf16"),
        _ => c.dtype(name, t, &[DType::F32], "f32 (bf16 on cuda only)"),
    }
}

fn operands(
    c: Check,
    backend: BackendKind,
    x: &Tensor,
    gate: &Tensor,
    out: &Tensor,
) -> Result<(), Error> {
    float(c, "x", x, backend)?;
    c.like("gate", gate, x)?;
    c.like("out", out, x)?;
    c.same_or_apart(
        operand("out", out),
        &[operand("x", x), operand("gate", gate)],
    )
}

fn gated(
    op: &'static str,
    r: &mut Recorder<'_>,
    x: &Tensor,
    gate: &Tensor,
    out: &Tensor,
    is_silu: bool,
) -> Result<(), Error> {
    operands(Check(op), r.backend(), x, gate, out)?;
    let n = out.numel();
    let call = |kernel| {
        Call::new(&GATE, kernel)
            .each(n)
            .tensor(x)
            .tensor(gate)
            .tensor(out)
            .size(n)
            .size(usize::from(is_silu))
    };
    let touches = [x, gate, out];
    if x.dtype() != DType::F32 {
        return on_device(r, op, &touches, vec![call("gate_bf16")]);
    }
    let kernel = Gate {
        x: Ptr::of(x),
        gate: Ptr::of(gate),
        out: Ptr::of(out),
        n,
        is_silu,
    };
    record(r, op, &touches, kernel, || vec![call("gate_f32")])
}

/// σ(x)
#[inline(always)]
fn sigmoid<V: Lanes>(x: V) -> V {
    let e = math::exp(V::splat(-0.0).sub(x));
    V::splat(1.0).div(e.add(V::splat(1.0)))
}

struct Gate {
    x: Ptr<f32>,
    gate: Ptr<f32>,
    out: Ptr<f32>,
    n: usize,
    is_silu: bool,
}

/// Elements of a task.
const RUN: usize = 16_384;

impl Kernel for Gate {
    fn tasks(&self) -> usize {
        self.n.div_ceil(RUN)
    }

    #[inline(always)]
    unsafe fn run<V: Lanes>(&self, task: usize) {
        let end = ((task + 1) * RUN).min(self.n);
        for at in (task * RUN..end).step_by(LANES) {
            let lanes = LANES.min(end - at);
            let x = V::load_part(self.x.get().add(at), lanes, 0.0);
            let gate = V::load_part(self.gate.get().add(at), lanes, 0.0);
            let factor = match self.is_silu {
                true => math::silu(gate),
                false => sigmoid(gate),
            };
            x.mul(factor).store_part(self.out.mut_ptr().add(at), lanes);
        }
    }
}

struct GatedNorm {
    x: Ptr<f32>,
    weight: Ptr<f32>,
    gate: Ptr<f32>,
    out: Ptr<f32>,
    rows: usize,
    cols: usize,
    eps: f32,
}

impl Kernel for GatedNorm {
    fn tasks(&self) -> usize {
        self.rows
    }

    #[inline(always)]
    unsafe fn run<V: Lanes>(&self, row: usize) {
        let x = self.x.get().add(row * self.cols);
        let mut sum = V::splat(0.0);
        for at in (0..self.cols).step_by(LANES) {
            let v = V::load_part(x.add(at), LANES.min(self.cols - at), 0.0);
            sum = v.fma(v, sum);
        }
        let mean = sum.fold_add() / self.cols as f32;
        let inverse = V::splat(1.0 / (mean + self.eps).sqrt());
        for at in (0..self.cols).step_by(LANES) {
            let lanes = LANES.min(self.cols - at);
            let v = V::load_part(x.add(at), lanes, 0.0);
            let weight = V::load_part(self.weight.get().add(at), lanes, 0.0);
            let gate = V::load_part(self.gate.get().add(row * self.cols + at), lanes, 0.0);
            let y = v.mul(inverse).mul(weight).mul(math::silu(gate));
            y.store_part(self.out.mut_ptr().add(row * self.cols + at), lanes);
        }
    }
}

struct Gates {
    a: Ptr<f32>,
    b: Ptr<f32>,
    a_log: Ptr<f32>,
    dt_bias: Ptr<f32>,
    g: Ptr<f32>,
    beta: Ptr<f32>,
    n: usize,
    heads: usize,
}

impl Kernel for Gates {
    fn tasks(&self) -> usize {
        self.n.div_ceil(RUN)
    }

    #[inline(always)]
    unsafe fn run<V: Lanes>(&self, task: usize) {
        let one = |f: fn(V) -> V, x: f32| f(V::splat(x)).to_array()[0];
        for i in task * RUN..((task + 1) * RUN).min(self.n) {
            let head = i % self.heads;
            let x = *self.a.get().add(i) + *self.dt_bias.get().add(head);
            // Beyond 20 the two are equal in f32.
            let softplus = match x > 20.0 {
                true => x,
                false => math::ln(one(math::exp, x) + 1.0),
            };
            *self.g.mut_ptr().add(i) = -one(math::exp, *self.a_log.get().add(head)) * softplus;
            *self.beta.mut_ptr().add(i) = one(sigmoid, *self.b.get().add(i));
        }
    }
}
