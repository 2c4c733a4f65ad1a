//! Work that another layer enqueues by the driver itself.

#[path = "support/cuda.rs"]
mod gpu;

use flashrt_exec::{Context, CpuOptions, Error};
use gpu::{device, fill_graph, open_held, read, S0};
use std::sync::Arc;

#[test]
fn a_context_on_the_cpu_refuses_it_and_the_capture_leaves_no_trace() {
    let ctx = Context::cpu(CpuOptions::default()).unwrap();
    let graph = ctx.graph("g", 0).unwrap();
    let refused = graph.capture::<Error>(0, |r| {
        // SAFETY: nothing is enqueued.
        unsafe { r.device_work("rms_norm", &[], None, |_| panic!("called")) }
    });
    let text = refused.unwrap_err().to_string();
    assert!(text.contains("rms_norm is work of a device"), "{text}");
    assert_eq!(graph.variant_count(), 0);
}

#[test]
fn a_failing_submit_is_told_with_its_text_and_the_stream_stays_usable() {
    let Some(ctx) = open_held() else { return };
    let buffer = device(&ctx, "b", 4);
    let graph = ctx.graph("g", 0).unwrap();
    let refused = graph.capture::<Error>(0, |r| {
        r.fill(&buffer.all(), 1)?;
        // SAFETY: nothing is enqueued.
        unsafe { r.device_work("rms_norm", &[], None, |_| Err("no such kernel".into())) }
    });
    let text = refused.unwrap_err().to_string();
    assert!(
        text.contains("rms_norm") && text.contains("no such kernel"),
        "{text}"
    );
    fill_graph(&ctx, "ok", &buffer, 7).replay(0, S0).unwrap();
    assert_eq!(read(&ctx, &buffer.all()), [7; 4]);
}

#[test]
fn what_it_keeps_lives_as_long_as_the_variant() {
    let Some(ctx) = open_held() else { return };
    let buffer = device(&ctx, "b", 4);
    let life = Arc::new(());
    let graph = ctx.graph("g", 0).unwrap();
    graph
        .capture::<Error>(0, |r| {
            let touched = buffer.all();
            for _ in 0..3 {
                // SAFETY: nothing is enqueued.
                unsafe { r.device_work("kernel", &[&touched], Some(life.clone()), |_| Ok(())) }?;
            }
            r.fill(&touched, 1)
        })
        .unwrap();
    assert_eq!(Arc::strong_count(&life), 2, "kept once");
    graph.replay(0, S0).unwrap();
    graph.evict(0).unwrap();
    ctx.synchronize_all().unwrap();
    assert_eq!(Arc::strong_count(&life), 1);
}
