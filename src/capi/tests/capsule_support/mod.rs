//! A backend whose every move can be watched, delayed and broken, and the verbs over it.
//!
//! Work is queued by stream and runs when the stream is waited for, as late as the rules allow: whoever reads too early
//! sees old bytes.
#![allow(dead_code)]

use flashrt_capi::*;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::{c_char, c_int, c_void, CStr};
use std::ptr::{null, null_mut, without_provenance_mut};

pub const OK: c_int = CAP_OK as c_int;
pub const ARG: c_int = CAP_ERR_ARG as c_int;
pub const FINGERPRINT: c_int = CAP_ERR_FINGERPRINT as c_int;
pub const NOMEM: c_int = CAP_ERR_NOMEM as c_int;
pub const BACKEND: c_int = CAP_ERR_BACKEND as c_int;
pub const VERSION: c_int = CAP_ERR_VERSION as c_int;
pub const FORMAT: c_int = CAP_ERR_FORMAT as c_int;
pub const GPU: c_int = CAP_TIER_GPU as c_int;
pub const HOST: c_int = CAP_TIER_HOST as c_int;
pub const DISK: c_int = CAP_TIER_DISK as c_int;

pub const STAMP: u64 = 0x1122_3344_5566_7788;

/// What broke it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Break {
    /// The n-th call of all, counted from 0, fails.
    Call(usize),
    /// Each call of this function fails.
    Function(&'static str),
}

enum Op {
    Copy(usize, usize, usize, usize, usize),
    Upload(usize, usize, *const u8, usize),
    Download(usize, usize, *mut u8, usize),
    Replay(usize, u64),
    Record(usize, u64),
    Wait(usize, u64),
}

struct Buffer {
    bytes: Vec<u8>,
    space: c_int,
    is_owned: bool,
}

#[derive(Clone, Copy, Default)]
struct Event {
    /// Counts records; those up to `reached` have run.
    recorded: u64,
    reached: u64,
    stream: c_int,
}

#[derive(Default)]
pub struct State {
    pub fingerprint: u64,
    /// Names of the functions that were called, in order.
    pub log: Vec<&'static str>,
    /// Graph and key of the replays, in the order in which they ran.
    pub ran: Vec<(usize, u64)>,
    pub broken: Option<Break>,
    /// Answer of an `int` function that is broken.
    pub code: c_int,
    /// What nobody may do: double frees, windows outside a buffer, bytes that are gone.
    pub faults: Vec<String>,
    /// Called with the name of each function before it does anything.
    pub hook: Option<Box<dyn FnMut(&'static str)>>,
    /// Work runs at once.
    pub is_eager: bool,
    /// No log of calls, so that nothing is allocated.
    pub is_quiet: bool,
    pub largest_alloc: usize,
    variants: BTreeSet<(usize, u64)>,
    buffers: BTreeMap<usize, Buffer>,
    /// Freed ones too: work that was queued still finds them.
    events: BTreeMap<usize, Event>,
    live_events: BTreeSet<usize>,
    streams: BTreeMap<c_int, VecDeque<Op>>,
    next: usize,
}

impl State {
    fn id(&mut self) -> usize {
        self.next += 16;
        self.next
    }

    fn fault(&mut self, text: String) {
        self.faults.push(text);
    }

    /// True when this call of `name` is to fail.
    fn called(&mut self, name: &'static str) -> bool {
        let broken = match self.broken {
            Some(Break::Call(n)) => n == self.log.len(),
            Some(Break::Function(f)) => f == name,
            None => false,
        };
        if !self.is_quiet {
            self.log.push(name);
        }
        broken
    }

    fn holds(&mut self, buffer: usize, off: usize, n: usize) -> bool {
        let room = self.buffers.get(&buffer).map(|b| b.bytes.len());
        let is_inside = room.is_some_and(|room| off.checked_add(n).is_some_and(|end| end <= room));
        if !is_inside {
            self.fault(format!("{n} bytes at {off} of buffer {buffer} ({room:?})"));
        }
        is_inside
    }

