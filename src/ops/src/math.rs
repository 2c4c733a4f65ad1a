//! Elementary functions that give the same bits on every instruction set.
//!
//! f32 functions are chains of fused multiply-adds over lanes or over one value; f64 functions are
//! plain arithmetic (never contracted by the compiler) for tables made at record time.

use crate::lanes::Lanes;

/// 1.5·2^23: adding it rounds to the nearest integer, which then sits in the low mantissa bits.
const MAGIC: f32 = 12_582_912.0;
const LN2_HI: f32 = std::f32::consts::LN_2;
/// ln 2 minus the f32 above it.
const LN2_LO: f32 = -1.904_654_3e-9;
/// 1/7!, 1/6!, .. 1/2!: |r| ≤ ln2/2 makes the next Taylor term 5e-9 of the result.
const EXP: [f32; 6] = [
    1.0 / 5040.0,
    1.0 / 720.0,
    1.0 / 120.0,
    1.0 / 24.0,
    1.0 / 6.0,
    0.5,
];

/// e^x within 1.5 ulp; 0 below -87.33 (no subnormal results), +inf above 88.37, NaN stays NaN.
#[inline(always)]
pub(crate) fn exp<V: Lanes>(x: V) -> V {
    let t = x.fma(V::splat(std::f32::consts::LOG2_E), V::splat(MAGIC));
    let n = t.sub(V::splat(MAGIC));
    let r = n.fma(V::splat(-LN2_HI), x);
    let r = n.fma(V::splat(-LN2_LO), r);
    let mut p = V::splat(EXP[0]);
    for c in &EXP[1..] {
        p = p.fma(r, V::splat(*c));
    }
    // 1 + r + r²·p
    let p = p.mul(r).fma(r, r).add(V::splat(1.0));
    let y = p.mul(t.pow2_bits());
    let y = x.lt_select(V::splat(-87.33), V::splat(0.0), y);
    V::splat(88.37).lt_select(x, V::splat(f32::INFINITY), y)
}

/// x·σ(x).
#[inline(always)]
pub(crate) fn silu<V: Lanes>(x: V) -> V {
    let e = exp(V::splat(-0.0).sub(x));
    x.div(e.add(V::splat(1.0)))
}

/// ½·x·(1 + tanh(√(2/π)·(x + 0.044715·x³))), written as x·σ(2u), which is the same function
/// without the cancellation at negative x.
#[inline(always)]
pub(crate) fn gelu_tanh<V: Lanes>(x: V) -> V {
    /// -2·√(2/π)
    const A: f32 = -1.595_769_2;
    /// -2·√(2/π)·0.044715
    const B: f32 = -0.071_354_814;
    let minus_2u = x.mul(x).fma(V::splat(B), V::splat(A)).mul(x);
    x.div(exp(minus_2u).add(V::splat(1.0)))
}

/// (sin x, cos x) of an angle in radians, |x| ≤ 1e5, within 1e-6 absolute of the exact value.
#[inline(always)]
pub(crate) fn sin_cos(x: f32) -> (f32, f32) {
    // π/2 as three f32, largest first.
    const P1: f32 = std::f32::consts::FRAC_PI_2;
    const P2: f32 = -4.371_139e-8;
    const P3: f32 = -1.715_124_5e-15;
    let t = x.mul_add(std::f32::consts::FRAC_2_PI, MAGIC);
    let n = t - MAGIC;
    let r = n.mul_add(-P1, x);
    let r = n.mul_add(-P2, r);
    let r = n.mul_add(-P3, r);
    quadrant(t.to_bits(), r)
}

/// (sin 2πu, cos 2πu) for u = n/2^24, exact in the reduction.
#[inline(always)]
pub(crate) fn sin_cos_turns(n: u32) -> (f32, f32) {
    let q = (n + (1 << 21)) >> 22;
    let r = n as i32 - ((q << 22) as i32);
    quadrant(q, (r as f32 * (1.0 / 16_777_216.0)) * std::f32::consts::TAU)
}

/// Sine and cosine of q·π/2 + r, |r| ≤ π/4 (Taylor, next term below 4e-9).
#[inline(always)]
fn quadrant(q: u32, r: f32) -> (f32, f32) {
    let z = r * r;
    let s = z.mul_add(1.0 / 362_880.0, -1.0 / 5040.0);
    let s = s.mul_add(z, 1.0 / 120.0);
    let s = s.mul_add(z, -1.0 / 6.0);
    let s = (s * z).mul_add(r, r);
    let c = z.mul_add(-1.0 / 3_628_800.0, 1.0 / 40_320.0);
    let c = c.mul_add(z, -1.0 / 720.0);
    let c = c.mul_add(z, 1.0 / 24.0);
    let c = c.mul_add(z, -0.5);
    let c = c.mul_add(z, 1.0);
    match q & 3 {
        0 => (s, c),
        1 => (c, -s),
        2 => (-s, -c),
        _ => (-c, s),
    }
}

/// ln x for a normal positive x, within 2 ulp.
#[inline(always)]
pub(crate) fn ln(x: f32) -> f32 {
    // x = m·2^e with m in [√½, √2): shift the exponent boundary to √½.
    const SQRT_HALF: u32 = 0x3f35_04f3;
    let d = x.to_bits().wrapping_sub(SQRT_HALF);
    let e = (d as i32) >> 23;
    let m = f32::from_bits((d & 0x007f_ffff) + SQRT_HALF);
    // ln m = 2·atanh(s), s = (m-1)/(m+1)
    let f = m - 1.0;
    let s = f / (2.0 + f);
    let z = s * s;
    let p = z.mul_add(2.0 / 11.0, 2.0 / 9.0);
    let p = p.mul_add(z, 2.0 / 7.0);
    let p = p.mul_add(z, 2.0 / 5.0);
    let p = p.mul_add(z, 2.0 / 3.0);
    // 2s = f - s·f keeps the leading term exact.
    let l = (s * z).mul_add(p, (-s).mul_add(f, f));
    let e = e as f32;
    e.mul_add(LN2_HI, e.mul_add(LN2_LO, l))
}

