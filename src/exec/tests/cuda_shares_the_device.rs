//! The context beside other users of the same device: their streams, their executables, their work inside
//! our captures, and their captures.
#![cfg(feature = "cuda")]

#[path = "support/cuda.rs"]
mod support;

use cudarc::driver::sys;
use flashrt_exec::{Context, Error, Space};
use std::ptr::null_mut;
use support::{device, fill_graph, host, open_held, read, S0};

const RELAXED: sys::CUstreamCaptureMode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
const GLOBAL: sys::CUstreamCaptureMode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL;

/// Asserts that a driver call succeeds.
macro_rules! cu {
    ($call:expr) => {
        // SAFETY: handles are live, pointers point to locals, and the context of the device is current.
        assert_eq!(unsafe { $call }, sys::CUresult::CUDA_SUCCESS)
    };
}

fn raw_stream() -> sys::CUstream {
    let mut stream = null_mut();
    cu!(sys::cuStreamCreateWithPriority(&mut stream, 1, 0));
    stream
}

fn address(buffer: &flashrt_exec::Buffer) -> sys::CUdeviceptr {
    buffer.addr() as sys::CUdeviceptr
}

/// Raw driver calls alone: an executable that sets `buffer` to `value`.
fn raw_fill(buffer: &flashrt_exec::Buffer, value: u8) -> sys::CUgraphExec {
    let stream = raw_stream();
    let (mut graph, mut executable) = (null_mut(), null_mut());
    cu!(sys::cuStreamBeginCapture_v2(stream, RELAXED));
    cu!(sys::cuMemsetD8Async(
        address(buffer),
        value,
        buffer.bytes(),
        stream
    ));
    cu!(sys::cuStreamEndCapture(stream, &mut graph));
    cu!(sys::cuGraphInstantiateWithFlags(&mut executable, graph, 0));
    cu!(sys::cuGraphDestroy(graph));
    cu!(sys::cuStreamDestroy_v2(stream));
    executable
}

#[test]
fn a_wrapped_stream_is_used_and_never_destroyed() {
    let Some(ctx) = open_held() else { return };
    let raw = raw_stream();
    // SAFETY: a stream of this device, destroyed at the end of this test.
    let wrapped = unsafe { ctx.wrap_stream(raw.cast()) }.unwrap();
    assert_eq!(ctx.raw_stream(wrapped).unwrap(), raw.cast());
    assert_eq!(ctx.priority(wrapped).unwrap(), 0);

    let (a, b) = (device(&ctx, "a", 1 << 20), device(&ctx, "b", 1 << 20));
    let graph = ctx.graph("copy", 0).unwrap();
    graph
        .capture::<Error>(0, |r| r.copy(&b.all(), &a.all()))
        .unwrap();
    // The owner's own work and ours share the order of the stream.
    cu!(sys::cuMemsetD8Async(address(&a), 7, a.bytes(), raw));
    graph.replay(0, wrapped).unwrap();
    cu!(sys::cuMemsetD8Async(address(&a), 8, a.bytes(), raw));
    ctx.synchronize(wrapped).unwrap();
    assert_eq!(read(&ctx, &b.all()), vec![7; 1 << 20]);
    assert_eq!(read(&ctx, &a.all()), vec![8; 1 << 20]);

    drop((ctx, graph, a, b));
    cu!(sys::cuStreamQuery(raw));
    cu!(sys::cuStreamDestroy_v2(raw));
}

