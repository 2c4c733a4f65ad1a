//! Contexts: which backend, and everything that goes with them.

use super::buffer::BufferObject;
use super::event::EventObject;
use super::graph::GraphObject;
use super::plan::PlanObject;
use super::stream::{self, StreamObject};
use super::{failed, foreign_code, frt_ctx, frt_graph, lock, FRT_BACKEND_CPU, FRT_BACKEND_CUDA};
use crate::handles::{absent, get, issue, need, take, Object};
use crate::status::{Failure, FRT_ERR_BACKEND, FRT_ERR_OOM};
use flashrt_exec::{BackendKind, Context, CpuOptions, ShapeKey, StreamOrder};
use std::collections::{HashMap, HashSet};
use std::ffi::{c_int, c_void};
use std::ptr::without_provenance_mut;
use std::sync::Mutex;

pub(super) struct ContextObject {
    pub(super) exec: Context,
    children: Mutex<[HashSet<usize>; KINDS]>,
    /// What C takes for its streams, by id (CPU).
    pub(super) stream_handles: Mutex<HashMap<c_int, *mut c_void>>,
    /// Where the raw executables come from that C was given.
    pub(super) exported: Mutex<HashMap<usize, (frt_graph, ShapeKey)>>,
}

// SAFETY: 1 is this type's number alone.
unsafe impl Object for ContextObject {
    const KIND: u32 = 1;
    const NAME: &'static str = "context";
}

/// Objects that a context owns, in the order in which it destroys them.
#[derive(Clone, Copy)]
pub(super) enum Child {
    Plan,
    Graph,
    Buffer,
    Event,
    Stream,
}

const KINDS: usize = Child::Stream as usize + 1;

impl ContextObject {
    /// A handle of `object`, destroyed with the context at the latest.
    pub(super) fn adopt<T: Object>(
        &self,
        call: &str,
        child: Child,
        object: T,
    ) -> Result<*mut c_void, Failure> {
        let handle = issue(Box::new(object));
        if handle.is_null() {
            return Err(Failure::new(
                FRT_ERR_OOM,
                format!("{call}: no handle is left"),
            ));
        }
        lock(&self.children)[child as usize].insert(handle.addr());
        Ok(handle)
    }
}

/// Takes an object out of C's hands and out of its context's.
pub(super) fn disown<T: Object>(
    call: &str,
    child: Child,
    context: frt_ctx,
    handle: *mut c_void,
) -> Result<Box<T>, Failure> {
    let object = take::<T>(handle).ok_or_else(|| absent::<T>(call, handle))?;
    // SAFETY: the reference goes before any foreign code runs.
    if let Some(context) = unsafe { get::<ContextObject>(context.cast()) } {
        lock(&context.children)[child as usize].remove(&handle.addr());
    }
    Ok(object)
}

/// A number in an environment variable; `None` when it is not set, or empty.
fn number(call: &str, variable: &str) -> Result<Option<c_int>, Failure> {
    let Some(value) = std::env::var_os(variable).filter(|v| !v.is_empty()) else {
        return Ok(None);
    };
    let parsed = value.to_str().and_then(|v| v.parse().ok());
    match parsed.filter(|&n: &c_int| n >= 0) {
        Some(n) => Ok(Some(n)),
        None => Err(Failure::invalid(
            call,
            format_args!("{variable}: expected a number from 0 on, got {value:?}"),
        )),
    }
}

fn cpu(call: &str) -> Result<Context, Failure> {
    let options = CpuOptions {
        threads: number(call, "FLASHRT_THREADS")?.unwrap_or(0) as usize,
        order: StreamOrder::Submission,
    };
    Context::cpu(options).map_err(|e| failed(call, &e))
}

fn cuda(call: &str, ordinal: c_int) -> Result<Context, Failure> {
    Context::cuda(ordinal).map_err(|e| failed(call, &e))
}