    fn is_live(&mut self, event: cap_event) {
        if !self.live_events.contains(&event.addr()) {
            self.fault(format!("use of event {event:p}"));
        }
    }

    fn submit(&mut self, stream: c_int, op: Op) {
        if self.is_eager {
            self.run_op(op);
        } else {
            self.streams.entry(stream).or_default().push_back(op);
        }
    }

    fn run_op(&mut self, op: Op) {
        match op {
            Op::Copy(dst, doff, src, soff, n) => {
                if self.holds(dst, doff, n) && self.holds(src, soff, n) {
                    let bytes = self.buffers[&src].bytes[soff..soff + n].to_vec();
                    self.buffers.get_mut(&dst).unwrap().bytes[doff..doff + n]
                        .copy_from_slice(&bytes);
                }
            }
            Op::Upload(dst, off, src, n) => {
                if self.holds(dst, off, n) {
                    let to = &mut self.buffers.get_mut(&dst).unwrap().bytes[off..off + n];
                    // SAFETY: whoever submitted it keeps the bytes until the stream has run.
                    unsafe { to.as_mut_ptr().copy_from_nonoverlapping(src, n) };
                }
            }
            Op::Download(src, off, dst, n) => {
                if self.holds(src, off, n) {
                    let from = &self.buffers[&src].bytes[off..off + n];
                    // SAFETY: as for an upload.
                    unsafe { dst.copy_from_nonoverlapping(from.as_ptr(), n) };
                }
            }
            Op::Replay(graph, key) => self.ran.push((graph, key)),
            Op::Record(event, n) => {
                if let Some(event) = self.events.get_mut(&event) {
                    event.reached = event.reached.max(n);
                }
            }
            Op::Wait(event, n) => {
                while let Some(waited) = self.events.get(&event).copied() {
                    if waited.reached >= n || !self.step(waited.stream) {
                        break;
                    }
                }
            }
        }
    }

