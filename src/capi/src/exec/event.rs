//! Events.

use super::context::{self, Child, ContextObject};
use super::{failed, foreign_code, frt_ctx, frt_event, stream_id};
use crate::handles::{need, Object};
use crate::status::Failure;
use flashrt_exec::{Context, Event};
use std::ffi::c_int;

#[derive(Clone)]
pub(super) struct EventObject {
    context: frt_ctx,
    exec: Context,
    event: Event,
}

// SAFETY: 2 is this type's number alone.
unsafe impl Object for EventObject {
    const KIND: u32 = 2;
    const NAME: &'static str = "event";
}

/// A clone, for calls that may run foreign code.
///
/// # Safety
/// Nobody destroys the event meanwhile.
unsafe fn event(call: &str, ev: frt_event) -> Result<EventObject, Failure> {
    // SAFETY: the reference goes at once.
    Ok(unsafe { need::<EventObject>(call, ev.cast()) }?.clone())
}

/// # Safety
/// Nobody destroys the context meanwhile.
pub(super) unsafe fn create(ctx: frt_ctx) -> Result<frt_event, Failure> {
    let call = "frt_ctx_event";
    // SAFETY: no foreign code runs in here.
    let context = unsafe { need::<ContextObject>(call, ctx.cast()) }?;
    let event = context.exec.event().map_err(|e| failed(call, &e))?;
    let object = EventObject {
        context: ctx,
        exec: context.exec.clone(),
        event,
    };
    Ok(context.adopt(call, Child::Event, object)?.cast())
}

/// # Safety
/// Nobody is in a call with the event.
pub(super) unsafe fn destroy(ev: frt_event) -> Result<(), Failure> {
    if ev.is_null() {
        return Ok(());
    }
    let call = "frt_event_destroy";
    // SAFETY: no foreign code runs in here.
    let context = unsafe { need::<EventObject>(call, ev.cast()) }?.context;
    foreign_code::refuse_in_host_function(call, context)?;
    context::disown::<EventObject>(call, Child::Event, context, ev.cast()).map(drop)
}

/// # Safety
/// Nobody destroys the event meanwhile.
pub(super) unsafe fn record(ev: frt_event, stream: c_int) -> Result<c_int, Failure> {
    let call = "frt_event_record";
    // SAFETY: the caller's promise.
    let ev = unsafe { event(call, ev) }?;
    let stream = stream_id(call, &ev.exec, stream)?;
    ev.exec
        .record(&ev.event, stream)
        .map_err(|e| failed(call, &e))?;
    Ok(0)
}

/// # Safety
/// Nobody destroys the context or the event meanwhile.
pub(super) unsafe fn wait(ctx: frt_ctx, stream: c_int, ev: frt_event) -> Result<c_int, Failure> {
    let call = "frt_stream_wait";
    // SAFETY: the caller's promise.
    let exec = unsafe { context::exec(call, ctx) }?;
    // SAFETY: the caller's promise.
    let ev = unsafe { event(call, ev) }?;
    let stream = stream_id(call, &exec, stream)?;
    exec.wait(stream, &ev.event).map_err(|e| failed(call, &e))?;
    Ok(0)
}

/// # Safety
/// Nobody destroys the event meanwhile.
pub(super) unsafe fn query(ev: frt_event) -> Result<c_int, Failure> {
    let call = "frt_event_query";
    // SAFETY: the caller's promise.
    let ev = unsafe { event(call, ev) }?;
    let is_ready = ev.exec.query(&ev.event).map_err(|e| failed(call, &e))?;
    Ok(c_int::from(!is_ready))
}

/// # Safety
/// Nobody destroys the event meanwhile.
pub(super) unsafe fn sync(ev: frt_event) -> Result<c_int, Failure> {
    let call = "frt_event_sync";
    // SAFETY: the caller's promise.
    let ev = unsafe { event(call, ev) }?;
    ev.exec
        .sync_event(&ev.event)
        .map_err(|e| failed(call, &e))?;
    Ok(0)
}
