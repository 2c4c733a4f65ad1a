//! Verbs of a model whose producer supplies none, and the answer to extension queries of a model without one.

use std::ffi::{c_char, c_int, c_void};
use std::ptr::null;

use flashrt_runtime::abi::{
    frt_model_runtime_v1, frt_model_runtime_verbs, frt_shape_key, FRT_EXT_GENERIC_STAGE_PLAN_V1,
    FRT_GENERIC_STAGE_PLAN_ABI_VERSION,
};

use crate::status::set_last_error;

const UNSUPPORTED: c_int = -3;

/// `verbs` with every missing entry filled.
pub(super) fn filled(verbs: frt_model_runtime_verbs) -> frt_model_runtime_verbs {
    frt_model_runtime_verbs {
        set_input: verbs.set_input.or(Some(set_input)),
        get_output: verbs.get_output.or(Some(get_output)),
        prepare: verbs.prepare.or(Some(prepare)),
        step: verbs.step.or(Some(step)),
        last_error: verbs.last_error.or(Some(last_error)),
        ..verbs
    }
}

fn unsupported(verb: &str) -> c_int {
    set_last_error(&format!("the producer supplies no {verb}"));
    UNSUPPORTED
}

pub(super) unsafe extern "C" fn set_input(
    _: *mut c_void,
    _: u32,
    _: *const c_void,
    _: u64,
    _: c_int,
) -> c_int {
    unsupported("set_input")
}

pub(super) unsafe extern "C" fn get_output(
    _: *mut c_void,
    _: u32,
    _: *mut c_void,
    _: u64,
    _: *mut u64,
    _: c_int,
) -> c_int {
    unsupported("get_output")
}

pub(super) unsafe extern "C" fn prepare(_: *mut c_void, _: u32, _: frt_shape_key) -> c_int {
    unsupported("prepare")
}

pub(super) unsafe extern "C" fn step(_: *mut c_void) -> c_int {
    unsupported("step")
}

pub(super) unsafe extern "C" fn last_error(_: *mut c_void) -> *const c_char {
    c"the producer supplies no last_error".as_ptr()
}

/// Checks an extension query and clears `*out`. `Ok` when the plan of version 1 is asked for.
///
/// # Safety
/// `out` is null or writable.
pub(super) unsafe fn asked(
    rt: *const frt_model_runtime_v1,
    id: u64,
    min_version: u32,
    out: *mut *const c_void,
) -> Result<(), c_int> {
    if out.is_null() || !out.is_aligned() {
        set_last_error("query_extension: the place for the answer is null or not aligned");
        return Err(-1);
    }
    // SAFETY: not null, aligned, and the caller promises that it is writable.
    unsafe { out.write(null()) };
    if rt.is_null() || !rt.is_aligned() || min_version == 0 {
        set_last_error("query_extension: a null or misaligned runtime, or version 0");
        return Err(-1);
    }
    if id != FRT_EXT_GENERIC_STAGE_PLAN_V1 || min_version > FRT_GENERIC_STAGE_PLAN_ABI_VERSION {
        return Err(no_such(id, min_version));
    }
    Ok(())
}

pub(super) fn no_such(id: u64, min_version: u32) -> c_int {
    set_last_error(&format!(
        "query_extension: no extension {id} of version {min_version} here"
    ));
    UNSUPPORTED
}

/// The query function of a model that has no extension.
pub(super) unsafe extern "C" fn no_extension(
    rt: *const frt_model_runtime_v1,
    id: u64,
    min_version: u32,
    out: *mut *const c_void,
) -> c_int {
    // SAFETY: the caller's promise.
    match unsafe { asked(rt, id, min_version, out) } {
        Ok(()) => no_such(id, min_version),
        Err(code) => code,
    }
}
