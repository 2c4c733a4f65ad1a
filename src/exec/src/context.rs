//! The context: one device with its streams, buffers, events and graphs.

use crate::buffer::Memory;
use crate::cpu::CpuBackend;
use crate::cuda::CudaBackend;
use crate::event::EventHandle;
use crate::foreign::{not_possible, ForeignBackend};
use crate::recorder::Sink;
use crate::{
    BackendKind, Buffer, CaptureOptions, CpuOptions, Error, Event, ForeignExec, Graph, MemoryUse,
    Plan, Recorder, ShapeKey, Slice, Space, StreamId,
};
use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::ffi::c_void;
use std::num::NonZeroUsize;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::*};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// One device with its streams, buffers, events and graphs.
///
/// A handle: clones are the same context, and buffers, events, graphs and plans may outlive yours. It
/// may be moved and shared between threads, but one context belongs to one driving thread: calls of a
/// second one are safe and wait for the first, their order against it is nobody's promise.
///
/// Copies, fills, replays and waits are *submitted*: they return at once and run later. On the CPU
/// backend they run on the thread that calls [`synchronize`](Context::synchronize),
/// [`sync_event`](Context::sync_event), [`query`](Context::query), [`upload`](Context::upload) or
/// [`download`](Context::download), or that submits to a full queue. Work that nobody asks for before
/// the context goes is discarded. On CUDA the device starts at once, and dropping the context waits.
///
/// **Failures of work.** A kernel that panics ends its own launch (on CUDA the device's operations behind
/// it still run). The failure is told once, by the first of those calls that covers the stream, or a stream
/// that waited for it by an event. Everything else goes on, the stream included. A failure that spoils the
/// driver's context of a GPU is told by every later call, with its cause.
///
/// **While recording** (inside a callback of [`Graph::capture`] or [`Context::enqueue`]) the context
/// refuses commands with [`Error::Recording`] and nothing happens. Creating events, graphs and plans,
/// and host access to buffers, stay legal.
#[derive(Clone)]
pub struct Context {
    inner: Arc<Inner>,
}

struct Inner {
    id: u64,
    kind: BackendKind,
    streams: AtomicUsize,
    is_recording: AtomicBool,
    recording: Mutex<Option<Recording>>,
    attachments: Mutex<HashMap<TypeId, Arc<dyn Any + Send + Sync>>>,
    backend: Backend,
}

enum Backend {
    Cpu(CpuBackend),
    Cuda(CudaBackend),
    Foreign(ForeignBackend),
}

/// What a record callback is running for.
#[derive(Clone)]
pub(crate) enum Recording {
    Graph(Graph, ShapeKey),
    Stream(StreamId),
}

impl std::fmt::Display for Recording {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Recording::Graph(graph, key) => write!(f, "graph \"{}\" key {key}", graph.name()),
            Recording::Stream(id) => write!(f, "work for stream {id}"),
        }
    }
}

/// Ends the recording also when the callback panics.
pub(crate) struct RecordingGuard<'a>(&'a Inner);

impl Drop for RecordingGuard<'_> {
    fn drop(&mut self) {
        let ended = self.0.recording().take();
        self.0.is_recording.store(false, Release);
        drop(ended);
    }
}

impl Inner {
    /// Makes the ids below `count` valid.
    fn add_streams(&self, count: usize) {
        self.streams.fetch_max(count, Release);
    }

    fn recording(&self) -> MutexGuard<'_, Option<Recording>> {
        self.recording
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs one expression on whichever backend there is.
macro_rules! on_backend {
    ($context:expr, $b:ident => $call:expr) => {
        match &$context.inner.backend {
            Backend::Cpu($b) => $call,
            Backend::Cuda($b) => $call,
            Backend::Foreign($b) => $call,
        }
    };
}

/// As `on_backend`, for calls that take an event of the same backend.
macro_rules! on_event {
    ($context:expr, $event:expr, ($b:ident, $e:ident) => $call:expr) => {
        match (&$context.inner.backend, &*$event.handle) {
            (Backend::Cpu($b), EventHandle::Cpu($e)) => $call,
            (Backend::Cuda($b), EventHandle::Cuda($e)) => $call,
            (Backend::Foreign($b), EventHandle::Foreign($e)) => $call,
            _ => Err(foreign_event($event)),
        }
    };
}

fn foreign_event(event: &Event) -> Error {
    Error::ForeignContext {
        what: "event",
        name: format!("#{}", event.id),
    }
}

/// Numbers for buffers, contexts and events; never 0, never reused.
pub(crate) fn next_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Relaxed)
}

