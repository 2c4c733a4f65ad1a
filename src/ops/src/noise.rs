//! Counter-based standard normal noise.

use flashrt_exec::Recorder;

use crate::check::{operand, Check};
use crate::device::{Call, NOISE};
use crate::lanes::Lanes;
use crate::launch::{record, Kernel, Ptr};
use crate::math;
use crate::{DType, Error, Tensor};

/// Fills `out` (f32, any shape, n elements) with standard normal noise and advances the generator.
///
/// `rng` `[2]` u64 = key, counter: all the state there is, so it lives in the buffer and travels with it.
/// The draw uses `B = ceil(n/4)` blocks and leaves the counter at `counter + B` (wrapping).
///
/// The mapping, the same bits on every backend:
/// 1. block b = [`philox4x32_10`] of the counter words `[lo32(c), hi32(c), 0, 0]` with `c = counter + b`, and
///    the key words `[lo32(key), hi32(key)]`, giving w0..w3;
/// 2. pair p (0 and 1) takes `i = w[2p] >> 8`, `j = w[2p+1] >> 8` (24 bits each);
///    `u = (i + 1)·2^-24` in (0, 1], `ρ = √(-2·ln u)`, `θ = 2π·j·2^-24`;
/// 3. `out[4b + 2p] = ρ·cos θ`, `out[4b + 2p + 1] = ρ·sin θ`; values beyond n are dropped.
///
/// `ln`: x = m·2^e, m in [√½, √2); f = m-1, s = f/(2+f), z = s²,
/// `p = ((((2/11·z + 2/9)·z + 2/7)·z + 2/5)·z + 2/3)`, `l = fma(s·z, p, fma(-s, f, f))`,
/// `ln x = fma(e, LN2_HI, fma(e, LN2_LO, l))`. Angle: quadrant `q = (j + 2^21) >> 22`,
/// `r = (j - (q << 22))·2^-24·f32(2π)`, then Taylor polynomials to r⁹ (sine) and r¹⁰ (cosine), all
/// steps f32 fused multiply-adds in Horner order; division and square root correctly rounded.
///
/// # Errors
/// [`Error::Shape`], [`Error::DType`], [`Error::Overlap`]; the recorder's own errors.
pub fn philox_normal(r: &mut Recorder<'_>, rng: &Tensor, out: &Tensor) -> Result<(), Error> {
    let c = Check("philox_normal");
    c.dtype("rng", rng, &[DType::U64], "u64")?;
    c.shape("rng", rng, &[2])?;
    c.f32("out", out)?;
    c.apart(operand("out", out), &[operand("rng", rng)])?;
    let k = Normal {
        rng: Ptr::of(rng),
        out: Ptr::of(out),
        n: out.numel(),
    };
    record(r, "philox_normal", &[rng, out], k, || {
        let blocks = out.numel().div_ceil(4);
        vec![
            Call::new(&NOISE, "philox_normal_f32")
                .each(blocks)
                .tensor(rng)
                .tensor(out)
                .size(out.numel()),
            Call::new(&NOISE, "philox_advance")
                .threads(1)
                .tensor(rng)
                .size(blocks),
        ]
    })
}

/// Ten rounds of Philox 4×32 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011).
#[inline(always)]
pub fn philox4x32_10(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    let ([mut c0, mut c1, mut c2, mut c3], [mut k0, mut k1]) = (counter, key);
    for _ in 0..10 {
        let a = u64::from(c0) * 0xD251_1F53;
        let b = u64::from(c2) * 0xCD9E_8D57;
        (c0, c1, c2, c3) = (
            (b >> 32) as u32 ^ c1 ^ k0,
            b as u32,
            (a >> 32) as u32 ^ c3 ^ k1,
            a as u32,
        );
        k0 = k0.wrapping_add(0x9E37_79B9);
        k1 = k1.wrapping_add(0xBB67_AE85);
    }
    [c0, c1, c2, c3]
}

#[derive(Clone, Copy)]
struct Normal {
    rng: Ptr<u64>,
    out: Ptr<f32>,
    n: usize,
}

impl Kernel for Normal {
    fn tasks(&self) -> usize {
        usize::from(self.n > 0)
    }

    #[inline(always)]
    unsafe fn run<V: Lanes>(&self, _task: usize) {
        let (key, counter) = (*self.rng.get(), *self.rng.get().add(1));
        let blocks = self.n.div_ceil(4);
        for b in 0..blocks {
            let c = counter.wrapping_add(b as u64);
            let w = philox4x32_10(
                [c as u32, (c >> 32) as u32, 0, 0],
                [key as u32, (key >> 32) as u32],
            );
            let mut four = [0f32; 4];
            for p in 0..2 {
                let u = ((w[2 * p] >> 8) + 1) as f32 * (1.0 / 16_777_216.0);
                let radius = (-2.0 * math::ln(u)).sqrt();
                let (sin, cos) = math::sin_cos_turns(w[2 * p + 1] >> 8);
                four[2 * p] = radius * cos;
                four[2 * p + 1] = radius * sin;
            }
            for (i, v) in four.iter().enumerate().take(self.n - 4 * b) {
                *self.out.mut_ptr().add(4 * b + i) = *v;
            }
        }
        *self.rng.mut_ptr().add(1) = counter.wrapping_add(blocks as u64);
    }
}
