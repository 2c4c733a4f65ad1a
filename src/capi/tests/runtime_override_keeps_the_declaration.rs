//! Replacing the verbs of a model: what is shared, what goes through the new table, what stays the base's.

mod runtime_support;

use flashrt_capi::abi::*;
use flashrt_capi::*;
use runtime_support::*;
use std::ffi::{c_int, c_void};
use std::ptr::{null, null_mut};
use std::sync::Mutex;

fn over(
    base: *const frt_model_runtime_v1,
    verbs: &frt_model_runtime_verbs,
) -> *mut frt_model_runtime_v1 {
    // SAFETY: a base and verbs of the test; no callbacks.
    unsafe { frt_model_runtime_override_verbs(base, verbs, fake(0x99), null_mut(), None, None) }
}

fn over_for(
    base: *const frt_model_runtime_v1,
    verbs: &frt_model_runtime_verbs,
    owner: &Counted,
) -> *mut frt_model_runtime_v1 {
    let (pointer, retain, release) = (
        owner.pointer(),
        Some(count_retain as _),
        Some(count_release as _),
    );
    // SAFETY: a base and verbs of the test; the callbacks count on the owner.
    unsafe { frt_model_runtime_override_verbs(base, verbs, fake(0x99), pointer, retain, release) }
}

fn other_verbs() -> frt_model_runtime_verbs {
    unsafe extern "C" fn other_step(this: *mut c_void) -> c_int {
        this.addr() as c_int + 1
    }
    frt_model_runtime_verbs {
        step: Some(other_step),
        last_error: Some(other_error_text),
        ..all_verbs()
    }
}

#[test]
fn export_ports_and_stages_are_the_bases_own() {
    let owner = Counted::default();
    let base = graph_model(&owner);
    let model = over(base, &other_verbs());
    assert!(!model.is_null(), "{}", last_error());
    // SAFETY: one reference to each is held.
    let (m, b) = unsafe { (&*model, &*base) };
    assert_eq!((m.abi_version, m.struct_size), (1, 136));
    assert_eq!((m.exp, m.ports, m.n_ports), (b.exp, b.ports, 2));
    assert_eq!((m.stages, m.n_stages), (b.stages, 2));
    assert_ne!(m.owner, b.owner);
    release_model(model);
    release_model(base);
    assert_eq!(owner.counts(), (1, 1));
}

#[test]
fn verbs_go_through_trampolines_to_the_new_table_and_its_self() {
    let owner = Counted::default();
    let base = graph_model(&owner);
    let model = over(base, &other_verbs());
    // SAFETY: one reference is held; the verbs follow no argument but `written`.
    unsafe {
        let (v, this) = ((*model).verbs, (*model).self_);
        assert_ne!(this, fake(0x99));
        assert_eq!((v.struct_size, v.reserved), (48, 0));
        assert_eq!(v.step.unwrap()(this), 0x9a);
        assert_eq!(v.set_input.unwrap()(this, 2, null(), 3, 4), 1234);
        let mut written = 0;
        assert_eq!(
            v.get_output.unwrap()(this, 2, null_mut(), 8, &mut written, -1),
            2199
        );
        assert_eq!(written, 9);
        assert_eq!(v.prepare.unwrap()(this, 1, 2), 3102);
        assert_eq!(
            text_at(v.last_error.unwrap()(this)),
            "the other producer's text"
        );
        // The base keeps its own.
        assert_eq!((*base).verbs.step.unwrap()((*base).self_), 0x55);
    }
    release_model(model);
    release_model(base);
}

#[test]
fn a_trampoline_with_a_null_self_is_invalid() {
    let owner = Counted::default();
    let base = graph_model(&owner);
    let model = over(base, &all_verbs());
    // SAFETY: null is allowed and refused.
    unsafe {
        let v = (*model).verbs;
        assert_eq!(v.step.unwrap()(null_mut()), -1);
        assert_eq!(v.prepare.unwrap()(null_mut(), 0, 0), -1);
        assert!(last_error().contains("null self"));
        assert!(text_at(v.last_error.unwrap()(null_mut())).contains("null self"));
    }
    release_model(model);
    release_model(base);
}

