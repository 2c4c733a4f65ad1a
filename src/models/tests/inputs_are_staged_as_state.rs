//! What is staged in buffers is all there is: it survives, it is cleared where it must be, and it travels.

mod common;

use common::drive::{self, bits, tick};
use flashrt_models::pi05::Pi05Options;
use flashrt_runtime::{LiveSet, Producer, StateClass};

fn set(seed: u64) -> LiveSet {
    let options = Pi05Options {
        seed,
        ..Pi05Options::default()
    };
    drive::golden(&drive::context(1), options)
        .build("a")
        .unwrap()
}

fn feed(s: &mut LiveSet, text: &str) {
    drive::set_text(s, text).unwrap();
    drive::set_state(s, &[0.1, -0.3, 0.5, 0.7, 0.9, -0.2]).unwrap();
    drive::set_pictures(s, 32, 1);
}

#[test]
fn case_156_a_shorter_prompt_clears_the_tail_and_an_old_image_stays() {
    let mut a = set(1);
    feed(&mut a, "put the cube on the red pad");
    tick(&mut a);
    drive::set_text(&mut a, "cube").unwrap();
    let tokens = drive::buffer(&a, "in_tokens");
    assert!(
        tokens[4 * 10..].iter().all(|&b| b == 0),
        "bos, cube, state, six bins, action; then padding"
    );
    assert_eq!(
        drive::buffer(&a, "in_mask")[32..]
            .iter()
            .filter(|&&m| m == 1)
            .count(),
        10
    );
    let after = tick(&mut a);

    // The same as a set that never saw the longer prompt, with the generator one draw on.
    let mut b = set(1);
    feed(&mut b, "put the cube on the red pad");
    tick(&mut b);
    let mut c = set(1);
    feed(&mut c, "cube");
    let rng = drive::buffer(&b, "rng");
    c.context()
        .upload(&c.buffer("rng").unwrap().all(), &rng)
        .unwrap();
    assert_eq!(bits(&tick(&mut c)), bits(&after));
}

#[test]
fn the_order_of_state_and_prompt_does_not_matter() {
    let (mut a, mut b) = (set(1), set(1));
    feed(&mut a, "put the cube on the blue pad");
    drive::set_pictures(&mut b, 32, 1);
    drive::set_state(&mut b, &[0.1, -0.3, 0.5, 0.7, 0.9, -0.2]).unwrap();
    drive::set_text(&mut b, "put the cube on the blue pad").unwrap();
    assert_eq!(
        drive::buffer(&a, "in_tokens"),
        drive::buffer(&b, "in_tokens")
    );
    assert_eq!(bits(&tick(&mut a)), bits(&tick(&mut b)));
}

#[test]
fn every_input_matters() {
    let run = |change: &dyn Fn(&mut LiveSet)| {
        let mut s = set(1);
        feed(&mut s, "put the cube on the red pad");
        change(&mut s);
        bits(&tick(&mut s))
    };
    let base = run(&|_| ());
    assert_eq!(run(&|_| ()), base);
    for (what, changed) in [
        ("image", run(&|s| drive::set_pictures(s, 32, 2))),
        (
            "state",
            run(&|s| drive::set_state(s, &[0.1, -0.3, 0.5, 0.7, 0.9, 0.2]).unwrap()),
        ),
        (
            "prompt",
            run(&|s| drive::set_text(s, "put the cube on the blue pad").unwrap()),
        ),
    ] {
        assert_ne!(changed, base, "{what}");
    }
    let mut other = set(2);
    feed(&mut other, "put the cube on the red pad");
    assert_ne!(bits(&tick(&mut other)), base, "seed");
}

/// Copies the continuation regions of one set over those of another, as a capsule does.
fn transfer(from: &LiveSet, to: &LiveSet) {
    for (a, b) in from.regions().iter().zip(to.regions()) {
        assert_eq!(
            (&a.name, a.class, a.slice.bytes()),
            (&b.name, b.class, b.slice.bytes())
        );
        if a.class == StateClass::Continuation {
            let mut bytes = vec![0; a.slice.bytes()];
            from.context().download(&a.slice, &mut bytes).unwrap();
            to.context().upload(&b.slice, &bytes).unwrap();
        }
    }
}

#[test]
fn a_restored_set_carries_its_instruction() {
    let mut a = set(1);
    feed(&mut a, "put_the cube  on the blue pad");
    tick(&mut a);
    // Another process's set with another prompt, another seed and garbage elsewhere.
    let mut b = set(2);
    feed(&mut b, "put the cube on the red pad");
    tick(&mut b);
    for r in b.regions() {
        b.context()
            .upload(&r.slice, &vec![0x5A; r.slice.bytes()])
            .unwrap();
    }
    transfer(&a, &b);

    // On cached context first, then with new state under the restored instruction.
    for k in 0..2 {
        for s in [&mut a, &mut b] {
            drive::run(s, "action", 5);
        }
        assert_eq!(
            bits(&drive::output(&mut a, "actions")),
            bits(&drive::output(&mut b, "actions")),
            "{k}"
        );
        for s in [&mut a, &mut b] {
            drive::set_state(s, &[0.4 - k as f32, 0.0, 0.1, 0.0, 0.2, 0.9]).unwrap();
        }
        assert_eq!(
            drive::buffer(&a, "in_tokens"),
            drive::buffer(&b, "in_tokens")
        );
        assert_eq!(bits(&tick(&mut a)), bits(&tick(&mut b)), "{k}");
    }
}

#[test]
fn a_broken_prompt_block_is_an_error_not_a_panic() {
    let mut s = set(1);
    feed(&mut s, "cube");
    for bytes in [
        u32::MAX.to_le_bytes(),
        145u32.to_le_bytes(),
        0xA5A5_A5A5u32.to_le_bytes(),
    ] {
        s.buffer("in_prompt")
            .unwrap()
            .host_write(0, &bytes)
            .unwrap();
        let error = drive::set_state(&mut s, &[0.0; 6]).unwrap_err();
        assert!(
            error.to_string().contains("in_prompt holds no text"),
            "{error}"
        );
    }
    drive::set_text(&mut s, "cube").unwrap();
    drive::set_state(&mut s, &[0.0; 6]).unwrap();
}

#[test]
fn garbage_in_index_buffers_never_leaves_the_tables() {
    let mut s = set(1);
    feed(&mut s, "cube");
    for pattern in [0xA5, 0x5A, 0xFF] {
        for name in ["in_tokens", "in_mask", "key_mask", "rng", "in_state", "kv"] {
            let b = s.buffer(name).unwrap().all();
            s.context().upload(&b, &vec![pattern; b.bytes()]).unwrap();
        }
        tick(&mut s);
        drive::run(&mut s, "action", 10);
    }
}
