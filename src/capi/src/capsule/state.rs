//! Capsules: taken, restored, moved, serialised.

use super::abi::{
    cap_boundary, cap_buffer, cap_capsule, cap_ctx, cap_event, cap_region, cap_region_view,
    cap_space, cap_status, cap_tier,
};
use super::backend::{Backend, Window};
use super::blob::{Head, MAX_REGIONS};
use super::call::Call;
use super::context::{self, Context};
use crate::status::Failure;
use std::ffi::{c_int, c_void};
use std::mem::replace;
use std::ptr::{null, null_mut};
use std::sync::{Arc, Mutex};

/// How often an event is asked for again after its stream was waited for.
const QUERIES_AFTER_SYNC: usize = 1000;

/// A frozen state. Its meta and origin never change; where its bytes lie may.
pub(super) struct Capsule {
    context: Arc<Context>,
    fingerprint: u64,
    meta: Vec<u8>,
    /// Where each region came from; `None` for a loaded capsule.
    origin: Option<Vec<Window>>,
    bytes: Mutex<Arc<Bytes>>,
}

// SAFETY: the windows of the origin are no `Send` by themselves; they are handed back to the backend alone (see `Backend`).
unsafe impl Send for Capsule {}
// SAFETY: as above; the rest is unchanging or behind a mutex.
unsafe impl Sync for Capsule {}

/// The bytes of a capsule in one tier. Frees them, and its event.
pub(super) struct Bytes {
    context: Arc<Context>,
    tier: c_int,
    regions: Vec<Region>,
    /// Marks the end of the copies into the regions; null while they are not all submitted.
    written: cap_event,
    /// Stream of those copies; `None` when they have run for certain.
    pending_on: Option<c_int>,
}

// SAFETY: buffers and the event are handed back to the backend alone (see `Backend`).
unsafe impl Send for Bytes {}
// SAFETY: as above, and nothing in it changes once it is shared.
unsafe impl Sync for Bytes {}

struct Region {
    /// Null for an empty region.
    buffer: cap_buffer,
    bytes: usize,
}

impl Bytes {
    /// No regions yet, and room for `count`.
    pub(super) fn empty(
        call: Call,
        context: &Arc<Context>,
        tier: c_int,
        count: usize,
    ) -> Result<Bytes, Failure> {
        Ok(Bytes {
            context: context.clone(),
            tier,
            regions: reserved(call, "regions", count)?,
            written: null_mut(),
            pending_on: None,
        })
    }

    /// One more region; `None` for an empty one, which needs no memory.
    pub(super) fn add(
        &mut self,
        call: Call,
        bytes: usize,
        space: cap_space,
    ) -> Result<Option<cap_buffer>, Failure> {
        let mut buffer = null_mut();
        if bytes > 0 {
            buffer = self.context.backend.alloc(call, bytes, space)?;
        }
        self.regions.push(Region { buffer, bytes });
        Ok((!buffer.is_null()).then_some(buffer))
    }

    /// Runs `submit`, which adds the regions and submits the copies into them to `stream`, and marks the end of it. After a
    /// failure the stream was waited for: no copy is under way when the regions go.
    pub(super) fn fill(
        &mut self,
        call: Call,
        stream: c_int,
        submit: impl FnOnce(&mut Bytes) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let backend = self.context.backend;
        self.pending_on = Some(stream);
        let submitted = submit(self).and_then(|()| backend.mark(call, stream));
        match submitted {
            Ok(event) => {
                self.written = event;
                Ok(())
            }
            Err(failure) => {
                if self.regions.iter().any(|region| region.bytes > 0) {
                    // The first failure is the one to tell.
                    let _ = backend.sync(call, stream);
                }
                Err(failure)
            }
        }
    }

    /// The copies have run.
    pub(super) fn complete(&mut self) {
        self.pending_on = None;
    }