    /// Runs one piece of work; false when there is none.
    fn step(&mut self, stream: c_int) -> bool {
        let op = self.streams.entry(stream).or_default().pop_front();
        let is_there = op.is_some();
        if let Some(op) = op {
            self.run_op(op);
        }
        is_there
    }
}

/// Owns the state that `self` of the vtable points to. Faults end the test.
pub struct Fake {
    /// Of a box; not the box itself, which would claim it anew whenever the fake moves.
    state: *mut RefCell<State>,
}

impl Default for Fake {
    fn default() -> Fake {
        Fake {
            state: Box::into_raw(Box::new(RefCell::new(State {
                fingerprint: STAMP,
                code: -7,
                ..State::default()
            }))),
        }
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        // SAFETY: made from a box in `default`, and no context over it is left.
        let state = unsafe { Box::from_raw(self.state) }.into_inner();
        if !std::thread::panicking() {
            assert_eq!(state.faults, [""; 0]);
        }
    }
}

/// The state behind `self`, after the hook and the count of this call.
fn enter(this: *mut c_void, name: &'static str) -> (&'static RefCell<State>, bool) {
    // SAFETY: `this` is the box of a `Fake` that outlives its contexts.
    let state = unsafe { &*this.cast::<RefCell<State>>() };
    let hook = state.borrow_mut().hook.take();
    if let Some(mut hook) = hook {
        hook(name);
        state.borrow_mut().hook.get_or_insert(hook);
    }
    let is_broken = state.borrow_mut().called(name);
    (state, is_broken)
}

extern "C" fn alloc(
    this: *mut c_void,
    name: *const c_char,
    bytes: usize,
    space: c_int,
) -> cap_buffer {
    let (state, is_broken) = enter(this, "buffer_alloc");
    if is_broken {
        return null_mut();
    }
    let mut state = state.borrow_mut();
    if name.is_null() || bytes == 0 || !(0..=1).contains(&space) {
        state.fault(format!("buffer_alloc of {bytes} bytes in space {space}"));
    }
    state.largest_alloc = state.largest_alloc.max(bytes);
    add(&mut state, vec![0xcc; bytes], space, true)
}
fn add(state: &mut State, bytes: Vec<u8>, space: c_int, is_owned: bool) -> cap_buffer {
    let id = state.id();
    state.buffers.insert(
        id,
        Buffer {
            bytes,
            space,
            is_owned,
        },
    );
    without_provenance_mut(id)
}
extern "C" fn wrap(
    this: *mut c_void,
    _: *const c_char,
    _: *mut c_void,
    _: usize,
    _: c_int,
) -> cap_buffer {
    enter(this, "buffer_wrap");
    null_mut()
}
extern "C" fn ptr(this: *mut c_void, buffer: cap_buffer) -> *mut c_void {
    let (state, is_broken) = enter(this, "buffer_ptr");
    if is_broken {
        return null_mut();
    }
    let mut state = state.borrow_mut();
    match state.buffers.get_mut(&buffer.addr()) {
        Some(buffer) => buffer.bytes.as_mut_ptr().cast(),
        None => null_mut(),
    }
}
extern "C" fn bytes(this: *mut c_void, buffer: cap_buffer) -> usize {
    let (state, is_broken) = enter(this, "buffer_bytes");
    if is_broken {
        return 0;
    }
    let state = state.borrow();
    state
        .buffers
        .get(&buffer.addr())
        .map_or(0, |b| b.bytes.len())
}
extern "C" fn copy(
    this: *mut c_void,
    dst: cap_buffer,
    doff: usize,
    src: cap_buffer,
    soff: usize,
    n: usize,
    stream: c_int,
) -> c_int {
    let (state, is_broken) = enter(this, "buffer_copy");
    let mut state = state.borrow_mut();
    if is_broken {
        return state.code;
    }
    state.holds(dst.addr(), doff, n);
    state.holds(src.addr(), soff, n);
    state.submit(stream, Op::Copy(dst.addr(), doff, src.addr(), soff, n));
    0
}
extern "C" fn upload(
    this: *mut c_void,
    dst: cap_buffer,
    off: usize,
    src: *const c_void,
    n: usize,
    stream: c_int,
) -> c_int {
    let (state, is_broken) = enter(this, "buffer_upload");
    let mut state = state.borrow_mut();
    if is_broken {
        return state.code;
    }
    state.holds(dst.addr(), off, n);
    state.submit(stream, Op::Upload(dst.addr(), off, src.cast(), n));
    0
}
extern "C" fn download(
    this: *mut c_void,
    src: cap_buffer,
    off: usize,
    dst: *mut c_void,
    n: usize,
    stream: c_int,
) -> c_int {
    let (state, is_broken) = enter(this, "buffer_download");
    let mut state = state.borrow_mut();
    if is_broken {
        return state.code;
    }
    state.holds(src.addr(), off, n);
    state.submit(stream, Op::Download(src.addr(), off, dst.cast(), n));
    0
}
extern "C" fn free(this: *mut c_void, buffer: cap_buffer) {
    let (state, _) = enter(this, "buffer_free");
    let mut state = state.borrow_mut();
    let gone = state.buffers.remove(&buffer.addr());
    if !gone.is_some_and(|buffer| buffer.is_owned) {
        state.fault(format!("free of {buffer:p}"));
    }
}
extern "C" fn replay(this: *mut c_void, graph: cap_graph, key: u64, stream: c_int) -> c_int {
    let (state, is_broken) = enter(this, "graph_replay");
    let mut state = state.borrow_mut();
    if is_broken || !state.variants.contains(&(graph.addr(), key)) {
        return state.code;
    }
    state.submit(stream, Op::Replay(graph.addr(), key));
    0
}
extern "C" fn has(this: *mut c_void, graph: cap_graph, key: u64) -> c_int {
    let (state, is_broken) = enter(this, "graph_has");
    let state = state.borrow();
    if is_broken {
        return state.code;
    }
    c_int::from(state.variants.contains(&(graph.addr(), key)))
}
extern "C" fn bind(this: *mut c_void, _: cap_graph, _: *const c_char, _: cap_buffer) -> c_int {
    enter(this, "graph_bind");
    0
}
extern "C" fn stream(this: *mut c_void, _: c_int) -> c_int {
    enter(this, "stream");
    1
}
extern "C" fn event(this: *mut c_void) -> cap_event {
    let (state, is_broken) = enter(this, "event");
    if is_broken {
        return null_mut();
    }
    let mut state = state.borrow_mut();
    let id = state.id();
    state.events.insert(id, Event::default());
    state.live_events.insert(id);
    without_provenance_mut(id)
}
extern "C" fn record(this: *mut c_void, event: cap_event, stream: c_int) -> c_int {
    let (state, is_broken) = enter(this, "event_record");
    let mut state = state.borrow_mut();
    if is_broken {
        return state.code;
    }
    state.is_live(event);
    let Some(found) = state.events.get_mut(&event.addr()) else {
        return -1;
    };
    found.recorded += 1;
    found.stream = stream;
    let n = found.recorded;
    state.submit(stream, Op::Record(event.addr(), n));
    0
}
extern "C" fn query(this: *mut c_void, event: cap_event) -> c_int {
    let (state, is_broken) = enter(this, "event_query");
    let mut state = state.borrow_mut();
    if is_broken {
        return state.code;
    }
    state.is_live(event);
    let found = state.events.get(&event.addr());
    found.map_or(-1, |event| c_int::from(event.reached < event.recorded))
}
extern "C" fn stream_wait(this: *mut c_void, stream: c_int, event: cap_event) -> c_int {
    let (state, is_broken) = enter(this, "stream_wait");
    let mut state = state.borrow_mut();
    if is_broken {
        return state.code;
    }
    state.is_live(event);
    if let Some(found) = state.events.get(&event.addr()).copied() {
        state.submit(stream, Op::Wait(event.addr(), found.recorded));
    }
    0
}
extern "C" fn sync(this: *mut c_void, stream: c_int) -> c_int {
    let (state, is_broken) = enter(this, "sync");
    let mut state = state.borrow_mut();
    while state.step(stream) {}
    if is_broken {
        return state.code;
    }
    0
}
extern "C" fn event_free(this: *mut c_void, event: cap_event) {
    let (state, _) = enter(this, "event_free");
    let mut state = state.borrow_mut();
    if !state.live_events.remove(&event.addr()) {
        state.fault(format!("free of event {event:p}"));
    }
}
extern "C" fn fingerprint(this: *mut c_void) -> u64 {
    let (state, is_broken) = enter(this, "fingerprint");
    let state = state.borrow();
    state.fingerprint ^ u64::from(is_broken)
}

impl Fake {
    pub fn table(&self) -> cap_backend {
        cap_backend {
            abi_version: 1,
            struct_size: 168,
            self_: self.state.cast(),
            buffer_alloc: Some(alloc),
            buffer_wrap: Some(wrap),
            buffer_ptr: Some(ptr),
            buffer_bytes: Some(bytes),
            buffer_copy: Some(copy),
            buffer_upload: Some(upload),
            buffer_download: Some(download),
            buffer_free: Some(free),
            graph_replay: Some(replay),
            graph_has: Some(has),
            graph_bind: Some(bind),
            stream: Some(stream),
            event: Some(event),
            event_record: Some(record),
            event_query: Some(query),
            stream_wait: Some(stream_wait),
            sync: Some(sync),
            event_free: Some(event_free),
            fingerprint: Some(fingerprint),
        }
    }

