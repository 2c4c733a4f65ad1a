//! Configure, activate, deactivate, cleanup of the engine, and misuse of them.

mod common;
use common::*;
use flashrt_session::lifecycle::State;
use flashrt_session::*;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

const EVERY_MUTATION: fn() -> Vec<Command> = || {
    vec![
        snapshot("a"),
        restore("a"),
        Command::Rollback(RollbackTarget::Steps(1)),
        Command::Fork {
            name: "a".into(),
            session: "alt".into(),
            switch_to: false,
        },
        Command::Reset { keep_prompt: true },
        Command::Drop { name: "a".into() },
        Command::Prepare {
            graph: String::new(),
            key: 5,
            evict: false,
        },
        Command::Tick(TickRequest::default()),
        Command::Describe,
        Command::Prompt("go".into()),
    ]
};

#[test]
fn before_configure_commands_answer_not_configured_and_list_is_empty() {
    let rig = Rig::new();
    for command in EVERY_MUTATION() {
        assert_eq!(rig.call(command).code, ResultCode::NotConfigured);
    }
    let list = rig.ok(Command::List);
    assert!(list.capsules.is_empty());
    assert_eq!(list.cursor, -1);
    let data = [0; 12];
    assert_eq!(
        rig.engine
            .push_image("front", image(2, 2, "rgb8", 6, &data), 1),
        PushOutcome::Ignored
    );
    assert_eq!(
        rig.engine.activate().unwrap_err().code,
        ResultCode::WrongState
    );
    assert_eq!(rig.engine.state(), State::Unconfigured);
}

#[test]
fn case_76_a_second_activate_answers_false_and_nothing_doubles() {
    let rig = Rig::active(toy_config());
    assert_eq!(
        rig.engine.activate().unwrap_err().code,
        ResultCode::WrongState
    );
    assert_eq!(rig.engine.state(), State::Active);
    rig.tick(1);
    rig.step_commands(1);
    rig.clock.advance_ms(100);
    rig.wait_for("second row", || rig.sink.commands().len() == 2);
    settle();
    assert_eq!(
        rig.sink.commands().len(),
        2,
        "one emitter, one row a period"
    );
    assert_eq!(
        rig.engine.configure(toy_config()).unwrap_err().code,
        ResultCode::WrongState
    );
}

#[test]
fn case_86_a_failed_configure_leaves_nothing_and_a_corrected_one_works() {
    let rig = Rig::new();
    // No such folder.
    let e = rig.engine.configure(toy_config()).unwrap_err();
    assert_eq!(e.code, ResultCode::Io);
    assert!(e.message.contains("nowhere"), "{e}");
    assert_eq!(rig.engine.state(), State::Unconfigured);
    // A joint map that does not fit the model, found after the core was built.
    let e = rig.configure(toy_config(), 1).unwrap_err();
    assert_eq!(
        e.message,
        "ports.state.joints: the model's state has 1 values, got 2 joints"
    );
    assert_eq!(
        rig.control.alive.load(SeqCst),
        0,
        "the half-built core is gone"
    );
    // A panic while loading.
    let e = rig
        .engine
        .configure_with(toy_config(), Box::new(|_| panic!("no memory")))
        .unwrap_err();
    assert_eq!(
        (e.code, e.message.as_str()),
        (ResultCode::Internal, "panic in configure: no memory")
    );
    assert_eq!(rig.engine.state(), State::Unconfigured);
    assert!(rig.engine.status().ports.is_empty());
    rig.configure(toy_config(), 2).unwrap();
    assert_eq!(rig.engine.state(), State::Inactive);
    let edges: Vec<u8> = rig
        .sink
        .events()
        .into_iter()
        .filter_map(|e| match e {
            Event::Transition(t) => Some(t.id),
            _ => None,
        })
        .collect();
    assert_eq!(edges, [1, 11, 1, 11, 1, 11, 1, 10]);
}

