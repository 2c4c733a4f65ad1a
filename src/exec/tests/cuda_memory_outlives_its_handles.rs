//! Memory stays as long as something on the device uses it, whatever is dropped in which order.
#![cfg(feature = "cuda")]

#[path = "support/cuda.rs"]
mod support;

use flashrt_exec::{Buffer, Error, Pool, Space};
use std::time::Duration;
use support::{device, fill_graph, host, open_held, read, S0};

const MIB: usize = 1 << 20;

#[test]
fn case_150_a_graph_keeps_its_buffers_under_pressure() {
    let Some(ctx) = open_held() else { return };
    let out = device(&ctx, "out", MIB);
    let graph = ctx.graph("graph", 0).unwrap();
    let weights_bytes: Vec<u8> = (0..MIB).map(|i| (i * 7 % 256) as u8).collect();
    {
        let weights = device(&ctx, "weights", MIB);
        let scratch = device(&ctx, "scratch", MIB);
        let pinned = host(&ctx, "pinned", 16);
        ctx.upload(&weights.all(), &weights_bytes).unwrap();
        pinned.host_write(0, &[0xAA; 16]).unwrap();
        graph
            .capture::<Error>(1, |r| {
                r.copy(&scratch.all(), &weights.all())?;
                r.copy(&scratch.slice(0, 16).unwrap(), &pinned.all())?;
                r.copy(&out.all(), &scratch.all())
            })
            .unwrap();
    }
    let mut expected = weights_bytes;
    expected[..16].fill(0xAA);

    // Freed memory would be handed out again here, and written over: 1 GiB in blocks of the same size,
    // then small pinned ones.
    let pressure: Vec<Buffer> = (0..1024).map(|_| device(&ctx, "pressure", MIB)).collect();
    for buffer in &pressure {
        ctx.fill(&buffer.all(), 0x55, S0).unwrap();
    }
    let small: Vec<Buffer> = (0..256).map(|_| host(&ctx, "small", 16)).collect();
    for buffer in &small {
        buffer.host_write(0, &[0x55; 16]).unwrap();
    }
    assert!(ctx.memory().device_bytes >= 1 << 30);
    for round in 0..10_000 {
        graph.replay(1, S0).unwrap();
        if round % 500 == 0 {
            assert!(read(&ctx, &out.all()) == expected, "replay {round}");
            ctx.fill(&out.all(), 0, S0).unwrap();
        }
    }
    graph.replay(1, S0).unwrap();
    assert!(read(&ctx, &out.all()) == expected);
    drop((pressure, small, graph));
    assert_eq!(ctx.memory().buffers, 1);
}

#[test]
fn a_buffer_dropped_behind_submitted_work_is_freed_after_it() {
    let Some(ctx) = open_held() else { return };
    let out = device(&ctx, "out", 16 * MIB);
    for round in 1..20u8 {
        let (a, b) = (device(&ctx, "a", 16 * MIB), host(&ctx, "b", 16 * MIB));
        b.host_write(0, &[round; 8]).unwrap();
        // Held up, so that the drops come while nothing has run yet.
        ctx.enqueue::<Error>(S0, |r| {
            r.host_kernel("slow", &[], Box::new(slow))?;
            r.copy(&a.all(), &b.all())
        })
        .unwrap();
        ctx.copy(&out.all(), &a.all(), S0).unwrap();
        drop((a, b));
        // Handed out again at once, if it was freed.
        let (c, d) = (device(&ctx, "c", 16 * MIB), host(&ctx, "d", 16 * MIB));
        d.host_with_mut(|bytes| bytes.fill(0x55)).unwrap();
        drop(c);
        assert_eq!(read(&ctx, &out.slice(0, 8).unwrap()), [round; 8]);
        assert_eq!(read(&ctx, &out.slice(8, 8).unwrap()), [0; 8]);
    }
    ctx.synchronize(S0).unwrap();
    assert_eq!(ctx.memory().buffers, 1);
}

fn slow(_: &Pool) {
    std::thread::sleep(Duration::from_millis(5));
}

#[test]
fn an_evicted_variant_in_flight_keeps_its_kernels_and_memory() {
    let Some(ctx) = open_held() else { return };
    let out = device(&ctx, "out", 64);
    for _ in 0..5 {
        let temporary = device(&ctx, "temporary", 64);
        let graph = ctx.graph("graph", 0).unwrap();
        graph
            .capture::<Error>(0, |r| {
                r.host_kernel("slow", &[], Box::new(slow))?;
                r.fill(&temporary.all(), 3)?;
                r.copy(&out.all(), &temporary.all())
            })
            .unwrap();
        drop(temporary);
        graph.replay(0, S0).unwrap();
        graph.replay(0, S0).unwrap();
        graph.evict(0).unwrap();
        assert_eq!(ctx.memory().buffers, 1);
        assert_eq!(read(&ctx, &out.all()), [3; 64]);
        ctx.fill(&out.all(), 0, S0).unwrap();
    }
}

#[test]
fn no_order_of_drops_is_wrong() {
    let Some(_held) = open_held() else { return };
    // All orders of five things, by the factorial number system.
    for order in 0..120usize {
        let ctx = open_held().unwrap();
        let buffer = device(&ctx, "buffer", 4096);
        let graph = fill_graph(&ctx, "fill", &buffer, 1);
        let event = ctx.event().unwrap();
        let mut plan = ctx.plan();
        let stream = ctx.stream(0).unwrap();
        plan.add(&graph, 0, stream).unwrap();
        plan.execute(0).unwrap();
        ctx.record(&event, stream).unwrap();
        ctx.enqueue::<Error>(stream, |r| {
            r.host_kernel("slow", &[&buffer.all()], Box::new(|_: &Pool| {}))
        })
        .unwrap();
        let mut things: Vec<Box<dyn std::any::Any>> = vec![
            Box::new(ctx),
            Box::new(buffer),
            Box::new(graph),
            Box::new(event),
            Box::new(plan),
        ];
        let mut code = order;
        for left in (1..=things.len()).rev() {
            drop(things.remove(code % left));
            code /= left;
        }
    }
}

#[test]
fn pinned_memory_is_zeroed_aligned_and_counted() {
    let Some(ctx) = open_held() else { return };
    for round in 0..50 {
        let (a, b) = (host(&ctx, "a", 3), host(&ctx, "b", MIB + 1));
        for buffer in [&a, &b] {
            assert_eq!(buffer.addr() % 64, 0);
            buffer
                .host_with_mut(|bytes| {
                    assert!(bytes.iter().all(|&b| b == 0), "round {round}");
                    bytes.fill(0xFF);
                })
                .unwrap();
        }
        assert_eq!(ctx.memory().host_bytes, MIB + 4);
        let c = device(&ctx, "c", MIB + 1);
        assert!(read(&ctx, &c.all()).iter().all(|&b| b == 0));
        ctx.fill(&c.all(), 0xFF, S0).unwrap();
    }
    assert_eq!(ctx.memory(), Default::default());
    for space in [Space::Device, Space::Host] {
        let error = ctx.alloc("huge", space, 1 << 50).unwrap_err();
        assert_eq!(error.code(), -6, "{error}");
    }
}
