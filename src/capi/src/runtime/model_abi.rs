//! Functions of `flashrt/model_runtime.h`.
//!
//! Arrays that a caller hands in may have up to 2^20 entries; a larger count is refused before anything is read. Every call that fails
//! leaves a text for `frt_last_error`, retains nothing and changes nothing.

use std::ffi::{c_char, c_int, c_void};

use flashrt_runtime::abi::read::{self, entries, RunOpaque};
use flashrt_runtime::abi::{
    frt_buffer, frt_model_runtime_v1, frt_model_runtime_verbs, frt_runtime_export_v1,
    frt_runtime_port_desc, frt_runtime_stage_desc,
};
use flashrt_runtime::{check_staged, Error, ExecutorKind, NameBytes, PortDecl, VerbTable};

use super::builder::{answer, Builder};
use super::built::Built;
use super::export_abi::{frt_runtime_builder, text};
use super::overridden::Overridden;
use super::shared::Owner;
use super::wrapped::Wrapped;
use crate::status::{pointer, status, Failure};

/// Starts a declaration of a provider that owns no streams, graphs or buffers: it takes identity pairs, a manifest, STAGED and SETUP
/// ports without a window, and OPAQUE stages only.
#[no_mangle]
pub extern "C" fn frt_model_runtime_builder_create_metadata() -> frt_runtime_builder {
    pointer(|| {
        Builder::issue(
            "frt_model_runtime_builder_create_metadata",
            std::ptr::null_mut(),
        )
    })
}

/// Declares a port. 0, or -1: null builder; null or empty name; direction above 1; update class above 2; null shape with a rank, or a
/// rank above 2^20; in a metadata builder a SWAP port or a window. Other numbers are taken as they are.
///
/// # Safety
/// `name` is null or NUL-terminated; `shape` is null or has `rank` entries.
#[no_mangle]
#[allow(clippy::too_many_arguments)] // Published so.
pub unsafe extern "C" fn frt_runtime_builder_add_port(
    b: frt_runtime_builder,
    name: *const c_char,
    modality: u32,
    dtype: u32,
    layout: u32,
    direction: u32,
    update: u32,
    required: u32,
    shape: *const i64,
    rank: u32,
    cadence_hint_hz: u32,
    buffer: frt_buffer,
    offset: u64,
    bytes: u64,
) -> c_int {
    const CALL: &str = "frt_runtime_builder_add_port";
    status(|| {
        let mut state = Builder::lock(CALL, b)?;
        let desc = frt_runtime_port_desc {
            name,
            modality,
            dtype,
            layout,
            direction,
            update,
            required,
            shape,
            rank,
            cadence_hint_hz,
            buffer,
            offset,
            bytes,
        };
        // SAFETY: the caller's promise.
        let port = unsafe { read::port(&desc) };
        answer(CALL, port.and_then(|p| state.decl.add_port(p)))
    })
}

/// Declares a stage that replays graph `graph` of the export. 0, or -1: null builder; metadata builder; a generic plan is present; null
/// `after` with a count; a graph that is not declared yet; a dependency on a stage that is not earlier.
///
/// # Safety
/// `after` is null or has `n_after` entries.
#[no_mangle]
pub unsafe extern "C" fn frt_runtime_builder_add_stage(
    b: frt_runtime_builder,
    graph: u32,
    after: *const u32,
    n_after: u32,
) -> c_int {
    const CALL: &str = "frt_runtime_builder_add_stage";
    status(|| {
        let mut state = Builder::lock(CALL, b)?;
        let own = state.decl.declared().stages.len().to_string();
        let result = state.decl.check_stage().and_then(|()| {
            // SAFETY: the caller's promise.
            let after = unsafe { entries("stage", own.as_bytes(), after, n_after.into()) }?;
            state.decl.add_stage(graph, after)
        });
        answer(CALL, result)
    })
}

/// Declares a stage of a generic plan. 0, or -1: null builder; graph stages are present; a name that is not 1 to 255 bytes of UTF-8
/// without control characters; kind above 1; null `after` with a count; in a metadata builder a GRAPH stage; a graph that is not declared
/// yet; a name that is taken; dependencies that are not strictly increasing and earlier.
///
/// # Safety
/// `name` is null or NUL-terminated; `after` is null or has `n_after` entries.
#[no_mangle]
pub unsafe extern "C" fn frt_runtime_builder_add_generic_stage(
    b: frt_runtime_builder,
    name: *const c_char,
    executor_kind: u32,
    executor_ref: u32,
    after: *const u32,
    n_after: u32,
) -> c_int {
    const CALL: &str = "frt_runtime_builder_add_generic_stage";
    status(|| {
        let mut state = Builder::lock(CALL, b)?;
        // SAFETY: the caller's promise.
        let name = unsafe { text(CALL, "name", name) }?;
        let bytes = name.to_bytes();
        let result = state.decl.check_generic_stage(bytes).and_then(|()| {
            let kind =
                ExecutorKind::from_code(executor_kind).ok_or_else(|| Error::Declaration {
                    what: "generic stage",
                    name: String::from_utf8_lossy(bytes).into_owned(),
                    reason: format!("executor kind {executor_kind}, expected 0 or 1"),
                })?;
            // SAFETY: the caller's promise.
            let after = unsafe { entries("generic stage", bytes, after, n_after.into()) }?;
            state
                .decl
                .add_generic_stage(name, kind, executor_ref, after)
        });
        answer(CALL, result)
    })
}

