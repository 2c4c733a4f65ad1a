//! The bytes of a serialised capsule, in the byte order of the machine:
//!
//! | Offset | Type | Content |
//! |---|---|---|
//! | 0 | u32 | magic `0x43415053` |
//! | 4 | u32 | version 1 |
//! | 8 | u64 | fingerprint |
//! | 16 | u32 | tier at save time; any value when read |
//! | 20 | u32 | number of regions, at most 2^20 |
//! | 24 | u64 | bytes of the meta |
//! | 32 | u64 each | bytes of each region |
//! | then | bytes | meta, then the regions back to back, then nothing |

use super::abi::cap_status;
use std::fmt;

const MAGIC: u32 = 0x4341_5053;
const VERSION: u32 = 1;
const HEADER: usize = 32;

/// Most regions of a capsule.
pub(super) const MAX_REGIONS: usize = 1 << 20;

/// A blob whose lengths all agree.
#[derive(Debug, PartialEq)]
pub(super) struct Blob<'a> {
    sizes: &'a [u8],
    pub(super) meta: &'a [u8],
    payload: &'a [u8],
}

/// Why bytes are no blob that can be loaded.
#[derive(Debug, PartialEq)]
pub(super) enum Refusal {
    Header { len: usize },
    Magic { got: u32 },
    Version { got: u32 },
    Fingerprint { expected: u64, got: u64 },
    Regions { got: u32 },
    Length { expected: u128, got: usize },
}

impl Refusal {
    pub(super) fn status(&self) -> cap_status {
        match self {
            Refusal::Version { .. } => cap_status::CAP_ERR_VERSION,
            Refusal::Fingerprint { .. } => cap_status::CAP_ERR_FINGERPRINT,
            _ => cap_status::CAP_ERR_FORMAT,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Header { len } => {
                write!(f, "{len} bytes, expected at least {HEADER}")
            }
            Refusal::Magic { got } => write!(f, "magic {got:#010x}, expected {MAGIC:#010x}"),
            Refusal::Version { got } => write!(f, "blob version {got}, expected {VERSION}"),
            Refusal::Fingerprint { expected, got } => write!(
                f,
                "made under fingerprint {got:#018x}, the backend has {expected:#018x}"
            ),
            Refusal::Regions { got } => {
                write!(f, "{got} regions, expected at most {MAX_REGIONS}")
            }
            Refusal::Length { expected, got } => {
                write!(f, "{got} bytes, expected {expected} by its own sizes")
            }
        }
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut raw = [0; 4];
    raw.copy_from_slice(&bytes[at..at + 4]);
    u32::from_ne_bytes(raw)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut raw = [0; 8];
    raw.copy_from_slice(&bytes[at..at + 8]);
    u64::from_ne_bytes(raw)
}

impl<'a> Blob<'a> {
    /// Checks all of it; takes no memory. What it is comes before whose it is, and that before its lengths.
    pub(super) fn read(bytes: &'a [u8], fingerprint: u64) -> Result<Blob<'a>, Refusal> {
        let len = bytes.len();
        let Some((header, body)) = bytes.split_at_checked(HEADER) else {
            return Err(Refusal::Header { len });
        };
        let magic = u32_at(header, 0);
        if magic != MAGIC {
            return Err(Refusal::Magic { got: magic });
        }
        let version = u32_at(header, 4);
        if version != VERSION {
            return Err(Refusal::Version { got: version });
        }
        let stamp = u64_at(header, 8);
        if stamp != fingerprint {
            return Err(Refusal::Fingerprint {
                expected: fingerprint,
                got: stamp,
            });
        }
        let regions = u32_at(header, 20);
        let count = regions as usize;
        if count > MAX_REGIONS {
            return Err(Refusal::Regions { got: regions });
        }
        let meta_len = u64_at(header, 24);

        let table = count * 8;
        let Some((sizes, rest)) = body.split_at_checked(table) else {
            // The sizes themselves are cut off: at least so many.
            return Err(Refusal::Length {
                expected: (HEADER + table) as u128 + u128::from(meta_len),
                got: len,
            });
        };
        let payload = sizes
            .chunks_exact(8)
            .map(|size| u128::from(u64_at(size, 0)))
            .sum::<u128>();
        let expected = (HEADER + table) as u128 + u128::from(meta_len) + payload;
        if expected != len as u128 {
            return Err(Refusal::Length { expected, got: len });
        }
        // The sum of all parts is the length, so each fits in it.
        let (meta, payload) = rest.split_at(meta_len as usize);
        Ok(Blob {
            sizes,
            meta,
            payload,
        })
    }

    pub(super) fn count(&self) -> usize {
        self.sizes.len() / 8
    }

    /// The bytes of each region.
    pub(super) fn regions(&self) -> impl Iterator<Item = &'a [u8]> {
        let mut payload = self.payload;
        self.sizes.chunks_exact(8).map(move |size| {
            let (region, rest) = payload.split_at(u64_at(size, 0) as usize);
            payload = rest;
            region
        })
    }
}

/// What stands in front of the regions: header, sizes, meta.
pub(super) struct Head<'a> {
    pub(super) fingerprint: u64,
    pub(super) tier: u32,
    pub(super) meta: &'a [u8],
}

