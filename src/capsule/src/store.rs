//! Capsules by name under byte budgets, with a linear history per live set.

use std::sync::Arc;
use std::time::Instant;

use flashrt_exec::Space;
use flashrt_runtime::{HostFields, LiveSet, HOST_STATE_BYTES};

use crate::capsule::Frozen;
use crate::history::History;
use crate::layout::{check_identity, check_table, Layout};
use crate::{
    check_name, Boundary, Capsule, CapsuleImage, CapsuleInfo, CapsuleMemory, ContextMemory, Error,
    RegionImage, Tier,
};

/// Limits of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreConfig {
    /// Device memory that backings may take, in bytes.
    pub device_budget_bytes: u64,
    /// Host memory that backings may take, in bytes.
    pub host_budget_bytes: u64,
    /// Most capsules at a time.
    pub capacity: usize,
}

impl Default for StoreConfig {
    /// 64 MiB of each memory, 32 capsules.
    fn default() -> StoreConfig {
        StoreConfig {
            device_budget_bytes: 64 << 20,
            host_budget_bytes: 64 << 20,
            capacity: 32,
        }
    }
}

/// What to snapshot, and how.
#[derive(Clone, Copy, Debug)]
pub struct SnapshotRequest<'a> {
    /// Name; generated when `None`, and then never one that exists.
    pub name: Option<&'a str>,
    /// Where the bytes go.
    pub tier: Tier,
    /// Replace a capsule of this name. The old one stays whole until the new one is complete.
    pub overwrite: bool,
    /// Regions to leave out, for verification only: the capsule is marked partial.
    pub exclude: &'a [String],
    /// When this is.
    pub boundary: Boundary,
}

impl<'a> SnapshotRequest<'a> {
    /// A whole capsule in `tier` under `name`, without overwriting.
    pub fn new(name: Option<&'a str>, tier: Tier, boundary: Boundary) -> SnapshotRequest<'a> {
        SnapshotRequest {
            name,
            tier,
            overwrite: false,
            exclude: &[],
            boundary,
        }
    }
}

/// Where to go back to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rollback<'a> {
    /// That many boundaries back, at least 1. The boundary that the set stands on (nothing was run since it was taken or
    /// restored) does not count.
    Steps(u32),
    /// The boundary with this name in the set's history, older or newer.
    Name(&'a str),
    /// The newest boundary, not newer than the present one, that is at least this old on the steady clock.
    AgeMs(u64),
}

/// What a restore did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestoreReport {
    /// The capsule.
    pub info: CapsuleInfo,
    /// Bytes written to the live set.
    pub bytes: u64,
    /// Microseconds from the call to verified completion.
    pub micros: u64,
    /// Of the bytes written, those that moved from the host tier to device memory.
    pub promoted_bytes: u64,
}

/// Memory that a store holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreUse {
    /// Capsules.
    pub capsules: usize,
    /// Device memory reserved, in bytes; free backings included.
    pub device_bytes: u64,
    /// Host memory reserved, in bytes; free backings included.
    pub host_bytes: u64,
    /// Of the device bytes, those that no capsule holds.
    pub device_free_bytes: u64,
    /// Of the host bytes, those that no capsule holds.
    pub host_free_bytes: u64,
}

struct Entry {
    id: u64,
    name: Arc<str>,
    origin: Arc<str>,
    is_automatic: bool,
    is_pinned: bool,
    frozen: Arc<Frozen>,
}

impl Entry {
    fn info(&self) -> CapsuleInfo {
        let f = &self.frozen;
        let missing = f.missing_count();
        CapsuleInfo {
            name: self.name.clone(),
            origin: self.origin.clone(),
            tier: f.tier,
            bytes: f.held_bytes(),
            regions: f.layout.regions.len() - missing,
            fingerprint: f.layout.fingerprint,
            boundary: f.boundary,
            partial: missing > 0,
            pinned: self.is_pinned,
            automatic: self.is_automatic,
        }
    }
}

