//! The extension query: what it clears, what it refuses, and the table that it gives.

mod runtime_support;

use flashrt_capi::abi::*;
use runtime_support::*;
use std::ptr::{null, null_mut};

const PLAN: u64 = FRT_EXT_GENERIC_STAGE_PLAN_V1;

#[test]
fn a_plan_is_there_with_its_runner_and_stable() {
    let owner = Counted::default();
    let model = opaque_model(&owner);
    let (code, first) = query(model, PLAN, 1);
    assert_eq!(code, 0);
    assert_eq!(query(model, PLAN, 1), (0, first));
    let p = plan(model);
    assert_eq!((p.abi_version, p.struct_size, p.n_stages), (1, 40, 2));
    assert_eq!(p.stage_self, fake(0x77));
    let stages = slice(p.stages, p.n_stages);
    let of = |s: &frt_generic_stage_desc_v1| {
        (
            text_at(s.name),
            s.executor_kind,
            s.executor_ref,
            slice(s.after, s.n_after.into()).to_vec(),
        )
    };
    assert_eq!(
        stages.iter().map(of).collect::<Vec<_>>(),
        [
            ("first".to_owned(), 1, 7, vec![]),
            ("second".to_owned(), 1, 9, vec![0])
        ]
    );
    // SAFETY: the runner takes any `self`.
    assert_eq!(unsafe { p.run_opaque.unwrap()(p.stage_self, 9) }, 109);
    release_model(model);
}

#[test]
fn another_id_or_a_newer_version_is_unsupported_and_clears_the_answer() {
    let owner = Counted::default();
    let model = opaque_model(&owner);
    for (id, version) in [
        (0, 1),
        (2, 1),
        (u64::MAX, 1),
        (1 << 32 | PLAN, 1),
        (PLAN, 2),
        (PLAN, u32::MAX),
    ] {
        assert_eq!(query(model, id, version), (-3, NO_OUT), "{id} {version}");
        assert!(last_error().contains("no extension"), "{}", last_error());
    }
    release_model(model);
}

#[test]
fn a_null_or_misaligned_argument_or_version_0_is_invalid() {
    let owner = Counted::default();
    let model = opaque_model(&owner);
    assert_eq!(query(model, PLAN, 0), (-1, NO_OUT));
    // Version 0 of an unknown id is invalid before it is unknown.
    assert_eq!(query(model, 9, 0), (-1, NO_OUT));
    // SAFETY: one reference is held; null is allowed and refused.
    unsafe {
        let f = (*model).query_extension.unwrap();
        assert_eq!(f(model, PLAN, 1, null_mut()), -1);
        let bad = fake::<u8>(0xbad).cast_const().cast();
        let mut out = [bad; 2];
        assert_eq!(f(null(), PLAN, 1, &mut out[0]), -1);
        assert_eq!(out, [null(), bad]);
        // Nor is a place written to that no pointer can stand in.
        assert_eq!(f(model, PLAN, 1, out.as_mut_ptr().byte_add(1)), -1);
        assert_eq!(out, [null(), bad]);
        assert!(last_error().contains("not aligned"), "{}", last_error());
        assert_eq!(f(model.byte_add(4), PLAN, 1, &mut out[1]), -1);
        assert_eq!(out, [null(), null()]);
    }
    release_model(model);
}

#[test]
fn graph_and_step_models_have_no_plan() {
    let owner = Counted::default();
    let graph = graph_model(&owner);
    let step = Build::metadata().finish_model(&all_verbs());
    for model in [graph, step] {
        assert_eq!(query(model, PLAN, 1), (-3, NO_OUT));
        assert_eq!(query(model, PLAN, 0), (-1, NO_OUT));
        release_model(model);
    }
}

#[test]
fn a_copy_of_the_struct_answers_like_the_original() {
    let owner = Counted::default();
    let model = opaque_model(&owner);
    // SAFETY: one reference is held.
    let copy = unsafe { *model };
    assert_eq!(query(&copy, PLAN, 1), query(model, PLAN, 1));
    assert_eq!(query(&copy, PLAN, 1).0, 0);
    release_model(model);
}
