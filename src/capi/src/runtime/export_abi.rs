//! Functions of `flashrt/runtime.h`.
//!
//! Calls on one builder are serialised by the caller. Every call that fails leaves a text for `frt_last_error` and changes nothing.

#![allow(non_camel_case_types)]

use std::ffi::{c_char, c_int, c_void};

use flashrt_runtime::abi::read::{self, entries};
use flashrt_runtime::abi::{frt_buffer, frt_ctx, frt_graph, frt_runtime_export_v1, frt_shape_key};
use flashrt_runtime::{RegionFlags, Role};

use super::arrays::number;
use super::builder::{answer, Builder};
use super::built::Built;
use super::shared::Owner;
use crate::status::{pointer, status, Failure};

/// What a builder handle points to.
#[repr(C)]
pub struct frt_runtime_builder_s {
    _private: [u8; 0],
}

/// Handle of a builder.
pub type frt_runtime_builder = *mut frt_runtime_builder_s;

/// Starts a declaration over the context `ctx`, which is stored and never looked into. Null for a null context.
#[no_mangle]
pub extern "C" fn frt_runtime_builder_create(ctx: frt_ctx) -> frt_runtime_builder {
    const CALL: &str = "frt_runtime_builder_create";
    pointer(|| {
        if ctx.is_null() {
            return Err(Failure::invalid(CALL, "the context is null"));
        }
        Builder::issue(CALL, ctx)
    })
}

/// Ends a builder that is not wanted any more, a metadata builder too. Null and finished builders are ignored.
#[no_mangle]
pub extern "C" fn frt_runtime_builder_destroy(b: frt_runtime_builder) {
    status(|| {
        Builder::end(b);
        Ok(0)
    });
}

/// Declares a stream. 0, or -1: null builder or name, negative id, metadata builder. Names may repeat.
///
/// # Safety
/// `name` is null or NUL-terminated.
#[no_mangle]
pub unsafe extern "C" fn frt_runtime_builder_add_stream(
    b: frt_runtime_builder,
    name: *const c_char,
    stream_id: c_int,
    priority: c_int,
    native_handle: *mut c_void,
) -> c_int {
    const CALL: &str = "frt_runtime_builder_add_stream";
    status(|| {
        let mut state = Builder::lock(CALL, b)?;
        // SAFETY: the caller's promise.
        let name = unsafe { text(CALL, "name", name) }?;
        let result = state.decl.add_stream(name, stream_id, priority);
        if result.is_ok() {
            state.native.push(native_handle);
        }
        answer(CALL, result)
    })
}

/// Declares a graph with the `n_keys` variants that exist. 0, or -1: null builder, name or graph; null keys with a count; more than
/// 2^20 keys; metadata builder. The stream may be undeclared, the default key need not be among the keys, the name may be empty.
///
/// # Safety
/// `name` is null or NUL-terminated; `keys` is null or has `n_keys` entries.
#[no_mangle]
pub unsafe extern "C" fn frt_runtime_builder_add_graph(
    b: frt_runtime_builder,
    name: *const c_char,
    graph: frt_graph,
    default_key: frt_shape_key,
    keys: *const frt_shape_key,
    n_keys: u64,
    stream_id: c_int,
) -> c_int {
    const CALL: &str = "frt_runtime_builder_add_graph";
    status(|| {
        let mut state = Builder::lock(CALL, b)?;
        // SAFETY: the caller's promise.
        let name = unsafe { text(CALL, "name", name) }?;
        not_null(CALL, "graph", graph)?;
        // SAFETY: the caller's promise.
        let keys = unsafe { entries("graph", name.to_bytes(), keys, n_keys) }
            .map_err(|e| Failure::invalid(CALL, e))?;
        answer(
            CALL,
            state
                .decl
                .add_graph(name, number(graph), default_key, keys, stream_id),
        )
    })
}

/// Declares a buffer. 0, or -1: null builder, name or buffer; metadata builder. Size and role bits are taken as they are.
///
/// # Safety
/// `name` is null or NUL-terminated.
#[no_mangle]
pub unsafe extern "C" fn frt_runtime_builder_add_buffer(
    b: frt_runtime_builder,
    name: *const c_char,
    buffer: frt_buffer,
    bytes: u64,
    role: u32,
) -> c_int {
    const CALL: &str = "frt_runtime_builder_add_buffer";
    status(|| {
        let mut state = Builder::lock(CALL, b)?;
        // SAFETY: the caller's promise.
        let name = unsafe { text(CALL, "name", name) }?;
        not_null(CALL, "buffer", buffer)?;
        answer(
            CALL,
            state
                .decl
                .add_buffer(name, number(buffer), bytes, Role(role)),
        )
    })
}