/// Capsules of the live sets of one context.
///
/// A snapshot that overwrites, of a layout and tier seen before, allocates nothing once two backings of it exist: the old
/// backing is kept for the next one (see [`Store::reserve`]).
pub struct Store {
    config: StoreConfig,
    entries: Vec<Entry>,
    /// Backings without a capsule, oldest first. One that a handle still holds stays here, counted, until it is let go.
    spares: Vec<Arc<Frozen>>,
    layouts: Vec<Arc<Layout>>,
    histories: Vec<(Arc<str>, History)>,
    next_id: u64,
    next_automatic: u64,
}

impl Store {
    /// An empty store.
    pub fn new(config: StoreConfig) -> Store {
        Store {
            config,
            entries: Vec::with_capacity(config.capacity.min(1024)),
            spares: Vec::with_capacity(config.capacity.min(1024) + 1),
            layouts: Vec::new(),
            histories: Vec::new(),
            next_id: 1,
            next_automatic: 1,
        }
    }

    /// The limits.
    pub fn config(&self) -> StoreConfig {
        self.config
    }

    /// Memory in use.
    pub fn usage(&self) -> StoreUse {
        let mut u = StoreUse {
            capsules: self.entries.len(),
            ..StoreUse::default()
        };
        for f in self.entries.iter().map(|e| &e.frozen) {
            u.device_bytes += f.device_bytes;
            u.host_bytes += f.host_bytes;
        }
        for f in &self.spares {
            u.device_bytes += f.device_bytes;
            u.host_bytes += f.host_bytes;
            u.device_free_bytes += f.device_bytes;
            u.host_free_bytes += f.host_bytes;
        }
        u
    }

    /// Bytes of `(device, host)` memory that one capsule of `live` takes in `tier`.
    pub fn capsule_bytes(&mut self, live: &LiveSet, tier: Tier) -> (u64, u64) {
        let layout = self.layout_of(live, live.fingerprint());
        let p = layout.packing(tier);
        (p.device_bytes as u64, p.host_bytes as u64)
    }

    /// Allocates `count` backings for capsules of `live` in `tier` ahead of time, so that as many snapshots allocate no state
    /// memory. All or nothing.
    pub fn reserve(&mut self, live: &LiveSet, tier: Tier, count: usize) -> Result<(), Error> {
        self.reserve_with(&ContextMemory::of(live), live, tier, count)
    }

    fn reserve_with(
        &mut self,
        mem: &dyn CapsuleMemory,
        live: &LiveSet,
        tier: Tier,
        count: usize,
    ) -> Result<(), Error> {
        let layout = self.layout_of(live, mem.fingerprint());
        let packing = layout.packing(tier);
        let n = count as u64;
        self.check_budget(
            (packing.device_bytes as u64).saturating_mul(n),
            (packing.host_bytes as u64).saturating_mul(n),
        )?;
        let mut made = Vec::with_capacity(count);
        for _ in 0..count {
            let f = Frozen::alloc(mem, &layout, tier)
                .map_err(|e| Error::exec("reserve capsule memory", e))?;
            made.push(Arc::new(f));
        }
        self.spares.extend(made);
        self.history_of(live.name());
        Ok(())
    }

    /// Freezes the continuation state of `live`.
    ///
    /// Waits for what is in flight, enqueues all copies, waits for them. The capsule becomes the newest boundary of the set's
    /// history; what was newer (after a rollback) leaves the history, and of that the unnamed, unpinned capsules are dropped.
    /// On failure the store and a capsule of the same name are as they were.
    pub fn snapshot(
        &mut self,
        live: &LiveSet,
        request: &SnapshotRequest<'_>,
    ) -> Result<CapsuleInfo, Error> {
        self.snapshot_with(&ContextMemory::of(live), live, request)
    }

