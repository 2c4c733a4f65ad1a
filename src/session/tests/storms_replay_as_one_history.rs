//! Clients that do everything at once: the tick log is one serial order, and replaying it gives every chunk again.

mod common;
use std::io::Cursor;
use std::sync::Arc;
use std::time::Duration;

use common::bag::Bag;
use common::*;
use flashrt_session::bag::{BagSource, McapSink, McapSource};
use flashrt_session::config::TickMode;
use flashrt_session::core::Core;
use flashrt_session::messages::*;
use flashrt_session::replay::{replay_with, ReplayOptions};
use flashrt_session::*;

const WAIT: Duration = Duration::from_secs(20);
const CLIENTS: u64 = 3;

/// A deployment to storm.
#[derive(Clone, Copy)]
struct Deployment {
    config: fn() -> Config,
    open: fn(&Config) -> Box<dyn Core>,
    /// Side of its images.
    side: u32,
    prompts: [&'static str; 3],
    /// Commands of each client.
    commands: usize,
}

/// A small generator: every client has its own, so that a failure repeats as far as threads allow.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (self.0 >> 33) % sides
    }
}

fn push(engine: &Engine, bag: &Bag, config: &Config, side: u32, stamp_ns: i64, dice: &mut Dice) {
    for view in &config.images {
        let first = dice.roll(256) as usize;
        let data: Vec<u8> = (0..(side * side * 3) as usize)
            .map(|i| (first + i / 7) as u8)
            .collect();
        let m = ImageMessage {
            stamp_ns,
            width: side,
            height: side,
            encoding: "rgb8",
            is_bigendian: false,
            step: side * 3,
            data: &data,
        };
        bag.put(&format!("/{}", view.topic), IMAGE, m.encode());
        let image = image(side, side, "rgb8", side * 3, &data);
        assert_eq!(
            engine.push_image(&view.view, image, stamp_ns),
            PushOutcome::Accepted
        );
    }
    let names = config.joint_names();
    let m = JointsMessage {
        stamp_ns,
        positions: names
            .iter()
            .map(|_| dice.roll(100) as f64 / 100.0)
            .collect(),
        names,
    };
    bag.put("/joint_states", JOINT_STATE, m.encode());
    let joints = JointsRef {
        names: &m.names,
        positions: &m.positions,
    };
    assert_eq!(engine.push_joints(joints, stamp_ns), PushOutcome::Accepted);
}

fn command(dice: &mut Dice, prompts: &[&str; 3]) -> Command {
    let name = ["a", "b", "c"][dice.roll(3) as usize].to_string();
    match dice.roll(16) {
        0..=2 => Command::Snapshot {
            name: Some(name),
            tier: None,
            overwrite: true,
            exclude: vec![],
        },
        3 | 4 => restore(&name),
        5 | 6 => Command::Fork {
            name,
            session: ["main", "alt"][dice.roll(2) as usize].into(),
            switch_to: dice.roll(2) == 0,
        },
        7 => Command::Reset {
            keep_prompt: dice.roll(2) == 0,
        },
        8 => Command::Rollback(RollbackTarget::Steps(1)),
        9 => Command::Drop { name },
        10 => Command::Prompt(match dice.roll(4) {
            // Refused.
            3 => String::new(),
            n => prompts[n as usize].into(),
        }),
        11 => Command::TimeJump { delta_ns: -1 },
        12 => Command::Tick(TickRequest {
            action_only: true,
            ..TickRequest::default()
        }),
        _ => Command::Tick(TickRequest::default()),
    }
}

