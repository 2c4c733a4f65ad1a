//! A model of the library has no null verb: what its producer leaves out answers -3.

mod runtime_support;

use flashrt_capi::abi::*;
use flashrt_capi::*;
use runtime_support::*;
use std::ptr::{null, null_mut};

/// Every verb answers -3 and says which one is missing; `last_error` gives a text.
fn all_unsupported(model: *mut frt_model_runtime_v1) {
    // SAFETY: one reference is held; stubs follow no argument.
    unsafe {
        let (v, this) = ((*model).verbs, (*model).self_);
        let says = |code: i32, verb: &str| {
            assert_eq!(code, -3, "{verb}");
            assert_eq!(last_error(), format!("the producer supplies no {verb}"));
        };
        says(v.set_input.unwrap()(this, 0, null(), 0, -1), "set_input");
        let mut written = 5;
        says(
            v.get_output.unwrap()(this, 0, null_mut(), 0, &mut written, -1),
            "get_output",
        );
        assert_eq!(written, 5);
        says(v.prepare.unwrap()(this, 0, 0), "prepare");
        says(v.step.unwrap()(this), "step");
        let text = text_at(v.last_error.unwrap()(this));
        assert!(!text.is_empty());
        assert_eq!((v.struct_size, v.reserved), (48, 0));
    }
    release_model(model);
}

fn declared() -> Build {
    let b = Build::new();
    b.graph("g", 1, &[], 0);
    b.stage(0, &[]);
    b
}

#[test]
fn a_built_model() {
    all_unsupported(declared().finish_model(&NO_VERBS));
}

#[test]
fn a_wrapped_export() {
    let b = Build::new();
    b.graph("g", 1, &[], 0);
    let exp = b.finish();
    let stage = frt_runtime_stage_desc {
        graph: 0,
        n_after: 0,
        after: null(),
    };
    // SAFETY: a live export, live arrays.
    let wrapped = unsafe {
        frt_model_runtime_wrap(
            exp,
            null(),
            0,
            &stage,
            1,
            null(),
            null_mut(),
            null_mut(),
            None,
        )
    };
    release_export(exp);
    all_unsupported(wrapped);
}

#[test]
fn an_override_without_verbs_even_over_a_base_with_them() {
    let base = declared().finish_model(&all_verbs());
    // SAFETY: a live base.
    let over = unsafe {
        frt_model_runtime_override_verbs(base, null(), null_mut(), null_mut(), None, None)
    };
    assert!(!over.is_null(), "{}", last_error());
    release_model(base);
    all_unsupported(over);
}

#[test]
fn present_verbs_are_the_producers_and_get_its_self() {
    let model = declared().finish_model(&all_verbs());
    // SAFETY: one reference is held; the verbs follow no argument but `written`.
    unsafe {
        let (v, this) = ((*model).verbs, (*model).self_);
        assert_eq!(this, fake(0x55));
        assert_eq!(v.step.unwrap()(this), 0x55);
        assert_eq!(v.set_input.unwrap()(this, 2, null(), 3, 4), 1234);
        let mut written = 0;
        assert_eq!(
            v.get_output.unwrap()(this, 2, null_mut(), 8, &mut written, -1),
            2199
        );
        assert_eq!(written, 9);
        assert_eq!(v.prepare.unwrap()(this, 1, 2), 3102);
        assert_eq!(text_at(v.last_error.unwrap()(this)), "the producer's text");
    }
    release_model(model);
}

#[test]
fn the_verbs_are_copied_at_the_finish() {
    let mut verbs = all_verbs();
    let model = declared().finish_model(&verbs);
    verbs.step = None;
    // SAFETY: one reference is held.
    unsafe { assert_eq!((*model).verbs.step.unwrap()(fake(6)), 6) };
    release_model(model);
    assert!(verbs.step.is_none());
}
