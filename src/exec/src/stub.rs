//! Signatures first; bodies follow.
#![allow(unused_variables, dead_code)]
use crate::*;
use std::sync::Arc;

fn nothing<T>() -> Result<T, Error> {
    Err(Error::BackendUnavailable {
        backend: BackendKind::Cpu,
        reason: "not written yet".into(),
    })
}
/// A context.
#[derive(Clone)]
pub struct Context(Arc<()>);
#[allow(missing_docs)]
impl Context {
    pub fn cpu(o: CpuOptions) -> Result<Context, Error> {
        nothing()
    }
    pub fn cuda(ordinal: i32) -> Result<Context, Error> {
        nothing()
    }
    pub fn backend(&self) -> BackendKind {
        BackendKind::Cpu
    }
    pub fn isa(&self) -> &str {
        ""
    }
    pub fn stream(&self, priority: i32) -> Result<StreamId, Error> {
        nothing()
    }
    pub fn stream_count(&self) -> usize {
        1
    }
    pub fn alloc(&self, name: &str, space: Space, bytes: usize) -> Result<Buffer, Error> {
        nothing()
    }
    pub fn copy(&self, dst: &Slice, src: &Slice, stream: StreamId) -> Result<(), Error> {
        nothing()
    }
    pub fn fill(&self, dst: &Slice, value: u8, stream: StreamId) -> Result<(), Error> {
        nothing()
    }
    pub fn event(&self) -> Result<Event, Error> {
        nothing()
    }
    pub fn record(&self, ev: &Event, stream: StreamId) -> Result<(), Error> {
        nothing()
    }
    pub fn wait(&self, stream: StreamId, ev: &Event) -> Result<(), Error> {
        nothing()
    }
    pub fn query(&self, ev: &Event) -> Result<bool, Error> {
        nothing()
    }
    pub fn sync_event(&self, ev: &Event) -> Result<(), Error> {
        nothing()
    }
    pub fn synchronize(&self, stream: StreamId) -> Result<(), Error> {
        nothing()
    }
    pub fn synchronize_all(&self) -> Result<(), Error> {
        nothing()
    }
    pub fn enqueue<E: From<Error>>(
        &self,
        stream: StreamId,
        record: impl FnOnce(&mut Recorder<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        Ok(nothing()?)
    }
    pub fn graph(&self, name: &str, max_variants: usize) -> Result<Graph, Error> {
        nothing()
    }
    pub fn plan(&self) -> Plan {
        Plan(())
    }
    pub fn upload(&self, dst: &Slice, bytes: &[u8]) -> Result<(), Error> {
        nothing()
    }
    pub fn download(&self, src: &Slice, out: &mut [u8]) -> Result<(), Error> {
        nothing()
    }
    pub fn memory(&self) -> MemoryUse {
        MemoryUse::default()
    }
}
/// An event.
#[derive(Clone)]
pub struct Event(Arc<()>);
/// A buffer.
#[derive(Clone, Debug)]
pub struct Buffer(Arc<()>);
#[allow(missing_docs)]
impl Buffer {
    pub fn name(&self) -> &str {
        ""
    }
    pub fn bytes(&self) -> usize {
        0
    }
    pub fn space(&self) -> Space {
        Space::Host
    }
    pub fn addr(&self) -> usize {
        0
    }
    pub fn id(&self) -> u64 {
        0
    }
    pub fn all(&self) -> Slice {
        Slice {
            buffer: self.clone(),
            offset: 0,
            bytes: 0,
        }
    }
    pub fn slice(&self, offset: usize, len: usize) -> Result<Slice, Error> {
        nothing()
    }
    pub fn host_write(&self, offset: usize, data: &[u8]) -> Result<(), Error> {
        nothing()
    }
    pub fn host_read(&self, offset: usize, out: &mut [u8]) -> Result<(), Error> {
        nothing()
    }
    pub fn host_with_mut<R>(&self, f: impl FnOnce(&mut [u8]) -> R) -> Result<R, Error> {
        nothing()
    }
}
/// A window.
#[derive(Clone, Debug)]
pub struct Slice {
    buffer: Buffer,
    offset: usize,
    bytes: usize,
}
#[allow(missing_docs)]
impl Slice {
    pub fn buffer(&self) -> &Buffer {
        &self.buffer
    }
    pub fn offset(&self) -> usize {
        self.offset
    }
    pub fn bytes(&self) -> usize {
        self.bytes
    }
    pub fn slice(&self, offset: usize, len: usize) -> Result<Slice, Error> {
        nothing()
    }
    /// Dereference only inside a host kernel that lists this slice in `touches`.
    pub fn as_ptr(&self) -> *mut u8 {
        std::ptr::null_mut()
    }
}
/// Workers.
pub struct Pool(());
#[allow(missing_docs)]
impl Pool {
    pub fn new(threads: usize) -> Result<Pool, Error> {
        nothing()
    }
    pub fn threads(&self) -> usize {
        1
    }
    pub fn for_each(&self, tasks: usize, f: &(dyn Fn(usize) + Sync)) {}
}
/// Work of a kernel.
pub trait HostKernel: Send {
    /// Runs it.
    fn run(&self, pool: &Pool);
}
impl<F: Fn(&Pool) + Send> HostKernel for F {
    fn run(&self, pool: &Pool) {
        self(pool)
    }
}
/// A recorder.
pub struct Recorder<'a>(&'a Context);
#[allow(missing_docs)]
impl Recorder<'_> {
    pub fn context(&self) -> &Context {
        self.0
    }
    pub fn backend(&self) -> BackendKind {
        BackendKind::Cpu
    }
    pub fn host_kernel(
        &mut self,
        name: &'static str,
        touches: &[&Slice],
        k: Box<dyn HostKernel>,
    ) -> Result<(), Error> {
        nothing()
    }
    pub fn copy(&mut self, dst: &Slice, src: &Slice) -> Result<(), Error> {
        nothing()
    }
    pub fn fill(&mut self, dst: &Slice, value: u8) -> Result<(), Error> {
        nothing()
    }
}
/// A graph.
#[derive(Clone)]
pub struct Graph(Arc<()>);
#[allow(missing_docs)]
impl Graph {
    pub fn name(&self) -> &str {
        ""
    }
    pub fn capture<E: From<Error>>(
        &self,
        key: ShapeKey,
        record: impl FnOnce(&mut Recorder<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        Ok(nothing()?)
    }
    pub fn replay(&self, key: ShapeKey, stream: StreamId) -> Result<(), Error> {
        nothing()
    }
    pub fn has_variant(&self, key: ShapeKey) -> bool {
        false
    }
    pub fn evict(&self, key: ShapeKey) -> Result<(), Error> {
        nothing()
    }
    pub fn evict_lru(&self) -> Result<ShapeKey, Error> {
        nothing()
    }
    pub fn variant_count(&self) -> usize {
        0
    }
    pub fn bind(&self, port: &str, buffer: &Buffer) -> Result<(), Error> {
        nothing()
    }
    pub fn bound(&self, port: &str) -> Result<Buffer, Error> {
        nothing()
    }
}
/// A plan.
pub struct Plan(());
#[allow(missing_docs)]
impl Plan {
    pub fn add(&mut self, graph: &Graph, key: ShapeKey, stream: StreamId) -> Result<usize, Error> {
        nothing()
    }
    pub fn after(&mut self, node: usize, dep: usize) -> Result<(), Error> {
        nothing()
    }
    pub fn validate(&self) -> Result<(), Error> {
        nothing()
    }
    pub fn execute(&self, key: ShapeKey) -> Result<(), Error> {
        nothing()
    }
    pub fn sync(&self) -> Result<(), Error> {
        nothing()
    }
}
