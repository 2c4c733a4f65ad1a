//! The identity changes with everything that changes results or state, and with nothing else.

mod common;

use common::drive;
use flashrt_models::pi05::{NoiseSource, Pi05Options};
use flashrt_runtime::{first_difference, LiveSet, Producer, StateClass};

fn set(threads: usize, options: Pi05Options) -> LiveSet {
    drive::demo(&drive::context(threads), options)
        .build("a")
        .unwrap()
}

fn value(set: &LiveSet, key: &str) -> String {
    let text = String::from_utf8(set.identity().to_vec()).unwrap();
    let line = text
        .lines()
        .find_map(|l| l.strip_prefix(&format!("{key}=")));
    line.unwrap_or_else(|| panic!("no {key} in\n{text}"))
        .to_owned()
}

#[test]
fn identity_names_what_results_depend_on() {
    let base = set(1, Pi05Options::default());
    assert_eq!(value(&base, "model"), "pi05");
    assert_eq!(value(&base, "backend"), "cpu");
    assert_eq!(value(&base, "precision"), "f32");
    assert_eq!(value(&base, "numerics"), flashrt_ops::NUMERICS);
    assert_eq!(value(&base, "flow_steps"), "5,10");
    assert_eq!(value(&base, "flow_default"), "5");
    for digest in ["weights_sha256", "tokenizer_sha256", "normalization_sha256"] {
        assert_eq!(value(&base, digest).len(), 64, "{digest}");
    }
    let d = Pi05Options::default;
    for (key, options) in [
        (
            "flow_steps",
            Pi05Options {
                flow_steps: vec![5],
                ..d()
            },
        ),
        (
            "flow_default",
            Pi05Options {
                default_flow_steps: 10,
                ..d()
            },
        ),
        (
            "seed_policy",
            Pi05Options {
                noise: NoiseSource::External,
                ..d()
            },
        ),
    ] {
        let other = set(1, options);
        let (a, b) = first_difference(base.identity(), other.identity()).unwrap();
        assert!(
            a.starts_with(&format!("{key}=")) && b.starts_with(&format!("{key}=")),
            "{a} {b}"
        );
    }
    assert_ne!(
        set(1, Pi05Options { taps: true, ..d() }).fingerprint(),
        base.fingerprint()
    );
    assert_eq!(set(2, d()).fingerprint(), base.fingerprint(), "threads");
    // The seed is state: it lies in the set's own buffer and travels with it.
    assert_eq!(
        set(1, Pi05Options { seed: 9, ..d() }).fingerprint(),
        base.fingerprint(),
        "seed"
    );
}

#[test]
fn every_buffer_of_the_set_has_a_class() {
    let set = set(1, Pi05Options::default());
    let class = |name: &str| {
        set.regions()
            .iter()
            .find(|r| r.slice.buffer().name() == name)
            .map(|r| r.class)
    };
    for name in [
        "in_images",
        "in_state",
        "in_prompt",
        "in_tokens",
        "in_mask",
        "state",
        "key_mask",
        "kv",
        "rng",
        "host_state",
    ] {
        assert_eq!(class(name), Some(StateClass::Continuation), "{name}");
    }
    for name in ["x", "out_actions"] {
        assert_eq!(class(name), Some(StateClass::Output), "{name}");
    }
    assert_eq!(class("scratch"), Some(StateClass::Scratch));
    for b in set.buffers() {
        // The runtime's own bounce buffer is written before every read.
        if b.name() != "swap_staging" {
            let covered: usize = set
                .regions()
                .iter()
                .filter(|r| r.slice.buffer().id() == b.id())
                .map(|r| r.slice.bytes())
                .sum();
            assert_eq!(covered, b.bytes(), "{}", b.name());
        }
    }
}
