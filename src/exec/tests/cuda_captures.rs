//! Captures that fail, and calls that would break one.
#![cfg(feature = "cuda")]

#[path = "support/cuda.rs"]
mod support;

use cudarc::driver::sys;
use flashrt_exec::{Buffer, CaptureOptions, CapturePhase, Context, Error, Graph, Space};
use std::ptr::null_mut;
use support::{device, fill_graph, host, open_held, read, S0};

fn phase(error: &Error) -> CapturePhase {
    assert_eq!(error.code(), -4, "{error}");
    match error {
        Error::Capture {
            graph,
            key: 7,
            phase,
            ..
        } if graph == "graph" => *phase,
        other => panic!("not the error of this capture: {other}"),
    }
}

/// The stream takes work, and the next capture succeeds.
fn assert_all_is_well(ctx: &Context, graph: &Graph, a: &Buffer) {
    ctx.fill(&a.all(), 1, S0).unwrap();
    ctx.synchronize(S0).unwrap();
    assert_eq!(read(ctx, &a.all()), vec![1; a.bytes()]);
    assert!(!graph.has_variant(7));
    graph.capture::<Error>(8, |r| r.fill(&a.all(), 2)).unwrap();
    graph.replay(8, S0).unwrap();
    assert_eq!(read(ctx, &a.all()), vec![2; a.bytes()]);
}

#[test]
fn one_that_somebody_breaks_is_told_and_leaves_the_stream_usable() {
    let Some(ctx) = open_held() else { return };
    let a = device(&ctx, "a", 64);
    let graph = ctx.graph("graph", 0).unwrap();
    let break_it = |stream: *mut std::ffi::c_void| {
        // SAFETY: the stream that is being captured: waiting for it is what the driver forbids.
        let answer = unsafe { sys::cuStreamSynchronize(stream.cast()) };
        assert_ne!(answer, sys::CUresult::CUDA_SUCCESS);
    };

    // Nobody noticed: the end tells.
    let error = graph
        .capture::<Error>(7, |r| {
            r.fill(&a.all(), 3)?;
            break_it(r.raw_stream());
            Ok(())
        })
        .unwrap_err();
    assert_eq!(phase(&error), CapturePhase::End);
    assert!(error.to_string().contains("cuStreamEndCapture"), "{error}");
    assert!(error.to_string().contains("INVALIDATED"), "{error}");
    assert_all_is_well(&ctx, &graph, &a);

    // Broken before anything was recorded: not "nothing was recorded".
    let error = graph
        .capture::<Error>(7, |r| {
            break_it(r.raw_stream());
            Ok(())
        })
        .unwrap_err();
    assert_eq!(phase(&error), CapturePhase::End);
    assert!(error.to_string().contains("INVALIDATED"), "{error}");
    assert_all_is_well(&ctx, &graph, &a);

    // The next call of the recorder meets it.
    let error = graph
        .capture::<Error>(7, |r| {
            break_it(r.raw_stream());
            r.fill(&a.all(), 3)
        })
        .unwrap_err();
    assert_eq!(phase(&error), CapturePhase::Record);
    assert_all_is_well(&ctx, &graph, &a);

    // A callback that ends the capture itself.
    let error = graph
        .capture::<Error>(7, |r| {
            r.fill(&a.all(), 3)?;
            let mut stolen = null_mut();
            // SAFETY: a stream in capture mode; the graph that comes out is destroyed.
            unsafe {
                let _ = sys::cuStreamEndCapture(r.raw_stream().cast(), &mut stolen);
                let _ = sys::cuGraphDestroy(stolen);
            }
            Ok(())
        })
        .unwrap_err();
    assert_eq!(phase(&error), CapturePhase::End);
    assert_all_is_well(&ctx, &graph, &a);

    // Eager work that breaks leaves its stream alone.
    let error = ctx
        .enqueue::<Error>(S0, |r| {
            r.fill(&a.all(), 3)?;
            break_it(r.raw_stream());
            Ok(())
        })
        .unwrap_err();
    assert_eq!(error.code(), -5, "{error}");
    assert_eq!(read(&ctx, &a.all()), [2; 64]);
    assert_all_is_well(&ctx, &graph, &a);
}

