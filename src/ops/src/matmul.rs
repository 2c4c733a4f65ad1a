//! Linear layers.

use flashrt_exec::{Context, Recorder, Space};
use half::{bf16, f16};

use crate::check::{operand, Check};
use crate::device::{Call, MATMUL};
use crate::lanes::{Lanes, LANES};
use crate::launch::{record, Kernel, Ptr};
use crate::math;
use crate::tile::{tile, Block, Left, Out, Right};
use crate::{DType, Error, Tensor};

/// What [`matmul`] does with a finished product `y = a·wᵀ + bias` before it is stored.
#[derive(Clone, Copy, Debug)]
pub enum Epilogue<'a> {
    /// `out = y`
    None,
    /// `out = gelu_tanh(y)`
    GeluTanh,
    /// `out = y·σ(y)`
    Silu,
    /// `out = residual + y`; residual `[M, N]` f32, may be `out` itself.
    Residual(&'a Tensor),
    /// `out = residual + y·gate`; residual `[M, N]` f32 (may be `out` itself), gate `[N]` f32, one for all rows.
    ResidualGate {
        /// What is added to, `[M, N]`.
        residual: &'a Tensor,
        /// Factor of each column, `[N]`.
        gate: &'a Tensor,
    },
    /// `out = gelu_tanh(gate)·y`; gate `[M, N]` f32, may be `out` itself: the second half of a gated feed-forward.
    GegluUp {
        /// The gate projection before its activation, `[M, N]`.
        gate: &'a Tensor,
    },
}

/// A linear layer's weight `[N, K]` ("out, in") in the layout that the context's [`matmul`] reads.
///
/// Panels of 16 outputs, `[ceil(N/16)][K][16]` f32, zero beyond `N`, on every backend. Cloning shares the memory.
#[derive(Clone, Debug)]
pub struct PackedWeight {
    panels: Tensor,
    n: usize,
    k: usize,
}

impl PackedWeight {
    /// Packs a row-major weight `[N, K]` (or `[N, ..]`, whose inner dimensions are read as one K) of
    /// f32, f16 or bf16 from the context's memory. Blocking, allocates: set-up only.
    ///
    /// # Errors
    /// [`Error::Shape`] for an empty weight or rank below 2, [`Error::DType`], and what the context says.
    pub fn pack(ctx: &Context, weight: &Tensor) -> Result<PackedWeight, Error> {
        let c = Check("pack_weight");
        if weight.rank() < 2 {
            return Err(c.bad_shape("weight", weight, "[N, K]".to_owned()));
        }
        let mut raw = vec![0u8; weight.slice().bytes()];
        ctx.download(weight.slice(), &mut raw)?;
        let n = weight.shape()[0];
        let k = weight.numel().checked_div(n).unwrap_or(0);
        Self::from_bytes(
            ctx,
            weight.slice().buffer().name(),
            weight.dtype(),
            n,
            k,
            &raw,
        )
    }

    /// Packs a row-major weight `[n, k]` of native-endian f32, f16 or bf16 elements from host memory,
    /// into a new device buffer `name`. Several projections of one input can be packed as one weight
    /// by giving their rows one after another. Blocking, allocates: set-up only.
    ///
    /// # Errors
    /// [`Error::Argument`] for an empty weight, [`Error::DType`], [`Error::Length`], and what the context says.
    pub fn from_bytes(
        ctx: &Context,
        name: &str,
        dtype: DType,
        n: usize,
        k: usize,
        bytes: &[u8],
    ) -> Result<PackedWeight, Error> {
        let c = Check("pack_weight");
        c.argument("n·k", n > 0 && k > 0, "> 0", format!("{n}·{k}"))?;
        let read: fn(&[u8]) -> f32 = match dtype {
            DType::F32 => |b| f32::from_ne_bytes([b[0], b[1], b[2], b[3]]),
            DType::F16 => |b| f16::from_ne_bytes([b[0], b[1]]).to_f32(),
            DType::BF16 => |b| bf16::from_ne_bytes([b[0], b[1]]).to_f32(),
            got => {
                return Err(Error::DType {
                    op: "pack_weight",
                    operand: "weight",
                    expected: "f32, f16 or bf16",
                    got,
                })
            }
        };
        let size = dtype.bytes();
        let need = n
            .checked_mul(k)
            .and_then(|e| e.checked_mul(size))
            .unwrap_or(usize::MAX);
        if bytes.len() != need {
            return Err(Error::Length {
                what: "weight bytes",
                expected: need,
                got: bytes.len(),
            });
        }
        let count = n.div_ceil(LANES);
        let panels = Tensor::alloc(ctx, name, Space::Device, DType::F32, &[count, k, LANES])?;
        let mut packed = vec![0f32; k * LANES];
        let mut raw = vec![0u8; k * LANES * 4];
        for panel in 0..count {
            packed.fill(0.0);
            for lane in 0..LANES.min(n - panel * LANES) {
                let row = (panel * LANES + lane) * k * size;
                for (i, e) in bytes[row..row + k * size].chunks_exact(size).enumerate() {
                    packed[i * LANES + lane] = read(e);
                }
            }
            for (dst, v) in raw.chunks_exact_mut(4).zip(&packed) {
                dst.copy_from_slice(&v.to_ne_bytes());
            }
            ctx.upload(panels.rows(panel..panel + 1)?.slice(), &raw)?;
        }
        Ok(PackedWeight { panels, n, k })
    }

