//! How a call ends: a status, a text for whoever asks why, and never an unwind across the boundary.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::ffi::{c_char, c_int, CString};
use std::panic::{catch_unwind, AssertUnwindSafe};

/// Success.
pub const FRT_OK: c_int = 0;
/// A null, dead or wrong handle, a bad argument, a bad stream id, or a range error.
pub const FRT_ERR_INVALID: c_int = -1;
/// The graph has no variant for the key.
pub const FRT_ERR_NO_VARIANT: c_int = -2;
/// A port is not bound. Never returned: binding is bookkeeping.
pub const FRT_ERR_UNBOUND: c_int = -3;
/// A capture failed.
pub const FRT_ERR_CAPTURE: c_int = -4;
/// A stream, event, copy or launch call failed.
pub const FRT_ERR_BACKEND: c_int = -5;
/// An allocation failed, in a call that returns a status.
pub const FRT_ERR_OOM: c_int = -6;

/// Why a call failed.
pub(crate) struct Failure {
    pub(crate) code: c_int,
    pub(crate) text: String,
}

impl Failure {
    pub(crate) fn new(code: c_int, text: impl Into<String>) -> Failure {
        Failure {
            code,
            text: text.into(),
        }
    }

    /// A bad argument of `call`.
    pub(crate) fn invalid(call: &str, text: impl std::fmt::Display) -> Failure {
        Failure::new(FRT_ERR_INVALID, format!("{call}: {text}"))
    }
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
    static FAILURES: Cell<u64> = const { Cell::new(0) };
}

/// Number of failures on this thread so far.
pub(crate) fn failures() -> u64 {
    FAILURES.try_with(Cell::get).unwrap_or(0)
}

/// The text of the last failure, if there was one on this thread since it had so many.
pub(crate) fn text_since(failures_before: u64) -> Option<String> {
    if failures() == failures_before {
        return None;
    }
    let text = |last: &RefCell<CString>| last.borrow().to_string_lossy().into_owned();
    LAST.try_with(text).ok()
}

/// Keeps `text` as the reason of the last failure on this thread.
pub(crate) fn set_last_error(text: &str) {
    // The text ends at its first NUL, as every reader of it will.
    let text = text.split('\0').next().unwrap_or_default();
    // Cannot fail: there is no NUL left. While the thread ends there is nobody to tell.
    let text = CString::new(text).unwrap_or_default();
    let _ = LAST.try_with(|last| *last.borrow_mut() = text);
    let _ = FAILURES.try_with(|count| count.set(count.get() + 1));
}

/// Runs `f`; a failure or a panic leaves its text behind and gives what `failed` makes of its status
/// (`panicked` for a panic).
pub(crate) fn guard<T>(
    panicked: c_int,
    failed: impl FnOnce(c_int) -> T,
    f: impl FnOnce() -> Result<T, Failure>,
) -> T {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(Ok(value)) => value,
        Ok(Err(failure)) => {
            set_last_error(&failure.text);
            failed(failure.code)
        }
        Err(payload) => {
            set_last_error(&format!(
                "panic inside the library: {}",
                panic_text(&*payload)
            ));
            discard(payload);
            failed(panicked)
        }
    }
}

/// [`guard`] for calls that return a status; a panic is [`FRT_ERR_BACKEND`].
pub(crate) fn status(f: impl FnOnce() -> Result<c_int, Failure>) -> c_int {
    guard(FRT_ERR_BACKEND, |code| code, f)
}

/// [`guard`] for calls that return a pointer: null on failure.
pub(crate) fn pointer<T>(f: impl FnOnce() -> Result<*mut T, Failure>) -> *mut T {
    guard(FRT_ERR_BACKEND, |_| std::ptr::null_mut(), f)
}

/// Drops what a panic carried, which may panic again.
pub(crate) fn discard(payload: Box<dyn Any + Send>) {
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        std::mem::forget(again);
    }
}

pub(crate) fn panic_text(payload: &(dyn Any + Send)) -> &str {
    payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("(no message)")
}

/// Why the last failed call on this thread failed; empty if none did. Never null.
///
/// The text is valid until the next call into the library on this thread. A call that succeeds leaves it as it is.
#[no_mangle]
pub extern "C" fn frt_last_error() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ptr())
        .unwrap_or(c"".as_ptr())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;

    fn last() -> String {
        // SAFETY: never null, and nothing was called since.
        unsafe { CStr::from_ptr(frt_last_error()) }
            .to_string_lossy()
            .into_owned()
    }

    #[test]
    fn a_panic_becomes_a_status_with_its_text() {
        let code = status(|| panic!("wheel {} fell off", 3));
        assert_eq!(code, FRT_ERR_BACKEND);
        assert_eq!(last(), "panic inside the library: wheel 3 fell off");
    }

    #[test]
    fn a_panic_whose_payload_panics_in_its_drop_is_a_status_too() {
        struct Bomb;
        impl Drop for Bomb {
            fn drop(&mut self) {
                std::panic::resume_unwind(Box::new(Bomb));
            }
        }
        let code = status(|| std::panic::resume_unwind(Box::new(Bomb)));
        assert_eq!(code, FRT_ERR_BACKEND);
        assert_eq!(last(), "panic inside the library: (no message)");
    }

    #[test]
    fn a_failure_keeps_its_code_and_text_and_success_keeps_the_text() {
        assert_eq!(
            status(|| Err(Failure::invalid("frt_x", "expected 1, got 2"))),
            FRT_ERR_INVALID
        );
        assert_eq!(status(|| Ok(7)), 7);
        assert_eq!(last(), "frt_x: expected 1, got 2");
    }

    #[test]
    fn a_text_belongs_to_the_failures_since() {
        let before = failures();
        assert_eq!(text_since(before), None);
        status(|| Err(Failure::invalid("frt_x", "no")));
        assert_eq!(text_since(before), Some("frt_x: no".into()));
        status(|| Ok(0));
        assert_eq!(text_since(before + 1), None);
    }
}