    /// [`Store::snapshot`] over another memory.
    pub fn snapshot_with(
        &mut self,
        mem: &dyn CapsuleMemory,
        live: &LiveSet,
        request: &SnapshotRequest<'_>,
    ) -> Result<CapsuleInfo, Error> {
        let old = match request.name {
            Some(name) => {
                check_name(name)?;
                let old = self.position(name);
                if old.is_some() && !request.overwrite {
                    return Err(Error::Exists {
                        name: name.to_owned(),
                    });
                }
                old
            }
            None => None,
        };
        usable(live)?;
        let layout = self.layout_of(live, mem.fingerprint());
        for name in request.exclude {
            if !layout.regions.iter().any(|r| r.name == *name) {
                return Err(Error::NoSuchRegion {
                    set: live.name().to_owned(),
                    name: name.clone(),
                });
            }
        }
        let history = self.history_of(live.name());
        if old.is_none() {
            self.check_capacity(history)?;
        }
        live.sync().map_err(|e| runtime("snapshot", e))?;
        let host_block = read_host_block(live)?;

        let mut frozen = match self.acquire(mem, &layout, request.tier) {
            Err(e) if e.is_no_space() && self.discard_newer(history) => {
                self.acquire(mem, &layout, request.tier)
            }
            other => other,
        }?;
        let filled = match Arc::get_mut(&mut frozen) {
            Some(f) => {
                f.boundary = request.boundary;
                f.host_block = host_block;
                for (m, r) in f.missing.iter_mut().zip(&layout.regions) {
                    *m = request.exclude.contains(&r.name);
                }
                f.fill_from(mem, live)
            }
            None => Ok(()), // acquire gives sole ownership
        };
        if let Err(e) = filled {
            self.spares.push(frozen);
            return Err(Error::exec("snapshot", e));
        }

        // From here on nothing fails.
        let id = self.next_id;
        self.next_id += 1;
        let origin = self.histories[history].0.clone();
        let index = match old {
            Some(i) => {
                let e = &mut self.entries[i];
                let old_id = std::mem::replace(&mut e.id, id);
                e.origin = origin;
                self.spares.push(std::mem::replace(&mut e.frozen, frozen));
                for (_, h) in &mut self.histories {
                    h.remove(old_id);
                }
                self.discard_newer(history);
                self.entries.iter().position(|e| e.id == id)
            }
            None => {
                self.discard_newer(history);
                let (name, is_automatic) = match request.name {
                    Some(n) => (Arc::from(n), false),
                    None => (self.generate_name(), true),
                };
                self.entries.push(Entry {
                    id,
                    name,
                    origin,
                    is_automatic,
                    is_pinned: false,
                    frozen,
                });
                Some(self.entries.len() - 1)
            }
        };
        self.histories[history].1.push(id, live.runs());
        let index = index.unwrap_or(self.entries.len() - 1);
        Ok(self.entries[index].info())
    }

    /// Writes a capsule into `live`: the set that it was taken from, or any other of the same identity that is idle (fork).
    ///
    /// The boundary becomes the present one of the set's history: the cursor moves there when it is part of it, otherwise it is
    /// appended as a snapshot would be. All checks come before the first live write; a failure after that poisons the set.
    pub fn restore(
        &mut self,
        name: &str,
        live: &mut LiveSet,
        allow_partial: bool,
    ) -> Result<RestoreReport, Error> {
        let capsule = self.get(name)?;
        self.restore_capsule(&capsule, live, allow_partial)
    }

    /// [`Store::restore`] of a capsule by handle. The capsule need not be in the store any more; then the history is not
    /// touched.
    pub fn restore_capsule(
        &mut self,
        capsule: &Capsule,
        live: &mut LiveSet,
        allow_partial: bool,
    ) -> Result<RestoreReport, Error> {
        let report = restore(capsule, live, allow_partial)?;
        let entry = self
            .entries
            .iter()
            .find(|e| Arc::ptr_eq(&e.frozen, &capsule.frozen));
        let id = entry.map(|e| e.id);
        let history = self.history_of(live.name());
        match id {
            None => self.histories[history].1.leave(),
            Some(id) => {
                if !self.histories[history].1.go_to(id, live.runs()) {
                    self.discard_newer(history);
                    self.histories[history].1.push(id, live.runs());
                }
            }
        }
        Ok(report)
    }