#[test]
fn a_foreign_executable_is_launched_and_never_destroyed() {
    let Some(ctx) = open_held() else { return };
    let a = device(&ctx, "a", 4096);
    let (five, six) = (raw_fill(&a, 5), raw_fill(&a, 6));
    let graph = ctx.graph("adopted", 0).unwrap();
    // SAFETY: both live to the end of this test, and so does the buffer.
    unsafe {
        graph.adopt_raw(5, five.cast()).unwrap();
        graph.adopt_raw(6, six.cast()).unwrap();
    }
    assert_eq!(graph.executable(6).unwrap().raw(), six.cast());
    for key in [5, 6, 5] {
        graph.replay(key, S0).unwrap();
        assert_eq!(read(&ctx, &a.all()), vec![key as u8; 4096]);
    }
    // Replaced, evicted, dropped: the executables are still good.
    // SAFETY: as above.
    unsafe { graph.adopt_raw(5, six.cast()) }.unwrap();
    graph.evict(6).unwrap();
    drop(graph);
    let raw = ctx.raw_stream(S0).unwrap().cast();
    for (executable, value) in [(five, 5), (six, 6)] {
        cu!(sys::cuGraphLaunch(executable, raw));
        ctx.synchronize(S0).unwrap();
        assert_eq!(read(&ctx, &a.all()), vec![value; 4096]);
        cu!(sys::cuGraphExecDestroy(executable));
    }
}

#[test]
fn raw_work_in_a_capture_keeps_its_place() {
    let Some(ctx) = open_held() else { return };
    let (a, b) = (device(&ctx, "a", 64), device(&ctx, "b", 64));
    let graph = ctx.graph("mixed", 0).unwrap();
    graph
        .capture::<Error>(0, |r| {
            assert!(r.is_empty());
            let raw = r.raw_stream().cast();
            assert_eq!(r.context().raw_stream(S0).unwrap().cast(), raw);
            cu!(sys::cuMemsetD8Async(address(&a), 1, 64, raw));
            assert!(!r.is_empty(), "raw work counts");
            r.copy(&b.all(), &a.all())?;
            cu!(sys::cuMemsetD8Async(address(&a), 2, 64, raw));
            Ok(())
        })
        .unwrap();
    // Raw work alone is a capture, too.
    graph
        .capture::<Error>(1, |r| {
            cu!(sys::cuMemsetD8Async(
                address(&a),
                9,
                64,
                r.raw_stream().cast()
            ));
            Ok(())
        })
        .unwrap();
    assert_eq!(read(&ctx, &a.all()), [0; 64]);
    graph.replay(0, S0).unwrap();
    assert_eq!(read(&ctx, &b.all()), [1; 64]);
    assert_eq!(read(&ctx, &a.all()), [2; 64]);
    graph.replay(1, S0).unwrap();
    assert_eq!(read(&ctx, &a.all()), [9; 64]);

    // Eager work is queued whole, the raw part included, or not at all.
    let s1 = ctx.stream(0).unwrap();
    ctx.enqueue::<Error>(s1, |r| {
        r.fill(&a.all(), 3)?;
        let raw = r.raw_stream().cast();
        cu!(sys::cuMemcpyDtoDAsync_v2(address(&b), address(&a), 64, raw));
        r.fill(&a.all(), 4)
    })
    .unwrap();
    ctx.synchronize(s1).unwrap();
    assert_eq!(read(&ctx, &b.all()), [3; 64]);
    assert_eq!(read(&ctx, &a.all()), [4; 64]);
    let refused = ctx.enqueue::<Error>(s1, |r| {
        cu!(sys::cuMemsetD8Async(
            address(&a),
            5,
            64,
            r.raw_stream().cast()
        ));
        r.copy(&a.slice(0, 2).unwrap(), &a.slice(1, 2).unwrap())
    });
    assert_eq!(refused.unwrap_err().code(), -1);
    assert_eq!(read(&ctx, &a.all()), [4; 64]);
}

