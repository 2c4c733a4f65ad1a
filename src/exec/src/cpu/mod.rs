//! The CPU backend: deferred streams over heap memory, run by the thread that asks for a result.

mod memory;
mod streams;

pub(crate) use crate::gate;
pub(crate) use memory::CpuMemory;

use crate::recorder::HostKernel;
use crate::{Buffer, CpuOptions, Error, MemoryUse, Pool, ShapeKey, Slice, Space, StreamId};
use gate::{Entered, Gate};
use std::any::Any;
use std::num::NonZeroUsize;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering::*};
use std::sync::{Arc, Mutex, PoisonError};
use streams::{Point, Streams, Work};

/// What a context shares with its buffers. Buffers must not hold the streams alive by way of the
/// context, or work that was never run would keep itself alive.
pub(crate) struct Core {
    gate: Gate<Streams>,
    device_bytes: AtomicUsize,
    host_bytes: AtomicUsize,
    buffers: AtomicUsize,
}

impl Core {
    fn bytes_in(&self, space: Space) -> &AtomicUsize {
        match space {
            Space::Device => &self.device_bytes,
            Space::Host => &self.host_bytes,
        }
    }
}

/// One recorded operation over fixed memory.
pub(crate) enum Op {
    Copy {
        dst: Slice,
        src: Slice,
    },
    Fill {
        dst: Slice,
        value: u8,
    },
    Kernel {
        name: &'static str,
        kernel: Box<dyn HostKernel>,
        _touches: Box<[Buffer]>,
    },
}

impl Op {
    /// Runs it. A panic of a kernel comes back as the kernel's name and the message.
    fn run(&self, pool: &Pool) -> Result<(), (&'static str, String)> {
        match self {
            Op::Copy { dst, src } => {
                // SAFETY: both windows were checked against buffers that the op holds, have equal
                // lengths and share no byte. The gate is held, so nothing else touches them.
                unsafe { std::ptr::copy_nonoverlapping(src.as_ptr(), dst.as_ptr(), dst.bytes()) }
                Ok(())
            }
            Op::Fill { dst, value } => {
                // SAFETY: a checked window on a buffer that the op holds, under the gate.
                unsafe { std::ptr::write_bytes(dst.as_ptr(), *value, dst.bytes()) }
                Ok(())
            }
            Op::Kernel { name, kernel, .. } => catch_unwind(AssertUnwindSafe(|| kernel.run(pool)))
                .map_err(|payload| (*name, panic_message(&*payload))),
        }
    }
}

pub(crate) fn panic_message(payload: &(dyn Any + Send)) -> String {
    if let Some(text) = payload.downcast_ref::<&str>() {
        (*text).into()
    } else if let Some(text) = payload.downcast_ref::<String>() {
        text.clone()
    } else {
        "(no message)".into()
    }
}

/// A captured graph variant: operations that run in order.
pub(crate) struct CpuExec {
    graph: Box<str>,
    key: ShapeKey,
    /// Kernels are `Send` but need not be `Sync`; the lock is never contended, for launches run
    /// under the gate.
    ops: Mutex<Box<[Op]>>,
}

impl CpuExec {
    fn origin(&self) -> String {
        format!("graph \"{}\" key {}", self.graph, self.key)
    }
}

/// The last place at which an event was recorded. An event costs nothing until it is waited for: it
/// is a position in a stream.
pub(crate) struct CpuEvent {
    // Written and read under the gate; `stream` is -1 before the first record.
    stream: AtomicUsize,
    position: AtomicUsize,
}

const NEVER: usize = usize::MAX;

impl CpuEvent {
    fn point(&self) -> Option<Point> {
        let stream = self.stream.load(Relaxed);
        (stream != NEVER).then(|| Point {
            stream,
            position: self.position.load(Relaxed),
        })
    }
}

/// The backend of [`crate::Context::cpu`].
pub(crate) struct CpuBackend {
    core: Arc<Core>,
    pool: Pool,
    isa: &'static str,
}

impl CpuBackend {
    pub(crate) fn new(options: CpuOptions) -> Result<CpuBackend, Error> {
        let core = Core {
            gate: Gate::new(Streams::new(options.order)),
            device_bytes: AtomicUsize::new(0),
            host_bytes: AtomicUsize::new(0),
            buffers: AtomicUsize::new(0),
        };
        Ok(CpuBackend {
            core: Arc::new(core),
            pool: Pool::new(options.threads)?,
            isa: isa(),
        })
    }

