//! The table of variants: every rule of recency, limit and replacement.

mod exec_support;
use exec_support::*;

use flashrt_capi::*;

fn keys(g: frt_graph, candidates: &[u64]) -> Vec<u64> {
    // SAFETY: as for C.
    let has = |k: &u64| unsafe { frt_graph_has_variant(g, *k) } == 1;
    let found: Vec<u64> = candidates.iter().copied().filter(has).collect();
    // SAFETY: as for C.
    assert_eq!(unsafe { frt_graph_variant_count(g) }, found.len());
    found
}

#[test]
fn a_full_table_evicts_exactly_the_least_recent() {
    on_each_backend(|ctx| {
        let (g, b) = (graph(ctx, 2), buffer(ctx, 1));
        for key in [1, 2, 3] {
            capture_fill(ctx, g, key, b, key as u8);
        }
        assert_eq!(keys(g, &[1, 2, 3]), [2, 3]);
        // SAFETY: as for C.
        unsafe { expect(frt_graph_replay(g, 1, 0), FRT_ERR_NO_VARIANT) };
    });
}

#[test]
fn replay_makes_a_variant_the_most_recent_and_asking_does_not() {
    on_each_backend(|ctx| {
        let (g, b) = (graph(ctx, 2), buffer(ctx, 1));
        capture_fill(ctx, g, 1, b, 1);
        capture_fill(ctx, g, 2, b, 2);
        // SAFETY: as for C.
        unsafe {
            expect(frt_graph_replay(g, 1, 0), FRT_OK);
            // Neither of these is a use of 2.
            assert_eq!(frt_graph_has_variant(g, 2), 1);
            assert!(!frt_graph_executable(g, 2).is_null());
            expect(frt_graph_bind(g, c"p".as_ptr(), b), FRT_OK);
        }
        capture_fill(ctx, g, 3, b, 3);
        assert_eq!(keys(g, &[1, 2, 3]), [1, 3]);
    });
}

#[test]
fn replacing_a_key_evicts_nothing_and_makes_it_the_most_recent() {
    on_each_backend(|ctx| {
        let (g, b) = (graph(ctx, 2), buffer(ctx, 1));
        capture_fill(ctx, g, 1, b, 1);
        capture_fill(ctx, g, 2, b, 2);
        capture_fill(ctx, g, 1, b, 9);
        assert_eq!(keys(g, &[1, 2]), [1, 2]);
        // SAFETY: as for C.
        unsafe { expect(frt_graph_replay(g, 1, 0), FRT_OK) };
        assert_eq!(read(ctx, b), [9]);
        capture_fill(ctx, g, 2, b, 2);
        capture_fill(ctx, g, 1, b, 9);
        capture_fill(ctx, g, 3, b, 3);
        assert_eq!(keys(g, &[1, 2, 3]), [1, 3]);
    });
}

#[test]
fn adopting_counts_as_capturing() {
    on_each_backend(|ctx| {
        let (donor, g, b) = (graph(ctx, 0), graph(ctx, 2), buffer(ctx, 1));
        capture_fill(ctx, donor, 7, b, 7);
        capture_fill(ctx, g, 1, b, 1);
        capture_fill(ctx, g, 2, b, 2);
        // SAFETY: as for C.
        unsafe {
            let exec = frt_graph_executable(donor, 7);
            expect(frt_graph_adopt(g, 3, exec), FRT_OK);
            assert_eq!(keys(g, &[1, 2, 3]), [2, 3]);
            // Replacing by adoption: no eviction, most recent.
            expect(frt_graph_adopt(g, 2, exec), FRT_OK);
            assert_eq!(keys(g, &[2, 3]), [2, 3]);
            capture_fill(ctx, g, 4, b, 4);
            assert_eq!(keys(g, &[2, 3, 4]), [2, 4]);
        }
    });
}

#[test]
fn evictions_by_key_and_by_age_leave_the_others_in_order() {
    on_each_backend(|ctx| {
        let (g, b) = (graph(ctx, 0), buffer(ctx, 1));
        for key in 1..=5 {
            capture_fill(ctx, g, key, b, 1);
        }
        // SAFETY: as for C.
        unsafe {
            expect(frt_graph_replay(g, 1, 0), FRT_OK);
            expect(frt_stream_sync(ctx, 0), FRT_OK);
            expect(frt_graph_evict(g, 3), FRT_OK);
            expect(frt_graph_evict(g, 3), FRT_ERR_NO_VARIANT);
            for left in [vec![1, 4, 5], vec![1, 5], vec![1], vec![]] {
                expect(frt_graph_evict_lru(g), FRT_OK);
                assert_eq!(keys(g, &[1, 2, 3, 4, 5]), left);
            }
            expect(frt_graph_evict_lru(g), FRT_ERR_NO_VARIANT);
        }
    });
}

#[test]
fn a_table_without_limit_keeps_everything() {
    on_each_backend(|ctx| {
        let (g, b) = (graph(ctx, 0), buffer(ctx, 1));
        let all: Vec<u64> = (0..40).collect();
        for &key in &all {
            capture_fill(ctx, g, key, b, 1);
        }
        assert_eq!(keys(g, &all), all);
    });
}

#[test]
fn every_number_is_a_key_all_ones_too() {
    on_each_backend(|ctx| {
        let (g, b) = (graph(ctx, 0), buffer(ctx, 1));
        let all = [0, 1, 1 << 63, u64::MAX - 1, FRT_KEY_INHERIT];
        for (n, key) in all.into_iter().enumerate() {
            capture_fill(ctx, g, key, b, n as u8 + 1);
        }
        assert_eq!(keys(g, &all), all);
        for (n, key) in all.into_iter().enumerate() {
            // SAFETY: as for C.
            unsafe { expect(frt_graph_replay(g, key, 0), FRT_OK) };
            assert_eq!(read(ctx, b), [n as u8 + 1]);
        }
    });
}

#[test]
fn a_failed_capture_changes_neither_table_nor_recency() {
    on_each_backend(|ctx| {
        let (g, b) = (graph(ctx, 2), buffer(ctx, 1));
        capture_fill(ctx, g, 1, b, 1);
        capture_fill(ctx, g, 2, b, 2);
        // A capture inside a capture fails.
        let status = capture(graph(ctx, 0), 1, |_| {
            for key in [1, 3] {
                expect(capture(g, key, |_| ()), FRT_ERR_CAPTURE);
            }
        });
        expect(status, FRT_OK);
        capture_fill(ctx, g, 4, b, 4);
        assert_eq!(keys(g, &[1, 2, 3, 4]), [2, 4]);
    });
}

#[test]
fn an_evicted_variant_that_is_submitted_still_runs_to_its_end() {
    let ctx = cpu();
    let (g, b) = (graph(ctx, 1), buffer(ctx, 1));
    capture_fill(ctx, g, 1, b, 8);
    // SAFETY: as for C.
    unsafe {
        expect(frt_graph_replay(g, 1, 0), FRT_OK);
        expect(frt_graph_evict(g, 1), FRT_OK);
        frt_graph_destroy(g);
        assert_eq!(read(ctx, b), [8]);
        frt_ctx_destroy(ctx);
    }
}
