//! The action stage reuses keys, values, mask and state of an earlier context.

mod common;

use common::drive::{self, bits, output, run};
use flashrt_models::pi05::{NoiseSource, Pi05Options};
use flashrt_runtime::{LiveSet, Producer};

const OLD: [f32; 6] = [0.1, -0.3, 0.5, 0.7, 0.9, 1.1];
const NEW: [f32; 6] = [0.6, 0.2, -0.4, 0.1, 0.3, 0.2];

fn set(noise: NoiseSource) -> LiveSet {
    let ctx = drive::context(1);
    let mut set = drive::demo(
        &ctx,
        Pi05Options {
            noise,
            ..Pi05Options::default()
        },
    )
    .build("a")
    .unwrap();
    drive::set_text(&mut set, "put the cube on the red pad").unwrap();
    drive::set_state(&mut set, &OLD).unwrap();
    drive::set_pictures(&mut set, 64, 1);
    set
}

#[test]
fn the_chunk_is_anchored_to_the_state_that_its_context_saw() {
    let mut s = set(NoiseSource::External);
    run(&mut s, "context_action", 5);
    let (actions, raw) = (output(&mut s, "actions"), output(&mut s, "actions_raw"));

    // New inputs are staged, but no context runs: nothing of the chunk changes.
    drive::set_state(&mut s, &NEW).unwrap();
    drive::set_text(&mut s, "put the cube on the blue pad").unwrap();
    drive::set_pictures(&mut s, 64, 2);
    run(&mut s, "action", 5);
    assert_eq!(bits(&output(&mut s, "actions")), bits(&actions));
    assert_eq!(bits(&output(&mut s, "actions_raw")), bits(&raw));

    // With the next context everything changes, and the anchor is the new state.
    run(&mut s, "context_action", 5);
    let (after, raw_after) = (output(&mut s, "actions"), output(&mut s, "actions_raw"));
    assert_ne!(bits(&raw_after), bits(&raw));
    let stats: serde_json::Value =
        serde_json::from_slice(&std::fs::read(common::demo_dir().join("stats.json")).unwrap())
            .unwrap();
    let stat = |key: &str, h: usize, d: usize| stats[key][h][d].as_f64().unwrap();
    for (state, raw, actions) in [(OLD, &raw, &actions), (NEW, &raw_after, &after)] {
        for (i, action) in actions.iter().enumerate() {
            let (h, d) = (i / 6, i % 6);
            let anchor = if d < 5 { f64::from(state[d]) } else { 0.0 };
            let want = f64::from(raw[i]) * stat("asd", h, d) + stat("am", h, d) + anchor;
            assert!(
                (f64::from(*action) - want).abs() < 1e-6,
                "row {h}, column {d}: {action} {want}"
            );
        }
    }
}

#[test]
fn each_action_draws_new_noise() {
    let mut s = set(NoiseSource::Philox);
    run(&mut s, "full", 5);
    let first = output(&mut s, "actions");
    let rng = drive::buffer(&s, "rng");
    run(&mut s, "action", 5);
    assert_ne!(bits(&output(&mut s, "actions")), bits(&first));
    // 96 numbers are 24 blocks of four.
    let counter = |b: &[u8]| u64::from_ne_bytes(b[8..16].try_into().unwrap());
    assert_eq!(counter(&rng), 24);
    assert_eq!(counter(&drive::buffer(&s, "rng")), 48);
    // The generator's bytes are all there is to it.
    let buffer = s.buffer("rng").unwrap().all();
    let mut start = rng.clone();
    start[8..].fill(0);
    s.context().upload(&buffer, &start).unwrap();
    run(&mut s, "action", 5);
    assert_eq!(bits(&output(&mut s, "actions")), bits(&first));
}
