//! A recorded run, replayed without ROS: the same chunk bytes, twice.

mod common;
use std::io::Cursor;
use std::sync::Mutex;
use std::time::Duration;

use common::bag::{Bag, Message};
use common::*;
use flashrt_session::bag::{BagSource, McapSink, McapSource};
use flashrt_session::core::Core;
use flashrt_session::messages::*;
use flashrt_session::replay::{replay_with, ReplayOptions, ReplayReport};
use flashrt_session::*;

const NODE: &str = "/cell/policy_node";

struct Live {
    engine: Engine,
    clock: std::sync::Arc<FakeClock>,
    bag: std::sync::Arc<Bag>,
}

impl Live {
    fn new(width: usize) -> Live {
        let clock = FakeClock::new();
        let bag = std::sync::Arc::new(Bag::new(NODE));
        let engine = Engine::new(clock.clone(), bag.clone());
        engine
            .configure_with(toy_config(), Box::new(move |c| Ok(toy(c, width))))
            .unwrap();
        engine.activate().unwrap();
        Live { engine, clock, bag }
    }
    fn ok(&self, command: Command) -> Outcome {
        let outcome = self.engine.call(command, Duration::from_secs(20));
        assert_eq!(outcome.code, ResultCode::Ok, "{outcome:?}");
        outcome
    }
    fn image(&self, fill: u8, stamp_ns: i64) {
        let data = [fill; 16];
        let m = ImageMessage {
            stamp_ns,
            width: 2,
            height: 2,
            encoding: "rgb8",
            is_bigendian: false,
            step: 8,
            data: &data,
        };
        self.bag.put("/cell/camera/image", IMAGE, m.encode());
        self.engine
            .push_image("front", image(2, 2, "rgb8", 8, &data), stamp_ns);
    }
    fn state(&self, a: f64, stamp_ns: i64) {
        let names: Vec<String> = ["elbow", "other", "shoulder"].map(String::from).to_vec();
        let m = JointsMessage {
            stamp_ns,
            names,
            positions: vec![0.2, 9.0, a],
        };
        self.bag.put("/cell/joint_states", JOINT_STATE, m.encode());
        self.engine.push_joints(
            JointsRef {
                names: &m.names,
                positions: &m.positions,
            },
            stamp_ns,
        );
    }
    fn tick(&self, fill: u8) {
        self.clock.advance_ms(10);
        let now = self.clock.ros_ns();
        self.image(fill.wrapping_add(1), now - 2 * MS);
        self.image(fill, now - MS);
        self.state(f64::from(fill) / 100.0, now);
        self.ok(Command::Tick(TickRequest::default()));
    }
}

fn toy(config: &Config, width: usize) -> Box<dyn Core> {
    Box::new(ToyCore::new(config, Default::default(), width))
}

fn run(mcap: &[u8], width: usize) -> Result<(ReplayReport, Vec<u8>), SessionError> {
    let config = toy_config();
    let core = toy(&config, width);
    let mut out = McapSink::new(Cursor::new(Vec::new())).unwrap();
    let report = replay_with(
        config,
        core,
        &ReplayOptions::default(),
        &mut McapSource::new(mcap.to_vec()),
        &mut out,
    )?;
    Ok((report, out.into_inner().into_inner()))
}

fn chunks_of(mcap: &[u8]) -> Vec<Vec<u8>> {
    let mut chunks = Vec::new();
    McapSource::new(mcap.to_vec())
        .for_each(&mut |m| {
            assert_eq!(m.topic, "/cell/policy_node/action_chunk");
            chunks.push(m.data.to_vec());
            Ok(())
        })
        .unwrap();
    chunks
}

#[test]
fn every_kind_of_command_replays_to_the_same_chunk_messages() {
    for width in [2, 5] {
        let live = Live::new(width);
        live.tick(1);
        live.tick(2);
        live.ok(snapshot("a"));
        live.tick(3);
        // A refused tick, an action-only tick, a tick on old inputs, an unstamped image.
        live.clock.advance_ms(500);
        assert_eq!(
            live.engine
                .call(
                    Command::Tick(TickRequest::default()),
                    Duration::from_secs(20)
                )
                .code,
            ResultCode::StaleInput
        );
        live.ok(Command::Tick(TickRequest {
            action_only: true,
            ..TickRequest::default()
        }));
        live.tick(4);
        live.clock.advance_ms(5);
        live.ok(Command::Tick(TickRequest::default()));
        live.image(77, 0);
        live.state(0.7, live.clock.ros_ns());
        live.ok(Command::Tick(TickRequest::default()));
        // A prompt, then a capsule under it, without a tick between.
        live.ok(Command::Prompt("stop".into()));
        live.ok(snapshot("b"));
        live.tick(5);
        live.ok(restore("a"));
        live.tick(6);
        live.ok(restore("b"));
        live.tick(7);
        live.ok(Command::Fork {
            name: "a".into(),
            session: "alt".into(),
            switch_to: true,
        });
        live.tick(8);
        live.ok(Command::Reset { keep_prompt: false });
        live.tick(9);
        live.ok(Command::Prompt("stop".into()));
        live.ok(Command::Reset { keep_prompt: true });
        live.tick(10);
        let generated = live.ok(Command::Snapshot {
            name: None,
            tier: None,
            overwrite: false,
            exclude: vec!["rng".into()],
        });
        live.tick(11);
        live.ok(Command::Restore {
            name: generated.name,
            allow_partial: true,
        });
        live.tick(12);
        live.ok(Command::Drop { name: "b".into() });
        live.ok(Command::Rollback(RollbackTarget::Name("a".into())));
        live.tick(13);
        live.ok(Command::TimeJump { delta_ns: -1 });
        live.tick(14);
        live.engine.deactivate().unwrap();
        live.engine.activate().unwrap();
        live.tick(15);
        let mcap = live.bag.mcap();
        let expected = live.bag.chunks();
        assert!(expected.len() > 15);
        let (report, out) = run(&mcap, width).unwrap();
        assert_eq!(report.mismatches, []);
        assert_eq!(report.refused, 1);
        assert_eq!(report.tick_log_topic, "/cell/policy_node/tick_log");
        assert_eq!(chunks_of(&out), expected);
        let (again, twice) = run(&mcap, width).unwrap();
        assert_eq!(again, report);
        assert_eq!(twice, out, "two runs give identical files");
    }
}

