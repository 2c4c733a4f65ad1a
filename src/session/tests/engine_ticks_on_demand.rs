//! One tick per request, with the gate in front.

mod common;
use common::*;
use flashrt_session::*;

#[test]
fn a_tick_publishes_the_chunk_of_the_newest_inputs() {
    let rig = Rig::active(toy_config());
    let outcome = rig.tick(3);
    assert_eq!((outcome.epoch, outcome.tick, outcome.chunk_id), (1, 1, 1));
    let chunks = rig.sink.chunks();
    assert_eq!(chunks.len(), 1);
    assert_eq!(chunks[0].names, JOINTS);
    assert_eq!(chunks[0].data.len(), ROWS * 2);
    assert_eq!(chunks[0].stamp_ns, rig.now());
    let record = rig
        .sink
        .records()
        .into_iter()
        .find(|r| r.operation.is_empty())
        .unwrap();
    assert_eq!(record.plan, "full");
    assert_eq!(record.key, 5);
    assert_eq!(record.prompt.as_ref(), "go");
    let names: Vec<&str> = record.ports.iter().map(|p| p.name.as_ref()).collect();
    assert_eq!(names, ["images.front", "state"]);
    assert!(record.ports.iter().all(|p| p.is_new));
    assert_ne!(record.actions_hash, 0);
}

#[test]
fn case_28_old_image_is_refused_and_named_with_its_age() {
    let rig = Rig::active(toy_config());
    rig.push_image(1, rig.now());
    rig.clock.advance_ms(800);
    rig.push_state([0.0, 0.0], rig.now() - 10 * MS);
    let outcome = rig.call(Command::Tick(TickRequest::default()));
    assert_eq!(outcome.code, ResultCode::StaleInput);
    assert_eq!(outcome.message, "images.front: age 800.0 ms > 100.0 ms");
    assert!(rig.sink.chunks().is_empty());
    let status = rig.engine.status();
    assert_eq!(status.ticks_refused, 1);
    assert!(
        status.last_refusal.contains("images.front"),
        "{}",
        status.last_refusal
    );
    assert!(rig.port("images.front").is_stale);
    assert!(!rig.port("state").is_stale);
    let record = rig.sink.records().pop().unwrap();
    assert_eq!(record.code, ResultCode::StaleInput);
}

#[test]
fn case_26_ticks_stop_when_a_camera_dies_and_go_on_when_it_returns() {
    let rig = Rig::active(toy_config());
    rig.tick(1);
    for _ in 0..5 {
        rig.clock.advance_ms(60);
        rig.push_state([0.0, 0.0], rig.now());
        rig.call(Command::Tick(TickRequest::default()));
    }
    // One more tick was inside max_age_ms, the others were refused.
    assert_eq!(rig.sink.chunks().len(), 2);
    assert_eq!(rig.engine.status().ticks_refused, 4);
    rig.tick(2);
    assert_eq!(rig.sink.chunks().len(), 3);
}

#[test]
fn case_156_a_tick_records_which_ports_were_written() {
    let rig = Rig::active(toy_config());
    rig.tick(1);
    rig.clock.advance_ms(10);
    rig.push_state([0.3, 0.4], rig.now());
    rig.ok(Command::Tick(TickRequest::default()));
    let record = rig.sink.records().pop().unwrap();
    let is_new: Vec<(String, bool)> = record
        .ports
        .iter()
        .map(|p| (p.name.to_string(), p.is_new))
        .collect();
    assert_eq!(
        is_new,
        [("images.front".into(), false), ("state".into(), true)]
    );
}

#[test]
fn a_tick_uses_the_newest_inputs_at_or_before_its_time() {
    let rig = Rig::active(toy_config());
    let t = rig.now();
    rig.clock.advance_ms(50);
    for (fill, ms) in [(1, 0), (2, 20), (3, 40)] {
        rig.push_image(fill, t + ms * MS);
        rig.push_state([f64::from(fill), 0.0], t + ms * MS);
    }
    rig.ok(Command::Tick(TickRequest {
        stamp_ns: t + 30 * MS,
        ..TickRequest::default()
    }));
    let chunk = rig.sink.chunks().pop().unwrap();
    assert_eq!(chunk.stamp_ns, t + 20 * MS);
    assert_eq!(chunk.observation_age_ns, 10 * MS);
    assert!((chunk.data[0] - 2.0).abs() < 0.1, "{}", chunk.data[0]);
    let port = rig.port("images.front");
    assert_eq!(
        (port.received, port.used, port.superseded, port.pending),
        (3, 1, 1, 1)
    );
}

#[test]
fn a_tick_waits_for_inputs_that_are_new_enough() {
    let rig = Rig::active(toy_config());
    rig.tick(1);
    rig.clock.advance_ms(10);
    let request = TickRequest {
        not_before_ns: rig.now(),
        wait_ms: 60_000,
        ..TickRequest::default()
    };
    let operation = rig.engine.submit(Command::Tick(request)).unwrap();
    settle();
    assert!(operation.poll().is_none());
    rig.push_image(2, rig.now());
    settle();
    assert!(operation.poll().is_none(), "the state is still old");
    rig.push_state([0.5, 0.5], rig.now());
    let outcome = operation.wait(std::time::Duration::from_secs(20)).unwrap();
    assert_eq!(outcome.code, ResultCode::Ok, "{outcome:?}");
    assert_eq!(rig.sink.chunks().len(), 2);
}