/// The index behind a stream id, if the table has it.
pub(crate) fn check_stream(id: StreamId, count: usize) -> Result<usize, Error> {
    usize::try_from(id.0)
        .ok()
        .filter(|&i| i < count)
        .ok_or(Error::BadStream {
            stream: id.0,
            count,
        })
}

impl Context {
    /// A context on host memory and host threads, with stream 0.
    ///
    /// # Errors
    /// [`Error::Invalid`] for too many threads, [`Error::Backend`] if one cannot be started.
    pub fn cpu(options: CpuOptions) -> Result<Context, Error> {
        Ok(Context::new(
            BackendKind::Cpu,
            Backend::Cpu(CpuBackend::new(options)?),
        ))
    }

    /// A context on the GPU with this ordinal, with stream 0.
    ///
    /// # Errors
    /// [`Error::BackendUnavailable`] with the reason, in a build or on a machine without CUDA; [`Error::Invalid`] for a
    /// negative ordinal.
    pub fn cuda(ordinal: i32) -> Result<Context, Error> {
        Ok(Context::new(
            BackendKind::Cuda,
            Backend::Cuda(CudaBackend::new(ordinal)?),
        ))
    }

    /// A context of another execution library, with its stream 0: the same calls, carried over to the
    /// functions of `exec`. The library owns what runs; this side owns host buffers and adopts the rest
    /// ([`Context::adopt_buffer`], [`Context::adopt_graph`], [`Context::adopt_streams`]).
    ///
    /// | Call | On a foreign context |
    /// |---|---|
    /// | capture, evict_lru, executable, adopt of graphs; enqueue, graph, wrap, wrap_stream, raw_stream, priority | [`Error::Invalid`]: not possible |
    /// | alloc in device space | zeroed if the library can fill or upload; freed when it can free, kept for a buffer of the same length if not |
    /// | copies between host and device, upload, download | complete on return |
    /// | fill and copy in host space | synchronise the stream first, complete on return |
    /// | synchronize | by `frt_stream_sync`, or else by a plan, which needs an adopted graph |
    ///
    /// A function that the library lacks gives [`Error::BackendUnavailable`] with its name, a status that
    /// is not success [`Error::Library`] with function, status and reason. Allocating nothing holds for
    /// this side of the calls.
    ///
    /// # Errors
    /// [`Error::BackendUnavailable`] naming every required function that is missing; [`Error::Invalid`]
    /// for a null context. `exec` is dropped then.
    ///
    /// # Safety
    /// `exec.ctx` is a context of the library whose functions `exec.table` holds, and those keep its ABI.
    /// All of it lives until `exec.anchor` is dropped. The library's rule of one caller at a time is kept:
    /// whoever else calls it for this context does so inside [`Context::exclusive`], or where no call of
    /// this context can run and none of its objects can be dropped.
    pub unsafe fn foreign(exec: ForeignExec) -> Result<Context, Error> {
        Ok(Context::new(
            BackendKind::Foreign,
            // SAFETY: the caller's promise.
            Backend::Foreign(unsafe { ForeignBackend::new(exec)? }),
        ))
    }

    fn new(kind: BackendKind, backend: Backend) -> Context {
        Context {
            inner: Arc::new(Inner {
                id: next_id(),
                kind,
                streams: AtomicUsize::new(1),
                is_recording: AtomicBool::new(false),
                recording: Mutex::new(None),
                attachments: Mutex::new(HashMap::new()),
                backend,
            }),
        }
    }

    /// Which implementation this is.
    pub fn backend(&self) -> BackendKind {
        self.inner.kind
    }