    pub(crate) fn isa(&self) -> &str {
        self.isa
    }

    pub(crate) fn threads(&self) -> usize {
        self.pool.threads()
    }

    pub(crate) fn memory(&self) -> MemoryUse {
        MemoryUse {
            device_bytes: self.core.device_bytes.load(Relaxed),
            host_bytes: self.core.host_bytes.load(Relaxed),
            buffers: self.core.buffers.load(Relaxed),
        }
    }

    fn enter(&self, call: &'static str) -> Result<Entered<'_, Streams>, Error> {
        self.core.gate.enter(call)
    }

    /// Enters, checking the stream id first of all.
    fn enter_stream(
        &self,
        call: &'static str,
        id: StreamId,
    ) -> Result<(Entered<'_, Streams>, usize), Error> {
        let streams = self.enter(call)?;
        let index = streams.index(id)?;
        Ok((streams, index))
    }

    pub(crate) fn stream(&self, priority: i32) -> Result<StreamId, Error> {
        self.enter("stream")?.add(priority)
    }

    pub(crate) fn priority(&self, id: StreamId) -> Result<i32, Error> {
        let (streams, index) = self.enter_stream("priority", id)?;
        Ok(streams.priority(index))
    }

    pub(crate) fn alloc(
        &self,
        name: &str,
        space: Space,
        bytes: NonZeroUsize,
    ) -> Result<CpuMemory, Error> {
        self.check_free("alloc")?;
        CpuMemory::new(&self.core, name, space, bytes)
    }

    /// # Safety
    /// That of [`crate::Context::wrap`].
    pub(crate) unsafe fn wrap(&self, space: Space, start: NonNull<u8>, bytes: usize) -> CpuMemory {
        // SAFETY: the caller's promise.
        unsafe { CpuMemory::wrap(&self.core, space, start, bytes) }
    }

    pub(crate) fn copy(&self, dst: &Slice, src: &Slice, id: StreamId) -> Result<(), Error> {
        self.copy_many(&[(dst, src)], id)
    }

    pub(crate) fn copy_many(&self, pairs: &[(&Slice, &Slice)], id: StreamId) -> Result<(), Error> {
        let (mut streams, index) = self.enter_stream("copy_many", id)?;
        for &(dst, src) in pairs {
            let op = Op::Copy {
                dst: dst.clone(),
                src: src.clone(),
            };
            streams.push(index, Work::Op(op), &self.pool);
        }
        Ok(())
    }

    pub(crate) fn fill(&self, dst: &Slice, value: u8, id: StreamId) -> Result<(), Error> {
        let (mut streams, index) = self.enter_stream("fill", id)?;
        streams.push(
            index,
            Work::Op(Op::Fill {
                dst: dst.clone(),
                value,
            }),
            &self.pool,
        );
        Ok(())
    }

    pub(crate) fn enqueue(&self, ops: Vec<Op>, id: StreamId) -> Result<(), Error> {
        let (mut streams, index) = self.enter_stream("enqueue", id)?;
        for op in ops {
            streams.push(index, Work::Op(op), &self.pool);
        }
        Ok(())
    }

    pub(crate) fn launch(&self, exec: Arc<CpuExec>, id: StreamId) -> Result<(), Error> {
        let (mut streams, index) = self.enter_stream("replay", id)?;
        streams.trace("launch", index);
        streams.push(index, Work::Launch(exec), &self.pool);
        Ok(())
    }

    /// Refuses `call` from inside a kernel or a host access. Recording needs nothing else of the streams.
    pub(crate) fn check_free(&self, call: &'static str) -> Result<(), Error> {
        self.enter(call).map(drop)
    }

    pub(crate) fn finish_capture(&self, graph: &str, key: ShapeKey, ops: Vec<Op>) -> CpuExec {
        CpuExec {
            graph: graph.into(),
            key,
            ops: Mutex::new(ops.into()),
        }
    }

    pub(crate) fn event(&self) -> CpuEvent {
        CpuEvent {
            stream: AtomicUsize::new(NEVER),
            position: AtomicUsize::new(0),
        }
    }

    pub(crate) fn record(&self, event: &CpuEvent, id: StreamId) -> Result<(), Error> {
        let (mut streams, index) = self.enter_stream("record", id)?;
        streams.trace("record", index);
        event.position.store(streams.end(index).position, Relaxed);
        event.stream.store(index, Relaxed);
        Ok(())
    }

    pub(crate) fn wait(&self, id: StreamId, event: &CpuEvent) -> Result<(), Error> {
        let (mut streams, index) = self.enter_stream("wait", id)?;
        streams.trace("wait", index);
        if let Some(point) = event.point().filter(|p| p.stream != index) {
            streams.push(index, Work::Wait(point), &self.pool);
        }
        Ok(())
    }

    pub(crate) fn query(&self, event: &CpuEvent) -> Result<bool, Error> {
        let mut streams = self.enter("query")?;
        let Some(point) = event.point() else {
            return Ok(true);
        };
        if !streams.is_past(point) {
            streams.step(&self.pool);
        }
        let ready = streams.is_past(point);
        if ready {
            streams.report(point.stream)?;
        }
        Ok(ready)
    }

    pub(crate) fn sync_event(&self, event: &CpuEvent) -> Result<(), Error> {
        let mut streams = self.enter("sync_event")?;
        let Some(point) = event.point() else {
            return Ok(());
        };
        streams.run_to(point, &self.pool);
        streams.report(point.stream)
    }

    pub(crate) fn synchronize(&self, id: StreamId) -> Result<(), Error> {
        let (mut streams, index) = self.enter_stream("synchronize", id)?;
        let end = streams.end(index);
        streams.run_to(end, &self.pool);
        streams.report(index)
    }

    pub(crate) fn synchronize_all(&self, call: &'static str) -> Result<(), Error> {
        self.drained(call).map(drop)
    }

    pub(crate) fn upload(&self, dst: &Slice, bytes: &[u8]) -> Result<(), Error> {
        let _inside = self.drained("upload")?;
        // SAFETY: the caller checked that the lengths agree; the slice holds its buffer, the gate is
        // held, and `bytes` is no part of a buffer: such a borrow exists only inside the gate, and whoever
        // wrapped memory promised to use none.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), dst.as_ptr(), bytes.len()) };
        Ok(())
    }

    pub(crate) fn download(&self, src: &Slice, out: &mut [u8]) -> Result<(), Error> {
        let _inside = self.drained("download")?;
        // SAFETY: as in `upload`, the other way round.
        unsafe { std::ptr::copy_nonoverlapping(src.as_ptr(), out.as_mut_ptr(), out.len()) };
        Ok(())
    }

    /// Enters with all streams empty, or reports the first failure found on any of them.
    fn drained(&self, call: &'static str) -> Result<Entered<'_, Streams>, Error> {
        let mut streams = self.enter(call)?;
        while streams.step(&self.pool) {}
        streams.report_any()?;
        Ok(streams)
    }

    #[cfg(test)]
    pub(crate) fn take_trace(&self) -> Vec<String> {
        self.enter("take_trace")
            .map(|mut s| std::mem::take(&mut s.trace))
            .unwrap_or_default()
    }
}

impl Drop for CpuBackend {
    fn drop(&mut self) {
        // Work that nobody asked for is discarded. It holds buffers, which hold the core: cut the loop.
        let queued = match Arc::get_mut(&mut self.core) {
            Some(core) => core.gate.get_mut().take_queued(),
            None => match self.core.gate.enter("drop") {
                Ok(mut streams) => streams.take_queued(),
                // Dropped by a kernel or a host access of its own: nothing is safe but to leak.
                Err(_) => return,
            },
        };
        // Freed outside the gate, since a kernel's own drop code may call in here.
        drop(queued);
    }
}

fn lock_ops(exec: &CpuExec) -> std::sync::MutexGuard<'_, Box<[Op]>> {
    exec.ops.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Architecture and the vector extension that decides which kernels run.
fn isa() -> &'static str {
    #[cfg(target_arch = "x86_64")]
    {
        if std::is_x86_feature_detected!("avx512f") {
            "x86_64+avx512f"
        } else if std::is_x86_feature_detected!("avx2") && std::is_x86_feature_detected!("fma") {
            "x86_64+avx2+fma"
        } else {
            "x86_64"
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        std::env::consts::ARCH
    }
}
