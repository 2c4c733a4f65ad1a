//! One call of the interface: its name in texts, and how it ends.

use super::abi::cap_status;
use crate::status::{guard, Failure};
use std::ffi::c_int;
use std::fmt::Display;

/// Name of the function that runs, for texts.
#[derive(Clone, Copy)]
pub(super) struct Call(pub(super) &'static str);

impl Call {
    pub(super) fn fail(self, status: cap_status, text: impl Display) -> Failure {
        Failure::new(status as c_int, format!("{}: {text}", self.0))
    }

    pub(super) fn arg(self, text: impl Display) -> Failure {
        self.fail(cap_status::CAP_ERR_ARG, text)
    }

    /// Refuses null, and an address that no `T` can have.
    pub(super) fn place<T>(self, name: &str, pointer: *const T) -> Result<(), Failure> {
        if pointer.is_null() {
            return Err(self.arg(format_args!("`{name}` is null")));
        }
        self.aligned(name, pointer)
    }

    /// As [`Call::place`], and null is fine.
    pub(super) fn aligned<T>(self, name: &str, pointer: *const T) -> Result<(), Failure> {
        if pointer.is_aligned() {
            return Ok(());
        }
        Err(self.arg(format_args!(
            "`{name}` is {pointer:p}, expected a multiple of {}",
            align_of::<T>()
        )))
    }

    /// The length of an array of the caller: not negative, and there when it is not empty.
    pub(super) fn array<T>(
        self,
        name: &str,
        pointer: *const T,
        n: c_int,
    ) -> Result<usize, Failure> {
        let Ok(count) = usize::try_from(n) else {
            return Err(self.arg(format_args!("`n_{name}` is {n}, expected 0 or more")));
        };
        if count > 0 && pointer.is_null() {
            return Err(self.arg(format_args!("`{name}` is null, `n_{name}` is {n}")));
        }
        self.aligned(name, pointer)?;
        Ok(count)
    }

    pub(super) fn no_memory(self, what: &str, bytes: usize) -> Failure {
        self.fail(
            cap_status::CAP_ERR_NOMEM,
            format_args!("no {bytes} bytes for {what}"),
        )
    }
}

/// Runs the body of a call; a failure leaves its text and gives what `failed` makes of its status.
pub(super) fn run<T>(
    name: &'static str,
    failed: impl FnOnce(c_int) -> T,
    body: impl FnOnce(Call) -> Result<T, Failure>,
) -> T {
    guard(cap_status::CAP_ERR as c_int, failed, || body(Call(name)))
}

/// [`run`] for calls that return a status.
pub(super) fn status(
    name: &'static str,
    body: impl FnOnce(Call) -> Result<c_int, Failure>,
) -> c_int {
    run(name, |code| code, body)
}

/// [`run`] for calls that return a handle: null on failure.
pub(super) fn pointer<T>(
    name: &'static str,
    body: impl FnOnce(Call) -> Result<*mut T, Failure>,
) -> *mut T {
    run(name, |_| std::ptr::null_mut(), body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_inside_a_verb_is_a_status_and_a_text() {
        assert_eq!(
            status("cap_x", |_| panic!("region {} is gone", 3)),
            cap_status::CAP_ERR as c_int
        );
        let null = pointer::<u8>("cap_x", |_| panic!("no list"));
        assert!(null.is_null());
        // SAFETY: never null, and nothing was called since.
        let text = unsafe { std::ffi::CStr::from_ptr(crate::status::frt_last_error()) };
        assert_eq!(text, c"panic inside the library: no list");
    }
}
