//! Kernels of the host between operations of the device: their order, their panics, what they may not do.
#![cfg(feature = "cuda")]

#[path = "support/cuda.rs"]
mod support;

use flashrt_exec::{Context, Error, Graph, Pool, StreamId};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use support::{device, host, open_held, read, S0};

#[test]
fn they_run_in_the_order_of_the_stream() {
    let Some(ctx) = open_held() else { return };
    let (staging, a) = (host(&ctx, "staging", 8), device(&ctx, "a", 8));
    let runs = Arc::new(AtomicUsize::new(0));
    let graph = ctx.graph("graph", 0).unwrap();
    graph
        .capture::<Error>(0, |r| {
            r.fill(&a.all(), 4)?;
            r.copy(&staging.all(), &a.all())?;
            let (window, runs) = (staging.all(), runs.clone());
            let add = move |pool: &Pool| {
                runs.fetch_add(1, SeqCst);
                assert_eq!(pool.threads(), 1);
                pool.for_each(8, &|i| {
                    // SAFETY: the kernel was recorded with this window of 8 bytes; each task writes its own.
                    unsafe { *window.as_ptr().add(i) += i as u8 };
                });
            };
            r.host_kernel("add", &[&staging.all()], Box::new(add))?;
            r.copy(&a.all(), &staging.all())
        })
        .unwrap();
    drop(staging);
    assert_eq!(runs.load(SeqCst), 0, "recording runs nothing");
    for round in 1..=3 {
        graph.replay(0, S0).unwrap();
        assert_eq!(read(&ctx, &a.all()), [4, 5, 6, 7, 8, 9, 10, 11]);
        assert_eq!(runs.load(SeqCst), round);
    }
    drop(graph);
    assert_eq!(
        Arc::strong_count(&runs),
        1,
        "the kernel went with the variant"
    );
    assert_eq!((ctx.memory().buffers, ctx.threads()), (1, 1));
}

/// A graph whose one kernel panics while `broken`, before an operation that fills `out` with 2.
fn panicking_graph(ctx: &Context, broken: &Arc<AtomicBool>) -> Graph {
    // The panics are meant; their backtraces would only fill the log.
    std::panic::set_hook(Box::new(|_| ()));
    let graph = ctx.graph("model", 0).unwrap();
    let flag = broken.clone();
    graph
        .capture::<Error>(1, |r| {
            let kernel = move |_: &Pool| {
                if flag.load(SeqCst) {
                    panic!("task 40 of the gemm");
                }
            };
            r.host_kernel("gemm", &[], Box::new(kernel))
        })
        .unwrap();
    graph
}

fn panicked(stream: i32) -> Error {
    Error::KernelPanicked {
        kernel: "gemm",
        origin: "graph \"model\" key 1".into(),
        stream,
        message: "task 40 of the gemm".into(),
    }
}

#[test]
fn a_panic_is_told_once_by_who_waits_for_its_stream() {
    let Some(ctx) = open_held() else { return };
    let broken = Arc::new(AtomicBool::new(true));
    let graph = panicking_graph(&ctx, &broken);
    let (other, reader) = (ctx.stream(0).unwrap(), ctx.stream(0).unwrap());
    let event = ctx.event().unwrap();

    for stream in [S0, other] {
        graph.replay(1, stream).unwrap();
        assert_eq!(ctx.synchronize(stream).unwrap_err(), panicked(stream.0));
        ctx.synchronize(stream).unwrap();
    }

    // A stream that has nothing to do with it stays silent; one that waited for it does not.
    graph.replay(1, S0).unwrap();
    ctx.record(&event, S0).unwrap();
    ctx.wait(reader, &event).unwrap();
    ctx.synchronize(other).unwrap();
    assert_eq!(ctx.synchronize(reader).unwrap_err(), panicked(0));
    ctx.synchronize(S0).unwrap();

    let mut plan = ctx.plan();
    plan.add(&graph, 1, S0).unwrap();
    let out = device(&ctx, "out", 1);
    let calls: [&dyn Fn() -> Result<(), Error>; 6] = [
        &|| ctx.sync_event(&event),
        &|| loop {
            if ctx.query(&event)? {
                return Ok(());
            }
        },
        &|| ctx.synchronize_all(),
        &|| ctx.upload(&out.all(), &[9]),
        &|| ctx.download(&out.all(), &mut [9]),
        &|| plan.sync(),
    ];
    for (index, call) in calls.into_iter().enumerate() {
        graph.replay(1, S0).unwrap();
        ctx.record(&event, S0).unwrap();
        assert_eq!(call().unwrap_err(), panicked(0), "{index}");
        ctx.synchronize(S0).unwrap();
    }
    assert_eq!(read(&ctx, &out.all()), [0], "refused uploads write nothing");

    // The same executable goes on.
    broken.store(false, SeqCst);
    graph.replay(1, S0).unwrap();
    ctx.synchronize(S0).unwrap();

    let kernel = |_: &Pool| panic!("eager");
    ctx.enqueue::<Error>(other, |r| r.host_kernel("probe", &[], Box::new(kernel)))
        .unwrap();
    let error = ctx.synchronize(other).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("kernel `probe` of an eager call on stream {other} panicked: eager")
    );
}