fn new(call: &str, exec: Context) -> Result<frt_ctx, Failure> {
    let handle = issue(Box::new(ContextObject {
        exec,
        children: Mutex::default(),
        stream_handles: Mutex::default(),
        exported: Mutex::default(),
    }));
    if handle.is_null() {
        return Err(Failure::new(
            FRT_ERR_OOM,
            format!("{call}: no handle is left"),
        ));
    }
    Ok(handle.cast())
}

pub(super) fn create() -> Result<frt_ctx, Failure> {
    let call = "frt_ctx_create";
    let device = number(call, "FLASHRT_DEVICE")?.unwrap_or(0);
    let backend = std::env::var_os("FLASHRT_BACKEND").unwrap_or_default();
    let exec = match backend.to_str() {
        Some("cpu") => cpu(call)?,
        Some("cuda") => cuda(call, device)?,
        Some("") => cuda(call, device).or_else(|_| cpu(call))?,
        _ => {
            return Err(Failure::invalid(
                call,
                format_args!("FLASHRT_BACKEND: expected cpu or cuda, got {backend:?}"),
            ))
        }
    };
    new(call, exec)
}

pub(super) fn create_with(kind: c_int, ordinal: c_int) -> Result<frt_ctx, Failure> {
    let call = "frt_ctx_create_with";
    let exec = match kind {
        FRT_BACKEND_CPU => cpu(call)?,
        FRT_BACKEND_CUDA => cuda(call, ordinal)?,
        _ => {
            return Err(Failure::invalid(
                call,
                format_args!("kind: expected 0 (cpu) or 1 (cuda), got {kind}"),
            ))
        }
    };
    new(call, exec)
}

/// # Safety
/// Nobody is in a call with the context or an object of it.
pub(super) unsafe fn destroy(ctx: frt_ctx) -> Result<(), Failure> {
    if ctx.is_null() {
        return Ok(());
    }
    let call = "frt_ctx_destroy";
    // SAFETY: the reference goes at once.
    unsafe { need::<ContextObject>(call, ctx.cast()) }?;
    foreign_code::refuse_in_callback(call, ctx)?;
    let context = take::<ContextObject>(ctx.cast())
        .ok_or_else(|| absent::<ContextObject>(call, ctx.cast()))?;
    let ContextObject { exec, children, .. } = *context;
    let children = children.into_inner().unwrap_or_else(|e| e.into_inner());
    let [plans, graphs, buffers, events, streams] = children;
    drop_all::<PlanObject>(plans);
    drop_all::<GraphObject>(graphs);
    drop_all::<BufferObject>(buffers);
    drop_all::<EventObject>(events);
    drop_all::<StreamObject>(streams);
    stream::forget_native(ctx);
    drop(exec);
    Ok(())
}

fn drop_all<T: Object>(handles: HashSet<usize>) {
    for handle in handles {
        drop(take::<T>(without_provenance_mut(handle)));
    }
}

/// # Safety
/// Nobody destroys the context meanwhile.
pub(super) unsafe fn backend(ctx: frt_ctx) -> Result<c_int, Failure> {
    let call = "frt_ctx_backend";
    // SAFETY: no foreign code runs in here.
    let context = unsafe { need::<ContextObject>(call, ctx.cast()) }?;
    match context.exec.backend() {
        BackendKind::Cpu => Ok(FRT_BACKEND_CPU),
        BackendKind::Cuda => Ok(FRT_BACKEND_CUDA),
        other => Err(Failure::new(
            FRT_ERR_BACKEND,
            format!("{call}: a backend without a number, {other}"),
        )),
    }
}

/// The execution context behind a handle.
///
/// # Safety
/// Nobody destroys the context meanwhile.
pub(super) unsafe fn exec(call: &str, ctx: frt_ctx) -> Result<Context, Failure> {
    // SAFETY: the reference goes at once.
    Ok(unsafe { need::<ContextObject>(call, ctx.cast()) }?
        .exec
        .clone())
}
