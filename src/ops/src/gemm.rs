//! Matrix products of half precision by cuBLASLt, with an algorithm that is measured once and named.

use flashrt_exec::{Context, Recorder};

use crate::{DType, Error, Tensor};

/// Shape and types of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GemmShape {
    /// Rows of x and out.
    pub m: usize,
    /// Rows of w, columns of out.
    pub n: usize,
    /// Columns of x and w.
    pub k: usize,
    /// Type of all three: f16, bf16 or f32 (without TF32).
    pub dtype: DType,
}

/// `out[M, N] = x[M, K]·w[N, K]ᵀ`, optionally `+ out`, on CUDA: a shape with a chosen algorithm and its scratch memory.
///
/// Made at configure; recording it enqueues one call of the library and allocates nothing. The choice can be written down
/// ([`GemmPlan::describe`]) and given back ([`GemmPlan::from_text`]); the same choice gives the same bits on the same device and library.
pub struct GemmPlan {
    shape: GemmShape,
    #[cfg(feature = "cuda")]
    device: device::Plan,
}

impl GemmPlan {
    /// Asks the library for algorithms, times each on the device, and takes the fastest. Blocking, allocates operands of the shape
    /// for the time being: set-up only, and nothing else should run on the device.
    ///
    /// # Errors
    /// [`Error::Argument`] for an empty or over-large shape, [`Error::DType`], [`Error::NoCublas`], [`Error::Cublas`] with the
    /// library's status, and what the context says; a context that is not on CUDA is "backend unavailable".
    pub fn tune(ctx: &Context, shape: GemmShape) -> Result<GemmPlan, Error> {
        check(ctx, shape)?;
        #[cfg(feature = "cuda")]
        return Ok(GemmPlan {
            shape,
            device: device::Plan::tune(ctx, shape)?,
        });
        #[cfg(not(feature = "cuda"))]
        Err(unavailable(ctx))
    }

    /// The plan that [`GemmPlan::describe`] described, without timing.
    ///
    /// # Errors
    /// [`Error::Argument`] for a text of another form, or an algorithm that the library does not propose here; otherwise as [`GemmPlan::tune`].
    pub fn from_text(ctx: &Context, text: &str) -> Result<GemmPlan, Error> {
        let (shape, algorithm) = parse(text).ok_or_else(|| Error::Argument {
            op: "gemm",
            argument: "plan",
            expected: "'gemm M N K TYPE: eight hexadecimal words'".into(),
            got: format!("{text:?}"),
        })?;
        check(ctx, shape)?;
        #[cfg(feature = "cuda")]
        return Ok(GemmPlan {
            shape,
            device: device::Plan::known(ctx, shape, algorithm)?,
        });
        #[cfg(not(feature = "cuda"))]
        {
            let _ = algorithm;
            Err(unavailable(ctx))
        }
    }

    /// The shape.
    pub fn shape(&self) -> GemmShape {
        self.shape
    }

    /// Shape and algorithm as one line, for an identity.
    pub fn describe(&self) -> String {
        #[cfg(feature = "cuda")]
        let words = self.device.algorithm;
        #[cfg(not(feature = "cuda"))]
        let words = [0; 8];
        let GemmShape { m, n, k, dtype } = self.shape;
        let words: Vec<String> = words.iter().map(|w| format!("{w:016x}")).collect();
        format!("gemm {m} {n} {k} {dtype}: {}", words.join(" "))
    }

    /// Records `out = x·wᵀ`, or `out += x·wᵀ` with `adds`. Operands of the plan's shape and type, `out` apart from both.
    ///
    /// Work of one plan runs on one stream at a time: its scratch memory is one.
    ///
    /// # Errors
    /// [`Error::Shape`], [`Error::DType`], [`Error::Overlap`]; the recorder's own errors.
    pub fn record(
        &self,
        r: &mut Recorder<'_>,
        x: &Tensor,
        w: &Tensor,
        adds: bool,
        out: &Tensor,
    ) -> Result<(), Error> {
        use crate::check::{operand, Check};
        let c = Check("gemm");
        let GemmShape { m, n, k, dtype } = self.shape;
        for (name, t, shape) in [("x", x, [m, k]), ("w", w, [n, k]), ("out", out, [m, n])] {
            c.dtype(name, t, &[dtype], "the plan's type")?;
            c.shape(name, t, &shape)?;
        }
        c.apart(operand("out", out), &[operand("x", x), operand("w", w)])?;
        #[cfg(feature = "cuda")]
        return self.device.record(r, x, w, adds, out);
        #[cfg(not(feature = "cuda"))]
        {
            let _ = adds;
            Err(unavailable(r.context()))
        }
    }
}

fn unavailable(ctx: &Context) -> Error {
    Error::Exec(flashrt_exec::Error::BackendUnavailable {
        backend: ctx.backend(),
        reason: "gemm plans are for cuda; matmul runs anywhere".into(),
    })
}

