//! Every order of destruction of a context and its objects is legal, and twice is once.

mod exec_support;
use exec_support::*;

use flashrt_capi::*;

const PARTS: usize = 7;

/// One context with objects that lean on each other; destroys them in the order given.
fn destroy_in(ctx: frt_ctx, order: &[usize]) {
    // SAFETY: as for C; destroyed handles are used on purpose.
    unsafe {
        let (a, b) = (buffer(ctx, 4), buffer(ctx, 4));
        let (donor, g) = (graph(ctx, 0), graph(ctx, 1));
        capture_fill(ctx, donor, 1, a, 1);
        expect(
            frt_graph_adopt(g, 2, frt_graph_executable(donor, 1)),
            FRT_OK,
        );
        expect(frt_graph_bind(g, c"port".as_ptr(), b), FRT_OK);
        let (s1, event, p) = (
            frt_ctx_stream(ctx, 0),
            frt_ctx_event(ctx),
            frt_plan_create(ctx),
        );
        expect(frt_plan_add(p, donor, 1, 0), 0);
        expect(frt_plan_add(p, g, 2, s1), 1);
        expect(frt_plan_after(p, 1, 0), FRT_OK);
        // Work is under way, and waits for the event.
        expect(frt_plan_execute(p, 0), FRT_OK);
        expect(frt_event_record(event, s1), FRT_OK);
        expect(frt_stream_wait(ctx, 0, event), FRT_OK);
        expect(frt_buffer_copy(ctx, b, 0, a, 0, 4, 0), FRT_OK);
        for twice in 0..2 {
            for &part in order {
                match part {
                    0 => frt_event_destroy(event),
                    1 => frt_plan_destroy(p),
                    2 => frt_graph_destroy(donor),
                    3 => frt_graph_destroy(g),
                    4 => drop(frt_buffer_free(a)),
                    5 => drop(frt_buffer_free(b)),
                    _ => frt_ctx_destroy(ctx),
                }
                if twice == 0 && part != 6 {
                    // What is left works, or says that it is gone.
                    let status = frt_plan_execute(p, 0);
                    assert!([FRT_OK, FRT_ERR_INVALID].contains(&status), "{status}");
                    let status = frt_stream_sync(ctx, 0);
                    assert!([FRT_OK, FRT_ERR_INVALID].contains(&status), "{status}");
                }
            }
        }
        expect(frt_ctx_backend(ctx), FRT_ERR_INVALID);
        assert_eq!(frt_buffer_bytes(a) + frt_graph_variant_count(g), 0);
    }
}

/// Every order of `left`, behind `order`.
fn permute(order: &mut Vec<usize>, left: &mut Vec<usize>, all: &mut Vec<Vec<usize>>) {
    if left.is_empty() {
        all.push(order.clone());
    }
    for i in 0..left.len() {
        order.push(left.remove(i));
        permute(order, left, all);
        left.insert(i, order.pop().unwrap());
    }
}

#[test]
fn all_orders_of_destruction() {
    // One thread for each context: 5040 of them need no pool.
    std::env::set_var("FLASHRT_THREADS", "1");
    let mut orders = Vec::new();
    permute(&mut Vec::new(), &mut (0..PARTS).collect(), &mut orders);
    assert_eq!(orders.len(), 5040);
    for order in &orders {
        destroy_in(cpu(), order);
    }
    // A context on a GPU takes its time: some of the orders.
    for order in orders.iter().step_by(47) {
        // SAFETY: as for C.
        let ctx = unsafe { frt_ctx_create_with(FRT_BACKEND_CUDA, 0) };
        if ctx.is_null() {
            println!("skipped on cuda: {}", last());
            break;
        }
        println!("on cuda too");
        destroy_in(ctx, order);
    }
}