    /// Instruction set that the kernels of this context use, such as `x86_64+avx512f` or `sm_90`. Part of a
    /// model's identity.
    pub fn isa(&self) -> &str {
        on_backend!(self, b => b.isa())
    }

    /// Host threads that run kernels, the driving one included.
    pub fn threads(&self) -> usize {
        on_backend!(self, b => b.threads())
    }

    /// Ordinal of the GPU; `None` on other backends.
    pub fn device_ordinal(&self) -> Option<i32> {
        match &self.inner.backend {
            Backend::Cuda(b) => Some(b.ordinal()),
            Backend::Cpu(_) | Backend::Foreign(_) => None,
        }
    }

    /// The object of type `T` that an upper layer keeps with this context, such as its compiled kernels; made by the first call
    /// and dropped with the context, unless somebody still holds it. If two threads make one at once, one of the two stays.
    ///
    /// # Errors
    /// Those of `make`; then nothing is kept, and the next call tries again.
    pub fn attachment<T: Any + Send + Sync, E>(
        &self,
        make: impl FnOnce() -> Result<T, E>,
    ) -> Result<Arc<T>, E> {
        let attachments = || {
            let all = self.inner.attachments.lock();
            all.unwrap_or_else(PoisonError::into_inner)
        };
        let found = attachments().get(&TypeId::of::<T>()).cloned();
        let any = match found {
            Some(any) => any,
            None => {
                // Not under the lock: this may take long, and may ask for other attachments.
                let made: Arc<dyn Any + Send + Sync> = Arc::new(make()?);
                attachments()
                    .entry(TypeId::of::<T>())
                    .or_insert(made)
                    .clone()
            }
        };
        match any.downcast() {
            Ok(attachment) => Ok(attachment),
            Err(_) => unreachable!("an attachment lies under its own type"),
        }
    }

    /// Memory that the live buffers of this context hold.
    pub fn memory(&self) -> MemoryUse {
        on_backend!(self, b => b.memory())
    }

    pub(crate) fn id(&self) -> u64 {
        self.inner.id
    }

    // ---- streams ----

    /// A new stream; ids count up from 1. More negative is more urgent; the priority is clamped to
    /// what the device has (CPU: -5..=0). The CPU backend keeps it but orders by submission.
    ///
    /// # Errors
    /// [`Error::Recording`], [`Error::Busy`], or the driver's failure.
    pub fn stream(&self, priority: i32) -> Result<StreamId, Error> {
        self.check_idle("stream")?;
        let id = on_backend!(self, b => b.stream(priority))?;
        self.inner.add_streams(id.0 as usize + 1);
        Ok(id)
    }

    /// A stream id for a stream of somebody else. CUDA: `raw` is a `CUstream`, null for the legacy default
    /// stream; it is used and never destroyed. CPU: there is no such thing, so this is a new queue of its
    /// own and `raw` is ignored. Ids count up together with those of [`Context::stream`].
    ///
    /// # Errors
    /// As [`Context::stream`].
    ///
    /// # Safety
    /// On the CUDA backend `raw` is null or a stream of this device's context, and outlives this context.
    pub unsafe fn wrap_stream(&self, raw: *mut c_void) -> Result<StreamId, Error> {
        self.check_idle("wrap_stream")?;
        let id = match &self.inner.backend {
            Backend::Cpu(b) => b.stream(0)?,
            // SAFETY: the caller's promise.
            Backend::Cuda(b) => unsafe { b.wrap_stream(raw)? },
            Backend::Foreign(_) => return Err(not_possible("wrap_stream")),
        };
        self.inner.add_streams(id.0 as usize + 1);
        Ok(id)
    }

    /// The stream as its driver knows it: CUDA a `CUstream` (null for a wrapped legacy default stream),
    /// CPU always null. Legal while recording.
    ///
    /// # Errors
    /// [`Error::BadStream`].
    pub fn raw_stream(&self, stream: StreamId) -> Result<*mut c_void, Error> {
        self.check_stream(stream)?;
        match &self.inner.backend {
            Backend::Cpu(_) => Ok(std::ptr::null_mut()),
            Backend::Cuda(b) => b.raw_stream(stream),
            Backend::Foreign(_) => Err(not_possible("raw_stream")),
        }
    }

