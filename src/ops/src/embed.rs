//! From pixels and token ids to embeddings.

use flashrt_exec::Recorder;
use half::{bf16, f16};

use crate::check::{operand, Check};
use crate::device::{Call, EMBED};
use crate::lanes::Lanes;
use crate::launch::{record, Kernel, Ptr};
use crate::matmul::{matmul, Epilogue, PackedWeight};
use crate::{DType, Error, Tensor};

/// Cuts images into patches: one row a patch, in the order of a convolution weight.
///
/// `images` `[V, H, W, C]` f32 (NHWC), H and W multiples of `patch`; `out` `[V·(H/patch)·(W/patch), C·patch·patch]`
/// f32, patches row by row within a view, columns in the order (channel, y, x).
///
/// # Errors
/// [`Error::Shape`], [`Error::DType`], [`Error::Overlap`]; the recorder's own errors.
pub fn im2col(
    r: &mut Recorder<'_>,
    images: &Tensor,
    patch: usize,
    out: &Tensor,
) -> Result<(), Error> {
    let c = Check("im2col");
    let (rows, cols) = patches(c, images, patch)?;
    c.f32_shape("out", out, &[rows, cols])?;
    c.apart(operand("out", out), &[operand("images", images)])?;
    let k = Im2Col {
        images: Ptr::of(images),
        out: Ptr::of(out),
        views: images.shape()[0],
        height: images.shape()[1],
        width: images.shape()[2],
        channels: images.shape()[3],
        patch,
    };
    record(r, "im2col", &[images, out], k, || {
        vec![Call::new(&EMBED, "im2col_f32")
            .each(out.numel())
            .tensor(images)
            .tensor(out)
            .size(out.numel())
            .size(k.height)
            .size(k.width)
            .size(k.channels)
            .size(patch)]
    })
}

/// Patch embedding, a convolution whose stride is its kernel: `out = im2col(images)·wᵀ + bias`.
///
/// `w` is the convolution weight `[O, C, patch, patch]` packed as `[O, C·patch·patch]`; `scratch` as `im2col`'s `out`;
/// `out` `[patches of all views, O]`.
///
/// # Errors
/// As [`im2col`] and [`matmul`].
pub fn patch_embed(
    r: &mut Recorder<'_>,
    images: &Tensor,
    patch: usize,
    w: &PackedWeight,
    bias: Option<&Tensor>,
    scratch: &Tensor,
    out: &Tensor,
) -> Result<(), Error> {
    im2col(r, images, patch, scratch)?;
    matmul(r, scratch, w, bias, Epilogue::None, out)
}

/// `out[i] = table[ids[i]]·scale`.
///
/// `table` `[V, D]` f32, f16 or bf16; `ids` `[L]` i32; `out` `[L, D]` f32. The caller checks ids when
/// they enter; an id outside `0..V` that gets here gives a row of NaN, never a read outside the table.
///
/// # Errors
/// [`Error::Shape`], [`Error::DType`], [`Error::Overlap`], [`Error::Argument`] for a scale that is not finite; the recorder's own errors.
pub fn embed_gather(
    r: &mut Recorder<'_>,
    table: &Tensor,
    ids: &Tensor,
    scale: f32,
    out: &Tensor,
) -> Result<(), Error> {
    let c = Check("embed_gather");
    c.dtype(
        "table",
        table,
        &[DType::F32, DType::F16, DType::BF16],
        "f32, f16 or bf16",
    )?;
    c.rank("table", table, 2, "[V, D]")?;
    c.dtype("ids", ids, &[DType::I32], "i32")?;
    c.rank("ids", ids, 1, "[L]")?;
    c.f32_shape("out", out, &[ids.numel(), table.cols()])?;
    c.argument("scale", scale.is_finite(), "finite", scale)?;
    c.apart(
        operand("out", out),
        &[operand("table", table), operand("ids", ids)],
    )?;
    let rows = match table.dtype() {
        DType::F16 => Rows::F16(Ptr::of(table)),
        DType::BF16 => Rows::Bf16(Ptr::of(table)),
        _ => Rows::F32(Ptr::of(table)),
    };
    let k = Gather {
        table: rows,
        vocab: table.shape()[0],
        d: table.cols(),
        ids: Ptr::of(ids),
        len: ids.numel(),
        scale,
        out: Ptr::of(out),
    };
    record(r, "embed_gather", &[table, ids, out], k, || {
        let kernel = match table.dtype() {
            DType::F16 => "embed_gather_f16",
            DType::BF16 => "embed_gather_bf16",
            _ => "embed_gather_f32",
        };
        vec![Call::new(&EMBED, kernel)
            .each(out.numel())
            .tensor(table)
            .tensor(ids)
            .tensor(out)
            .size(out.numel())
            .size(k.vocab)
            .size(k.d)
            .float(scale)]
    })
}

