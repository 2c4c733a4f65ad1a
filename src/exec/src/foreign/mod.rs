//! The foreign backend: the context of another execution library, through its C functions.
//!
//! The library decides how its work runs; this module only carries calls over. What the published ABI
//! lacks comes from additive functions, where the library has them: see [`ForeignTable`].

mod library;
mod objects;
mod table;

pub(crate) use objects::{ForeignEvent, ForeignGraph, ForeignMemory};
pub use table::ForeignTable;

use crate::gate::{Entered, Gate};
use crate::heap::HeapBlock;
use crate::{BackendKind, Error, MemoryUse, Slice, Space, StreamId};
use library::{Handle, Library};
use objects::Place;
use std::any::Any;
use std::ffi::c_void;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use std::sync::{Arc, Mutex, PoisonError};

/// More streams than this is garbage, not a model.
const MAX_STREAMS: usize = 4096;

/// What [`crate::Context::foreign`] makes a context of.
pub struct ForeignExec {
    /// The functions of the library.
    pub table: ForeignTable,
    /// The library's context, not null.
    pub ctx: *mut c_void,
    /// Keeps the library and what owns `ctx` alive. Dropped once, after everything of the new context, on
    /// the thread that drops the last of it.
    pub anchor: Box<dyn Any + Send>,
}

impl std::fmt::Debug for ForeignExec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ForeignExec")
            .field("ctx", &self.ctx)
            .field("missing", &self.table.missing())
            .finish_non_exhaustive()
    }
}

/// What a context shares with its buffers, events and graphs. Fields drop in this order.
pub(crate) struct Core {
    gate: Gate<State>,
    /// True while `ended` holds something.
    has_ended: AtomicBool,
    /// Objects dropped where the library may not be called: ended by the next call.
    ended: Mutex<Vec<Ended>>,
    device_bytes: AtomicUsize,
    host_bytes: AtomicUsize,
    buffers: AtomicUsize,
    _anchor: Mutex<Box<dyn Any + Send>>,
}

/// A handle whose owner is gone.
enum Ended {
    Event(Handle),
    /// With its length.
    Buffer(Handle, usize),
}

struct State {
    library: Library,
    /// Ids below it may be used.
    streams: usize,
    /// One plan a stream, made when it is first synchronised without `frt_stream_sync`.
    plans: Vec<Option<Handle>>,
    /// Any live graph, for those plans.
    graph: Option<Handle>,
    /// Device memory that the library cannot free, by length: the next buffer of that length takes it.
    spare: Vec<(usize, Handle)>,
}

impl Core {
    /// Enters the gate. Refuses a thread that is inside already.
    fn enter(&self, call: &'static str) -> Result<Entered<'_, State>, Error> {
        let mut state = self.gate.enter(call)?;
        if self.has_ended.swap(false, Acquire) {
            let ended = std::mem::take(&mut *self.lock_ended());
            ended.into_iter().for_each(|e| state.end(e));
        }
        Ok(state)
    }

    /// Ends an object now, or with the next call if this thread is inside the gate.
    fn end(&self, ended: Ended) {
        match self.enter("drop") {
            Ok(mut state) => state.end(ended),
            Err(_) => {
                self.lock_ended().push(ended);
                self.has_ended.store(true, Release);
            }
        }
    }

    fn lock_ended(&self) -> std::sync::MutexGuard<'_, Vec<Ended>> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        let ended = std::mem::take(&mut *self.lock_ended());
        let state = self.gate.get_mut();
        ended.into_iter().for_each(|e| state.end(e));
        for plan in std::mem::take(&mut state.plans).into_iter().flatten() {
            state.library.plan_destroy(plan);
        }
    }
}

impl State {
    fn end(&mut self, ended: Ended) {
        match ended {
            Ended::Event(event) => self.library.event_destroy(event),
            Ended::Buffer(buffer, bytes) => {
                if !self.library.buffer_free(buffer) {
                    self.spare.push((bytes, buffer));
                }
            }
        }
    }

    fn set_streams(&mut self, count: usize) {
        if count > self.streams {
            self.streams = count;
            self.plans.resize(count, None);
        }
    }

    /// Waits for a stream, by a plan on it if there is no other way.
    fn sync(&mut self, id: StreamId) -> Result<(), Error> {
        let index = crate::context::check_stream(id, self.streams)?;
        if self.library.has(|table| table.stream_sync.is_some()) {
            return self.library.stream_sync(id.0);
        }
        let plan =
            match (self.plans[index], self.graph) {
                (Some(plan), _) => plan,
                (None, Some(graph)) => {
                    let plan = self.library.plan_on(graph, id.0)?;
                    self.plans[index] = Some(plan);
                    plan
                }
                (None, None) => return Err(Error::BackendUnavailable {
                    backend: BackendKind::Foreign,
                    reason:
                        "the library has no `frt_stream_sync`, and no graph is adopted that a plan \
                             could wait with"
                            .into(),
                }),
            };
        self.library.plan_sync(plan)
    }