impl Head<'_> {
    /// Length of the head of a blob with so many regions.
    pub(super) fn len(meta: usize, regions: usize) -> usize {
        HEADER + regions * 8 + meta
    }

    /// The head's parts, in order.
    pub(super) fn for_each(
        &self,
        sizes: impl ExactSizeIterator<Item = usize>,
        mut write: impl FnMut(&[u8]),
    ) {
        write(&MAGIC.to_ne_bytes());
        write(&VERSION.to_ne_bytes());
        write(&self.fingerprint.to_ne_bytes());
        write(&self.tier.to_ne_bytes());
        write(&(sizes.len() as u32).to_ne_bytes());
        write(&(self.meta.len() as u64).to_ne_bytes());
        for size in sizes {
            write(&(size as u64).to_ne_bytes());
        }
        write(self.meta);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two regions, of 3 and 0 bytes, and two bytes of meta, written by hand for a little-endian machine.
    const GOLDEN: &[u8] = &[
        0x53, 0x50, 0x41, 0x43, 1, 0, 0, 0, // magic, version
        0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, // fingerprint
        1, 0, 0, 0, 2, 0, 0, 0, // tier, regions
        2, 0, 0, 0, 0, 0, 0, 0, // meta
        3, 0, 0, 0, 0, 0, 0, 0, // region 0
        0, 0, 0, 0, 0, 0, 0, 0, // region 1
        0xa0, 0xa1, 0xb0, 0xb1, 0xb2,
    ];
    const STAMP: u64 = 0x1122_3344_5566_7788;

    fn edited(at: usize, bytes: &[u8]) -> Vec<u8> {
        let mut blob = GOLDEN.to_vec();
        blob[at..at + bytes.len()].copy_from_slice(bytes);
        blob
    }

    #[test]
    fn the_parts_of_a_blob_are_found() {
        let blob = Blob::read(GOLDEN, STAMP).unwrap();
        assert_eq!(blob.count(), 2);
        assert_eq!(blob.meta, [0xa0, 0xa1]);
        let regions: Vec<_> = blob.regions().collect();
        assert_eq!(regions, [&[0xb0, 0xb1, 0xb2][..], &[]]);
    }

    #[test]
    fn the_head_is_written_as_it_is_read() {
        let head = Head {
            fingerprint: STAMP,
            tier: 1,
            meta: &[0xa0, 0xa1],
        };
        let mut bytes = Vec::new();
        head.for_each([3, 0].into_iter(), |part| bytes.extend_from_slice(part));
        assert_eq!(bytes.len(), Head::len(2, 2));
        assert_eq!(bytes, GOLDEN[..bytes.len()]);
    }

    #[test]
    fn every_truncation_and_every_overlong_blob_is_refused() {
        for len in 0..GOLDEN.len() {
            let refusal = Blob::read(&GOLDEN[..len], STAMP).unwrap_err();
            assert_eq!(refusal.status(), cap_status::CAP_ERR_FORMAT, "{len}");
        }
        let long = [GOLDEN, &[0]].concat();
        assert_eq!(
            Blob::read(&long, STAMP).unwrap_err(),
            Refusal::Length {
                expected: 53,
                got: 54
            }
        );
    }

    #[test]
    fn what_it_is_comes_before_whose_it_is() {
        let mut blob = edited(4, &2u32.to_ne_bytes());
        assert_eq!(Blob::read(&blob, 0), Err(Refusal::Version { got: 2 }));
        blob[0] = 0;
        assert_eq!(
            Blob::read(&blob, 0),
            Err(Refusal::Magic { got: 0x4341_5000 })
        );
        assert_eq!(
            Blob::read(&GOLDEN[..40], 0),
            Err(Refusal::Fingerprint {
                expected: 0,
                got: STAMP
            })
        );
    }

    #[test]
    fn sizes_that_overflow_and_too_many_regions_are_refused() {
        let regions = edited(20, &(MAX_REGIONS as u32 + 1).to_ne_bytes());
        assert_eq!(
            Blob::read(&regions, STAMP),
            Err(Refusal::Regions {
                got: MAX_REGIONS as u32 + 1
            })
        );
        // Just as many as may be: their sizes are not there.
        let regions = edited(20, &(MAX_REGIONS as u32).to_ne_bytes());
        assert!(matches!(
            Blob::read(&regions, STAMP),
            Err(Refusal::Length { .. })
        ));
        for at in [24, 32, 40] {
            let huge = edited(at, &u64::MAX.to_ne_bytes());
            assert!(matches!(
                Blob::read(&huge, STAMP),
                Err(Refusal::Length { .. })
            ));
        }
        // The two sizes would sum to 3 again in 64 bits.
        let mut wrapped = edited(32, &(u64::MAX - 1).to_ne_bytes());
        wrapped[40..48].copy_from_slice(&5u64.to_ne_bytes());
        assert!(matches!(
            Blob::read(&wrapped, STAMP),
            Err(Refusal::Length { .. })
        ));
    }

    #[test]
    fn any_tier_is_read() {
        let blob = edited(16, &77u32.to_ne_bytes());
        assert!(Blob::read(&blob, STAMP).is_ok());
    }
}