    /// Outputs N.
    pub fn n(&self) -> usize {
        self.n
    }

    /// Inputs K.
    pub fn k(&self) -> usize {
        self.k
    }

    /// Bytes of the packed memory.
    pub fn bytes(&self) -> usize {
        self.panels.slice().bytes()
    }
}

/// `out[M, N] = epilogue(a[M, K]·wᵀ + bias)`.
///
/// `a` `[.., K]` f32, read as rows; `bias` `[N]` f32; `out` `[.., N]` f32 with as many rows, apart from `a`.
/// Each output is one fused multiply-add chain over k from zero, then `+ bias`, then the epilogue.
///
/// # Errors
/// [`Error::Shape`], [`Error::DType`], [`Error::Overlap`]; the recorder's own errors.
pub fn matmul(
    r: &mut Recorder<'_>,
    a: &Tensor,
    w: &PackedWeight,
    bias: Option<&Tensor>,
    epilogue: Epilogue<'_>,
    out: &Tensor,
) -> Result<(), Error> {
    let c = Check("matmul");
    c.f32("a", a)?;
    c.f32("out", out)?;
    let (m, k) = c.rows("a", a)?;
    if k != w.k {
        return Err(c.bad_shape(
            "a",
            a,
            format!("[.., {}] for a weight [{}, {}]", w.k, w.n, w.k),
        ));
    }
    let (out_rows, n) = c.rows("out", out)?;
    if (out_rows, n) != (m, w.n) {
        return Err(c.bad_shape("out", out, format!("{m} rows of {}", w.n)));
    }
    let same_as_out = |name, t: &Tensor| {
        c.f32(name, t)?;
        if (t.row_count(), t.cols()) != (m, n) {
            return Err(c.bad_shape(name, t, format!("{m} rows of {n}")));
        }
        c.same_or_apart(operand("out", out), &[operand(name, t)])
    };
    let mut touches = vec![a, &w.panels, out];
    if let Some(bias) = bias {
        c.f32_shape("bias", bias, &[n])?;
        c.apart(operand("out", out), &[operand("bias", bias)])?;
        touches.push(bias);
    }
    c.apart(
        operand("out", out),
        &[operand("a", a), operand("w", &w.panels)],
    )?;
    let finish = match epilogue {
        Epilogue::None => Finish::None,
        Epilogue::GeluTanh => Finish::GeluTanh,
        Epilogue::Silu => Finish::Silu,
        Epilogue::Residual(t) => {
            same_as_out("residual", t)?;
            touches.push(t);
            Finish::Residual(Ptr::of(t))
        }
        Epilogue::ResidualGate { residual, gate } => {
            same_as_out("residual", residual)?;
            c.f32("gate", gate)?;
            if gate.numel() != n {
                return Err(c.bad_shape("gate", gate, format!("[{n}]")));
            }
            c.apart(operand("out", out), &[operand("gate", gate)])?;
            touches.extend([residual, gate]);
            Finish::ResidualGate(Ptr::of(residual), Ptr::of(gate))
        }
        Epilogue::GegluUp { gate } => {
            same_as_out("gate", gate)?;
            touches.push(gate);
            Finish::GegluUp(Ptr::of(gate))
        }
    };
    let kernel = Linear {
        m,
        n,
        k,
        cut: Cut::new(m, n, k),
        a: Ptr::of(a),
        panels: Ptr::of(&w.panels),
        bias: Ptr::of_opt(bias),
        out: Ptr::of(out),
        finish,
    };
    record(r, "matmul", &touches, kernel, || {
        // Few rows: more blocks; many rows: more use of what a block has loaded.
        let (name, rows) = if m <= 64 {
            ("matmul_8_f32", 8)
        } else {
            ("matmul_32_f32", 32)
        };
        let (number, other, gate) = match epilogue {
            Epilogue::None => (0, None, None),
            Epilogue::GeluTanh => (1, None, None),
            Epilogue::Silu => (2, None, None),
            Epilogue::Residual(t) => (3, Some(t), None),
            Epilogue::ResidualGate { residual, gate } => (4, Some(residual), Some(gate)),
            Epilogue::GegluUp { gate } => (5, Some(gate), None),
        };
        vec![Call::new(&MATMUL, name)
            .blocks(n.div_ceil(32), m.div_ceil(rows))
            .tensor(a)
            .tensor(&w.panels)
            .optional(bias)
            .tensor(out)
            .size(m)
            .size(n)
            .size(k)
            .size(number)
            .optional(other)
            .optional(gate)]
    })
}

