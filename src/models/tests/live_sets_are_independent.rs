//! Two sets over one set of weights, fed and ticked in turn, behave as two of their own.

mod common;

use common::drive::{self, bits, tick};
use flashrt_models::pi05::Pi05Options;
use flashrt_runtime::{LiveSet, Model, Producer};

const TEXTS: [&str; 2] = [
    "put the cube on the red pad",
    "put the cube on the blue pad",
];

fn feed(set: &mut LiveSet, which: usize, tick: u32) {
    drive::set_text(set, TEXTS[which]).unwrap();
    let state: Vec<f32> = (0..6)
        .map(|i| (which as f32 - 0.5) * 0.2 + 0.05 * i as f32 + 0.01 * tick as f32)
        .collect();
    drive::set_state(set, &state).unwrap();
    drive::set_pictures(set, 64, 100 * which as u32 + tick);
}

#[test]
fn live_sets_are_independent() {
    let ctx = drive::context(2);
    let alone: Vec<Vec<Vec<u32>>> = (0..2)
        .map(|which| {
            let mut set = drive::demo(&ctx, Pi05Options::default())
                .build("alone")
                .unwrap();
            (0..4)
                .map(|k| {
                    feed(&mut set, which, k);
                    bits(&tick(&mut set))
                })
                .collect()
        })
        .collect();
    assert_ne!(alone[0], alone[1]);

    let producer = Box::new(drive::demo(&ctx, Pi05Options::default()));
    let weights = producer.weights_bytes();
    let before = ctx.memory();
    let mut model = Model::open(producer, &["a".into(), "b".into()]).unwrap();
    assert_eq!(model.sets[0].fingerprint(), model.sets[1].fingerprint());
    let grown = ctx.memory().device_bytes - before.device_bytes;
    println!("weights {weights} bytes, two sets {grown} device bytes");
    // Uneven turns: a a b a b b a b
    let (mut at, mut got) = ([0u32; 2], [Vec::new(), Vec::new()]);
    for which in [0, 0, 1, 0, 1, 1, 0, 1] {
        let set = &mut model.sets[which];
        feed(set, which, at[which]);
        got[which].push(bits(&tick(set)));
        at[which] += 1;
    }
    assert_eq!(got.to_vec(), alone);

    // No buffer is shared, and both were enqueued at once without waiting in between.
    let ids = |s: &LiveSet| {
        s.buffers()
            .iter()
            .map(flashrt_exec::Buffer::id)
            .collect::<Vec<_>>()
    };
    assert!(ids(&model.sets[0])
        .iter()
        .all(|id| !ids(&model.sets[1]).contains(id)));
}
