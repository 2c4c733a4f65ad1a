//! A tick of submitting and synchronising allocates and frees nothing, on any thread. One test, alone
//! in its binary.

use flashrt_exec::{Context, CpuOptions, Error, Pool, Space, StreamId, StreamOrder, KEY_INHERIT};

#[path = "../../../test/support/heap.rs"]
mod heap;

fn ticks(order: StreamOrder, threads: usize) -> Result<u64, Error> {
    let ctx = Context::cpu(CpuOptions { threads, order })?;
    let (s0, s1) = (StreamId(0), ctx.stream(-5)?);
    let input = ctx.alloc("input", Space::Host, 4096)?;
    let live = ctx.alloc("live", Space::Device, 4096)?;
    let output = ctx.alloc("output", Space::Host, 4096)?;
    let event = ctx.event()?;
    let (whole_input, whole_live) = (input.all(), live.all());

    let graph = ctx.graph("step", 2)?;
    for key in [5, 10] {
        graph.capture::<Error>(key, |r| {
            r.copy(&live.all(), &input.all())?;
            for _ in 0..key {
                let kernel = |pool: &Pool| {
                    pool.for_each(16, &|i| {
                        std::hint::black_box(i);
                    })
                };
                r.host_kernel("nothing", &[&live.all()], Box::new(kernel))?;
            }
            r.fill(&live.slice(0, 8)?, 1)?;
            r.copy(&output.all(), &live.all())
        })?;
    }
    let mut plan = ctx.plan();
    plan.add(&graph, KEY_INHERIT, s0)?;
    plan.add(&graph, 10, s1)?;
    plan.add(&graph, 5, s0)?;
    plan.after(1, 0)?;
    plan.after(2, 1)?;

    let mut out = [0; 64];
    let mut tick = |n: u64| -> Result<(), Error> {
        input.host_write(0, &n.to_le_bytes())?;
        input.host_with_mut(|bytes| bytes[9] = n as u8)?;
        graph.replay(if n % 2 == 0 { 5 } else { 10 }, s0)?;
        ctx.synchronize(s0)?;
        plan.execute(5)?;
        ctx.copy(&whole_live, &whole_input, s1)?;
        ctx.fill(&whole_live, 3, s1)?;
        ctx.record(&event, s1)?;
        ctx.wait(s0, &event)?;
        while !ctx.query(&event)? {}
        ctx.sync_event(&event)?;
        plan.sync()?;
        // More than a queue holds.
        if n % 50 == 0 {
            for _ in 0..600 {
                graph.replay(5, s0)?;
            }
        }
        ctx.synchronize_all()?;
        output.host_read(0, &mut out)
    };
    // A first pass, for what the standard library sets up lazily on this thread.
    for n in 0..20 {
        tick(n)?;
    }
    let before = heap::taken() + heap::freed();
    for n in 0..1000 {
        tick(n)?;
        if n % 250 == 0 {
            // Let the workers park, so that waking them is counted too.
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
    }
    Ok((heap::taken() + heap::freed()) - before)
}

#[test]
fn a_tick_allocates_nothing_and_a_discarded_context_leaks_nothing() {
    heap::count_this_thread();
    for threads in [1, 3] {
        for order in [
            StreamOrder::Submission,
            StreamOrder::Adversarial { seed: 11 },
        ] {
            assert_eq!(
                ticks(order, threads).unwrap(),
                0,
                "{threads} threads, {order:?}"
            );
        }
    }

    let discard = || {
        let ctx = Context::cpu(CpuOptions {
            threads: 1,
            order: StreamOrder::Submission,
        })
        .unwrap();
        let big = ctx.alloc("big", Space::Device, 1 << 20).unwrap();
        let graph = ctx.graph("graph", 0).unwrap();
        graph
            .capture::<Error>(0, |r| r.fill(&big.all(), 1))
            .unwrap();
        for _ in 0..10 {
            graph.replay(0, StreamId(0)).unwrap();
            ctx.fill(&big.all(), 1, StreamId(0)).unwrap();
        }
        // Never run. Handles go in the order that would keep a cycle alive if there were one.
        drop((graph, ctx));
        assert_eq!(big.bytes(), 1 << 20);
    };
    discard();
    let before = heap::live_bytes();
    for _ in 0..4 {
        discard();
    }
    let leaked = heap::live_bytes() - before;
    assert!(leaked < 1024, "{leaked} bytes stayed behind");
}
