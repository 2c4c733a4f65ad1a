//! Long runs, by hand: `cargo test --release -p flashrt-session --test soak -- --ignored`.

mod common;
use std::sync::Arc;
use std::time::Duration;

use common::*;
use flashrt_session::config::TickMode;
use flashrt_session::*;

struct Nothing;

impl Sink for Nothing {
    fn chunk(&self, _: &ChunkRef<'_>) {}
    fn command(&self, _: &CommandRef<'_>) {}
    fn tick_log(&self, _: &TickRecord) {}
    fn event(&self, _: Event) {}
}

/// Resident pages times the page size, from `/proc/self/statm`.
fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("statm");
    let pages: u64 = statm
        .split_whitespace()
        .nth(1)
        .and_then(|p| p.parse().ok())
        .expect("resident");
    pages * 4096
}

fn push(engine: &Engine, names: &[String], n: u64) {
    let data = vec![n as u8; 96 * 96 * 3];
    for view in ["workspace", "wrist"] {
        assert_eq!(
            engine.push_image(view, image(96, 96, "rgb8", 288, &data), 0),
            PushOutcome::Accepted
        );
    }
    engine.push_joints(
        JointsRef {
            names,
            positions: &[(n % 100) as f64 / 100.0; 6],
        },
        0,
    );
}

/// Ticks of the long run; `FLASHRT_SOAK_TICKS` changes them, to see quickly that the test works.
fn ticks() -> u64 {
    let text = std::env::var("FLASHRT_SOAK_TICKS").unwrap_or_else(|_| "10000".into());
    let ticks = text.parse().expect("FLASHRT_SOAK_TICKS is a number");
    assert!(ticks > 600, "the first 500 ticks are warm-up");
    ticks
}

#[test]
#[ignore = "minutes: 10 000 ticks of the demo policy"]
fn resident_memory_is_flat_over_ten_thousand_ticks() {
    let ticks = ticks();
    let mut config = demo_config();
    config.tick.mode = TickMode::Trigger;
    let names = config.joint_names();
    let engine = Engine::new(Arc::new(SystemClock::default()), Arc::new(Nothing));
    engine.configure(config).unwrap();
    engine.activate().unwrap();
    let mut warm = 0;
    for n in 0..ticks {
        push(&engine, &names, n);
        let outcome = engine.call(
            Command::Tick(TickRequest::default()),
            Duration::from_secs(60),
        );
        assert_eq!(outcome.code, ResultCode::Ok, "{outcome:?}");
        // The work of a robot: a snapshot now and then, a restore less often.
        if n % 100 == 50 {
            let command = Command::Snapshot {
                name: Some("s".into()),
                tier: None,
                overwrite: true,
                exclude: vec![],
            };
            assert!(engine.call(command, Duration::from_secs(60)).code.is_ok());
        }
        if n % 500 == 60 {
            assert!(engine
                .call(restore("s"), Duration::from_secs(60))
                .code
                .is_ok());
        }
        if n == 500 {
            warm = resident_bytes();
        }
    }
    let grown = resident_bytes() as i64 - warm as i64;
    let more = ticks - 500;
    println!("resident after 500 ticks {warm}, growth over {more} more {grown} bytes");
    assert!(grown < 1 << 20, "{grown} bytes");
}

#[test]
#[ignore = "a minute: configure and cleanup of the demo policy, 20 times"]
fn case_84_resident_memory_is_flat_over_twenty_configures() {
    let engine = Engine::new(Arc::new(SystemClock::default()), Arc::new(Nothing));
    let mut warm = 0;
    for n in 0..20 {
        engine.configure(demo_config()).unwrap();
        engine.cleanup().unwrap();
        if n == 4 {
            warm = resident_bytes();
        }
    }
    let grown = resident_bytes() as i64 - warm as i64;
    println!("resident after 5 rounds {warm}, growth over 15 more {grown} bytes");
    assert!(grown < 8 << 20, "{grown} bytes");
}
