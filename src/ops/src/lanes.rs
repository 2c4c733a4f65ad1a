//! Sixteen f32 lanes on every instruction set.
//!
//! The lane count is fixed so that anything that folds lanes (norms) folds them in one order
//! everywhere. `max` returns the second operand when either is NaN, as the x86 instruction
//! does.

use crate::launch::Kernel;
use crate::Isa;

/// Lanes in a vector.
pub(crate) const LANES: usize = 16;

/// Sixteen f32 lanes.
///
/// The methods are safe to call only in code reached through [`dispatch`]: it is the only place
/// that names an implementation, after the CPU was asked for its instructions.
pub(crate) trait Lanes: Copy {
    /// Rows of the register tile of [`crate::tile`]: as many as the register file holds.
    const TILE_ROWS: usize;
    /// Vectors in a row of that tile.
    const TILE_VECS: usize;

    fn splat(x: f32) -> Self;
    /// # Safety
    /// `p` must be valid for reading 16 values.
    unsafe fn load(p: *const f32) -> Self;
    /// # Safety
    /// `p` must be valid for writing 16 values.
    unsafe fn store(self, p: *mut f32);
    fn add(self, o: Self) -> Self;
    fn sub(self, o: Self) -> Self;
    fn mul(self, o: Self) -> Self;
    fn div(self, o: Self) -> Self;
    /// `self * m + a`, rounded once.
    fn fma(self, m: Self, a: Self) -> Self;
    fn max(self, o: Self) -> Self;
    /// `if self < o { yes } else { no }`, by lane.
    fn lt_select(self, o: Self, yes: Self, no: Self) -> Self;
    /// Bits of `self` shifted left by 23, plus the bits of 1.0: two to the power of an integer
    /// that sits in the low mantissa bits.
    fn pow2_bits(self) -> Self;
    /// The first `n` lanes from `p`, the others `fill`.
    ///
    /// # Safety
    /// `p` must be valid for reading `n` values; `n <= 16`.
    #[inline(always)]
    unsafe fn load_part(p: *const f32, n: usize, fill: f32) -> Self {
        if n == LANES {
            return Self::load(p);
        }
        let mut a = [fill; LANES];
        for (i, v) in a.iter_mut().enumerate().take(n) {
            *v = *p.add(i);
        }
        Self::load(a.as_ptr())
    }

    /// Stores the first `n` lanes.
    ///
    /// # Safety
    /// `p` must be valid for writing `n` values; `n <= 16`.
    #[inline(always)]
    unsafe fn store_part(self, p: *mut f32, n: usize) {
        if n == LANES {
            return self.store(p);
        }
        let a = self.to_array();
        for (i, v) in a.iter().enumerate().take(n) {
            *p.add(i) = *v;
        }
    }

    #[inline(always)]
    fn to_array(self) -> [f32; LANES] {
        let mut a = [0.0; LANES];
        // SAFETY: `a` has sixteen elements.
        unsafe { self.store(a.as_mut_ptr()) };
        a
    }

    /// Sum of all lanes as a fixed tree: lane i + lane i+8, then 4, 2, 1.
    #[inline(always)]
    fn fold_add(self) -> f32 {
        let mut a = self.to_array();
        let mut half = LANES / 2;
        while half > 0 {
            for i in 0..half {
                a[i] += a[i + half];
            }
            half /= 2;
        }
        a[0]
    }
}

/// Runs one task of `kernel` compiled for `isa`.
///
/// # Safety
/// As [`Kernel::run`]; `isa` must be one of [`Isa::available`].
#[inline]
pub(crate) unsafe fn dispatch<K: Kernel>(isa: Isa, kernel: &K, task: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx2,fma")]
        unsafe fn avx2<K: Kernel>(kernel: &K, task: usize) {
            kernel.run::<x86::Avx2>(task)
        }
        #[cfg(flashrt_avx512)]
        #[target_feature(enable = "avx512f,avx2,fma")]
        unsafe fn avx512<K: Kernel>(kernel: &K, task: usize) {
            kernel.run::<x86::Avx512>(task)
        }
        match isa {
            #[cfg(flashrt_avx512)]
            Isa::Avx512 => return avx512(kernel, task),
            Isa::Avx2 => return avx2(kernel, task),
            _ => {}
        }
    }
    let _ = isa;
    kernel.run::<Portable>(task)
}