/// Sets what executes OPAQUE stages; a generic plan counts as present from here on. 0, or -1: null builder or function; graph stages are
/// present; called twice.
///
/// # Safety
/// `run_opaque` accepts `stage_self` as long as the model lives.
#[no_mangle]
pub unsafe extern "C" fn frt_runtime_builder_set_generic_stage_runner(
    b: frt_runtime_builder,
    stage_self: *mut c_void,
    run_opaque: Option<unsafe extern "C" fn(stage_self: *mut c_void, executor_ref: u32) -> c_int>,
) -> c_int {
    const CALL: &str = "frt_runtime_builder_set_generic_stage_runner";
    status(|| {
        let mut state = Builder::lock(CALL, b)?;
        let run_opaque: RunOpaque =
            run_opaque.ok_or_else(|| Failure::invalid(CALL, "the function is null"))?;
        let result = state.decl.set_generic_stage_runner();
        if result.is_ok() {
            state.runner = Some((stage_self, run_opaque));
        }
        answer(CALL, result)
    })
}

/// Ends the declaration as a model with one reference, which its export shares. The verbs are copied; missing ones answer -3.
/// `retain_owner(owner)` is called once here, `release_owner(owner)` once when the last reference is gone; each may be null.
///
/// Null, with the builder still usable and nothing retained, checked in this order: a STAGED port without its verb; graph stages and a
/// generic plan; a generic plan without a stage, an OPAQUE stage, a runner or `last_error`; neither stages nor `step`.
///
/// # Safety
/// `verbs` is null or as long as it says; the callbacks accept `owner`, the verbs `verbs_self`, as long as the model lives.
#[no_mangle]
pub unsafe extern "C" fn frt_runtime_builder_finish_model(
    b: frt_runtime_builder,
    verbs: *const frt_model_runtime_verbs,
    verbs_self: *mut c_void,
    owner: *mut c_void,
    retain_owner: Option<unsafe extern "C" fn(owner: *mut c_void)>,
    release_owner: Option<unsafe extern "C" fn(owner: *mut c_void)>,
) -> *mut frt_model_runtime_v1 {
    const CALL: &str = "frt_runtime_builder_finish_model";
    pointer(|| {
        let mut state = Builder::lock(CALL, b)?;
        // SAFETY: the caller's promise.
        let verbs = unsafe { read::verbs(verbs) };
        let decl = state
            .decl
            .finish_model(verbs.present())
            .map_err(|e| Failure::invalid(CALL, e))?;
        let owner = Owner {
            pointer: owner,
            release: release_owner,
        };
        let built = Built::new(decl, &state, owner);
        // SAFETY: the object is new.
        let model = unsafe { Built::into_model(built, &state, verbs, verbs_self) };
        drop(state);
        Builder::end(b);
        if let Some(retain) = retain_owner {
            // SAFETY: the producer's own callback on its own pointer.
            unsafe { retain(owner.pointer) };
        }
        Ok(model)
    })
}

