//! Flow-time embedding.

use flashrt_exec::Recorder;

use crate::check::Check;
use crate::device::{Call, ELEMENTWISE};
use crate::lanes::Lanes;
use crate::launch::{record, Kernel, Ptr};
use crate::math;
use crate::{Error, Tensor};

/// Sinusoidal embedding of the flow time `t`: `out` of W elements f32 (W even, ≥ 4),
/// `[sin a_0 .. sin a_{h-1}, cos a_0 .. cos a_{h-1}]` with h = W/2, `a_i = 2π·t/period_i` and
/// `period_i = min_period·(max_period/min_period)^(i/(h-1))`.
///
/// π0.5 uses periods 4e-3 to 4. `t` is known when the operation is recorded, so the values are computed
/// then, in f64 by this crate's own functions, and rounded once to f32.
///
/// # Errors
/// [`Error::Shape`], [`Error::DType`], [`Error::Argument`]; the recorder's own errors.
pub fn time_embedding(
    r: &mut Recorder<'_>,
    t: f64,
    min_period: f64,
    max_period: f64,
    out: &Tensor,
) -> Result<(), Error> {
    let c = Check("time_embedding");
    c.f32("out", out)?;
    let w = out.numel();
    if w < 4 || w % 2 != 0 {
        return Err(c.bad_shape(
            "out",
            out,
            "an even number of elements, at least 4".to_owned(),
        ));
    }
    c.argument("t", t.is_finite(), "finite", t)?;
    let ordered = min_period > 0.0 && max_period >= min_period && max_period.is_finite();
    c.argument(
        "periods",
        ordered,
        "0 < min_period <= max_period",
        format!("{min_period}..{max_period}"),
    )?;
    let h = w / 2;
    let span = math::ln_f64(max_period / min_period);
    let mut values = vec![0f32; w].into_boxed_slice();
    for i in 0..h {
        let period = min_period * math::exp_f64(span * (i as f64 / (h - 1) as f64));
        let (sin, cos) = math::sin_cos_turns_f64(t / period);
        values[i] = sin as f32;
        values[h + i] = cos as f32;
    }
    let kernel = Constant {
        values,
        out: Ptr::of(out),
    };
    let calls: Vec<Call> = kernel
        .values
        .chunks(CONSTANTS)
        .enumerate()
        .map(|(i, part)| {
            Call::new(&ELEMENTWISE, "constant_f32")
                .each(part.len())
                .tensor(out)
                .size(i * CONSTANTS)
                .size(part.len())
                .floats(part, CONSTANTS)
        })
        .collect();
    record(r, "time_embedding", &[out], kernel, || calls)
}

/// Values that one launch of the device's kernel carries; `CONSTANTS` of `kernels/elementwise.cu`.
const CONSTANTS: usize = 512;

struct Constant {
    values: Box<[f32]>,
    out: Ptr<f32>,
}

impl Kernel for Constant {
    fn tasks(&self) -> usize {
        1
    }

    #[inline(always)]
    unsafe fn run<V: Lanes>(&self, _task: usize) {
        std::ptr::copy_nonoverlapping(self.values.as_ptr(), self.out.mut_ptr(), self.values.len());
    }
}
