//! Softmax attention over a cached prefix and the tokens' own keys.

use std::ops::RangeInclusive;

use flashrt_exec::Recorder;

use crate::check::{operand, Check};
use crate::device::{is_packed, typed, Call, ATTENTION, FLASH, PACK};
use crate::lanes::{Lanes, LANES};
use crate::launch::{on_device, record, shared_limit, Kernel, Ptr};
use crate::math;
use crate::tile::{tile, Block, Left, Out, Right};
use crate::{DType, Error, Tensor};

/// Largest head dimension of [`attention`].
pub const MAX_HEAD_DIM: usize = 256;

/// Head dimensions of [`attention`] in f16 and bf16.
pub const HALF_HEAD_DIMS: [usize; 5] = [64, 72, 96, 128, 256];

/// Most shares into which the keys of one query are split.
const MAX_SPLITS: usize = 128;

/// Warps of a block that merges shares: each has a row of its own where shares are no more than that.
const MERGERS: usize = 4;

/// Keys between two rescalings of the running softmax.
const KEYS: usize = 512;

/// Some of the keys that every query sees.
#[derive(Clone, Copy, Debug)]
pub struct KvPart<'a> {
    /// `[N, Hkv, D]` of q's type.
    pub k: &'a Tensor,
    /// `[N, Hkv, D]` of q's type.
    pub v: &'a Tensor,
    /// `[N]` u8, 0 = not seen by any query; `None` = all seen. What is hidden never comes into a result, whatever its bytes.
    pub mask: Option<&'a Tensor>,
}

/// Which positions a query sees. Keys are at positions 0, 1, .. through both parts, those of a first part that do not exist left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Causal {
    /// All.
    #[default]
    No,
    /// Those up to its own; the queries are at the last M positions.
    Last,
    /// Those up to its own; query 0 is at this position.
    At(usize),
}

/// What [`attention_within`] takes beside the operands of [`attention`]; by default nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Within<'a> {
    /// What a query sees.
    pub causal: Causal,
    /// `[1]` i32, read when the work runs: only so many rows of the first part exist (at least 0, at most all). One graph then
    /// serves a cache that grows.
    pub live: Option<&'a Tensor>,
    /// f32 of any shape, overwritten: for few queries of many keys. The keys are split among as many shares as it has room for;
    /// [`attention_scratch`] says how many elements are good.
    pub scratch: Option<&'a Tensor>,
}

/// Elements of f32 scratch that let a call with `q` `[m, hq, d]` and up to `keys` keys of `hkv` heads fill a GPU; 0 when it does so
/// without.
pub fn attention_scratch(m: usize, hq: usize, hkv: usize, d: usize, keys: usize) -> usize {
    let rows = m * (hq / hkv.max(1));
    let tile = Tile::of(rows, hkv, d, usize::MAX);
    let blocks = keys.div_ceil(Tile::KEYS);
    // A large one takes a whole multiprocessor.
    let fill = match tile.kind {
        Kind::Large => FILL / 2,
        _ => FILL,
    };
    let splits = fill / tile.blocks(rows, hkv).max(1);
    match splits.min(blocks / 2).min(MAX_SPLITS) {
        0 | 1 => 0,
        n => n * split_elements(m, hq, d),
    }
}

/// Blocks of threads that fill a GPU, two to a multiprocessor.
const FILL: usize = 264;
/// So many blocks of the large tile, each split in two, fill a GPU best; fewer are better cut finer.
const FEW: RangeInclusive<usize> = FILL / 8..=FILL / 4;

/// f32 elements of one share: the values, their maximum and sum.
fn split_elements(m: usize, hq: usize, d: usize) -> usize {
    m * hq * (d + 2)
}

/// `out = softmax(scale·q·kᵀ)·v`, bidirectional, over one or two parts of keys (the cached prefix, then the
/// tokens' own).
///
/// `q` and `out` `[M, Hq, D]`; Hq a multiple of Hkv: query head h reads key head `h / (Hq/Hkv)`. `scale` is usually 1/√D. A query that
/// sees no key at all gets zeros. All are f32 with D in 1..=[`MAX_HEAD_DIM`], or on CUDA all f16 or all bf16 with D one of
/// [`HALF_HEAD_DIMS`], starting on 16 bytes as whole buffers do.
///
/// Order in f32: scores are chains over d of (q·scale)·k; the softmax sum and the weighted values are chains over the visible keys in
/// order of parts and rows, rescaled after every 512 visible keys when the maximum grew. In f16 and bf16 the products are those of
/// tensor cores with sums in f32 and weights rounded to the type; the same bits every time.
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
    attention_within(r, q, parts, scale, Within::default(), out)
}