    pub fn with<R>(&self, f: impl FnOnce(&mut State) -> R) -> R {
        // SAFETY: alive until the drop.
        f(&mut unsafe { &*self.state }.borrow_mut())
    }

    /// A buffer of the host, with these bytes.
    pub fn buffer(&self, bytes: &[u8]) -> cap_buffer {
        self.with(|state| add(state, bytes.to_vec(), 0, false))
    }

    pub fn read(&self, buffer: cap_buffer) -> Vec<u8> {
        self.with(|state| state.buffers[&buffer.addr()].bytes.clone())
    }

    pub fn write(&self, buffer: cap_buffer, bytes: &[u8]) {
        self.with(|state| state.buffers.get_mut(&buffer.addr()).unwrap().bytes = bytes.to_vec());
    }

    /// Every live allocation: its space and bytes.
    pub fn allocations(&self) -> Vec<(c_int, Vec<u8>)> {
        self.with(|state| {
            let owned = state.buffers.values().filter(|b| b.is_owned);
            owned.map(|b| (b.space, b.bytes.clone())).collect()
        })
    }

    pub fn events(&self) -> usize {
        self.with(|state| state.live_events.len())
    }

    pub fn graph(&self, id: usize, keys: &[u64]) -> cap_graph {
        self.with(|state| state.variants.extend(keys.iter().map(|&key| (id, key))));
        without_provenance_mut(id)
    }

