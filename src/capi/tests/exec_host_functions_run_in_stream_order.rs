//! Host functions: recorded and replayed, enqueued and run once, and refused when they turn on their own context.

mod exec_support;
use exec_support::*;

use flashrt_capi::*;
use std::ffi::c_void;
use std::ptr::{null_mut, without_provenance_mut};
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

#[test]
fn a_recorded_host_function_runs_at_every_replay_between_its_neighbours() {
    let ctx = cpu();
    let (g, b) = (graph(ctx, 0), buffer(ctx, 1));
    let seen: Arc<Mutex<Vec<u8>>> = Arc::default();
    // SAFETY: as for C; on the CPU a buffer's address may be read where no other work runs.
    unsafe {
        let address = frt_buffer_dptr(b).addr();
        let status = capture(g, 1, |stream| {
            for value in [1, 2] {
                let seen = seen.clone();
                expect(frt_buffer_fill(ctx, b, 0, value, 1, 0), FRT_OK);
                let look = move || {
                    let byte = *std::ptr::with_exposed_provenance::<u8>(address);
                    seen.lock().unwrap().push(byte);
                };
                expect(host_func(stream, look), FRT_OK);
            }
        });
        expect(status, FRT_OK);
        frt_buffer_dptr(b).expose_provenance();
        for _ in 0..2 {
            expect(frt_graph_replay(g, 1, 0), FRT_OK);
        }
        assert!(seen.lock().unwrap().is_empty());
        expect(frt_stream_sync(ctx, 0), FRT_OK);
        assert_eq!(*seen.lock().unwrap(), [1, 2, 1, 2]);
        frt_ctx_destroy(ctx);
    }
}

#[test]
fn an_enqueued_host_function_runs_once_on_its_stream() {
    on_each_backend(|ctx| {
        let count = Arc::new(AtomicUsize::new(0));
        // SAFETY: as for C.
        unsafe {
            let s1 = frt_ctx_stream(ctx, 0);
            for stream in [0, s1] {
                let c = count.clone();
                let f = move || {
                    c.fetch_add(1, SeqCst);
                };
                expect(host_func(frt_stream_handle(ctx, stream), f), FRT_OK);
            }
            for _ in 0..2 {
                expect(frt_stream_sync(ctx, s1), FRT_OK);
                expect(frt_stream_sync(ctx, 0), FRT_OK);
                assert_eq!(count.load(SeqCst), 2);
            }
        }
    });
}

#[test]
fn the_stream_of_a_record_callback_is_a_live_stream_afterwards() {
    on_each_backend(|ctx| {
        let g = graph(ctx, 0);
        let mut stream = null_mut();
        expect(capture(g, 1, |s| stream = s), FRT_OK);
        let count = Arc::new(AtomicUsize::new(0));
        let c = count.clone();
        let f = move || {
            c.fetch_add(1, SeqCst);
        };
        expect(host_func(stream, f), FRT_OK);
        // SAFETY: as for C.
        unsafe { expect(frt_stream_sync(ctx, 0), FRT_OK) };
        assert_eq!(count.load(SeqCst), 1);
    });
}

#[test]
fn a_stream_that_is_none_and_a_null_function_are_refused() {
    unsafe extern "C" fn never(_: *mut c_void) {
        panic!("called");
    }
    on_each_backend(|ctx| {
        // SAFETY: as for C.
        unsafe {
            let stream = frt_stream_handle(ctx, 0);
            expect(
                frt_stream_host_func(stream, None, null_mut()),
                FRT_ERR_INVALID,
            );
            assert_eq!(
                last(),
                "frt_stream_host_func: function: expected one, got null"
            );
            for bad in [null_mut(), without_provenance_mut(48), ctx.cast()] {
                expect(
                    frt_stream_host_func(bad, Some(never), null_mut()),
                    FRT_ERR_INVALID,
                );
                assert!(
                    last().starts_with("frt_stream_host_func: stream: expected what"),
                    "{}",
                    last()
                );
            }
            expect(frt_stream_sync(ctx, 0), FRT_OK);
        }
    });
}

type Callback = unsafe extern "C" fn(*mut c_void);
type Unwinding = unsafe extern "C-unwind" fn(*mut c_void);

unsafe extern "C-unwind" fn fall_off(_: *mut c_void) {
    panic!("wheel {} fell off", 7);
}

