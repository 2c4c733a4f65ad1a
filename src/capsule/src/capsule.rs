//! One capsule, and the plain data about it.

use std::fmt;
use std::sync::Arc;

use flashrt_exec::{Buffer, Slice, Space, StreamId};
use flashrt_runtime::{LiveSet, StateClass, HOST_STATE_BYTES};

use crate::layout::Layout;
use crate::{CapsuleMemory, Error};

/// Where the bytes of a capsule lie. Regions of host buffers (the host state block) lie in host memory in either tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Tier {
    /// Device memory: fastest restore.
    Device,
    /// Host memory.
    Host,
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Tier::Device => "device",
            Tier::Host => "host",
        })
    }
}

/// When a capsule was taken. Given by the caller, kept and handed back, never interpreted except for the age of rollback by
/// time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Boundary {
    /// Tick that the boundary follows.
    pub tick: u64,
    /// Epoch of the session at that time.
    pub epoch: u64,
    /// Steady clock in nanoseconds.
    pub steady_ns: u64,
    /// ROS time in nanoseconds.
    pub ros_ns: i64,
}

/// What is known about a capsule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapsuleInfo {
    /// Name.
    pub name: Arc<str>,
    /// Name of the live set that it was taken from.
    pub origin: Arc<str>,
    /// Where its bytes lie.
    pub tier: Tier,
    /// Bytes of state that it holds.
    pub bytes: u64,
    /// Regions that it holds.
    pub regions: usize,
    /// Fingerprint of its model.
    pub fingerprint: u64,
    /// When it was taken.
    pub boundary: Boundary,
    /// Regions were left out on purpose; restore refuses it unless told otherwise.
    pub partial: bool,
    /// Not discarded with the newer part of a history.
    pub pinned: bool,
    /// Its name was generated.
    pub automatic: bool,
}

/// Backing and bytes of a capsule. Shared by the store's table and by handles; reused only when nobody else holds it.
pub(crate) struct Frozen {
    pub(crate) layout: Arc<Layout>,
    pub(crate) tier: Tier,
    /// Window of every region in the backing.
    pub(crate) slices: Vec<Slice>,
    pub(crate) device_bytes: u64,
    pub(crate) host_bytes: u64,
    pub(crate) boundary: Boundary,
    /// True for a region that was left out.
    pub(crate) missing: Vec<bool>,
    /// The host state block as saved, for the check before the first live write.
    pub(crate) host_block: [u8; HOST_STATE_BYTES],
}

impl Frozen {
    pub(crate) fn alloc(
        mem: &dyn CapsuleMemory,
        layout: &Arc<Layout>,
        tier: Tier,
    ) -> Result<Frozen, flashrt_exec::Error> {
        let packing = layout.packing(tier);
        let backing = |space, bytes| -> Result<Option<Buffer>, flashrt_exec::Error> {
            match bytes {
                0 => Ok(None),
                n => mem.alloc("capsule", space, n).map(Some),
            }
        };
        let device = backing(Space::Device, packing.device_bytes)?;
        let host = backing(Space::Host, packing.host_bytes)?;
        let mut slices = Vec::with_capacity(layout.regions.len());
        for ((space, offset), r) in packing.places.iter().zip(&layout.regions) {
            let buffer = match space {
                Space::Device => &device,
                Space::Host => &host,
            };
            if let Some(b) = buffer {
                slices.push(b.slice(*offset, r.bytes as usize)?);
            }
        }
        Ok(Frozen {
            tier,
            slices,
            device_bytes: packing.device_bytes as u64,
            host_bytes: packing.host_bytes as u64,
            boundary: Boundary::default(),
            missing: vec![false; layout.regions.len()],
            host_block: [0; HOST_STATE_BYTES],
            layout: layout.clone(),
        })
    }

    pub(crate) fn missing_count(&self) -> usize {
        self.missing.iter().filter(|m| **m).count()
    }

    pub(crate) fn held_bytes(&self) -> u64 {
        let all = self.layout.regions.iter().zip(&self.missing);
        all.filter(|(_, m)| !**m).map(|(r, _)| r.bytes).sum()
    }

