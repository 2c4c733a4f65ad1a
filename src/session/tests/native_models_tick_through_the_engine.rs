//! The example producers behind the engine: actions, capsules, commands that cannot be, and the library's way out.

mod common;
#[path = "../../../test/support/producers.rs"]
mod producers;

use std::sync::Arc;
use std::time::Duration;

use common::*;
use flashrt_session::*;
use producers::*;

const WAIT: Duration = Duration::from_secs(60);
const PROMPT: &str = "lift the lid";

fn deployment(library: &str, config: &str, tick: &str) -> Config {
    let joints: String = (0..DIM)
        .map(|i| format!("      - {{name: j{i}}}\n"))
        .collect();
    config_of(&format!(
        "model:\n  library: {library}\n  config: {config}\n\
         ports:\n  images:\n    - {{view: front, topic: camera/image, max_age_ms: 100}}\n\
         \x20 state:\n    topic: joint_states\n    max_age_ms: 100\n    joints:\n{joints}\
         \x20 prompt: {{text: {PROMPT}}}\n\
         tick: {tick}\nchunk: {{control_rate_hz: 10}}\n\
         command: {{topic: c, limits: 'off', max_step: 'off'}}\n"
    ))
}

fn config_of(yaml: &str) -> Config {
    common::config(yaml)
}

struct Robot {
    engine: Engine,
    clock: Arc<FakeClock>,
    sink: Arc<Recorder>,
    oracle: Oracle,
}

impl Robot {
    fn configured(
        library: &Library,
        config: &str,
        tick: &str,
    ) -> Result<(Robot, Description), SessionError> {
        let (clock, sink) = (FakeClock::new(), Arc::new(Recorder::default()));
        let engine = Engine::new(clock.clone(), sink.clone());
        let path = library.path.to_str().unwrap();
        let report = engine.configure(deployment(path, config, tick))?;
        let mut oracle = Oracle::new(2);
        oracle.prompt = PROMPT.as_bytes().to_vec();
        let robot = Robot {
            engine,
            clock,
            sink,
            oracle,
        };
        Ok((robot, report.description))
    }

    fn active(library: &Library, plan: &str) -> Robot {
        let config = format!("{{plan: {plan}, seed: 2}}");
        let (robot, _) = Robot::configured(library, &config, "{mode: trigger}").unwrap();
        robot.engine.activate().unwrap();
        robot
    }

    fn call(&self, command: Command) -> Outcome {
        self.engine.call(command, WAIT)
    }

    fn ok(&self, command: Command) -> Outcome {
        let outcome = self.call(command);
        assert_eq!(outcome.code, ResultCode::Ok, "{outcome:?}");
        outcome
    }

    /// Inputs number `n` into rings and description.
    fn push(&mut self, n: u8) {
        self.clock.advance_ms(50);
        let now = self.clock.ros_ns();
        let data = vec![n; SIDE * SIDE * 3];
        let side = SIDE as u32;
        let pushed =
            self.engine
                .push_image("front", image(side, side, "rgb8", side * 3, &data), now);
        assert_eq!(pushed, PushOutcome::Accepted);
        let names: Vec<String> = (0..DIM).map(|i| format!("j{i}")).collect();
        let positions: Vec<f64> = (0..DIM).map(|i| f64::from(n) / 16.0 + i as f64).collect();
        self.oracle.state = positions.iter().map(|v| *v as f32).collect();
        self.oracle.set_image(n);
        let joints = JointsRef {
            names: &names,
            positions: &positions,
        };
        self.engine.push_joints(joints, now);
    }

    fn tick(&mut self, n: u8) -> Vec<f32> {
        self.push(n);
        self.ok(Command::Tick(TickRequest {
            wait_ms: 1000,
            ..TickRequest::default()
        }));
        self.sink.chunks().last().unwrap().data.clone()
    }
}

#[test]
fn every_plan_of_both_producers_gives_the_actions_of_the_description() {
    for which in BOTH {
        let library = Library::of(which);
        for plan in PLANS {
            let mut robot = Robot::active(&library, plan);
            for n in 0..4 {
                assert_eq!(
                    robot.tick(n * 50),
                    robot.oracle.tick(),
                    "{which:?} {plan} {n}"
                );
            }
            let record = robot.sink.records().last().unwrap().clone();
            assert_eq!(
                (record.plan, record.key, record.tick),
                ("full", u64::MAX, 4)
            );
            robot.ok(Command::Prompt("other words".into()));
            robot.oracle.prompt = b"other words".to_vec();
            assert_eq!(robot.tick(3), robot.oracle.tick(), "{which:?} {plan}");
        }
    }
}