    /// Number of streams; ids below it are valid.
    pub fn stream_count(&self) -> usize {
        self.inner.streams.load(Acquire)
    }

    /// The clamped priority of a stream.
    ///
    /// # Errors
    /// [`Error::BadStream`].
    pub fn priority(&self, stream: StreamId) -> Result<i32, Error> {
        on_backend!(self, b => b.priority(stream))
    }

    pub(crate) fn check_stream(&self, stream: StreamId) -> Result<(), Error> {
        check_stream(stream, self.stream_count()).map(drop)
    }

    /// Runs everything submitted to `stream` so far, and what that waits for. Allocates nothing.
    ///
    /// # Errors
    /// [`Error::BadStream`]; [`Error::Recording`]; [`Error::Busy`]; [`Error::KernelPanicked`] for work
    /// that ran on the stream, or before an event that it waited for.
    pub fn synchronize(&self, stream: StreamId) -> Result<(), Error> {
        self.check_stream(stream)?;
        self.check_idle("synchronize")?;
        on_backend!(self, b => b.synchronize(stream))
    }

    /// Runs everything submitted to any stream so far. Allocates nothing.
    ///
    /// # Errors
    /// As [`Context::synchronize`]; of several failures the one on the lowest stream is told.
    pub fn synchronize_all(&self) -> Result<(), Error> {
        self.check_idle("synchronize_all")?;
        on_backend!(self, b => b.synchronize_all("synchronize_all"))
    }

    // ---- buffers ----

    /// A new buffer: zeroed, 64-byte aligned, at a fixed address until its last handle is dropped.
    /// Names need not be unique.
    ///
    /// # Errors
    /// [`Error::Invalid`] for 0 bytes, [`Error::OutOfMemory`], [`Error::Recording`], [`Error::Busy`].
    pub fn alloc(&self, name: &str, space: Space, bytes: usize) -> Result<Buffer, Error> {
        self.check_idle("alloc")?;
        let Some(size) = NonZeroUsize::new(bytes) else {
            return Err(Error::Invalid {
                what: "bytes of a buffer",
                expected: "at least 1".into(),
                got: format!("0 for \"{name}\""),
            });
        };
        let memory = match &self.inner.backend {
            Backend::Cpu(b) => Memory::Cpu(b.alloc(name, space, size)?),
            Backend::Cuda(b) => Memory::Cuda(b.alloc(name, space, size)?),
            Backend::Foreign(b) => Memory::Foreign(b.alloc(name, space, size)?),
        };
        Ok(Buffer::new(name, space, bytes, self.id(), memory))
    }

    /// A buffer over memory of somebody else, which is used and never freed. It may be empty, and it need
    /// not be aligned. It does not count in [`Context::memory`]. Legal while recording.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a null address, or a length that no object in memory can have; the driver's
    /// refusal.
    ///
    /// # Safety
    /// `addr` is the start of `bytes` initialised bytes in `space` of this context's device (CPU: in the
    /// process). They stay valid for reads and writes until the last handle of the buffer is gone, those
    /// inside graphs, queued work and slices included. While a call of the context or an access to the
    /// buffer runs, nobody else writes them, and no Rust reference to them is in use.
    pub unsafe fn wrap(
        &self,
        name: &str,
        space: Space,
        addr: *mut u8,
        bytes: usize,
    ) -> Result<Buffer, Error> {
        let fits = isize::try_from(bytes).is_ok() && (addr as usize).checked_add(bytes).is_some();
        let Some(start) = NonNull::new(addr).filter(|_| fits) else {
            return Err(Error::Invalid {
                what: "memory to wrap",
                expected: format!("an address, and at most {} bytes from it", isize::MAX),
                got: format!("{addr:p} and {bytes} bytes for \"{name}\""),
            });
        };
        let memory = match &self.inner.backend {
            // SAFETY: the caller's promise.
            Backend::Cpu(b) => Memory::Cpu(unsafe { b.wrap(space, start, bytes) }),
            // SAFETY: as above.
            Backend::Cuda(b) => Memory::Cuda(unsafe { b.wrap(name, space, start, bytes)? }),
            Backend::Foreign(_) => return Err(not_possible("wrap")),
        };
        Ok(Buffer::new(name, space, bytes, self.id(), memory))
    }

