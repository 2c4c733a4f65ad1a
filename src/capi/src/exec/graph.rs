//! Graphs: captured and adopted variants by key.

use super::buffer::BufferObject;
use super::context::{self, Child, ContextObject};
use super::foreign_code::{self, Inside};
use super::{failed, frt_buffer, frt_ctx, frt_graph, frt_shape_key, lock, name, stream};
use crate::handles::{get, need, Object};
use crate::status::{discard, panic_text, Failure};
use flashrt_exec::{
    BackendKind, CaptureOptions, CapturePhase, Error, Executable, Graph, Recorder, ShapeKey,
    StreamId,
};
use std::ffi::{c_char, c_int, c_void};
use std::panic::{catch_unwind, AssertUnwindSafe};

/// What C passes to a capture.
pub(super) type Record = unsafe extern "C" fn(user: *mut c_void, stream: *mut c_void);
/// The same, called so that an unwind from it is caught and not undefined.
type Unwinding = unsafe extern "C-unwind" fn(user: *mut c_void, stream: *mut c_void);

#[derive(Clone)]
pub(super) struct GraphObject {
    context: frt_ctx,
    pub(super) graph: Graph,
}

// SAFETY: 5 is this type's number alone.
unsafe impl Object for GraphObject {
    const KIND: u32 = 5;
    const NAME: &'static str = "graph";
}

/// A clone, for calls that may run foreign code.
///
/// # Safety
/// Nobody destroys the graph meanwhile.
pub(super) unsafe fn graph(call: &str, g: frt_graph) -> Result<GraphObject, Failure> {
    // SAFETY: the reference goes at once.
    Ok(unsafe { need::<GraphObject>(call, g.cast()) }?.clone())
}

/// # Safety
/// `label` is null or ends in a NUL; nobody destroys the context meanwhile.
pub(super) unsafe fn create(
    ctx: frt_ctx,
    label: *const c_char,
    max_variants: usize,
) -> Result<frt_graph, Failure> {
    let call = "frt_graph_create";
    // SAFETY: no foreign code runs in here.
    let context = unsafe { need::<ContextObject>(call, ctx.cast()) }?;
    // SAFETY: the caller's promise.
    let name = unsafe { name(label) };
    let graph = context
        .exec
        .graph(&name.to_string_lossy(), max_variants)
        .map_err(|e| failed(call, &e))?;
    let object = GraphObject {
        context: ctx,
        graph,
    };
    Ok(context.adopt(call, Child::Graph, object)?.cast())
}

/// # Safety
/// Nobody is in a call with the graph.
pub(super) unsafe fn destroy(g: frt_graph) -> Result<(), Failure> {
    if g.is_null() {
        return Ok(());
    }
    let call = "frt_graph_destroy";
    // SAFETY: the reference goes at once.
    let context = unsafe { need::<GraphObject>(call, g.cast()) }?.context;
    foreign_code::refuse_in_host_function(call, context)?;
    foreign_code::refuse_while_recorded(call, context, g)?;
    context::disown::<GraphObject>(call, Child::Graph, context, g.cast()).map(drop)
}

/// # Safety
/// `record` may be called with `user`, and what it records keeps working as long as the variant can run. Nobody
/// destroys the graph meanwhile.
pub(super) unsafe fn capture(
    g: frt_graph,
    key: frt_shape_key,
    record: Option<Record>,
    user: *mut c_void,
) -> Result<c_int, Failure> {
    let call = "frt_graph_capture";
    // SAFETY: the caller's promise.
    let GraphObject { context, graph } = unsafe { self::graph(call, g) }?;
    let Some(record) = record else {
        return Err(Failure::invalid(
            call,
            "record callback: expected one, got null",
        ));
    };
    // SAFETY: the two types differ only in what a caller expects of an unwind.
    let record = unsafe { std::mem::transmute::<Record, Unwinding>(record) };
    // SAFETY: the context lives, since its graph does.
    let handle = unsafe { stream::handle(call, context, 0) }?;

    let options = CaptureOptions { allow_empty: true };
    let run = |recorder: &mut Recorder<'_>| {
        let raw = recorder.raw_stream();
        let stream = if raw.is_null() {
            handle
        } else {
            stream::native(raw, context, StreamId(0))
        };
        let recorder = std::ptr::from_mut(recorder).cast::<Recorder<'static>>();
        let inside = Inside::Record { graph: g, recorder };
        let outcome = foreign_code::run(context, inside, || {
            // SAFETY: the caller's promise. `recorder` is used by nobody else until it returns.
            catch_unwind(AssertUnwindSafe(|| unsafe { record(user, stream) }))
        });
        outcome.map_err(|payload| {
            let reason = format!("the record callback panicked: {}", panic_text(&*payload));
            discard(payload);
            Error::Capture {
                graph: graph.name().into(),
                key,
                phase: CapturePhase::Record,
                reason,
            }
        })
    };
    graph
        .capture_with(key, options, run)
        .map_err(|e| failed(call, &e))?;
    Ok(0)
}

