//! From gate to the sink's chunk, the device thread, the workers and the emitter allocate nothing: counted over 1000 ticks
//! of the demo policy.

mod common;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::Arc;

use common::*;
use flashrt_session::config::TickMode;
use flashrt_session::*;

const WARM: u64 = 20;
const TICKS: u64 = 1000;

/// A thread belongs to the engine if it allocates for the first time after the engine was made. The test's own thread and
/// the harness, which reports slow tests, stand for ROS: what they allocate is not counted.
#[derive(Clone, Copy, PartialEq)]
enum Role {
    Unknown,
    Outside,
    Engine,
}

thread_local! {
    static ROLE: Cell<Role> = const { Cell::new(Role::Unknown) };
}
static IS_ENGINE_MADE: AtomicBool = AtomicBool::new(false);
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

struct Counting;

fn count() {
    // A thread that is being torn down has no role any more; it is none of the engine's.
    let _ = ROLE.try_with(|role| {
        if role.get() == Role::Unknown {
            role.set(if IS_ENGINE_MADE.load(SeqCst) {
                Role::Engine
            } else {
                Role::Outside
            });
        }
        if role.get() == Role::Engine {
            ALLOCATIONS.fetch_add(1, SeqCst);
        }
    });
}

// SAFETY: every call goes to the system allocator unchanged; counting touches no memory that it manages.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the contract of `GlobalAlloc::alloc`.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `GlobalAlloc::dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the contract of `GlobalAlloc::realloc`.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

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
            self.at_first.store(ALLOCATIONS.load(SeqCst), SeqCst);
        }
        if n == WARM + TICKS {
            self.at_last.store(ALLOCATIONS.load(SeqCst), SeqCst);
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
    ROLE.set(Role::Outside);
    IS_ENGINE_MADE.store(true, SeqCst);
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
