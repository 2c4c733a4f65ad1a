//! A capsule from a blob, and why there is none.

use super::abi::{cap_capsule, cap_ctx, cap_space, cap_status, cap_tier};
use super::blob::Blob;
use super::call::{run, Call};
use super::context::context;
use super::state::{copied, Bytes, Capsule};
use crate::status::Failure;
use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

thread_local! {
    static STATUS: Cell<c_int> = const { Cell::new(cap_status::CAP_OK as c_int) };
}

/// Runs a load and keeps its status for this thread.
pub(super) fn noted(body: impl FnOnce(Call) -> Result<cap_capsule, Failure>) -> cap_capsule {
    let note = |status: c_int| {
        // While the thread ends nobody can ask.
        let _ = STATUS.try_with(|last| last.set(status));
    };
    let failed = |status| {
        note(status);
        null_mut()
    };
    run("cap_load", failed, |call| {
        let capsule = body(call)?;
        note(cap_status::CAP_OK as c_int);
        Ok(capsule)
    })
}

pub(super) fn last_status() -> c_int {
    STATUS
        .try_with(Cell::get)
        .unwrap_or(cap_status::CAP_OK as c_int)
}

/// # Safety
/// That of `cap_load`.
pub(super) unsafe fn load(
    call: Call,
    ctx: cap_ctx,
    blob: *const c_void,
    len: usize,
) -> Result<cap_capsule, Failure> {
    let context = context(call, ctx)?;
    call.place("blob", blob.cast::<u8>())?;
    if isize::try_from(len).is_err() {
        return Err(call.arg(format_args!("`len` is {len}: no blob can be so long")));
    }
    // SAFETY: not null, of a possible length, and the caller promises that the bytes are there and stay as they are.
    let bytes = unsafe { std::slice::from_raw_parts(blob.cast::<u8>(), len) };
    let backend = context.backend;
    let fingerprint = backend.fingerprint();
    let blob =
        Blob::read(bytes, fingerprint).map_err(|refusal| call.fail(refusal.status(), refusal))?;

    let meta = copied(call, blob.meta)?;
    let mut held = Bytes::empty(
        call,
        &context,
        cap_tier::CAP_TIER_HOST as c_int,
        blob.count(),
    )?;
    held.fill(call, 0, |held| {
        for region in blob.regions() {
            let buffer = held.add(call, region.len(), cap_space::CAP_HOST)?;
            if let Some(buffer) = buffer {
                // SAFETY: the region is part of the blob, which the caller keeps; `fill` waits for the stream before
                // this call returns.
                unsafe { backend.upload(call, buffer, region.as_ptr().cast(), region.len(), 0)? };
            }
        }
        backend.sync(call, 0)
    })?;
    held.complete();
    let capsule = Capsule::new(context.clone(), fingerprint, meta, None, held);
    context.add(call, capsule)
}
