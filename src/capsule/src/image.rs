//! The plain bytes of a capsule, to carry it to another process.

use crate::{Boundary, RegionEntry};

/// One region with its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionImage {
    /// Name and window.
    pub entry: RegionEntry,
    /// Its bytes, `entry.bytes` of them; empty when the region was left out of a partial capsule.
    pub data: Vec<u8>,
}

/// A capsule as data: no handles, no graphs. How it is laid out in a file is another matter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapsuleImage {
    /// The identity text.
    pub identity: Vec<u8>,
    /// Its fingerprint.
    pub fingerprint: u64,
    /// When it was taken.
    pub boundary: Boundary,
    /// Every continuation region, in declaration order.
    pub regions: Vec<RegionImage>,
}