    /// Waits for all streams; the first failure is told.
    fn sync_all(&mut self) -> Result<(), Error> {
        let mut first = Ok(());
        for index in 0..self.streams {
            first = first.and(self.sync(StreamId(index as i32)));
        }
        first
    }

    /// Device memory that reads as zeros, if the library has a way to write it.
    fn alloc(&mut self, name: &str, bytes: usize) -> Result<Place, Error> {
        let handle = match self.take_spare(bytes) {
            Some(handle) => handle,
            None => self.library.buffer_alloc(name, bytes)?,
        };
        let addr = self
            .check_buffer("frt_buffer_alloc", handle, bytes)
            .and_then(|addr| self.zero(handle, bytes).map(|()| addr));
        match addr {
            Ok(addr) => Ok(Place::Device {
                addr,
                handle,
                owned: true,
            }),
            Err(error) => {
                // Never a spare: what the library said of it does not hold.
                self.library.buffer_free(handle);
                Err(error)
            }
        }
    }

    fn take_spare(&mut self, bytes: usize) -> Option<Handle> {
        let index = self.spare.iter().position(|(b, _)| *b == bytes)?;
        // Work of its last owner may still be under way.
        self.sync_all().ok()?;
        Some(self.spare.swap_remove(index).1)
    }

    /// The address of a buffer, if the library says of it what it should.
    fn check_buffer(
        &mut self,
        call: &'static str,
        handle: Handle,
        bytes: usize,
    ) -> Result<usize, Error> {
        let addr = self.library.buffer_dptr(handle)? as usize;
        let got = self.library.buffer_bytes(handle)?;
        if addr != 0 && got >= bytes && addr.checked_add(got).is_some() {
            return Ok(addr);
        }
        let what = format!("expected {bytes} bytes at an address, got {got} bytes at {addr:#x}");
        Err(self.library.bad_answer(call, what))
    }

    fn zero(&mut self, handle: Handle, bytes: usize) -> Result<(), Error> {
        const ZEROS: [u8; 4096] = [0; 4096];
        let library = &mut self.library;
        if library.has(|t| t.buffer_fill.is_some() && t.stream_sync.is_some()) {
            library.buffer_fill((handle, 0), 0, bytes, 0)?;
            return library.stream_sync(0);
        }
        if library.has(|t| t.buffer_upload.is_some()) {
            for offset in (0..bytes).step_by(ZEROS.len()) {
                let part = &ZEROS[..ZEROS.len().min(bytes - offset)];
                library.buffer_upload((handle, offset), part, 0)?;
            }
        }
        Ok(())
    }
}

/// The refusal of a call that only makes sense where the work is ours.
pub(crate) fn not_possible(call: &'static str) -> Error {
    Error::Invalid {
        what: call,
        expected: "a cpu or cuda context".into(),
        got: "not possible on a foreign context".into(),
    }
}

/// The backend of [`crate::Context::foreign`].
pub(crate) struct ForeignBackend {
    core: Arc<Core>,
    isa: String,
}

impl ForeignBackend {
    /// # Safety
    /// That of [`crate::Context::foreign`].
    pub(crate) unsafe fn new(exec: ForeignExec) -> Result<ForeignBackend, Error> {
        let missing = exec.table.missing();
        if !missing.is_empty() {
            return Err(Error::BackendUnavailable {
                backend: BackendKind::Foreign,
                reason: format!("the library has no `{}`", missing.join("`, `")),
            });
        }
        let Some(ctx) = Handle::new(exec.ctx) else {
            return Err(Error::Invalid {
                what: "context of the foreign library",
                expected: "a context".into(),
                got: "null".into(),
            });
        };
        let mut library = Library::new(exec.table, ctx);
        let isa = match library.backend() {
            Some(0) => "foreign cpu",
            Some(1) => "foreign cuda",
            _ => "foreign",
        };
        let state = State {
            library,
            streams: 1,
            plans: vec![None],
            graph: None,
            spare: Vec::new(),
        };
        let core = Core {
            gate: Gate::new(state),
            has_ended: AtomicBool::new(false),
            ended: Mutex::default(),
            device_bytes: AtomicUsize::new(0),
            host_bytes: AtomicUsize::new(0),
            buffers: AtomicUsize::new(0),
            _anchor: Mutex::new(exec.anchor),
        };
        Ok(ForeignBackend {
            core: Arc::new(core),
            isa: isa.into(),
        })
    }