fn check(ctx: &Context, shape: GemmShape) -> Result<(), Error> {
    let c = crate::check::Check("gemm");
    let GemmShape { m, n, k, dtype } = shape;
    let fits = [m, n, k].iter().all(|&d| d > 0 && d <= 1 << 24);
    c.argument(
        "shape",
        fits,
        "three sizes in 1..=2^24",
        format!("{m}, {n}, {k}"),
    )?;
    if !matches!(dtype, DType::F16 | DType::BF16 | DType::F32) {
        return Err(Error::DType {
            op: "gemm",
            operand: "x",
            expected: "f16, bf16 or f32",
            got: dtype,
        });
    }
    match ctx.device_ordinal() {
        Some(_) => Ok(()),
        None => Err(unavailable(ctx)),
    }
}

fn parse(text: &str) -> Option<(GemmShape, [u64; 8])> {
    let (head, words) = text.strip_prefix("gemm ")?.split_once(": ")?;
    let head: Vec<&str> = head.split(' ').collect();
    let [m, n, k, dtype] = head[..] else {
        return None;
    };
    let dtype = [DType::F16, DType::BF16, DType::F32]
        .into_iter()
        .find(|d| d.to_string() == dtype)?;
    let shape = GemmShape {
        m: m.parse().ok()?,
        n: n.parse().ok()?,
        k: k.parse().ok()?,
        dtype,
    };
    let words: Vec<u64> = words
        .split(' ')
        .map(|w| {
            (w.len() == 16)
                .then(|| u64::from_str_radix(w, 16).ok())
                .flatten()
        })
        .collect::<Option<_>>()?;
    Some((shape, words.try_into().ok()?))
}

#[cfg(feature = "cuda")]
mod device {
    use std::sync::Arc;

    use flashrt_exec::{Context, Recorder, Space, StreamId};

    use super::GemmShape;
    use crate::cuda::cublaslt::{workspace, Algorithm, CublasLt, Product};
    use crate::{Error, Tensor};

    pub(super) struct Plan {
        product: Arc<Product>,
        pub(super) algorithm: Algorithm,
        workspace: Tensor,
    }

    impl Plan {
        pub(super) fn of(
            ctx: &Context,
            shape: GemmShape,
            algorithm: Algorithm,
        ) -> Result<Plan, Error> {
            let GemmShape { m, n, k, dtype } = shape;
            // Makes the device's context current on this thread, which the library needs.
            let workspace = workspace(ctx)?;
            Ok(Plan {
                product: Arc::new(Product::new(CublasLt::of(ctx)?, m, n, k, dtype)?),
                algorithm,
                workspace,
            })
        }

        /// Words of a text are given to the library only if it would propose them itself.
        pub(super) fn known(
            ctx: &Context,
            shape: GemmShape,
            algorithm: Algorithm,
        ) -> Result<Plan, Error> {
            let plan = Plan::of(ctx, shape, algorithm)?;
            let proposals = plan.product.proposals(64)?;
            match proposals.contains(&algorithm) {
                true => Ok(plan),
                false => Err(Error::Argument {
                    op: "gemm",
                    argument: "plan",
                    expected: format!(
                        "one of {} algorithms that cuBLASLt proposes for the shape on this device",
                        proposals.len()
                    ),
                    got: "another".into(),
                }),
            }
        }

        pub(super) fn tune(ctx: &Context, shape: GemmShape) -> Result<Plan, Error> {
            let mut plan = Plan::of(ctx, shape, [0; 8])?;
            let GemmShape { m, n, k, dtype } = shape;
            let tensor = |shape: &[usize]| {
                let t = Tensor::alloc(ctx, "gemm_tuning", Space::Device, dtype, shape)?;
                // Ordinary numbers: about 1 in f16, 0.01 in bf16 and f32.
                ctx.fill(t.slice(), 0x3C, StreamId(0))?;
                Ok::<_, Error>(t)
            };
            let operands =
                || Ok::<_, Error>([tensor(&[m, k])?, tensor(&[n, k])?, tensor(&[m, n])?]);
            plan.algorithm = plan
                .product
                .tune(ctx, [operands()?, operands()?], &plan.workspace)?;
            Ok(plan)
        }

        pub(super) fn record(
            &self,
            r: &mut Recorder<'_>,
            x: &Tensor,
            w: &Tensor,
            adds: bool,
            out: &Tensor,
        ) -> Result<(), Error> {
            let touches = [x.slice(), w.slice(), out.slice(), self.workspace.slice()];
            let submit = |stream| {
                let launched =
                    self.product
                        .launch(&self.algorithm, x, w, out, adds, &self.workspace, stream);
                launched.map_err(|e| e.to_string())
            };
            // SAFETY: the library touches the three checked operands and the workspace; `product` keeps its descriptions.
            unsafe { r.device_work("gemm", &touches, Some(self.product.clone()), submit) }?;
            Ok(())
        }
    }
}
