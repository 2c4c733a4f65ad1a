//! Bags whose tick log or inputs are made up: an error or a report, never a panic; and images and joints at the edge.

mod common;
use std::io::Cursor;
use std::sync::Arc;

use common::*;
use flashrt_session::bag::{BagMessage, BagSink, McapSink, McapSource};
use flashrt_session::messages::*;
use flashrt_session::replay::{replay_with, ReplayOptions, ReplayReport};
use flashrt_session::*;
use proptest::prelude::*;

fn replay(messages: &[(&str, &str, Vec<u8>)]) -> Result<ReplayReport, SessionError> {
    let mut sink = McapSink::new(Cursor::new(Vec::new())).unwrap();
    for (topic, type_name, data) in messages {
        let message = BagMessage {
            topic,
            type_name,
            log_time_ns: 1,
            data,
        };
        sink.write(&message, "").unwrap();
    }
    sink.finish().unwrap();
    let bag = sink.into_inner().into_inner();
    let config = toy_config();
    let core = Box::new(ToyCore::new(&config, Default::default(), 2));
    let mut out = McapSink::new(Cursor::new(Vec::new())).unwrap();
    replay_with(
        config,
        core,
        &ReplayOptions::default(),
        &mut McapSource::new(bag),
        &mut out,
    )
}

fn record(operation: &'static str) -> TickRecord {
    TickRecord {
        stamp_ns: 1_000,
        session: Arc::from("main"),
        epoch: 1,
        tick: 1,
        code: ResultCode::Ok,
        plan: "full",
        key: 5,
        ports: Vec::new(),
        prompt: Arc::from("go"),
        actions_hash: 0,
        chunk_id: 1,
        latency_ms: 1.0,
        operation,
        capsule: Arc::from(""),
        target: Arc::from(""),
        options: Arc::from(""),
    }
}

fn with_log(log: &[TickRecord]) -> Result<ReplayReport, SessionError> {
    let messages: Vec<_> = log
        .iter()
        .map(|r| ("/n/tick_log", TICK_LOG, encode_tick_log(r)))
        .collect();
    replay(&messages)
}

#[test]
fn numbers_at_the_edge_of_their_types_do_not_overflow() {
    for (epoch, tick, chunk_id, stamp_ns) in [
        (u64::MAX, u64::MAX, u64::MAX, i64::MAX),
        (u64::MAX, 1, u64::MAX, i64::MIN),
        (0, 0, 0, 0),
    ] {
        for operation in [
            "activate",
            "snapshot",
            "restore",
            "rollback",
            "fork",
            "reset",
            "drop",
            "time_jump",
            "",
        ] {
            let mut hostile = record(operation);
            (
                hostile.epoch,
                hostile.tick,
                hostile.chunk_id,
                hostile.stamp_ns,
            ) = (epoch, tick, chunk_id, stamp_ns);
            let mut after = hostile.clone();
            after.operation = "reset";
            let mut action = record("");
            (action.plan, action.chunk_id) = ("action", 0);
            let _ = with_log(&[record("activate"), hostile, after.clone(), after, action]);
        }
    }
}

#[test]
fn names_that_are_nowhere_are_named_in_the_error() {
    let mut port = record("");
    port.ports = vec![TickPortRecord {
        name: Arc::from("images.nowhere"),
        stamp_ns: 1,
        hash: 1,
        is_new: true,
    }];
    let mut absent = record("");
    absent.ports = vec![TickPortRecord {
        name: Arc::from("state"),
        stamp_ns: 77,
        hash: 0xabc,
        is_new: true,
    }];
    let mut capsule = record("restore");
    capsule.capsule = Arc::from("../../etc/passwd");
    let mut set = record("fork");
    (set.capsule, set.target) = (Arc::from("a"), Arc::from("nowhere"));
    let mut prompt = record("activate");
    prompt.prompt = Arc::from("a prompt of more than twenty bytes");
    for (what, log, word) in [
        ("a port", vec![record("activate"), port], "images.nowhere"),
        (
            "an input",
            vec![record("activate"), absent],
            "the bag lacks it",
        ),
        ("a capsule", vec![record("activate"), capsule], "passwd"),
        ("a live set", vec![record("activate"), set], "fork"),
        ("a prompt", vec![prompt], "prompt"),
    ] {
        let error = with_log(&log).expect_err(what);
        assert!(error.message.contains(word), "{what}: {error}");
    }
}

