//! Counts heap allocations of overwriting snapshots and of restores.

mod common;
#[path = "../../../test/support/heap.rs"]
mod heap;

use common::*;
use flashrt_capsule::{Rollback, Tier};

#[test]
fn overwriting_snapshots_and_restores_allocate_nothing() {
    heap::count_this_thread();
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
        let before = heap::taken();
        hot(500);
        assert_eq!(heap::taken() - before, 0, "{tier}");
        assert_eq!(live.context().memory(), memory);
    }
}
