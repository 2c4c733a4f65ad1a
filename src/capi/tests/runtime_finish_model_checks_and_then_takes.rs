//! `finish_model`: what is refused, in which order, and that a refusal takes nothing.

mod runtime_support;

use flashrt_capi::abi::*;
use flashrt_capi::*;
use runtime_support::*;
use std::ptr::null;

/// Refused with `part`, the builder still usable, the owner untouched.
fn refused(b: Build, verbs: &frt_model_runtime_verbs, part: &str) {
    let owner = Counted::default();
    assert!(b.finish_model_for(verbs, fake(0x55), &owner).is_null());
    assert!(
        last_error().contains(part),
        "'{}' has no '{part}'",
        last_error()
    );
    assert_eq!(owner.counts(), (0, 0));
    assert_eq!(b.pair("still", "usable"), 0);
}

fn graph_builder() -> Build {
    let b = Build::new();
    b.graph("g", 1, &[0], 0);
    b.stage(0, &[]);
    b
}

fn opaque_builder() -> Build {
    let b = Build::metadata();
    b.generic("s", 1, 0, &[]);
    b.runner();
    b
}

#[test]
fn a_staged_input_needs_set_input() {
    let b = graph_builder();
    b.port(&port("prompt").way(0, 1));
    let without = frt_model_runtime_verbs {
        set_input: None,
        ..all_verbs()
    };
    refused(
        b,
        &without,
        "'prompt': it is STAGED, but there is no set_input",
    );
    // The builder takes corrected verbs.
    release_model(b.finish_model(&all_verbs()));
}

#[test]
fn a_staged_output_needs_get_output() {
    let b = graph_builder();
    b.port(&port("actions").way(1, 1));
    let without = frt_model_runtime_verbs {
        get_output: None,
        ..all_verbs()
    };
    refused(
        b,
        &without,
        "'actions': it is STAGED, but there is no get_output",
    );
    b.destroy();
}

#[test]
fn swap_and_setup_ports_need_no_verb() {
    let b = graph_builder();
    b.port(&port("in"));
    b.port(&port("out").way(1, 0));
    b.port(&port("weights").way(0, 2));
    let model = b.finish_model(&NO_VERBS);
    assert!(!model.is_null(), "{}", last_error());
    release_model(model);
}

#[test]
fn a_table_below_48_bytes_counts_as_absent() {
    for size in [0, 47] {
        let b = graph_builder();
        b.port(&port("prompt").way(0, 1));
        let short = frt_model_runtime_verbs {
            struct_size: size,
            ..all_verbs()
        };
        refused(b, &short, "no set_input");
        b.destroy();
    }
    // Without STAGED ports the model has stubs alone.
    let short = frt_model_runtime_verbs {
        struct_size: 47,
        ..all_verbs()
    };
    let model = graph_builder().finish_model(&short);
    // SAFETY: one reference is held.
    let verbs = unsafe { (*model).verbs };
    // SAFETY: stubs take anything.
    assert_eq!(unsafe { verbs.step.unwrap()(fake(5)) }, -3);
    assert_eq!((verbs.struct_size, verbs.reserved), (48, 0));
    release_model(model);
}

#[test]
fn a_longer_table_counts_and_is_copied_as_48_bytes() {
    #[repr(C)]
    struct Longer {
        table: frt_model_runtime_verbs,
        tail: u64,
    }
    let b = graph_builder();
    b.port(&port("prompt").way(0, 1));
    let longer = Longer {
        table: frt_model_runtime_verbs {
            struct_size: 56,
            reserved: 9,
            ..all_verbs()
        },
        tail: 3,
    };
    let model = b.finish_model(&longer.table);
    assert!(!model.is_null(), "{}", last_error());
    // SAFETY: one reference is held.
    let verbs = unsafe { (*model).verbs };
    assert_eq!((verbs.struct_size, verbs.reserved), (48, 0));
    release_model(model);
    assert_eq!(longer.tail, 3);
}

