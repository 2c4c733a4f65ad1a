//! Host functions: C code that runs in the order of a stream.

use super::foreign_code::{self, Inside};
use super::{failed, frt_ctx, stream};
use crate::status::{discard, panic_text, Failure, FRT_ERR_BACKEND};
use flashrt_exec::{Error, HostKernel, Pool, StreamId};
use std::ffi::{c_int, c_void};
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};

/// What C passes.
pub(super) type Function = unsafe extern "C" fn(user: *mut c_void);
/// The same, called so that an unwind from it is caught and not undefined.
type Unwinding = unsafe extern "C-unwind" fn(user: *mut c_void);

struct Kernel {
    function: Unwinding,
    user: *mut c_void,
    context: frt_ctx,
}

// SAFETY: the caller of `enqueue` promises that function and argument may be used on any thread.
unsafe impl Send for Kernel {}

impl HostKernel for Kernel {
    fn run(&self, _: &Pool) {
        let outcome = foreign_code::run(self.context, Inside::HostFunction, || {
            // SAFETY: the caller of `enqueue` promises that it may be called with this argument while it can run.
            catch_unwind(AssertUnwindSafe(|| unsafe { (self.function)(self.user) }))
        });
        if let Err(payload) = outcome {
            // On as a plain text: what else it carries stays out of the streams.
            let text = panic_text(&*payload).to_owned();
            discard(payload);
            resume_unwind(Box::new(text));
        }
    }
}

/// # Safety
/// `function` may be called with `user`, on any thread, as often as the stream or the recorded graph runs it. Nobody
/// destroys the context meanwhile.
pub(super) unsafe fn enqueue(
    raw: *mut c_void,
    function: Option<Function>,
    user: *mut c_void,
) -> Result<c_int, Failure> {
    let call = "frt_stream_host_func";
    // SAFETY: the caller's promise.
    let target = unsafe { stream::find(call, raw) }?;
    let Some(function) = function else {
        return Err(Failure::invalid(call, "function: expected one, got null"));
    };
    let kernel = Box::new(Kernel {
        // SAFETY: the two types differ only in what a caller expects of an unwind.
        function: unsafe { std::mem::transmute::<Function, Unwinding>(function) },
        user,
        context: target.context,
    });
    let name = "host function";
    match foreign_code::recorder(target.context) {
        Some(_) if target.stream != StreamId(0) => Err(Failure::new(
            FRT_ERR_BACKEND,
            format!(
                "{call}: stream {} while the context records on stream 0",
                target.stream
            ),
        )),
        Some(recorder) => {
            // SAFETY: the capture that this thread is inside of lent it out, and nothing uses it but the calls of
            // its callback, one at a time.
            let recorder = unsafe { &mut *recorder };
            recorder
                .host_kernel(name, &[], kernel)
                .map_err(|e| unrecorded(call, &e))?;
            Ok(0)
        }
        None => {
            target
                .exec
                .enqueue(target.stream, |r| r.host_kernel(name, &[], kernel))
                .map_err(|e: Error| failed(call, &e))?;
            Ok(0)
        }
    }
}

/// The failure of a command that could not be recorded: a capture does not end by it, the command failed.
pub(super) fn unrecorded(call: &str, error: &Error) -> Failure {
    Failure::new(FRT_ERR_BACKEND, format!("{call}: {error}"))
}
