//! A model over an export that exists already.

use std::ffi::{c_void, CString};

use flashrt_runtime::abi::{
    frt_model_runtime_v1, frt_model_runtime_verbs, frt_runtime_export_v1, frt_runtime_port_desc,
    frt_runtime_stage_desc,
};
use flashrt_runtime::{PortDecl, StageDecl};

use super::arrays::{ports, stages, start};
use super::built::empty_model;
use super::shared::{Last, Owner, Shared};
use super::stubs;

pub(super) struct Wrapped {
    model: frt_model_runtime_v1,
    wrapper: Owner,
    export: Owner,
    // Only pointed to.
    ports: Vec<PortDecl<CString>>,
    stages: Vec<StageDecl>,
    port_descs: Vec<frt_runtime_port_desc>,
    stage_descs: Vec<frt_runtime_stage_desc>,
}

impl Last for Wrapped {
    unsafe fn last(this: *const Wrapped) {
        // SAFETY: alive; called once. The wrapper may still use the export, so it goes first.
        unsafe {
            (*this).wrapper.release();
            (*this).export.release();
        }
    }
}

impl Wrapped {
    /// Takes one reference to the export.
    ///
    /// # Safety
    /// `exp` was checked and a reference to it is held.
    pub(super) unsafe fn make(
        exp: *const frt_runtime_export_v1,
        port_decls: Vec<PortDecl<CString>>,
        stage_decls: Vec<StageDecl>,
        verbs: frt_model_runtime_verbs,
        verbs_self: *mut c_void,
        wrapper: Owner,
    ) -> *mut frt_model_runtime_v1 {
        // SAFETY: checked by the caller; `retain` is its own.
        let export = unsafe {
            if let Some(retain) = (*exp).retain {
                retain((*exp).owner);
            }
            Owner {
                pointer: (*exp).owner,
                release: (*exp).release,
            }
        };
        let this = Shared::new(Wrapped {
            model: empty_model(),
            wrapper,
            export,
            ports: port_decls,
            stages: stage_decls,
            port_descs: Vec::new(),
            stage_descs: Vec::new(),
        });
        // SAFETY: this function alone has the object, and nothing in it moves from here on.
        unsafe {
            let value = &raw mut (*this).value;
            (*value).port_descs = ports(&(*value).ports);
            (*value).stage_descs = stages(&(*value).stages);
            let (port_descs, stage_descs) = (&(*value).port_descs, &(*value).stage_descs);
            let model = &raw mut (*value).model;
            (*model).exp = exp;
            (*model).ports = start(port_descs);
            (*model).n_ports = port_descs.len() as u64;
            (*model).stages = start(stage_descs);
            (*model).n_stages = stage_descs.len() as u64;
            (*model).self_ = verbs_self;
            (*model).verbs = stubs::filled(verbs);
            (*model).owner = this.cast();
            (*model).retain = Some(Shared::<Wrapped>::retain);
            (*model).release = Some(Shared::<Wrapped>::release);
            model
        }
    }
}
