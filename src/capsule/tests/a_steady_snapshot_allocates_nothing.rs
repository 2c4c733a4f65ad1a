//! Counts heap allocations of overwriting snapshots and of restores.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use common::*;
use flashrt_capsule::{Rollback, Tier};

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
fn overwriting_snapshots_and_restores_allocate_nothing() {
    for tier in [Tier::Device, Tier::Host] {
        let (mut live, mut s) = (one(), store());
        s.reserve(&live, tier, 2).unwrap();
        let mut request = named("ring");
        request.overwrite = true;
        request.tier = tier;
        let plan = live.plan("full").unwrap();
        let memory = live.context().memory();
        let mut hot = |n: usize| {
            for _ in 0..n {
                live.run(plan, 10).unwrap();
                s.snapshot(&live, &request).unwrap();
                live.run(plan, 5).unwrap();
                s.restore("ring", &mut live, false).unwrap();
                live.run(plan, 5).unwrap();
                s.rollback(Rollback::Steps(1), 0, &mut live).unwrap();
            }
        };
        hot(2);
        COUNTING.store(true, Relaxed);
        hot(500);
        COUNTING.store(false, Relaxed);
        assert_eq!(COUNT.swap(0, Relaxed), 0, "{tier}");
        assert_eq!(live.context().memory(), memory);
    }
}
