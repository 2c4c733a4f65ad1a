//! Record-time checks shared by all operations.

use flashrt_exec::BackendKind;

use crate::tensor::show;
use crate::{DType, Error, Tensor};

/// A named operand of the operation that is being recorded.
#[derive(Clone, Copy)]
pub(crate) struct Operand<'a> {
    pub name: &'static str,
    pub tensor: &'a Tensor,
}

/// Checks for one operation, so that messages can name it.
#[derive(Clone, Copy)]
pub(crate) struct Check(pub &'static str);

impl Check {
    pub fn f32(self, name: &'static str, t: &Tensor) -> Result<(), Error> {
        self.dtype(name, t, &[DType::F32], "f32")
    }

    pub fn dtype(
        self,
        operand: &'static str,
        t: &Tensor,
        any: &[DType],
        expected: &'static str,
    ) -> Result<(), Error> {
        if any.contains(&t.dtype()) {
            return Ok(());
        }
        Err(Error::DType {
            op: self.0,
            operand,
            expected,
            got: t.dtype(),
        })
    }

    /// f32 anywhere; f16 and bf16 where there are kernels of half precision.
    pub fn float(self, name: &'static str, t: &Tensor, backend: BackendKind) -> Result<(), Error> {
        match backend {
            BackendKind::Cuda => self.dtype(
                name,
                t,
                &[DType::F32, DType::F16, DType::BF16],
                "f32, f16 or bf16",
            ),
            _ => self.dtype(name, t, &[DType::F32], "f32 (f16 and bf16 on cuda only)"),
        }
    }

    /// As another operand: type and shape.
    pub fn like(self, name: &'static str, t: &Tensor, other: &Tensor) -> Result<(), Error> {
        if t.dtype() != other.dtype() {
            return Err(Error::DType {
                op: self.0,
                operand: name,
                expected: "the input's type",
                got: t.dtype(),
            });
        }
        self.shape(name, t, other.shape())
    }

    pub fn shape(self, operand: &'static str, t: &Tensor, want: &[usize]) -> Result<(), Error> {
        if t.shape() == want {
            return Ok(());
        }
        Err(self.bad_shape(operand, t, show(want)))
    }

    /// An f32 operand of exactly this shape.
    pub fn f32_shape(self, operand: &'static str, t: &Tensor, want: &[usize]) -> Result<(), Error> {
        self.f32(operand, t)?;
        self.shape(operand, t, want)
    }

    pub fn rank(
        self,
        operand: &'static str,
        t: &Tensor,
        rank: usize,
        meaning: &str,
    ) -> Result<(), Error> {
        if t.rank() == rank {
            return Ok(());
        }
        Err(self.bad_shape(operand, t, meaning.to_owned()))
    }

    /// Rows of at least one element each: rank ≥ 1 and no empty innermost dimension.
    pub fn rows(self, operand: &'static str, t: &Tensor) -> Result<(usize, usize), Error> {
        if t.rank() == 0 || t.cols() == 0 {
            return Err(self.bad_shape(operand, t, "[.., D] with D > 0".to_owned()));
        }
        Ok((t.row_count(), t.cols()))
    }

    pub fn bad_shape(self, operand: &'static str, t: &Tensor, expected: String) -> Error {
        Error::Shape {
            op: self.0,
            operand,
            expected,
            got: show(t.shape()),
        }
    }

    pub fn argument(
        self,
        argument: &'static str,
        ok: bool,
        expected: &str,
        got: impl ToString,
    ) -> Result<(), Error> {
        if ok {
            return Ok(());
        }
        Err(Error::Argument {
            op: self.0,
            argument,
            expected: expected.to_owned(),
            got: got.to_string(),
        })
    }

    /// `out` may share no byte with any of `inputs`.
    pub fn apart(self, out: Operand<'_>, inputs: &[Operand<'_>]) -> Result<(), Error> {
        for i in inputs {
            if overlap(out.tensor, i.tensor) {
                return Err(self.overlap(out, *i));
            }
        }
        Ok(())
    }

    /// `out` may be the very same bytes as one of `inputs` (elementwise in place), but not a shifted view.
    pub fn same_or_apart(self, out: Operand<'_>, inputs: &[Operand<'_>]) -> Result<(), Error> {
        for i in inputs {
            let (a, b) = (out.tensor.slice(), i.tensor.slice());
            let same = a.buffer().id() == b.buffer().id()
                && a.offset() == b.offset()
                && a.bytes() == b.bytes();
            if !same && overlap(out.tensor, i.tensor) {
                return Err(self.overlap(out, *i));
            }
        }
        Ok(())
    }

    fn overlap(self, out: Operand<'_>, input: Operand<'_>) -> Error {
        Error::Overlap {
            op: self.0,
            output: out.name,
            operand: input.name,
            buffer: out.tensor.slice().buffer().name().to_owned(),
        }
    }
}

pub(crate) fn operand<'a>(name: &'static str, tensor: &'a Tensor) -> Operand<'a> {
    Operand { name, tensor }
}

fn overlap(a: &Tensor, b: &Tensor) -> bool {
    let (a, b) = (a.slice(), b.slice());
    a.buffer().id() == b.buffer().id()
        && a.offset() < b.offset() + b.bytes()
        && b.offset() < a.offset() + a.bytes()
}
