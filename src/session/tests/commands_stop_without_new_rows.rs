//! Without rows to send the last command is repeated for `max_hold_ms`, then nothing is sent until rows come again.

mod common;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use common::*;
use flashrt_session::core::Core;
use flashrt_session::*;

/// When each command came, and whether it was a hold.
#[derive(Default)]
struct Times {
    commands: Mutex<Vec<(Instant, bool)>>,
    starved: Mutex<Vec<Instant>>,
}

impl Sink for Times {
    fn chunk(&self, _: &ChunkRef<'_>) {}
    fn command(&self, c: &CommandRef<'_>) {
        self.commands
            .lock()
            .unwrap()
            .push((Instant::now(), c.is_hold));
    }
    fn tick_log(&self, _: &TickRecord) {}
    fn event(&self, event: Event) {
        if matches!(&event, Event::Warning(text) if text.starts_with("starved")) {
            self.starved.lock().unwrap().push(Instant::now());
        }
    }
}

#[test]
fn case_182_a_core_that_stops_ends_the_commands_within_the_hold() {
    const HOLD: Duration = Duration::from_millis(200);
    let mut config = config(&toy_yaml(
        "{mode: chunk}",
        "{control_rate_hz: 50, max_hold_ms: 200}",
        "{topic: joint_command, limits: 'off', max_step: 'off'}",
    ));
    for view in &mut config.images {
        view.max_age_ms = 60_000.0;
    }
    config.state.max_age_ms = 60_000.0;
    let control = Arc::new(ToyControl::default());
    let sink = Arc::new(Times::default());
    let engine = Engine::new(Arc::new(SystemClock::default()), sink.clone());
    let for_core = control.clone();
    engine
        .configure_with(
            config,
            Box::new(move |c| {
                Ok(Box::new(ToyCore::new(c, for_core, JOINTS.len())) as Box<dyn Core>)
            }),
        )
        .unwrap();
    engine.activate().unwrap();
    let data = [1; 12];
    engine.push_image("front", image(2, 2, "rgb8", 6, &data), 0);
    let names = JOINTS.map(String::from);
    let joints = JointsRef {
        names: &names,
        positions: &[0.1, 0.2],
    };
    engine.push_joints(joints, 0);
    wait_for("commands", || sink.commands.lock().unwrap().len() > 6);
    control.is_stuck.store(true, SeqCst);
    wait_for("starved", || !sink.starved.lock().unwrap().is_empty());
    std::thread::sleep(Duration::from_secs(5));
    let until = Instant::now();
    let commands = sink.commands.lock().unwrap().clone();
    let rows: Vec<Instant> = commands.iter().filter(|c| !c.1).map(|c| c.0).collect();
    let holds = commands.iter().rev().take_while(|c| c.1).count();
    let (last_row, last) = (rows[rows.len() - 1], commands[commands.len() - 1].0);
    assert!(
        (1..=10).contains(&holds),
        "{holds} holds in 200 ms at 50 Hz"
    );
    // Ten-fold slack for a busy machine: what counts is that it ends.
    assert!(last - last_row < HOLD * 10, "{:?}", last - last_row);
    assert!(until - last > Duration::from_secs(3), "{:?}", until - last);
    assert_eq!(sink.starved.lock().unwrap().len(), 1, "told once");
    assert_eq!(engine.status().chunk_state, "starved");
    // The core comes back, so do the commands.
    control.is_stuck.store(false, SeqCst);
    wait_for("commands again", || {
        sink.commands.lock().unwrap().len() > commands.len() + 3
    });
    engine.deactivate().unwrap();
}

#[test]
fn case_182_a_hold_behind_refused_rows_ends_too() {
    let mut config = toy_config();
    config.command.max_step = Some(vec![0.05, 0.05]);
    config.command.limit_reaction = config::LimitReaction::Refuse;
    let rig = Rig::active(config);
    rig.tick(1);
    for n in 1..=3 {
        rig.step_commands(n);
    }
    // From now on every row is 1.5 rad away.
    let data = [50; 300];
    for n in 1..=9 {
        if n % 3 == 1 {
            rig.engine
                .push_image("front", image(10, 10, "rgb8", 30, &data), rig.now());
            rig.push_state([0.1, 0.2], rig.now());
            rig.ok(Command::Tick(TickRequest::default()));
        }
        rig.clock.advance_ms(100);
        rig.wait_for("the row to be refused", || rig.engine.status().limited == n);
    }
    settle();
    let commands = rig.sink.commands();
    let holds = commands[3..].iter().filter(|c| c.is_hold).count();
    assert_eq!((commands.len(), holds), (5, 2), "250 ms at 10 Hz");
    assert_eq!(rig.engine.status().holds, 2);
    assert_eq!(rig.engine.status().chunk_state, "starved");
    let starved = |e: &&Event| matches!(e, Event::Warning(t) if t.starts_with("starved"));
    assert_eq!(rig.sink.events().iter().filter(starved).count(), 1);
    // A row within the limit goes out again.
    rig.tick(1);
    rig.step_commands(6);
    let back = rig.sink.commands().pop().unwrap();
    assert!(!back.is_hold, "{back:?}");
    assert_eq!(rig.engine.status().chunk_state, "running");
}
