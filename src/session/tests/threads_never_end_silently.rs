//! Whatever panics on the engine's threads: the node says so, stops its outputs and goes on answering.

mod common;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::Arc;
use std::time::Duration;

use common::*;
use flashrt_session::core::Core;
use flashrt_session::lifecycle::State;
use flashrt_session::*;

/// A sink with a defect in one callback.
#[derive(Default)]
struct Defect {
    kept: Recorder,
    in_command: AtomicBool,
    in_event: AtomicBool,
    in_tick_log: AtomicBool,
}

fn trip(defect: &AtomicBool, what: &str) {
    if defect.swap(false, SeqCst) {
        panic!("defect in {what}");
    }
}

impl Sink for Defect {
    fn chunk(&self, c: &ChunkRef<'_>) {
        self.kept.chunk(c);
    }
    fn command(&self, c: &CommandRef<'_>) {
        trip(&self.in_command, "command");
        self.kept.command(c);
    }
    fn tick_log(&self, r: &TickRecord) {
        trip(&self.in_tick_log, "tick_log");
        self.kept.tick_log(r);
    }
    fn event(&self, e: Event) {
        if matches!(e, Event::OperationDone(_)) {
            trip(&self.in_event, "event");
        }
        self.kept.event(e);
    }
}

struct Bench {
    engine: Engine,
    sink: Arc<Defect>,
    clock: Arc<FakeClock>,
}

fn configure(engine: &Engine, config: Config) {
    engine
        .configure_with(
            config,
            Box::new(|c| {
                Ok(Box::new(ToyCore::new(c, Arc::default(), JOINTS.len())) as Box<dyn Core>)
            }),
        )
        .unwrap();
}

impl Bench {
    fn active(config: Config) -> Bench {
        let (sink, clock) = (Arc::new(Defect::default()), FakeClock::new());
        let engine = Engine::new(clock.clone(), sink.clone());
        configure(&engine, config);
        engine.activate().unwrap();
        Bench {
            engine,
            sink,
            clock,
        }
    }

    fn tick(&self) -> Outcome {
        let (data, now) = ([1; 12], self.clock.ros_ns());
        self.engine
            .push_image("front", image(2, 2, "rgb8", 6, &data), now);
        let names = JOINTS.map(String::from);
        let joints = JointsRef {
            names: &names,
            positions: &[0.1, 0.2],
        };
        self.engine.push_joints(joints, now);
        self.call(Command::Tick(TickRequest::default()))
    }

    fn call(&self, command: Command) -> Outcome {
        self.engine.call(command, Duration::from_secs(20))
    }

    /// The error is told, outputs are closed, commands are answered, and cleanup and configure bring the node back.
    fn check_told_and_recovers(&self, text: &str) {
        wait_for("the node to leave Active", || {
            self.engine.state() == State::Inactive
        });
        wait_for("the error in the status", || {
            self.engine.status().error.contains(text)
        });
        let told = |e: &Event| matches!(e, Event::Error { message, .. } if message.contains(text));
        wait_for("the error event", || {
            self.sink.kept.events().iter().any(told)
        });
        assert_eq!(self.call(snapshot("a")).code, ResultCode::Poisoned);
        assert_eq!(self.call(Command::List).code, ResultCode::Ok);
        let sent = self.sink.kept.commands().len();
        self.clock.advance_ms(100);
        settle();
        assert_eq!(self.sink.kept.commands().len(), sent);
        self.engine.cleanup().unwrap();
        configure(&self.engine, toy_config());
        self.engine.activate().unwrap();
        assert_eq!(self.tick().code, ResultCode::Ok);
        self.clock.advance_ms(100);
        wait_for("a command", || self.sink.kept.commands().len() > sent);
    }
}

#[test]
fn case_88_a_panic_while_a_command_is_emitted() {
    let bench = Bench::active(toy_config());
    assert_eq!(bench.tick().code, ResultCode::Ok);
    bench.sink.in_command.store(true, SeqCst);
    bench.clock.advance_ms(100);
    bench.check_told_and_recovers("panic in the emitter: defect in command");
}

#[test]
fn case_88_a_panic_while_a_result_is_told() {
    let bench = Bench::active(toy_config());
    bench.sink.in_event.store(true, SeqCst);
    // The operation itself was done.
    assert_eq!(bench.call(snapshot("a")).code, ResultCode::Ok);
    bench.check_told_and_recovers("panic in the device thread: defect in event");
}

#[test]
fn case_88_a_panic_while_a_refusal_is_logged() {
    let bench = Bench::active(config(&toy_yaml(
        "{mode: chunk}",
        "{control_rate_hz: 10}",
        "{topic: c, limits: 'off', max_step: 'off'}",
    )));
    // No inputs: automatic ticks are refused once a period.
    bench.sink.in_tick_log.store(true, SeqCst);
    bench.clock.advance_ms(200);
    bench.check_told_and_recovers("panic in the device thread: defect in tick_log");
}