#[test]
fn execute_rows_and_views_are_checked_against_the_model() {
    let rig = Rig::new();
    let mut config = toy_config();
    config.chunk.execute_rows = 4;
    let e = rig.configure(config, 2).unwrap_err();
    assert_eq!(
        e.message,
        "chunk.execute_rows: the model's chunk has 3 rows, got 4"
    );
    let mut config = toy_config();
    config.images.push(config.images[0].clone());
    let e = rig.configure(config, 2).unwrap_err();
    assert_eq!(
        e.message,
        "ports.images: the model takes 1 views, got 2 (front, front)"
    );
}

#[test]
fn case_84_configure_and_cleanup_twenty_times_leave_one_core_at_a_time() {
    let rig = Rig::new();
    for _ in 0..20 {
        rig.configure(toy_config(), 2).unwrap();
        assert_eq!(rig.control.alive.load(SeqCst), 1);
        rig.engine.cleanup().unwrap();
        assert_eq!(rig.control.alive.load(SeqCst), 0);
    }
}

#[test]
fn case_88_a_panic_in_a_tick_is_caught_and_told() {
    let rig = Rig::active(toy_config());
    rig.tick(1);
    rig.control.panics_at_tick.store(2, SeqCst);
    rig.push_all(1);
    let outcome = rig.call(Command::Tick(TickRequest::default()));
    assert_eq!(
        (outcome.code, outcome.message.as_str()),
        (ResultCode::Internal, "panic in a tick: toy panic at tick 2")
    );
    rig.wait_state(State::Inactive);
    let told = |e: &Event| {
        matches!(
            e,
            Event::Error {
                code: ResultCode::Internal,
                ..
            }
        )
    };
    assert!(rig.sink.events().iter().any(told));
    assert!(rig.engine.status().error.contains("toy panic"));
    // Everything but looking is refused until cleanup and configure.
    assert_eq!(
        rig.engine.activate().unwrap_err().code,
        ResultCode::Poisoned
    );
    assert_eq!(rig.engine.state(), State::Inactive);
    assert_eq!(rig.call(snapshot("a")).code, ResultCode::Poisoned);
    rig.ok(Command::List);
    rig.ok(Command::Describe);
    rig.control.panics_at_tick.store(0, SeqCst);
    rig.engine.cleanup().unwrap();
    rig.configure(toy_config(), 2).unwrap();
    rig.engine.activate().unwrap();
    assert!(rig.engine.status().error.is_empty());
    rig.tick(1);
}

#[test]
fn case_162_a_device_error_is_an_error_state_without_a_retry_loop() {
    let rig = Rig::active(config(&toy_yaml(
        "{mode: rate, rate_hz: 10}",
        "{control_rate_hz: 10}",
        "{topic: c, limits: 'off', max_step: 'off'}",
    )));
    rig.control.fails_at_tick.store(1, SeqCst);
    rig.push_all(1);
    rig.clock.advance_ms(50);
    rig.push_all(1);
    rig.clock.advance_ms(60);
    rig.wait_state(State::Inactive);
    let refused = rig.engine.status().ticks_refused;
    for _ in 0..5 {
        rig.clock.advance_ms(100);
        rig.push_all(1);
    }
    settle();
    assert_eq!(rig.engine.status().ticks_refused, refused);
    assert_eq!(rig.sink.records().pop().unwrap().code, ResultCode::Device);
}

#[test]
fn case_94_deactivate_then_cleanup_while_inputs_arrive() {
    let rig = Rig::active(toy_config());
    let pusher = {
        let (engine, clock) = (rig.engine.clone(), rig.clock.clone());
        std::thread::spawn(move || {
            let data = [1; 12];
            for _ in 0..300 {
                engine.push_image("front", image(2, 2, "rgb8", 6, &data), clock.ros_ns());
                std::thread::sleep(Duration::from_micros(200));
            }
        })
    };
    rig.tick(1);
    rig.engine.deactivate().unwrap();
    rig.engine.cleanup().unwrap();
    assert_eq!(rig.engine.state(), State::Unconfigured);
    rig.configure(toy_config(), 2).unwrap();
    rig.engine.activate().unwrap();
    rig.tick(1);
    pusher.join().unwrap();
}