#[test]
fn capsules_of_the_declared_regions_restore_exactly() {
    for which in BOTH {
        let library = Library::of(which);
        for plan in PLANS {
            for tier in [Tier::Device, Tier::Host] {
                let mut robot = Robot::active(&library, plan);
                robot.tick(1);
                robot.oracle.tick();
                robot.ok(Command::Snapshot {
                    name: Some("here".into()),
                    tier: Some(tier),
                    overwrite: false,
                    exclude: Vec::new(),
                });
                let kept = robot.oracle.clone();
                let first: Vec<_> = (10..13).map(|n| robot.tick(n)).collect();
                let back = robot.ok(restore("here"));
                assert_eq!((back.tick, back.bytes > 96), (1, true));
                robot.oracle = kept.clone();
                for (n, was) in (10..13).zip(&first) {
                    assert_eq!(robot.tick(n), *was);
                    assert_eq!(robot.oracle.tick(), *was, "{which:?} {plan} {tier:?}");
                }
                let back = robot.ok(Command::Rollback(RollbackTarget::Steps(1)));
                assert_eq!((back.name.as_str(), back.tick), ("here", 1));
                robot.oracle = kept;
                assert_eq!(robot.tick(10), robot.oracle.tick());
                robot.ok(Command::Reset { keep_prompt: false });
                robot.oracle.noise = Oracle::new(2).noise;
                assert_eq!(
                    robot.tick(10),
                    robot.oracle.tick(),
                    "the state of configure"
                );
            }
        }
    }
}

#[test]
fn an_execution_library_without_uploads_keeps_its_capsules_in_device_memory() {
    let library = Library::of(Which::Published);
    let mut robot = Robot::active(&library, "graph");
    robot.tick(1);
    robot.oracle.tick();
    let take = |tier| {
        robot.call(Command::Snapshot {
            name: Some("here".into()),
            tier: Some(tier),
            overwrite: false,
            exclude: Vec::new(),
        })
    };
    let host = take(Tier::Host);
    assert_ne!(host.code, ResultCode::Ok);
    assert!(
        host.message.contains("frt_buffer_download"),
        "{}",
        host.message
    );
    assert_eq!(take(Tier::Device).code, ResultCode::Ok);
    let kept = robot.oracle.clone();
    let first = robot.tick(2);
    robot.ok(restore("here"));
    robot.oracle = kept;
    assert_eq!(robot.tick(2), first);
    assert_eq!(robot.oracle.tick(), first);
    robot.ok(Command::Reset { keep_prompt: false });
    robot.oracle.noise = Oracle::new(2).noise;
    assert_eq!(robot.tick(3), robot.oracle.tick());
}

#[test]
fn describe_and_status_name_library_execution_library_and_closure() {
    let library = Library::of(Which::C);
    let (robot, d) = Robot::configured(&library, "{plan: mixed}", "{mode: trigger}").unwrap();
    let path = library.path.to_str().unwrap();
    assert_eq!(
        (d.model.as_str(), d.backend.as_str(), d.library.as_str()),
        ("toy_policy_c", "native", path)
    );
    assert!(
        d.exec_library.ends_with("libflashrt.so.0"),
        "{}",
        d.exec_library
    );
    assert_eq!(d.closure, "declared regions");
    assert_eq!(
        d.regions,
        ["rollout:96:continuation", "host_state:128:continuation"]
    );
    assert_eq!(
        d.stages,
        [
            "0: default/context stream 0",
            "1: default/weigh opaque 7 after 0",
            "2: default/action stream 1 after 1"
        ]
    );
    assert_eq!(
        (d.plans, d.sessions),
        (vec!["default".to_string()], vec!["main".to_string()])
    );
    let topics: Vec<_> = d.ports.iter().map(|p| p.topics.join(" ")).collect();
    assert_eq!(
        topics,
        [
            "camera/image",
            "joint_states",
            "~/prompt",
            "",
            "~/action_chunk c"
        ]
    );
    assert_eq!(
        robot.engine.status().model,
        format!("toy_policy_c ({path})")
    );
    assert_eq!(robot.engine.status().fingerprint, d.fingerprint);
}

#[test]
fn the_action_stage_runs_alone_between_contexts() {
    let library = Library::of(Which::C);
    let (mut robot, _) = Robot::configured(
        &library,
        "{plan: graph, seed: 2}",
        "{mode: trigger, context_every: 2}",
    )
    .unwrap();
    robot.engine.activate().unwrap();
    assert_eq!(robot.tick(200), robot.oracle.tick());
    let old = robot.oracle.clone();
    let alone = robot.tick(100);
    // Inputs are those of the tick with the context: nothing new was handed over.
    (robot.oracle.state, robot.oracle.image) = (old.state.clone(), old.image);
    assert_eq!(alone, robot.oracle.tick());
    assert_eq!(
        robot.tick(50),
        robot.oracle.tick(),
        "the context runs again"
    );
    let plans: Vec<_> = robot
        .sink
        .records()
        .iter()
        .map(|r| r.plan)
        .filter(|p| !p.is_empty())
        .collect();
    assert_eq!(plans, ["context_action", "action", "context_action"]);
}

#[test]
fn settings_that_a_plan_cannot_do_fail_the_configure() {
    for (plan, stages) in [("mixed", "context, weigh, action"), ("step", "step")] {
        let library = Library::of(Which::C);
        let e = Robot::configured(
            &library,
            &format!("{{plan: {plan}}}"),
            "{mode: trigger, context_every: 3}",
        )
        .err()
        .unwrap();
        assert_eq!(e.code, ResultCode::Unsupported);
        assert!(
            e.message.contains("tick.context_every is 3") && e.message.contains(stages),
            "{e}"
        );
        assert!(!library.is_loaded(), "nothing is left behind");
    }
}

