//! A model that keeps the declaration of another and has verbs of its own.

use std::ffi::{c_char, c_int, c_void};

use flashrt_runtime::abi::{frt_model_runtime_v1, frt_model_runtime_verbs, frt_shape_key};

use super::built::empty_model;
use super::shared::{Last, Owner, Shared};
use super::stubs;
use crate::status::set_last_error;

pub(super) struct Overridden {
    model: frt_model_runtime_v1,
    verbs: frt_model_runtime_verbs,
    verbs_self: *mut c_void,
    /// Alive while this is: a reference to it is held.
    base: *const frt_model_runtime_v1,
    /// The base's runner executes the stages, so the base also has the text of their failures.
    has_generic_plan: bool,
    owner: Owner,
    base_owner: Owner,
}

impl Last for Overridden {
    unsafe fn last(this: *const Overridden) {
        // SAFETY: alive; called once. The new owner may still use the base, so it goes first.
        unsafe {
            (*this).owner.release();
            (*this).base_owner.release();
        }
    }
}

impl Overridden {
    /// Takes one reference to the base.
    ///
    /// # Safety
    /// `base` was checked, its plan too, and a reference to it is held.
    pub(super) unsafe fn make(
        base: *const frt_model_runtime_v1,
        has_generic_plan: bool,
        verbs: frt_model_runtime_verbs,
        verbs_self: *mut c_void,
        owner: Owner,
    ) -> *mut frt_model_runtime_v1 {
        // SAFETY: the base is readable; `retain` is its own.
        let (mut model, base_owner) = unsafe {
            if let Some(retain) = (*base).retain {
                retain((*base).owner);
            }
            let model = frt_model_runtime_v1 {
                exp: (*base).exp,
                ports: (*base).ports,
                n_ports: (*base).n_ports,
                stages: (*base).stages,
                n_stages: (*base).n_stages,
                ..empty_model()
            };
            let owner = Owner {
                pointer: (*base).owner,
                release: (*base).release,
            };
            (model, owner)
        };
        model.verbs = frt_model_runtime_verbs {
            set_input: Some(set_input),
            get_output: Some(get_output),
            prepare: Some(prepare),
            step: Some(step),
            last_error: Some(last_error),
            ..frt_model_runtime_verbs::empty()
        };
        model.retain = Some(Shared::<Overridden>::retain);
        model.release = Some(Shared::<Overridden>::release);
        if has_generic_plan {
            model.query_extension = Some(query_extension);
        }
        let this = Shared::new(Overridden {
            model,
            verbs,
            verbs_self,
            base,
            has_generic_plan,
            owner,
            base_owner,
        });
        // SAFETY: this function alone has the object.
        unsafe {
            let model = &raw mut (*this).value.model;
            (*model).self_ = this.cast();
            (*model).owner = this.cast();
            model
        }
    }
}

/// The object behind the `self` of a trampoline.
///
/// # Safety
/// `this` is null or the `self` of a live override.
unsafe fn of<'a>(this: *mut c_void) -> Option<&'a Overridden> {
    if this.is_null() {
        set_last_error("a verb of an override was called with a null self");
        return None;
    }
    // SAFETY: the caller holds a reference to the object.
    Some(unsafe { &(*this.cast::<Shared<Overridden>>()).value })
}

macro_rules! forward {
    ($verb:ident($($arg:ident: $type:ty),*)) => {
        unsafe extern "C" fn $verb(this: *mut c_void, $($arg: $type),*) -> c_int {
            // SAFETY: a verb is called with the model's own `self`; the arguments go on as they came.
            unsafe {
                match of(this) {
                    None => -1,
                    Some(o) => o.verbs.$verb.unwrap_or(stubs::$verb)(o.verbs_self, $($arg),*),
                }
            }
        }
    };
}

forward!(set_input(port: u32, data: *const c_void, bytes: u64, stream: c_int));
forward!(get_output(port: u32, out: *mut c_void, capacity: u64, written: *mut u64, stream: c_int));
forward!(prepare(graph: u32, key: frt_shape_key));
forward!(step());

unsafe extern "C" fn last_error(this: *mut c_void) -> *const c_char {
    // SAFETY: a verb is called with the model's own `self`; the base is alive.
    unsafe {
        match of(this) {
            None => c"a verb of an override was called with a null self".as_ptr(),
            Some(o) if o.has_generic_plan => {
                (*o.base).verbs.last_error.unwrap_or(stubs::last_error)((*o.base).self_)
            }
            Some(o) => o.verbs.last_error.unwrap_or(stubs::last_error)(o.verbs_self),
        }
    }
}

/// Set only over a base with a generic plan, whose query function is there.
unsafe extern "C" fn query_extension(
    rt: *const frt_model_runtime_v1,
    id: u64,
    min_version: u32,
    out: *mut *const c_void,
) -> c_int {
    // SAFETY: the caller's promise for `out`; a model or a copy of one, whose owner is the object; the base is alive.
    unsafe {
        if let Err(code) = stubs::asked(rt, id, min_version, out) {
            return code;
        }
        let base = (*(*rt).owner.cast::<Shared<Overridden>>()).value.base;
        (*base).query_extension.unwrap_or(stubs::no_extension)(base, id, min_version, out)
    }
}
