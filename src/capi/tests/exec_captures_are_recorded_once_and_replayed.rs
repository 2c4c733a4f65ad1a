//! A capture calls its callback once, runs nothing, and each replay runs all that was recorded.

mod exec_support;
use exec_support::*;

use flashrt_capi::*;
use std::cell::Cell;
use std::ffi::c_void;
use std::ptr::null_mut;

#[test]
fn recorded_work_runs_on_replay_and_not_at_capture() {
    on_each_backend(|ctx| {
        let (g, b) = (graph(ctx, 0), buffer(ctx, 8));
        let calls = Cell::new(0);
        let status = capture(g, 5, |stream| {
            calls.set(calls.get() + 1);
            assert!(!stream.is_null());
            // SAFETY: as for C.
            unsafe { expect(frt_buffer_fill(ctx, b, 2, 0x1ff, 4, 0), FRT_OK) };
        });
        expect(status, FRT_OK);
        assert_eq!(calls.get(), 1);
        assert_eq!(read(ctx, b), [0; 8]);
        // SAFETY: as for C.
        unsafe {
            for _ in 0..2 {
                write(ctx, b, &[1; 8]);
                expect(frt_graph_replay(g, 5, 0), FRT_OK);
                expect(frt_stream_sync(ctx, 0), FRT_OK);
                assert_eq!(read(ctx, b), [1, 1, 255, 255, 255, 255, 1, 1]);
            }
        }
        assert_eq!(calls.get(), 1);
    });
}

#[test]
fn a_copy_inside_a_callback_is_recorded_between_its_neighbours() {
    on_each_backend(|ctx| {
        let (g, a, b) = (graph(ctx, 0), buffer(ctx, 4), buffer(ctx, 4));
        // SAFETY: as for C.
        let status = capture(g, 1, |_| unsafe {
            expect(frt_buffer_fill(ctx, a, 0, 7, 4, 0), FRT_OK);
            expect(frt_buffer_copy(ctx, b, 0, a, 0, 4, 0), FRT_OK);
            expect(frt_buffer_fill(ctx, a, 0, 9, 4, 0), FRT_OK);
        });
        expect(status, FRT_OK);
        // SAFETY: as for C.
        unsafe { expect(frt_graph_replay(g, 1, 0), FRT_OK) };
        assert_eq!((read(ctx, b), read(ctx, a)), (vec![7; 4], vec![9; 4]));
    });
}

#[test]
fn an_empty_capture_is_a_variant_that_does_nothing() {
    on_each_backend(|ctx| {
        let g = graph(ctx, 0);
        expect(capture(g, 1, |_| ()), FRT_OK);
        // SAFETY: as for C.
        unsafe {
            assert_eq!(frt_graph_has_variant(g, 1), 1);
            expect(frt_graph_replay(g, 1, 0), FRT_OK);
            expect(frt_stream_sync(ctx, 0), FRT_OK);
        }
    });
}

#[test]
fn the_user_pointer_arrives_as_it_was_given() {
    unsafe extern "C" fn record(user: *mut c_void, _: *mut c_void) {
        // SAFETY: the test passes an int.
        unsafe { *user.cast::<i32>() += 1 };
    }
    let (ctx, mut n) = (cpu(), 41);
    // SAFETY: as for C; `n` lives.
    unsafe {
        let user = (&raw mut n).cast();
        expect(
            frt_graph_capture(graph(ctx, 0), 1, Some(record), user),
            FRT_OK,
        );
        frt_ctx_destroy(ctx);
    }
    assert_eq!(n, 42);
}

