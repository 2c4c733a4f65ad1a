//! The demo's deployment with its real policy through the engine.

mod common;
use std::io::Cursor;
use std::sync::Arc;
use std::time::Duration;

use common::bag::Bag;
use common::*;
use flashrt_session::bag::{BagSource, McapSink, McapSource};
use flashrt_session::config::TickMode;
use flashrt_session::messages::*;
use flashrt_session::replay::{replay, ReplayOptions};
use flashrt_session::*;

const WAIT: Duration = Duration::from_secs(120);

struct Demo {
    engine: Engine,
    clock: Arc<FakeClock>,
    bag: Arc<Bag>,
}

fn trigger_config() -> Config {
    let mut config = demo_config();
    config.tick.mode = TickMode::Trigger;
    config
}

impl Demo {
    fn new() -> Demo {
        let clock = FakeClock::new();
        let bag = Arc::new(Bag::new("/policy_node"));
        let engine = Engine::new(clock.clone(), bag.clone());
        engine
            .configure(trigger_config())
            .unwrap_or_else(|e| panic!("{e}"));
        engine.activate().unwrap();
        Demo { engine, clock, bag }
    }
    fn call(&self, command: Command) -> Outcome {
        self.engine.call(command, WAIT)
    }
    fn ok(&self, command: Command) -> Outcome {
        let outcome = self.call(command);
        assert_eq!(outcome.code, ResultCode::Ok, "{outcome:?}");
        outcome
    }
    /// One lockstep tick on frame `n`; returns the chunk.
    fn tick(&self, n: u32) -> Vec<f32> {
        self.clock.advance_ms(100);
        let now = self.clock.ros_ns();
        for (view, salt) in [("workspace", 1), ("wrist", 2)] {
            let data: Vec<u8> = (0..64u32 * 48 * 3)
                .map(|i| (i * (n + salt) / 7) as u8)
                .collect();
            let m = ImageMessage {
                stamp_ns: now,
                width: 64,
                height: 48,
                encoding: "rgb8",
                is_bigendian: false,
                step: 192,
                data: &data,
            };
            self.bag
                .put(&format!("/camera/{view}/image"), IMAGE, m.encode());
            assert_eq!(
                self.engine
                    .push_image(view, image(64, 48, "rgb8", 192, &data), now),
                PushOutcome::Accepted
            );
        }
        let names = trigger_config().joint_names();
        let positions: Vec<f64> = (0..6).map(|j| 0.05 * f64::from(n + j)).collect();
        let m = JointsMessage {
            stamp_ns: now,
            names,
            positions,
        };
        self.bag.put("/joint_states", JOINT_STATE, m.encode());
        self.engine.push_joints(
            JointsRef {
                names: &m.names,
                positions: &m.positions,
            },
            now,
        );
        self.ok(Command::Tick(TickRequest {
            not_before_ns: now,
            wait_ms: 1000,
            ..TickRequest::default()
        }));
        decode_chunk(self.bag.chunks().last().unwrap())
            .unwrap()
            .data
    }
    fn pass(&self) -> Vec<Vec<f32>> {
        (10..15).map(|n| self.tick(n)).collect()
    }
}

#[test]
fn restore_fork_reset_and_replay_are_exact_and_the_control_differs() {
    let demo = Demo::new();
    let start = demo.tick(0);
    demo.tick(1);
    demo.ok(snapshot("mid"));
    let exclude = vec!["rng".to_string()];
    demo.ok(Command::Snapshot {
        name: Some("control".into()),
        tier: Some(Tier::Host),
        overwrite: false,
        exclude,
    });
    let first = demo.pass();
    assert!(first.iter().flatten().all(|v| v.is_finite()));
    assert_ne!(first[0], first[1]);
    let restored = demo.ok(restore("mid"));
    assert_eq!(
        (restored.tick, restored.epoch, restored.prompt.as_str()),
        (2, 2, "put the cube on the red pad")
    );
    assert_eq!(demo.pass(), first);
    demo.ok(Command::Restore {
        name: "control".into(),
        allow_partial: true,
    });
    assert_ne!(
        demo.pass(),
        first,
        "without its generator the second pass must differ"
    );
    demo.ok(Command::Fork {
        name: "mid".into(),
        session: "alt".into(),
        switch_to: true,
    });
    assert_eq!(demo.pass(), first);
    // Another prompt changes the chunk; reset brings the first one and the generator's seed back.
    demo.ok(restore("mid"));
    demo.ok(Command::Prompt("put the cube on the blue pad".into()));
    assert_ne!(demo.pass(), first);
    demo.ok(Command::Reset { keep_prompt: false });
    assert_eq!(demo.tick(0), start);
    // Action-only on the cached context, then out.
    demo.ok(Command::Tick(TickRequest {
        action_only: true,
        ..TickRequest::default()
    }));
    demo.engine.deactivate().unwrap();
    demo.engine.cleanup().unwrap();

    let bag = demo.bag.mcap();
    let offline = || {
        let mut out = McapSink::new(Cursor::new(Vec::new())).unwrap();
        let mut source = McapSource::new(bag.clone());
        let report = replay(
            trigger_config(),
            &ReplayOptions::default(),
            &mut source,
            &mut out,
        )
        .unwrap();
        assert_eq!(report.mismatches, []);
        out.into_inner().into_inner()
    };
    let once = offline();
    let mut chunks = Vec::new();
    McapSource::new(once.clone())
        .for_each(&mut |m| {
            chunks.push(m.data.to_vec());
            Ok(())
        })
        .unwrap();
    assert_eq!(chunks, demo.bag.chunks());
    assert_eq!(offline(), once, "two runs give identical files");
}