fn patches(c: Check, images: &Tensor, patch: usize) -> Result<(usize, usize), Error> {
    c.f32("images", images)?;
    c.argument("patch", patch > 0, "> 0", patch)?;
    c.rank("images", images, 4, "[V, H, W, C]")?;
    let s = images.shape();
    if s[1] % patch != 0 || s[2] % patch != 0 || s[3] == 0 {
        let want = format!("[V, H, W, C] with H and W multiples of {patch}");
        return Err(c.bad_shape("images", images, want));
    }
    Ok((s[0] * (s[1] / patch) * (s[2] / patch), s[3] * patch * patch))
}

#[derive(Clone, Copy)]
struct Im2Col {
    images: Ptr<f32>,
    out: Ptr<f32>,
    views: usize,
    height: usize,
    width: usize,
    channels: usize,
    patch: usize,
}

impl Kernel for Im2Col {
    /// A task is one row of patches.
    fn tasks(&self) -> usize {
        if self.width == 0 {
            return 0;
        }
        self.views * (self.height / self.patch)
    }

    #[inline(always)]
    unsafe fn run<V: Lanes>(&self, task: usize) {
        let (p, across) = (self.patch, self.width / self.patch);
        let cols = self.channels * p * p;
        for px in 0..across {
            let out = self.out.mut_ptr().add((task * across + px) * cols);
            for y in 0..p {
                let line = (task * p + y) * self.width + px * p;
                for x in 0..p {
                    let pixel = self.images.get().add((line + x) * self.channels);
                    for ch in 0..self.channels {
                        *out.add((ch * p + y) * p + x) = *pixel.add(ch);
                    }
                }
            }
        }
    }
}

#[derive(Clone, Copy)]
enum Rows {
    F32(Ptr<f32>),
    F16(Ptr<f16>),
    Bf16(Ptr<bf16>),
}

#[derive(Clone, Copy)]
struct Gather {
    table: Rows,
    vocab: usize,
    d: usize,
    ids: Ptr<i32>,
    len: usize,
    scale: f32,
    out: Ptr<f32>,
}

impl Kernel for Gather {
    fn tasks(&self) -> usize {
        usize::from(self.len > 0 && self.d > 0)
    }

    #[inline(always)]
    unsafe fn run<V: Lanes>(&self, _task: usize) {
        for i in 0..self.len {
            let out = self.out.mut_ptr().add(i * self.d);
            let id = match usize::try_from(*self.ids.get().add(i)) {
                Ok(id) if id < self.vocab => id * self.d,
                _ => {
                    for j in 0..self.d {
                        *out.add(j) = f32::NAN;
                    }
                    continue;
                }
            };
            for j in 0..self.d {
                let v = match self.table {
                    Rows::F32(t) => *t.get().add(id + j),
                    Rows::F16(t) => (*t.get().add(id + j)).to_f32(),
                    Rows::Bf16(t) => (*t.get().add(id + j)).to_f32(),
                };
                *out.add(j) = v * self.scale;
            }
        }
    }
}
