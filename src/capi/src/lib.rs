//! C ABI of exec, runtime and capsule, as a shared and a static library.
//!
//! There is one function so far, [`frt_runtime_fingerprint`], and the numbers of the interface; a symbol appears here when it
//! does what its contract says. The C side is in `include/flashrt/`.
//!
//! Rules of this crate: no panic crosses the boundary, every pointer is checked for null, every `unsafe` block says why it is
//! sound.
#![warn(missing_docs)]

mod capsule;
mod exec;
mod handles;
mod status;

use std::ffi::c_void;

pub use capsule::*;
pub use exec::*;
pub use status::*;

pub use flashrt_runtime::{MODEL_RUNTIME_ABI_VERSION, RUNTIME_ABI_VERSION};

/// 64-bit FNV-1a of `len` bytes at `data`. A null pointer counts as no bytes. Any thread.
///
/// # Safety
/// `data` is null, or points to `len` bytes that are readable and not written during the call.
#[no_mangle]
pub unsafe extern "C" fn frt_runtime_fingerprint(data: *const c_void, len: u64) -> u64 {
    // Longer than any object in memory: nothing that the caller's promise could cover.
    let is_possible = len <= isize::MAX as u64;
    if data.is_null() || !is_possible {
        return flashrt_runtime::fnv1a64(&[]);
    }
    // SAFETY: not null, and the caller promises `len` readable bytes without writers; `len` fits an isize.
    let bytes = unsafe { std::slice::from_raw_parts(data.cast::<u8>(), len as usize) };
    flashrt_runtime::fnv1a64(bytes)
}
