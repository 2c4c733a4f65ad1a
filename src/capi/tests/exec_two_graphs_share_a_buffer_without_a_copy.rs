//! Zero-copy hand-off: a producer's graph and a consumer's graph hold the same address.

mod exec_support;
use exec_support::*;

use flashrt_capi::*;

#[test]
fn what_the_producer_writes_the_consumer_reads_in_place() {
    on_each_backend(|ctx| {
        let (shared, out) = (buffer(ctx, 16), buffer(ctx, 16));
        let (producer, consumer) = (graph(ctx, 0), graph(ctx, 0));
        // SAFETY: as for C.
        unsafe {
            let address = frt_buffer_dptr(shared);
            expect(
                frt_graph_bind(producer, c"features".as_ptr(), shared),
                FRT_OK,
            );
            expect(frt_graph_bind(consumer, c"tokens".as_ptr(), shared), FRT_OK);
            capture_fill(ctx, producer, 1, shared, 11);
            capture_fill(ctx, producer, 2, shared, 22);
            let status = capture(consumer, 1, |_| {
                expect(frt_buffer_copy(ctx, out, 0, shared, 0, 16, 0), FRT_OK);
            });
            expect(status, FRT_OK);
            for (key, value) in [(1, 11), (2, 22), (1, 11)] {
                expect(frt_graph_replay(producer, key, 0), FRT_OK);
                expect(frt_graph_replay(consumer, 1, 0), FRT_OK);
                assert_eq!(read(ctx, out), [value; 16]);
            }
            // New contents from outside reach the consumer too; the address never changed.
            write(ctx, shared, &[5; 16]);
            expect(frt_graph_replay(consumer, 1, 0), FRT_OK);
            assert_eq!(read(ctx, out), [5; 16]);
            assert_eq!(frt_buffer_dptr(shared), address);
            assert_eq!(
                (
                    frt_graph_variant_count(producer),
                    frt_graph_variant_count(consumer)
                ),
                (2, 1)
            );
        }
    });
}
