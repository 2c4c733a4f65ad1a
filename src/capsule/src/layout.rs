//! Which bytes of a live set a capsule holds, and where in its backing.

use flashrt_runtime::{first_difference, LiveSet, Space, StateClass, HOST_STATE_NAME};

use crate::{Error, Tier};

/// Start of every region in a backing, in bytes: the cache line and the widest vector access.
const ALIGN: usize = 64;

/// One saved region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionEntry {
    /// Region name.
    pub name: String,
    /// Name of the buffer that it lies in.
    pub buffer: String,
    /// First byte in the buffer.
    pub offset: u64,
    /// Bytes.
    pub bytes: u64,
}

impl RegionEntry {
    fn show(&self) -> String {
        format!(
            "'{}' ({} bytes at {} of buffer '{}')",
            self.name, self.bytes, self.offset, self.buffer
        )
    }
}

/// Places of all regions in the backing of one tier.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Packing {
    /// Space and first byte of every region.
    pub(crate) places: Vec<(Space, usize)>,
    pub(crate) device_bytes: usize,
    pub(crate) host_bytes: usize,
}

/// Identity and region table that a capsule is bound to.
#[derive(Debug)]
pub(crate) struct Layout {
    /// Id of the host state buffer of the set that it was read from: unique, never reused. A set does not change its
    /// declaration, so this set needs no second comparison.
    origin: u64,
    pub(crate) identity: Vec<u8>,
    pub(crate) fingerprint: u64,
    pub(crate) regions: Vec<RegionEntry>,
    /// Position of every region in `LiveSet::regions`.
    pub(crate) live_index: Vec<usize>,
    /// Position of the host state block in `regions`.
    pub(crate) host_state: Option<usize>,
    pub(crate) device_tier: Packing,
    pub(crate) host_tier: Packing,
}

impl Layout {
    pub(crate) fn of(live: &LiveSet, fingerprint: u64) -> Layout {
        let mut regions = Vec::new();
        let mut live_index = Vec::new();
        let mut spaces = Vec::new();
        for (i, r) in live.regions().iter().enumerate() {
            if r.class != StateClass::Continuation {
                continue;
            }
            regions.push(RegionEntry {
                name: r.name.clone(),
                buffer: r.slice.buffer().name().to_owned(),
                offset: r.slice.offset() as u64,
                bytes: r.slice.bytes() as u64,
            });
            live_index.push(i);
            spaces.push(r.slice.buffer().space());
        }
        let host_state = regions.iter().position(|r| r.name == HOST_STATE_NAME);
        let device_tier = pack(&regions, |i| spaces[i]);
        let host_tier = pack(&regions, |_| Space::Host);
        Layout {
            origin: live.host_state().buffer().id(),
            identity: live.identity().to_vec(),
            fingerprint,
            regions,
            live_index,
            host_state,
            device_tier,
            host_tier,
        }
    }

    pub(crate) fn packing(&self, tier: Tier) -> &Packing {
        match tier {
            Tier::Device => &self.device_tier,
            Tier::Host => &self.host_tier,
        }
    }

    /// True when it is the layout of `live`. Allocates nothing.
    pub(crate) fn fits(&self, live: &LiveSet, fingerprint: u64) -> bool {
        self.fingerprint == fingerprint
            && (self.origin == live.host_state().buffer().id()
                || (self.identity == live.identity() && self.same_table(live)))
    }

    fn same_table(&self, live: &LiveSet) -> bool {
        let mut own = self.regions.iter();
        for r in live
            .regions()
            .iter()
            .filter(|r| r.class == StateClass::Continuation)
        {
            let same = own.next().is_some_and(|o| {
                o.name == r.name
                    && o.buffer == r.slice.buffer().name()
                    && o.offset == r.slice.offset() as u64
                    && o.bytes == r.slice.bytes() as u64
            });
            if !same {
                return false;
            }
        }
        own.next().is_none()
    }

    /// Refuses a live set that this layout does not belong to, naming the first difference.
    pub(crate) fn check(&self, live: &LiveSet, fingerprint: u64) -> Result<(), Error> {
        if self.fits(live, fingerprint) {
            return Ok(());
        }
        check_identity(&self.identity, self.fingerprint, live, fingerprint)?;
        let ours = Layout::of(live, fingerprint);
        check_table(&ours.regions, &self.regions, live.name())
    }
}

/// Compares fingerprint and text.
pub(crate) fn check_identity(
    identity: &[u8],
    fingerprint: u64,
    live: &LiveSet,
    live_fingerprint: u64,
) -> Result<(), Error> {
    let (capsule_record, live_record) = match first_difference(identity, live.identity()) {
        Some(d) => d,
        None if fingerprint == live_fingerprint => return Ok(()),
        None => ("(equal texts)".to_owned(), "(equal texts)".to_owned()),
    };
    Err(Error::Fingerprint {
        set: live.name().to_owned(),
        capsule: fingerprint,
        live: live_fingerprint,
        capsule_record,
        live_record,
    })
}

/// Compares two region tables: same names in the same order, same windows. All regions or none.
pub(crate) fn check_table(
    expected: &[RegionEntry],
    got: &[RegionEntry],
    set: &str,
) -> Result<(), Error> {
    for i in 0..expected.len().max(got.len()) {
        let (e, g) = (expected.get(i), got.get(i));
        if e != g {
            let show = |r: Option<&RegionEntry>| r.map_or("nothing".to_owned(), RegionEntry::show);
            return Err(Error::Regions {
                set: set.to_owned(),
                expected: format!("region {i} {}", show(e)),
                got: show(g),
            });
        }
    }
    Ok(())
}

fn pack(regions: &[RegionEntry], space: impl Fn(usize) -> Space) -> Packing {
    let (mut device_bytes, mut host_bytes) = (0usize, 0usize);
    let mut places = Vec::with_capacity(regions.len());
    for (i, r) in regions.iter().enumerate() {
        let end = match space(i) {
            Space::Device => &mut device_bytes,
            Space::Host => &mut host_bytes,
        };
        places.push((space(i), *end));
        *end += (r.bytes as usize).next_multiple_of(ALIGN);
    }
    Packing {
        places,
        device_bytes,
        host_bytes,
    }
}