/// A function that unwinds, as C++ or Rust code may.
fn panicking() -> Callback {
    // SAFETY: the types differ only in the unwind, which the library catches.
    unsafe { std::mem::transmute::<Unwinding, Callback>(fall_off) }
}

#[test]
fn a_host_function_that_panics_fails_the_next_synchronise_once() {
    on_each_backend(|ctx| {
        let (g, b) = (graph(ctx, 0), buffer(ctx, 1));
        // SAFETY: as for C.
        unsafe {
            let live = frt_stream_handle(ctx, 0);
            expect(
                frt_stream_host_func(live, Some(panicking()), null_mut()),
                FRT_OK,
            );
            expect(frt_stream_sync(ctx, 0), FRT_ERR_BACKEND);
            assert!(last().contains("wheel 7 fell off"), "{}", last());
            expect(frt_stream_sync(ctx, 0), FRT_OK);

            let status = capture(g, 1, |stream| {
                expect(
                    frt_stream_host_func(stream, Some(panicking()), null_mut()),
                    FRT_OK,
                );
            });
            expect(status, FRT_OK);
            let (p, event) = (frt_plan_create(ctx), frt_ctx_event(ctx));
            expect(frt_plan_add(p, g, 1, 0), 0);
            expect(frt_graph_replay(g, 1, 0), FRT_OK);
            expect(frt_event_record(event, 0), FRT_OK);
            expect(frt_event_sync(event), FRT_ERR_BACKEND);
            expect(frt_plan_execute(p, 0), FRT_OK);
            expect(frt_plan_sync(p), FRT_ERR_BACKEND);
            assert!(last().contains("wheel 7 fell off"), "{}", last());
            // The context goes on.
            expect(frt_buffer_fill(ctx, b, 0, 5, 1, 0), FRT_OK);
        }
        assert_eq!(read(ctx, b), [5]);
    });
}

#[test]
fn a_panic_that_panics_again_when_it_is_dropped_is_told_once_too() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            std::panic::resume_unwind(Box::new(Bomb));
        }
    }
    unsafe extern "C-unwind" fn throw(_: *mut c_void) {
        std::panic::resume_unwind(Box::new(Bomb));
    }
    unsafe extern "C-unwind" fn record(_: *mut c_void, _: *mut c_void) {
        std::panic::resume_unwind(Box::new(Bomb));
    }
    on_each_backend(|ctx| {
        // SAFETY: as for C; the types differ only in the unwind, which the library catches.
        unsafe {
            let throw = std::mem::transmute::<Unwinding, Callback>(throw);
            let live = frt_stream_handle(ctx, 0);
            expect(frt_stream_host_func(live, Some(throw), null_mut()), FRT_OK);
            expect(frt_stream_sync(ctx, 0), FRT_ERR_BACKEND);
            expect(frt_stream_sync(ctx, 0), FRT_OK);
            type Record = unsafe extern "C" fn(*mut c_void, *mut c_void);
            type Unwind = unsafe extern "C-unwind" fn(*mut c_void, *mut c_void);
            let record = std::mem::transmute::<Unwind, Record>(record);
            let (g, b) = (graph(ctx, 0), buffer(ctx, 1));
            expect(
                frt_graph_capture(g, 1, Some(record), null_mut()),
                FRT_ERR_CAPTURE,
            );
            capture_fill(ctx, g, 1, b, 2);
            expect(frt_graph_replay(g, 1, 0), FRT_OK);
            assert_eq!(read(ctx, b), [2]);
        }
    });
}