#[test]
fn messages_that_claim_more_than_they_hold_are_format_errors() {
    let mut image = vec![0, 1, 0, 0];
    image.extend([0; 8]);
    image.extend(1u32.to_le_bytes());
    image.extend([0; 4]);
    image.extend([255; 20]);
    let log = (
        "/n/tick_log",
        TICK_LOG,
        encode_tick_log(&record("activate")),
    );
    for (topic, type_name, data) in [
        ("/camera/image", IMAGE, image),
        ("/camera/image", IMAGE, vec![]),
        ("/camera/image", IMAGE, vec![0, 0, 0, 0, 1, 2, 3, 4]),
        (
            "/joint_states",
            JOINT_STATE,
            [vec![0, 1, 0, 0], vec![255; 60]].concat(),
        ),
        (
            "/n/tick_log",
            TICK_LOG,
            [vec![0, 1, 0, 0], vec![255; 200]].concat(),
        ),
    ] {
        let error = replay(&[log.clone(), (topic, type_name, data)]).expect_err(topic);
        assert_eq!(error.code, ResultCode::Format, "{topic}: {error}");
    }
}

#[test]
fn images_that_the_model_could_not_take_are_refused_at_the_boundary() {
    let rig = Rig::active(toy_config());
    let wide = vec![0; 3 * 40_000];
    let long = format!("bayer_{}16", "x".repeat(1 << 20));
    for (what, refused) in [
        ("wide", image(40_000, 1, "rgb8", 120_000, &wide)),
        ("tall", image(1, 40_000, "rgb8", 3, &wide)),
        ("a long encoding", image(40, 40, &long, 1, &wide)),
        (
            "a long encoding, short data",
            image(40, 4_000, &long, 80, &wide),
        ),
    ] {
        let PushOutcome::Refused { reason, .. } =
            rig.engine.push_image("front", refused, rig.now())
        else {
            panic!("{what} was accepted");
        };
        assert!(
            reason.len() < 300,
            "{what}: a reason of {} bytes",
            reason.len()
        );
    }
}

#[test]
fn a_million_joints_are_answered_soon() {
    let rig = Rig::active(toy_config());
    let names: Vec<String> = (0..1_000_000).map(|i| format!("j{i}")).collect();
    let positions = vec![0.0; names.len()];
    let start = std::time::Instant::now();
    let joints = JointsRef {
        names: &names,
        positions: &positions,
    };
    let PushOutcome::Refused { reason, .. } = rig.engine.push_joints(joints, rig.now()) else {
        panic!("accepted");
    };
    assert!(
        reason.contains("shoulder") && reason.len() < 300,
        "{reason}"
    );
    assert!(start.elapsed().as_secs() < 2, "{:?}", start.elapsed());
}

#[test]
fn prompts_of_any_kind_change_nothing() {
    let rig = Rig::active(toy_config());
    let before = rig.engine.status().prompt;
    for prompt in ["x".repeat(100 << 20), String::new(), "a\0b".repeat(1000)] {
        let outcome = rig
            .engine
            .call(Command::Prompt(prompt), std::time::Duration::from_secs(20));
        assert_ne!(outcome.code, ResultCode::Ok);
        assert!(
            outcome.message.len() < 1000,
            "an answer of {} bytes",
            outcome.message.len()
        );
        assert_eq!(rig.engine.status().prompt, before);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn changed_logs_never_panic(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4), which in 0usize..3) {
        let log = [record("activate"), record("snapshot"), record("reset")];
        let mut messages: Vec<_> = log.iter().map(|r| ("/n/tick_log", TICK_LOG, encode_tick_log(r))).collect();
        for (at, value) in changes {
            let data = &mut messages[which].2;
            let i = at.index(data.len());
            data[i] = value;
        }
        let _ = replay(&messages);
    }
}