#[test]
fn bad_input_is_answered_with_its_code_and_changes_nothing() {
    let demo = Demo::new();
    let first = demo.tick(0);
    for (text, code) in [
        ("put the cube on the purple pad", ResultCode::BadArgument),
        (
            "put put put put put put put put put put put put put put put",
            ResultCode::PromptTooLong,
        ),
        ("  ", ResultCode::PromptEmpty),
    ] {
        let outcome = demo.call(Command::Prompt(text.into()));
        assert_eq!(outcome.code, code, "{outcome:?}");
        assert_eq!(demo.engine.status().prompt, "put the cube on the red pad");
    }
    for (command, code) in [
        (restore("nope"), ResultCode::NotFound),
        (snapshot("../x"), ResultCode::BadName),
        (
            Command::Snapshot {
                name: None,
                tier: None,
                overwrite: false,
                exclude: vec!["nope".into()],
            },
            ResultCode::BadArgument,
        ),
        (
            Command::Rollback(RollbackTarget::Steps(1)),
            ResultCode::NotFound,
        ),
        (
            Command::Prepare {
                graph: String::new(),
                key: 7,
                evict: false,
            },
            ResultCode::WrongState,
        ),
    ] {
        let outcome = demo.call(command.clone());
        assert_eq!(outcome.code, code, "{command:?}: {}", outcome.message);
    }
    demo.ok(Command::Reset { keep_prompt: true });
    assert_eq!(demo.tick(0), first);
    let described = demo.ok(Command::Describe).description.unwrap();
    assert_eq!(described.sessions, ["main", "alt"]);
    assert!(described.capsule_bytes > 0 && described.weights_bytes > 0);
    assert!(described
        .ports
        .iter()
        .any(|p| p.name == "images" && p.topics.len() == 2));
    assert!(described.identity.lines().count() > 10);
}

#[test]
fn buckets_are_evicted_and_prepared_outside_active() {
    let demo = Demo::new();
    let first = demo.tick(0);
    demo.engine.deactivate().unwrap();
    let evicted = demo
        .ok(Command::Prepare {
            graph: String::new(),
            key: 5,
            evict: true,
        })
        .variants;
    demo.engine.activate().unwrap();
    demo.ok(Command::Reset { keep_prompt: true });
    demo.clock.advance_ms(1);
    let now = demo.clock.ros_ns();
    let data = vec![0; 12];
    for view in ["workspace", "wrist"] {
        demo.engine
            .push_image(view, image(2, 2, "rgb8", 6, &data), now);
    }
    let names = trigger_config().joint_names();
    demo.engine.push_joints(
        JointsRef {
            names: &names,
            positions: &[0.0; 6],
        },
        now,
    );
    let missing = demo.call(Command::Tick(TickRequest::default()));
    assert_eq!(missing.code, ResultCode::NotFound, "{missing:?}");
    assert!(
        missing.message.contains("no variant for key 5"),
        "{}",
        missing.message
    );
    demo.engine.deactivate().unwrap();
    assert!(
        demo.ok(Command::Prepare {
            graph: String::new(),
            key: 5,
            evict: false
        })
        .variants
            > evicted
    );
    let absent = demo.call(Command::Prepare {
        graph: String::new(),
        key: 7,
        evict: true,
    });
    assert_eq!(absent.code, ResultCode::NotFound);
    demo.engine.activate().unwrap();
    demo.ok(Command::Reset { keep_prompt: true });
    assert_eq!(demo.tick(0), first);
}

#[test]
fn case_86_missing_weights_fail_configure_with_the_file_named() {
    let engine = Engine::new(FakeClock::new(), Arc::new(Bag::new("/policy_node")));
    let mut config = trigger_config();
    config.model.weights = "/nonexistent/policy".into();
    let e = engine.configure(config).unwrap_err();
    assert_eq!(e.code, ResultCode::Io);
    assert!(e.message.contains("/nonexistent/policy/config.json"), "{e}");
    let mut config = trigger_config();
    config.backend = config::BackendKind::Cuda;
    assert_eq!(
        engine.configure(config).unwrap_err().code,
        ResultCode::Unsupported
    );
    let mut config = trigger_config();
    config.device = 3;
    assert_eq!(
        engine.configure(config).unwrap_err().code,
        ResultCode::BadArgument
    );
    assert_eq!(engine.state(), lifecycle::State::Unconfigured);
    engine.configure(trigger_config()).unwrap();
}

#[test]
fn case_166_the_first_tick_after_activate_is_as_fast_as_the_others() {
    let demo = Demo::new();
    let mut took = Vec::new();
    for n in 0..8 {
        let started = std::time::Instant::now();
        demo.tick(n);
        took.push(started.elapsed());
    }
    let first = took.remove(0);
    let slowest = took.iter().max().unwrap();
    assert!(first < *slowest * 10, "first {first:?}, others {took:?}");
}