#[test]
fn they_cannot_call_their_context() {
    let Some(ctx) = open_held() else { return };
    let buffer = host(&ctx, "buffer", 4);
    let victim = Mutex::new(Some((device(&ctx, "victim", 64), ctx.event().unwrap())));
    let refused = Arc::new(Mutex::new(Vec::new()));
    let kernel = {
        let (ctx, buffer, refused) = (ctx.clone(), buffer.clone(), refused.clone());
        move |_: &Pool| {
            let results = [
                ctx.synchronize(S0),
                ctx.fill(&buffer.all(), 1, S0),
                ctx.stream(0).map(drop),
                ctx.alloc("late", flashrt_exec::Space::Host, 1).map(drop),
                buffer.host_write(0, &[1]),
                ctx.enqueue(S0, |r| r.fill(&buffer.all(), 1)),
                ctx.graph("late", 0)
                    .unwrap()
                    .capture(0, |r| r.fill(&buffer.all(), 1)),
            ];
            refused.lock().unwrap().extend(results);
            // The last handles of memory and of an event may go anywhere.
            victim.lock().unwrap().take();
        }
    };
    ctx.enqueue::<Error>(S0, |r| {
        r.host_kernel("nosy", &[&buffer.all()], Box::new(kernel))
    })
    .unwrap();
    ctx.synchronize(S0).unwrap();
    let refused = std::mem::take(&mut *refused.lock().unwrap());
    assert_eq!(refused.len(), 7);
    for (index, result) in refused.into_iter().enumerate() {
        let error = result.unwrap_err();
        assert!(
            error.to_string().contains("inside a kernel"),
            "{index}: {error}"
        );
    }
    assert_eq!(ctx.memory().buffers, 1);
    ctx.synchronize_all().unwrap();
    buffer.host_write(0, &[1]).unwrap();
}

#[test]
fn a_host_access_and_a_kernel_take_turns() {
    let Some(ctx) = open_held() else { return };
    let buffer = host(&ctx, "buffer", 8);
    let window = buffer.all();
    let graph = ctx.graph("count", 0).unwrap();
    let add_one = move |_: &Pool| {
        // SAFETY: the kernel was recorded with this window, which is 8 aligned bytes long.
        unsafe { *window.as_ptr().cast::<u64>() += 1 };
    };
    graph
        .capture::<Error>(0, |r| {
            r.host_kernel("add_one", &[&buffer.all()], Box::new(add_one))
        })
        .unwrap();
    for _ in 0..200 {
        graph.replay(0, S0).unwrap();
        // Neither loses the other's increment.
        buffer
            .host_with_mut(|bytes| {
                let now = u64::from_ne_bytes(bytes.try_into().unwrap());
                std::thread::yield_now();
                bytes.copy_from_slice(&(now + 1).to_ne_bytes());
            })
            .unwrap();
    }
    ctx.synchronize(S0).unwrap();
    let mut out = [0; 8];
    buffer.host_read(0, &mut out).unwrap();
    assert_eq!(u64::from_ne_bytes(out), 400);

    let errors = buffer
        .host_with_mut(|_| [ctx.synchronize(S0), buffer.host_read(0, &mut [0])])
        .unwrap();
    for error in errors {
        assert!(matches!(error, Err(Error::Busy { .. })), "{error:?}");
    }
    // Freed later: inside a host access nothing may wait.
    let temporary = device(&ctx, "temporary", 64);
    buffer.host_with_mut(|_| drop(temporary)).unwrap();
    assert_eq!(ctx.memory().device_bytes, 0);
    ctx.synchronize(S0).unwrap();
}

#[test]
fn a_dropped_context_waits_for_its_kernels() {
    let Some(ctx) = open_held() else { return };
    let done = Arc::new(AtomicUsize::new(0));
    let stream: StreamId = ctx.stream(0).unwrap();
    for _ in 0..3 {
        let done = done.clone();
        let kernel = move |_: &Pool| {
            std::thread::sleep(Duration::from_millis(10));
            done.fetch_add(1, SeqCst);
        };
        ctx.enqueue::<Error>(stream, |r| r.host_kernel("slow", &[], Box::new(kernel)))
            .unwrap();
    }
    drop(ctx);
    assert_eq!(done.load(SeqCst), 3);
    assert_eq!(Arc::strong_count(&done), 1);
}