#[test]
fn case_168_a_stuck_tick_holds_up_neither_emitter_nor_deactivate() {
    let rig = Rig::active(toy_config());
    rig.tick(1);
    for n in 1..=3 {
        rig.step_commands(n);
    }
    let stuck = rig.hang(2);
    // The emitter goes on: two holds (250 ms), then starved.
    rig.step_commands(4);
    rig.step_commands(5);
    rig.clock.advance_ms(100);
    rig.wait_for("starved", || rig.engine.status().chunk_state == "starved");
    assert!(rig.sink.commands()[3..]
        .iter()
        .all(|c| c.is_hold && c.row == 2));
    let asked = rig.engine.call(Command::List, Duration::from_millis(10));
    assert_eq!(asked.code, ResultCode::Accepted, "services answer");
    let started = Instant::now();
    rig.engine.deactivate().unwrap();
    assert!(started.elapsed() < Duration::from_secs(5));
    let chunks = rig.sink.chunks().len();
    rig.control.is_stuck.store(false, SeqCst);
    let outcome = stuck.wait(Duration::from_secs(20)).unwrap();
    assert_eq!((outcome.code, outcome.chunk_id), (ResultCode::Cancelled, 0));
    assert_eq!(
        rig.sink.chunks().len(),
        chunks,
        "its chunk is not published"
    );
    let listed = rig
        .engine
        .operation_status(asked.op_id)
        .unwrap()
        .wait(Duration::from_secs(20))
        .unwrap();
    assert_eq!(listed.code, ResultCode::Ok);
    rig.engine.activate().unwrap();
    rig.tick(1);
}

#[test]
fn ticks_need_active_and_prepare_needs_inactive() {
    let rig = Rig::configured(toy_config());
    assert_eq!(
        rig.call(Command::Tick(TickRequest::default())).code,
        ResultCode::WrongState
    );
    let prepare = || Command::Prepare {
        graph: String::new(),
        key: 10,
        evict: false,
    };
    assert_eq!(rig.ok(prepare()).variants, 2);
    let unknown = Command::Prepare {
        graph: "nope".into(),
        key: 10,
        evict: false,
    };
    assert_eq!(rig.call(unknown).code, ResultCode::NotFound);
    rig.engine.activate().unwrap();
    assert_eq!(rig.call(prepare()).code, ResultCode::WrongState);
    rig.engine.deactivate().unwrap();
    rig.ok(prepare());
}

#[test]
fn shutdown_is_possible_from_every_primary_state_and_final() {
    for stage in 0..3 {
        let rig = Rig::new();
        if stage > 0 {
            rig.configure(toy_config(), 2).unwrap();
        }
        if stage > 1 {
            rig.engine.activate().unwrap();
        }
        rig.engine.shutdown().unwrap();
        assert_eq!(rig.engine.state(), State::Finalized);
        assert_eq!(rig.control.alive.load(SeqCst), 0);
        assert_eq!(
            rig.engine.configure(toy_config()).unwrap_err().code,
            ResultCode::WrongState
        );
        assert_eq!(
            rig.engine.shutdown().unwrap_err().code,
            ResultCode::WrongState
        );
    }
}

#[test]
fn a_dropped_engine_ends_its_threads() {
    let rig = Rig::active(toy_config());
    let control = rig.control.clone();
    drop(rig);
    wait_for("the core to go", || control.alive.load(SeqCst) == 0);
}

#[test]
fn cleanup_cancels_what_waits() {
    let rig = Rig::active(toy_config());
    let request = TickRequest {
        not_before_ns: i64::MAX,
        wait_ms: 3_600_000,
        ..TickRequest::default()
    };
    let tick = rig.engine.submit(Command::Tick(request)).unwrap();
    let behind = rig.engine.submit(snapshot("a")).unwrap();
    settle();
    assert!(tick.poll().is_none() && behind.poll().is_none());
    rig.engine.deactivate().unwrap();
    assert_eq!(
        tick.wait(Duration::from_secs(20)).unwrap().code,
        ResultCode::Cancelled
    );
    assert_eq!(
        behind.wait(Duration::from_secs(20)).unwrap().code,
        ResultCode::Ok,
        "boundary commands work while Inactive"
    );
    rig.engine.cleanup().unwrap();
}
