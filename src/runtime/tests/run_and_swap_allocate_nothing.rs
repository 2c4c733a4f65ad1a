//! Counts heap allocations of the hot calls.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use flashrt_exec::CpuOptions;
use flashrt_runtime::testing::{ToyOptions, ToyProducer, ROWS, ROW_BYTES};
use flashrt_runtime::{Context, Producer};

static COUNT: AtomicUsize = AtomicUsize::new(0);
static COUNTING: AtomicBool = AtomicBool::new(false);

struct Counting;

// SAFETY: every call is passed on unchanged to the system allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if COUNTING.load(Relaxed) {
            COUNT.fetch_add(1, Relaxed);
        }
        // SAFETY: the caller's duties are those of this function.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller's duties are those of this function.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// One test in this file: the counter is the process's.
#[test]
fn a_thousand_ticks_allocate_nothing() {
    let ctx = Context::cpu(CpuOptions {
        threads: 2,
        ..CpuOptions::default()
    })
    .unwrap();
    let mut set = ToyProducer::new(&ctx, ToyOptions::default())
        .build("main")
        .unwrap();
    set.set_hot(true);
    let (bias, raw) = (set.port("bias").unwrap(), set.port("actions_raw").unwrap());
    let plans = [
        set.plan("full").unwrap(),
        set.plan("context_action").unwrap(),
    ];
    let stage = set.plans()[plans[1].0].stages[1];
    let mut out = vec![0; ROWS * ROW_BYTES];
    let mut hot = |n: usize| {
        for i in 0..n {
            set.swap_in(bias, &[i as u8; 64]).unwrap();
            set.run(plans[i % 2], if i % 3 == 0 { 5 } else { 10 })
                .unwrap();
            set.sync().unwrap();
            set.host_state().update(|h| h.tick += 1).unwrap();
            set.run_stage(stage, 5).unwrap_or(());
            set.swap_out(raw, &mut out).unwrap();
        }
    };
    hot(2);
    COUNTING.store(true, Relaxed);
    drop(Box::new(1u8));
    assert_eq!(COUNT.swap(0, Relaxed), 1, "the counter counts");
    hot(1000);
    COUNTING.store(false, Relaxed);
    assert_eq!(COUNT.load(Relaxed), 0);
}