/// [`attention`] of which a query sees only some positions, over a cache that grows, or with its keys split (flash decoding). What
/// `within` says beside its default takes f16 or bf16.
///
/// A value that is not finite, in a key that some queries of the call see, may come into the results of neighbours that do not see it
/// by `causal`; masked keys and those past `live` never do.
///
/// # Errors
/// As [`attention`].
pub fn attention_within(
    r: &mut Recorder<'_>,
    q: &Tensor,
    parts: &[KvPart<'_>],
    scale: f32,
    within: Within<'_>,
    out: &Tensor,
) -> Result<(), Error> {
    let c = Check("attention");
    c.float("q", q, r.backend())?;
    c.rank("q", q, 3, "[M, Hq, D]")?;
    let (m, hq, d) = (q.shape()[0], q.shape()[1], q.shape()[2]);
    let half = q.dtype() != DType::F32;
    if half && !HALF_HEAD_DIMS.contains(&d) {
        let expected = format!(
            "[M, Hq, D] with D one of {HALF_HEAD_DIMS:?} in {}",
            q.dtype()
        );
        return Err(c.bad_shape("q", q, expected));
    }
    if d == 0 || d > MAX_HEAD_DIM {
        return Err(c.bad_shape("q", q, format!("[M, Hq, D] with D in 1..={MAX_HEAD_DIM}")));
    }
    c.like("out", out, q)?;
    c.argument("scale", scale.is_finite(), "finite", scale)?;
    c.argument(
        "parts",
        (1..=2).contains(&parts.len()),
        "one or two",
        parts.len(),
    )?;
    c.apart(operand("out", out), &[operand("q", q)])?;
    let mut inputs = vec![operand("q", q)];
    let mut heads: Option<usize> = None;
    for p in parts {
        same_type(c, "k", p.k, q)?;
        c.rank("k", p.k, 3, "[N, Hkv, D]")?;
        let (n, hkv) = (p.k.shape()[0], p.k.shape()[1]);
        if p.k.shape()[2] != d || hkv == 0 || hq % hkv != 0 || heads.is_some_and(|h| h != hkv) {
            let hkv = heads.map_or(format!("a divisor of {hq}"), |h| h.to_string());
            return Err(c.bad_shape("k", p.k, format!("[N, Hkv, {d}] with Hkv = {hkv}")));
        }
        heads = Some(hkv);
        same_type(c, "v", p.v, q)?;
        c.shape("v", p.v, p.k.shape())?;
        inputs.extend([operand("k", p.k), operand("v", p.v)]);
        if let Some(mask) = p.mask {
            c.dtype("mask", mask, &[DType::U8], "u8")?;
            c.shape("mask", mask, &[n])?;
            inputs.push(operand("mask", mask));
        }
    }
    if let Some(live) = within.live {
        c.dtype("live", live, &[DType::I32], "i32")?;
        c.shape("live", live, &[1])?;
        inputs.push(operand("live", live));
    }
    c.apart(operand("out", out), &inputs)?;
    let mut touches: Vec<&Tensor> = inputs.iter().map(|i| i.tensor).collect();
    touches.push(out);
    let hkv = heads.unwrap_or(1);
    if half {
        if let Some(scratch) = within.scratch {
            c.f32("scratch", scratch)?;
            if scratch.numel() < split_elements(m, hq, d) {
                let least = format!("at least {} elements", split_elements(m, hq, d));
                return Err(c.bad_shape("scratch", scratch, least));
            }
            if !is_packed(&[scratch], PACK) {
                return Err(c.bad_shape("scratch", scratch, format!("a start on {PACK} bytes")));
            }
            c.apart(operand("scratch", scratch), &inputs)?;
            c.apart(operand("scratch", scratch), &[operand("out", out)])?;
            touches.push(scratch);
        }
        for i in inputs.iter().chain([&operand("out", out)]) {
            let wide = i.tensor.dtype() == q.dtype();
            if wide && !is_packed(&[i.tensor], d) {
                return Err(c.bad_shape(i.name, i.tensor, format!("a start on {PACK} bytes")));
            }
        }
        let calls = flash(q, parts, hkv, scale, within, out, shared_limit(r)?);
        return on_device(r, "attention", &touches, calls);
    }
    let plain = within.causal == Causal::No && within.live.is_none() && within.scratch.is_none();
    c.argument("within", plain, "the default in f32", "more")?;
    let mut kernel_parts = [Part::EMPTY; 2];
    for (to, p) in kernel_parts.iter_mut().zip(parts) {
        *to = Part {
            k: Some(Ptr::of(p.k)),
            v: Some(Ptr::of(p.v)),
            mask: Ptr::of_opt(p.mask),
            n: p.k.shape()[0],
        };
    }
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
        let call = Call::new(&ATTENTION, "attention_f32")
            .blocks(m * hq, 1)
            .threads(128)
            .tensor(q)
            .tensor(out);
        let call = with_parts(call, parts);
        vec![call.size(hq).size(hkv).size(d).float(scale)]
    })
}

fn same_type(c: Check, name: &'static str, t: &Tensor, q: &Tensor) -> Result<(), Error> {
    let expected = match q.dtype() {
        DType::F16 => "f16",
        DType::BF16 => "bf16",
        _ => "f32",
    };
    c.dtype(name, t, &[q.dtype()], expected)
}

