//! Stamps ahead of the clock: such messages wait, but they keep no later message out.

mod common;
use common::*;
use flashrt_session::*;

const HOUR_MS: i64 = 3_600_000;

#[test]
fn a_camera_whose_clock_was_wrong_for_a_while_comes_back() {
    let rig = Rig::active(toy_config());
    rig.tick(1);
    for i in 0..40 {
        rig.push_image(9, rig.now() + HOUR_MS * MS + i * MS);
        settle_a_little();
    }
    for fill in 2..6 {
        rig.clock.advance_ms(30);
        rig.tick(fill);
        let chunk = rig.sink.chunks().pop().unwrap();
        assert_eq!(chunk.stamp_ns, rig.now(), "computed from the new picture");
    }
}

/// Lets the device thread drain its inbox: the ring is what is tested.
fn settle_a_little() {
    std::thread::sleep(std::time::Duration::from_micros(500));
}

#[test]
fn a_robot_whose_clock_was_wrong_for_a_while_comes_back() {
    let rig = Rig::active(toy_config());
    for i in 0..100 {
        rig.push_state([9.0, 9.0], rig.now() + HOUR_MS * MS + i * MS);
        settle_a_little();
    }
    rig.clock.advance_ms(10);
    rig.tick(1);
    let chunk = rig.sink.chunks().pop().unwrap();
    assert!(chunk.data[0] < 1.0, "{:?}", chunk.data);
}

#[test]
fn the_refusal_says_how_far_ahead_the_inputs_are() {
    let rig = Rig::active(toy_config());
    rig.push_image(1, rig.now() + 1500 * MS);
    rig.push_image(1, rig.now() + 1200 * MS);
    rig.push_state([0.1, 0.2], rig.now());
    let outcome = rig.call(Command::Tick(TickRequest::default()));
    assert_eq!(outcome.code, ResultCode::StaleInput);
    assert_eq!(
        outcome.message,
        "images.front: no input at or before the tick; the earliest is stamped 1200.0 ms after it"
    );
    // When its time comes it is used.
    rig.clock.advance_ms(1200);
    rig.push_state([0.1, 0.2], rig.now());
    rig.ok(Command::Tick(TickRequest::default()));
}
