//! Rotary position embedding, half-split pairing.

use flashrt_exec::{BackendKind, Recorder};

use crate::check::{operand, Check};
use crate::device::{is_packed, typed, Call, PACK, ROPE};
use crate::lanes::{Lanes, LANES};
use crate::launch::{on_device, record, Kernel, Ptr};
use crate::math;
use crate::{DType, Error, Tensor};

/// Frequencies that the device's kernel takes as a parameter; `FREQUENCIES` of `kernels/rope.cu`.
const FREQUENCIES: usize = 512;

/// `positions[i] = (number of set mask bytes in 0..=i) - 1`: consecutive over valid tokens.
///
/// `mask` `[N]` u8 (0 = absent), `positions` `[N]` i32. An absent token gets its predecessor's position.
///
/// # Errors
/// [`Error::Shape`], [`Error::DType`]; the recorder's own errors.
pub fn positions_from_mask(
    r: &mut Recorder<'_>,
    mask: &Tensor,
    positions: &Tensor,
) -> Result<(), Error> {
    positions_of("positions_from_mask", r, mask, positions, false)
}

/// `positions[j] = (number of set mask bytes) + j`: tokens that follow a masked prefix.
///
/// `mask` `[N]` u8 (0 = absent), `positions` `[M]` i32.
///
/// # Errors
/// [`Error::Shape`], [`Error::DType`]; the recorder's own errors.
pub fn suffix_positions(
    r: &mut Recorder<'_>,
    mask: &Tensor,
    positions: &Tensor,
) -> Result<(), Error> {
    positions_of("suffix_positions", r, mask, positions, true)
}

/// Cosines and sines of the rotation angles of every row.
///
/// `positions` `[M]` i32; `table` `[M, D]` f32: for pair j of D/2, column j is the cosine and column
/// D/2 + j the sine of `position · f_j`, with `f_j = 1/base^(2j/D)`. As in the checkpoints' own
/// code the power, the reciprocal and the angle are each rounded to f32. |position| ≤ 100000.
///
/// # Errors
/// [`Error::Shape`] (D must be even), [`Error::DType`], [`Error::Argument`] for a bad base; the recorder's own errors.
pub fn rope_table(
    r: &mut Recorder<'_>,
    positions: &Tensor,
    base: f64,
    table: &Tensor,
) -> Result<(), Error> {
    let c = Check("rope_table");
    c.dtype("positions", positions, &[DType::I32], "i32")?;
    c.rank("positions", positions, 1, "[M]")?;
    c.f32("table", table)?;
    let rows = positions.numel();
    if table.rank() != 2 || table.shape()[0] != rows || table.cols() == 0 || table.cols() % 2 != 0 {
        return Err(c.bad_shape("table", table, format!("[{rows}, D] with D even")));
    }
    c.argument(
        "base",
        base.is_finite() && base > 1.0,
        "a finite number > 1",
        base,
    )?;
    c.apart(operand("table", table), &[operand("positions", positions)])?;
    let d = table.cols();
    let ln_base = math::ln_f64(base);
    let frequencies: Box<[f32]> = (0..d / 2)
        .map(|j| {
            let power = math::exp_f64((2 * j) as f64 / d as f64 * ln_base) as f32;
            1.0 / power
        })
        .collect();
    let k = Table {
        positions: Ptr::of(positions),
        table: Ptr::of(table),
        rows,
        frequencies,
    };
    let launch = Call::new(&ROPE, "rope_table_f32")
        .each(rows * (d / 2))
        .tensor(positions)
        .tensor(table)
        .size(rows)
        .size(d / 2)
        .floats(&k.frequencies, FREQUENCIES);
    if r.backend() == BackendKind::Cuda && d / 2 > FREQUENCIES {
        return Err(c.bad_shape(
            "table",
            table,
            format!("[{rows}, D] with D at most {} on cuda", 2 * FREQUENCIES),
        ));
    }
    record(r, "rope_table", &[positions, table], k, || vec![launch])
}

/// Rotates the halves of every head: `out[j] = x[j]·cos - x[j+D/2]·sin`, `out[j+D/2] = x[j+D/2]·cos + x[j]·sin`.
///
/// `x` `[M, H, D]` f32, on CUDA also f16 and bf16; `table` `[M, D]` f32 from [`rope_table`], `out` of x's shape, may be `x` itself.
/// A narrower table `[M, R]` rotates the first R elements of each head, pairs (j, j+R/2), and leaves the others; then `out` must be `x`.
///
/// # Errors
/// [`Error::Shape`], [`Error::DType`], [`Error::Overlap`]; the recorder's own errors.
pub fn rope(r: &mut Recorder<'_>, x: &Tensor, table: &Tensor, out: &Tensor) -> Result<(), Error> {
    let c = Check("rope");
    c.float("x", x, r.backend())?;
    c.rank("x", x, 3, "[M, H, D]")?;
    let [m, h, d] = [x.shape()[0], x.shape()[1], x.shape()[2]];
    if d == 0 || d % 2 != 0 {
        return Err(c.bad_shape("x", x, "[M, H, D] with D even".to_owned()));
    }
    c.f32("table", table)?;
    let part = match table.shape() {
        [rows, part] if *rows == m && *part > 0 && *part <= d && *part % 2 == 0 => *part,
        _ => return Err(c.bad_shape("table", table, format!("[{m}, D] with D even, at most {d}"))),
    };
    let is_in_place = x.slice().as_ptr() == out.slice().as_ptr();
    c.argument(
        "out",
        part == d || is_in_place,
        "x itself where a part of each head is rotated",
        "another tensor",
    )?;
    let half = part / 2;
    c.like("out", out, x)?;
    c.same_or_apart(operand("out", out), &[operand("x", x)])?;
    c.apart(operand("out", out), &[operand("table", table)])?;
    if x.dtype() != DType::F32 {
        let is_packed = is_packed(&[x, out], half) && is_packed(&[x], d);
        let each = if is_packed {
            PACK / x.dtype().bytes()
        } else {
            1
        };
        let call = Call::new(&ROPE, typed!("rope", x))
            .each(m * h * half / each)
            .tensor(x)
            .tensor(table)
            .tensor(out)
            .size(m)
            .size(h)
            .size(half)
            .size(d)
            .size(usize::from(is_packed));
        return on_device(r, "rope", &[x, table, out], vec![call]);
    }
    let per_task = (16_384 / (h * d).max(1)).max(1);
    let k = Rotate {
        x: Ptr::of(x),
        table: Ptr::of(table),
        out: Ptr::of(out),
        rows: if h == 0 { 0 } else { m },
        heads: h,
        d,
        half,
        per_task,
    };
    record(r, "rope", &[x, table, out], k, || {
        vec![Call::new(&ROPE, "rope_f32")
            .each(m * h * half)
            .tensor(x)
            .tensor(table)
            .tensor(out)
            .size(m)
            .size(h)
            .size(half)
            .size(d)]
    })
}

