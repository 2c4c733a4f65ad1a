//! One thread drives one context: two of them side by side, and one that is handed from thread to thread.

mod exec_support;
use exec_support::*;

use flashrt_capi::*;
use std::ptr::{null_mut, without_provenance_mut};
use std::thread;

#[test]
fn two_threads_with_a_context_each_make_and_destroy_side_by_side() {
    std::env::set_var("FLASHRT_THREADS", "1");
    let drive = |value: u8| {
        for round in 0..if cfg!(miri) { 4 } else { 200 } {
            let ctx = cpu();
            let (g, b) = (graph(ctx, 2), buffer(ctx, 8));
            // SAFETY: as for C.
            unsafe {
                let event = frt_ctx_event(ctx);
                capture_fill(ctx, g, 1, b, value);
                expect(frt_graph_replay(g, 1, 0), FRT_OK);
                expect(frt_event_record(event, 0), FRT_OK);
                expect(frt_event_sync(event), FRT_OK);
                assert_eq!(read(ctx, b), [value; 8]);
                // A text is this thread's own.
                expect(frt_graph_replay(g, value.into(), 0), FRT_ERR_NO_VARIANT);
                assert!(last().contains(&format!("key {value},")), "{}", last());
                if round % 2 == 0 {
                    frt_graph_destroy(g);
                    expect(frt_buffer_free(b), FRT_OK);
                }
                frt_ctx_destroy(ctx);
                expect(frt_graph_replay(g, 1, 0), FRT_ERR_INVALID);
                assert_eq!(frt_buffer_bytes(b), 0);
            }
        }
    };
    thread::scope(|s| {
        for value in [3, 4, 5] {
            s.spawn(move || drive(value));
        }
    });
}

#[test]
fn a_context_may_be_handed_from_thread_to_thread() {
    on_each_backend(|ctx| {
        let (g, b) = (graph(ctx, 0), buffer(ctx, 4));
        let handles = [ctx.addr(), g.addr(), b.addr()];
        let on_another_thread = thread::spawn(move || {
            let [ctx, g, b] = handles;
            let (ctx, b): (frt_ctx, frt_buffer) =
                (without_provenance_mut(ctx), without_provenance_mut(b));
            let g: frt_graph = without_provenance_mut(g);
            capture_fill(ctx, g, 1, b, 6);
            // SAFETY: as for C.
            unsafe { expect(frt_graph_replay(g, 1, 0), FRT_OK) };
            read(ctx, b)
        });
        assert_eq!(on_another_thread.join().unwrap(), [6; 4]);
        // SAFETY: as for C.
        unsafe { expect(frt_graph_replay(g, 1, 0), FRT_OK) };
        assert_eq!(read(ctx, b), [6; 4]);
    });
}

#[test]
fn each_thread_has_its_own_last_error() {
    // SAFETY: as for C.
    unsafe { expect(frt_ctx_stream(NO_CTX, 0), FRT_ERR_INVALID) };
    let before = last();
    let other = thread::spawn(|| {
        let fresh = last();
        // SAFETY: as for C.
        unsafe {
            expect(
                frt_stream_host_func(null_mut(), None, null_mut()),
                FRT_ERR_INVALID,
            )
        };
        (fresh, last())
    });
    let (fresh, text) = other.join().unwrap();
    assert_eq!(fresh, "");
    assert!(text.starts_with("frt_stream_host_func: "), "{text}");
    assert_eq!(last(), before);
}