    /// Copies every region that is not missing from the live set, then waits.
    pub(crate) fn fill_from(
        &mut self,
        mem: &dyn CapsuleMemory,
        live: &LiveSet,
    ) -> Result<(), flashrt_exec::Error> {
        let regions = live.regions();
        let all = self.slices.iter().zip(&self.layout.live_index);
        let held = all.zip(&self.missing).filter(|(_, missing)| !**missing);
        let pairs = held.map(|((slice, live_index), _)| (slice, &regions[*live_index].slice));
        copy_all(mem, pairs, &mut false)?;
        mem.sync()
    }

    /// Copies every region that is neither missing nor skipped into the live set, then waits. Returns the bytes written and,
    /// of these, the bytes that moved from host memory to the device. `has_begun` is set once a live byte may have changed.
    pub(crate) fn write_to(
        &self,
        mem: &dyn CapsuleMemory,
        live: &LiveSet,
        skip: impl Fn(usize) -> bool,
        has_begun: &mut bool,
    ) -> Result<(u64, u64), flashrt_exec::Error> {
        let regions = live.regions();
        let all = self.slices.iter().zip(&self.layout.live_index).enumerate();
        let pairs = all
            .filter(|(i, _)| !self.missing[*i] && !skip(*i))
            .map(|(_, (slice, live_index))| (&regions[*live_index].slice, slice));
        let (mut bytes, mut promoted) = (0, 0);
        for (target, slice) in pairs.clone() {
            bytes += slice.bytes() as u64;
            if slice.buffer().space() == Space::Host && target.buffer().space() == Space::Device {
                promoted += slice.bytes() as u64;
            }
        }
        copy_all(mem, pairs, has_begun)?;
        mem.sync()?;
        Ok((bytes, promoted))
    }
}

/// Pairs of one submission: as many as one launch of the copy kernel takes.
const LOT: usize = 224;

/// Enqueues all copies in lots. Allocates nothing.
fn copy_all<'a>(
    mem: &dyn CapsuleMemory,
    mut pairs: impl Iterator<Item = (&'a Slice, &'a Slice)>,
    has_begun: &mut bool,
) -> Result<(), flashrt_exec::Error> {
    let Some(first) = pairs.next() else {
        return Ok(());
    };
    let (mut lot, mut len) = ([first; LOT], 1);
    for pair in pairs {
        if len == LOT {
            mem.copy_many(&lot, has_begun)?;
            len = 0;
        }
        lot[len] = pair;
        len += 1;
    }
    mem.copy_many(&lot[..len], has_begun)
}

/// A counted reference to a capsule: its bytes stay as they are while the handle lives, even when the store drops or
/// overwrites the capsule meanwhile.
#[derive(Clone)]
pub struct Capsule {
    pub(crate) info: CapsuleInfo,
    pub(crate) frozen: Arc<Frozen>,
}

impl Capsule {
    /// What is known about it.
    pub fn info(&self) -> &CapsuleInfo {
        &self.info
    }
}

/// Clears every region of class output with zeros: at a new epoch no row of an old one can be emitted.
///
/// Waits for the set's work first and for the clearing itself. A failure poisons the set.
pub fn clear_outputs(live: &mut LiveSet) -> Result<(), Error> {
    let runtime = |e| Error::Runtime {
        context: "clear outputs".to_owned(),
        source: Box::new(e),
    };
    live.usable().map_err(runtime)?;
    live.sync().map_err(runtime)?;
    let clear = || -> Result<(), flashrt_exec::Error> {
        let ctx = live.context();
        for r in live
            .regions()
            .iter()
            .filter(|r| r.class == StateClass::Output)
        {
            ctx.fill(&r.slice, 0, StreamId(0))?;
        }
        ctx.synchronize(StreamId(0))
    };
    let result = clear();
    if let Err(e) = result {
        live.poison(&format!("clearing the outputs failed: {e}"));
        return Err(Error::exec("clear outputs", e));
    }
    Ok(())
}
