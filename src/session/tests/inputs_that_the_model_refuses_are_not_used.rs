//! An input that passes the boundary and is then refused by the model takes no part in any later tick.

mod common;
use common::*;
use flashrt_session::*;

/// Passes the checks of the port; the toy model takes at most 4096 columns.
fn push_too_wide(rig: &Rig) {
    let data = vec![9; 5000 * 3];
    let outcome = rig
        .engine
        .push_image("front", image(5000, 1, "rgb8", 15_000, &data), rig.now());
    assert_eq!(outcome, PushOutcome::Accepted);
}

#[test]
fn a_tick_does_not_claim_an_image_that_the_model_never_took() {
    let rig = Rig::active(toy_config());
    rig.tick(1);
    rig.clock.advance_ms(10);
    push_too_wide(&rig);
    for _ in 0..2 {
        rig.push_state([0.1, 0.2], rig.now());
        let outcome = rig.call(Command::Tick(TickRequest::default()));
        // The second time too: the model still holds the picture before it.
        assert_eq!(outcome.code, ResultCode::Shape, "{outcome:?}");
        assert_eq!(outcome.message, "width 5000 > 4096");
        rig.clock.advance_ms(10);
    }
    assert_eq!(rig.sink.chunks().len(), 1);
    assert_eq!(rig.engine.status().ticks_refused, 2);
    // The next good picture ends it.
    rig.tick(2);
    let chunk = rig.sink.chunks().pop().unwrap();
    assert_eq!(chunk.stamp_ns, rig.now());
    let record = rig.sink.records().pop().unwrap();
    assert!(record.ports.iter().all(|p| p.is_new), "{:?}", record.ports);
}

#[test]
fn a_state_that_came_with_a_refused_image_is_handed_over_with_the_next_one() {
    let rig = Rig::active(toy_config());
    rig.tick(1);
    rig.clock.advance_ms(10);
    push_too_wide(&rig);
    rig.push_state([0.7, 0.8], rig.now());
    let refused = rig.call(Command::Tick(TickRequest::default()));
    assert_eq!(refused.code, ResultCode::Shape);
    rig.clock.advance_ms(10);
    rig.push_image(1, rig.now());
    rig.ok(Command::Tick(TickRequest::default()));
    let chunk = rig.sink.chunks().pop().unwrap();
    assert!(
        (chunk.data[0] - 0.7).abs() < 0.1,
        "computed from another state than the record says: {:?}",
        chunk.data
    );
}

#[test]
fn a_new_epoch_forgets_what_was_refused() {
    let rig = Rig::active(toy_config());
    rig.tick(1);
    rig.ok(snapshot("a"));
    push_too_wide(&rig);
    assert_eq!(
        rig.call(Command::Tick(TickRequest::default())).code,
        ResultCode::Shape
    );
    rig.ok(restore("a"));
    assert_eq!(
        rig.call(Command::Tick(TickRequest::default())).code,
        ResultCode::StaleInput
    );
    rig.tick(1);
}