/// e^x in f64 for |x| < 700, within 2e-15 relative.
pub(crate) fn exp_f64(x: f64) -> f64 {
    const LN2_HI: f64 = 0.693_147_180_369_123_8;
    const LN2_LO: f64 = 1.908_214_929_270_587_7e-10;
    let n = (x * std::f64::consts::LOG2_E).round_ties_even();
    let r = (x - n * LN2_HI) - n * LN2_LO;
    let mut sum = 1.0;
    for k in (1..=16).rev() {
        sum = sum * r / f64::from(k) + 1.0;
    }
    sum * f64::from_bits(((1023 + n as i64) as u64) << 52)
}

/// (sin 2πu, cos 2πu) in f64.
pub(crate) fn sin_cos_turns_f64(u: f64) -> (f64, f64) {
    let f = u - u.round_ties_even();
    let q = (4.0 * f).round_ties_even();
    let r = (f - 0.25 * q) * std::f64::consts::TAU;
    let z = r * r;
    let (mut s, mut c) = (1.0, 1.0);
    for k in (1..=10).rev() {
        let k = f64::from(2 * k);
        s = 1.0 - s * z / (k * (k + 1.0));
        c = 1.0 - c * z / (k * (k - 1.0));
    }
    let s = s * r;
    match (q as i64).rem_euclid(4) {
        0 => (s, c),
        1 => (c, -s),
        2 => (-s, -c),
        _ => (-c, s),
    }
}

/// ln x in f64: a root of the crate's own exponential.
pub(crate) fn ln_f64(x: f64) -> f64 {
    // The library's value is a start only; two Newton steps settle on this crate's exponential.
    let mut y = x.ln();
    for _ in 0..2 {
        let e = exp_f64(y);
        y += 2.0 * (x - e) / (x + e);
    }
    y
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lanes::{Portable, LANES};

    fn exp1(x: f32) -> f32 {
        exp(Portable::splat(x)).to_array()[LANES - 1]
    }

    /// Distance in units of the last place of the exact value.
    fn ulps(got: f32, want: f64) -> f64 {
        let ulp = f64::from((want as f32).abs().next_up()) - f64::from((want as f32).abs());
        (f64::from(got) - want).abs() / ulp
    }

    #[test]
    fn exp_is_within_one_and_a_half_ulp_and_saturates() {
        let mut worst = 0f64;
        for i in -87_300..88_300 {
            let x = i as f32 * 1e-3;
            worst = worst.max(ulps(exp1(x), f64::from(x).exp()));
        }
        assert!(worst < 1.5, "{worst}");
        assert_eq!(exp1(0.0), 1.0);
        assert_eq!(exp1(-0.0), 1.0);
        for x in [-87.34, -1e30, f32::NEG_INFINITY] {
            assert_eq!(exp1(x), 0.0);
        }
        for x in [88.38, 1e30, f32::INFINITY] {
            assert_eq!(exp1(x), f32::INFINITY);
        }
        assert!(exp1(f32::NAN).is_nan());
    }

    #[test]
    fn ln_is_within_two_ulp_over_the_uniforms() {
        let mut worst = 0f64;
        let step = 16_777_216 / 200_003;
        for i in (1..=16_777_216u32).step_by(step).chain([1, 2, 16_777_215]) {
            let u = i as f32 / 16_777_216.0;
            if u < 1.0 {
                worst = worst.max(ulps(ln(u), f64::from(u).ln()));
            }
        }
        assert!(worst < 2.0, "{worst}");
        assert_eq!(ln(1.0), 0.0);
    }

    #[test]
    fn sine_and_cosine_hold_their_bounds() {
        for i in -100_000..100_000 {
            for x in [i as f32, i as f32 * 1e-3] {
                let (s, c) = sin_cos(x);
                let (ws, wc) = f64::from(x).sin_cos();
                assert!((f64::from(s) - ws).abs() < 1e-6, "sin {x}");
                assert!((f64::from(c) - wc).abs() < 1e-6, "cos {x}");
            }
        }
        for n in (0..16_777_216u32).step_by(4099).chain([16_777_215]) {
            let (s, c) = sin_cos_turns(n);
            let (ws, wc) = (f64::from(n) / 16_777_216.0 * std::f64::consts::TAU).sin_cos();
            assert!((f64::from(s) - ws).abs() < 2e-7, "sin {n}");
            assert!((f64::from(c) - wc).abs() < 2e-7, "cos {n}");
        }
    }

    #[test]
    fn record_time_functions_agree_with_the_library() {
        for i in -6000..6000 {
            let x = f64::from(i) * 0.1;
            assert!((exp_f64(x) / x.exp() - 1.0).abs() < 2e-15, "exp {x}");
            let (s, c) = sin_cos_turns_f64(x / 7.0);
            let frac = x / 7.0 - (x / 7.0).round();
            let (ws, wc) = (frac * std::f64::consts::TAU).sin_cos();
            assert!(
                (s - ws).abs() < 4e-16 && (c - wc).abs() < 4e-16,
                "turns {x}"
            );
        }
        for x in [1.5, 1000.0, 10_000.0, 500_000.0] {
            assert!((ln_f64(x) - x.ln()).abs() < 4e-15);
        }
    }
}