#[test]
fn an_action_alone_without_the_split_is_unsupported_and_changes_nothing() {
    let library = Library::of(Which::C);
    let mut robot = Robot::active(&library, "step");
    assert_eq!(robot.tick(1), robot.oracle.tick());
    let outcome = robot.call(Command::Tick(TickRequest {
        action_only: true,
        ..TickRequest::default()
    }));
    assert_eq!(outcome.code, ResultCode::Unsupported, "{outcome:?}");
    assert_eq!(robot.tick(2), robot.oracle.tick());
}

#[test]
fn a_fork_has_no_target() {
    let library = Library::of(Which::C);
    let mut robot = Robot::active(&library, "graph");
    robot.tick(1);
    robot.ok(snapshot("a"));
    let outcome = robot.call(Command::Fork {
        name: "a".into(),
        session: "alt".into(),
        switch_to: false,
    });
    assert_eq!(outcome.code, ResultCode::Unsupported);
    assert!(
        outcome.message.contains("one live set, main"),
        "{}",
        outcome.message
    );
}

#[test]
fn a_model_without_regions_ticks_but_has_no_capsules() {
    for which in BOTH {
        let library = Library::of(which);
        let (mut robot, d) =
            Robot::configured(&library, "{regions: 0, seed: 2}", "{mode: trigger}").unwrap();
        assert_eq!(
            (d.regions, d.capsule_bytes),
            (vec!["host_state:128:continuation".to_string()], 0)
        );
        robot.engine.activate().unwrap();
        assert_eq!(robot.tick(1), robot.oracle.tick());
        for command in [
            snapshot("a"),
            restore("a"),
            Command::Rollback(RollbackTarget::Steps(1)),
            Command::Reset { keep_prompt: false },
        ] {
            let outcome = robot.call(command);
            assert_eq!(outcome.code, ResultCode::Unsupported, "{outcome:?}");
            assert!(
                outcome.message.contains("declares no regions"),
                "{outcome:?}"
            );
        }
        assert_eq!(robot.tick(2), robot.oracle.tick());
    }
}

#[test]
fn buckets_of_a_native_model_are_its_own() {
    let library = Library::of(Which::C);
    let (robot, _) = Robot::configured(&library, "{}", "{mode: trigger}").unwrap();
    let prepare = |key, evict| {
        robot
            .call(Command::Prepare {
                graph: "action".into(),
                key,
                evict,
            })
            .code
    };
    assert_eq!(prepare(0, false), ResultCode::Ok);
    assert_eq!(prepare(5, false), ResultCode::NotFound);
    assert_eq!(prepare(0, true), ResultCode::Unsupported);
}

#[test]
fn a_refused_input_refuses_the_tick_and_leaves_the_model_alone() {
    let library = Library::of(Which::C);
    let mut robot = Robot::active(&library, "graph");
    let long = robot.call(Command::Prompt("x".repeat(65)));
    assert_eq!(long.code, ResultCode::Shape);
    assert!(
        long.message.contains("prompt: more than 64 bytes"),
        "{}",
        long.message
    );
    assert_eq!(robot.tick(9), robot.oracle.tick(), "the old prompt holds");
}

#[test]
fn libraries_that_do_not_fit_the_deployment_are_refused() {
    let library = Library::of(Which::C);
    let fails = |config: &str| {
        Robot::configured(&library, config, "{mode: trigger}")
            .err()
            .unwrap()
    };
    let e = fails("{plan: nothing}");
    assert_eq!(e.code, ResultCode::BadArgument);
    assert!(e.message.contains("answers -1"), "{e}");
    let e = fails("{views: 2}");
    assert!(e.message.contains('2') && e.message.contains("view"), "{e}");
    let e = fails("{dim: 3}");
    assert!(e.message.contains('3'), "{e}");
    assert!(!library.is_loaded());
    let missing = Engine::new(FakeClock::new(), Arc::new(Recorder::default()))
        .configure(deployment("/nonexistent/lib.so", "{}", "{mode: trigger}"))
        .err()
        .unwrap();
    assert_eq!(missing.code, ResultCode::Io);
}

#[test]
fn cleanup_gives_the_library_back_and_configure_takes_it_again() {
    let library = Library::of(Which::C);
    let mut robot = Robot::active(&library, "graph");
    robot.tick(1);
    robot.ok(snapshot("kept"));
    assert!(library.is_loaded());
    robot.engine.deactivate().unwrap();
    robot.engine.cleanup().unwrap();
    assert!(!library.is_loaded());
    let path = library.path.to_str().unwrap().to_owned();
    robot
        .engine
        .configure(deployment(&path, "{seed: 2}", "{mode: trigger}"))
        .unwrap();
    assert!(library.is_loaded());
    robot.engine.activate().unwrap();
    robot.oracle.noise = Oracle::new(2).noise;
    assert_eq!(robot.tick(3), robot.oracle.tick());
}