    /// Goes back in the history of `live`. `now_steady_ns` is the steady clock, for [`Rollback::AgeMs`].
    pub fn rollback(
        &mut self,
        target: Rollback<'_>,
        now_steady_ns: u64,
        live: &mut LiveSet,
    ) -> Result<RestoreReport, Error> {
        let none = |reason: String| Error::NoHistory {
            set: live.name().to_owned(),
            reason,
        };
        let h = self
            .histories
            .iter()
            .find(|(n, _)| **n == *live.name())
            .map(|(_, h)| h);
        let Some(h) = h else {
            return Err(none("it has no boundary".to_owned()));
        };
        let id = match target {
            Rollback::Steps(0) => {
                return Err(none(
                    "0 steps back asked for, at least 1 is needed".to_owned(),
                ))
            }
            Rollback::Steps(n) => h
                .back(n, live.runs())
                .map_err(|have| none(format!("{n} steps back asked for, there are {have}")))?,
            Rollback::Name(name) => {
                check_name(name)?;
                let i = self.position(name).ok_or_else(|| self.not_found(name))?;
                let id = self.entries[i].id;
                if !h.contains(id) {
                    return Err(none(format!("capsule '{name}' is not part of it")));
                }
                id
            }
            Rollback::AgeMs(age_ms) => {
                let mut oldest_ms = None;
                let found = h.older().find(|id| {
                    let e = self.entries.iter().find(|e| e.id == *id);
                    let ns = e.map_or(0, |e| {
                        now_steady_ns.saturating_sub(e.frozen.boundary.steady_ns)
                    });
                    oldest_ms = Some(ns / 1_000_000);
                    e.is_some() && ns >= age_ms.saturating_mul(1_000_000)
                });
                found.ok_or_else(|| {
                    none(match oldest_ms {
                        Some(ms) => format!(
                            "an age of {age_ms} ms asked for, the oldest boundary is {ms} ms old"
                        ),
                        None => "it has no boundary".to_owned(),
                    })
                })?
            }
        };
        let i = self.entries.iter().position(|e| e.id == id);
        let i = i.ok_or_else(|| none("the boundary is gone".to_owned()))?;
        let capsule = self.handle(i);
        self.restore_capsule(&capsule, live, false)
    }

    /// A counted reference to a capsule.
    pub fn get(&self, name: &str) -> Result<Capsule, Error> {
        check_name(name)?;
        let i = self.position(name).ok_or_else(|| self.not_found(name))?;
        Ok(self.handle(i))
    }

    /// What is known about a capsule.
    pub fn info(&self, name: &str) -> Result<CapsuleInfo, Error> {
        Ok(self.get(name)?.info)
    }

    /// All capsules, oldest snapshot first.
    pub fn list(&self) -> Vec<CapsuleInfo> {
        let mut order: Vec<&Entry> = self.entries.iter().collect();
        order.sort_by_key(|e| e.id);
        order.into_iter().map(Entry::info).collect()
    }

    /// Names of the boundaries of a live set: `(older and present, newest first; newer, oldest first)`.
    pub fn history(&self, set: &str) -> (Vec<Arc<str>>, Vec<Arc<str>>) {
        let name = |id: u64| {
            self.entries
                .iter()
                .find(|e| e.id == id)
                .map(|e| e.name.clone())
        };
        match self.histories.iter().find(|(n, _)| **n == *set) {
            Some((_, h)) => (
                h.older().filter_map(name).collect(),
                h.newer().iter().copied().filter_map(name).collect(),
            ),
            None => (Vec::new(), Vec::new()),
        }
    }

    /// Drops a capsule. Its memory is reused once no handle holds it.
    pub fn drop_capsule(&mut self, name: &str) -> Result<CapsuleInfo, Error> {
        check_name(name)?;
        let i = self.position(name).ok_or_else(|| self.not_found(name))?;
        let info = self.entries[i].info();
        self.remove(i);
        Ok(info)
    }

    /// Pins a capsule: it is not discarded with the newer part of a history.
    pub fn pin(&mut self, name: &str, pinned: bool) -> Result<CapsuleInfo, Error> {
        check_name(name)?;
        let i = self.position(name).ok_or_else(|| self.not_found(name))?;
        self.entries[i].is_pinned = pinned;
        Ok(self.entries[i].info())
    }

    /// Frees the backings that no capsule and no handle holds.
    pub fn trim(&mut self) {
        self.spares.retain(|f| Arc::strong_count(f) > 1);
    }

    /// Drops everything: capsules, histories, backings.
    pub fn clear(&mut self) {
        self.entries.clear();
        self.spares.clear();
        self.layouts.clear();
        self.histories.clear();
    }