    /// Runs what is queued on a stream, as time does.
    pub fn run(&self, stream: c_int) {
        self.with(|state| while state.step(stream) {});
    }

    /// Names of the calls since the last time.
    pub fn calls(&self) -> Vec<&'static str> {
        self.with(|state| std::mem::take(&mut state.log))
    }
}

/// Why the last call of this thread failed.
pub fn text() -> String {
    // SAFETY: never null, and nothing was called since.
    unsafe { CStr::from_ptr(cap_last_error()) }
        .to_string_lossy()
        .into_owned()
}

pub fn region(buf: cap_buffer, off: usize, bytes: usize) -> cap_region {
    cap_region { buf, off, bytes }
}

pub fn stage(graph: cap_graph, key: u64, stream: c_int) -> cap_stage {
    cap_stage {
        graph,
        key,
        stream,
        priority: 0,
        cadence_num: 1,
        cadence_den: 1,
        trigger: CAP_EVERY as c_int,
    }
}

/// The verbs over a fake backend, with arrays in place of pointers and lengths.
pub struct Core {
    pub ctx: cap_ctx,
    pub fake: Fake,
}

impl Drop for Core {
    fn drop(&mut self) {
        // SAFETY: the fake is still there, and one thread uses the context.
        unsafe { cap_ctx_destroy(self.ctx) };
        if !std::thread::panicking() {
            assert_eq!(self.fake.allocations(), []);
            assert_eq!(self.fake.events(), 0);
        }
    }
}

impl Default for Core {
    fn default() -> Core {
        Core::over(Fake::default())
    }
}

// Every call below hands over live memory of the right length, and the fake outlives the context.
impl Core {
    pub fn over(fake: Fake) -> Core {
        // SAFETY: the table is whole.
        let ctx = unsafe { cap_ctx_create(&fake.table()) };
        assert!(!ctx.is_null(), "{}", text());
        Core { ctx, fake }
    }

    pub fn eager() -> Core {
        let core = Core::default();
        core.fake.with(|state| state.is_eager = true);
        core
    }

    pub fn snapshot(
        &self,
        regions: &[cap_region],
        meta: &[u8],
        tier: c_int,
        s: c_int,
    ) -> cap_capsule {
        let boundary = cap_boundary {
            regions: regions.as_ptr(),
            n_regions: regions.len() as c_int,
            meta: if meta.is_empty() {
                null()
            } else {
                meta.as_ptr().cast()
            },
            meta_len: meta.len(),
        };
        // SAFETY: see above.
        unsafe { cap_snapshot(self.ctx, &boundary, tier, s) }
    }

    pub fn ready(&self, capsule: cap_capsule) -> c_int {
        // SAFETY: see above.
        unsafe { cap_capsule_ready(self.ctx, capsule) }
    }

    pub fn restore(&self, capsule: cap_capsule, stream: c_int) -> c_int {
        // SAFETY: see above.
        unsafe { cap_restore(self.ctx, capsule, stream) }
    }

    pub fn restore_into(&self, capsule: cap_capsule, dst: &[cap_region], stream: c_int) -> c_int {
        let n = dst.len() as c_int;
        // SAFETY: see above.
        unsafe { cap_restore_into(self.ctx, capsule, dst.as_ptr(), n, stream) }
    }

    pub fn tier_move(&self, capsule: cap_capsule, tier: c_int, stream: c_int) -> c_int {
        // SAFETY: see above.
        unsafe { cap_tier_move(self.ctx, capsule, tier, stream) }
    }