fn storm(deployment: Deployment) {
    let (clock, bag) = (FakeClock::new(), Arc::new(Bag::new("/policy_node")));
    let engine = Engine::new(clock.clone(), bag.clone());
    engine
        .configure_with(
            (deployment.config)(),
            Box::new(move |c| Ok((deployment.open)(c))),
        )
        .unwrap();
    engine.activate().unwrap();
    let clients: Vec<_> = (0..CLIENTS)
        .map(|client| {
            let (engine, clock, bag) = (engine.clone(), clock.clone(), bag.clone());
            std::thread::spawn(move || {
                let config = (deployment.config)();
                let mut dice = Dice(client + 1);
                let mut outcomes = Vec::new();
                for _ in 0..deployment.commands {
                    clock.advance_ms(1);
                    let command = command(&mut dice, &deployment.prompts);
                    if matches!(command, Command::Tick(_)) {
                        let now = clock.ros_ns();
                        push(&engine, &bag, &config, deployment.side, now, &mut dice);
                    }
                    let kind = command.kind();
                    let outcome = engine.call(command, WAIT);
                    assert_eq!(outcome.kind, kind, "an answer of another call");
                    outcomes.push(outcome);
                }
                outcomes
            })
        })
        .collect();
    // And the lifecycle under them.
    for _ in 0..10 {
        std::thread::sleep(Duration::from_millis(2));
        engine.deactivate().unwrap();
        engine.activate().unwrap();
    }
    let outcomes: Vec<Outcome> = clients
        .into_iter()
        .flat_map(|c| c.join().unwrap())
        .collect();
    engine.deactivate().unwrap();
    engine.cleanup().unwrap();
    check_outcomes(&outcomes, deployment.commands);
    let expected = bag.chunks();
    assert!(expected.len() > 20, "{} chunks", expected.len());

    let mut out = McapSink::new(Cursor::new(Vec::new())).unwrap();
    let config = (deployment.config)();
    let core = (deployment.open)(&config);
    let report = replay_with(
        config,
        core,
        &ReplayOptions::default(),
        &mut McapSource::new(bag.mcap()),
        &mut out,
    )
    .unwrap();
    assert_eq!(report.mismatches, []);
    let mut chunks = Vec::new();
    McapSource::new(out.into_inner().into_inner())
        .for_each(&mut |m| {
            chunks.push(m.data.to_vec());
            Ok(())
        })
        .unwrap();
    assert!(
        chunks == expected,
        "{} of {} chunks",
        chunks.len(),
        expected.len()
    );
}

/// Every call got an answer of its own, with a code that some serial order explains.
fn check_outcomes(outcomes: &[Outcome], commands: usize) {
    let mut ids: Vec<u64> = outcomes.iter().map(|o| o.op_id).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), CLIENTS as usize * commands, "one id per call");
    for o in outcomes {
        use ResultCode::*;
        let may = match o.kind {
            // Capsules come and go, and the target of a fork may be the set that ticks by now.
            "restore" | "rollback" | "drop" => vec![NotFound],
            "fork" => vec![NotFound, NoSession],
            // Flushed by another client's epoch, no context yet, or the node was Inactive.
            "tick" => vec![StaleInput, WrongState, Cancelled],
            "prompt" => vec![PromptEmpty],
            _ => vec![],
        };
        assert!(o.code.is_ok() || may.contains(&o.code), "{o:?}");
    }
    for kind in ["snapshot", "restore", "fork", "rollback", "reset", "tick"] {
        let is_done = |o: &&Outcome| o.kind == kind && o.code.is_ok();
        let done = outcomes.iter().filter(is_done).count();
        assert!(done >= 3, "{done} of {kind}");
    }
}

fn toy(config: &Config) -> Box<dyn Core> {
    Box::new(ToyCore::new(config, Arc::default(), JOINTS.len()))
}

fn demo(config: &Config) -> Box<dyn Core> {
    live::open(config).unwrap_or_else(|e| panic!("{e}"))
}

fn demo_on_trigger() -> Config {
    let mut config = demo_config();
    config.tick.mode = TickMode::Trigger;
    config
}

#[test]
fn case_106_a_thousand_commands_replay_as_the_serial_order_of_their_log() {
    storm(Deployment {
        config: toy_config,
        open: toy,
        side: 2,
        prompts: ["go", "stop", "left"],
        commands: 334,
    });
}

#[test]
fn case_106_no_capsule_of_the_demo_policy_is_torn() {
    storm(Deployment {
        config: demo_on_trigger,
        open: demo,
        side: 24,
        prompts: [
            "put the cube on the red pad",
            "put the cube on the blue pad",
            "put the cube on the green pad",
        ],
        commands: 120,
    });
}