#[test]
fn a_callback_that_panics_fails_the_capture_and_leaves_the_table() {
    unsafe extern "C-unwind" fn record(user: *mut c_void, _: *mut c_void) {
        // SAFETY: the test passes a context.
        let ctx: frt_ctx = unsafe { *user.cast() };
        // SAFETY: as for C.
        unsafe { expect(frt_buffer_fill(ctx, buffer_of(ctx), 0, 1, 1, 0), FRT_OK) };
        panic!("wheel {} fell off", 3);
    }
    thread_local!(static BUFFER: Cell<frt_buffer> = const { Cell::new(null_mut()) });
    fn buffer_of(_: frt_ctx) -> frt_buffer {
        BUFFER.get()
    }
    on_each_backend(|mut ctx| {
        let (g, b) = (graph(ctx, 1), buffer(ctx, 1));
        BUFFER.set(b);
        capture_fill(ctx, g, 4, b, 9);
        type Callback = unsafe extern "C" fn(*mut c_void, *mut c_void);
        type Unwinding = unsafe extern "C-unwind" fn(*mut c_void, *mut c_void);
        // SAFETY: the types differ only in the unwind, which the library catches.
        let callback = unsafe { std::mem::transmute::<Unwinding, Callback>(record) };
        // SAFETY: as for C.
        unsafe {
            let user = (&raw mut ctx).cast();
            expect(
                frt_graph_capture(g, 5, Some(callback), user),
                FRT_ERR_CAPTURE,
            );
            assert!(last().contains("wheel 3 fell off"), "{}", last());
            // Neither inserted nor evicted, and the context records no more.
            assert_eq!(
                (frt_graph_has_variant(g, 5), frt_graph_has_variant(g, 4)),
                (0, 1)
            );
            expect(frt_graph_replay(g, 4, 0), FRT_OK);
        }
        assert_eq!(read(ctx, b), [9]);
    });
}

#[test]
fn a_refused_command_does_not_spoil_the_capture() {
    on_each_backend(|ctx| {
        let (g, b) = (graph(ctx, 0), buffer(ctx, 4));
        // SAFETY: as for C.
        let status = capture(g, 1, |_| unsafe {
            expect(frt_buffer_fill(ctx, b, 1, 7, 4, 0), FRT_ERR_INVALID);
            expect(frt_buffer_copy(ctx, b, 0, b, 1, 2, 0), FRT_ERR_INVALID);
            expect(frt_buffer_fill(ctx, b, 0, 7, 4, 9), FRT_ERR_INVALID);
            expect(frt_buffer_fill(ctx, b, 0, 7, 3, 0), FRT_OK);
        });
        expect(status, FRT_OK);
        // SAFETY: as for C.
        unsafe { expect(frt_graph_replay(g, 1, 0), FRT_OK) };
        assert_eq!(read(ctx, b), [7, 7, 7, 0]);
    });
}

#[test]
fn other_commands_are_refused_while_a_context_records() {
    on_each_backend(|ctx| {
        // SAFETY: as for C.
        unsafe {
            let (g, other, b) = (graph(ctx, 0), graph(ctx, 0), buffer(ctx, 4));
            let (s1, event) = (frt_ctx_stream(ctx, 0), frt_ctx_event(ctx));
            assert_eq!(s1, 1);
            capture_fill(ctx, other, 2, b, 1);
            let plan = frt_plan_create(ctx);
            expect(frt_plan_add(plan, other, 2, 0), 0);
            let raw = frt_stream_handle(ctx, s1);
            let mut byte = 0u8;
            let byte = (&raw mut byte).cast::<c_void>();
            let status = capture(g, 1, |_| {
                for status in [
                    frt_ctx_stream(ctx, 0),
                    frt_ctx_wrap_stream(ctx, null_mut()),
                    frt_stream_sync(ctx, 0),
                    frt_event_record(event, 0),
                    frt_stream_wait(ctx, 0, event),
                    frt_event_query(event),
                    frt_event_sync(event),
                    frt_buffer_copy(ctx, b, 0, b, 2, 2, s1),
                    frt_buffer_fill(ctx, b, 0, 2, 2, s1),
                    frt_buffer_upload(ctx, b, 0, byte, 1, 0),
                    frt_buffer_download(ctx, b, 0, byte, 1, 0),
                    frt_graph_replay(other, 2, 0),
                    frt_plan_execute(plan, 2),
                    frt_plan_sync(plan),
                    host_func(raw, || ()),
                ] {
                    expect(status, FRT_ERR_BACKEND);
                }
                assert!(frt_buffer_alloc(ctx, null_mut(), 4).is_null());
                expect(capture(other, 3, |_| ()), FRT_ERR_CAPTURE);
                // A missing key and a bad stream come first here too.
                expect(frt_graph_replay(other, 3, 0), FRT_ERR_NO_VARIANT);
                expect(frt_event_record(event, 7), FRT_ERR_INVALID);
                expect(frt_stream_sync(ctx, 7), FRT_ERR_INVALID);
            });
            expect(status, FRT_OK);
            assert_eq!(frt_graph_has_variant(other, 3), 0);
            // No stream was made, nothing was recorded.
            assert_eq!(frt_ctx_stream(ctx, 0), 2);
            expect(frt_graph_replay(g, 1, 0), FRT_OK);
        }
    });
}