    pub fn size(&self, capsule: cap_capsule) -> Result<usize, c_int> {
        let mut len = 0;
        // SAFETY: see above.
        match unsafe { cap_serialize(self.ctx, capsule, null_mut(), &mut len) } {
            OK => Ok(len),
            status => Err(status),
        }
    }

    pub fn serialize(&self, capsule: cap_capsule) -> Result<Vec<u8>, c_int> {
        let mut len = self.size(capsule)?;
        // Longer and unaligned, so that neither matters.
        let mut blob = vec![0xee; len + 9];
        let room = &mut blob[1..];
        let size = len;
        len = room.len();
        // SAFETY: see above.
        match unsafe { cap_serialize(self.ctx, capsule, room.as_mut_ptr().cast(), &mut len) } {
            OK => {
                assert_eq!(len, size);
                assert_eq!(blob[len + 1..], [0xee; 8]);
                Ok(blob[1..len + 1].to_vec())
            }
            status => {
                assert_eq!(len, size + 8);
                Err(status)
            }
        }
    }

    /// The blob is gone when this returns.
    pub fn load(&self, blob: &[u8]) -> cap_capsule {
        let mut copy = vec![0; blob.len() + 1];
        copy[1..].copy_from_slice(blob);
        // SAFETY: see above.
        let capsule = unsafe { cap_load(self.ctx, copy[1..].as_ptr().cast(), blob.len()) };
        copy.fill(0xdd);
        capsule
    }

    pub fn regions(&self, capsule: cap_capsule) -> Result<Vec<(usize, usize)>, c_int> {
        let mut n = 0;
        // SAFETY: see above.
        let status = unsafe { cap_regions(self.ctx, capsule, null_mut(), &mut n) };
        if status != OK {
            return Err(status);
        }
        let mut views = vec![
            cap_region_view {
                ptr: null_mut(),
                bytes: 0
            };
            n as usize
        ];
        // SAFETY: see above.
        match unsafe { cap_regions(self.ctx, capsule, views.as_mut_ptr(), &mut n) } {
            OK => Ok(views.iter().map(|v| (v.ptr.addr(), v.bytes)).collect()),
            status => Err(status),
        }
    }

    pub fn meta(&self, capsule: cap_capsule) -> Result<Vec<u8>, c_int> {
        let (mut meta, mut len) = (null(), 0);
        // SAFETY: see above.
        let status = unsafe { cap_capsule_meta(self.ctx, capsule, &mut meta, &mut len) };
        if status != OK {
            return Err(status);
        }
        assert_eq!(meta.is_null(), len == 0);
        if len == 0 {
            return Ok(Vec::new());
        }
        // SAFETY: the capsule lives, so its meta does.
        Ok(unsafe { std::slice::from_raw_parts(meta.cast::<u8>(), len) }.to_vec())
    }

    pub fn discard(&self, capsule: cap_capsule) {
        // SAFETY: see above.
        unsafe { cap_capsule_drop(self.ctx, capsule) }
    }

    pub fn fire(&self, stage: &cap_stage) -> c_int {
        // SAFETY: see above.
        unsafe { cap_fire(self.ctx, stage) }
    }

    /// Status and failed stage.
    pub fn tick(&self, stages: &[cap_stage], deps: &[[c_int; 2]], clock: u64) -> (c_int, c_int) {
        let schedule = cap_schedule {
            stages: stages.as_ptr(),
            n_stages: stages.len() as c_int,
            deps: deps.as_ptr(),
            n_deps: deps.len() as c_int,
        };
        let mut failed = 99;
        // SAFETY: see above.
        let status = unsafe { cap_drive_tick(self.ctx, &schedule, clock, &mut failed) };
        (status, failed)
    }

    pub fn swap(&self, dst: cap_buffer, src: &[u8], stream: c_int) -> c_int {
        // SAFETY: see above; the fake runs it before `src` goes.
        unsafe { cap_swap(self.ctx, dst, src.as_ptr().cast(), src.len(), stream) }
    }

    pub fn sync(&self, stream: c_int) -> c_int {
        // SAFETY: see above.
        unsafe { cap_sync(self.ctx, stream) }
    }
}