#[test]
fn a_fork_that_never_joins_fails_and_one_that_does_is_recorded() {
    let Some(ctx) = open_held() else { return };
    let (a, b) = (device(&ctx, "a", 64), device(&ctx, "b", 64));
    let graph = ctx.graph("graph", 0).unwrap();
    let side = ctx.stream(0).unwrap();
    let raw_side: sys::CUstream = ctx.raw_stream(side).unwrap().cast();
    let (mut fork, mut join) = (null_mut(), null_mut());
    // SAFETY: writes one handle each; destroyed at the end of this test.
    unsafe {
        assert_eq!(
            sys::cuEventCreate(&mut fork, 2),
            sys::CUresult::CUDA_SUCCESS
        );
        assert_eq!(
            sys::cuEventCreate(&mut join, 2),
            sys::CUresult::CUDA_SUCCESS
        );
    }
    let record = |is_joined: bool| {
        graph.capture::<Error>(7, |r| {
            let raw: sys::CUstream = r.raw_stream().cast();
            r.fill(&a.all(), 3)?;
            // SAFETY: streams, events and memory of this context, all live.
            unsafe {
                let _ = sys::cuEventRecord(fork, raw);
                let _ = sys::cuStreamWaitEvent(raw_side, fork, 0);
                let _ = sys::cuMemsetD8Async(b.addr() as sys::CUdeviceptr, 4, 64, raw_side);
                if is_joined {
                    let _ = sys::cuEventRecord(join, raw_side);
                    let _ = sys::cuStreamWaitEvent(raw, join, 0);
                }
            }
            Ok(())
        })
    };
    let error = record(false).unwrap_err();
    assert_eq!(phase(&error), CapturePhase::End);
    assert!(error.to_string().contains("UNJOINED"), "{error}");
    assert_all_is_well(&ctx, &graph, &a);
    ctx.fill(&b.all(), 9, side).unwrap();
    ctx.synchronize(side).unwrap();
    assert_eq!(read(&ctx, &b.all()), [9; 64]);

    record(true).unwrap();
    graph.replay(7, S0).unwrap();
    ctx.synchronize(S0).unwrap();
    assert_eq!(read(&ctx, &a.all()), [3; 64]);
    assert_eq!(read(&ctx, &b.all()), [4; 64]);
    // SAFETY: created above, used no more.
    unsafe {
        let _ = sys::cuEventDestroy_v2(fork);
        let _ = sys::cuEventDestroy_v2(join);
    }
}

#[test]
fn calls_of_a_second_thread_are_refused_and_break_nothing() {
    let Some(ctx) = open_held() else { return };
    let (a, b) = (device(&ctx, "a", 64), device(&ctx, "b", 64));
    let event = ctx.event().unwrap();
    let graph = ctx.graph("graph", 0).unwrap();
    let other = fill_graph(&ctx, "other", &b, 1);
    graph
        .capture::<Error>(7, |r| {
            r.fill(&a.all(), 3)?;
            let ctx = r.context();
            std::thread::scope(|scope| {
                let refused = scope.spawn(|| {
                    [
                        ctx.synchronize(S0),
                        ctx.synchronize_all(),
                        ctx.copy(&b.all(), &a.all(), S0),
                        ctx.record(&event, S0),
                        ctx.query(&event).map(drop),
                        ctx.sync_event(&event),
                        ctx.download(&a.all(), &mut [0; 64]),
                        ctx.alloc("late", Space::Device, 8).map(drop),
                        ctx.enqueue(S0, |r| r.fill(&a.all(), 4)),
                        other.replay(0, S0),
                    ]
                });
                for result in refused.join().unwrap() {
                    assert!(matches!(result, Err(Error::Recording { .. })), "{result:?}");
                }
            });
            r.copy(&b.all(), &a.all())
        })
        .unwrap();
    graph.replay(7, S0).unwrap();
    assert_eq!(read(&ctx, &b.all()), [3; 64]);
}