#[test]
fn a_strict_capture_of_another_thread_survives_our_set_up() {
    let Some(ctx) = open_held() else { return };
    let a = device(&ctx, "a", 64);
    let (to_us, begun) = std::sync::mpsc::channel();
    let (to_them, done) = std::sync::mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let a = &a;
        let _held = &ctx;
        scope.spawn(move || {
            // A call of the crate makes the context current on this thread.
            _held.synchronize(S0).unwrap();
            let stream = raw_stream();
            cu!(sys::cuStreamBeginCapture_v2(stream, GLOBAL));
            cu!(sys::cuMemsetD8Async(address(a), 1, 64, stream));
            to_us.send(()).unwrap();
            done.recv().unwrap();
            cu!(sys::cuMemsetD8Async(address(a), 2, 64, stream));
            let mut graph = null_mut();
            cu!(sys::cuStreamEndCapture(stream, &mut graph));
            cu!(sys::cuGraphDestroy(graph));
            cu!(sys::cuStreamDestroy_v2(stream));
        });
        begun.recv().unwrap();
        for space in [Space::Device, Space::Host] {
            drop(ctx.alloc("temporary", space, 1 << 20).unwrap());
        }
        let b = device(&ctx, "b", 64);
        let graph = fill_graph(&ctx, "fill", &b, 3);
        let event = ctx.event().unwrap();
        graph.replay(0, S0).unwrap();
        ctx.record(&event, S0).unwrap();
        while !ctx.query(&event).unwrap() {}
        ctx.sync_event(&event).unwrap();
        ctx.synchronize(S0).unwrap();
        assert_eq!(read(&ctx, &b.all()), [3; 64]);
        drop((graph, b, event));
        to_them.send(()).unwrap();
    });
}

#[test]
fn a_wrapped_stream_in_its_owners_capture_is_not_waited_for() {
    let Some(ctx) = open_held() else { return };
    let raw = raw_stream();
    // SAFETY: a stream of this device, destroyed after the context's last use of it.
    let wrapped = unsafe { ctx.wrap_stream(raw.cast()) }.unwrap();
    let (a, b) = (device(&ctx, "a", 64), device(&ctx, "b", 64));
    cu!(sys::cuStreamBeginCapture_v2(raw, RELAXED));
    // Ours becomes part of the owner's graph, as if the owner had called the driver.
    ctx.fill(&a.all(), 4, wrapped).unwrap();
    for refused in [ctx.synchronize(wrapped), ctx.synchronize_all()] {
        let error = refused.unwrap_err();
        assert_eq!(error.code(), -1, "{error}");
        assert!(error.to_string().contains("not capturing"), "{error}");
    }
    // Freeing would have to wait: it is put off, and the capture stays whole.
    drop(b);
    let (mut graph, mut executable) = (null_mut(), null_mut());
    cu!(sys::cuStreamEndCapture(raw, &mut graph));
    cu!(sys::cuGraphInstantiateWithFlags(&mut executable, graph, 0));
    assert_eq!(read(&ctx, &a.all()), [0; 64]);
    cu!(sys::cuGraphLaunch(executable, raw));
    ctx.synchronize(wrapped).unwrap();
    assert_eq!(read(&ctx, &a.all()), [4; 64]);
    cu!(sys::cuGraphExecDestroy(executable));
    cu!(sys::cuGraphDestroy(graph));
    drop((ctx, a));
    cu!(sys::cuStreamDestroy_v2(raw));
}

