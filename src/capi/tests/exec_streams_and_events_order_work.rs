//! Stream ids count up, streams keep their order, and events carry it from one to another.

mod exec_support;
use exec_support::*;

use flashrt_capi::*;
use std::ptr::null_mut;
use std::sync::{Arc, Mutex};

/// Notes in the order in which host functions ran.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<&'static str>>>);

impl Log {
    fn note(&self, ctx: frt_ctx, stream: i32, word: &'static str) {
        let log = self.clone();
        // SAFETY: as for C.
        let raw = unsafe { frt_stream_handle(ctx, stream) };
        expect(
            host_func(raw, move || log.0.lock().unwrap().push(word)),
            FRT_OK,
        );
    }

    fn words(&self) -> Vec<&'static str> {
        self.0.lock().unwrap().clone()
    }
}

#[test]
fn ids_count_up_over_own_and_wrapped_streams() {
    on_each_backend(|ctx| {
        // SAFETY: as for C.
        unsafe {
            assert_eq!(frt_ctx_stream(ctx, 0), 1);
            assert_eq!(frt_ctx_wrap_stream(ctx, null_mut()), 2);
            // Clamped, not refused.
            assert_eq!(frt_ctx_stream(ctx, i32::MIN), 3);
            assert_eq!(frt_ctx_stream(ctx, i32::MAX), 4);
            // A wrapped null stream is a valid id.
            expect(frt_stream_sync(ctx, 2), FRT_OK);
            let b = buffer(ctx, 2);
            expect(frt_buffer_fill(ctx, b, 0, 4, 2, 2), FRT_OK);
            expect(frt_stream_sync(ctx, 2), FRT_OK);
            assert_eq!(read(ctx, b), [4, 4]);
        }
    });
}

#[test]
fn a_stream_of_the_caller_can_be_wrapped_by_its_handle() {
    on_each_backend(|ctx| {
        // SAFETY: as for C.
        unsafe {
            let own = frt_ctx_stream(ctx, 0);
            let wrapped = frt_ctx_wrap_stream(ctx, frt_stream_handle(ctx, own));
            assert_eq!(wrapped, 2);
            let log = Log::default();
            log.note(ctx, wrapped, "wrapped");
            expect(frt_stream_sync(ctx, wrapped), FRT_OK);
            assert_eq!(log.words(), ["wrapped"]);
        }
    });
}

#[test]
fn the_handle_of_a_stream_is_the_same_every_time() {
    on_each_backend(|ctx| {
        // SAFETY: as for C.
        unsafe {
            let s1 = frt_ctx_stream(ctx, 0);
            let (zero, one) = (frt_stream_handle(ctx, 0), frt_stream_handle(ctx, s1));
            assert!(!zero.is_null() && !one.is_null() && zero != one);
            assert_eq!(
                (frt_stream_handle(ctx, 0), frt_stream_handle(ctx, s1)),
                (zero, one)
            );
        }
    });
}

#[test]
fn work_of_one_stream_runs_in_order() {
    on_each_backend(|ctx| {
        let log = Log::default();
        for word in ["a", "b", "c"] {
            log.note(ctx, 0, word);
        }
        // SAFETY: as for C.
        unsafe { expect(frt_stream_sync(ctx, 0), FRT_OK) };
        assert_eq!(log.words(), ["a", "b", "c"]);
    });
}