/// Many threads use one context while it captures again and again: each call works or is refused, and no
/// capture takes a foreign operation in or breaks.
#[test]
fn captures_race_with_a_second_thread_and_stay_whole() {
    let Some(ctx) = open_held() else { return };
    let (a, b) = (device(&ctx, "a", 64), device(&ctx, "b", 64));
    let graph = ctx.graph("graph", 0).unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let relaxed = std::sync::atomic::Ordering::Relaxed;
            while !stop.load(relaxed) {
                for result in [
                    ctx.fill(&b.all(), 9, S0),
                    ctx.synchronize(S0),
                    ctx.alloc("temporary", Space::Device, 64).map(drop),
                ] {
                    if let Err(error) = result {
                        assert!(matches!(error, Error::Recording { .. }), "{error}");
                    }
                }
            }
        });
        for round in 0..300u32 {
            // Refused where the other thread's call came first is not possible: it waits.
            graph
                .capture::<Error>(7, |r| r.fill(&a.all(), round as u8))
                .unwrap();
            graph.replay(7, S0).unwrap();
            ctx.synchronize(S0).unwrap();
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    assert_eq!(read(&ctx, &a.all()), [(299 % 256) as u8; 64]);
    // Only the fill of `a` was recorded.
    ctx.fill(&b.all(), 5, S0).unwrap();
    graph.replay(7, S0).unwrap();
    assert_eq!(read(&ctx, &b.all()), [5; 64]);
}

#[test]
fn an_empty_capture_replays_where_it_is_allowed() {
    let Some(ctx) = open_held() else { return };
    let a = device(&ctx, "a", 64);
    let graph = ctx.graph("graph", 0).unwrap();
    let error = graph.capture::<Error>(7, |_| Ok(())).unwrap_err();
    assert_eq!(phase(&error), CapturePhase::End);
    let options = CaptureOptions { allow_empty: true };
    graph.capture_with::<Error>(9, options, |_| Ok(())).unwrap();
    graph.replay(9, S0).unwrap();
    ctx.synchronize(S0).unwrap();
    assert_all_is_well(&ctx, &graph, &a);
}

#[test]
fn case_152_what_is_dropped_inside_a_capture_is_freed_after_it() {
    let Some(ctx) = open_held() else { return };
    let a = device(&ctx, "a", 1 << 20);
    let before = ctx.memory();
    let graph = ctx.graph("graph", 0).unwrap();
    let used = device(&ctx, "used", 1 << 20);
    let unused = device(&ctx, "unused", 64 << 20);
    let pinned = host(&ctx, "pinned", 1 << 20);
    let event = ctx.event().unwrap();
    let other = fill_graph(&ctx, "other", &unused, 1);
    // Under way while the capture begins.
    other.replay(0, S0).unwrap();
    graph
        .capture::<Error>(7, |r| {
            r.fill(&used.all(), 3)?;
            drop((unused, pinned, event));
            other.evict(0).unwrap();
            drop(other);
            r.copy(&a.all(), &used.all())?;
            drop(used);
            r.fill(&a.slice(0, 1).unwrap(), 4)
        })
        .unwrap();
    let during = ctx.memory();
    assert_eq!(during.device_bytes, before.device_bytes + (1 << 20));
    assert_eq!((during.host_bytes, during.buffers), (0, 2));
    let pressure = device(&ctx, "pressure", 64 << 20);
    ctx.fill(&pressure.all(), 0x55, S0).unwrap();
    let mut expected = vec![3; 1 << 20];
    expected[0] = 4;
    for _ in 0..3 {
        ctx.fill(&a.all(), 0, S0).unwrap();
        graph.replay(7, S0).unwrap();
        assert_eq!(read(&ctx, &a.all()), expected);
    }
    drop((graph, pressure));
    assert_eq!(ctx.memory(), before);
}
