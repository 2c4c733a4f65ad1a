//! Operations on one element at a time.

use flashrt_exec::Recorder;

use crate::check::{operand, Check};
use crate::device::{is_packed, typed, Call, ELEMENTWISE, PACK};
use crate::lanes::{Lanes, LANES};
use crate::launch::{on_device, record, Kernel, Ptr};
use crate::math;
use crate::{DType, Error, Tensor};

/// `out = gelu_tanh(x) = ½·x·(1 + tanh(√(2/π)·(x + 0.044715·x³)))`; f32, on CUDA also f16 and bf16; equal shapes, `out` may be `x` itself.
///
/// # Errors
/// [`Error::Shape`], [`Error::DType`], [`Error::Overlap`]; the recorder's own errors.
pub fn gelu_tanh(r: &mut Recorder<'_>, x: &Tensor, out: &Tensor) -> Result<(), Error> {
    unary(r, "gelu_tanh", x, out, Map::GeluTanh)
}

/// `out = x·σ(x)`; types as in [`gelu_tanh`], equal shapes, `out` may be `x` itself.
///
/// # Errors
/// As [`gelu_tanh`].
pub fn silu(r: &mut Recorder<'_>, x: &Tensor, out: &Tensor) -> Result<(), Error> {
    unary(r, "silu", x, out, Map::Silu)
}

/// `out = gelu_tanh(gate)·up`; types as in [`gelu_tanh`], equal shapes, `out` may be either operand itself.
///
/// # Errors
/// As [`gelu_tanh`].
pub fn geglu(r: &mut Recorder<'_>, gate: &Tensor, up: &Tensor, out: &Tensor) -> Result<(), Error> {
    let c = Check("geglu");
    c.float("gate", gate, r.backend())?;
    c.like("up", up, gate)?;
    c.like("out", out, gate)?;
    c.same_or_apart(
        operand("out", out),
        &[operand("gate", gate), operand("up", up)],
    )?;
    if gate.dtype() != DType::F32 {
        let call = half(typed!("geglu", gate), &[gate, up], out);
        return on_device(r, "geglu", &[gate, up, out], vec![call]);
    }
    let map = Map::Geglu(Ptr::of(up));
    record(
        r,
        "geglu",
        &[gate, up, out],
        Elementwise::new(gate, out, map),
        || {
            vec![Call::new(&ELEMENTWISE, "geglu_f32")
                .each(out.numel())
                .tensor(gate)
                .tensor(up)
                .tensor(out)
                .size(out.numel())]
        },
    )
}

/// `out = x + y`; types as in [`gelu_tanh`], equal shapes, `out` may be either operand itself.
///
/// # Errors
/// As [`gelu_tanh`].
pub fn residual_add(
    r: &mut Recorder<'_>,
    x: &Tensor,
    y: &Tensor,
    out: &Tensor,
) -> Result<(), Error> {
    let c = Check("residual_add");
    c.float("x", x, r.backend())?;
    c.like("y", y, x)?;
    c.like("out", out, x)?;
    c.same_or_apart(operand("out", out), &[operand("x", x), operand("y", y)])?;
    if x.dtype() != DType::F32 {
        let call = half(typed!("residual_add", x), &[x, y], out);
        return on_device(r, "residual_add", &[x, y, out], vec![call]);
    }
    let map = Map::Axpy {
        y: Ptr::of(y),
        a: 1.0,
    };
    record(
        r,
        "residual_add",
        &[x, y, out],
        Elementwise::new(x, out, map),
        || vec![axpy_call(x, y, 1.0, out)],
    )
}

/// `out = x + y·gate`; x and y `[.., D]` f32 of one shape, gate of D elements for all rows; `out` may be
/// `x` or `y` itself.
///
/// # Errors
/// As [`gelu_tanh`].
pub fn gated_residual(
    r: &mut Recorder<'_>,
    x: &Tensor,
    y: &Tensor,
    gate: &Tensor,
    out: &Tensor,
) -> Result<(), Error> {
    let c = Check("gated_residual");
    c.f32("x", x)?;
    let (_, cols) = c.rows("x", x)?;
    c.f32_shape("y", y, x.shape())?;
    c.f32_shape("out", out, x.shape())?;
    c.f32("gate", gate)?;
    if gate.numel() != cols {
        return Err(c.bad_shape("gate", gate, format!("[{cols}]")));
    }
    c.same_or_apart(operand("out", out), &[operand("x", x), operand("y", y)])?;
    c.apart(operand("out", out), &[operand("gate", gate)])?;
    let map = Map::Gated {
        y: Ptr::of(y),
        gate: Ptr::of(gate),
    };
    record(
        r,
        "gated_residual",
        &[x, y, gate, out],
        Elementwise::new(x, out, map),
        || {
            vec![Call::new(&ELEMENTWISE, "gated_residual_f32")
                .each(out.numel())
                .tensor(x)
                .tensor(y)
                .tensor(gate)
                .tensor(out)
                .size(out.numel())
                .size(cols)]
        },
    )
}

