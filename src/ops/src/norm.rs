//! Normalisations over the innermost dimension.

use flashrt_exec::{BackendKind, Recorder};

use crate::check::{operand, Check};
use crate::device::{is_packed, typed, Call, NORM, PACK};
use crate::lanes::{Lanes, LANES};
use crate::launch::{on_device, record, Kernel, Ptr};
use crate::{DType, Error, Tensor};

/// `out = (x - mean)/√(var + eps)·weight + bias` over rows of `x` `[.., D]`; weight and bias `[D]` f32.
///
/// `x` and `out` f32, on CUDA also f16 or bf16 (computed in f32). The variance is the mean squared deviation (divisor D). `out` has x's shape and may be `x` itself.
///
/// # Errors
/// [`Error::Shape`], [`Error::DType`], [`Error::Overlap`], [`Error::Argument`] for a bad `eps`; the recorder's own errors.
pub fn layer_norm(
    r: &mut Recorder<'_>,
    x: &Tensor,
    weight: &Tensor,
    bias: &Tensor,
    eps: f32,
    out: &Tensor,
) -> Result<(), Error> {
    let op = "layer_norm";
    let (rows, cols) = check(
        op,
        r.backend(),
        x,
        &[("weight", weight), ("bias", bias)],
        1,
        eps,
        out,
    )?;
    let calls = || {
        vec![call(
            typed!("layer_norm", x),
            x,
            &[weight, bias],
            out,
            rows,
            eps,
        )]
    };
    if x.dtype() != DType::F32 {
        return on_device(r, op, &[x, weight, bias, out], calls());
    }
    let scale = Scale::Layer {
        weight: Ptr::of(weight),
        bias: Ptr::of(bias),
    };
    record(
        r,
        op,
        &[x, weight, bias, out],
        Norm::new(x, out, rows, cols, eps, scale),
        calls,
    )
}

/// `out = x/√(mean(x²) + eps)·(1 + weight)` over rows of `x` `[.., D]`; weight `[D]` f32.
///
/// Types as in [`layer_norm`]. `out` has x's shape and may be `x` itself.
///
/// # Errors
/// As [`layer_norm`].
pub fn rms_norm(
    r: &mut Recorder<'_>,
    x: &Tensor,
    weight: &Tensor,
    eps: f32,
    out: &Tensor,
) -> Result<(), Error> {
    let op = "rms_norm";
    let (rows, cols) = check(op, r.backend(), x, &[("weight", weight)], 1, eps, out)?;
    let calls = || vec![call(typed!("rms_norm", x), x, &[weight], out, rows, eps)];
    if x.dtype() != DType::F32 {
        return on_device(r, op, &[x, weight, out], calls());
    }
    let scale = Scale::Rms {
        weight: Ptr::of(weight),
    };
    record(
        r,
        op,
        &[x, weight, out],
        Norm::new(x, out, rows, cols, eps, scale),
        calls,
    )
}

/// `out = x/√(mean(x²) + eps)·(1 + scale) + shift` over rows of `x` `[.., D]`, with
/// `style` `[3·D]` f32 = scale, shift, gate, one style for all rows.
///
/// Types as in [`layer_norm`]. The gate is not used here: [`crate::style_gate`] views it for the residual that follows.
/// `out` has x's shape and may be `x` itself.
///
/// # Errors
/// As [`layer_norm`].
pub fn ada_rms_norm(
    r: &mut Recorder<'_>,
    x: &Tensor,
    style: &Tensor,
    eps: f32,
    out: &Tensor,
) -> Result<(), Error> {
    let op = "ada_rms_norm";
    let (rows, cols) = check(op, r.backend(), x, &[("style", style)], 3, eps, out)?;
    let calls = || vec![call(typed!("ada_rms_norm", x), x, &[style], out, rows, eps)];
    if x.dtype() != DType::F32 {
        return on_device(r, op, &[x, style, out], calls());
    }
    let scale = Scale::Ada {
        style: Ptr::of(style),
    };
    record(
        r,
        op,
        &[x, style, out],
        Norm::new(x, out, rows, cols, eps, scale),
        calls,
    )
}

/// In f32 a half warp a row, otherwise a block.
fn call(
    kernel: &'static str,
    x: &Tensor,
    params: &[&Tensor],
    out: &Tensor,
    rows: usize,
    eps: f32,
) -> Call {
    let is_half = x.dtype() != DType::F32;
    let call = match is_half {
        true => Call::new(&NORM, kernel)
            .blocks(rows, 1)
            .threads((x.cols().div_ceil(4 * PACK / 2).next_multiple_of(32)).clamp(64, 512) as u32),
        false => Call::new(&NORM, kernel)
            .blocks(rows.div_ceil(4), 1)
            .threads(64),
    };
    let call = params.iter().fold(call.tensor(x), |call, p| call.tensor(p));
    let call = call.tensor(out).size(rows).size(x.cols()).float(eps);
    match is_half {
        true => {
            let by_packs = is_packed(&[x, out], x.cols()) && is_packed(params, PACK);
            call.size(usize::from(by_packs))
        }
        false => call,
    }
}