#[derive(Clone, Copy)]
enum Finish {
    None,
    GeluTanh,
    Silu,
    Residual(Ptr<f32>),
    ResidualGate(Ptr<f32>, Ptr<f32>),
    GegluUp(Ptr<f32>),
}

/// How an output `[M, N]` is cut into tasks: rectangles of whole panel pairs.
#[derive(Clone, Copy)]
struct Cut {
    rows: usize,
    row_tasks: usize,
    panels: usize,
    panel_tasks: usize,
}

impl Cut {
    /// Multiply-adds worth handing to another thread: about ten microseconds of one core.
    const GRAIN: usize = 400_000;

    fn new(m: usize, n: usize, k: usize) -> Cut {
        let panels = n.div_ceil(LANES);
        let pair = m * k * 2 * LANES;
        let (rows, per_task) = if pair > 2 * Self::GRAIN {
            // Split rows, in multiples of every tile height's near-fit.
            let parts = (pair / Self::GRAIN).min(m.div_ceil(28)).max(1);
            (m.div_ceil(parts), 2)
        } else {
            (m, 2 * (Self::GRAIN / pair.max(1)).max(1))
        };
        let rows = rows.max(1);
        Cut {
            rows,
            row_tasks: m.div_ceil(rows),
            panels: per_task,
            panel_tasks: panels.div_ceil(per_task),
        }
    }
}

#[derive(Clone, Copy)]
struct Linear {
    m: usize,
    n: usize,
    k: usize,
    cut: Cut,
    a: Ptr<f32>,
    panels: Ptr<f32>,
    bias: Option<Ptr<f32>>,
    out: Ptr<f32>,
    finish: Finish,
}

impl Kernel for Linear {
    fn tasks(&self) -> usize {
        self.cut.row_tasks * self.cut.panel_tasks
    }

    #[inline(always)]
    unsafe fn run<V: Lanes>(&self, task: usize) {
        let first_row = task % self.cut.row_tasks * self.cut.rows;
        let rows = self.cut.rows.min(self.m - first_row);
        let first = task / self.cut.row_tasks * self.cut.panels;
        let end = (first + self.cut.panels).min(self.n.div_ceil(LANES));
        let blocks = rows.div_ceil(V::TILE_ROWS);
        let mut panel = first;
        while panel < end {
            let wide = V::TILE_VECS == 2 && panel + 2 <= end;
            let mut row = first_row;
            for block in 0..blocks {
                // Blocks of nearly equal height: 16 rows are 8 + 8, not 14 + 2.
                let height = (rows * (block + 1)) / blocks - (rows * block) / blocks;
                if wide {
                    self.block::<V, 2>(row, height, panel);
                } else {
                    self.block::<V, 1>(row, height, panel);
                }
                row += height;
            }
            panel += if wide { 2 } else { 1 };
        }
    }
}

impl Linear {
    #[inline(always)]
    unsafe fn block<V: Lanes, const C: usize>(&self, row: usize, height: usize, panel: usize) {
        let mut sums = Block::<{ 14 * 2 * LANES }>::new();
        let left = Left {
            at: self.a.get().add(row * self.k),
            row_step: self.k,
            k_step: 1,
        };
        let right = Right {
            at: self.panels.get().add(panel * self.k * LANES),
            panel_step: self.k * LANES,
        };
        let step = C * LANES;
        tile::<V, C>(
            height,
            self.k,
            left,
            right,
            Out {
                at: sums.at(),
                row_step: step,
            },
            false,
        );
        for c in 0..C {
            let col = (panel + c) * LANES;
            let width = LANES.min(self.n - col);
            let bias = match self.bias {
                Some(b) => V::load_part(b.get().add(col), width, 0.0),
                None => V::splat(0.0),
            };
            for i in 0..height {
                let mut y = V::load(sums.at().add(i * step + c * LANES));
                if self.bias.is_some() {
                    y = y.add(bias);
                }
                let at = (row + i) * self.n + col;
                let y = match self.finish {
                    Finish::None => y,
                    Finish::GeluTanh => math::gelu_tanh(y),
                    Finish::Silu => math::silu(y),
                    Finish::Residual(x) => V::load_part(x.get().add(at), width, 0.0).add(y),
                    Finish::ResidualGate(x, gate) => {
                        let gate = V::load_part(gate.get().add(col), width, 0.0);
                        y.fma(gate, V::load_part(x.get().add(at), width, 0.0))
                    }
                    Finish::GegluUp(gate) => {
                        math::gelu_tanh(V::load_part(gate.get().add(at), width, 0.0)).mul(y)
                    }
                };
                y.store_part(self.out.mut_ptr().add(at), width);
            }
        }
    }
}
