//! Snapshot, restore, fork, rollback, reset: order, epochs, and what they answer.

mod common;
use common::*;
use flashrt_session::*;
use proptest::prelude::*;
use std::collections::HashMap;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

const WAIT: Duration = Duration::from_secs(20);

#[test]
fn a_restore_repeats_the_chunks_and_a_partial_one_does_not() {
    let rig = Rig::active(toy_config());
    rig.tick(1);
    rig.ok(snapshot("here"));
    let exclude = vec!["rng".to_string()];
    rig.ok(Command::Snapshot {
        name: Some("partial".into()),
        tier: None,
        overwrite: false,
        exclude,
    });
    let run = || -> Vec<Vec<f32>> {
        let before = rig.sink.chunks().len();
        (2..7).for_each(|fill| drop(rig.tick(fill)));
        rig.sink.chunks()[before..]
            .iter()
            .map(|c| c.data.clone())
            .collect()
    };
    let first = run();
    let restored = rig.ok(restore("here"));
    assert_eq!((restored.epoch, restored.tick, restored.bytes), (2, 1, 100));
    assert_eq!(run(), first);
    assert_eq!(rig.call(restore("partial")).code, ResultCode::Partial);
    rig.ok(Command::Restore {
        name: "partial".into(),
        allow_partial: true,
    });
    assert_ne!(
        run(),
        first,
        "without its noise generator the state is another"
    );
}

#[test]
fn case_96_a_restore_during_a_tick_lands_behind_it_and_nothing_old_follows() {
    let rig = Rig::active(toy_config());
    rig.tick(1);
    rig.ok(snapshot("start"));
    let first = rig.tick(2);
    let expected = rig.sink.chunks().pop().unwrap().data;
    assert_eq!(first.tick, 2);
    for round in 0..100 {
        rig.control.is_stuck.store(true, SeqCst);
        rig.push_all(9);
        let tick = rig
            .engine
            .submit(Command::Tick(TickRequest::default()))
            .unwrap();
        rig.wait_for("the tick to run", || {
            rig.control.is_in_run.load(SeqCst) || tick.poll().is_some()
        });
        let back = rig.engine.submit(restore("start")).unwrap();
        rig.clock.advance_ms(round % 7 * 20);
        rig.control.is_stuck.store(false, SeqCst);
        let done = back.wait(WAIT).unwrap();
        assert_eq!(done.code, ResultCode::Ok, "{done:?}");
        let commands = rig.sink.commands().len();
        assert_eq!(rig.engine.status().rows_left, 0);
        rig.tick(2);
        let chunk = rig.sink.chunks().pop().unwrap();
        assert_eq!((chunk.epoch, chunk.tick), (done.epoch, 2));
        assert_eq!(chunk.data, expected, "round {round}");
        rig.step_commands(commands + 1);
        let after = rig.sink.commands();
        assert!(
            after[commands..].iter().all(|c| c.epoch == done.epoch),
            "{:?}",
            &after[commands..]
        );
        assert_eq!(after[commands].row, 0);
    }
}

#[test]
fn case_98_rows_of_the_old_epoch_are_gone_after_each_kind_of_new_epoch() {
    let rig = Rig::active(toy_config());
    rig.tick(1);
    rig.ok(snapshot("a"));
    type Begin = fn(&Rig);
    let new_epochs: [(&str, Begin); 5] = [
        ("restore", |r| drop(r.ok(restore("a")))),
        ("rollback", |r| {
            drop(r.ok(Command::Rollback(RollbackTarget::Name("a".into()))))
        }),
        ("reset", |r| {
            drop(r.ok(Command::Reset { keep_prompt: true }))
        }),
        ("time jump", |r| {
            drop(r.ok(Command::TimeJump {
                delta_ns: -5_000_000_000,
            }))
        }),
        ("reactivation", |r| {
            r.engine.deactivate().unwrap();
            r.engine.activate().unwrap();
        }),
    ];
    for (what, begin) in new_epochs {
        let before = rig.sink.commands().len();
        rig.tick(3);
        rig.step_commands(before + 1);
        assert!(rig.engine.status().rows_left > 0, "{what}");
        let old = rig.engine.status().epoch;
        begin(&rig);
        let sent = rig.sink.commands().len();
        for _ in 0..3 {
            rig.clock.advance_ms(100);
            settle();
        }
        // Neither a queued row nor a hold.
        assert_eq!(rig.sink.commands().len(), sent, "{what}");
        // Inputs of the old epoch are no inputs of the new one.
        let refused = rig.call(Command::Tick(TickRequest::default()));
        assert_eq!(refused.code, ResultCode::StaleInput, "{what}");
        assert_eq!(
            refused.message, "images.front: no input in this epoch",
            "{what}"
        );
        rig.tick(3);
        rig.step_commands(sent + 1);
        let first = rig.sink.commands()[sent].clone();
        assert_eq!(
            (first.epoch, first.row, first.is_hold),
            (old + 1, 0, false),
            "{what}"
        );
    }
}