#[test]
fn the_base_outlives_its_own_last_reference_and_goes_after_the_owner() {
    static ORDER: Mutex<Vec<&str>> = Mutex::new(Vec::new());
    unsafe extern "C" fn base_gone(_: *mut c_void) {
        ORDER.lock().unwrap().push("base released");
    }
    unsafe extern "C" fn base_kept(_: *mut c_void) {
        ORDER.lock().unwrap().push("base retained");
    }
    unsafe extern "C" fn owner_kept(_: *mut c_void) {
        ORDER.lock().unwrap().push("owner retained");
    }
    unsafe extern "C" fn owner_gone(_: *mut c_void) {
        ORDER.lock().unwrap().push("owner released");
    }
    let counted = Counted::default();
    let base = graph_model(&counted);
    // A face of the base that tells what is done to it.
    // SAFETY: one reference is held.
    let mut face = unsafe { *base };
    face.retain = Some(base_kept);
    face.release = Some(base_gone);
    // SAFETY: a live base and live verbs; the callbacks take anything.
    let model = unsafe {
        let (retain, release) = (Some(owner_kept as _), Some(owner_gone as _));
        frt_model_runtime_override_verbs(
            &face,
            &all_verbs(),
            null_mut(),
            null_mut(),
            retain,
            release,
        )
    };
    assert_eq!(*ORDER.lock().unwrap(), ["base retained", "owner retained"]);
    release_model(model);
    assert_eq!(
        *ORDER.lock().unwrap(),
        [
            "base retained",
            "owner retained",
            "owner released",
            "base released"
        ]
    );
    release_model(base);
}

#[test]
fn inherited_pointers_stay_good_when_the_base_is_released_first() {
    let (base_owner, owner) = (Counted::default(), Counted::default());
    let base = graph_model(&base_owner);
    let model = over_for(base, &all_verbs(), &owner);
    release_model(base);
    assert_eq!((base_owner.counts(), owner.counts()), ((1, 0), (1, 0)));
    // SAFETY: one reference is held.
    let (m, e) = unsafe { (&*model, &*(*model).exp) };
    assert_eq!(text_at(slice(m.ports, 2)[1].name), "out");
    assert_eq!(text_at(slice(e.graphs, 2)[1].name), "decode");
    release_model(model);
    assert_eq!((base_owner.counts(), owner.counts()), ((1, 1), (1, 1)));
}

#[test]
fn an_override_of_an_override_is_one_more_layer() {
    let owner = Counted::default();
    let base = opaque_model(&owner);
    let middle = over(base, &other_verbs());
    let top = over(middle, &all_verbs());
    assert!(!top.is_null(), "{}", last_error());
    release_model(base);
    release_model(middle);
    assert_eq!(owner.counts(), (1, 0));
    // The plan and the texts of its runner come from the bottom.
    assert_eq!(plan(top).n_stages, 2);
    // SAFETY: one reference is held.
    unsafe {
        assert_eq!(
            text_at((*top).verbs.last_error.unwrap()((*top).self_)),
            "the producer's text"
        )
    };
    release_model(top);
    assert_eq!(owner.counts(), (1, 1));
}

#[test]
fn over_a_generic_plan_query_and_last_error_stay_the_bases() {
    let owner = Counted::default();
    let base = opaque_model(&owner);
    let model = over(base, &other_verbs());
    assert!(!model.is_null(), "{}", last_error());
    assert_eq!(query(model, 1, 1), query(base, 1, 1));
    assert_eq!(plan(model).stage_self, fake(0x77));
    // The new table answers the verbs, the base owns the texts of its runner.
    // SAFETY: one reference is held.
    unsafe {
        let (v, this) = ((*model).verbs, (*model).self_);
        assert_eq!(v.step.unwrap()(this), 0x9a);
        assert_eq!(text_at(v.last_error.unwrap()(this)), "the producer's text");
    }
    assert_eq!(query(model, 2, 1), (-3, NO_OUT));
    assert_eq!(query(model, 1, 0), (-1, NO_OUT));
    release_model(base);
    assert_eq!(plan(model).n_stages, 2);
    release_model(model);
    assert_eq!(owner.counts(), (1, 1));
}

#[test]
fn over_graph_stages_there_is_no_extension() {
    let owner = Counted::default();
    let base = graph_model(&owner);
    let model = over(base, &all_verbs());
    assert_eq!(query(model, 1, 1), (-3, NO_OUT));
    release_model(model);
    release_model(base);
}