    /// Submits a copy between any two spaces. Lengths must agree and bytes must not be shared; empty
    /// windows are legal. Allocates nothing.
    ///
    /// # Errors
    /// In this order: [`Error::ForeignContext`], [`Error::LengthMismatch`], [`Error::Overlap`],
    /// [`Error::BadStream`], [`Error::Recording`], [`Error::Busy`].
    pub fn copy(&self, dst: &Slice, src: &Slice, stream: StreamId) -> Result<(), Error> {
        dst.buffer().check_context(self.id())?;
        src.buffer().check_context(self.id())?;
        dst.check_copy_from(src)?;
        self.check_stream(stream)?;
        self.check_idle("copy")?;
        on_backend!(self, b => b.copy(dst, src, stream))
    }

    /// Submits copies, (destination, source) each, as [`Context::copy`] does one by one, but all of them are checked before the
    /// first one is submitted, and on CUDA many cost little more than one. They run in no order among each other: a window that
    /// one writes and another one reads or writes gets any of the bytes.
    ///
    /// # Errors
    /// As [`Context::copy`], of the first pair that is refused; then nothing was submitted.
    pub fn copy_many(&self, pairs: &[(&Slice, &Slice)], stream: StreamId) -> Result<(), Error> {
        for (dst, src) in pairs {
            dst.buffer().check_context(self.id())?;
            src.buffer().check_context(self.id())?;
            dst.check_copy_from(src)?;
        }
        self.check_stream(stream)?;
        self.check_idle("copy_many")?;
        match &self.inner.backend {
            Backend::Cuda(b) => b.copy_many(pairs, stream),
            Backend::Cpu(b) => b.copy_many(pairs, stream),
            Backend::Foreign(b) => pairs.iter().try_for_each(|(d, s)| b.copy(d, s, stream)),
        }
    }

    /// Submits setting every byte of `dst` to `value`. Allocates nothing.
    ///
    /// # Errors
    /// [`Error::ForeignContext`], [`Error::BadStream`], [`Error::Recording`], [`Error::Busy`].
    pub fn fill(&self, dst: &Slice, value: u8, stream: StreamId) -> Result<(), Error> {
        dst.buffer().check_context(self.id())?;
        self.check_stream(stream)?;
        self.check_idle("fill")?;
        on_backend!(self, b => b.fill(dst, value, stream))
    }

    /// Runs everything submitted to any stream, then writes `bytes` to `dst`. For set-up, tests and
    /// verifiers, not for ticks.
    ///
    /// # Errors
    /// [`Error::ForeignContext`], [`Error::LengthMismatch`], [`Error::Recording`], [`Error::Busy`], or
    /// a failure of the work that ran (nothing is written then).
    pub fn upload(&self, dst: &Slice, bytes: &[u8]) -> Result<(), Error> {
        dst.buffer().check_context(self.id())?;
        if dst.bytes() != bytes.len() {
            return Err(Error::LengthMismatch {
                dst: dst.buffer().name().into(),
                dst_bytes: dst.bytes(),
                src: "(caller)".into(),
                src_bytes: bytes.len(),
            });
        }
        self.check_idle("upload")?;
        on_backend!(self, b => b.upload(dst, bytes))
    }

    /// Runs everything submitted to any stream, then reads `src` into `out`. For set-up, tests and
    /// verifiers, not for ticks.
    ///
    /// # Errors
    /// As [`Context::upload`] (nothing is read then).
    pub fn download(&self, src: &Slice, out: &mut [u8]) -> Result<(), Error> {
        src.buffer().check_context(self.id())?;
        if src.bytes() != out.len() {
            return Err(Error::LengthMismatch {
                dst: "(caller)".into(),
                dst_bytes: out.len(),
                src: src.buffer().name().into(),
                src_bytes: src.bytes(),
            });
        }
        self.check_idle("download")?;
        on_backend!(self, b => b.download(src, out))
    }

