//! What a plan submits, in which order, and what it refuses.

mod exec_support;
use exec_support::*;

use flashrt_capi::*;
use std::sync::{Arc, Mutex};

/// A graph that copies `from` to `to`, adds nothing.
fn copier(ctx: frt_ctx, to: frt_buffer, from: frt_buffer) -> frt_graph {
    let g = graph(ctx, 0);
    // SAFETY: as for C.
    let status = capture(g, 1, |_| unsafe {
        let bytes = frt_buffer_bytes(to);
        expect(frt_buffer_copy(ctx, to, 0, from, 0, bytes, 0), FRT_OK);
    });
    expect(status, FRT_OK);
    g
}

fn plan(ctx: frt_ctx) -> frt_plan {
    // SAFETY: as for C.
    let p = unsafe { frt_plan_create(ctx) };
    assert!(!p.is_null());
    p
}

#[test]
fn a_chain_over_three_streams_hands_its_data_on() {
    on_each_backend(|ctx| {
        let [image, context, action, out] = [(); 4].map(|()| buffer(ctx, 4));
        // SAFETY: as for C.
        unsafe {
            let (s1, s2, p) = (frt_ctx_stream(ctx, 0), frt_ctx_stream(ctx, 0), plan(ctx));
            let nodes = [
                (copier(ctx, context, image), 0),
                (copier(ctx, action, context), s1),
                (copier(ctx, out, action), s2),
            ];
            for (n, (g, stream)) in nodes.into_iter().enumerate() {
                expect(frt_plan_add(p, g, 1, stream), n as i32);
            }
            expect(frt_plan_after(p, 1, 0), FRT_OK);
            expect(frt_plan_after(p, 2, 1), FRT_OK);
            expect(frt_plan_validate(p), FRT_OK);
            for round in 1..4 {
                write(ctx, image, &[round; 4]);
                expect(frt_plan_execute(p, 0), FRT_OK);
                expect(frt_plan_sync(p), FRT_OK);
                assert_eq!(read(ctx, out), [round; 4]);
            }
        }
    });
}

#[test]
fn fan_out_and_fan_in_see_all_their_inputs() {
    on_each_backend(|ctx| {
        let source = buffer(ctx, 4);
        let [left, right] = [(); 2].map(|()| buffer(ctx, 4));
        let join = buffer(ctx, 8);
        // SAFETY: as for C.
        unsafe {
            let (s1, s2, p, fill, both) = (
                frt_ctx_stream(ctx, 0),
                frt_ctx_stream(ctx, 0),
                plan(ctx),
                graph(ctx, 0),
                graph(ctx, 0),
            );
            capture_fill(ctx, fill, 1, source, 3);
            capture_fill(ctx, fill, 2, source, 4);
            let status = capture(both, 1, |_| {
                expect(frt_buffer_copy(ctx, join, 0, left, 0, 4, 0), FRT_OK);
                expect(frt_buffer_copy(ctx, join, 4, right, 0, 4, 0), FRT_OK);
            });
            expect(status, FRT_OK);
            expect(frt_plan_add(p, fill, FRT_KEY_INHERIT, 0), 0);
            expect(frt_plan_add(p, copier(ctx, left, source), 1, s1), 1);
            expect(frt_plan_add(p, copier(ctx, right, source), 1, s2), 2);
            expect(frt_plan_add(p, both, 1, 0), 3);
            // Twice the same edge is kept and does no harm.
            for (node, dep) in [(1, 0), (2, 0), (3, 1), (3, 2), (3, 2)] {
                expect(frt_plan_after(p, node, dep), FRT_OK);
            }
            for (key, value) in [(1, 3), (2, 4), (1, 3)] {
                expect(frt_plan_execute(p, key), FRT_OK);
                expect(frt_plan_sync(p), FRT_OK);
                assert_eq!(read(ctx, join), [value; 8]);
            }
        }
    });
}

