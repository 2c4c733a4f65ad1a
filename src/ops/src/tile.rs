//! The register tile that matrix products and attention share.

use crate::lanes::{Lanes, LANES};

/// Left operand of a product: element (row, k) at `at + row·row_step + k·k_step`.
#[derive(Clone, Copy)]
pub(crate) struct Left {
    pub at: *const f32,
    pub row_step: usize,
    pub k_step: usize,
}

/// Right operand: `[k][16]` panels, `panel_step` elements from one panel to the next.
#[derive(Clone, Copy)]
pub(crate) struct Right {
    pub at: *const f32,
    pub panel_step: usize,
}

/// Where the tile goes: vector (row, panel) at `at + row·row_step + panel·16`.
#[derive(Clone, Copy)]
pub(crate) struct Out {
    pub at: *mut f32,
    pub row_step: usize,
}

/// `out[rows, C·16] = (accumulate ? out : 0) + left[rows, k]·right[k, C·16]`, each element one
/// fused multiply-add chain in the order of k.
///
/// # Safety
/// The operands must be valid for these extents, `out` must not overlap the inputs, and
/// `1 <= rows <= V::TILE_ROWS`.
#[inline(always)]
pub(crate) unsafe fn tile<V: Lanes, const C: usize>(
    rows: usize,
    k: usize,
    left: Left,
    right: Right,
    out: Out,
    accumulate: bool,
) {
    macro_rules! rows {
        ($($r:literal)*) => {
            match rows {
                $($r if $r <= V::TILE_ROWS => fixed::<V, $r, C>(k, left, right, out, accumulate),)*
                _ => debug_assert!(false, "tile of {rows} rows"),
            }
        };
    }
    rows!(1 2 3 4 5 6 7 8 9 10 11 12 13 14)
}

#[inline(always)]
unsafe fn fixed<V: Lanes, const R: usize, const C: usize>(
    k: usize,
    left: Left,
    right: Right,
    out: Out,
    accumulate: bool,
) {
    let mut acc = [[V::splat(0.0); C]; R];
    if accumulate {
        for (r, row) in acc.iter_mut().enumerate() {
            for (c, v) in row.iter_mut().enumerate() {
                *v = V::load(out.at.add(r * out.row_step + c * LANES));
            }
        }
    }
    for p in 0..k {
        let mut b = [V::splat(0.0); C];
        for (c, v) in b.iter_mut().enumerate() {
            *v = V::load(right.at.add(c * right.panel_step + p * LANES));
        }
        let a = left.at.add(p * left.k_step);
        for (r, row) in acc.iter_mut().enumerate() {
            let a = V::splat(*a.add(r * left.row_step));
            for (c, v) in row.iter_mut().enumerate() {
                *v = a.fma(b[c], *v);
            }
        }
    }
    for (r, row) in acc.iter().enumerate() {
        for (c, v) in row.iter().enumerate() {
            v.store(out.at.add(r * out.row_step + c * LANES));
        }
    }
}

/// A stack block that needs no zeroing.
#[repr(align(64))]
pub(crate) struct Block<const N: usize>(std::mem::MaybeUninit<[f32; N]>);

impl<const N: usize> Block<N> {
    #[inline(always)]
    pub fn new() -> Self {
        Block(std::mem::MaybeUninit::uninit())
    }

    #[inline(always)]
    pub fn at(&mut self) -> *mut f32 {
        self.0.as_mut_ptr().cast()
    }
}
