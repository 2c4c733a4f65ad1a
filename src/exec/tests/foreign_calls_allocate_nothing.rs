//! A tick over a foreign library takes nothing from the heap on this side. One test, alone in its binary.

use flashrt_exec::{ForeignTable, Space, StreamId};

#[path = "foreign/fake.rs"]
mod fake;
#[path = "../../../test/support/heap.rs"]
mod heap;

#[test]
fn a_tick_over_a_foreign_library_allocates_nothing() {
    heap::count_this_thread();
    let published: Vec<_> = ForeignTable::OPTIONAL
        .iter()
        .filter(|s| !s.contains("load") && **s != "frt_event_query" && **s != "frt_buffer_fill")
        .copied()
        .collect();
    for without in [&[][..], &published] {
        let fake = fake::Fake::new();
        let ctx = fake.context_without(without).unwrap();
        ctx.adopt_streams(2).unwrap();
        let (s0, s1) = (StreamId(0), StreamId(1));
        let buffer = fake.buffer(64);
        // SAFETY: objects live as long as the library.
        let (state, graph) = unsafe {
            (
                ctx.adopt_buffer(buffer, "state", 64).unwrap(),
                ctx.adopt_graph(fake.graph(&[(3, buffer, 7)]), "step")
                    .unwrap(),
            )
        };
        let saved = ctx.alloc("saved", Space::Device, 64).unwrap();
        let (host, other) = (
            ctx.alloc("host", Space::Host, 64).unwrap(),
            ctx.alloc("other", Space::Host, 64).unwrap(),
        );
        let (state, saved, host_all, other) = (state.all(), saved.all(), host.all(), other.all());
        let event = ctx.event().unwrap();
        let mut plan = ctx.plan();
        plan.add(&graph, 3, s0).unwrap();
        plan.add(&graph, 3, s1).unwrap();
        plan.after(1, 0).unwrap();
        let mut bytes = [0; 64];
        fake.be_quiet();

        let mut tick = || {
            host.host_write(0, &[1, 2, 3]).unwrap();
            ctx.copy(&state, &host_all, s0).unwrap();
            graph.replay(3, s0).unwrap();
            assert!(graph.has_variant(3) && graph.variant_count() == 1);
            ctx.record(&event, s0).unwrap();
            ctx.wait(s1, &event).unwrap();
            assert!(ctx.query(&event).unwrap());
            ctx.sync_event(&event).unwrap();
            ctx.copy(&saved, &state, s1).unwrap();
            ctx.copy(&host_all, &saved, s1).unwrap();
            ctx.copy(&other, &host_all, s1).unwrap();
            ctx.fill(&saved, 1, s1).unwrap();
            ctx.fill(&other, 1, s1).unwrap();
            plan.execute(0).unwrap();
            plan.sync().unwrap();
            ctx.synchronize(s0).unwrap();
            ctx.synchronize_all().unwrap();
            ctx.exclusive(|| ()).unwrap();
            ctx.upload(&saved, &bytes).unwrap();
            ctx.download(&state, &mut bytes).unwrap();
            host.host_read(0, &mut bytes).unwrap();
        };
        for _ in 0..3 {
            tick();
        }
        let before = heap::taken() + heap::freed();
        for _ in 0..100 {
            tick();
        }
        assert_eq!(heap::taken() + heap::freed() - before, 0, "{without:?}");
        assert_eq!(bytes, [7; 64]);
    }
}