/// `x += a·v`, one fused multiply-add an element; f32, equal shapes. A flow step is `axpy(x, dt, v)`.
///
/// # Errors
/// As [`gelu_tanh`]; [`Error::Argument`] when `a` is not finite.
pub fn axpy(r: &mut Recorder<'_>, x: &Tensor, a: f32, v: &Tensor) -> Result<(), Error> {
    let c = Check("axpy");
    c.f32("x", x)?;
    c.f32_shape("v", v, x.shape())?;
    c.argument("a", a.is_finite(), "finite", a)?;
    c.apart(operand("x", x), &[operand("v", v)])?;
    let map = Map::Axpy { y: Ptr::of(v), a };
    let call = || vec![axpy_call(x, v, a, x)];
    record(r, "axpy", &[x, v], Elementwise::new(x, x, map), call)
}

/// `out = min(max(x, low), high)`; f32, equal shapes, `out` may be `x` itself. Not-a-number stays so.
///
/// # Errors
/// As [`gelu_tanh`]; [`Error::Argument`] unless low ≤ high.
pub fn clamp(
    r: &mut Recorder<'_>,
    x: &Tensor,
    low: f32,
    high: f32,
    out: &Tensor,
) -> Result<(), Error> {
    let range = format!("{low}..{high}");
    Check("clamp").argument("range", low <= high, "low <= high", range)?;
    unary(r, "clamp", x, out, Map::Clamp { low, high })
}

/// `out[i] = x[i] + position[i mod P]` over rows: adds a table `[P, D]` to every group of P rows of
/// `x` `[.., D]` (one group a view); f32, `out` may be `x` itself.
///
/// # Errors
/// As [`gelu_tanh`].
pub fn add_position(
    r: &mut Recorder<'_>,
    x: &Tensor,
    position: &Tensor,
    out: &Tensor,
) -> Result<(), Error> {
    let c = Check("add_position");
    c.f32("x", x)?;
    let (rows, cols) = c.rows("x", x)?;
    c.f32("position", position)?;
    c.f32_shape("out", out, x.shape())?;
    let (p, d) = c.rows("position", position)?;
    if d != cols || p == 0 || rows % p != 0 {
        return Err(c.bad_shape(
            "position",
            position,
            format!("[P, {cols}] with P a divisor of {rows}"),
        ));
    }
    c.same_or_apart(operand("out", out), &[operand("x", x)])?;
    c.apart(operand("out", out), &[operand("position", position)])?;
    let mut k = Elementwise::new(
        x,
        out,
        Map::Axpy {
            y: Ptr::of(position),
            a: 1.0,
        },
    );
    k.wrap = Some(p);
    let call = || vec![axpy_call(x, position, 1.0, out)];
    record(r, "add_position", &[x, position, out], k, call)
}

/// The gate of a `style` of 3·D elements (see [`crate::ada_rms_norm`]), as a view `[D]`.
///
/// # Errors
/// [`Error::Shape`] when the number of elements is not 3·D.
pub fn style_gate(style: &Tensor) -> Result<Tensor, Error> {
    let n = style.numel();
    if n == 0 || n % 3 != 0 {
        return Err(Check("style_gate").bad_shape("style", style, "3·D elements".to_owned()));
    }
    style.view(&[n])?.rows(2 * (n / 3)..n)
}

/// A launch over operands of half precision.
fn half(kernel: &'static str, operands: &[&Tensor], out: &Tensor) -> Call {
    let n = out.numel();
    let packs = n.div_ceil(PACK / out.dtype().bytes());
    let call = Call::new(&ELEMENTWISE, kernel).each(packs);
    let call = operands.iter().fold(call, |call, t| call.tensor(t));
    let is_packed = is_packed(operands, PACK) && is_packed(&[out], PACK);
    call.tensor(out).size(n).size(usize::from(is_packed))
}

