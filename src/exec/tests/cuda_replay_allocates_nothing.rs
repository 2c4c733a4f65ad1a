//! A tick on the GPU takes nothing from the heap of the process. One test, alone in its binary.
#![cfg(feature = "cuda")]

use flashrt_exec::{Error, KEY_INHERIT};

#[path = "../../../test/support/heap.rs"]
mod heap;
#[path = "support/cuda.rs"]
mod support;

use support::{device, host, open, S0};

#[test]
fn a_tick_allocates_nothing() {
    heap::count_this_thread();
    let Some(ctx) = open() else { return };
    let s1 = ctx.stream(-5).unwrap();
    let (input, live, output) = (
        host(&ctx, "input", 4096),
        device(&ctx, "live", 4096),
        host(&ctx, "output", 4096),
    );
    let event = ctx.event().unwrap();
    let (whole_input, whole_live) = (input.all(), live.all());
    let graph = ctx.graph("step", 2).unwrap();
    for key in [5, 10] {
        graph
            .capture::<Error>(key, |r| {
                r.copy(&live.all(), &input.all())?;
                for _ in 0..key {
                    r.host_kernel("nothing", &[], Box::new(|_: &flashrt_exec::Pool| {}))?;
                }
                r.fill(&live.slice(0, 8)?, 1)?;
                r.copy(&output.all(), &live.all())
            })
            .unwrap();
    }
    let mut plan = ctx.plan();
    plan.add(&graph, KEY_INHERIT, S0).unwrap();
    plan.add(&graph, 10, s1).unwrap();
    plan.add(&graph, 5, S0).unwrap();
    plan.after(1, 0).unwrap();
    plan.after(2, 1).unwrap();

    let mut out = [0; 64];
    let mut tick = |n: u64| -> Result<(), Error> {
        input.host_write(0, &n.to_le_bytes())?;
        input.host_with_mut(|bytes| bytes[9] = n as u8)?;
        graph.replay(if n % 2 == 0 { 5 } else { 10 }, S0)?;
        ctx.synchronize(S0)?;
        plan.execute(5)?;
        ctx.copy(&whole_live, &whole_input, s1)?;
        ctx.fill(&whole_live, 3, s1)?;
        ctx.record(&event, s1)?;
        ctx.wait(S0, &event)?;
        while !ctx.query(&event)? {}
        ctx.sync_event(&event)?;
        plan.sync()?;
        ctx.synchronize_all()?;
        output.host_read(0, &mut out)
    };
    for n in 0..20 {
        tick(n).unwrap();
    }
    let before = heap::taken() + heap::freed();
    for n in 0..1000 {
        tick(n).unwrap();
    }
    assert_eq!(heap::taken() + heap::freed() - before, 0);
    assert_eq!(out[..8], [1; 8]);
}
