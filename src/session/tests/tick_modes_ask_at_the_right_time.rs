//! When automatic ticks happen, and what the emitter does with their chunks.

mod common;
use common::*;
use flashrt_session::config::TickMode;
use flashrt_session::*;

fn mode(tick: &str) -> Rig {
    let rig = Rig::configured(config(&toy_yaml(
        tick,
        "{control_rate_hz: 10, execute_rows: 2, max_hold_ms: 250}",
        "{topic: joint_command, limits: 'off', max_step: 'off'}",
    )));
    rig.push_all(1);
    rig.engine.activate().unwrap();
    rig
}

fn chunks(rig: &Rig) -> usize {
    rig.sink.chunks().len()
}

#[test]
fn chunk_mode_ticks_when_the_last_row_goes_out() {
    let rig = mode("{mode: chunk}");
    rig.push_all(1);
    rig.wait_for("first chunk", || chunks(&rig) == 1);
    // Row 0: no new chunk yet.
    rig.step_commands(1);
    settle();
    assert_eq!(chunks(&rig), 1);
    // Row 1 is the last: the next chunk is computed and starts one period later, without a hold.
    rig.push_all(2);
    rig.step_commands(2);
    rig.wait_for("second chunk", || chunks(&rig) == 2);
    rig.step_commands(3);
    let rows: Vec<(u64, u32, bool)> = rig
        .sink
        .commands()
        .iter()
        .map(|c| (c.chunk_id, c.row, c.is_hold))
        .collect();
    assert_eq!(rows, [(1, 0, false), (1, 1, false), (2, 0, false)]);
    let status = rig.engine.status();
    assert_eq!(
        (status.holds, status.chunk_state, status.rows_left),
        (0, "running", 1)
    );
}

#[test]
fn fresh_chunk_mode_waits_for_an_input_after_the_last_row_and_starves_without() {
    let rig = mode("{mode: chunk, fresh: true}");
    rig.push_all(1);
    rig.wait_for("first chunk", || chunks(&rig) == 1);
    rig.step_commands(1);
    rig.push_all(1);
    rig.step_commands(2);
    settle();
    assert_eq!(
        chunks(&rig),
        1,
        "the newest inputs are from before the last row"
    );
    // Two holds, then nothing.
    rig.step_commands(3);
    rig.step_commands(4);
    rig.clock.advance_ms(100);
    rig.wait_for("starved", || rig.engine.status().chunk_state == "starved");
    rig.clock.advance_ms(100);
    settle();
    assert_eq!(rig.sink.commands().len(), 4);
    assert_eq!(rig.engine.status().holds, 2);
    assert!(rig
        .sink
        .events()
        .iter()
        .any(|e| matches!(e, Event::Warning(t) if t.starts_with("starved"))));
    // Waiting beyond the hold is said.
    rig.wait_for("the reason", || {
        rig.engine.status().last_refusal.contains("images.front")
    });
    rig.push_all(2);
    rig.wait_for("second chunk", || chunks(&rig) == 2);
    rig.step_commands(5);
    assert_eq!(rig.sink.commands()[4].row, 0);
}

#[test]
fn rate_mode_ticks_at_its_rate() {
    let rig = mode("{mode: rate, rate_hz: 20}");
    rig.wait_for("first tick", || {
        rig.engine.status().ticks_refused + rig.engine.status().chunks == 1
    });
    for n in 2..=6u64 {
        settle();
        rig.push_all(1);
        rig.clock.advance_ms(50);
        rig.wait_for("tick", || {
            rig.engine.status().ticks_refused + rig.engine.status().chunks == n
        });
    }
    settle();
    assert_eq!(
        rig.engine.status().ticks_refused + rig.engine.status().chunks,
        6
    );
}

#[test]
fn case_62_a_step_of_ros_time_does_not_change_the_rate() {
    let rig = mode("{mode: rate, rate_hz: 20}");
    rig.wait_for("first tick", || {
        rig.engine.status().ticks_refused + rig.engine.status().chunks == 1
    });
    rig.clock.set_ros_ns(-4_000_000_000);
    for n in 2..=4u64 {
        rig.push_all(1);
        rig.clock.advance_ms(50);
        rig.wait_for("tick", || {
            rig.engine.status().ticks_refused + rig.engine.status().chunks == n
        });
    }
}

#[test]
fn trigger_mode_never_ticks_by_itself_and_the_mode_changes_at_run_time() {
    let rig = mode("{mode: trigger}");
    rig.push_all(1);
    rig.clock.advance_ms(100);
    settle();
    assert_eq!(chunks(&rig), 0);
    assert_eq!(rig.engine.status().tick_mode, "trigger");
    rig.engine.set_tick_mode(TickMode::Chunk);
    rig.push_all(1);
    rig.wait_for("a chunk", || chunks(&rig) == 1);
    assert_eq!(rig.engine.status().tick_mode, "chunk");
}

#[test]
fn missing_inputs_are_reported_once_a_period_not_in_a_loop() {
    let rig = Rig::configured(config(&toy_yaml(
        "{mode: chunk}",
        "{control_rate_hz: 10}",
        "{topic: joint_command, limits: 'off', max_step: 'off'}",
    )));
    rig.engine.activate().unwrap();
    rig.wait_for("a report", || rig.engine.status().ticks_refused == 1);
    settle();
    assert_eq!(rig.engine.status().ticks_refused, 1);
    rig.clock.advance_ms(100);
    rig.wait_for("a second report", || rig.engine.status().ticks_refused == 2);
    assert_eq!(
        rig.engine.status().last_refusal,
        "STALE_INPUT: images.front: no input in this epoch"
    );
    // The first good inputs are used at once.
    rig.push_all(1);
    rig.wait_for("a chunk", || chunks(&rig) == 1);
}

#[test]
fn the_jump_at_a_seam_is_reported() {
    let rig = mode("{mode: trigger}");
    rig.tick(1);
    rig.step_commands(1);
    rig.step_commands(2);
    let last = rig.sink.chunks()[0].data[2..4].to_vec();
    rig.push_image(1, rig.now());
    rig.push_state([0.5, 0.2], rig.now());
    rig.ok(Command::Tick(TickRequest::default()));
    rig.step_commands(3);
    let next = rig.sink.chunks()[1].data[0..2].to_vec();
    let expected = last
        .iter()
        .zip(&next)
        .map(|(a, b)| f64::from((a - b).abs()))
        .fold(0.0, f64::max);
    assert!((rig.engine.status().boundary_jump - expected).abs() < 1e-9);
    assert!((expected - 0.39).abs() < 0.01, "{expected}");
}