#[test]
fn case_56_nothing_is_sent_when_nothing_was_commanded() {
    let rig = Rig::active(toy_config());
    for _ in 0..5 {
        rig.clock.advance_ms(100);
    }
    settle();
    rig.engine.deactivate().unwrap();
    assert!(rig.sink.commands().is_empty());
    // The same after a restore with a command in the epoch before.
    rig.engine.activate().unwrap();
    rig.tick(1);
    rig.step_commands(1);
    rig.ok(snapshot("a"));
    rig.ok(restore("a"));
    let sent = rig.sink.commands().len();
    rig.clock.advance_ms(100);
    settle();
    rig.engine.deactivate().unwrap();
    assert_eq!(rig.sink.commands().len(), sent);
}

#[test]
fn case_90_while_inactive_nothing_is_sent_and_nothing_is_counted_as_sent() {
    let rig = Rig::active(toy_config());
    rig.tick(1);
    rig.step_commands(1);
    rig.engine.deactivate().unwrap();
    let counted = rig.engine.status();
    for _ in 0..5 {
        rig.clock.advance_ms(100);
    }
    settle();
    assert_eq!(rig.sink.commands().len(), 1);
    let now = rig.engine.status();
    assert_eq!(
        (now.commands, now.holds, now.chunks),
        (counted.commands, counted.holds, counted.chunks)
    );
    // The hold of the next activation knows nothing of this one.
    rig.engine.activate().unwrap();
    rig.clock.advance_ms(100);
    settle();
    assert_eq!(rig.sink.commands().len(), 1);
}

#[test]
fn case_54_the_first_command_of_an_epoch_is_measured_from_where_the_robot_is() {
    let mut config = toy_config();
    config.command.max_step = Some(vec![0.05, 0.05]);
    let rig = Rig::active(config);
    // 10x10x3 of 50 moves every action by 1.5 rad.
    let data = [50; 300];
    rig.engine
        .push_image("front", image(10, 10, "rgb8", 30, &data), rig.now());
    rig.push_state([0.3, -0.3], rig.now());
    rig.ok(Command::Tick(TickRequest::default()));
    for n in 1..=3 {
        rig.step_commands(n);
    }
    let commands = rig.sink.commands();
    let expected = [[0.35, -0.25], [0.40, -0.20], [0.45, -0.15]];
    for (c, e) in commands.iter().zip(expected) {
        assert!(
            c.positions.iter().zip(e).all(|(a, b)| (a - b).abs() < 1e-9),
            "{c:?}"
        );
    }
    let status = rig.engine.status();
    assert_eq!(status.limited, 6);
}

#[test]
fn case_54_refused_rows_are_not_sent() {
    let mut config = toy_config();
    config.command.max_step = Some(vec![0.05, 0.05]);
    config.command.limit_reaction = config::LimitReaction::Refuse;
    let rig = Rig::active(config);
    let data = [50; 300];
    rig.engine
        .push_image("front", image(10, 10, "rgb8", 30, &data), rig.now());
    rig.push_state([0.3, -0.3], rig.now());
    rig.ok(Command::Tick(TickRequest::default()));
    rig.clock.advance_ms(100);
    // The emitter's first step may meet the chunk already, and its second one the next row.
    rig.wait_for("the row to be counted", || rig.engine.status().limited >= 1);
    assert!(rig.sink.commands().is_empty());
}