    // ---- objects of a foreign library ----

    /// A buffer in device space over a buffer of the foreign library. It may be shorter than the library's,
    /// and empty. It is never freed and does not count in [`Context::memory`].
    ///
    /// # Errors
    /// [`Error::Invalid`] for null, and on a context that is not foreign; [`Error::Backend`] if the library
    /// says that the buffer has no address or less than `bytes` bytes; [`Error::Busy`].
    ///
    /// # Safety
    /// `handle` is a buffer of this context's library that lives until the context's anchor is dropped.
    pub unsafe fn adopt_buffer(
        &self,
        handle: *mut c_void,
        name: &str,
        bytes: usize,
    ) -> Result<Buffer, Error> {
        // SAFETY: the caller's promise.
        let memory = unsafe {
            self.foreign_backend("adopt_buffer")?
                .adopt_buffer(handle, name, bytes)?
        };
        let memory = Memory::Foreign(memory);
        Ok(Buffer::new(name, Space::Device, bytes, self.id(), memory))
    }

    /// A graph over a graph of the foreign library, which keeps its variants and their recency. It is
    /// never destroyed.
    ///
    /// # Errors
    /// [`Error::Invalid`] for null, and on a context that is not foreign; [`Error::Busy`].
    ///
    /// # Safety
    /// `handle` is a graph of this context's library that lives until the context's anchor is dropped.
    pub unsafe fn adopt_graph(&self, handle: *mut c_void, name: &str) -> Result<Graph, Error> {
        // SAFETY: the caller's promise.
        let graph = unsafe {
            self.foreign_backend("adopt_graph")?
                .adopt_graph(handle, name)?
        };
        Ok(Graph::foreign(self, name, graph))
    }

    /// Makes the stream ids below `count` valid: those that the library's owner made. Fewer than there are
    /// already changes nothing. The library itself may still refuse an id.
    ///
    /// # Errors
    /// [`Error::Invalid`] above 4096, and on a context that is not foreign; [`Error::Busy`].
    pub fn adopt_streams(&self, count: usize) -> Result<(), Error> {
        self.foreign_backend("adopt_streams")?
            .adopt_streams(count)?;
        self.inner.add_streams(count);
        Ok(())
    }

    /// Runs `f`, which calls the foreign library itself, while no call of this context does. Calls from `f`
    /// into the context answer [`Error::Busy`]; objects dropped meanwhile end with the next call. Allocates
    /// nothing.
    ///
    /// # Errors
    /// [`Error::Invalid`] on a context that is not foreign; [`Error::Busy`]; `f` did not run then.
    pub fn exclusive<R>(&self, f: impl FnOnce() -> R) -> Result<R, Error> {
        self.foreign_backend("exclusive")?.exclusive(f)
    }

    fn foreign_backend(&self, call: &'static str) -> Result<&ForeignBackend, Error> {
        match &self.inner.backend {
            Backend::Foreign(b) => Ok(b),
            _ => Err(Error::Invalid {
                what: call,
                expected: "a foreign context".into(),
                got: format!("a {} context", self.inner.kind),
            }),
        }
    }

    // ---- events ----

    /// A new event, recorded nowhere yet.
    ///
    /// # Errors
    /// The driver's failure; none on the CPU backend.
    pub fn event(&self) -> Result<Event, Error> {
        let handle = match &self.inner.backend {
            Backend::Cpu(b) => EventHandle::Cpu(b.event()),
            Backend::Cuda(b) => EventHandle::Cuda(b.event()?),
            Backend::Foreign(b) => EventHandle::Foreign(b.event()?),
        };
        Ok(Event {
            context: self.id(),
            id: next_id(),
            handle: Arc::new(handle),
        })
    }

    /// Marks what was submitted to `stream` so far. Allocates nothing.
    ///
    /// # Errors
    /// [`Error::ForeignContext`], [`Error::BadStream`], [`Error::Recording`], [`Error::Busy`].
    pub fn record(&self, event: &Event, stream: StreamId) -> Result<(), Error> {
        self.check_event(event)?;
        self.check_stream(stream)?;
        self.check_idle("record")?;
        on_event!(self, event, (b, e) => b.record(e, stream))
    }