    /// The bytes of a capsule as data.
    pub fn export(&self, name: &str, live: &LiveSet) -> Result<CapsuleImage, Error> {
        let capsule = self.get(name)?;
        let f = &capsule.frozen;
        let mut regions = Vec::with_capacity(f.slices.len());
        for (i, slice) in f.slices.iter().enumerate() {
            let mut data = Vec::new();
            if !f.missing[i] {
                data = vec![0; slice.bytes()];
                live.context()
                    .download(slice, &mut data)
                    .map_err(|e| Error::exec(format!("export of '{name}'"), e))?;
            }
            regions.push(RegionImage {
                entry: f.layout.regions[i].clone(),
                data,
            });
        }
        Ok(CapsuleImage {
            identity: f.layout.identity.clone(),
            fingerprint: f.layout.fingerprint,
            boundary: f.boundary,
            regions,
        })
    }

    /// Takes data as a capsule, checked against `live` as a restore would be. It joins no history before it is restored.
    ///
    /// A region without data is one that was left out of a partial capsule.
    pub fn import(
        &mut self,
        name: &str,
        image: &CapsuleImage,
        tier: Tier,
        live: &LiveSet,
    ) -> Result<CapsuleInfo, Error> {
        check_name(name)?;
        if self.position(name).is_some() {
            return Err(Error::Exists {
                name: name.to_owned(),
            });
        }
        if self.entries.len() >= self.config.capacity {
            return Err(self.full());
        }
        check_identity(&image.identity, image.fingerprint, live, live.fingerprint())?;
        let layout = self.layout_of(live, live.fingerprint());
        let got: Vec<_> = image.regions.iter().map(|r| r.entry.clone()).collect();
        check_table(&layout.regions, &got, live.name())?;
        let mut host_block = HostFields::default().encode();
        for (i, r) in image.regions.iter().enumerate() {
            if r.data.len() as u64 != r.entry.bytes && !r.data.is_empty() {
                return Err(Error::Regions {
                    set: live.name().to_owned(),
                    expected: format!(
                        "region {i} '{}' with {} bytes of data",
                        r.entry.name, r.entry.bytes
                    ),
                    got: format!("{} bytes of data", r.data.len()),
                });
            }
            if layout.host_state == Some(i) && !r.data.is_empty() {
                HostFields::decode(&r.data).map_err(|e| Error::HostState {
                    name: name.to_owned(),
                    source: Box::new(e),
                })?;
                host_block.copy_from_slice(&r.data);
            }
        }
        let mut frozen = self.acquire(&ContextMemory::of(live), &layout, tier)?;
        let ctx = live.context();
        let mut result = Ok(());
        if let Some(f) = Arc::get_mut(&mut frozen) {
            f.boundary = image.boundary;
            f.host_block = host_block;
            for (i, r) in image.regions.iter().enumerate() {
                f.missing[i] = r.data.is_empty();
                if !f.missing[i] {
                    result = result.and_then(|()| ctx.upload(&f.slices[i], &r.data));
                }
            }
        }
        if let Err(e) = result {
            self.spares.push(frozen);
            return Err(Error::exec(format!("import of '{name}'"), e));
        }
        let id = self.next_id;
        self.next_id += 1;
        self.entries.push(Entry {
            id,
            name: Arc::from(name),
            origin: Arc::from(live.name()),
            is_automatic: false,
            is_pinned: false,
            frozen,
        });
        Ok(self.entries[self.entries.len() - 1].info())
    }

    fn position(&self, name: &str) -> Option<usize> {
        self.entries.iter().position(|e| *e.name == *name)
    }

    fn not_found(&self, name: &str) -> Error {
        Error::NotFound {
            name: name.to_owned(),
            count: self.entries.len(),
        }
    }

    fn full(&self) -> Error {
        Error::Full {
            count: self.entries.len(),
            capacity: self.config.capacity,
        }
    }

    fn handle(&self, index: usize) -> Capsule {
        Capsule {
            info: self.entries[index].info(),
            frozen: self.entries[index].frozen.clone(),
        }
    }

    fn layout_of(&mut self, live: &LiveSet, fingerprint: u64) -> Arc<Layout> {
        if let Some(l) = self.layouts.iter().find(|l| l.fits(live, fingerprint)) {
            return l.clone();
        }
        let layout = Arc::new(Layout::of(live, fingerprint));
        self.layouts.push(layout.clone());
        layout
    }