#[test]
fn case_100_a_late_caller_learns_the_result() {
    let rig = Rig::active(toy_config());
    rig.tick(1);
    rig.ok(snapshot("a"));
    let _tick = rig.hang(1);
    let answer = rig.engine.call(restore("a"), Duration::from_millis(20));
    assert_eq!(answer.code, ResultCode::Accepted);
    assert!(rig
        .engine
        .operation_status(answer.op_id)
        .unwrap()
        .poll()
        .is_none());
    rig.control.is_stuck.store(false, SeqCst);
    let late = rig
        .engine
        .operation_status(answer.op_id)
        .unwrap()
        .wait(WAIT)
        .unwrap();
    assert_eq!(
        (late.code, late.kind, late.name.as_str()),
        (ResultCode::Ok, "restore", "a")
    );
    // And again, later.
    assert_eq!(
        rig.engine.operation_status(answer.op_id).unwrap().poll(),
        Some(late)
    );
    assert!(rig.engine.operation_status(999_999).is_none());
}

#[test]
fn case_102_an_abandoned_call_does_not_answer_the_next_one() {
    let rig = Rig::active(toy_config());
    rig.tick(1);
    rig.ok(snapshot("a"));
    let _tick = rig.hang(1);
    let a = rig.engine.call(snapshot("b"), Duration::from_millis(5));
    let b = rig.engine.submit(restore("nope")).unwrap();
    rig.control.is_stuck.store(false, SeqCst);
    let outcome = b.wait(WAIT).unwrap();
    assert_eq!(
        (outcome.code, outcome.kind),
        (ResultCode::NotFound, "restore")
    );
    let a = rig
        .engine
        .operation_status(a.op_id)
        .unwrap()
        .wait(WAIT)
        .unwrap();
    assert_eq!((a.code, a.kind), (ResultCode::Ok, "snapshot"));
}

#[test]
fn case_104_each_failure_has_its_own_code() {
    let rig = Rig::active(toy_config());
    rig.tick(1);
    rig.ok(snapshot("a"));
    let fork = |name: &str, session: &str| Command::Fork {
        name: name.into(),
        session: session.into(),
        switch_to: false,
    };
    for (command, code) in [
        (restore("b"), ResultCode::NotFound),
        (restore("../b"), ResultCode::BadName),
        (snapshot("a/b"), ResultCode::BadName),
        (snapshot("a"), ResultCode::Exists),
        (
            Command::Rollback(RollbackTarget::Steps(9)),
            ResultCode::NotFound,
        ),
        (
            Command::Rollback(RollbackTarget::AgeS(f64::NAN)),
            ResultCode::BadArgument,
        ),
        (
            Command::Rollback(RollbackTarget::AgeS(-1.0)),
            ResultCode::BadArgument,
        ),
        (fork("a", "nobody"), ResultCode::NoSession),
        (fork("a", "main"), ResultCode::NoSession),
        (fork("b", "alt"), ResultCode::NotFound),
        (Command::Drop { name: "b".into() }, ResultCode::NotFound),
    ] {
        let epoch = rig.engine.status().epoch;
        let outcome = rig.call(command.clone());
        assert_eq!(outcome.code, code, "{command:?} {}", outcome.message);
        assert_eq!(
            rig.engine.status().epoch,
            epoch,
            "a failed command starts no epoch: {command:?}"
        );
    }
    // The queue of rows is as it was.
    rig.step_commands(1);
}

#[test]
fn a_fork_writes_an_idle_set_and_may_switch_to_it() {
    let rig = Rig::active(toy_config());
    rig.tick(1);
    rig.ok(snapshot("a"));
    rig.tick(2);
    let main = rig.sink.chunks().pop().unwrap();
    let forked = rig.ok(Command::Fork {
        name: "a".into(),
        session: "alt".into(),
        switch_to: false,
    });
    assert_eq!(
        (forked.session.as_str(), forked.epoch, forked.tick),
        ("alt", 1, 1)
    );
    assert_eq!(rig.engine.status().session, "main");
    // The active set goes on undisturbed.
    rig.tick(3);
    assert_eq!(rig.sink.chunks().pop().unwrap().epoch, 1);
    let forked = rig.ok(Command::Fork {
        name: "a".into(),
        session: "alt".into(),
        switch_to: true,
    });
    assert_eq!(forked.epoch, 2);
    rig.tick(2);
    let alt = rig.sink.chunks().pop().unwrap();
    assert_eq!((alt.session.as_str(), alt.epoch, alt.tick), ("alt", 2, 2));
    assert_eq!(alt.data, main.data);
    // Now main is the idle one.
    rig.ok(Command::Fork {
        name: "a".into(),
        session: "main".into(),
        switch_to: true,
    });
    assert_eq!(rig.engine.status().session, "main");
}

