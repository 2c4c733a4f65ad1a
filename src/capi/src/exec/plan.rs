//! Plans: replays in the order in which they were added, with events where they cross streams.
//!
//! `flashrt_exec` has plans too, with stricter rules: a node's graph must be of the plan's context, and it stays alive
//! with the plan. Here a node names a graph by its handle, as the published contract has it.

use super::context::{Child, ContextObject};
use super::{context, failed, foreign_code, frt_ctx, frt_graph, frt_plan, frt_shape_key, graph};
use super::{stream_id, FRT_KEY_INHERIT};
use crate::handles::{need, Object};
use crate::status::{Failure, FRT_ERR_BACKEND};
use flashrt_exec::{Context, Error, Event, StreamId};
use std::ffi::c_int;
use std::ptr::without_provenance_mut;
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

#[derive(Clone)]
pub(super) struct PlanObject {
    context: frt_ctx,
    plan: Arc<Mutex<Plan>>,
}

// SAFETY: 6 is this type's number alone.
unsafe impl Object for PlanObject {
    const KIND: u32 = 6;
    const NAME: &'static str = "plan";
}

struct Plan {
    exec: Context,
    nodes: Vec<Node>,
    /// Each stream once, in order of first use.
    streams: Vec<StreamId>,
}

struct Node {
    /// Number of the graph's handle.
    graph: usize,
    key: frt_shape_key,
    stream: StreamId,
    deps: Vec<usize>,
    /// Recorded after this node's replay, in every execution.
    done: Event,
}

/// A clone, for calls that may run foreign code.
///
/// # Safety
/// Nobody destroys the plan meanwhile.
unsafe fn plan(call: &str, p: frt_plan) -> Result<PlanObject, Failure> {
    // SAFETY: the reference goes at once.
    Ok(unsafe { need::<PlanObject>(call, p.cast()) }?.clone())
}

impl PlanObject {
    /// The plan itself, unless a host function that it runs asks for it.
    fn enter(&self, call: &str) -> Result<MutexGuard<'_, Plan>, Failure> {
        match self.plan.try_lock() {
            Ok(plan) => Ok(plan),
            Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => Err(Failure::new(
                FRT_ERR_BACKEND,
                format!("{call}: refused while another call of the plan runs"),
            )),
        }
    }
}

/// # Safety
/// Nobody destroys the context meanwhile.
pub(super) unsafe fn create(ctx: frt_ctx) -> Result<frt_plan, Failure> {
    let call = "frt_plan_create";
    // SAFETY: no foreign code runs in here.
    let context = unsafe { need::<ContextObject>(call, ctx.cast()) }?;
    let plan = Plan {
        exec: context.exec.clone(),
        nodes: Vec::new(),
        streams: Vec::new(),
    };
    let object = PlanObject {
        context: ctx,
        plan: Arc::new(Mutex::new(plan)),
    };
    Ok(context.adopt(call, Child::Plan, object)?.cast())
}

/// # Safety
/// Nobody is in a call with the plan.
pub(super) unsafe fn destroy(p: frt_plan) -> Result<(), Failure> {
    if p.is_null() {
        return Ok(());
    }
    let call = "frt_plan_destroy";
    // SAFETY: the caller's promise.
    let context = unsafe { plan(call, p) }?.context;
    foreign_code::refuse_in_host_function(call, context)?;
    context::disown::<PlanObject>(call, Child::Plan, context, p.cast()).map(drop)
}

/// # Safety
/// Nobody destroys plan or graph meanwhile.
pub(super) unsafe fn add(
    p: frt_plan,
    g: frt_graph,
    key: frt_shape_key,
    stream: c_int,
) -> Result<c_int, Failure> {
    let call = "frt_plan_add";
    // SAFETY: the caller's promise.
    let object = unsafe { plan(call, p) }?;
    // SAFETY: the caller's promise.
    unsafe { graph::graph(call, g) }?;
    let mut plan = object.enter(call)?;
    let stream = stream_id(call, &plan.exec, stream)?;
    let index = c_int::try_from(plan.nodes.len()).map_err(|_| {
        Failure::invalid(call, format_args!("expected at most {} nodes", c_int::MAX))
    })?;
    let done = plan.exec.event().map_err(|e| failed(call, &e))?;
    plan.nodes.push(Node {
        graph: g.addr(),
        key,
        stream,
        deps: Vec::new(),
        done,
    });
    if !plan.streams.contains(&stream) {
        plan.streams.push(stream);
    }
    Ok(index)
}

/// # Safety
/// Nobody destroys the plan meanwhile.
pub(super) unsafe fn after(p: frt_plan, node: c_int, dep: c_int) -> Result<c_int, Failure> {
    let call = "frt_plan_after";
    // SAFETY: the caller's promise.
    let object = unsafe { plan(call, p) }?;
    let mut plan = object.enter(call)?;
    let count = plan.nodes.len();
    let index = |n: c_int| usize::try_from(n).ok().filter(|&n| n < count);
    match (index(node), index(dep)) {
        (Some(node), Some(dep)) if node != dep => plan.nodes[node].deps.push(dep),
        _ => {
            return Err(Failure::invalid(
                call,
                format_args!("node {node} after {dep}: expected two different nodes below {count}"),
            ))
        }
    }
    Ok(0)
}

/// # Safety
/// Nobody destroys the plan meanwhile.
pub(super) unsafe fn validate(p: frt_plan) -> Result<c_int, Failure> {
    let call = "frt_plan_validate";
    // SAFETY: the caller's promise.
    let object = unsafe { plan(call, p) }?;
    let plan = object.enter(call)?;
    for (node, n) in plan.nodes.iter().enumerate() {
        if let Some(&dep) = n.deps.iter().find(|&&dep| dep > node) {
            return Err(failed(call, &Error::ForwardEdge { node, dep }));
        }
    }
    Ok(0)
}

/// # Safety
/// Nobody destroys the plan or a graph of it meanwhile.
pub(super) unsafe fn execute(p: frt_plan, key: frt_shape_key) -> Result<c_int, Failure> {
    let call = "frt_plan_execute";
    // SAFETY: the caller's promise.
    let object = unsafe { plan(call, p) }?;
    let plan = object.enter(call)?;
    for (index, node) in plan.nodes.iter().enumerate() {
        // A later node's event holds the mark of the execution before, not of this one.
        for &dep in node.deps.iter().filter(|&&dep| dep < index) {
            // Where this fails, the replay fails too, and its code is the plan's.
            let _ = plan.exec.wait(node.stream, &plan.nodes[dep].done);
        }
        let key = match node.key {
            FRT_KEY_INHERIT => key,
            own => own,
        };
        let g = without_provenance_mut(node.graph);
        // SAFETY: the caller's promise.
        unsafe { graph::replay(g, key, node.stream.0) }
            .map_err(|f| Failure::new(f.code, format!("{call}: node {index}: {}", f.text)))?;
        let _ = plan.exec.record(&node.done, node.stream);
    }
    Ok(0)
}

/// # Safety
/// Nobody destroys the plan meanwhile.
pub(super) unsafe fn sync(p: frt_plan) -> Result<c_int, Failure> {
    let call = "frt_plan_sync";
    // SAFETY: the caller's promise.
    let object = unsafe { plan(call, p) }?;
    let plan = object.enter(call)?;
    let mut first = Ok(0);
    for &stream in &plan.streams {
        let result = plan.exec.synchronize(stream);
        first = first.and(result.map(|()| 0).map_err(|e| failed(call, &e)));
    }
    first
}