fn positions_of(
    op: &'static str,
    r: &mut Recorder<'_>,
    mask: &Tensor,
    positions: &Tensor,
    after: bool,
) -> Result<(), Error> {
    let c = Check(op);
    c.dtype("mask", mask, &[DType::U8], "u8")?;
    c.dtype("positions", positions, &[DType::I32], "i32")?;
    c.rank("mask", mask, 1, "[N]")?;
    c.rank("positions", positions, 1, "[M]")?;
    if !after {
        c.shape("positions", positions, mask.shape())?;
    }
    c.argument(
        "tokens",
        mask.numel() + positions.numel() < 1 << 24,
        "below 2^24",
        mask.numel(),
    )?;
    c.apart(operand("positions", positions), &[operand("mask", mask)])?;
    let k = Positions {
        mask: Ptr::of(mask),
        n: mask.numel(),
        positions: Ptr::of(positions),
        m: positions.numel(),
        after,
    };
    record(r, op, &[mask, positions], k, || {
        vec![Call::new(&ROPE, "positions")
            .tensor(mask)
            .size(mask.numel())
            .tensor(positions)
            .size(positions.numel())
            .size(usize::from(after))]
    })
}

#[derive(Clone, Copy)]
struct Positions {
    mask: Ptr<u8>,
    n: usize,
    positions: Ptr<i32>,
    m: usize,
    after: bool,
}

impl Kernel for Positions {
    fn tasks(&self) -> usize {
        usize::from(self.m > 0)
    }

    #[inline(always)]
    unsafe fn run<V: Lanes>(&self, _task: usize) {
        let out = self.positions.mut_ptr();
        let mut count = 0;
        for i in 0..self.n {
            count += i32::from(*self.mask.get().add(i) != 0);
            if !self.after {
                *out.add(i) = count - 1;
            }
        }
        if self.after {
            for j in 0..self.m {
                *out.add(j) = count + j as i32;
            }
        }
    }
}

struct Table {
    positions: Ptr<i32>,
    table: Ptr<f32>,
    rows: usize,
    frequencies: Box<[f32]>,
}

const TABLE_ROWS: usize = 64;

impl Kernel for Table {
    fn tasks(&self) -> usize {
        self.rows.div_ceil(TABLE_ROWS)
    }

    #[inline(always)]
    unsafe fn run<V: Lanes>(&self, task: usize) {
        let half = self.frequencies.len();
        let first = task * TABLE_ROWS;
        for row in first..(first + TABLE_ROWS).min(self.rows) {
            let position = *self.positions.get().add(row) as f32;
            let out = self.table.mut_ptr().add(row * 2 * half);
            for (j, f) in self.frequencies.iter().enumerate() {
                let (sin, cos) = math::sin_cos(position * f);
                *out.add(j) = cos;
                *out.add(half + j) = sin;
            }
        }
    }
}

#[derive(Clone, Copy)]
struct Rotate {
    x: Ptr<f32>,
    table: Ptr<f32>,
    out: Ptr<f32>,
    rows: usize,
    heads: usize,
    d: usize,
    /// Pairs that are rotated.
    half: usize,
    per_task: usize,
}

impl Kernel for Rotate {
    fn tasks(&self) -> usize {
        self.rows.div_ceil(self.per_task)
    }

    #[inline(always)]
    unsafe fn run<V: Lanes>(&self, task: usize) {
        let half = self.half;
        let first = task * self.per_task;
        for row in first..(first + self.per_task).min(self.rows) {
            let table = self.table.get().add(row * 2 * half);
            for head in 0..self.heads {
                let at = (row * self.heads + head) * self.d;
                let (x, out) = (self.x.get().add(at), self.out.mut_ptr().add(at));
                let mut j = 0;
                while j < half {
                    let n = LANES.min(half - j);
                    let cos = V::load_part(table.add(j), n, 0.0);
                    let sin = V::load_part(table.add(half + j), n, 0.0);
                    let a = V::load_part(x.add(j), n, 0.0);
                    let b = V::load_part(x.add(half + j), n, 0.0);
                    let minus_b = V::splat(-0.0).sub(b);
                    minus_b.fma(sin, a.mul(cos)).store_part(out.add(j), n);
                    a.fma(sin, b.mul(cos)).store_part(out.add(half + j), n);
                    j += LANES;
                }
            }
        }
    }
}
