//! Moving whole rows between buffers: recorded copies, the same on every backend.

use flashrt_exec::Recorder;

use crate::check::{operand, Check};
use crate::{Error, Tensor};

/// `dst = src`, all of it: same dtype and number of elements, any shapes, no overlap.
///
/// # Errors
/// [`Error::Shape`], [`Error::DType`], [`Error::Overlap`]; the recorder's own errors.
pub fn latch(r: &mut Recorder<'_>, src: &Tensor, dst: &Tensor) -> Result<(), Error> {
    copy("latch", r, src, dst)
}

/// Rows `at..at + rows(src)` of `dst` become `src`; the inner dimensions and the dtype are equal, no overlap.
///
/// # Errors
/// [`Error::Rows`] when the rows do not fit, [`Error::Shape`], [`Error::DType`], [`Error::Overlap`]; the recorder's own errors.
pub fn copy_rows(r: &mut Recorder<'_>, src: &Tensor, dst: &Tensor, at: usize) -> Result<(), Error> {
    let c = Check("copy_rows");
    if src.rank() == 0 || dst.rank() == 0 || src.shape()[1..] != dst.shape()[1..] {
        return Err(c.bad_shape("src", src, format!("rows of dst {:?}", dst.shape())));
    }
    let window = dst.rows(at..at.saturating_add(src.shape()[0]))?;
    copy("copy_rows", r, src, &window)
}

/// `out` = the rows of `parts` one after another; equal inner dimensions and dtype, no overlap.
///
/// # Errors
/// As [`copy_rows`]; [`Error::Shape`] when the rows do not add up.
pub fn concat_rows(r: &mut Recorder<'_>, parts: &[&Tensor], out: &Tensor) -> Result<(), Error> {
    let c = Check("concat_rows");
    let rows: usize = parts
        .iter()
        .map(|p| p.shape().first().copied().unwrap_or(0))
        .sum();
    if out.rank() == 0 || out.shape()[0] != rows {
        return Err(c.bad_shape("out", out, format!("[{rows}, ..]")));
    }
    let mut at = 0;
    for part in parts {
        copy_rows(r, part, out, at)?;
        at += part.shape()[0];
    }
    Ok(())
}

fn copy(op: &'static str, r: &mut Recorder<'_>, src: &Tensor, dst: &Tensor) -> Result<(), Error> {
    let c = Check(op);
    if src.dtype() != dst.dtype() {
        return Err(Error::DType {
            op,
            operand: "src",
            expected: "dst's type",
            got: src.dtype(),
        });
    }
    if src.numel() != dst.numel() {
        return Err(c.bad_shape("src", src, format!("{} elements", dst.numel())));
    }
    c.apart(operand("dst", dst), &[operand("src", src)])?;
    if src.numel() == 0 {
        return Ok(());
    }
    Ok(r.copy(dst.slice(), src.slice())?)
}
