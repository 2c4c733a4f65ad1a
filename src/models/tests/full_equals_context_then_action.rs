//! One graph or two, any number of threads, any order of streams: the same bytes.

mod common;

use common::drive::{self, bits, output, run};
use flashrt_exec::{Context, CpuOptions, StreamOrder, KEY_INHERIT};
use flashrt_models::pi05::{Pi05Options, StagePlan};
use flashrt_runtime::{LiveSet, Producer};

fn fresh(ctx: &Context) -> LiveSet {
    let mut set = drive::demo(
        ctx,
        Pi05Options {
            seed: 3,
            ..Pi05Options::default()
        },
    )
    .build("a")
    .unwrap();
    drive::set_text(&mut set, "put the cube on the green pad").unwrap();
    drive::set_state(&mut set, &[0.1, -0.3, 0.5, 0.7, 0.9, 1.1]).unwrap();
    drive::set_pictures(&mut set, 64, 5);
    set
}

/// Both outputs of three ticks.
fn ticks(set: &mut LiveSet, plan: &str, key: u64) -> Vec<u32> {
    let mut all = Vec::new();
    for seed in 0..3 {
        drive::set_pictures(set, 64, seed);
        run(set, plan, key);
        all.extend(bits(&output(set, "actions")));
        all.extend(bits(&output(set, "actions_raw")));
    }
    all
}

#[test]
fn full_equals_context_then_action() {
    let ctx = drive::context(2);
    for key in [KEY_INHERIT, 5, 10] {
        let want = ticks(&mut fresh(&ctx), "full", key);
        assert_eq!(
            ticks(&mut fresh(&ctx), "context_action", key),
            want,
            "key {key}"
        );
    }
    let five = ticks(&mut fresh(&ctx), "full", 5);
    assert_ne!(
        five,
        ticks(&mut fresh(&ctx), "full", 10),
        "the buckets differ"
    );
    assert_eq!(
        five,
        ticks(&mut fresh(&ctx), "full", KEY_INHERIT),
        "the configuration's steps are the default"
    );
}

#[test]
fn results_do_not_depend_on_threads_or_stream_order() {
    let want = ticks(&mut fresh(&drive::context(1)), "full", 5);
    for threads in [2, 3] {
        assert_eq!(
            ticks(&mut fresh(&drive::context(threads)), "full", 5),
            want,
            "{threads} threads"
        );
    }
    for seed in 0..3 {
        let ctx = Context::cpu(CpuOptions {
            threads: 2,
            order: StreamOrder::Adversarial { seed },
        })
        .unwrap();
        assert_eq!(
            ticks(&mut fresh(&ctx), "context_action", 5),
            want,
            "order {seed}"
        );
    }
}

#[test]
fn the_declared_plan_is_a_choice_and_part_of_the_identity() {
    let ctx = drive::context(1);
    let full = drive::demo(&ctx, Pi05Options::default())
        .build("a")
        .unwrap();
    let options = Pi05Options {
        stage_plan: StagePlan::ContextAction,
        ..Pi05Options::default()
    };
    let two = drive::demo(&ctx, options).build("a").unwrap();
    assert_eq!(full.default_plan(), full.plan("full"));
    assert_eq!(two.default_plan(), two.plan("context_action"));
    assert_eq!(two.declaration().stages.len(), 2);
    assert_ne!(full.fingerprint(), two.fingerprint());
}
