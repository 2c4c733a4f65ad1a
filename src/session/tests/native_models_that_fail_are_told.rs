//! Native models that do not fit a node, or fail in a tick.

mod common;
#[path = "../../runtime/tests/foreign/mod.rs"]
mod foreign;

use std::sync::Arc;
use std::time::Duration;

use common::*;
use flashrt_session::*;
use foreign::Native;

const WAIT: Duration = Duration::from_secs(30);

fn deployment(native: &Native, case: &str) -> Config {
    config(&format!(
        "model:\n  library: {}\n  config: {}\n\
         ports:\n  images:\n    - {{view: front, topic: camera/image, max_age_ms: 100}}\n\
         \x20 state:\n    topic: joint_states\n    max_age_ms: 100\n\
         \x20   joints: [{{name: a}}, {{name: b}}, {{name: c}}, {{name: d}}]\n\
         tick: {{mode: trigger}}\nchunk: {{control_rate_hz: 10}}\n\
         command: {{topic: c, limits: 'off', max_step: 'off'}}\n",
        native.library.display(),
        native.config(case)
    ))
}

struct Robot {
    engine: Engine,
    clock: Arc<FakeClock>,
    sink: Arc<Recorder>,
}

impl Robot {
    fn new() -> Robot {
        let (clock, sink) = (FakeClock::new(), Arc::new(Recorder::default()));
        let engine = Engine::new(clock.clone(), sink.clone());
        Robot {
            engine,
            clock,
            sink,
        }
    }

    fn tick(&self) -> Outcome {
        self.clock.advance_ms(10);
        let now = self.clock.ros_ns();
        let image = image(2, 2, "rgb8", 6, &[7; 12]);
        assert_eq!(
            self.engine.push_image("front", image, now),
            PushOutcome::Accepted
        );
        let names = ["a", "b", "c", "d"].map(String::from);
        let positions = [1.0, 2.0, 3.0, 4.0];
        let joints = JointsRef {
            names: &names,
            positions: &positions,
        };
        self.engine.push_joints(joints, now);
        let request = TickRequest {
            not_before_ns: now,
            wait_ms: 1000,
            ..TickRequest::default()
        };
        self.engine.call(Command::Tick(request), WAIT)
    }
}

#[test]
fn a_step_that_fails_ends_the_output_and_configure_brings_it_back() {
    let native = Native::fixture();
    let robot = Robot::new();
    let config = deployment(&native, "robot-fails-later");
    robot.engine.configure(config.clone()).unwrap();
    robot.engine.activate().unwrap();
    assert_eq!(robot.tick().code, ResultCode::Ok);
    assert_eq!(
        robot.sink.chunks().last().unwrap().data,
        [2.0, 3.0, 4.0, 5.0]
    );
    let failed = robot.tick();
    assert_eq!(failed.code, ResultCode::Device, "{failed:?}");
    let words = "step answers -1 (invalid argument or configuration): the fixture says so";
    assert!(failed.message.contains(words), "{}", failed.message);
    assert!(robot.engine.status().error.contains(words));
    assert_eq!(robot.sink.chunks().len(), 1);

    let _ = robot.engine.deactivate();
    robot.engine.cleanup().unwrap();
    assert!(!native.is_loaded());
    robot.engine.configure(config).unwrap();
    robot.engine.activate().unwrap();
    assert_eq!(robot.tick().code, ResultCode::Ok);
}

#[test]
fn models_that_a_node_cannot_feed_or_read_fail_the_configure() {
    for (case, words) in [
        (
            "robot-needs-more",
            ["'force'", "no topic of the node feeds it"],
        ),
        ("robot-half-actions", ["'actions'", "F16"]),
        (
            "robot-flat-actions",
            ["'actions'", "expected 2 fixed dimensions"],
        ),
        ("robot-swap-images", ["'images'", "SWAP"]),
        ("robot-no-actions", ["no OUT port", "ACTION"]),
        ("robot-and-graph-no-step", ["frt_graph_replay", "symbol"]),
        ("size-127", ["127", "128"]),
    ] {
        let native = Native::fixture();
        let robot = Robot::new();
        let e = robot.engine.configure(deployment(&native, case)).err();
        let e = e.unwrap_or_else(|| panic!("{case}"));
        assert!(words.iter().all(|w| e.message.contains(w)), "{case}: {e}");
        assert_eq!(native.is_loaded(), case == "size-127", "{case}");
        assert_eq!(robot.engine.state(), lifecycle::State::Unconfigured);
    }
}