#[test]
fn calls_on_its_own_context_are_refused_and_change_nothing() {
    on_each_backend(|ctx| {
        // SAFETY: as for C.
        unsafe {
            let (g, b, event, p) = (
                graph(ctx, 0),
                buffer(ctx, 4),
                frt_ctx_event(ctx),
                frt_plan_create(ctx),
            );
            capture_fill(ctx, g, 1, b, 1);
            expect(frt_plan_add(p, g, 1, 0), 0);
            // The function runs on a thread of the driver, perhaps: handles go as numbers.
            let handles = [ctx.addr(), g.addr(), b.addr(), event.addr(), p.addr()];
            let raw = frt_stream_handle(ctx, 0);
            let stream = raw.addr();
            let done = Arc::new(AtomicI32::new(0));
            let tell = done.clone();
            let function = move || {
                let [ctx, g, b, event, p] = handles.map(without_provenance_mut::<c_void>);
                let (ctx, g, b): (frt_ctx, frt_graph, frt_buffer) =
                    (ctx.cast(), g.cast(), b.cast());
                let (event, p): (frt_event, frt_plan) = (event.cast(), p.cast());
                let mut byte = 0u8;
                let byte = (&raw mut byte).cast::<c_void>();
                for (n, status) in [
                    frt_ctx_stream(ctx, 0),
                    frt_stream_sync(ctx, 0),
                    frt_event_record(event, 0),
                    frt_stream_wait(ctx, 0, event),
                    frt_event_query(event),
                    frt_event_sync(event),
                    frt_buffer_fill(ctx, b, 0, 9, 4, 0),
                    frt_buffer_copy(ctx, b, 0, b, 2, 2, 0),
                    frt_buffer_upload(ctx, b, 0, byte, 1, 0),
                    frt_buffer_download(ctx, b, 0, byte, 1, 0),
                    frt_buffer_free(b),
                    frt_graph_replay(g, 1, 0),
                    frt_graph_evict(g, 1),
                    frt_graph_evict_lru(g),
                    frt_plan_execute(p, 1),
                    frt_plan_sync(p),
                    host_func(without_provenance_mut(stream), || ()),
                ]
                .into_iter()
                .enumerate()
                {
                    assert_eq!(status, FRT_ERR_BACKEND, "call {n}: {}", last());
                }
                assert_eq!(capture(g, 2, |_| ()), FRT_ERR_CAPTURE);
                assert!(frt_buffer_alloc(ctx, std::ptr::null(), 4).is_null());
                frt_graph_destroy(g);
                assert!(
                    last().starts_with("frt_graph_destroy: refused inside"),
                    "{}",
                    last()
                );
                frt_event_destroy(event);
                frt_plan_destroy(p);
                frt_ctx_destroy(ctx);
                assert!(
                    last().starts_with("frt_ctx_destroy: refused inside"),
                    "{}",
                    last()
                );
                tell.store(1, SeqCst);
            };
            expect(host_func(raw, function), FRT_OK);
            expect(frt_stream_sync(ctx, 0), FRT_OK);
            assert_eq!(done.load(SeqCst), 1);
            // Everything is still there.
            assert_eq!(
                (frt_graph_variant_count(g), frt_graph_has_variant(g, 1)),
                (1, 1)
            );
            assert_eq!(frt_ctx_stream(ctx, 0), 1);
            expect(frt_event_record(event, 0), FRT_OK);
            expect(frt_plan_execute(p, 1), FRT_OK);
            assert_eq!(read(ctx, b), [1; 4]);
        }
    });
}

#[test]
fn a_host_function_may_drive_another_context_and_destroy_it() {
    let (one, two) = (cpu(), cpu());
    let (g, b) = (graph(two, 0), buffer(two, 2));
    capture_fill(two, g, 1, b, 3);
    // SAFETY: as for C; both contexts are driven by this thread.
    unsafe {
        let (two, g, b) = (two.addr(), g.addr(), b.addr());
        let bytes: Arc<Mutex<Vec<u8>>> = Arc::default();
        let out = bytes.clone();
        let function = move || {
            let two: frt_ctx = without_provenance_mut(two);
            expect(frt_graph_replay(without_provenance_mut(g), 1, 0), FRT_OK);
            *out.lock().unwrap() = read(two, without_provenance_mut(b));
            frt_ctx_destroy(two);
        };
        expect(host_func(frt_stream_handle(one, 0), function), FRT_OK);
        expect(frt_stream_sync(one, 0), FRT_OK);
        assert_eq!(*bytes.lock().unwrap(), [3, 3]);
        assert_eq!(
            frt_ctx_backend(without_provenance_mut(two)),
            FRT_ERR_INVALID
        );
        frt_ctx_destroy(one);
    }
}

#[test]
fn work_that_nobody_waited_for_may_be_dropped_with_its_context() {
    let count = Arc::new(AtomicUsize::new(0));
    let ctx = cpu();
    // SAFETY: as for C.
    unsafe {
        let c = count.clone();
        let f = move || {
            c.fetch_add(1, SeqCst);
        };
        expect(host_func(frt_stream_handle(ctx, 0), f), FRT_OK);
        frt_ctx_destroy(ctx);
    }
    assert_eq!(count.load(SeqCst), 0);
}