    /// Makes what is submitted to `stream` from now on run after the event's present mark. An event
    /// that was never recorded is waited for by nobody: the call does nothing. Allocates nothing.
    ///
    /// # Errors
    /// As [`Context::record`].
    pub fn wait(&self, stream: StreamId, event: &Event) -> Result<(), Error> {
        self.check_event(event)?;
        self.check_stream(stream)?;
        self.check_idle("wait")?;
        on_event!(self, event, (b, e) => b.wait(stream, e))
    }

    /// True when everything before the event's mark has run; true for an event never recorded.
    ///
    /// The CPU backend runs at most one submitted item per call, so a polling loop ends and each poll
    /// stays short. Allocates nothing.
    ///
    /// # Errors
    /// As [`Context::sync_event`].
    pub fn query(&self, event: &Event) -> Result<bool, Error> {
        self.check_event(event)?;
        self.check_idle("query")?;
        on_event!(self, event, (b, e) => b.query(e))
    }

    /// Runs everything before the event's mark. Allocates nothing.
    ///
    /// # Errors
    /// [`Error::ForeignContext`], [`Error::Recording`], [`Error::Busy`], [`Error::KernelPanicked`].
    pub fn sync_event(&self, event: &Event) -> Result<(), Error> {
        self.check_event(event)?;
        self.check_idle("sync_event")?;
        on_event!(self, event, (b, e) => b.sync_event(e))
    }

    fn check_event(&self, event: &Event) -> Result<(), Error> {
        if event.context == self.id() {
            return Ok(());
        }
        Err(foreign_event(event))
    }

    // ---- recorded work ----

    /// Submits operations to a live stream, without a graph. They are queued together when `record`
    /// returns success; otherwise none is. May allocate.
    ///
    /// # Errors
    /// [`Error::BadStream`], [`Error::Recording`], [`Error::Busy`]; what `record` returns; and
    /// [`Error::Invalid`] if a call on the recorder failed but `record` did not say so.
    pub fn enqueue<E: From<Error>>(
        &self,
        stream: StreamId,
        record: impl FnOnce(&mut Recorder<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.check_stream(stream)?;
        let recording = self.begin_recording("enqueue", Recording::Stream(stream))?;
        let sink = match &self.inner.backend {
            Backend::Cpu(_) => Sink::Cpu(Vec::new()),
            Backend::Cuda(b) => Sink::Cuda(b.begin_eager(stream)?),
            Backend::Foreign(_) => return Err(not_possible("enqueue").into()),
        };
        let mut recorder = Recorder::new(self, sink, None);
        record(&mut recorder)?;
        let sink = recorder.finish().map_err(|reason| Error::Invalid {
            what: "recorded work",
            expected: "calls that succeed, or an error from the callback".into(),
            got: reason,
        })?;
        drop(recording);
        match (&self.inner.backend, sink) {
            (Backend::Cpu(b), Sink::Cpu(ops)) => b.enqueue(ops, stream)?,
            (Backend::Cuda(b), Sink::Cuda(capture)) => b.finish_eager(capture, stream)?,
            _ => {}
        }
        Ok(())
    }

    /// A new graph without variants, holding at most `max_variants` (0: no limit).
    ///
    /// # Errors
    /// [`Error::Invalid`] on a foreign context.
    pub fn graph(&self, name: &str, max_variants: usize) -> Result<Graph, Error> {
        match &self.inner.backend {
            Backend::Foreign(_) => Err(not_possible("graph")),
            _ => Ok(Graph::new(self, name, max_variants)),
        }
    }

    /// A new plan without nodes.
    pub fn plan(&self) -> Plan {
        Plan::new(self)
    }

    /// Puts the context into recording, or says what it is recording already.
    pub(crate) fn begin_recording(
        &self,
        call: &'static str,
        what: Recording,
    ) -> Result<RecordingGuard<'_>, Error> {
        // First, so that a call from a kernel never shows up as a recording in another thread.
        on_backend!(self, b => b.check_free(call))?;
        let mut slot = self.inner.recording();
        if let Some(current) = &*slot {
            return Err(Error::Recording {
                call,
                recording: current.to_string(),
            });
        }
        *slot = Some(what);
        self.inner.is_recording.store(true, Release);
        drop(slot);
        Ok(RecordingGuard(&self.inner))
    }

