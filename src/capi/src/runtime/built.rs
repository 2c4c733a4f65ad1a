//! An export, or a model with its export, out of a builder: one object, one reference count.

use std::ffi::{c_int, c_void, CString};
use std::ptr::null;

use flashrt_runtime::abi::{
    frt_generic_stage_plan_ext_v1, frt_model_runtime_v1, frt_model_runtime_verbs,
    frt_runtime_export_v1, FRT_GENERIC_STAGE_PLAN_ABI_VERSION, FRT_MODEL_RUNTIME_ABI_VERSION,
    FRT_RUNTIME_ABI_VERSION,
};
use flashrt_runtime::{fnv1a64, Declaration};

use super::arrays::{start, text, Arrays};
use super::builder::State;
use super::shared::{Last, Owner, Shared};
use super::stubs;

pub(super) struct Built {
    exp: frt_runtime_export_v1,
    model: frt_model_runtime_v1,
    plan: Option<frt_generic_stage_plan_ext_v1>,
    owner: Owner,
    decl: Declaration<CString>,
    identity: CString,
    arrays: Arrays,
}

impl Last for Built {
    unsafe fn last(this: *const Built) {
        // SAFETY: alive; called once.
        unsafe { (*this).owner.release() }
    }
}

impl Built {
    /// Lays out `decl` at its final place. `state` gives what a declaration does not hold.
    pub(super) fn new(
        decl: Declaration<CString>,
        state: &State,
        owner: Owner,
    ) -> *mut Shared<Built> {
        let identity = decl.identity_bytes();
        let fingerprint = fnv1a64(&identity);
        // Made of texts that ended at their NUL: there is none inside.
        let identity = CString::new(identity).unwrap_or_default();
        let this = Shared::new(Built {
            exp: frt_runtime_export_v1 {
                abi_version: FRT_RUNTIME_ABI_VERSION,
                struct_size: size_of::<frt_runtime_export_v1>() as u32,
                ctx: state.ctx,
                streams: null(),
                n_streams: 0,
                graphs: null(),
                n_graphs: 0,
                buffers: null(),
                n_buffers: 0,
                capsule_regions: null(),
                n_capsule_regions: 0,
                fingerprint,
                identity: null(),
                manifest_json: null(),
                owner: std::ptr::null_mut(),
                retain: Some(Shared::<Built>::retain),
                release: Some(Shared::<Built>::release),
            },
            model: empty_model(),
            plan: None,
            owner,
            decl,
            identity,
            arrays: Arrays::empty(),
        });
        // SAFETY: this function alone has the object. The declaration and the arrays stay where they are from here on, so that
        // pointers into them are good until the last release.
        unsafe {
            let value = &raw mut (*this).value;
            (*value).arrays = Arrays::of(&(*value).decl, &state.native);
            let arrays = &(*value).arrays;
            let exp = &raw mut (*value).exp;
            (*exp).streams = start(&arrays.streams);
            (*exp).n_streams = arrays.streams.len() as u64;
            (*exp).graphs = start(&arrays.graphs);
            (*exp).n_graphs = arrays.graphs.len() as u64;
            (*exp).buffers = start(&arrays.buffers);
            (*exp).n_buffers = arrays.buffers.len() as u64;
            (*exp).capsule_regions = start(&arrays.regions);
            (*exp).n_capsule_regions = arrays.regions.len() as u64;
            (*exp).identity = (*value).identity.as_ptr();
            (*exp).manifest_json = text((*value).decl.manifest.as_ref());
            (*exp).owner = this.cast();
        }
        this
    }

    /// The export of the object.
    ///
    /// # Safety
    /// `this` is alive.
    pub(super) unsafe fn export(this: *mut Shared<Built>) -> *mut frt_runtime_export_v1 {
        // SAFETY: alive.
        unsafe { &raw mut (*this).value.exp }
    }

    /// Makes the object a model and gives it.
    ///
    /// # Safety
    /// `this` is fresh from [`Built::new`].
    pub(super) unsafe fn into_model(
        this: *mut Shared<Built>,
        state: &State,
        verbs: frt_model_runtime_verbs,
        verbs_self: *mut c_void,
    ) -> *mut frt_model_runtime_v1 {
        // SAFETY: the caller alone has the object.
        unsafe {
            let value = &raw mut (*this).value;
            let arrays = &(*value).arrays;
            if let Some((stage_self, run_opaque)) = state.runner {
                (*value).plan = Some(frt_generic_stage_plan_ext_v1 {
                    abi_version: FRT_GENERIC_STAGE_PLAN_ABI_VERSION,
                    struct_size: size_of::<frt_generic_stage_plan_ext_v1>() as u32,
                    stages: start(&arrays.generic_stages),
                    n_stages: arrays.generic_stages.len() as u64,
                    stage_self,
                    run_opaque: Some(run_opaque),
                });
            }
            let model = &raw mut (*value).model;
            (*model).exp = &raw const (*value).exp;
            (*model).ports = start(&arrays.ports);
            (*model).n_ports = arrays.ports.len() as u64;
            (*model).stages = start(&arrays.stages);
            (*model).n_stages = arrays.stages.len() as u64;
            (*model).self_ = verbs_self;
            (*model).verbs = stubs::filled(verbs);
            (*model).owner = this.cast();
            (*model).retain = Some(Shared::<Built>::retain);
            (*model).release = Some(Shared::<Built>::release);
            (*model).query_extension = Some(query_extension);
            model
        }
    }
}

/// A model runtime with its head and without anything else.
pub(super) fn empty_model() -> frt_model_runtime_v1 {
    frt_model_runtime_v1 {
        abi_version: FRT_MODEL_RUNTIME_ABI_VERSION,
        struct_size: size_of::<frt_model_runtime_v1>() as u32,
        exp: null(),
        ports: null(),
        n_ports: 0,
        stages: null(),
        n_stages: 0,
        self_: std::ptr::null_mut(),
        verbs: frt_model_runtime_verbs::empty(),
        owner: std::ptr::null_mut(),
        retain: None,
        release: None,
        query_extension: Some(stubs::no_extension),
    }
}

unsafe extern "C" fn query_extension(
    rt: *const frt_model_runtime_v1,
    id: u64,
    min_version: u32,
    out: *mut *const c_void,
) -> c_int {
    // SAFETY: the caller's promise for `out`.
    if let Err(code) = unsafe { stubs::asked(rt, id, min_version, out) } {
        return code;
    }
    // SAFETY: `rt` is a model of this file, or a copy of one, to which the caller holds a reference; its owner is the object. `out` is not
    // null, or it would have been refused.
    unsafe {
        let this = (*rt).owner.cast::<Shared<Built>>();
        match &(*this).value.plan {
            None => stubs::no_such(id, min_version),
            Some(plan) => {
                out.write((plan as *const frt_generic_stage_plan_ext_v1).cast());
                0
            }
        }
    }
}
