//! A context and the capsules that belong to it.

use super::abi::{cap_backend, cap_capsule, cap_ctx, cap_event, cap_status};
use super::backend::Backend;
use super::call::Call;
use super::state::Capsule;
use crate::handles::{self, Object};
use crate::status::Failure;
use std::collections::BTreeSet;
use std::ffi::c_int;
use std::mem::take;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What a context handle stands for. Shared with the calls that run and with the capsules.
pub(super) struct Context {
    pub(super) backend: Backend,
    /// Handles of the capsules; `None` once the context was destroyed.
    capsules: Mutex<Option<BTreeSet<usize>>>,
    /// The list of events of a tick, between ticks: empty, with its room.
    events: Mutex<Vec<cap_event>>,
}

// SAFETY: only events are no `Send` by themselves, and they are handed back to the backend alone (see `Backend`).
unsafe impl Send for Context {}
// SAFETY: as above; the rest is behind mutexes.
unsafe impl Sync for Context {}

struct ContextHandle(Arc<Context>);

// SAFETY: no other type has this number.
unsafe impl Object for ContextHandle {
    const KIND: u32 = 32;
    const NAME: &'static str = "cap_ctx";
}

struct CapsuleHandle(Arc<Capsule>);

// SAFETY: no other type has this number.
unsafe impl Object for CapsuleHandle {
    const KIND: u32 = 33;
    const NAME: &'static str = "cap_capsule";
}

/// Never held while a function of the backend runs.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The text is that of the handle table, the status ours.
fn need<'a, T: Object>(call: Call, handle: *mut std::ffi::c_void) -> Result<&'a T, Failure> {
    // SAFETY: whoever calls this in here copies what it needs before it calls anything else, and the caller of the C
    // function serialises calls with a context and its capsules.
    unsafe { handles::need(call.0, handle) }
        .map_err(|failure| Failure::new(cap_status::CAP_ERR_ARG as c_int, failure.text))
}

/// # Safety
/// That of `cap_ctx_create`.
pub(super) unsafe fn create(call: Call, table: *const cap_backend) -> Result<cap_ctx, Failure> {
    // SAFETY: the caller's promise.
    let backend = unsafe { Backend::read(call, table)? };
    let context = Arc::new(Context {
        backend,
        capsules: Mutex::new(Some(BTreeSet::new())),
        events: Mutex::default(),
    });
    let handle = handles::issue(Box::new(ContextHandle(context)));
    if handle.is_null() {
        return Err(call.fail(cap_status::CAP_ERR_NOMEM, "no handle is left"));
    }
    Ok(handle.cast())
}

pub(super) fn destroy(call: Call, ctx: cap_ctx) -> Result<c_int, Failure> {
    let Some(context) = handles::take::<ContextHandle>(ctx.cast()) else {
        need::<ContextHandle>(call, ctx.cast())?;
        return Ok(0);
    };
    let capsules = lock(&context.0.capsules).take();
    for handle in capsules.into_iter().flatten() {
        drop(handles::take::<CapsuleHandle>(
            std::ptr::without_provenance_mut(handle),
        ));
    }
    Ok(0)
}

/// The backend of a context: all that a hot call needs. Takes no memory and no lock.
pub(super) fn backend(call: Call, ctx: cap_ctx) -> Result<Backend, Failure> {
    Ok(need::<ContextHandle>(call, ctx.cast())?.0.backend)
}

pub(super) fn context(call: Call, ctx: cap_ctx) -> Result<Arc<Context>, Failure> {
    Ok(need::<ContextHandle>(call, ctx.cast())?.0.clone())
}

/// A capsule of this very context. Takes no memory and no lock.
pub(super) fn capsule(
    call: Call,
    ctx: cap_ctx,
    capsule: cap_capsule,
) -> Result<Arc<Capsule>, Failure> {
    let context = &need::<ContextHandle>(call, ctx.cast())?.0;
    let capsule = &need::<CapsuleHandle>(call, capsule.cast())?.0;
    let capsule = capsule.clone();
    if !capsule.belongs_to(context) {
        // Another deployment is the published answer where both would do.
        capsule.check_fingerprint(call, context.backend)?;
        return Err(call.arg("the capsule belongs to another context"));
    }
    Ok(capsule)
}

impl Context {
    /// A handle for a new capsule of this context.
    pub(super) fn add(&self, call: Call, capsule: Capsule) -> Result<cap_capsule, Failure> {
        let handle = handles::issue(Box::new(CapsuleHandle(Arc::new(capsule))));
        if handle.is_null() {
            return Err(call.fail(cap_status::CAP_ERR_NOMEM, "no handle is left"));
        }
        if let Some(capsules) = &mut *lock(&self.capsules) {
            capsules.insert(handle.addr());
            return Ok(handle.cast());
        }
        drop(handles::take::<CapsuleHandle>(handle));
        Err(call.arg("the context was destroyed meanwhile"))
    }

    /// Makes the handle of a capsule invalid. The capsule goes with the last call that uses it.
    pub(super) fn remove(&self, handle: cap_capsule) {
        if let Some(capsules) = &mut *lock(&self.capsules) {
            capsules.remove(&handle.addr());
        }
        drop(handles::take::<CapsuleHandle>(handle.cast()));
    }

    /// `count` nulls, in the list that is kept between ticks.
    pub(super) fn take_events(&self, call: Call, count: usize) -> Result<Vec<cap_event>, Failure> {
        let mut events = take(&mut *lock(&self.events));
        if events.try_reserve(count).is_err() {
            return Err(call.no_memory("events", count.saturating_mul(size_of::<cap_event>())));
        }
        events.resize(count, std::ptr::null_mut());
        Ok(events)
    }

    pub(super) fn keep_events(&self, mut events: Vec<cap_event>) {
        events.clear();
        *lock(&self.events) = events;
    }
}