fn check(
    op: &'static str,
    backend: BackendKind,
    x: &Tensor,
    params: &[(&'static str, &Tensor)],
    times: usize,
    eps: f32,
    out: &Tensor,
) -> Result<(usize, usize), Error> {
    let c = Check(op);
    c.float("x", x, backend)?;
    let (rows, cols) = c.rows("x", x)?;
    c.argument(
        "eps",
        eps.is_finite() && eps >= 0.0,
        "a finite number >= 0",
        eps,
    )?;
    c.like("out", out, x)?;
    c.same_or_apart(operand("out", out), &[operand("x", x)])?;
    for (name, p) in params {
        c.f32(name, p)?;
        if p.numel() != times * cols {
            return Err(c.bad_shape(name, p, format!("{} elements", times * cols)));
        }
        c.apart(operand("out", out), &[operand(name, p)])?;
    }
    Ok((rows, cols))
}

#[derive(Clone, Copy)]
enum Scale {
    Layer { weight: Ptr<f32>, bias: Ptr<f32> },
    Rms { weight: Ptr<f32> },
    Ada { style: Ptr<f32> },
}

#[derive(Clone, Copy)]
struct Norm {
    x: Ptr<f32>,
    out: Ptr<f32>,
    rows: usize,
    cols: usize,
    per_task: usize,
    eps: f32,
    scale: Scale,
}

impl Norm {
    fn new(x: &Tensor, out: &Tensor, rows: usize, cols: usize, eps: f32, scale: Scale) -> Norm {
        // A task of some microseconds.
        let per_task = (16_384 / cols).max(1);
        Norm {
            x: Ptr::of(x),
            out: Ptr::of(out),
            rows,
            cols,
            per_task,
            eps,
            scale,
        }
    }
}

impl Kernel for Norm {
    fn tasks(&self) -> usize {
        self.rows.div_ceil(self.per_task)
    }

    #[inline(always)]
    unsafe fn run<V: Lanes>(&self, task: usize) {
        let first = task * self.per_task;
        for row in first..(first + self.per_task).min(self.rows) {
            let x = self.x.get().add(row * self.cols);
            let out = self.out.mut_ptr().add(row * self.cols);
            match self.scale {
                Scale::Layer { weight, bias } => {
                    let mean = self.sum::<V>(x, 0.0, |v| v) / self.cols as f32;
                    let m = V::splat(mean);
                    // Lanes beyond the row are filled with the mean: no deviation.
                    let square = |v: V| v.sub(m);
                    let var = self.sum_squares::<V>(x, mean, square) / self.cols as f32;
                    let inv = V::splat(1.0 / (var + self.eps).sqrt());
                    self.map::<V>(x, out, |v, at, n| {
                        let w = V::load_part(weight.get().add(at), n, 0.0);
                        let b = V::load_part(bias.get().add(at), n, 0.0);
                        v.sub(m).mul(inv).fma(w, b)
                    });
                }
                Scale::Rms { weight } => {
                    let inv = self.inverse_rms::<V>(x);
                    self.map::<V>(x, out, |v, at, n| {
                        let w = V::load_part(weight.get().add(at), n, 0.0);
                        v.mul(inv).mul(w.add(V::splat(1.0)))
                    });
                }
                Scale::Ada { style } => {
                    let inv = self.inverse_rms::<V>(x);
                    self.map::<V>(x, out, |v, at, n| {
                        let w = V::load_part(style.get().add(at), n, 0.0);
                        let b = V::load_part(style.get().add(self.cols + at), n, 0.0);
                        v.mul(inv).fma(w.add(V::splat(1.0)), b)
                    });
                }
            }
        }
    }
}

impl Norm {
    #[inline(always)]
    unsafe fn inverse_rms<V: Lanes>(&self, x: *const f32) -> V {
        let mean = self.sum_squares::<V>(x, 0.0, |v| v) / self.cols as f32;
        V::splat(1.0 / (mean + self.eps).sqrt())
    }

    #[inline(always)]
    unsafe fn sum<V: Lanes>(&self, x: *const f32, fill: f32, f: impl Fn(V) -> V) -> f32 {
        let mut acc = V::splat(0.0);
        let mut at = 0;
        while at < self.cols {
            acc = acc.add(f(V::load_part(x.add(at), LANES.min(self.cols - at), fill)));
            at += LANES;
        }
        acc.fold_add()
    }

    #[inline(always)]
    unsafe fn sum_squares<V: Lanes>(&self, x: *const f32, fill: f32, f: impl Fn(V) -> V) -> f32 {
        let mut acc = V::splat(0.0);
        let mut at = 0;
        while at < self.cols {
            let v = f(V::load_part(x.add(at), LANES.min(self.cols - at), fill));
            acc = v.fma(v, acc);
            at += LANES;
        }
        acc.fold_add()
    }

    #[inline(always)]
    unsafe fn map<V: Lanes>(&self, x: *const f32, out: *mut f32, f: impl Fn(V, usize, usize) -> V) {
        let mut at = 0;
        while at < self.cols {
            let n = LANES.min(self.cols - at);
            f(V::load_part(x.add(at), n, 0.0), at, n).store_part(out.add(at), n);
            at += LANES;
        }
    }
}
