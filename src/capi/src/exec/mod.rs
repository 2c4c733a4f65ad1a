//! The execution contract for C: contexts, streams, events, buffers, graphs and plans.
//!
//! [`abi`] has the functions, as C sees them; the other modules do what they say. Each object of C is an object of
//! `flashrt_exec` behind a checked handle. Rules that hold in all of them:
//!
//! * Arguments are checked in the order of the contract, before anything changes.
//! * A call that may run foreign code (a record callback, a host function) holds clones, and no reference into the
//!   handle storage: foreign code may destroy what it likes.

mod abi;
mod buffer;
mod context;
mod event;
mod foreign_code;
mod graph;
mod host_function;
mod plan;
mod stream;

pub use abi::*;

use crate::status::{Failure, FRT_ERR_BACKEND};
use flashrt_exec::{Context, Error, StreamId};
use std::ffi::{c_char, c_int, CStr, CString};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The failure of `call`, with the code that the contract has for it.
fn failed(call: &str, error: &Error) -> Failure {
    let code = match error {
        // The device is not free for it now: what a driver would say.
        Error::Recording { .. } | Error::Busy { .. } => FRT_ERR_BACKEND,
        _ => error.code(),
    };
    Failure::new(code, format!("{call}: {error}"))
}

/// The stream with this id, if the context has it.
fn stream_id(call: &str, context: &Context, id: c_int) -> Result<StreamId, Failure> {
    let count = context.stream_count();
    match usize::try_from(id) {
        Ok(index) if index < count => Ok(StreamId(id)),
        _ => Err(failed(call, &Error::BadStream { stream: id, count })),
    }
}

/// A copy of a name; null is the empty one.
///
/// # Safety
/// `name` is null or ends in a NUL.
unsafe fn name(name: *const c_char) -> CString {
    if name.is_null() {
        return CString::default();
    }
    // SAFETY: not null, and the caller promises the NUL.
    unsafe { CStr::from_ptr(name) }.to_owned()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