#[test]
fn another_model_is_a_mismatch_not_a_success() {
    let live = Live::new(2);
    live.tick(1);
    live.tick(2);
    let mut config = toy_config();
    // Another prompt length before the first tick gives other actions; the log then brings the live one.
    config.prompt.text = "other".into();
    let core = toy(&config, 2);
    let mut out = McapSink::new(Cursor::new(Vec::new())).unwrap();
    let mcap = live.bag.mcap();
    let report = replay_with(
        config,
        core,
        &ReplayOptions::default(),
        &mut McapSource::new(mcap.clone()),
        &mut out,
    )
    .unwrap();
    assert_eq!(report.mismatches, [], "the log's prompt is used");
    let mut messages = live.bag.messages.lock().unwrap();
    for m in messages.iter_mut().filter(|m| m.1 == TICK_LOG) {
        let mut r = decode_tick_log(&m.2).unwrap();
        if r.tick == 2 {
            r.actions_hash ^= 1;
            m.2 = encode_tick_log(&r);
        }
    }
    drop(messages);
    let (report, _) = run(&live.bag.mcap(), 2).unwrap();
    assert_eq!(report.mismatches.len(), 1);
    assert_eq!(report.mismatches[0].tick, 2);
}

#[test]
fn what_the_bag_lacks_is_named() {
    let live = Live::new(2);
    live.tick(1);
    live.ok(snapshot("a"));
    live.tick(2);
    live.ok(restore("a"));
    live.tick(3);
    let without = |drop: &dyn Fn(usize, &Message) -> bool| {
        let all = live.bag.messages.lock().unwrap();
        let kept = all
            .iter()
            .enumerate()
            .filter(|(i, m)| !drop(*i, m))
            .map(|(_, m)| m.clone())
            .collect();
        Bag {
            node: NODE,
            messages: Mutex::new(kept),
        }
        .mcap()
    };
    let is_log = |m: &Message, of: &dyn Fn(&TickRecord) -> bool| {
        m.1 == TICK_LOG && of(&decode_tick_log(&m.2).unwrap())
    };
    let e = run(&without(&|_, m| m.1 == TICK_LOG), 2).unwrap_err();
    assert_eq!(e.code, ResultCode::NotFound);
    assert!(
        e.message.contains("no flashrt_ros/msg/TickLog message"),
        "{e}"
    );
    let e = run(&without(&|_, m| m.1 == JOINT_STATE), 2).unwrap_err();
    assert!(
        e.message.contains("tick 1 of main used state stamped")
            && e.message.contains("the bag lacks it"),
        "{e}"
    );
    let e = run(
        &without(&|_, m| is_log(m, &|r| r.operation == "snapshot")),
        2,
    )
    .unwrap_err();
    assert_eq!(e.code, ResultCode::NotFound);
    assert!(e.message.contains("restore: no capsule a"), "{e}");
    let e = run(
        &without(&|_, m| is_log(m, &|r| r.operation.is_empty() && r.tick == 1)),
        2,
    )
    .unwrap_err();
    assert!(
        e.message
            .contains("the log has tick 2 where the replay is at 1"),
        "{e}"
    );
    let mcap = live.bag.mcap();
    let e = run(&mcap[..mcap.len() / 2], 2).unwrap_err();
    assert_eq!(e.code, ResultCode::Corrupt);
    assert!(run(b"not a bag at all", 2).is_err());
}

#[test]
fn several_tick_logs_need_a_choice() {
    let live = Live::new(2);
    live.tick(1);
    let other = live
        .bag
        .messages
        .lock()
        .unwrap()
        .iter()
        .find(|m| m.1 == TICK_LOG)
        .unwrap()
        .2
        .clone();
    live.bag.put("/other/tick_log", TICK_LOG, other);
    let e = run(&live.bag.mcap(), 2).unwrap_err();
    assert_eq!(
        e.message,
        "the bag has several tick logs, name one: /cell/policy_node/tick_log, /other/tick_log"
    );
}
