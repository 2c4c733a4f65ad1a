//! A tick through the C ABI takes nothing from the heap and gives nothing back. One test, alone in its binary.

mod exec_support;
use exec_support::*;

use flashrt_capi::*;

#[path = "../../../test/support/heap.rs"]
mod heap;

#[test]
fn a_tick_of_replays_plans_events_and_copies_allocates_nothing() {
    heap::count_this_thread();
    on_each_backend(|ctx| {
        // SAFETY: as for C.
        unsafe {
            let (g, a, b) = (graph(ctx, 3), buffer(ctx, 256), buffer(ctx, 256));
            let host = frt_buffer_alloc_host(ctx, c"host".as_ptr(), 256);
            for key in [1, 2] {
                let status = capture(g, key, |stream| {
                    expect(frt_buffer_copy(ctx, b, 0, a, 0, 256, 0), FRT_OK);
                    expect(host_func(stream, || ()), FRT_OK);
                    expect(frt_buffer_fill(ctx, b, 0, key as i32, 8, 0), FRT_OK);
                });
                expect(status, FRT_OK);
            }
            let (s1, event, p) = (
                frt_ctx_stream(ctx, 0),
                frt_ctx_event(ctx),
                frt_plan_create(ctx),
            );
            expect(frt_plan_add(p, g, FRT_KEY_INHERIT, 0), 0);
            expect(frt_plan_add(p, g, 2, s1), 1);
            expect(frt_plan_add(p, g, 1, 0), 2);
            expect(frt_plan_after(p, 1, 0), FRT_OK);
            expect(frt_plan_after(p, 2, 1), FRT_OK);
            let tick = |n: u64| {
                assert_eq!(frt_graph_replay(g, 1 + n % 2, 0), FRT_OK);
                assert_eq!(frt_graph_has_variant(g, 1), 1);
                assert_eq!(frt_plan_execute(p, 1), FRT_OK);
                assert_eq!(frt_event_record(event, 0), FRT_OK);
                assert_eq!(frt_stream_wait(ctx, s1, event), FRT_OK);
                assert_eq!(frt_buffer_copy(ctx, host, 0, b, 0, 256, s1), FRT_OK);
                assert_eq!(frt_buffer_fill(ctx, a, 0, n as i32, 256, s1), FRT_OK);
                assert!(frt_event_query(event) >= 0);
                assert_eq!(frt_event_sync(event), FRT_OK);
                assert_eq!(frt_plan_sync(p), FRT_OK);
                assert_eq!(frt_stream_sync(ctx, s1), FRT_OK);
                assert_eq!(frt_stream_sync(ctx, 0), FRT_OK);
                assert_eq!((frt_buffer_bytes(b), frt_graph_variant_count(g)), (256, 2));
                assert!(!frt_buffer_dptr(b).is_null() && !frt_buffer_name(b).is_null());
            };
            // First what the standard library and a driver set up lazily.
            (0..20).for_each(tick);
            let (taken, freed) = (heap::taken(), heap::freed());
            (0..1000).for_each(tick);
            assert_eq!((heap::taken() - taken, heap::freed() - freed), (0, 0));
        }
    });
}
