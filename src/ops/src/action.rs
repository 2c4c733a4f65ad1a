//! From the model's action space to the robot's.

use flashrt_exec::Recorder;

use crate::check::{operand, Check};
use crate::device::{Call, ACTION};
use crate::lanes::Lanes;
use crate::launch::{record, Kernel, Ptr};
use crate::{DType, Error, Tensor};

/// Columns that the model predicts as offsets from the robot's state.
#[derive(Clone, Copy, Debug)]
pub struct Anchor<'a> {
    /// The state that the chunk is relative to, `[S]` f32 with S ≤ A, in the units of the output.
    pub state: &'a Tensor,
    /// `[A]` u8: non-zero where the state's element of the same index is added. Columns from S on are never anchored.
    pub mask: &'a Tensor,
}

/// `out[h, d] = raw[h, d]·std + mean`, then `+ state[d]` on anchored columns.
///
/// `raw` `[H, R]` f32 with R ≥ A (padding columns are dropped); `std` and `mean` `[A]` or `[H, A]` f32;
/// `out` `[H, A]` f32. One fused multiply-add, then one addition.
///
/// # Errors
/// [`Error::Shape`], [`Error::DType`], [`Error::Overlap`]; the recorder's own errors.
pub fn action_unnormalize(
    r: &mut Recorder<'_>,
    raw: &Tensor,
    std: &Tensor,
    mean: &Tensor,
    anchor: Option<Anchor<'_>>,
    out: &Tensor,
) -> Result<(), Error> {
    let c = Check("action_unnormalize");
    c.f32("out", out)?;
    c.rank("out", out, 2, "[H, A]")?;
    let (h, a) = (out.shape()[0], out.shape()[1]);
    c.f32("raw", raw)?;
    if raw.rank() != 2 || raw.shape()[0] != h || raw.cols() < a {
        return Err(c.bad_shape("raw", raw, format!("[{h}, R] with R >= {a}")));
    }
    for (name, t) in [("std", std), ("mean", mean)] {
        c.f32(name, t)?;
        if t.shape() != [a] && t.shape() != [h, a] {
            return Err(c.bad_shape(name, t, format!("[{a}] or [{h}, {a}]")));
        }
        c.apart(operand("out", out), &[operand(name, t)])?;
    }
    // In place only works when no column is dropped.
    if raw.cols() == a {
        c.same_or_apart(operand("out", out), &[operand("raw", raw)])?;
    } else {
        c.apart(operand("out", out), &[operand("raw", raw)])?;
    }
    let mut touches = vec![raw, std, mean, out];
    let mut anchored = None;
    if let Some(Anchor { state, mask }) = anchor {
        c.f32("state", state)?;
        if state.rank() != 1 || state.numel() > a {
            return Err(c.bad_shape("state", state, format!("[S] with S <= {a}")));
        }
        c.dtype("mask", mask, &[DType::U8], "u8")?;
        c.shape("mask", mask, &[a])?;
        c.apart(
            operand("out", out),
            &[operand("state", state), operand("mask", mask)],
        )?;
        touches.extend([state, mask]);
        anchored = Some((Ptr::of(state), Ptr::of(mask), state.numel()));
    }
    let k = Unnormalize {
        raw: Ptr::of(raw),
        raw_cols: raw.cols(),
        std: (Ptr::of(std), if std.rank() == 2 { a } else { 0 }),
        mean: (Ptr::of(mean), if mean.rank() == 2 { a } else { 0 }),
        anchor: anchored,
        out: Ptr::of(out),
        h,
        a,
    };
    record(r, "action_unnormalize", &touches, k, || {
        let (state, mask) = (anchor.map(|a| a.state), anchor.map(|a| a.mask));
        vec![Call::new(&ACTION, "action_unnormalize_f32")
            .each(h * a)
            .tensor(raw)
            .size(raw.cols())
            .tensor(std)
            .size(k.std.1)
            .tensor(mean)
            .size(k.mean.1)
            .optional(state)
            .optional(mask)
            .size(state.map_or(0, Tensor::numel))
            .tensor(out)
            .size(h * a)
            .size(a)]
    })
}

#[derive(Clone, Copy)]
struct Unnormalize {
    raw: Ptr<f32>,
    raw_cols: usize,
    /// Values and elements from one row's to the next.
    std: (Ptr<f32>, usize),
    mean: (Ptr<f32>, usize),
    anchor: Option<(Ptr<f32>, Ptr<u8>, usize)>,
    out: Ptr<f32>,
    h: usize,
    a: usize,
}

impl Kernel for Unnormalize {
    fn tasks(&self) -> usize {
        usize::from(self.h > 0 && self.a > 0)
    }

    #[inline(always)]
    unsafe fn run<V: Lanes>(&self, _task: usize) {
        for h in 0..self.h {
            for d in 0..self.a {
                let raw = *self.raw.get().add(h * self.raw_cols + d);
                let std = *self.std.0.get().add(h * self.std.1 + d);
                let mean = *self.mean.0.get().add(h * self.mean.1 + d);
                let mut v = raw.mul_add(std, mean);
                if let Some((state, mask, len)) = self.anchor {
                    if d < len && *mask.get().add(d) != 0 {
                        v += *state.get().add(d);
                    }
                }
                *self.out.mut_ptr().add(h * self.a + d) = v;
            }
        }
    }
}
