//! From gate to the sink's chunk, the device thread, the workers and the emitter allocate nothing: counted over 1000 ticks
//! of the demo policy.

mod common;
#[path = "../../../test/support/heap.rs"]
mod heap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::Arc;

use common::*;
use flashrt_session::config::TickMode;
use flashrt_session::*;

const WARM: u64 = 20;
const TICKS: u64 = 1000;

/// Counts, and notes how many allocations there were at the first and the last tick that count.
#[derive(Default)]
struct Meter {
    chunks: AtomicU64,
    commands: AtomicU64,
    records: AtomicU64,
    at_first: AtomicU64,
    at_last: AtomicU64,
    is_done: AtomicBool,
}

impl Sink for Meter {
    fn chunk(&self, _: &ChunkRef<'_>) {
        let n = self.chunks.fetch_add(1, SeqCst) + 1;
        if n == WARM {
            self.at_first.store(heap::taken(), SeqCst);
        }
        if n == WARM + TICKS {
            self.at_last.store(heap::taken(), SeqCst);
            self.is_done.store(true, SeqCst);
        }
    }
    fn command(&self, _: &CommandRef<'_>) {
        self.commands.fetch_add(1, SeqCst);
    }
    fn tick_log(&self, _: &TickRecord) {
        self.records.fetch_add(1, SeqCst);
    }
    fn event(&self, event: Event) {
        assert!(!matches!(event, Event::Error { .. }), "{event:?}");
    }
}

#[test]
fn a_thousand_ticks_of_the_demo_policy_allocate_nothing() {
    heap::count_new_threads();
    let mut config = demo_config();
    config.tick.mode = TickMode::Rate;
    config.tick.rate_hz = 1000.0;
    // Warnings are texts: what would be warned about on a busy machine is switched off.
    config.tick.deadline_ms = None;
    config.command.limits = None;
    config.max_skew_ms = None;
    config.chunk.max_hold_ms = 60_000.0;
    for view in &mut config.images {
        view.max_age_ms = 60_000.0;
    }
    config.state.max_age_ms = 60_000.0;
    let names = config.joint_names();
    let meter = Arc::new(Meter::default());
    let engine = Engine::new(Arc::new(SystemClock::default()), meter.clone());
    engine.configure(config).unwrap_or_else(|e| panic!("{e}"));
    engine.activate().unwrap();
    let mut frame = vec![0u8; 96 * 96 * 3];
    let mut fill = 0u8;
    let end = std::time::Instant::now() + std::time::Duration::from_secs(900);
    while !meter.is_done.load(SeqCst) {
        assert!(
            std::time::Instant::now() < end,
            "{} ticks in 900 s",
            meter.chunks.load(SeqCst)
        );
        fill = fill.wrapping_add(1);
        frame.fill(fill);
        for view in ["workspace", "wrist"] {
            assert_eq!(
                engine.push_image(view, image(96, 96, "rgb8", 288, &frame), 0),
                PushOutcome::Accepted
            );
        }
        let positions = [f64::from(fill) / 300.0; 6];
        assert_eq!(
            engine.push_joints(
                JointsRef {
                    names: &names,
                    positions: &positions
                },
                0
            ),
            PushOutcome::Accepted
        );
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let status = engine.status();
    engine.deactivate().unwrap();
    assert_eq!(meter.at_last.load(SeqCst) - meter.at_first.load(SeqCst), 0);
    assert!(meter.at_first.load(SeqCst) > 0, "the counter counts");
    // The measurement was about something: new inputs were used and commands went out meanwhile.
    assert!(
        status.ports.iter().all(|p| p.used > 100),
        "{:?}",
        status.ports
    );
    assert!(meter.commands.load(SeqCst) > 10);
    assert!(meter.records.load(SeqCst) >= WARM + TICKS);
}