/// The arguments of two parts; of none for one that is not there.
fn with_parts(call: Call, parts: &[KvPart<'_>]) -> Call {
    (0..2).fold(call, |call, i| match parts.get(i) {
        Some(p) => call
            .tensor(p.k)
            .tensor(p.v)
            .optional(p.mask)
            .size(p.k.shape()[0]),
        None => call.optional(None).optional(None).optional(None).size(0),
    })
}

/// How a kernel of `flash.cu` cuts its work: the numbers there.
#[derive(Clone, Copy)]
struct Tile {
    kind: Kind,
    /// Warps of sixteen rows each.
    row_warps: usize,
    /// Groups of warps that share the keys of a block.
    key_groups: usize,
}

#[derive(Clone, Copy)]
enum Kind {
    Thin,
    Wide,
    Large,
}

impl Tile {
    /// Keys of a block.
    const KEYS: usize = 64;

    /// For so many rows (queries × query heads of a key head) of `heads` key heads, in so many bytes of shared memory.
    fn of(rows: usize, heads: usize, d: usize, limit: usize) -> Tile {
        let tile = |kind, row_warps, key_groups| Tile {
            kind,
            row_warps,
            key_groups,
        };
        let large = tile(Kind::Large, 6, 1);
        if rows <= 16 {
            tile(Kind::Thin, 1, 4)
        } else if d == 256 && FEW.contains(&large.blocks(rows, heads)) && large.shared(d) <= limit {
            large
        } else {
            tile(Kind::Wide, 4, 1)
        }
    }

    fn rows(self) -> usize {
        self.row_warps * 16
    }

    /// Blocks of threads without a split.
    fn blocks(self, rows: usize, heads: usize) -> usize {
        rows.div_ceil(self.rows()) * heads
    }

    fn threads(self) -> usize {
        self.row_warps * self.key_groups * 32
    }

    /// Bytes of shared memory: queries, keys and values in rows that are padded, or what groups of warps hand over at the end.
    fn shared(self, d: usize) -> usize {
        let columns = d.next_multiple_of(16);
        let rows = (self.rows() + 2 * Tile::KEYS) * (columns * 2 + 16);
        let handed = (self.key_groups - 1) * (columns / 2 + 4) * self.row_warps * 32 * 4;
        rows.max(handed)
    }
}

/// Launches in f16 or bf16.
fn flash(
    q: &Tensor,
    parts: &[KvPart<'_>],
    hkv: usize,
    scale: f32,
    within: Within<'_>,
    out: &Tensor,
    limit: usize,
) -> Vec<Call> {
    let (m, hq, d) = (q.shape()[0], q.shape()[1], q.shape()[2]);
    let rows = m * (hq / hkv);
    let tile = Tile::of(rows, hkv, d, limit);
    let blocks: usize = parts
        .iter()
        .map(|p| p.k.shape()[0].div_ceil(Tile::KEYS))
        .sum();
    let splits = within.scratch.map_or(1, |scratch| {
        (scratch.numel() / split_elements(m, hq, d).max(1)).clamp(1, MAX_SPLITS.min(blocks.max(1)))
    });
    let scratch = within.scratch.filter(|_| splits > 1);
    let (causal, offset) = match within.causal {
        Causal::No => (0, 0),
        Causal::Last => (1, 0),
        // Past all keys is as good as after the last one.
        Causal::At(offset) => (2, offset.min(parts.iter().map(|p| p.k.shape()[0]).sum())),
    };
    let name = kernel_name(q.dtype(), d, tile.kind);
    let call = Call::new(&FLASH, name)
        .blocks(rows.div_ceil(tile.rows()), hkv * splits)
        .threads(tile.threads() as u32)
        .shared(tile.shared(d))
        .tensor(q)
        .tensor(out);
    let call = with_parts(call, parts)
        .optional(within.live)
        .size(causal)
        .size(offset)
        .size(m)
        .size(hq)
        .size(hkv)
        .float(scale * std::f32::consts::LOG2_E)
        .size(splits)
        .optional(scratch);
    let mut calls = vec![call];
    if let Some(scratch) = scratch {
        let merged = m * hq;
        let blocks = match splits > MERGERS {
            true => merged,
            false => merged.div_ceil(MERGERS),
        };
        calls.push(
            Call::new(&FLASH, typed!("flash_combine", q))
                .blocks(blocks, 1)
                .threads(32 * MERGERS as u32)
                .tensor(scratch)
                .tensor(out)
                .size(merged)
                .size(d)
                .size(splits),
        );
    }
    calls
}

fn kernel_name(dtype: DType, d: usize, kind: Kind) -> &'static str {
    macro_rules! names {
        ($($d:literal $name:literal $kind:ident)*) => {
            match (d, dtype, kind) {
                $(($d, DType::F16, Kind::$kind) => concat!("flash_", $name, "_", $d, "_f16"),
                ($d, _, Kind::$kind) => concat!("flash_", $name, "_", $d, "_bf16"),)*
                _ => "",
            }
        };
    }
    names!(64 "thin" Thin 72 "thin" Thin 96 "thin" Thin 128 "thin" Thin 256 "thin" Thin
           64 "wide" Wide 72 "wide" Wide 96 "wide" Wide 128 "wide" Wide 256 "wide" Wide 256 "large" Large)
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
