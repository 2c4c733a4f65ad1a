//! Which of two bad arguments decides the status.

mod exec_support;
use exec_support::*;

use flashrt_capi::*;
use std::ffi::c_void;
use std::ptr::{null, null_mut};

#[test]
fn replay_looks_up_the_key_before_it_checks_the_stream() {
    on_each_backend(|ctx| {
        let (g, b) = (graph(ctx, 0), buffer(ctx, 1));
        capture_fill(ctx, g, 1, b, 1);
        // SAFETY: as for C.
        unsafe {
            for bad_stream in [-1, 1, i32::MAX, i32::MIN] {
                expect(frt_graph_replay(g, 2, bad_stream), FRT_ERR_NO_VARIANT);
                expect(frt_graph_replay(g, 1, bad_stream), FRT_ERR_INVALID);
            }
            expect(frt_graph_replay(g, 2, 0), FRT_ERR_NO_VARIANT);
            expect(frt_graph_replay(NO_GRAPH, 2, 9), FRT_ERR_INVALID);
        }
    });
}

#[test]
fn a_replay_on_a_bad_stream_is_no_use_of_the_variant() {
    on_each_backend(|ctx| {
        let (g, b) = (graph(ctx, 2), buffer(ctx, 1));
        for key in [1, 2] {
            capture_fill(ctx, g, key, b, 1);
        }
        // SAFETY: as for C.
        unsafe {
            expect(frt_graph_replay(g, 1, 5), FRT_ERR_INVALID);
            capture_fill(ctx, g, 3, b, 1);
            assert_eq!(
                (frt_graph_has_variant(g, 1), frt_graph_has_variant(g, 2)),
                (0, 1)
            );
        }
    });
}

#[test]
fn a_plan_answers_with_the_first_failing_replay() {
    on_each_backend(|ctx| {
        let (g, b) = (graph(ctx, 0), buffer(ctx, 4));
        capture_fill(ctx, g, 1, b, 5);
        // SAFETY: as for C.
        unsafe {
            let p = frt_plan_create(ctx);
            let gone = graph(ctx, 0);
            expect(frt_plan_add(p, g, 1, 0), 0);
            expect(frt_plan_add(p, g, 8, 0), 1);
            expect(frt_plan_add(p, gone, 1, 0), 2);
            frt_graph_destroy(gone);
            expect(frt_plan_execute(p, 0), FRT_ERR_NO_VARIANT);
            assert!(
                last().starts_with("frt_plan_execute: node 1: "),
                "{}",
                last()
            );
            assert_eq!(read(ctx, b), [5; 4]);
        }
    });
}

#[test]
fn copies_check_handles_then_ranges_then_the_stream() {
    on_each_backend(|ctx| {
        let b = buffer(ctx, 8);
        // SAFETY: as for C.
        unsafe {
            // All of them have the same status: the text tells which check came first.
            for (call, text) in [
                ((NO_BUFFER, 9, b, 9, 9, 9), "handle (buffer), got null"),
                ((b, 9, b, 9, 9, 9), "window at 9 of 9 bytes"),
                ((b, 0, b, 7, 2, 9), "window at 7 of 2 bytes"),
                ((b, 0, b, 4, 4, 9), "stream 9 does not exist"),
            ] {
                let (dst, dst_offset, src, src_offset, bytes, stream) = call;
                let status = frt_buffer_copy(ctx, dst, dst_offset, src, src_offset, bytes, stream);
                expect(status, FRT_ERR_INVALID);
                assert!(last().contains(text), "{}", last());
            }
        }
    });
}

#[test]
fn captures_and_adoptions_check_for_null_before_anything_else() {
    on_each_backend(|ctx| {
        let (g, b) = (graph(ctx, 0), buffer(ctx, 1));
        // SAFETY: as for C.
        let status = capture(g, 1, |_| unsafe {
            // Even where the capture itself would fail with another status.
            expect(frt_graph_capture(g, 2, None, null_mut()), FRT_ERR_INVALID);
            expect(capture(g, 2, |_| ()), FRT_ERR_CAPTURE);
            expect(frt_graph_adopt(g, 2, null_mut()), FRT_ERR_INVALID);
            expect(frt_graph_bind(g, null(), b), FRT_ERR_INVALID);
            expect(
                frt_graph_bind(g, c"port".as_ptr(), NO_BUFFER),
                FRT_ERR_INVALID,
            );
        });
        expect(status, FRT_OK);
    });
}

#[test]
fn stream_ids_are_checked_by_every_function_that_takes_one() {
    on_each_backend(|ctx| {
        let b = buffer(ctx, 8);
        // SAFETY: as for C.
        unsafe {
            let (event, p, g) = (frt_ctx_event(ctx), frt_plan_create(ctx), graph(ctx, 0));
            capture_fill(ctx, g, 1, b, 1);
            let mut byte = 0u8;
            let byte = (&raw mut byte).cast::<c_void>();
            for id in [1, -1, i32::MAX, i32::MIN] {
                for status in [
                    frt_event_record(event, id),
                    frt_stream_wait(ctx, id, event),
                    frt_stream_sync(ctx, id),
                    frt_buffer_copy(ctx, b, 0, b, 4, 4, id),
                    frt_buffer_fill(ctx, b, 0, 0, 1, id),
                    frt_buffer_upload(ctx, b, 0, byte, 1, id),
                    frt_buffer_download(ctx, b, 0, byte, 1, id),
                    frt_graph_replay(g, 1, id),
                    frt_plan_add(p, g, 1, id),
                ] {
                    expect(status, FRT_ERR_INVALID);
                    let text = format!("stream {id} does not exist: expected 0 <= id < 1");
                    assert!(last().ends_with(&text), "{}", last());
                }
                assert!(frt_stream_handle(ctx, id).is_null());
            }
            assert_eq!(frt_ctx_stream(ctx, 0), 1);
            expect(frt_stream_sync(ctx, 1), FRT_OK);
        }
    });
}

#[test]
fn eviction_of_an_absent_variant_is_told_from_a_bad_graph() {
    on_each_backend(|ctx| {
        let g = graph(ctx, 0);
        // SAFETY: as for C.
        unsafe {
            expect(frt_graph_evict(g, 1), FRT_ERR_NO_VARIANT);
            expect(frt_graph_evict_lru(g), FRT_ERR_NO_VARIANT);
            expect(frt_graph_evict(NO_GRAPH, 1), FRT_ERR_INVALID);
            expect(frt_graph_evict_lru(NO_GRAPH), FRT_ERR_INVALID);
            assert!(frt_graph_executable(g, 1).is_null());
            assert_eq!(
                last(),
                "frt_graph_executable: graph \"graph\" has no variant for key 1, it holds 0"
            );
        }
    });
}
