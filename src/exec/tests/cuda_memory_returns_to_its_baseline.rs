//! What contexts, buffers and graphs take from the device they give back. Alone in its binary, because it
//! looks at the free memory of the whole device.
#![cfg(feature = "cuda")]

#[path = "support/cuda.rs"]
mod support;

use cudarc::driver::sys;
use flashrt_exec::Error;
use support::{device, host, open, S0};

const MIB: usize = 1 << 20;

fn free_bytes() -> usize {
    let (mut free, mut total) = (0, 0);
    // SAFETY: writes two numbers; a call of the crate made the context of the device current.
    let answer = unsafe { sys::cuMemGetInfo_v2(&mut free, &mut total) };
    assert_eq!(answer, sys::CUresult::CUDA_SUCCESS);
    free
}

fn cycle() {
    let ctx = open().unwrap();
    let s1 = ctx.stream(-5).unwrap();
    let graph = ctx.graph("graph", 4).unwrap();
    for key in 0..8 {
        let (a, b) = (device(&ctx, "a", 64 * MIB), host(&ctx, "b", MIB));
        let window = a.slice(MIB, MIB).unwrap();
        graph
            .capture::<Error>(key, |r| {
                r.copy(&window, &b.all())?;
                r.fill(&a.slice(0, MIB).unwrap(), key as u8)
            })
            .unwrap();
        graph.replay(key, s1).unwrap();
        ctx.enqueue::<Error>(S0, |r| r.fill(&a.all(), 1)).unwrap();
    }
    assert_eq!(ctx.memory().device_bytes, 4 * 64 * MIB, "four variants");
    let event = ctx.event().unwrap();
    ctx.record(&event, s1).unwrap();
    graph.evict_lru().unwrap();
    assert_eq!(ctx.memory().device_bytes, 3 * 64 * MIB);
    drop(graph);
    ctx.synchronize_all().unwrap();
    assert_eq!(ctx.memory(), Default::default());
}

#[test]
fn cycles_of_set_up_and_tear_down_take_nothing() {
    let Some(held) = open() else { return };
    cycle();
    held.synchronize_all().unwrap();
    let before = free_bytes();
    for _ in 0..20 {
        cycle();
    }
    held.synchronize_all().unwrap();
    let after = free_bytes();
    assert!(
        after + 32 * MIB >= before,
        "{} MiB are gone",
        (before - after) / MIB
    );
}
