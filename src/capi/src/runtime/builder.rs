//! What stands behind a builder handle.

use std::ffi::{c_int, c_void, CString};
use std::sync::{Mutex, MutexGuard, PoisonError};

use flashrt_runtime::abi::frt_ctx;
use flashrt_runtime::abi::read::RunOpaque;
use flashrt_runtime::{DeclarationBuilder, Error};

use super::export_abi::frt_runtime_builder;
use crate::handles::{self, Object};
use crate::status::{Failure, FRT_ERR_OOM};

pub(super) struct State {
    pub(super) decl: DeclarationBuilder<CString>,
    /// Null in a metadata builder.
    pub(super) ctx: frt_ctx,
    /// Native handle of each stream.
    pub(super) native: Vec<*mut c_void>,
    /// Runner of OPAQUE stages with its argument.
    pub(super) runner: Option<(*mut c_void, RunOpaque)>,
}

/// A builder. The lock only makes it mutable: calls on one builder are serialised by the caller.
pub(super) struct Builder(Mutex<State>);

// SAFETY: 16 is of the numbers for this half, and no other type has it.
unsafe impl Object for Builder {
    const KIND: u32 = 16;
    const NAME: &'static str = "runtime builder";
}

impl Builder {
    pub(super) fn issue(call: &str, ctx: frt_ctx) -> Result<frt_runtime_builder, Failure> {
        let state = State {
            decl: DeclarationBuilder::named_as(ctx.is_null()),
            ctx,
            native: Vec::new(),
            runner: None,
        };
        let handle = handles::issue(Box::new(Builder(Mutex::new(state))));
        if handle.is_null() {
            return Err(Failure::new(
                FRT_ERR_OOM,
                format!("{call}: every handle is in use"),
            ));
        }
        Ok(handle.cast())
    }

    /// The builder behind `b` for the length of a call.
    pub(super) fn lock<'a>(
        call: &str,
        b: frt_runtime_builder,
    ) -> Result<MutexGuard<'a, State>, Failure> {
        // SAFETY: the caller of the C function serialises calls on one builder, and no foreign code runs under the lock.
        let builder = unsafe { handles::need::<Builder>(call, b.cast()) }?;
        Ok(builder.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Ends the handle.
    pub(super) fn end(b: frt_runtime_builder) {
        drop(handles::take::<Builder>(b.cast()));
    }
}

/// The answer of a declaring call.
pub(super) fn answer(call: &str, result: Result<(), Error>) -> Result<c_int, Failure> {
    match result {
        Ok(()) => Ok(0),
        Err(e) => Err(Failure::invalid(call, e)),
    }
}