/// Plain Rust on the target's baseline.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub(crate) struct Portable([f32; LANES]);

impl Portable {
    #[inline(always)]
    fn map2(self, o: Self, f: impl Fn(f32, f32) -> f32) -> Self {
        Portable(std::array::from_fn(|i| f(self.0[i], o.0[i])))
    }

    #[inline(always)]
    fn map(self, f: impl Fn(f32) -> f32) -> Self {
        Portable(std::array::from_fn(|i| f(self.0[i])))
    }
}

impl Lanes for Portable {
    const TILE_ROWS: usize = 4;
    const TILE_VECS: usize = 1;

    #[inline(always)]
    fn splat(x: f32) -> Self {
        Portable([x; LANES])
    }
    #[inline(always)]
    unsafe fn load(p: *const f32) -> Self {
        Portable(p.cast::<[f32; LANES]>().read_unaligned())
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut f32) {
        p.cast::<[f32; LANES]>().write_unaligned(self.0)
    }
    #[inline(always)]
    fn add(self, o: Self) -> Self {
        self.map2(o, |a, b| a + b)
    }
    #[inline(always)]
    fn sub(self, o: Self) -> Self {
        self.map2(o, |a, b| a - b)
    }
    #[inline(always)]
    fn mul(self, o: Self) -> Self {
        self.map2(o, |a, b| a * b)
    }
    #[inline(always)]
    fn div(self, o: Self) -> Self {
        self.map2(o, |a, b| a / b)
    }
    #[inline(always)]
    fn fma(self, m: Self, a: Self) -> Self {
        Portable(std::array::from_fn(|i| self.0[i].mul_add(m.0[i], a.0[i])))
    }
    #[inline(always)]
    fn max(self, o: Self) -> Self {
        self.map2(o, |a, b| if a > b { a } else { b })
    }
    #[inline(always)]
    fn lt_select(self, o: Self, yes: Self, no: Self) -> Self {
        Portable(std::array::from_fn(|i| {
            if self.0[i] < o.0[i] {
                yes.0[i]
            } else {
                no.0[i]
            }
        }))
    }
    #[inline(always)]
    fn pow2_bits(self) -> Self {
        self.map(|x| f32::from_bits((x.to_bits() << 23).wrapping_add(0x3f80_0000)))
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    // Every block below runs only in code reached through `super::dispatch`, which has asked the
    // CPU for the instructions; that is the whole SAFETY argument of this module.
    #![allow(clippy::undocumented_unsafe_blocks)]
    use super::Lanes;
    use std::arch::x86_64::*;

    /// Two AVX2 registers.
    #[derive(Clone, Copy)]
    pub(crate) struct Avx2(__m256, __m256);

    macro_rules! both {
        ($a:expr, $b:expr, $f:ident) => {
            unsafe { Avx2($f($a.0, $b.0), $f($a.1, $b.1)) }
        };
    }

    impl Lanes for Avx2 {
        const TILE_ROWS: usize = 6;
        const TILE_VECS: usize = 1;

        #[inline(always)]
        fn splat(x: f32) -> Self {
            let v = unsafe { _mm256_set1_ps(x) };
            Avx2(v, v)
        }
        #[inline(always)]
        unsafe fn load(p: *const f32) -> Self {
            Avx2(_mm256_loadu_ps(p), _mm256_loadu_ps(p.add(8)))
        }
        #[inline(always)]
        unsafe fn store(self, p: *mut f32) {
            _mm256_storeu_ps(p, self.0);
            _mm256_storeu_ps(p.add(8), self.1);
        }
        #[inline(always)]
        fn add(self, o: Self) -> Self {
            both!(self, o, _mm256_add_ps)
        }
        #[inline(always)]
        fn sub(self, o: Self) -> Self {
            both!(self, o, _mm256_sub_ps)
        }
        #[inline(always)]
        fn mul(self, o: Self) -> Self {
            both!(self, o, _mm256_mul_ps)
        }
        #[inline(always)]
        fn div(self, o: Self) -> Self {
            both!(self, o, _mm256_div_ps)
        }
        #[inline(always)]
        fn fma(self, m: Self, a: Self) -> Self {
            unsafe {
                Avx2(
                    _mm256_fmadd_ps(self.0, m.0, a.0),
                    _mm256_fmadd_ps(self.1, m.1, a.1),
                )
            }
        }
        #[inline(always)]
        fn max(self, o: Self) -> Self {
            both!(self, o, _mm256_max_ps)
        }
        #[inline(always)]
        fn lt_select(self, o: Self, yes: Self, no: Self) -> Self {
            unsafe {
                let m0 = _mm256_cmp_ps::<_CMP_LT_OQ>(self.0, o.0);
                let m1 = _mm256_cmp_ps::<_CMP_LT_OQ>(self.1, o.1);
                Avx2(
                    _mm256_blendv_ps(no.0, yes.0, m0),
                    _mm256_blendv_ps(no.1, yes.1, m1),
                )
            }
        }
        #[inline(always)]
        fn pow2_bits(self) -> Self {
            unsafe {
                let one = _mm256_set1_epi32(0x3f80_0000);
                let f = |v| {
                    _mm256_castsi256_ps(_mm256_add_epi32(
                        _mm256_slli_epi32::<23>(_mm256_castps_si256(v)),
                        one,
                    ))
                };
                Avx2(f(self.0), f(self.1))
            }
        }
    }

    /// One AVX-512 register.
    #[cfg(flashrt_avx512)]
    #[derive(Clone, Copy)]
    pub(crate) struct Avx512(__m512);

    // The build script sets the cfg only for compilers that have these.
    #[cfg(flashrt_avx512)]
    #[allow(clippy::incompatible_msrv)]
    impl Lanes for Avx512 {
        const TILE_ROWS: usize = 14;
        const TILE_VECS: usize = 2;

        #[inline(always)]
        fn splat(x: f32) -> Self {
            unsafe { Avx512(_mm512_set1_ps(x)) }
        }
        #[inline(always)]
        unsafe fn load(p: *const f32) -> Self {
            Avx512(_mm512_loadu_ps(p))
        }
        #[inline(always)]
        unsafe fn store(self, p: *mut f32) {
            _mm512_storeu_ps(p, self.0)
        }
        #[inline(always)]
        unsafe fn load_part(p: *const f32, n: usize, fill: f32) -> Self {
            let mask = ((1u32 << n) - 1) as u16;
            Avx512(_mm512_mask_loadu_ps(_mm512_set1_ps(fill), mask, p))
        }
        #[inline(always)]
        unsafe fn store_part(self, p: *mut f32, n: usize) {
            let mask = ((1u32 << n) - 1) as u16;
            _mm512_mask_storeu_ps(p, mask, self.0)
        }
        #[inline(always)]
        fn add(self, o: Self) -> Self {
            unsafe { Avx512(_mm512_add_ps(self.0, o.0)) }
        }
        #[inline(always)]
        fn sub(self, o: Self) -> Self {
            unsafe { Avx512(_mm512_sub_ps(self.0, o.0)) }
        }
        #[inline(always)]
        fn mul(self, o: Self) -> Self {
            unsafe { Avx512(_mm512_mul_ps(self.0, o.0)) }
        }
        #[inline(always)]
        fn div(self, o: Self) -> Self {
            unsafe { Avx512(_mm512_div_ps(self.0, o.0)) }
        }
        #[inline(always)]
        fn fma(self, m: Self, a: Self) -> Self {
            unsafe { Avx512(_mm512_fmadd_ps(self.0, m.0, a.0)) }
        }
        #[inline(always)]
        fn max(self, o: Self) -> Self {
            unsafe { Avx512(_mm512_max_ps(self.0, o.0)) }
        }
        #[inline(always)]
        fn lt_select(self, o: Self, yes: Self, no: Self) -> Self {
            unsafe {
                let m = _mm512_cmp_ps_mask::<_CMP_LT_OQ>(self.0, o.0);
                Avx512(_mm512_mask_blend_ps(m, no.0, yes.0))
            }
        }
        #[inline(always)]
        fn pow2_bits(self) -> Self {
            unsafe {
                let n = _mm512_slli_epi32::<23>(_mm512_castps_si512(self.0));
                Avx512(_mm512_castsi512_ps(_mm512_add_epi32(
                    n,
                    _mm512_set1_epi32(0x3f80_0000),
                )))
            }
        }
    }
}