    fn sizes(&self) -> impl ExactSizeIterator<Item = usize> + '_ {
        self.regions.iter().map(|region| region.bytes)
    }

    /// The region as something to copy from, unless there is nothing to copy.
    fn source(&self, index: usize) -> Option<(Window, usize)> {
        let region = &self.regions[index];
        (region.bytes > 0).then_some((
            Window {
                buffer: region.buffer,
                offset: 0,
            },
            region.bytes,
        ))
    }

    /// What is submitted to `stream` from now on finds the bytes complete.
    fn order(&self, call: Call, stream: c_int) -> Result<(), Failure> {
        match self.pending_on {
            Some(other) if other != stream => self.context.backend.wait(call, stream, self.written),
            _ => Ok(()),
        }
    }

    /// Returns when the bytes are complete.
    fn wait(&self, call: Call) -> Result<(), Failure> {
        let Some(stream) = self.pending_on else {
            return Ok(());
        };
        let backend = self.context.backend;
        if backend.is_reached(call, self.written)? {
            return Ok(());
        }
        backend.sync(call, stream)?;
        for _ in 0..QUERIES_AFTER_SYNC {
            if backend.is_reached(call, self.written)? {
                return Ok(());
            }
            std::thread::yield_now();
        }
        Err(call.fail(
            cap_status::CAP_ERR_BACKEND,
            format_args!("the snapshot is pending although its stream {stream} was waited for"),
        ))
    }
}

impl Drop for Bytes {
    fn drop(&mut self) {
        let backend = self.context.backend;
        for region in &self.regions {
            if !region.buffer.is_null() {
                backend.free(region.buffer);
            }
        }
        if !self.written.is_null() {
            backend.free_event(self.written);
        }
    }
}

impl Capsule {
    pub(super) fn new(
        context: Arc<Context>,
        fingerprint: u64,
        meta: Vec<u8>,
        origin: Option<Vec<Window>>,
        bytes: Bytes,
    ) -> Capsule {
        Capsule {
            context,
            fingerprint,
            meta,
            origin,
            bytes: Mutex::new(Arc::new(bytes)),
        }
    }

    pub(super) fn belongs_to(&self, context: &Arc<Context>) -> bool {
        Arc::ptr_eq(&self.context, context)
    }

    /// The present bytes; they stay while the result is held.
    fn bytes(&self, call: Call) -> Result<Arc<Bytes>, Failure> {
        // Nobody holds it for longer than this; so it is taken, unless two threads are in calls at once.
        match self.bytes.try_lock() {
            Ok(bytes) => Ok(bytes.clone()),
            Err(_) => Err(call.arg("the capsule is used by another thread at this moment")),
        }
    }

    fn backend(&self) -> Backend {
        self.context.backend
    }

    pub(super) fn check_fingerprint(&self, call: Call, backend: Backend) -> Result<(), Failure> {
        let now = backend.fingerprint();
        if now == self.fingerprint {
            return Ok(());
        }
        Err(call.fail(
            cap_status::CAP_ERR_FINGERPRINT,
            format_args!(
                "made under fingerprint {:#018x}, the backend has {now:#018x}",
                self.fingerprint
            ),
        ))
    }

    /// Copies every region to its window.
    fn copy_out(
        &self,
        call: Call,
        bytes: &Bytes,
        windows: &[Window],
        stream: c_int,
    ) -> Result<(), Failure> {
        let backend = self.backend();
        for (i, (&window, size)) in windows.iter().zip(bytes.sizes()).enumerate() {
            backend.check(call, i, window, size)?;
        }
        bytes.order(call, stream)?;
        for (i, &window) in windows.iter().enumerate() {
            if let Some((source, size)) = bytes.source(i) {
                backend.copy(call, window, source, size, stream)?;
            }
        }
        Ok(())
    }
}

/// An empty list with room for `count`.
fn reserved<T>(call: Call, what: &str, count: usize) -> Result<Vec<T>, Failure> {
    let mut list = Vec::new();
    if list.try_reserve_exact(count).is_err() {
        return Err(call.no_memory(what, count.saturating_mul(size_of::<T>())));
    }
    Ok(list)
}