#[test]
fn a_stream_that_waits_for_an_event_sees_the_work_before_it() {
    on_each_backend(|ctx| {
        let (a, b) = (buffer(ctx, 4), buffer(ctx, 4));
        let (make, take) = (graph(ctx, 0), graph(ctx, 0));
        capture_fill(ctx, make, 1, a, 6);
        // SAFETY: as for C.
        unsafe {
            let copied = capture(take, 1, |_| {
                expect(frt_buffer_copy(ctx, b, 0, a, 0, 4, 0), FRT_OK)
            });
            expect(copied, FRT_OK);
            let (s1, event) = (frt_ctx_stream(ctx, -1), frt_ctx_event(ctx));
            for _ in 0..3 {
                write(ctx, b, &[0; 4]);
                expect(frt_graph_replay(make, 1, 0), FRT_OK);
                expect(frt_event_record(event, 0), FRT_OK);
                expect(frt_stream_wait(ctx, s1, event), FRT_OK);
                expect(frt_graph_replay(take, 1, s1), FRT_OK);
                // Synchronising the waiting stream is enough.
                expect(frt_stream_sync(ctx, s1), FRT_OK);
                assert_eq!(read(ctx, b), [6; 4]);
            }
        }
    });
}

#[test]
fn an_event_that_was_never_recorded_holds_nothing_up() {
    on_each_backend(|ctx| {
        // SAFETY: as for C.
        unsafe {
            let event = frt_ctx_event(ctx);
            expect(frt_event_query(event), 0);
            expect(frt_event_sync(event), FRT_OK);
            expect(frt_stream_wait(ctx, 0, event), FRT_OK);
            let log = Log::default();
            log.note(ctx, 0, "ran");
            expect(frt_stream_sync(ctx, 0), FRT_OK);
            assert_eq!(log.words(), ["ran"]);
        }
    });
}

#[test]
fn synchronising_an_event_runs_the_work_before_its_mark() {
    on_each_backend(|ctx| {
        let log = Log::default();
        // SAFETY: as for C.
        unsafe {
            let event = frt_ctx_event(ctx);
            log.note(ctx, 0, "before");
            expect(frt_event_record(event, 0), FRT_OK);
            expect(frt_event_sync(event), FRT_OK);
            assert_eq!(log.words(), ["before"]);
            expect(frt_event_query(event), 0);
            // Recording it again moves the mark.
            log.note(ctx, 0, "later");
            expect(frt_event_record(event, 0), FRT_OK);
            expect(frt_event_sync(event), FRT_OK);
            assert_eq!(log.words(), ["before", "later"]);
        }
    });
}

#[test]
fn an_event_is_pending_until_its_work_is_done() {
    let ctx = cpu();
    let log = Log::default();
    // SAFETY: as for C.
    unsafe {
        let event = frt_ctx_event(ctx);
        for word in ["a", "b", "c"] {
            log.note(ctx, 0, word);
        }
        expect(frt_event_record(event, 0), FRT_OK);
        // The CPU runs one item for each question.
        assert_eq!([(); 4].map(|()| frt_event_query(event)), [1, 1, 0, 0]);
        assert_eq!(log.words(), ["a", "b", "c"]);
        frt_ctx_destroy(ctx);
    }
}

#[test]
fn an_event_may_be_destroyed_behind_a_wait_for_it() {
    on_each_backend(|ctx| {
        let log = Log::default();
        // SAFETY: as for C.
        unsafe {
            let (s1, event) = (frt_ctx_stream(ctx, 0), frt_ctx_event(ctx));
            log.note(ctx, 0, "first");
            expect(frt_event_record(event, 0), FRT_OK);
            expect(frt_stream_wait(ctx, s1, event), FRT_OK);
            frt_event_destroy(event);
            log.note(ctx, s1, "second");
            expect(frt_stream_sync(ctx, s1), FRT_OK);
            assert_eq!(log.words(), ["first", "second"]);
        }
    });
}

#[test]
fn an_event_of_another_context_is_refused() {
    let other = cpu();
    on_each_backend(|ctx| {
        // SAFETY: as for C.
        unsafe {
            let event = frt_ctx_event(other);
            expect(frt_stream_wait(ctx, 0, event), FRT_ERR_INVALID);
            assert!(last().ends_with("belongs to another context"), "{}", last());
        }
    });
    // SAFETY: as for C.
    unsafe { frt_ctx_destroy(other) };
}