#[test]
fn wrapped_memory_is_checked_and_left_alone() {
    let Some(ctx) = open_held() else { return };
    let (mut raw, bytes) = (0, 4096);
    cu!(sys::cuMemAlloc_v2(&mut raw, bytes));
    let mut plain = vec![0u8; bytes];

    // SAFETY: refused before anything is done with it.
    let wrong = unsafe { ctx.wrap("plain", Space::Device, plain.as_mut_ptr(), bytes) };
    let error = wrong.unwrap_err();
    assert_eq!(error.code(), -1);
    assert!(
        error.to_string().contains("memory of cuda device 0"),
        "{error}"
    );

    // SAFETY: freed at the end of this test.
    let wrapped =
        unsafe { ctx.wrap("raw", Space::Device, raw as usize as *mut u8, bytes) }.unwrap();
    // SAFETY: lives to the end of this test, which does not touch it meanwhile.
    let pageable = unsafe { ctx.wrap("plain", Space::Host, plain.as_mut_ptr(), bytes) }.unwrap();
    assert_eq!(ctx.memory(), Default::default());

    ctx.upload(&wrapped.all(), &vec![6; bytes]).unwrap();
    ctx.copy(&pageable.all(), &wrapped.all(), S0).unwrap();
    ctx.synchronize(S0).unwrap();
    assert_eq!(read(&ctx, &pageable.all()), vec![6; bytes]);
    pageable.host_write(0, &[1, 2, 3]).unwrap();
    ctx.copy(&wrapped.all(), &pageable.all(), S0).unwrap();
    assert_eq!(read(&ctx, &wrapped.slice(0, 4).unwrap()), [1, 2, 3, 6]);

    // What runs on the device cannot reach it.
    let error = ctx.fill(&pageable.all(), 1, S0).unwrap_err();
    assert_eq!(error.code(), -1, "{error}");
    ctx.synchronize(S0).unwrap();

    // A graph cannot rely on memory that may be paged out: refused before it breaks the capture.
    let graph = ctx.graph("graph", 0).unwrap();
    let mut refused = None;
    let outer = graph.capture::<Error>(0, |r| {
        refused = r.copy(&wrapped.all(), &pageable.all()).err();
        Ok(())
    });
    let error = refused.unwrap();
    assert!(error.to_string().contains("pinned memory"), "{error}");
    assert!(matches!(outer, Err(Error::Capture { .. })));

    drop((wrapped, pageable, graph, ctx));
    cu!(sys::cuMemFree_v2(raw));
    assert_eq!(plain[..4], [1, 2, 3, 6]);
}

#[test]
fn pinned_memory_takes_every_operation_in_a_graph() {
    let Some(ctx) = open_held() else { return };
    let (from, to) = (host(&ctx, "from", 256), host(&ctx, "to", 256));
    let (a, b) = (device(&ctx, "a", 256), device(&ctx, "b", 256));
    let graph = ctx.graph("all spaces", 0).unwrap();
    graph
        .capture::<Error>(0, |r| {
            r.copy(&a.all(), &from.all())?;
            r.copy(&b.slice(0, 128).unwrap(), &a.slice(128, 128).unwrap())?;
            r.copy(&to.slice(1, 127).unwrap(), &b.slice(1, 127).unwrap())?;
            r.copy(&to.slice(128, 64).unwrap(), &from.slice(0, 64).unwrap())?;
            r.fill(&to.slice(200, 3).unwrap(), 0xFE)
        })
        .unwrap();
    for round in 0..3u8 {
        let bytes: Vec<u8> = (0..=255u8).map(|i| i.wrapping_mul(3) ^ round).collect();
        from.host_write(0, &bytes).unwrap();
        graph.replay(0, S0).unwrap();
        ctx.synchronize(S0).unwrap();
        let mut expected = vec![0; 256];
        expected[1..128].copy_from_slice(&bytes[129..]);
        expected[128..192].copy_from_slice(&bytes[..64]);
        expected[200..203].fill(0xFE);
        let mut out = vec![0; 256];
        to.host_read(0, &mut out).unwrap();
        assert_eq!(out, expected, "round {round}");
    }
}

#[test]
fn contexts_come_and_go_on_several_threads() {
    if open_held().is_none() {
        return;
    }
    std::thread::scope(|scope| {
        for thread in 0..4u8 {
            scope.spawn(move || {
                for round in 0..8u8 {
                    let ctx = Context::cuda(0).unwrap();
                    let a = device(&ctx, "a", 1000);
                    let graph = fill_graph(&ctx, "fill", &a, thread * 10 + round);
                    graph.replay(0, S0).unwrap();
                    assert_eq!(read(&ctx, &a.all()), vec![thread * 10 + round; 1000]);
                }
            });
        }
    });
}