/// `out = x + a·y`, with `y` repeated as often as it fits.
fn axpy_call(x: &Tensor, y: &Tensor, a: f32, out: &Tensor) -> Call {
    Call::new(&ELEMENTWISE, "axpy_f32")
        .each(out.numel())
        .tensor(x)
        .tensor(y)
        .tensor(out)
        .size(out.numel())
        .size(y.numel())
        .float(a)
}

fn unary(
    r: &mut Recorder<'_>,
    op: &'static str,
    x: &Tensor,
    out: &Tensor,
    map: Map,
) -> Result<(), Error> {
    let c = Check(op);
    match map {
        Map::Clamp { .. } => c.f32("x", x)?,
        _ => c.float("x", x, r.backend())?,
    }
    c.like("out", out, x)?;
    c.same_or_apart(operand("out", out), &[operand("x", x)])?;
    if x.dtype() != DType::F32 {
        let kernel = match map {
            Map::Silu => typed!("silu", x),
            _ => typed!("gelu_tanh", x),
        };
        return on_device(r, op, &[x, out], vec![half(kernel, &[x], out)]);
    }
    record(r, op, &[x, out], Elementwise::new(x, out, map), || {
        let call = |kernel| {
            Call::new(&ELEMENTWISE, kernel)
                .each(out.numel())
                .tensor(x)
                .tensor(out)
                .size(out.numel())
        };
        vec![match map {
            Map::Clamp { low, high } => call("clamp_f32").float(low).float(high),
            Map::Silu => call("silu_f32"),
            _ => call("gelu_tanh_f32"),
        }]
    })
}

#[derive(Clone, Copy)]
enum Map {
    GeluTanh,
    Silu,
    Geglu(Ptr<f32>),
    Clamp { low: f32, high: f32 },
    Axpy { y: Ptr<f32>, a: f32 },
    Gated { y: Ptr<f32>, gate: Ptr<f32> },
}

#[derive(Clone, Copy)]
struct Elementwise {
    x: Ptr<f32>,
    out: Ptr<f32>,
    rows: usize,
    cols: usize,
    per_task: usize,
    /// The second operand has this many rows and repeats.
    wrap: Option<usize>,
    map: Map,
}

impl Elementwise {
    fn new(x: &Tensor, out: &Tensor, map: Map) -> Elementwise {
        let (rows, cols) = (x.row_count(), x.cols());
        let per_task = (16_384 / cols.max(1)).max(1);
        let rows = if cols == 0 { 0 } else { rows };
        Elementwise {
            x: Ptr::of(x),
            out: Ptr::of(out),
            rows,
            cols,
            per_task,
            wrap: None,
            map,
        }
    }
}

impl Kernel for Elementwise {
    fn tasks(&self) -> usize {
        self.rows.div_ceil(self.per_task)
    }

    #[inline(always)]
    unsafe fn run<V: Lanes>(&self, task: usize) {
        let first = task * self.per_task;
        for row in first..(first + self.per_task).min(self.rows) {
            let x = self.x.get().add(row * self.cols);
            let out = self.out.mut_ptr().add(row * self.cols);
            let other = self.wrap.map_or(row, |p| row % p) * self.cols;
            let mut at = 0;
            while at < self.cols {
                let n = LANES.min(self.cols - at);
                let v = V::load_part(x.add(at), n, 0.0);
                let load = |p: Ptr<f32>| V::load_part(p.get().add(other + at), n, 0.0);
                let v = match self.map {
                    Map::GeluTanh => math::gelu_tanh(v),
                    Map::Silu => math::silu(v),
                    Map::Geglu(up) => math::gelu_tanh(v).mul(load(up)),
                    Map::Clamp { low, high } => {
                        let (low, high) = (V::splat(low), V::splat(high));
                        let v = v.lt_select(low, low, v);
                        high.lt_select(v, high, v)
                    }
                    Map::Axpy { y, a } => load(y).fma(V::splat(a), v),
                    Map::Gated { y, gate } => {
                        load(y).fma(V::load_part(gate.get().add(at), n, 0.0), v)
                    }
                };
                v.store_part(out.add(at), n);
                at += LANES;
            }
        }
    }
}