/// # Safety
/// `raw` is null, or came from `frt_graph_executable`, or (CUDA) is an executable of the driver that outlives its
/// place in the graph. Nobody destroys the graph meanwhile.
pub(super) unsafe fn adopt(
    g: frt_graph,
    key: frt_shape_key,
    raw: *mut c_void,
) -> Result<c_int, Failure> {
    let call = "frt_graph_adopt";
    // SAFETY: the caller's promise.
    let GraphObject { context, graph } = unsafe { self::graph(call, g) }?;
    if raw.is_null() {
        return Err(Failure::invalid(call, "executable: expected one, got null"));
    }
    foreign_code::refuse_in_host_function(call, context)?;
    // SAFETY: no foreign code runs in here.
    let owner = unsafe { need::<ContextObject>(call, context.cast()) }?;
    // One that C got from a graph that still has it is shared: no order of destruction is wrong.
    let entry = lock(&owner.exported).get(&raw.addr()).copied();
    if let Some(executable) = entry.and_then(|(donor, key)| still(donor, key, raw.addr())) {
        graph
            .adopt(key, &executable)
            .map_err(|e| failed(call, &e))?;
        return Ok(0);
    }
    if graph.context().backend() == BackendKind::Cpu {
        return Err(Failure::invalid(
            call,
            format_args!(
                "executable: expected one that frt_graph_executable gave for a live variant of the same context, \
                 got {raw:p}"
            ),
        ));
    }
    // SAFETY: the caller's promise.
    unsafe { graph.adopt_raw(key, raw) }.map_err(|e| failed(call, &e))?;
    Ok(0)
}

/// The executable at `raw`, if `donor` still has it under `key`.
fn still(donor: frt_graph, key: ShapeKey, raw: usize) -> Option<Executable> {
    // SAFETY: the reference goes at once.
    let donor = unsafe { get::<GraphObject>(donor.cast()) }?;
    let executable = donor.graph.executable(key).ok()?;
    (executable.raw().addr() == raw).then_some(executable)
}

/// # Safety
/// Nobody destroys the graph meanwhile.
pub(super) unsafe fn executable(g: frt_graph, key: frt_shape_key) -> Result<*mut c_void, Failure> {
    let call = "frt_graph_executable";
    // SAFETY: the caller's promise.
    let GraphObject { context, graph } = unsafe { self::graph(call, g) }?;
    let executable = graph.executable(key).map_err(|e| failed(call, &e))?;
    let raw = executable.raw();
    // SAFETY: no foreign code runs in here.
    let owner = unsafe { need::<ContextObject>(call, context.cast()) }?;
    let mut exported = lock(&owner.exported);
    exported.retain(|&raw, &mut (donor, key)| still(donor, key, raw).is_some());
    exported.insert(raw.addr(), (g, key));
    Ok(raw)
}

/// # Safety
/// `port` is null or ends in a NUL; nobody destroys graph or buffer meanwhile.
pub(super) unsafe fn bind(
    g: frt_graph,
    port: *const c_char,
    buf: frt_buffer,
) -> Result<c_int, Failure> {
    let call = "frt_graph_bind";
    // SAFETY: the caller's promise.
    let object = unsafe { graph(call, g) }?;
    if port.is_null() {
        return Err(Failure::invalid(call, "port: expected a name, got null"));
    }
    // SAFETY: no foreign code runs in here.
    let buffer = unsafe { need::<BufferObject>(call, buf.cast()) }?;
    // SAFETY: the caller's promise.
    let port = unsafe { name(port) };
    object
        .graph
        .bind(&port.to_string_lossy(), &buffer.buffer)
        .map_err(|e| failed(call, &e))?;
    Ok(0)
}

/// # Safety
/// Nobody destroys the graph meanwhile.
pub(super) unsafe fn replay(
    g: frt_graph,
    key: frt_shape_key,
    stream: c_int,
) -> Result<c_int, Failure> {
    let call = "frt_graph_replay";
    // SAFETY: host functions that run in here are refused to destroy what is of their context.
    let object = unsafe { need::<GraphObject>(call, g.cast()) }?;
    object
        .graph
        .replay(key, StreamId(stream))
        .map_err(|e| failed(call, &e))?;
    Ok(0)
}

/// # Safety
/// Nobody destroys the graph meanwhile.
pub(super) unsafe fn has_variant(g: frt_graph, key: frt_shape_key) -> Result<c_int, Failure> {
    // SAFETY: no foreign code runs in here.
    let object = unsafe { need::<GraphObject>("frt_graph_has_variant", g.cast()) }?;
    Ok(object.graph.has_variant(key).into())
}

/// # Safety
/// Nobody destroys the graph meanwhile.
pub(super) unsafe fn variant_count(g: frt_graph) -> Result<usize, Failure> {
    // SAFETY: no foreign code runs in here.
    let object = unsafe { need::<GraphObject>("frt_graph_variant_count", g.cast()) }?;
    Ok(object.graph.variant_count())
}

/// # Safety
/// Nobody destroys the graph meanwhile.
pub(super) unsafe fn evict(g: frt_graph, key: Option<frt_shape_key>) -> Result<c_int, Failure> {
    let call = match key {
        Some(_) => "frt_graph_evict",
        None => "frt_graph_evict_lru",
    };
    // SAFETY: the caller's promise.
    let GraphObject { context, graph } = unsafe { self::graph(call, g) }?;
    foreign_code::refuse_in_host_function(call, context)?;
    match key {
        Some(key) => graph.evict(key),
        None => graph.evict_lru().map(drop),
    }
    .map_err(|e| failed(call, &e))?;
    Ok(0)
}
