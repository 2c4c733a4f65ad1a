//! Over the execution ABI too, fire, sync, ready and a restore take nothing from the heap. One test, alone in its binary.

mod capsule_support;
mod exec_support;
use capsule_support::{region, stage, text, GPU, OK};
use exec_support::{buffer, capture_fill, cpu, graph};
use flashrt_capi::*;
use std::mem::zeroed;
use std::ptr::null;

#[path = "../../../test/support/heap.rs"]
mod heap;

#[test]
fn hot_verbs_over_exec_allocate_nothing() {
    let exec = cpu();
    let live = buffer(exec, 64);
    let g = graph(exec, 0);
    capture_fill(exec, g, 1, live, 7);
    let regions = [region(live.cast(), 0, 32), region(live.cast(), 32, 32)];
    let boundary = cap_boundary {
        regions: regions.as_ptr(),
        n_regions: 2,
        meta: null(),
        meta_len: 0,
    };
    let src = [3u8; 64];
    // SAFETY: live handles and memory.
    unsafe {
        let mut table: cap_backend = zeroed();
        assert_eq!(cap_backend_init_frt(&mut table, exec, 1), OK);
        let ctx = cap_ctx_create(&table);
        let capsule = cap_snapshot(ctx, &boundary, GPU, 0);
        let stage = stage(g.cast(), 1, 0);
        let round = || {
            assert_eq!(cap_fire(ctx, &stage), OK, "{}", text());
            assert_eq!(
                cap_swap(ctx, live.cast(), src.as_ptr().cast(), 64, 0),
                OK,
                "{}",
                text()
            );
            assert_eq!(cap_restore(ctx, capsule, 0), OK, "{}", text());
            assert!(cap_capsule_ready(ctx, capsule) >= 0);
            assert_eq!(cap_sync(ctx, 0), OK, "{}", text());
        };
        round();
        heap::count_this_thread();
        let before = (heap::taken(), heap::freed());
        for _ in 0..1000 {
            round();
        }
        assert_eq!((heap::taken(), heap::freed()), before);
        cap_ctx_destroy(ctx);
        cap_backend_done_frt(&mut table);
        frt_ctx_destroy(exec);
    }
}
