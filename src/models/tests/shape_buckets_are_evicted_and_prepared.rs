//! Flow steps are shape keys: captured at build, dropped and captured again on demand, never while hot.

mod common;

use common::drive::{self, bits, output, run};
use flashrt_models::pi05::Pi05Options;
use flashrt_runtime::{Error, LiveSet, Producer};

fn set() -> LiveSet {
    let ctx = drive::context(1);
    let mut set = drive::golden(&ctx, Pi05Options::default())
        .build("a")
        .unwrap();
    drive::set_text(&mut set, "put the cube on the red pad").unwrap();
    drive::set_state(&mut set, &[0.0; 6]).unwrap();
    drive::set_pictures(&mut set, 32, 1);
    set
}

#[test]
fn an_evicted_bucket_refuses_to_run_until_it_is_prepared_again() {
    let mut s = set();
    assert_eq!(s.variant_count(), 5);
    let rng = drive::buffer(&s, "rng");
    run(&mut s, "full", 10);
    let want = output(&mut s, "actions");

    s.evict("full", 10).unwrap();
    assert_eq!(s.variant_count(), 4);
    let before = drive::all_buffers(&s);
    let error = s.run(s.plan("full").unwrap(), 10).unwrap_err();
    assert!(
        matches!(&error, Error::NoVariant { graph, key: 10 } if graph == "full"),
        "{error}"
    );
    assert_eq!(
        drive::all_buffers(&s),
        before,
        "a refused run changes nothing"
    );
    run(&mut s, "full", 5);
    run(&mut s, "context_action", 10);

    s.prepare("full", 10).unwrap();
    s.prepare("full", 10).unwrap();
    assert_eq!(s.variant_count(), 5);
    s.context()
        .upload(&s.buffer("rng").unwrap().all(), &rng)
        .unwrap();
    run(&mut s, "full", 10);
    assert_eq!(bits(&output(&mut s, "actions")), bits(&want));
}

#[test]
fn undeclared_buckets_and_hot_sets_are_refused() {
    let mut s = set();
    for (graph, key) in [
        ("full", 7),
        ("action", 0),
        ("context", 1),
        ("full", u64::MAX),
        ("action", 1 << 40),
    ] {
        let error = s.prepare(graph, key).unwrap_err();
        assert!(
            matches!(&error, Error::NoVariant { key: k, .. } if *k == key),
            "{error}"
        );
    }
    assert!(matches!(
        s.prepare("nothing", 0),
        Err(Error::NotFound { .. })
    ));
    s.set_hot(true);
    assert!(matches!(s.evict("full", 5), Err(Error::Hot { .. })));
    assert!(matches!(s.prepare("full", 5), Err(Error::Hot { .. })));
    s.set_hot(false);
    assert_eq!(s.variant_count(), 5);
}

#[test]
fn a_warm_run_leaves_every_byte_as_it_was() {
    let mut s = set();
    run(&mut s, "full", 5);
    let before = drive::all_buffers(&s);
    s.warm().unwrap();
    assert_eq!(drive::all_buffers(&s), before);
    let rng = drive::buffer(&set(), "rng");
    assert!(
        rng[8..].iter().all(|&b| b == 0),
        "a fresh set's generator has drawn nothing"
    );
}

#[test]
fn bad_buckets_are_refused_at_load() {
    let ctx = drive::context(1);
    let load = |flow_steps: Vec<u32>, default_flow_steps| {
        let options = Pi05Options {
            flow_steps,
            default_flow_steps,
            ..Pi05Options::default()
        };
        flashrt_models::pi05::Pi05::load(&ctx, &common::demo_dir(), options)
            .err()
            .unwrap()
            .to_string()
    };
    assert!(load(vec![], 0).contains("flow_steps = []"));
    assert!(load(vec![5, 0], 0).contains("flow_steps = [5, 0]"));
    assert!(load(vec![5, 5], 0).contains("each number once"));
    assert!(load(vec![1001], 0).contains("1..=1000"));
    assert!(load(vec![5, 10], 7)
        .contains("default_flow_steps = 7: expected one of flow_steps = [5, 10]"));
    let missing =
        flashrt_models::builtin::open("pi0", &ctx, &common::demo_dir(), Pi05Options::default());
    assert!(missing
        .err()
        .unwrap()
        .to_string()
        .contains("no built-in policy `pi0`; known: pi05"));
}