#[test]
fn destroying_what_records_is_refused_with_a_text() {
    on_each_backend(|ctx| {
        let (g, b) = (graph(ctx, 0), buffer(ctx, 4));
        let (other, event) = (graph(ctx, 0), unsafe { frt_ctx_event(ctx) });
        // SAFETY: as for C.
        let status = capture(g, 1, |_| unsafe {
            frt_ctx_destroy(ctx);
            assert_eq!(last(), "frt_ctx_destroy: refused while the context records");
            frt_graph_destroy(g);
            assert_eq!(
                last(),
                "frt_graph_destroy: refused while the graph is being recorded"
            );
            // Others may go.
            frt_graph_destroy(other);
            frt_event_destroy(event);
            expect(frt_buffer_fill(ctx, b, 0, 3, 4, 0), FRT_OK);
        });
        expect(status, FRT_OK);
        // SAFETY: as for C.
        unsafe { expect(frt_graph_replay(g, 1, 0), FRT_OK) };
        assert_eq!(read(ctx, b), [3; 4]);
    });
}

#[test]
fn a_captured_variant_keeps_its_memory_after_the_buffer_is_freed() {
    on_each_backend(|ctx| {
        let (g, a, b) = (graph(ctx, 0), buffer(ctx, 4), buffer(ctx, 4));
        // SAFETY: as for C.
        let status = capture(g, 1, |_| unsafe {
            expect(frt_buffer_fill(ctx, a, 0, 5, 4, 0), FRT_OK);
            expect(frt_buffer_copy(ctx, b, 0, a, 0, 4, 0), FRT_OK);
        });
        expect(status, FRT_OK);
        // SAFETY: as for C.
        unsafe {
            expect(frt_buffer_free(a), FRT_OK);
            expect(frt_buffer_free(a), FRT_ERR_INVALID);
            expect(frt_graph_replay(g, 1, 0), FRT_OK);
        }
        assert_eq!(read(ctx, b), [5; 4]);
    });
}

#[test]
fn a_callback_may_drive_another_context() {
    let (one, two) = (cpu(), cpu());
    let (g, h, a, b) = (graph(one, 0), graph(two, 0), buffer(one, 1), buffer(two, 1));
    let status = capture(g, 1, |_| {
        capture_fill(two, h, 1, b, 4);
        // SAFETY: as for C.
        unsafe {
            expect(frt_graph_replay(h, 1, 0), FRT_OK);
            expect(frt_buffer_fill(one, a, 0, 8, 1, 0), FRT_OK);
        }
        assert_eq!(read(two, b), [4]);
    });
    expect(status, FRT_OK);
    // SAFETY: as for C.
    unsafe {
        expect(frt_graph_replay(g, 1, 0), FRT_OK);
        assert_eq!(read(one, a), [8]);
        frt_ctx_destroy(one);
        frt_ctx_destroy(two);
    }
}
