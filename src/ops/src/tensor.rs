use std::fmt;
use std::ops::Range;

use flashrt_exec::{Context, Slice, Space};

use crate::Error;

/// Element type of a [`Tensor`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DType {
    /// Unsigned 8-bit: masks (0 = off) and raw bytes.
    U8,
    /// IEEE single.
    F32,
    /// IEEE half.
    F16,
    /// bfloat16.
    BF16,
    /// Signed 32-bit: token ids, positions.
    I32,
    /// Signed 64-bit.
    I64,
    /// Unsigned 64-bit: the noise generator's key and counter.
    U64,
}

impl DType {
    /// Bytes of one element, which is also its alignment.
    pub const fn bytes(self) -> usize {
        match self {
            DType::U8 => 1,
            DType::F16 | DType::BF16 => 2,
            DType::F32 | DType::I32 => 4,
            DType::I64 | DType::U64 => 8,
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DType::U8 => "u8",
            DType::F32 => "f32",
            DType::F16 => "f16",
            DType::BF16 => "bf16",
            DType::I32 => "i32",
            DType::I64 => "i64",
            DType::U64 => "u64",
        })
    }
}

/// Most dimensions that a [`Tensor`] can have.
pub const MAX_RANK: usize = 4;

/// A contiguous row-major view of a piece of a named buffer.
///
/// Cloning copies the view, never the memory; the buffer lives as long as any view of it.
#[derive(Clone)]
pub struct Tensor {
    slice: Slice,
    dtype: DType,
    shape: [usize; MAX_RANK],
    rank: usize,
}

impl Tensor {
    /// Views `slice` as `shape` elements of `dtype`, outermost dimension first.
    ///
    /// The slice must hold exactly that many bytes and start at a multiple of the element size.
    ///
    /// # Errors
    /// [`Error::Argument`] for more than [`MAX_RANK`] dimensions, [`Error::ViewSize`] and
    /// [`Error::ViewAlign`] when the memory does not fit.
    pub fn new(slice: Slice, dtype: DType, shape: &[usize]) -> Result<Tensor, Error> {
        let (dims, rank) = dims(shape)?;
        let need = bytes(dtype, shape);
        if need != Some(slice.bytes()) {
            return Err(Error::ViewSize {
                buffer: slice.buffer().name().to_owned(),
                shape: show(shape),
                expected: need.unwrap_or(usize::MAX),
                got: slice.bytes(),
            });
        }
        // Wrapped memory may start anywhere.
        if slice.as_ptr() as usize % dtype.bytes() != 0 {
            return Err(Error::ViewAlign {
                buffer: slice.buffer().name().to_owned(),
                offset: slice.offset(),
                dtype,
                align: dtype.bytes(),
            });
        }
        Ok(Tensor {
            slice,
            dtype,
            shape: dims,
            rank,
        })
    }

    /// Allocates a buffer `name` of just the right size, zeroed, and views it.
    ///
    /// # Errors
    /// As [`Tensor::new`], and what the context says about the allocation.
    pub fn alloc(
        ctx: &Context,
        name: &str,
        space: Space,
        dtype: DType,
        shape: &[usize],
    ) -> Result<Tensor, Error> {
        let Some(need) = bytes(dtype, shape) else {
            return Err(Error::ViewSize {
                buffer: name.to_owned(),
                shape: show(shape),
                expected: usize::MAX,
                got: 0,
            });
        };
        Tensor::new(ctx.alloc(name, space, need)?.all(), dtype, shape)
    }

    /// The same memory under another shape of as many elements.
    ///
    /// # Errors
    /// [`Error::ViewSize`] when the number of elements differs.
    pub fn view(&self, shape: &[usize]) -> Result<Tensor, Error> {
        Tensor::new(self.slice.clone(), self.dtype, shape)
    }