#[test]
fn a_restored_prompt_wins_until_a_newer_message_comes() {
    let rig = Rig::active(toy_config());
    rig.tick(1);
    rig.ok(snapshot("a"));
    rig.engine.push_prompt("stop").unwrap().wait(WAIT).unwrap();
    let outcome = rig.ok(restore("a"));
    assert_eq!(outcome.prompt, "go");
    assert_eq!(rig.engine.status().prompt, "go");
    rig.tick(1);
    assert_eq!(rig.sink.records().pop().unwrap().prompt.as_ref(), "go");
    rig.engine.push_prompt("stop").unwrap().wait(WAIT).unwrap();
    assert_eq!(rig.engine.status().prompt, "stop");
}

#[test]
fn reset_is_the_state_after_configure() {
    let rig = Rig::active(toy_config());
    let run = || -> Vec<Vec<f32>> {
        let before = rig.sink.chunks().len();
        (1..4).for_each(|fill| drop(rig.tick(fill)));
        rig.sink.chunks()[before..]
            .iter()
            .map(|c| c.data.clone())
            .collect()
    };
    let first = run();
    assert_ne!(run(), first);
    rig.engine.push_prompt("stop").unwrap().wait(WAIT).unwrap();
    let outcome = rig.ok(Command::Reset { keep_prompt: false });
    assert_eq!((outcome.prompt.as_str(), outcome.tick), ("go", 0));
    assert_eq!(run(), first);
    rig.engine.push_prompt("stop").unwrap().wait(WAIT).unwrap();
    assert_eq!(rig.ok(Command::Reset { keep_prompt: true }).prompt, "stop");
    assert_ne!(run(), first);
}

#[test]
fn capsules_are_listed_with_their_age_in_every_state() {
    let rig = Rig::configured(toy_config());
    rig.ok(snapshot("a"));
    rig.clock.advance_ms(2500);
    let generated = rig.ok(Command::Snapshot {
        name: None,
        tier: Some(Tier::Host),
        overwrite: false,
        exclude: vec![],
    });
    assert_eq!(generated.capsule.as_ref().map(|c| c.tier), Some(Tier::Host));
    let list = rig.ok(Command::List).capsules;
    let seen: Vec<(&str, f64)> = list.iter().map(|c| (c.name.as_str(), c.age_s)).collect();
    assert_eq!(seen, [("a", 2.5), (generated.name.as_str(), 0.0)]);
    assert_eq!(rig.engine.status().capsules, 2);
    assert_eq!(rig.ok(Command::Drop { name: "a".into() }).bytes, 100);
    assert_eq!(rig.engine.status().capsules, 1);
}

#[test]
fn finished_operations_are_kept_for_a_while_and_running_ones_always() {
    let rig = Rig::active(toy_config());
    let request = TickRequest {
        not_before_ns: i64::MAX,
        wait_ms: 3_600_000,
        ..TickRequest::default()
    };
    let first = rig.ok(Command::List).op_id;
    for _ in 0..300 {
        rig.ok(Command::List);
    }
    assert!(rig.engine.operation_status(first).is_none());
    let waiting = rig.engine.submit(Command::Tick(request)).unwrap().op_id();
    let behind: Vec<Operation> = (0..300)
        .map(|_| rig.engine.submit(Command::List).unwrap())
        .collect();
    assert!(rig.engine.operation_status(waiting).is_some());
    assert!(behind
        .iter()
        .all(|o| rig.engine.operation_status(o.op_id()).is_some()));
    rig.engine.deactivate().unwrap();
    assert!(behind.iter().all(|o| o.wait(WAIT).is_some()));
}