/// A copy of a meta.
pub(super) fn copied(call: Call, meta: &[u8]) -> Result<Vec<u8>, Failure> {
    let mut copy = reserved(call, "the meta", meta.len())?;
    copy.extend_from_slice(meta);
    Ok(copy)
}

fn space_of(call: Call, tier: c_int) -> Result<cap_space, Failure> {
    const GPU: c_int = cap_tier::CAP_TIER_GPU as c_int;
    const HOST: c_int = cap_tier::CAP_TIER_HOST as c_int;
    const DISK: c_int = cap_tier::CAP_TIER_DISK as c_int;
    match tier {
        GPU => Ok(cap_space::CAP_DEV),
        HOST | DISK => Ok(cap_space::CAP_HOST),
        _ => Err(call.arg(format_args!("tier {tier}, expected {GPU} to {DISK}"))),
    }
}

/// Copies the caller's regions.
///
/// # Safety
/// `regions` points to `count` of them, and `Call::array` checked its address.
unsafe fn windows(
    call: Call,
    regions: *const cap_region,
    count: usize,
) -> Result<(Vec<Window>, Vec<usize>), Failure> {
    let mut windows = reserved(call, "regions", count)?;
    let mut sizes = reserved(call, "regions", count)?;
    for i in 0..count {
        // SAFETY: the caller's promise.
        let region = unsafe { regions.add(i).read() };
        windows.push(Window {
            buffer: region.buf,
            offset: region.off,
        });
        sizes.push(region.bytes);
    }
    Ok((windows, sizes))
}

/// # Safety
/// That of `cap_snapshot`.
pub(super) unsafe fn snapshot(
    call: Call,
    ctx: cap_ctx,
    boundary: *const cap_boundary,
    tier: c_int,
    stream: c_int,
) -> Result<cap_capsule, Failure> {
    let context = context::context(call, ctx)?;
    let space = space_of(call, tier)?;
    call.place("boundary", boundary)?;
    // SAFETY: `place` checked the address, the caller promises a boundary there.
    let boundary = unsafe { boundary.read() };
    let count = call.array("regions", boundary.regions, boundary.n_regions)?;
    if count > MAX_REGIONS {
        return Err(call.arg(format_args!(
            "{count} regions, expected at most {MAX_REGIONS}"
        )));
    }
    let meta_len = boundary.meta_len;
    if boundary.meta.is_null() && meta_len > 0 || isize::try_from(meta_len).is_err() {
        return Err(call.arg(format_args!(
            "`meta` is {:p} with `meta_len` {meta_len}",
            boundary.meta
        )));
    }
    let meta = match meta_len {
        0 => &[],
        // SAFETY: not null, of a possible length, and the caller promises the bytes; it is copied before the backend is
        // called.
        _ => unsafe { std::slice::from_raw_parts(boundary.meta.cast::<u8>(), meta_len) },
    };
    // SAFETY: `array` checked the address, the caller promises the entries.
    let (origin, sizes) = unsafe { windows(call, boundary.regions, count)? };
    let meta = copied(call, meta)?;

    let backend = context.backend;
    let mut total = Head::len(0, count).checked_add(meta_len);
    for (i, (&window, &size)) in origin.iter().zip(&sizes).enumerate() {
        backend.check(call, i, window, size)?;
        total = total.and_then(|total| total.checked_add(size));
    }
    if total.is_none_or(|total| isize::try_from(total).is_err()) {
        return Err(call.arg("the regions are longer together than memory can be"));
    }
    let fingerprint = backend.fingerprint();

    let mut held = Bytes::empty(call, &context, tier, count)?;
    held.fill(call, stream, |held| {
        for (&window, &size) in origin.iter().zip(&sizes) {
            if let Some(buffer) = held.add(call, size, space)? {
                let to = Window { buffer, offset: 0 };
                backend.copy(call, to, window, size, stream)?;
            }
        }
        Ok(())
    })?;
    let capsule = Capsule::new(context.clone(), fingerprint, meta, Some(origin), held);
    context.add(call, capsule)
}

