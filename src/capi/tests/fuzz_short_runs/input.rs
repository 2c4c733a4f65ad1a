//! Bytes of a fuzzer as a source of decisions. At its end it answers zeros.

use std::cell::Cell;

/// Shared, so that callbacks may read on where the call that runs them stopped.
pub struct Input<'a> {
    rest: Cell<&'a [u8]>,
    /// Little is out of order in this one, so that much is accepted.
    is_calm: bool,
}

impl<'a> Input<'a> {
    pub fn new(bytes: &'a [u8]) -> Input<'a> {
        let (&first, rest) = bytes.split_first().unwrap_or((&0, &[]));
        Input {
            rest: Cell::new(rest),
            is_calm: first & 1 == 1,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.rest.get().is_empty()
    }

    /// The next `n` bytes, fewer at the end.
    pub fn bytes(&self, n: usize) -> &'a [u8] {
        let rest = self.rest.get();
        let (bytes, rest) = rest.split_at(n.min(rest.len()));
        self.rest.set(rest);
        bytes
    }

    pub fn byte(&self) -> u8 {
        self.bytes(1).first().copied().unwrap_or(0)
    }

    pub fn below(&self, n: usize) -> usize {
        match n {
            0 => 0,
            1..=256 => self.byte() as usize % n,
            _ => (self.byte() as usize * 256 + self.byte() as usize) % n,
        }
    }

    /// True once in `n`.
    pub fn one_in(&self, n: usize) -> bool {
        self.below(n) == n - 1
    }

    /// True once in `n`, and hardly ever in a calm input: something is out of order.
    pub fn is_odd(&self, n: usize) -> bool {
        match self.is_calm {
            true => self.byte() == 255,
            false => self.one_in(n),
        }
    }

    pub fn number(&self) -> u64 {
        let mut raw = [0; 8];
        let bytes = self.bytes(8);
        raw[..bytes.len()].copy_from_slice(bytes);
        u64::from_le_bytes(raw)
    }

    /// Mostly small; now and then one at which arithmetic wraps.
    pub fn size(&self, most: usize) -> usize {
        const EDGES: [usize; 6] = [
            usize::MAX,
            usize::MAX - 1,
            usize::MAX - 63,
            1 << 63,
            (1 << 63) - 1,
            1 << 62,
        ];
        if self.is_odd(16) {
            return EDGES[self.below(EDGES.len())];
        }
        self.below(most + 1)
    }

    /// Mostly a code below `end`, now and then another.
    pub fn code(&self, end: usize) -> u32 {
        if self.is_odd(8) {
            return match self.one_in(2) {
                true => end as u32,
                false => self.number() as u32,
            };
        }
        self.below(end) as u32
    }
}