#[test]
fn nodes_are_submitted_in_the_order_of_adding_whatever_the_edges_say() {
    let ctx = cpu();
    let log: Arc<Mutex<Vec<u32>>> = Arc::default();
    // SAFETY: as for C.
    unsafe {
        let (s1, p) = (frt_ctx_stream(ctx, 0), plan(ctx));
        for n in 0..4u32 {
            let (g, log) = (graph(ctx, 0), log.clone());
            let status = capture(g, 1, |stream| {
                let log = log.clone();
                expect(
                    host_func(stream, move || log.lock().unwrap().push(n)),
                    FRT_OK,
                );
            });
            expect(status, FRT_OK);
            expect(
                frt_plan_add(p, g, 1, if n % 2 == 0 { 0 } else { s1 }),
                n as i32,
            );
        }
        // Against the order of adding: taken, and nothing waits for it.
        expect(frt_plan_after(p, 0, 3), FRT_OK);
        expect(frt_plan_after(p, 1, 2), FRT_OK);
        for _ in 0..2 {
            expect(frt_plan_execute(p, 0), FRT_OK);
        }
        expect(frt_plan_sync(p), FRT_OK);
        assert_eq!(*log.lock().unwrap(), [0, 1, 2, 3, 0, 1, 2, 3]);
        frt_ctx_destroy(ctx);
    }
}

#[test]
fn validation_refuses_what_adding_an_edge_takes() {
    on_each_backend(|ctx| {
        let (g, b, p) = (graph(ctx, 0), buffer(ctx, 1), plan(ctx));
        capture_fill(ctx, g, 1, b, 1);
        // SAFETY: as for C.
        unsafe {
            expect(frt_plan_validate(p), FRT_OK);
            for n in 0..3 {
                expect(frt_plan_add(p, g, 1, 0), n);
            }
            expect(frt_plan_after(p, 2, 0), FRT_OK);
            expect(frt_plan_validate(p), FRT_OK);
            expect(frt_plan_after(p, 0, 2), FRT_OK);
            expect(frt_plan_validate(p), FRT_ERR_INVALID);
            assert_eq!(
                last(),
                "frt_plan_validate: plan node 0 is declared after node 2, which runs later"
            );
            // It runs all the same, twice: no event of an earlier execution is waited for.
            for _ in 0..2 {
                expect(frt_plan_execute(p, 1), FRT_OK);
                expect(frt_plan_sync(p), FRT_OK);
            }
        }
    });
}

#[test]
fn edges_name_two_different_nodes_that_exist() {
    on_each_backend(|ctx| {
        let (g, p) = (graph(ctx, 0), plan(ctx));
        // SAFETY: as for C.
        unsafe {
            expect(frt_plan_after(p, 0, 1), FRT_ERR_INVALID);
            for n in 0..2 {
                expect(frt_plan_add(p, g, 1, 0), n);
            }
            for (node, dep) in [
                (0, 0),
                (1, 1),
                (0, 2),
                (2, 0),
                (-1, 0),
                (0, -1),
                (i32::MIN, i32::MAX),
            ] {
                expect(frt_plan_after(p, node, dep), FRT_ERR_INVALID);
                let text = format!("node {node} after {dep}: expected two different nodes below 2");
                assert!(last().ends_with(&text), "{}", last());
            }
            expect(frt_plan_after(p, 1, 0), FRT_OK);
        }
    });
}

#[test]
fn an_empty_plan_succeeds() {
    on_each_backend(|ctx| {
        let p = plan(ctx);
        // SAFETY: as for C.
        unsafe {
            expect(frt_plan_execute(p, 1), FRT_OK);
            expect(frt_plan_sync(p), FRT_OK);
        }
    });
}

#[test]
fn a_node_inherits_the_key_of_the_execution_all_ones_literally() {
    on_each_backend(|ctx| {
        let (g, b, p) = (graph(ctx, 0), buffer(ctx, 1), plan(ctx));
        capture_fill(ctx, g, 1, b, 1);
        capture_fill(ctx, g, 2, b, 2);
        // SAFETY: as for C.
        unsafe {
            expect(frt_plan_add(p, g, FRT_KEY_INHERIT, 0), 0);
            for key in [2, 1] {
                expect(frt_plan_execute(p, key), FRT_OK);
                assert_eq!(read(ctx, b), [key as u8]);
            }
            expect(frt_plan_execute(p, 3), FRT_ERR_NO_VARIANT);
            expect(frt_plan_execute(p, FRT_KEY_INHERIT), FRT_ERR_NO_VARIANT);
            capture_fill(ctx, g, FRT_KEY_INHERIT, b, 77);
            expect(frt_plan_execute(p, FRT_KEY_INHERIT), FRT_OK);
            assert_eq!(read(ctx, b), [77]);
            // A node with a key of its own does not care.
            let own = plan(ctx);
            expect(frt_plan_add(own, g, 2, 0), 0);
            expect(frt_plan_execute(own, FRT_KEY_INHERIT), FRT_OK);
            assert_eq!(read(ctx, b), [2]);
        }
    });
}