pub(super) fn ready(call: Call, ctx: cap_ctx, capsule: cap_capsule) -> Result<c_int, Failure> {
    let bytes = context::capsule(call, ctx, capsule)?.bytes(call)?;
    let is_ready = bytes.context.backend.is_reached(call, bytes.written)?;
    Ok(c_int::from(!is_ready))
}

pub(super) fn restore(
    call: Call,
    ctx: cap_ctx,
    capsule: cap_capsule,
    stream: c_int,
) -> Result<c_int, Failure> {
    let capsule = context::capsule(call, ctx, capsule)?;
    let Some(origin) = &capsule.origin else {
        return Err(call.arg("a loaded capsule has no origin: cap_restore_into names the windows"));
    };
    capsule.check_fingerprint(call, capsule.backend())?;
    let bytes = capsule.bytes(call)?;
    capsule.copy_out(call, &bytes, origin, stream)?;
    Ok(0)
}

/// # Safety
/// That of `cap_restore_into`.
pub(super) unsafe fn restore_into(
    call: Call,
    ctx: cap_ctx,
    capsule: cap_capsule,
    dst: *const cap_region,
    n: c_int,
    stream: c_int,
) -> Result<c_int, Failure> {
    let capsule = context::capsule(call, ctx, capsule)?;
    let bytes = capsule.bytes(call)?;
    call.place("dst", dst)?;
    let count = bytes.regions.len();
    if usize::try_from(n) != Ok(count) {
        return Err(call.arg(format_args!("{n} windows for {count} regions")));
    }
    // SAFETY: `place` checked the address, the caller promises the entries.
    let (windows, room) = unsafe { windows(call, dst, count)? };
    capsule.check_fingerprint(call, capsule.backend())?;
    for (i, (room, size)) in room.into_iter().zip(bytes.sizes()).enumerate() {
        if room < size {
            return Err(call.arg(format_args!(
                "region {i}: {size} bytes for a window of {room}"
            )));
        }
    }
    capsule.copy_out(call, &bytes, &windows, stream)?;
    Ok(0)
}

/// # Safety
/// That of `cap_regions`.
pub(super) unsafe fn regions(
    call: Call,
    ctx: cap_ctx,
    capsule: cap_capsule,
    out: *mut cap_region_view,
    n: *mut c_int,
) -> Result<c_int, Failure> {
    let capsule = context::capsule(call, ctx, capsule)?;
    let bytes = capsule.bytes(call)?;
    call.place("n", n)?;
    call.aligned("out", out)?;
    let count = bytes.regions.len();
    if !out.is_null() {
        // SAFETY: `place` checked the address, the caller promises an int there.
        let room = unsafe { n.read() };
        let Ok(room) = usize::try_from(room) else {
            return Err(call.arg(format_args!("`*n` is {room}, expected 0 or more")));
        };
        let mut views = reserved(call, "views", count.min(room))?;
        for region in bytes.regions.iter().take(room) {
            let mut ptr = null_mut();
            if region.bytes > 0 {
                ptr = capsule.backend().ptr(call, region.buffer)?;
            }
            views.push(cap_region_view {
                ptr,
                bytes: region.bytes,
            });
        }
        for (i, view) in views.into_iter().enumerate() {
            // SAFETY: `aligned` checked the address, the caller promises room for `*n`, and `i` is below that.
            unsafe { out.add(i).write(view) };
        }
    }
    // SAFETY: as above. A capsule has at most 2^20 regions.
    unsafe { n.write(count as c_int) };
    Ok(0)
}

/// # Safety
/// That of `cap_capsule_meta`.
pub(super) unsafe fn meta(
    call: Call,
    ctx: cap_ctx,
    capsule: cap_capsule,
    meta: *mut *const c_void,
    len: *mut usize,
) -> Result<c_int, Failure> {
    let capsule = context::capsule(call, ctx, capsule)?;
    call.place("meta", meta)?;
    call.place("len", len)?;
    let start = match capsule.meta.len() {
        0 => null(),
        _ => capsule.meta.as_ptr().cast(),
    };
    // SAFETY: `place` checked the addresses, the caller promises a pointer and a size there. The meta never moves while
    // the capsule lives.
    unsafe {
        meta.write(start);
        len.write(capsule.meta.len());
    }
    Ok(0)
}