#[test]
fn a_null_table_is_no_verb() {
    let b = graph_builder();
    // SAFETY: a null table is allowed.
    let model =
        unsafe { frt_runtime_builder_finish_model(b.0, null(), fake(1), fake(2), None, None) };
    assert!(!model.is_null(), "{}", last_error());
    release_model(model);
}

#[test]
fn a_generic_plan_needs_a_stage() {
    let b = Build::new();
    b.runner();
    refused(b, &all_verbs(), "it has 0 stages");
    b.destroy();
}

#[test]
fn a_generic_plan_needs_an_opaque_stage() {
    let b = Build::new();
    b.graph("g", 1, &[], 0);
    b.generic("s", 0, 0, &[]);
    b.runner();
    refused(b, &all_verbs(), "it has no OPAQUE stage");
    b.destroy();
}

#[test]
fn a_generic_plan_needs_a_runner() {
    let b = Build::metadata();
    b.generic("s", 1, 0, &[]);
    refused(b, &all_verbs(), "it has no runner");
    assert_eq!(b.runner(), 0);
    release_model(b.finish_model(&all_verbs()));
}

#[test]
fn a_generic_plan_needs_the_producers_last_error() {
    let b = opaque_builder();
    let without = frt_model_runtime_verbs {
        last_error: None,
        ..all_verbs()
    };
    refused(b, &without, "there is no last_error");
    let short = frt_model_runtime_verbs {
        struct_size: 47,
        ..all_verbs()
    };
    refused(b, &short, "there is no last_error");
    b.destroy();
}

#[test]
fn without_a_plan_there_must_be_a_step() {
    for b in [Build::new(), Build::metadata()] {
        let without = frt_model_runtime_verbs {
            step: None,
            ..all_verbs()
        };
        refused(b, &without, "neither a stage nor a step verb");
        let model = b.finish_model(&all_verbs());
        // SAFETY: one reference is held.
        assert_eq!(
            unsafe { ((*model).n_stages, query(model, 1, 1).0) },
            (0, -3)
        );
        release_model(model);
    }
}

#[test]
fn staged_verbs_are_checked_before_the_plan() {
    let b = Build::new();
    b.port(&port("prompt").way(0, 1));
    b.runner();
    refused(b, &NO_VERBS, "set_input");
    b.destroy();
}

#[test]
fn a_mixed_plan_is_fine() {
    let b = Build::new();
    b.graph("g", 1, &[], 0);
    b.generic("replay", 0, 0, &[]);
    b.generic("think", 1, 40, &[0]);
    b.runner();
    let model = b.finish_model(&all_verbs());
    assert!(!model.is_null(), "{}", last_error());
    let stages = slice(plan(model).stages, 2);
    assert_eq!([stages[0].executor_kind, stages[1].executor_kind], [0, 1]);
    release_model(model);
}

#[test]
fn success_consumes_the_builder_and_gives_one_object_with_one_count() {
    let owner = Counted::default();
    let b = graph_builder();
    let model = b.finish_model_for(&all_verbs(), fake(0x55), &owner);
    assert_eq!(owner.counts(), (1, 0));
    assert!(b.finish_model(&all_verbs()).is_null());
    // SAFETY: one reference is held.
    unsafe {
        let m = &*model;
        assert_eq!((m.abi_version, m.struct_size), (1, 136));
        assert_eq!(((*m.exp).abi_version, (*m.exp).struct_size), (1, 128));
        assert_eq!(m.self_, fake(0x55));
        assert_eq!((*m.exp).owner, m.owner);
        assert_ne!(m.owner, owner.pointer());
        // A reference through the export keeps the model alive, too.
        ((*m.exp).retain.unwrap())((*m.exp).owner);
        let exp = m.exp;
        release_model(model);
        assert_eq!(owner.counts(), (1, 0));
        ((*exp).release.unwrap())((*exp).owner);
    }
    assert_eq!(owner.counts(), (1, 1));
}