    fn history_of(&mut self, set: &str) -> usize {
        if let Some(i) = self.histories.iter().position(|(n, _)| **n == *set) {
            return i;
        }
        let h = History::with_capacity(self.config.capacity.min(1024) + 1);
        self.histories.push((Arc::from(set), h));
        self.histories.len() - 1
    }

    fn generate_name(&mut self) -> Arc<str> {
        loop {
            let name = format!("cap-{:06}", self.next_automatic);
            self.next_automatic += 1;
            if self.position(&name).is_none() {
                return Arc::from(name);
            }
        }
    }

    /// Capsules that the next snapshot of this set discards: newer than the cursor, unnamed, unpinned, and in no other history.
    fn is_discardable(&self, history: usize, e: &Entry) -> bool {
        e.is_automatic
            && !e.is_pinned
            && self.histories[history].1.newer().contains(&e.id)
            && self
                .histories
                .iter()
                .enumerate()
                .all(|(i, (_, h))| i == history || !h.contains(e.id))
    }

    /// True when something was dropped.
    fn discard_newer(&mut self, history: usize) -> bool {
        let mut any = false;
        while let Some(i) =
            (0..self.entries.len()).find(|i| self.is_discardable(history, &self.entries[*i]))
        {
            self.remove(i);
            any = true;
        }
        any
    }

    fn check_capacity(&self, history: usize) -> Result<(), Error> {
        let leaving = self
            .entries
            .iter()
            .filter(|e| self.is_discardable(history, e))
            .count();
        if self.entries.len() - leaving >= self.config.capacity {
            return Err(self.full());
        }
        Ok(())
    }

    fn remove(&mut self, index: usize) {
        let e = self.entries.remove(index);
        for (_, h) in &mut self.histories {
            h.remove(e.id);
        }
        self.spares.push(e.frozen);
    }

    /// A backing that nobody else holds: a spare, or a new one within the budgets.
    fn acquire(
        &mut self,
        mem: &dyn CapsuleMemory,
        layout: &Arc<Layout>,
        tier: Tier,
    ) -> Result<Arc<Frozen>, Error> {
        let fits = |f: &Arc<Frozen>| {
            Arc::ptr_eq(&f.layout, layout) && f.tier == tier && Arc::strong_count(f) == 1
        };
        if let Some(i) = self.spares.iter().position(fits) {
            return Ok(self.spares.swap_remove(i));
        }
        let packing = layout.packing(tier);
        let (device, host) = (packing.device_bytes as u64, packing.host_bytes as u64);
        self.check_budget(device, host)?;
        // Of no use for this layout and tier; free them only as far as the budgets ask.
        while !self.has_room(device, host) {
            match self.spares.iter().position(|f| Arc::strong_count(f) == 1) {
                Some(i) => drop(self.spares.remove(i)),
                None => break,
            }
        }
        let frozen = Frozen::alloc(mem, layout, tier)
            .map_err(|e| Error::exec("allocate capsule memory", e))?;
        Ok(Arc::new(frozen))
    }

    fn has_room(&self, device: u64, host: u64) -> bool {
        let u = self.usage();
        u.device_bytes.saturating_add(device) <= self.config.device_budget_bytes
            && u.host_bytes.saturating_add(host) <= self.config.host_budget_bytes
    }

    /// Room for so many more bytes, when every backing that can be freed is.
    fn check_budget(&self, device: u64, host: u64) -> Result<(), Error> {
        let u = self.usage();
        let free = |f: fn(&Frozen) -> u64| -> u64 {
            let unheld = self.spares.iter().filter(|s| Arc::strong_count(s) == 1);
            unheld.map(|s| f(s)).sum()
        };
        let rows = [
            (
                Space::Device,
                device,
                u.device_bytes,
                free(|f| f.device_bytes),
                self.config.device_budget_bytes,
            ),
            (
                Space::Host,
                host,
                u.host_bytes,
                free(|f| f.host_bytes),
                self.config.host_budget_bytes,
            ),
        ];
        for (space, needed, used, reclaimable, budget) in rows {
            if needed > 0 && (used - reclaimable).saturating_add(needed) > budget {
                return Err(Error::NoSpace {
                    space: match space {
                        Space::Device => "device",
                        Space::Host => "host",
                    },
                    needed,
                    used,
                    reclaimable,
                    budget,
                });
            }
        }
        Ok(())
    }
}