pub(super) fn tier_move(
    call: Call,
    ctx: cap_ctx,
    capsule: cap_capsule,
    tier: c_int,
    stream: c_int,
) -> Result<c_int, Failure> {
    let capsule = context::capsule(call, ctx, capsule)?;
    let space = space_of(call, tier)?;
    let old = capsule.bytes(call)?;
    if old.tier == tier {
        return Ok(0);
    }
    let backend = capsule.backend();
    let mut new = Bytes::empty(call, &capsule.context, tier, old.regions.len())?;
    new.fill(call, stream, |new| {
        old.order(call, stream)?;
        for i in 0..old.regions.len() {
            let buffer = new.add(call, old.regions[i].bytes, space)?;
            if let (Some(buffer), Some((source, size))) = (buffer, old.source(i)) {
                let to = Window { buffer, offset: 0 };
                backend.copy(call, to, source, size, stream)?;
            }
        }
        Ok(())
    })?;
    // The old bytes may go only when they have been read.
    backend.sync(call, stream)?;
    new.complete();
    let Ok(mut bytes) = capsule.bytes.try_lock() else {
        return Err(call.arg("the capsule is used by another thread at this moment"));
    };
    let gone = replace(&mut *bytes, Arc::new(new));
    drop(bytes);
    drop(gone);
    Ok(0)
}

/// # Safety
/// That of `cap_serialize`.
pub(super) unsafe fn serialize(
    call: Call,
    ctx: cap_ctx,
    capsule: cap_capsule,
    out: *mut c_void,
    len: *mut usize,
) -> Result<c_int, Failure> {
    let capsule = context::capsule(call, ctx, capsule)?;
    let bytes = capsule.bytes(call)?;
    call.place("len", len)?;
    let head_len = Head::len(capsule.meta.len(), bytes.regions.len());
    // The snapshot and the load checked that this is the length of something in memory.
    let total = head_len + bytes.sizes().sum::<usize>();
    if !out.is_null() {
        // SAFETY: `place` checked the address, the caller promises a size there.
        let room = unsafe { len.read() };
        if room < total {
            return Err(call.arg(format_args!("{total} bytes into room for {room}")));
        }
        bytes.wait(call)?;
        let out = out.cast::<u8>();
        let backend = capsule.backend();
        let download = || -> Result<(), Failure> {
            let mut at = head_len;
            for i in 0..bytes.regions.len() {
                if let Some((source, size)) = bytes.source(i) {
                    // SAFETY: the caller promises `room` bytes at `out` for the whole call; this part ends within
                    // `total`, and stream 0 is waited for before the call returns.
                    unsafe { backend.download(call, source.buffer, out.add(at).cast(), size, 0)? };
                    at += size;
                }
            }
            Ok(())
        };
        let downloaded = download();
        let synced = backend.sync(call, 0);
        downloaded?;
        synced?;
        let head = Head {
            fingerprint: capsule.fingerprint,
            tier: bytes.tier as u32,
            meta: &capsule.meta,
        };
        let mut at = 0;
        head.for_each(bytes.sizes(), |part| {
            // SAFETY: as above; the parts of the head end at `head_len`. The caller's room is apart from our memory.
            unsafe {
                out.add(at)
                    .copy_from_nonoverlapping(part.as_ptr(), part.len())
            };
            at += part.len();
        });
    }
    // SAFETY: as above.
    unsafe { len.write(total) };
    Ok(0)
}

pub(super) fn drop_capsule(
    call: Call,
    ctx: cap_ctx,
    capsule: cap_capsule,
) -> Result<c_int, Failure> {
    let found = context::capsule(call, ctx, capsule)?;
    found.context.remove(capsule);
    Ok(0)
}
