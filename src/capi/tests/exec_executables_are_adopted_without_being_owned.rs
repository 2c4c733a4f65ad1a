//! An adopted executable replays as its donor's does, and no order of destruction is wrong.

mod exec_support;
use exec_support::*;

use flashrt_capi::*;
use std::ffi::c_void;
use std::ptr::without_provenance_mut;

#[test]
fn an_adopted_variant_replays_the_same_bytes_as_its_donor() {
    on_each_backend(|ctx| {
        let (donor, g, a, b) = (
            graph(ctx, 0),
            graph(ctx, 0),
            buffer(ctx, 64),
            buffer(ctx, 64),
        );
        let input: Vec<u8> = (0..64).map(|i| i * 3).collect();
        write(ctx, a, &input);
        // SAFETY: as for C.
        let status = capture(donor, 1, |_| unsafe {
            expect(frt_buffer_copy(ctx, b, 1, a, 0, 63, 0), FRT_OK);
            expect(frt_buffer_fill(ctx, b, 10, 77, 5, 0), FRT_OK);
        });
        expect(status, FRT_OK);
        // SAFETY: as for C.
        unsafe {
            let exec = frt_graph_executable(donor, 1);
            assert!(!exec.is_null());
            expect(frt_graph_adopt(g, 5, exec), FRT_OK);
            let run = |g, key| {
                write(ctx, b, &[0; 64]);
                expect(frt_graph_replay(g, key, 0), FRT_OK);
                read(ctx, b)
            };
            let (first, second) = (run(donor, 1), run(g, 5));
            assert_eq!(first, second);
            assert_eq!(first[..12], [0, 0, 3, 6, 9, 12, 15, 18, 21, 24, 77, 77]);
        }
    });
}

#[test]
fn a_donor_that_goes_early_does_no_harm() {
    on_each_backend(|ctx| {
        let (donor, g, b) = (graph(ctx, 0), graph(ctx, 0), buffer(ctx, 4));
        capture_fill(ctx, donor, 1, b, 4);
        // SAFETY: as for C.
        unsafe {
            expect(
                frt_graph_adopt(g, 2, frt_graph_executable(donor, 1)),
                FRT_OK,
            );
            expect(frt_graph_evict(donor, 1), FRT_OK);
            frt_graph_destroy(donor);
            expect(frt_graph_replay(g, 2, 0), FRT_OK);
        }
        assert_eq!(read(ctx, b), [4; 4]);
    });
}

#[test]
fn an_adopted_variant_may_be_handed_on() {
    on_each_backend(|ctx| {
        let (a, b, c, buf) = (graph(ctx, 0), graph(ctx, 0), graph(ctx, 0), buffer(ctx, 1));
        capture_fill(ctx, a, 1, buf, 4);
        // SAFETY: as for C.
        unsafe {
            expect(frt_graph_adopt(b, 2, frt_graph_executable(a, 1)), FRT_OK);
            expect(frt_graph_adopt(c, 3, frt_graph_executable(b, 2)), FRT_OK);
            // Also into its own graph, and over itself.
            expect(frt_graph_adopt(c, 3, frt_graph_executable(c, 3)), FRT_OK);
            expect(frt_graph_adopt(c, 4, frt_graph_executable(c, 3)), FRT_OK);
            frt_graph_destroy(a);
            frt_graph_destroy(b);
            expect(frt_graph_replay(c, 4, 0), FRT_OK);
        }
        assert_eq!(read(ctx, buf), [4]);
    });
}

#[test]
fn on_the_cpu_only_executables_of_live_variants_are_taken() {
    let (ctx, other) = (cpu(), cpu());
    let (donor, g, b) = (graph(ctx, 0), graph(ctx, 1), buffer(ctx, 1));
    capture_fill(ctx, g, 9, b, 9);
    // SAFETY: as for C.
    unsafe {
        let refused = |exec: *mut c_void| {
            expect(frt_graph_adopt(g, 1, exec), FRT_ERR_INVALID);
            assert!(
                last().starts_with("frt_graph_adopt: executable: expected one that"),
                "{}",
                last()
            );
        };
        let mut local = 0u64;
        refused(without_provenance_mut(8));
        refused((&raw mut local).cast());
        refused(g.cast());
        // Evicted.
        capture_fill(ctx, donor, 1, b, 1);
        let evicted = frt_graph_executable(donor, 1);
        expect(frt_graph_evict(donor, 1), FRT_OK);
        refused(evicted);
        // Replaced.
        capture_fill(ctx, donor, 1, b, 1);
        let replaced = frt_graph_executable(donor, 1);
        capture_fill(ctx, donor, 1, b, 2);
        refused(replaced);
        // Its graph is gone.
        let orphan = frt_graph_executable(donor, 1);
        frt_graph_destroy(donor);
        refused(orphan);
        // Of another context.
        let theirs = graph(other, 0);
        capture_fill(other, theirs, 1, buffer(other, 1), 1);
        refused(frt_graph_executable(theirs, 1));
        // Nothing of it evicted what is there.
        assert_eq!(
            (frt_graph_has_variant(g, 9), frt_graph_variant_count(g)),
            (1, 1)
        );
        frt_ctx_destroy(ctx);
        frt_ctx_destroy(other);
    }
}