    /// Refuses `call` while something is being recorded.
    pub(crate) fn check_idle(&self, call: &'static str) -> Result<(), Error> {
        if !self.inner.is_recording.load(Acquire) {
            return Ok(());
        }
        match &*self.inner.recording() {
            Some(current) => Err(Error::Recording {
                call,
                recording: current.to_string(),
            }),
            None => Ok(()),
        }
    }

    pub(crate) fn begin_capture(&self) -> Result<Sink, Error> {
        match &self.inner.backend {
            Backend::Cpu(_) => Ok(Sink::Cpu(Vec::new())),
            Backend::Cuda(b) => b.begin_capture().map(Sink::Cuda),
            Backend::Foreign(_) => Err(not_possible("capture")),
        }
    }

    /// `None` when nothing was recorded and that is not allowed.
    pub(crate) fn finish_capture(
        &self,
        sink: Sink,
        graph: &str,
        key: ShapeKey,
        options: CaptureOptions,
    ) -> Result<Option<Exec>, Error> {
        if sink.is_empty() && !options.allow_empty {
            return Ok(None);
        }
        match (&self.inner.backend, sink) {
            (Backend::Cpu(b), Sink::Cpu(ops)) => {
                Ok(Some(Exec::Cpu(Arc::new(b.finish_capture(graph, key, ops)))))
            }
            (Backend::Cuda(b), Sink::Cuda(capture)) => Ok(Some(Exec::Cuda(Arc::new(
                b.finish_capture(capture, graph, key)?,
            )))),
            _ => Ok(None),
        }
    }

    /// A variant over an executable that the driver knows and somebody else owns.
    ///
    /// # Safety
    /// That of [`Graph::adopt_raw`].
    pub(crate) unsafe fn adopt_raw(&self, raw: *mut c_void) -> Result<Exec, Error> {
        match &self.inner.backend {
            Backend::Cpu(_) => Err(Error::Invalid {
                what: "raw executable",
                expected: "a CUDA context; the CPU backend shares variants by `Graph::adopt`"
                    .into(),
                got: "a cpu context".into(),
            }),
            // SAFETY: the caller's promise.
            Backend::Cuda(b) => Ok(Exec::Cuda(Arc::new(unsafe { b.adopt_raw(raw)? }))),
            Backend::Foreign(_) => Err(not_possible("adopt_raw")),
        }
    }

    pub(crate) fn launch(&self, exec: Exec, stream: StreamId) -> Result<(), Error> {
        self.check_idle("replay")?;
        match (&self.inner.backend, exec) {
            (Backend::Cpu(b), Exec::Cpu(exec)) => b.launch(exec, stream),
            (Backend::Cuda(b), Exec::Cuda(exec)) => b.launch(exec, stream),
            _ => Err(Error::ForeignContext {
                what: "graph",
                name: "(executable)".into(),
            }),
        }
    }

    #[cfg(test)]
    pub(crate) fn take_trace(&self) -> Vec<String> {
        match &self.inner.backend {
            Backend::Cpu(b) => b.take_trace(),
            Backend::Cuda(_) | Backend::Foreign(_) => Vec::new(),
        }
    }
}

/// A captured variant; clones are the same one.
#[derive(Clone)]
pub(crate) enum Exec {
    Cpu(Arc<crate::cpu::CpuExec>),
    Cuda(Arc<crate::cuda::CudaExec>),
}

impl Exec {
    pub(crate) fn raw(&self) -> *mut c_void {
        match self {
            Exec::Cpu(exec) => Arc::as_ptr(exec).cast_mut().cast(),
            Exec::Cuda(exec) => exec.raw(),
        }
    }
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context")
            .field("id", &self.id())
            .field("backend", &self.backend())
            .field("isa", &self.isa())
            .field("streams", &self.stream_count())
            .field("memory", &self.memory())
            .finish()
    }
}
