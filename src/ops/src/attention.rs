//! Softmax attention over a cached prefix and the tokens' own keys.

use flashrt_exec::Recorder;

use crate::check::{operand, Check};
use crate::device::{Call, ATTENTION};
use crate::lanes::{Lanes, LANES};
use crate::launch::{record, Kernel, Ptr};
use crate::math;
use crate::tile::{tile, Block, Left, Out, Right};
use crate::{DType, Error, Tensor};

/// Largest head dimension of [`attention`].
pub const MAX_HEAD_DIM: usize = 256;

/// Keys between two rescalings of the running softmax.
const KEYS: usize = 512;

/// Some of the keys that every query sees.
#[derive(Clone, Copy, Debug)]
pub struct KvPart<'a> {
    /// `[N, Hkv, D]` f32.
    pub k: &'a Tensor,
    /// `[N, Hkv, D]` f32.
    pub v: &'a Tensor,
    /// `[N]` u8, 0 = not seen by any query; `None` = all seen. Hidden keys and values are never read.
    pub mask: Option<&'a Tensor>,
}

/// `out = softmax(scale·q·kᵀ)·v`, bidirectional, over one or two parts of keys (the cached prefix, then the
/// tokens' own).
///
/// `q` and `out` `[M, Hq, D]` f32, D in 1..=256; Hq a multiple of Hkv: query head h reads key head
/// `h / (Hq/Hkv)`. `scale` is usually 1/√D. A query that sees no key at all gets zeros.
///
/// Order: scores are chains over d of (q·scale)·k; the softmax sum and the weighted values are chains over
/// the visible keys in order of parts and rows, rescaled after every 512 visible keys when the maximum grew.
///
/// # Errors
/// [`Error::Shape`], [`Error::DType`], [`Error::Overlap`], [`Error::Argument`]; the recorder's own errors.
pub fn attention(
    r: &mut Recorder<'_>,
    q: &Tensor,
    parts: &[KvPart<'_>],
    scale: f32,
    out: &Tensor,
) -> Result<(), Error> {
    let c = Check("attention");
    c.f32("q", q)?;
    c.rank("q", q, 3, "[M, Hq, D]")?;
    let (m, hq, d) = (q.shape()[0], q.shape()[1], q.shape()[2]);
    if d == 0 || d > MAX_HEAD_DIM {
        return Err(c.bad_shape("q", q, format!("[M, Hq, D] with D in 1..={MAX_HEAD_DIM}")));
    }
    c.f32_shape("out", out, q.shape())?;
    c.argument("scale", scale.is_finite(), "finite", scale)?;
    c.argument(
        "parts",
        (1..=2).contains(&parts.len()),
        "one or two",
        parts.len(),
    )?;
    c.apart(operand("out", out), &[operand("q", q)])?;
    let mut touches = vec![q, out];
    let mut heads: Option<usize> = None;
    let mut kernel_parts = [Part::EMPTY; 2];
    for (i, p) in parts.iter().enumerate() {
        c.f32("k", p.k)?;
        c.rank("k", p.k, 3, "[N, Hkv, D]")?;
        let (n, hkv) = (p.k.shape()[0], p.k.shape()[1]);
        if p.k.shape()[2] != d || hkv == 0 || hq % hkv != 0 || heads.is_some_and(|h| h != hkv) {
            let hkv = heads.map_or(format!("a divisor of {hq}"), |h| h.to_string());
            return Err(c.bad_shape("k", p.k, format!("[N, Hkv, {d}] with Hkv = {hkv}")));
        }
        heads = Some(hkv);
        c.f32_shape("v", p.v, p.k.shape())?;
        c.apart(operand("out", out), &[operand("k", p.k), operand("v", p.v)])?;
        touches.extend([p.k, p.v]);
        if let Some(mask) = p.mask {
            c.dtype("mask", mask, &[DType::U8], "u8")?;
            c.shape("mask", mask, &[n])?;
            c.apart(operand("out", out), &[operand("mask", mask)])?;
            touches.push(mask);
        }
        kernel_parts[i] = Part {
            k: Some(Ptr::of(p.k)),
            v: Some(Ptr::of(p.v)),
            mask: Ptr::of_opt(p.mask),
            n,
        };
    }
    let hkv = heads.unwrap_or(1);
    let group = hq / hkv;
    let kernel = Attention {
        q: Ptr::of(q),
        out: Ptr::of(out),
        parts: kernel_parts,
        queries: m * group,
        group,
        hkv,
        d,
        scale,
    };
    record(r, "attention", &touches, kernel, || {
        let part = |call: Call, i: usize| match parts.get(i) {
            Some(p) => call
                .tensor(p.k)
                .tensor(p.v)
                .optional(p.mask)
                .size(p.k.shape()[0]),
            None => call.optional(None).optional(None).optional(None).size(0),
        };
        let call = Call::new(&ATTENTION, "attention_f32")
            .blocks(m * hq, 1)
            .threads(128)
            .tensor(q)
            .tensor(out);
        let call = part(part(call, 0), 1);
        vec![call.size(hq).size(hkv).size(d).float(scale)]
    })
}

#[derive(Clone, Copy)]
struct Part {
    k: Option<Ptr<f32>>,
    v: Option<Ptr<f32>>,
    mask: Option<Ptr<u8>>,
    n: usize,
}

impl Part {
    const EMPTY: Part = Part {
        k: None,
        v: None,
        mask: None,
        n: 0,
    };
}

#[derive(Clone, Copy)]
struct Attention {
    q: Ptr<f32>,
    out: Ptr<f32>,
    parts: [Part; 2],
    /// Queries of one key head: rows × query heads that share it.
    queries: usize,
    group: usize,
    hkv: usize,
    d: usize,
    scale: f32,
}

/// Where a walk over the visible keys stands.
#[derive(Clone, Copy)]
struct Cursor {
    part: usize,
    row: usize,
}

impl Attention {
    /// The next run of neighbouring visible keys, at most `most` of them: (part, first row, length).
    #[inline(always)]
    unsafe fn next_run(&self, at: &mut Cursor, most: usize) -> Option<(usize, usize, usize)> {
        while at.part < self.parts.len() {
            let part = &self.parts[at.part];
            let visible = |row: usize| match part.mask {
                // SAFETY: `row < part.n`, the mask's length.
                Some(mask) => unsafe { *mask.get().add(row) != 0 },
                None => true,
            };
            while at.row < part.n && !visible(at.row) {
                at.row += 1;
            }
            let first = at.row;
            if part.mask.is_none() {
                at.row = part.n.min(first + most);
            } else {
                while at.row < part.n && at.row - first < most && visible(at.row) {
                    at.row += 1;
                }
            }
            if at.row > first {
                return Some((at.part, first, at.row - first));
            }
            *at = Cursor {
                part: at.part + 1,
                row: 0,
            };
        }
        None
    }
}

impl Kernel for Attention {
    /// A task is sixteen queries of one key head: the lanes.
    fn tasks(&self) -> usize {
        self.queries.div_ceil(LANES) * self.hkv
    }

    #[inline(always)]
    unsafe fn run<V: Lanes>(&self, task: usize) {
        let (d, step) = (self.d, self.hkv * self.d);
        let panels = self.queries.div_ceil(LANES);
        let head = task / panels;
        let first = task % panels * LANES;
        let lanes = LANES.min(self.queries - first);
        let mut q_block = Block::<{ MAX_HEAD_DIM * LANES }>::new();
        let mut o_block = Block::<{ MAX_HEAD_DIM * LANES }>::new();
        let mut s_block = Block::<{ KEYS * LANES }>::new();
        let (q, o, s) = (q_block.at(), o_block.at(), s_block.at());

        // Element 0 of a query in `q` and `out`.
        let place = |lane: usize| {
            let (row, in_group) = ((first + lane) / self.group, (first + lane) % self.group);
            ((row * self.hkv + head) * self.group + in_group) * d
        };
        for lane in 0..LANES {
            // Lanes beyond the last query repeat it; they are not stored.
            let from = self.q.get().add(place(lane.min(lanes - 1)));
            for i in 0..d {
                *q.add(i * LANES + lane) = *from.add(i) * self.scale;
            }
        }
        for i in 0..d {
            V::splat(0.0).store(o.add(i * LANES));
        }

        let mut top = V::splat(f32::NEG_INFINITY);
        let mut sum = V::splat(0.0);
        let mut seen = false;
        let mut at = Cursor { part: 0, row: 0 };
        loop {
            // Scores of up to KEYS visible keys, [key][lane].
            let start = at;
            let mut count = 0;
            while count < KEYS {
                let Some((part, row, len)) = self.next_run(&mut at, KEYS - count) else {
                    break;
                };
                let Some(k) = self.parts[part].k else { break };
                let mut done = 0;
                while done < len {
                    let rows = V::TILE_ROWS.min(len - done);
                    let left = Left {
                        at: k.get().add((row + done) * step + head * d),
                        row_step: step,
                        k_step: 1,
                    };
                    let out = Out {
                        at: s.add((count + done) * LANES),
                        row_step: LANES,
                    };
                    tile::<V, 1>(
                        rows,
                        d,
                        left,
                        Right {
                            at: q,
                            panel_step: 0,
                        },
                        out,
                        false,
                    );
                    done += rows;
                }
                count += len;
            }
            if count == 0 {
                break;
            }
            let mut new_top = top;
            for n in 0..count {
                new_top = V::load(s.add(n * LANES)).max(new_top);
            }
            if seen {
                let shrink = math::exp(top.sub(new_top));
                sum = sum.mul(shrink);
                for i in 0..d {
                    V::load(o.add(i * LANES))
                        .mul(shrink)
                        .store(o.add(i * LANES));
                }
            }
            top = new_top;
            seen = true;
            for n in 0..count {
                let p = math::exp(V::load(s.add(n * LANES)).sub(top));
                sum = sum.add(p);
                p.store(s.add(n * LANES));
            }
            // Weighted values, [d][lane], over the same runs.
            let mut again = start;
            let mut used = 0;
            while used < count {
                let Some((part, row, len)) = self.next_run(&mut again, count - used) else {
                    break;
                };
                let Some(v) = self.parts[part].v else { break };
                let mut i = 0;
                while i < d {
                    let rows = V::TILE_ROWS.min(d - i);
                    let left = Left {
                        at: v.get().add(row * step + head * d + i),
                        row_step: 1,
                        k_step: step,
                    };
                    let right = Right {
                        at: s.add(used * LANES),
                        panel_step: 0,
                    };
                    let out = Out {
                        at: o.add(i * LANES),
                        row_step: LANES,
                    };
                    tile::<V, 1>(rows, len, left, right, out, true);
                    i += rows;
                }
                used += len;
            }
        }
        let inverse = if seen {
            V::splat(1.0).div(sum)
        } else {
            V::splat(0.0)
        };
        for i in 0..d {
            V::load(o.add(i * LANES))
                .mul(inverse)
                .store(o.add(i * LANES));
        }
        for lane in 0..lanes {
            let to = self.out.mut_ptr().add(place(lane));
            for i in 0..d {
                *to.add(i) = *o.add(i * LANES + lane);
            }
        }
    }
}