    /// # Safety
    /// That of [`crate::Context::adopt_buffer`].
    pub(crate) unsafe fn adopt_buffer(
        &self,
        raw: *mut c_void,
        name: &str,
        bytes: usize,
    ) -> Result<ForeignMemory, Error> {
        let handle = adopted("buffer", name, raw)?;
        let mut state = self.core.enter("adopt_buffer")?;
        let addr = state.check_buffer("adopt_buffer", handle, bytes)?;
        Ok(ForeignMemory {
            core: self.core.clone(),
            bytes,
            place: Place::Device {
                addr,
                handle,
                owned: false,
            },
        })
    }

    /// # Safety
    /// That of [`crate::Context::adopt_graph`].
    pub(crate) unsafe fn adopt_graph(
        &self,
        raw: *mut c_void,
        name: &str,
    ) -> Result<ForeignGraph, Error> {
        let handle = adopted("graph", name, raw)?;
        self.core.enter("adopt_graph")?.graph.get_or_insert(handle);
        Ok(ForeignGraph {
            core: self.core.clone(),
            handle,
        })
    }

    pub(crate) fn adopt_streams(&self, count: usize) -> Result<(), Error> {
        if count > MAX_STREAMS {
            return Err(Error::Invalid {
                what: "number of streams",
                expected: format!("at most {MAX_STREAMS}"),
                got: count.to_string(),
            });
        }
        self.core.enter("adopt_streams")?.set_streams(count);
        Ok(())
    }

    /// Runs `f` inside the gate.
    pub(crate) fn exclusive<R>(&self, f: impl FnOnce() -> R) -> Result<R, Error> {
        let _inside = self.core.enter("exclusive")?;
        Ok(f())
    }

    pub(crate) fn isa(&self) -> &str {
        &self.isa
    }

    /// The library does not say.
    pub(crate) fn threads(&self) -> usize {
        1
    }

    pub(crate) fn memory(&self) -> MemoryUse {
        MemoryUse {
            device_bytes: self.core.device_bytes.load(Relaxed),
            host_bytes: self.core.host_bytes.load(Relaxed),
            buffers: self.core.buffers.load(Relaxed),
        }
    }

    pub(crate) fn check_free(&self, call: &'static str) -> Result<(), Error> {
        self.core.enter(call).map(drop)
    }

    pub(crate) fn stream(&self, priority: i32) -> Result<StreamId, Error> {
        let mut state = self.core.enter("stream")?;
        let id = state.library.stream(priority)?;
        let index = id as usize;
        if (state.streams..MAX_STREAMS).contains(&index) {
            state.set_streams(index + 1);
            return Ok(StreamId(id));
        }
        let what = format!(
            "expected a new id in {}..{MAX_STREAMS}, got {id}",
            state.streams
        );
        Err(state.library.bad_answer("frt_ctx_stream", what))
    }

    pub(crate) fn priority(&self, _: StreamId) -> Result<i32, Error> {
        Err(not_possible("priority"))
    }

    pub(crate) fn alloc(
        &self,
        name: &str,
        space: Space,
        bytes: NonZeroUsize,
    ) -> Result<ForeignMemory, Error> {
        let mut state = self.core.enter("alloc")?;
        let (place, total) = match space {
            Space::Host => (
                Place::Host(HeapBlock::new(name, space, bytes)?),
                &self.core.host_bytes,
            ),
            Space::Device => (state.alloc(name, bytes.get())?, &self.core.device_bytes),
        };
        total.fetch_add(bytes.get(), Relaxed);
        self.core.buffers.fetch_add(1, Relaxed);
        Ok(ForeignMemory {
            core: self.core.clone(),
            bytes: bytes.get(),
            place,
        })
    }

    pub(crate) fn copy(&self, dst: &Slice, src: &Slice, id: StreamId) -> Result<(), Error> {
        let mut state = self.core.enter("copy")?;
        if dst.bytes() == 0 {
            return Ok(());
        }
        match (place(dst)?, place(src)?) {
            (Window::Device(dst_at), Window::Device(src_at)) => {
                state.library.buffer_copy(dst_at, src_at, dst.bytes(), id.0)
            }
            (Window::Device(dst_at), Window::Host) => {
                // SAFETY: a checked window on host memory that the slice holds. The gate is held, so
                // nobody writes it.
                let bytes = unsafe { std::slice::from_raw_parts(src.as_ptr(), src.bytes()) };
                state.library.buffer_upload(dst_at, bytes, id.0)
            }
            (Window::Host, Window::Device(src_at)) => {
                // SAFETY: as above, and nobody else touches it.
                let bytes = unsafe { std::slice::from_raw_parts_mut(dst.as_ptr(), dst.bytes()) };
                state.library.buffer_download(src_at, bytes, id.0)
            }
            (Window::Host, Window::Host) => {
                state.sync(id)?;
                // SAFETY: checked windows on host memory of equal length that share no byte, under the gate.
                unsafe { std::ptr::copy_nonoverlapping(src.as_ptr(), dst.as_ptr(), dst.bytes()) };
                Ok(())
            }
        }
    }