/// Writes a capsule into a live set without any store: all checks, all copies, one wait.
pub(crate) fn restore(
    capsule: &Capsule,
    live: &mut LiveSet,
    allow_partial: bool,
) -> Result<RestoreReport, Error> {
    let fingerprint = live.fingerprint();
    restore_checked(
        capsule,
        live,
        allow_partial,
        fingerprint,
        None,
        |live, f, begun| f.write_to(&ContextMemory::of(live), live, |_| false, begun),
    )
}

/// [`Store::restore_capsule`] over another memory and without a history.
pub fn restore_with(
    mem: &dyn CapsuleMemory,
    capsule: &Capsule,
    live: &mut LiveSet,
    allow_partial: bool,
) -> Result<RestoreReport, Error> {
    restore_checked(
        capsule,
        live,
        allow_partial,
        mem.fingerprint(),
        None,
        |live, f, begun| f.write_to(mem, live, |_| false, begun),
    )
}

/// As [`restore`], without the region at this position of the capsule's table.
pub(crate) fn restore_without(
    capsule: &Capsule,
    live: &mut LiveSet,
    region: usize,
) -> Result<RestoreReport, Error> {
    let fingerprint = live.fingerprint();
    restore_checked(
        capsule,
        live,
        true,
        fingerprint,
        Some(region),
        |live, f, begun| f.write_to(&ContextMemory::of(live), live, |i| i == region, begun),
    )
}

fn restore_checked(
    capsule: &Capsule,
    live: &mut LiveSet,
    allow_partial: bool,
    fingerprint: u64,
    skipped: Option<usize>,
    write: impl FnOnce(&LiveSet, &Frozen, &mut bool) -> Result<(u64, u64), flashrt_exec::Error>,
) -> Result<RestoreReport, Error> {
    let begin = Instant::now();
    let f = &capsule.frozen;
    let name = &capsule.info.name;
    usable(live)?;
    let missing = f.missing_count();
    if missing > 0 && !allow_partial {
        return Err(Error::Partial {
            name: name.to_string(),
            missing,
            regions: f.layout.regions.len(),
        });
    }
    f.layout.check(live, fingerprint)?;
    if let Some(i) = f
        .layout
        .host_state
        .filter(|i| !f.missing[*i] && skipped != Some(*i))
    {
        HostFields::decode(&f.host_block).map_err(|e| Error::HostState {
            name: format!("{name}, region '{}'", f.layout.regions[i].name),
            source: Box::new(e),
        })?;
    }
    live.sync().map_err(|e| runtime("restore", e))?;

    let mut has_begun = false;
    match write(live, f, &mut has_begun) {
        Ok((bytes, promoted_bytes)) => Ok(RestoreReport {
            info: capsule.info.clone(),
            bytes,
            micros: begin.elapsed().as_micros() as u64,
            promoted_bytes,
        }),
        Err(e) if !has_begun => Err(Error::exec(format!("restore of '{name}'"), e)),
        Err(e) => {
            live.poison(&format!("restore of '{name}' failed midway: {e}"));
            Err(Error::Poisoned {
                name: name.to_string(),
                set: live.name().to_owned(),
                source: Box::new(Error::exec("copy", e)),
            })
        }
    }
}

fn read_host_block(live: &LiveSet) -> Result<[u8; HOST_STATE_BYTES], Error> {
    let mut block = [0; HOST_STATE_BYTES];
    live.host_state()
        .buffer()
        .host_read(0, &mut block)
        .map_err(|e| Error::exec("read the host state", e))?;
    HostFields::decode(&block).map_err(|e| runtime("snapshot", e))?;
    Ok(block)
}

fn usable(live: &LiveSet) -> Result<(), Error> {
    live.usable().map_err(|e| runtime("capsule", e))
}

fn runtime(context: &str, source: flashrt_runtime::Error) -> Error {
    Error::Runtime {
        context: context.to_owned(),
        source: Box::new(source),
    }
}
