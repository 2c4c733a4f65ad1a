//! The gate for structural cuts on the demo policy: context and action give the bytes of the whole, for either noise source.

mod common;

use common::drive;
use flashrt_models::pi05::{NoiseSource, Pi05Options};
use flashrt_runtime::{split_gate, LiveSet, Producer, SplitGate, SplitOutcome};

fn set(noise: NoiseSource) -> LiveSet {
    let options = Pi05Options {
        noise,
        seed: 11,
        ..Pi05Options::default()
    };
    let mut set = drive::demo(&drive::context(2), options).build("a").unwrap();
    drive::set_text(&mut set, "put the cube on the blue pad").unwrap();
    drive::set_state(&mut set, &[0.1, -0.3, 0.5, 0.7, 0.9, 1.1]).unwrap();
    drive::set_pictures(&mut set, 64, 3);
    set
}

fn gate(set: &LiveSet, split: &str, key: u64) -> SplitGate {
    let plan = |name| set.plan(name).unwrap();
    SplitGate::of(set, plan("full"), plan(split), key)
}

#[test]
fn context_action_gives_every_byte_of_full() {
    for noise in [NoiseSource::Philox, NoiseSource::External] {
        let mut set = set(noise);
        if noise == NoiseSource::External {
            let port = set.port("noise").unwrap();
            let bytes = drive::picture(5, set.window(port).unwrap().bytes());
            // Small numbers of either sign.
            let noise: Vec<u8> = bytes
                .iter()
                .flat_map(|b| (f32::from(*b) / 64.0 - 2.0).to_ne_bytes())
                .take(bytes.len())
                .collect();
            set.swap_in(port, &noise).unwrap();
        }
        for tick in 0..2 {
            drive::set_pictures(&mut set, 64, tick);
            let before = drive::all_buffers(&set);
            for key in [5, 10] {
                let gate = gate(&set, "context_action", key);
                for name in ["actions", "actions_raw"] {
                    assert!(gate.outputs.iter().any(|o| o == name), "{name}");
                }
                for name in ["kv", "key_mask", "state", "x"] {
                    assert!(gate.buffers.iter().any(|b| b == name), "{name}");
                }
                let outcome = split_gate(&mut set, &gate).unwrap();
                assert!(
                    matches!(outcome, SplitOutcome::Same { bytes } if bytes > 10_000),
                    "{noise:?}, tick {tick}, {key} steps: {outcome:?}"
                );
            }
            assert_eq!(drive::all_buffers(&set), before);
            drive::run(&mut set, "full", 5);
        }
    }
}

#[test]
fn the_action_alone_is_no_cut_of_the_whole() {
    let mut set = set(NoiseSource::Philox);
    drive::run(&mut set, "full", 5);
    // New pictures, which a cut without the context does not see.
    drive::set_pictures(&mut set, 64, 8);
    let gate = gate(&set, "action", 5);
    let outcome = split_gate(&mut set, &gate).unwrap();
    assert!(
        matches!(&outcome, SplitOutcome::Differs { what: "output", full: Some(a), split: Some(b), .. } if a != b),
        "{outcome:?}"
    );
}