/// Puts ports, stages and verbs over an export that exists. Names, shapes and dependencies are copied, one reference to the export is
/// taken. Identity and fingerprint are the export's. When the last reference is gone: `wrapper_release(wrapper_owner)`, then the export.
///
/// Null, with nothing retained: an export that is null, of another version or too small, without context, `retain` or `release`, or with a
/// null array and a count; no stages; a null array with a count; a port that the builder would refuse; a STAGED port without its verb; a
/// stage whose graph the export lacks or that depends on a stage that is not earlier.
///
/// # Safety
/// `exp` is null or an export to which the caller holds a reference; arrays are null or as long as their counts say, names NUL-terminated;
/// `verbs` is null or as long as it says; `wrapper_release` accepts `wrapper_owner`.
#[no_mangle]
#[allow(clippy::too_many_arguments)] // Published so.
pub unsafe extern "C" fn frt_model_runtime_wrap(
    exp: *const frt_runtime_export_v1,
    ports: *const frt_runtime_port_desc,
    n_ports: u64,
    stages: *const frt_runtime_stage_desc,
    n_stages: u64,
    verbs: *const frt_model_runtime_verbs,
    verbs_self: *mut c_void,
    wrapper_owner: *mut c_void,
    wrapper_release: Option<unsafe extern "C" fn(owner: *mut c_void)>,
) -> *mut frt_model_runtime_v1 {
    const CALL: &str = "frt_model_runtime_wrap";
    pointer(|| {
        let bad = |e: Error| Failure::invalid(CALL, e);
        // SAFETY: the caller's promise.
        unsafe { read::check_export(exp) }.map_err(bad)?;
        // SAFETY: version and size are good.
        let (ctx, graphs) = unsafe { ((*exp).ctx, (*exp).n_graphs) };
        if ctx.is_null() {
            return Err(Failure::invalid(CALL, "the export has no context"));
        }
        if n_stages == 0 {
            return Err(Failure::invalid(CALL, "0 stages, at least 1 is needed"));
        }
        // SAFETY: the caller's promise.
        let (ports, verbs) = unsafe {
            (
                read::ports(ports, n_ports).map_err(bad)?,
                read::verbs(verbs),
            )
        };
        staged_verbs(&ports, verbs.present()).map_err(bad)?;
        // SAFETY: the caller's promise.
        let stages = unsafe { read::stages(stages, n_stages, Some(graphs)) }.map_err(bad)?;
        let wrapper = Owner {
            pointer: wrapper_owner,
            release: wrapper_release,
        };
        // SAFETY: checked above.
        Ok(unsafe { Wrapped::make(exp, ports, stages, verbs, verbs_self, wrapper) })
    })
}

/// Keeps the declaration of the model `base` (export, ports, stages, generic plan) and replaces its verbs. One reference to the base is
/// taken, then `retain_owner(owner)` is called; when the last reference is gone: `release_owner(owner)`, then the base. Over a generic plan
/// the stages, their error texts and extension queries stay the base's.
///
/// Null, with nothing retained: a base that is null, of another version, below 128 bytes, without export, `retain` or `release`, or with a
/// null array and a count; a port or stage that could not have been declared; a STAGED port without its verb in the new table; a generic
/// plan that is not whole, has a GRAPH stage or stands beside graph stages; neither stages nor a generic plan.
///
/// # Safety
/// `base` is null or a model to which the caller holds a reference and whose arrays are as long as their counts say; `verbs` is null or as
/// long as it says; the callbacks accept `owner`, the verbs `verbs_self`, as long as the model lives.
#[no_mangle]
pub unsafe extern "C" fn frt_model_runtime_override_verbs(
    base: *const frt_model_runtime_v1,
    verbs: *const frt_model_runtime_verbs,
    verbs_self: *mut c_void,
    owner: *mut c_void,
    retain_owner: Option<unsafe extern "C" fn(owner: *mut c_void)>,
    release_owner: Option<unsafe extern "C" fn(owner: *mut c_void)>,
) -> *mut frt_model_runtime_v1 {
    const CALL: &str = "frt_model_runtime_override_verbs";
    pointer(|| {
        let bad = |e: Error| Failure::invalid(CALL, e);
        // SAFETY: the caller's promise.
        unsafe { read::check_model(base) }.map_err(bad)?;
        // SAFETY: the base is readable, its arrays as long as it says.
        let (ports, stages, verbs) = unsafe {
            (
                read::ports((*base).ports, (*base).n_ports).map_err(bad)?,
                read::stages((*base).stages, (*base).n_stages, None).map_err(bad)?,
                read::verbs(verbs),
            )
        };
        staged_verbs(&ports, verbs.present()).map_err(bad)?;
        // SAFETY: checked above.
        let plan = unsafe { read::generic_plan(base) }.map_err(bad)?;
        if let Some(s) = plan
            .iter()
            .flat_map(|p| &p.stages)
            .find(|s| s.executor_kind == ExecutorKind::Graph)
        {
            let text = format!(
                "stage '{}' of the generic plan is a GRAPH stage, only OPAQUE ones can be kept",
                s.name
            );
            return Err(Failure::invalid(CALL, text));
        }
        if stages.is_empty() && plan.is_none() {
            return Err(Failure::invalid(
                CALL,
                "the base has neither stages nor a generic plan",
            ));
        }
        let owner = Owner {
            pointer: owner,
            release: release_owner,
        };
        // SAFETY: checked above; the callback is the owner's own.
        unsafe {
            let model = Overridden::make(base, plan.is_some(), verbs, verbs_self, owner);
            if let Some(retain) = retain_owner {
                retain(owner.pointer);
            }
            Ok(model)
        }
    })
}

fn staged_verbs<N: NameBytes>(ports: &[PortDecl<N>], verbs: VerbTable) -> Result<(), Error> {
    ports
        .iter()
        .try_for_each(|p| check_staged(p.name.name_bytes(), p.direction, p.update, verbs))
}