#[test]
fn staged_ports_are_checked_against_the_new_verbs() {
    let (base_owner, owner) = (Counted::default(), Counted::default());
    let base = opaque_model(&base_owner);
    let without = frt_model_runtime_verbs {
        set_input: None,
        ..all_verbs()
    };
    for verbs in [without, NO_VERBS] {
        assert!(over_for(base, &verbs, &owner).is_null());
        assert!(
            last_error().contains("'prompt': it is STAGED, but there is no set_input"),
            "{}",
            last_error()
        );
    }
    assert_eq!((base_owner.counts(), owner.counts()), ((1, 0), (0, 0)));
    // The base's reference count is as it was: this ends it.
    release_model(base);
    assert_eq!(base_owner.counts(), (1, 1));
}

#[test]
fn a_step_only_base_is_refused() {
    let owner = Counted::default();
    let base = Build::metadata().finish_model(&all_verbs());
    assert!(over_for(base, &all_verbs(), &owner).is_null());
    assert!(
        last_error().contains("neither stages nor a generic plan"),
        "{}",
        last_error()
    );
    assert_eq!(owner.counts(), (0, 0));
    release_model(base);
}

#[test]
fn a_base_with_graph_stages_in_its_generic_plan_is_refused() {
    let owner = Counted::default();
    let b = Build::new();
    b.graph("g", 1, &[], 0);
    b.generic("replay", 0, 0, &[]);
    b.generic("think", 1, 40, &[0]);
    b.runner();
    let base = b.finish_model(&all_verbs());
    assert!(over_for(base, &all_verbs(), &owner).is_null());
    assert!(
        last_error().contains("'replay' of the generic plan is a GRAPH stage"),
        "{}",
        last_error()
    );
    assert_eq!(owner.counts(), (0, 0));
    release_model(base);
}

/// The published base: what a producer of the first version lays out, and nothing after it.
#[repr(C)]
struct Base128 {
    bytes: [u64; 16],
}

#[test]
fn a_base_of_128_bytes_is_taken_and_its_tail_never_read() {
    let owner = Counted::default();
    let real = graph_model(&owner);
    let mut small = Box::new(Base128 { bytes: [0; 16] });
    let at: *mut frt_model_runtime_v1 = (&raw mut *small).cast();
    // SAFETY: the first 128 bytes of a model are copied to an object of 128 bytes; its size says so.
    unsafe {
        std::ptr::copy_nonoverlapping(real.cast::<u8>(), at.cast::<u8>(), 128);
        (*at).struct_size = 128;
    }
    let model = over(at, &all_verbs());
    assert!(!model.is_null(), "{}", last_error());
    assert_eq!(query(model, 1, 1), (-3, NO_OUT));
    // SAFETY: one reference is held.
    assert_eq!(unsafe { (*model).struct_size }, 136);
    release_model(model);

    // SAFETY: as above.
    unsafe { (*at).struct_size = 127 };
    let over_owner = Counted::default();
    assert!(over_for(at, &all_verbs(), &over_owner).is_null());
    assert!(
        last_error().contains("127 bytes, expected at least 128"),
        "{}",
        last_error()
    );
    assert_eq!(over_owner.counts(), (0, 0));
    release_model(real);
    assert_eq!(owner.counts(), (1, 1));
}

#[test]
fn a_base_of_135_bytes_is_taken_without_its_query_and_larger_ones_with_it() {
    let owner = Counted::default();
    let real = opaque_model(&owner);
    // SAFETY: one reference is held.
    let mut face = unsafe { *real };
    // Without its query the plan is not to be seen, and there is no other.
    face.struct_size = 135;
    assert!(over(&face, &all_verbs()).is_null());
    assert!(
        last_error().contains("neither stages nor a generic plan"),
        "{}",
        last_error()
    );
    for size in [136, 137, u32::MAX] {
        face.struct_size = size;
        let model = over(&face, &all_verbs());
        assert!(!model.is_null(), "{}", last_error());
        assert_eq!(plan(model).n_stages, 2);
        release_model(model);
    }
    face.query_extension = None;
    assert!(over(&face, &all_verbs()).is_null());
    release_model(real);
    assert_eq!(owner.counts(), (1, 1));
}