/// Follows the operation log as one serial history and checks that every answer fits into it.
fn check_serial(records: &[TickRecord], outcomes: &[Outcome]) {
    let mut saved: HashMap<String, u64> = HashMap::new();
    let mut epochs: HashMap<String, u64> = HashMap::new();
    let mut by_epoch: HashMap<u64, u64> = HashMap::new();
    let mut tick = 0;
    for r in records {
        match r.operation {
            "" if r.code.is_ok() => {
                assert_eq!(r.tick, tick + 1, "a tick follows the state before it");
                tick = r.tick;
            }
            "snapshot" => {
                assert_eq!(r.tick, tick);
                saved.insert(r.capsule.to_string(), tick);
            }
            "restore" => {
                assert_eq!(
                    Some(&r.tick),
                    saved.get(r.capsule.as_ref()),
                    "restore gives the newest snapshot of that name"
                );
                tick = r.tick;
                let last = epochs.insert(r.session.to_string(), r.epoch).unwrap_or(0);
                assert_eq!(r.epoch, last + 1);
                by_epoch.insert(r.epoch, r.tick);
            }
            "activate" => drop(epochs.insert(r.session.to_string(), r.epoch)),
            _ => {}
        }
    }
    for o in outcomes
        .iter()
        .filter(|o| o.code.is_ok() && o.kind == "restore")
    {
        assert_eq!(by_epoch.get(&o.epoch), Some(&o.tick), "{o:?}");
    }
}

#[test]
fn case_106_a_thousand_interleaved_commands_have_one_order() {
    let rig = Rig::active(toy_config());
    rig.tick(1);
    for name in ["a", "b", "c"] {
        rig.ok(snapshot(name));
    }
    let workers: Vec<_> = (0..3u64)
        .map(|worker| {
            let (engine, clock) = (rig.engine.clone(), rig.clock.clone());
            std::thread::spawn(move || {
                let mut seed = worker + 1;
                let mut outcomes = Vec::new();
                for _ in 0..334 {
                    seed = seed
                        .wrapping_mul(6364136223846793005)
                        .wrapping_add(1442695040888963407);
                    let name = ["a", "b", "c"][(seed >> 33) as usize % 3].to_string();
                    let command = match (seed >> 40) % 4 {
                        0 => Command::Snapshot {
                            name: Some(name),
                            tier: None,
                            overwrite: true,
                            exclude: vec![],
                        },
                        1 => restore(&name),
                        2 => Command::Fork {
                            name,
                            session: "alt".into(),
                            switch_to: false,
                        },
                        _ => {
                            let data = [seed as u8; 12];
                            engine.push_image(
                                "front",
                                image(2, 2, "rgb8", 6, &data),
                                clock.ros_ns(),
                            );
                            let names = JOINTS.map(String::from);
                            engine.push_joints(
                                JointsRef {
                                    names: &names,
                                    positions: &[0.1, 0.2],
                                },
                                clock.ros_ns(),
                            );
                            Command::Tick(TickRequest::default())
                        }
                    };
                    outcomes.push(engine.call(command, WAIT));
                }
                outcomes
            })
        })
        .collect();
    let outcomes: Vec<Outcome> = workers
        .into_iter()
        .flat_map(|w| w.join().unwrap())
        .collect();
    assert_eq!(outcomes.len(), 1002);
    for o in &outcomes {
        // A tick may find its inputs flushed by somebody's restore; nothing else may fail.
        assert!(
            o.code.is_ok() || (o.kind == "tick" && o.code == ResultCode::StaleInput),
            "{o:?}"
        );
    }
    check_serial(&rig.sink.records(), &outcomes);
    let ok = |kind: &str| {
        outcomes
            .iter()
            .filter(|o| o.kind == kind && o.code.is_ok())
            .count()
    };
    assert!(ok("snapshot") > 100 && ok("restore") > 100 && ok("fork") > 100 && ok("tick") > 10);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20))]
    /// Epochs only increase, whatever is done.
    #[test]
    fn epochs_only_increase(ops in prop::collection::vec(0u8..6, 1..30)) {
        let rig = Rig::active(toy_config());
        rig.tick(1);
        rig.ok(snapshot("a"));
        for op in ops {
            match op {
                0 => drop(rig.tick(2)),
                1 => drop(rig.ok(restore("a"))),
                2 => drop(rig.ok(Command::Reset { keep_prompt: true })),
                3 => drop(rig.call(Command::Rollback(RollbackTarget::Steps(1)))),
                4 => {
                    let session = if rig.engine.status().session == "main" { "alt" } else { "main" };
                    rig.ok(Command::Fork { name: "a".into(), session: session.into(), switch_to: true });
                }
                _ => drop(rig.call(restore("nope"))),
            }
        }
        let mut last: HashMap<String, u64> = HashMap::new();
        for r in rig.sink.records() {
            let before = last.insert(r.session.to_string(), r.epoch).unwrap_or(0);
            prop_assert!(r.epoch >= before);
        }
    }
}