    /// Rows `range` of the outermost dimension, as a view of the same rank.
    ///
    /// # Errors
    /// [`Error::Rows`] when the range is not inside the tensor.
    pub fn rows(&self, range: Range<usize>) -> Result<Tensor, Error> {
        let rows = self.shape().first().copied().unwrap_or(1);
        if range.start > range.end || range.end > rows || self.rank == 0 {
            return Err(Error::Rows {
                start: range.start,
                end: range.end,
                rows,
            });
        }
        let row = self.slice.bytes().checked_div(rows).unwrap_or(0);
        let slice = self.slice.buffer().slice(
            self.slice.offset() + range.start * row,
            (range.end - range.start) * row,
        )?;
        let mut shape = self.shape;
        shape[0] = range.end - range.start;
        Ok(Tensor {
            slice,
            dtype: self.dtype,
            shape,
            rank: self.rank,
        })
    }

    /// The bytes under the view.
    pub fn slice(&self) -> &Slice {
        &self.slice
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Dimensions, outermost first.
    pub fn shape(&self) -> &[usize] {
        &self.shape[..self.rank]
    }

    /// Number of dimensions.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Number of elements.
    pub fn numel(&self) -> usize {
        self.shape().iter().product()
    }

    /// Innermost dimension; 1 for a scalar.
    pub fn cols(&self) -> usize {
        self.shape().last().copied().unwrap_or(1)
    }

    /// Product of all dimensions but the innermost.
    pub fn row_count(&self) -> usize {
        self.shape()[..self.rank.saturating_sub(1)].iter().product()
    }

    /// Writes `values` (exactly [`Tensor::numel`], f32 view) and waits for it. Set-up and tests only.
    ///
    /// # Errors
    /// [`Error::DType`], [`Error::Length`] and what the context says.
    pub fn upload_f32(&self, ctx: &Context, values: &[f32]) -> Result<(), Error> {
        self.host_check("upload_f32", values.len())?;
        let mut raw = Vec::with_capacity(values.len() * 4);
        for v in values {
            raw.extend_from_slice(&v.to_ne_bytes());
        }
        Ok(ctx.upload(&self.slice, &raw)?)
    }

    /// Reads the whole f32 view and waits for it. Set-up and tests only.
    ///
    /// # Errors
    /// [`Error::DType`] and what the context says.
    pub fn download_f32(&self, ctx: &Context) -> Result<Vec<f32>, Error> {
        self.host_check("download_f32", self.numel())?;
        let mut raw = vec![0u8; self.slice.bytes()];
        ctx.download(&self.slice, &mut raw)?;
        Ok(raw
            .chunks_exact(4)
            .map(|b| f32::from_ne_bytes([b[0], b[1], b[2], b[3]]))
            .collect())
    }

    fn host_check(&self, op: &'static str, got: usize) -> Result<(), Error> {
        if self.dtype != DType::F32 {
            return Err(Error::DType {
                op,
                operand: "tensor",
                expected: "f32",
                got: self.dtype,
            });
        }
        if got != self.numel() {
            return Err(Error::Length {
                what: "f32 values",
                expected: self.numel(),
                got,
            });
        }
        Ok(())
    }
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {} of '{}' at {}",
            self.dtype,
            show(self.shape()),
            self.slice.buffer().name(),
            self.slice.offset()
        )
    }
}

/// `[2, 3]`
pub(crate) fn show(shape: &[usize]) -> String {
    format!("{shape:?}")
}

fn bytes(dtype: DType, shape: &[usize]) -> Option<usize> {
    shape
        .iter()
        .try_fold(dtype.bytes(), |n, d| n.checked_mul(*d))
}

fn dims(shape: &[usize]) -> Result<([usize; MAX_RANK], usize), Error> {
    if shape.len() > MAX_RANK {
        return Err(Error::Argument {
            op: "view",
            argument: "rank",
            expected: format!("at most {MAX_RANK}"),
            got: shape.len().to_string(),
        });
    }
    let mut dims = [1; MAX_RANK];
    dims[..shape.len()].copy_from_slice(shape);
    Ok((dims, shape.len()))
}