#[test]
fn the_first_failing_replay_stops_the_plan_behind_what_was_submitted() {
    on_each_backend(|ctx| {
        let (g, a, b, p) = (graph(ctx, 0), buffer(ctx, 1), buffer(ctx, 1), plan(ctx));
        capture_fill(ctx, g, 1, a, 1);
        capture_fill(ctx, g, 2, b, 2);
        // SAFETY: as for C.
        unsafe {
            let s1 = frt_ctx_stream(ctx, 0);
            for (n, (key, stream)) in [(1, s1), (9, 0), (2, 0)].into_iter().enumerate() {
                expect(frt_plan_add(p, g, key, stream), n as i32);
            }
            expect(frt_plan_execute(p, 0), FRT_ERR_NO_VARIANT);
            assert_eq!(
                last(),
                "frt_plan_execute: node 1: frt_graph_replay: graph \"graph\" has no variant for key 9, it holds 2"
            );
            expect(frt_plan_sync(p), FRT_OK);
            assert_eq!((read(ctx, a), read(ctx, b)), (vec![1], vec![0]));
            // The variant may come later.
            capture_fill(ctx, g, 9, a, 9);
            expect(frt_plan_execute(p, 0), FRT_OK);
            expect(frt_plan_sync(p), FRT_OK);
            assert_eq!((read(ctx, a), read(ctx, b)), (vec![9], vec![2]));
        }
    });
}

#[test]
fn synchronising_runs_every_stream_of_the_plan() {
    let ctx = cpu();
    let log: Arc<Mutex<Vec<i32>>> = Arc::default();
    // SAFETY: as for C.
    unsafe {
        let p = plan(ctx);
        for _ in 0..3 {
            frt_ctx_stream(ctx, 0);
        }
        for stream in [3, 1, 3] {
            let (g, log) = (graph(ctx, 0), log.clone());
            let status = capture(g, 1, |raw| {
                let log = log.clone();
                expect(
                    host_func(raw, move || log.lock().unwrap().push(stream)),
                    FRT_OK,
                );
            });
            expect(status, FRT_OK);
            assert!(frt_plan_add(p, g, 1, stream) >= 0);
        }
        expect(frt_plan_execute(p, 0), FRT_OK);
        assert!(log.lock().unwrap().is_empty());
        expect(frt_plan_sync(p), FRT_OK);
        assert_eq!(*log.lock().unwrap(), [3, 1, 3]);
        frt_ctx_destroy(ctx);
    }
}

#[test]
fn a_node_of_another_context_runs_on_the_streams_of_its_own() {
    let (ctx, other) = (cpu(), cpu());
    // SAFETY: as for C.
    unsafe {
        let (p, g, b) = (plan(ctx), graph(other, 0), buffer(other, 1));
        capture_fill(other, g, 1, b, 6);
        expect(frt_plan_add(p, g, 1, 0), 0);
        expect(frt_plan_execute(p, 0), FRT_OK);
        assert_eq!(read(other, b), [6]);
        // Which stream exists is a question to the plan when adding, and to the graph when running.
        let s1 = frt_ctx_stream(ctx, 0);
        expect(frt_plan_add(p, g, 1, s1), 1);
        expect(frt_plan_execute(p, 0), FRT_ERR_INVALID);
        frt_ctx_destroy(other);
        expect(frt_plan_execute(p, 0), FRT_ERR_INVALID);
        assert!(last().contains("node 0: frt_graph_replay: "), "{}", last());
        frt_ctx_destroy(ctx);
    }
}

#[test]
fn a_plan_whose_graph_was_destroyed_says_so() {
    on_each_backend(|ctx| {
        let (g, b, p) = (graph(ctx, 0), buffer(ctx, 1), plan(ctx));
        capture_fill(ctx, g, 1, b, 1);
        // SAFETY: as for C.
        unsafe {
            expect(frt_plan_add(p, g, 1, 0), 0);
            frt_graph_destroy(g);
            // A new graph does not take the old one's place.
            capture_fill(ctx, graph(ctx, 0), 1, b, 2);
            expect(frt_plan_execute(p, 1), FRT_ERR_INVALID);
            assert!(last().contains("no live handle (graph)"), "{}", last());
            expect(frt_plan_sync(p), FRT_OK);
        }
    });
}