/// Declares a state region. 0, or -1: null builder, name or buffer; 0 bytes; metadata builder. The window is not checked against the
/// buffer, which need not be declared.
///
/// # Safety
/// `name` is null or NUL-terminated.
#[no_mangle]
pub unsafe extern "C" fn frt_runtime_builder_add_region(
    b: frt_runtime_builder,
    name: *const c_char,
    buffer: frt_buffer,
    offset: u64,
    bytes: u64,
    flags: u32,
) -> c_int {
    const CALL: &str = "frt_runtime_builder_add_region";
    status(|| {
        let mut state = Builder::lock(CALL, b)?;
        // SAFETY: the caller's promise.
        let name = unsafe { text(CALL, "name", name) }?;
        not_null(CALL, "buffer", buffer)?;
        answer(
            CALL,
            state
                .decl
                .add_region(name, number(buffer), offset, bytes, RegionFlags(flags)),
        )
    })
}

/// Adds a pair to the identity, unescaped. 0, or -1: null builder, key or value.
///
/// # Safety
/// `key` and `value` are null or NUL-terminated.
#[no_mangle]
pub unsafe extern "C" fn frt_runtime_builder_add_identity(
    b: frt_runtime_builder,
    key: *const c_char,
    value: *const c_char,
) -> c_int {
    const CALL: &str = "frt_runtime_builder_add_identity";
    status(|| {
        let mut state = Builder::lock(CALL, b)?;
        // SAFETY: the caller's promise.
        let (key, value) = unsafe { (text(CALL, "key", key)?, text(CALL, "value", value)?) };
        answer(CALL, state.decl.add_identity(key, value))
    })
}

/// Sets the manifest; the last call wins. 0, or -1: null builder or text. The text is not parsed.
///
/// # Safety
/// `json` is null or NUL-terminated.
#[no_mangle]
pub unsafe extern "C" fn frt_runtime_builder_set_manifest(
    b: frt_runtime_builder,
    json: *const c_char,
) -> c_int {
    const CALL: &str = "frt_runtime_builder_set_manifest";
    status(|| {
        let mut state = Builder::lock(CALL, b)?;
        // SAFETY: the caller's promise.
        let json = unsafe { text(CALL, "manifest", json) }?;
        answer(CALL, state.decl.set_manifest(json))
    })
}

/// Ends the declaration as an export with one reference. `retain_owner(owner)` is called once here, `release_owner(owner)` once when the
/// last reference is gone; each may be null.
///
/// Null: a null or finished builder; ports, stages or a generic plan are declared (the builder stays usable, for `finish_model`); a
/// metadata builder (which is destroyed).
///
/// # Safety
/// The callbacks accept `owner`.
#[no_mangle]
pub unsafe extern "C" fn frt_runtime_builder_finish(
    b: frt_runtime_builder,
    owner: *mut c_void,
    retain_owner: Option<unsafe extern "C" fn(owner: *mut c_void)>,
    release_owner: Option<unsafe extern "C" fn(owner: *mut c_void)>,
) -> *mut frt_runtime_export_v1 {
    const CALL: &str = "frt_runtime_builder_finish";
    pointer(|| {
        let mut state = Builder::lock(CALL, b)?;
        let decl = match state.decl.finish() {
            Ok(decl) => decl,
            Err(e) => {
                let is_metadata = state.ctx.is_null();
                drop(state);
                if is_metadata {
                    Builder::end(b);
                }
                return Err(Failure::invalid(CALL, e));
            }
        };
        let owner = Owner {
            pointer: owner,
            release: release_owner,
        };
        let built = Built::new(decl, &state, owner);
        drop(state);
        Builder::end(b);
        // SAFETY: the producer's own callback on its own pointer; the object is new.
        unsafe {
            if let Some(retain) = retain_owner {
                retain(owner.pointer);
            }
            Ok(Built::export(built))
        }
    })
}

/// 64-bit FNV-1a of `len` bytes at `data`. A null pointer counts as no bytes. Any thread.
///
/// # Safety
/// `data` is null, or points to `len` bytes that are readable and not written during the call.
#[no_mangle]
pub unsafe extern "C" fn frt_runtime_fingerprint(data: *const c_void, len: usize) -> u64 {
    // Longer than any object in memory: nothing that the caller's promise could cover.
    let is_possible = isize::try_from(len).is_ok();
    if data.is_null() || !is_possible {
        return flashrt_runtime::fnv1a64(&[]);
    }
    // SAFETY: not null, and the caller promises `len` readable bytes without writers; `len` fits an isize.
    let bytes = unsafe { std::slice::from_raw_parts(data.cast::<u8>(), len) };
    flashrt_runtime::fnv1a64(bytes)
}

/// # Safety
/// `at` is null or NUL-terminated.
pub(super) unsafe fn text<'a>(
    call: &str,
    what: &str,
    at: *const c_char,
) -> Result<&'a std::ffi::CStr, Failure> {
    // SAFETY: the caller's promise.
    unsafe { read::text(at) }.ok_or_else(|| Failure::invalid(call, format!("the {what} is null")))
}

fn not_null<T>(call: &str, what: &str, handle: *mut T) -> Result<(), Failure> {
    if handle.is_null() {
        return Err(Failure::invalid(call, format!("the {what} is null")));
    }
    Ok(())
}