    pub(crate) fn fill(&self, dst: &Slice, value: u8, id: StreamId) -> Result<(), Error> {
        let mut state = self.core.enter("fill")?;
        if dst.bytes() == 0 {
            return Ok(());
        }
        match place(dst)? {
            Window::Device(at) => state.library.buffer_fill(at, value, dst.bytes(), id.0),
            Window::Host => {
                state.sync(id)?;
                // SAFETY: a checked window on host memory that the slice holds, under the gate.
                unsafe { std::ptr::write_bytes(dst.as_ptr(), value, dst.bytes()) };
                Ok(())
            }
        }
    }

    pub(crate) fn upload(&self, dst: &Slice, bytes: &[u8]) -> Result<(), Error> {
        let mut state = self.core.enter("upload")?;
        state.sync_all()?;
        match place(dst)? {
            _ if bytes.is_empty() => Ok(()),
            Window::Device(at) => state.library.buffer_upload(at, bytes, 0),
            Window::Host => {
                // SAFETY: the caller checked that the lengths agree; the slice holds its memory, the gate
                // is held, and `bytes` is no part of a buffer: such a borrow exists only inside the gate.
                unsafe {
                    std::ptr::copy_nonoverlapping(bytes.as_ptr(), dst.as_ptr(), bytes.len());
                }
                Ok(())
            }
        }
    }

    pub(crate) fn download(&self, src: &Slice, out: &mut [u8]) -> Result<(), Error> {
        let mut state = self.core.enter("download")?;
        state.sync_all()?;
        match place(src)? {
            _ if out.is_empty() => Ok(()),
            Window::Device(at) => state.library.buffer_download(at, out, 0),
            Window::Host => {
                // SAFETY: as in `upload`, the other way round.
                unsafe {
                    std::ptr::copy_nonoverlapping(src.as_ptr(), out.as_mut_ptr(), out.len());
                }
                Ok(())
            }
        }
    }

    pub(crate) fn event(&self) -> Result<ForeignEvent, Error> {
        let handle = self.core.enter("event")?.library.event()?;
        Ok(ForeignEvent::new(&self.core, handle))
    }

    pub(crate) fn record(&self, event: &ForeignEvent, id: StreamId) -> Result<(), Error> {
        let mut state = self.core.enter("record")?;
        state.library.event_record(event.handle, id.0)?;
        event.set_recorded_on(id);
        Ok(())
    }

    pub(crate) fn wait(&self, id: StreamId, event: &ForeignEvent) -> Result<(), Error> {
        let mut state = self.core.enter("wait")?;
        match event.recorded_on() {
            Some(_) => state.library.stream_wait(id.0, event.handle),
            None => Ok(()),
        }
    }

    pub(crate) fn query(&self, event: &ForeignEvent) -> Result<bool, Error> {
        let mut state = self.core.enter("query")?;
        match event.recorded_on() {
            Some(_) => state.library.event_query(event.handle),
            None => Ok(true),
        }
    }

    pub(crate) fn sync_event(&self, event: &ForeignEvent) -> Result<(), Error> {
        let mut state = self.core.enter("sync_event")?;
        match event.recorded_on() {
            Some(_) if state.library.has(|t| t.event_sync.is_some()) => {
                state.library.event_sync(event.handle)
            }
            // More than was asked for, and all that the published functions can do.
            Some(stream) => state.sync(stream),
            None => Ok(()),
        }
    }

    pub(crate) fn synchronize(&self, id: StreamId) -> Result<(), Error> {
        self.core.enter("synchronize")?.sync(id)
    }

    pub(crate) fn synchronize_all(&self, call: &'static str) -> Result<(), Error> {
        self.core.enter(call)?.sync_all()
    }
}

fn adopted(what: &'static str, name: &str, raw: *mut c_void) -> Result<Handle, Error> {
    Handle::new(raw).ok_or_else(|| Error::Invalid {
        what: "handle to adopt",
        expected: format!("a {what}"),
        got: format!("null for \"{name}\""),
    })
}

/// Where a window lies, as the library's functions take it.
enum Window {
    Host,
    /// Handle and offset.
    Device((Handle, usize)),
}

fn place(slice: &Slice) -> Result<Window, Error> {
    match slice.buffer().foreign() {
        Some(memory) => Ok(match &memory.place {
            Place::Host(_) => Window::Host,
            Place::Device { handle, .. } => Window::Device((*handle, slice.offset())),
        }),
        None => Err(Error::ForeignContext {
            what: "buffer",
            name: slice.buffer().name().into(),
        }),
    }
}