#[test]
fn the_wait_for_inputs_ends() {
    let rig = Rig::active(toy_config());
    rig.tick(1);
    let request = TickRequest {
        not_before_ns: rig.now() + 5 * MS,
        wait_ms: 50,
        ..TickRequest::default()
    };
    let operation = rig.engine.submit(Command::Tick(request)).unwrap();
    settle();
    assert!(operation.poll().is_none());
    rig.clock.advance_ms(51);
    let outcome = operation.wait(std::time::Duration::from_secs(20)).unwrap();
    assert_eq!(outcome.code, ResultCode::StaleInput);
    assert!(outcome.message.contains("too old"), "{}", outcome.message);
}

#[test]
fn action_only_runs_on_the_cached_context_and_says_how_old_it_is() {
    let rig = Rig::active(toy_config());
    let early = rig.call(Command::Tick(TickRequest {
        action_only: true,
        ..TickRequest::default()
    }));
    assert_eq!(early.code, ResultCode::WrongState);
    rig.tick(1);
    let stamp = rig.now();
    rig.clock.advance_ms(500);
    rig.push_state([0.9, 0.9], rig.now());
    rig.ok(Command::Tick(TickRequest {
        action_only: true,
        ..TickRequest::default()
    }));
    let chunk = rig.sink.chunks().pop().unwrap();
    assert_eq!(chunk.context_age_ticks, 1);
    assert_eq!(chunk.stamp_ns, stamp, "anchored to what the context saw");
    assert!(
        chunk.data[0] < 0.5,
        "the newer state is not in this chunk: {}",
        chunk.data[0]
    );
    assert_eq!(rig.sink.records().pop().unwrap().plan, "action");
}

#[test]
fn the_context_runs_on_every_nth_tick() {
    let rig = Rig::active(config(&toy_yaml(
        "{mode: trigger, context_every: 3}",
        "{control_rate_hz: 10}",
        "{topic: c, limits: 'off', max_step: 'off'}",
    )));
    for _ in 0..7 {
        rig.tick(1);
    }
    let plans: Vec<&str> = rig
        .sink
        .records()
        .iter()
        .filter(|r| r.operation.is_empty())
        .map(|r| r.plan)
        .collect();
    assert_eq!(
        plans,
        [
            "context_action",
            "action",
            "action",
            "context_action",
            "action",
            "action",
            "context_action"
        ]
    );
}

#[test]
fn case_52_a_chunk_with_nan_is_never_published() {
    let rig = Rig::active(toy_config());
    rig.control
        .gives_nan
        .store(true, std::sync::atomic::Ordering::SeqCst);
    rig.push_all(1);
    let outcome = rig.call(Command::Tick(TickRequest::default()));
    assert_eq!(outcome.code, ResultCode::NonFinite);
    assert!(outcome.message.contains("elbow"), "{}", outcome.message);
    assert!(rig.sink.chunks().is_empty());
    rig.control
        .gives_nan
        .store(false, std::sync::atomic::Ordering::SeqCst);
    rig.tick(1);
    assert_eq!(rig.sink.chunks().len(), 1);
}

#[test]
fn case_50_exactly_the_mapped_joints_are_published() {
    let rig = Rig::with_width(toy_config(), 32);
    rig.engine.activate().unwrap();
    rig.tick(1);
    let chunk = rig.sink.chunks().pop().unwrap();
    assert_eq!(chunk.names, JOINTS);
    assert_eq!(chunk.data.len(), ROWS * 2);
    assert!(
        chunk.data.iter().all(|v| *v < 1.0),
        "the tail of 77 leaked: {:?}",
        chunk.data
    );
    rig.step_commands(1);
    let command = rig.sink.commands()[0].clone();
    assert_eq!(command.names, JOINTS);
    assert_eq!(command.positions.len(), 2);
}

#[test]
fn case_160_a_bad_prompt_leaves_the_previous_one() {
    let rig = Rig::active(toy_config());
    let wait = std::time::Duration::from_secs(20);
    for (text, code) in [
        (
            "this prompt has too many letters",
            ResultCode::PromptTooLong,
        ),
        ("", ResultCode::PromptEmpty),
    ] {
        let outcome = rig.engine.push_prompt(text).unwrap().wait(wait).unwrap();
        assert_eq!(outcome.code, code);
        assert_eq!(rig.engine.status().prompt, "go");
    }
    rig.engine.push_prompt("stop").unwrap().wait(wait).unwrap();
    assert_eq!(rig.engine.status().prompt, "stop");
    rig.tick(1);
    assert_eq!(rig.sink.records().pop().unwrap().prompt.as_ref(), "stop");
}

#[test]
fn case_172_latency_is_in_the_status_and_a_slow_tick_is_warned_about() {
    let rig = Rig::active(toy_config());
    rig.tick(1);
    assert_eq!(rig.engine.status().deadline_misses, 0);
    *rig.control.clock.lock().unwrap() = Some(rig.clock.clone());
    rig.control
        .run_advances_ms
        .store(150, std::sync::atomic::Ordering::SeqCst);
    rig.tick(1);
    let status = rig.engine.status();
    assert_eq!(status.deadline_misses, 1);
    assert_eq!(status.tick_ms_last, 150.0);
    assert_eq!(status.tick_ms_max, 150.0);
    let warned =
        |e: &Event| matches!(e, Event::Warning(text) if text.contains("150.0 ms, deadline 100 ms"));
    assert!(rig.sink.events().iter().any(warned));
}
