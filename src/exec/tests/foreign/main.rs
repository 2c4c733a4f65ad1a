//! The foreign backend over a library that watches every call.

mod fake;

use fake::{Fake, REASON};
use flashrt_exec::{
    BackendKind, Buffer, Context, CpuOptions, Error, ForeignTable, Graph, Space, StreamId,
};
use std::ffi::c_void;
use std::sync::Arc;

const S0: StreamId = StreamId(0);

/// A library with a graph over a buffer of four bytes, both adopted: key 3 fills it with 7.
struct Model {
    fake: Arc<Fake>,
    ctx: Context,
    state: Buffer,
    graph: Graph,
}

fn model_without(without: &[&str]) -> Model {
    let fake = Fake::new();
    let ctx = fake.context_without(without).unwrap();
    let buffer = fake.buffer(4);
    // SAFETY: objects live as long as the library.
    let (state, graph) = unsafe {
        (
            ctx.adopt_buffer(buffer, "state", 4).unwrap(),
            ctx.adopt_graph(fake.graph(&[(3, buffer, 7)]), "step")
                .unwrap(),
        )
    };
    fake.take_trace();
    Model {
        fake,
        ctx,
        state,
        graph,
    }
}

fn read(ctx: &Context, buffer: &Buffer) -> Vec<u8> {
    let mut bytes = vec![0xEE; buffer.bytes()];
    ctx.download(&buffer.all(), &mut bytes).unwrap();
    bytes
}

// ---- symbols ----

#[test]
fn every_missing_required_symbol_is_named() {
    for symbol in ForeignTable::REQUIRED {
        let fake = Fake::new();
        let error = fake.context_without(&[symbol]).unwrap_err();
        assert!(error.is_unavailable());
        assert_eq!(
            error.to_string(),
            format!("foreign backend is not available: the library has no `{symbol}`")
        );
        assert_eq!(fake.take_trace(), ["anchor"], "nothing else was called");
    }
    let error = Fake::new()
        .context_without(ForeignTable::REQUIRED)
        .unwrap_err()
        .to_string();
    for symbol in ForeignTable::REQUIRED {
        assert!(error.contains(&format!("`{symbol}`")), "{symbol}: {error}");
    }
    assert_eq!(ForeignTable::REQUIRED.len(), 16);
    assert_eq!(
        ForeignTable::default().missing(),
        ForeignTable::REQUIRED,
        "an empty table lacks all of them"
    );
}

#[test]
fn a_missing_additive_symbol_fails_the_calls_that_need_it_and_no_others() {
    type Call = fn(&Model) -> Result<(), Error>;
    let calls: [(&str, Call); 10] = [
        ("stream", |m| m.ctx.stream(0).map(drop)),
        ("query", |m| {
            let event = m.ctx.event()?;
            m.ctx.record(&event, S0)?;
            m.ctx.query(&event).map(drop)
        }),
        ("sync_event", |m| {
            let event = m.ctx.event()?;
            m.ctx.record(&event, S0)?;
            m.ctx.sync_event(&event)
        }),
        ("synchronize", |m| m.ctx.synchronize(S0)),
        ("to device", |m| {
            let host = m.ctx.alloc("host", Space::Host, 4)?;
            m.ctx.copy(&m.state.all(), &host.all(), S0)
        }),
        ("to host", |m| {
            let host = m.ctx.alloc("host", Space::Host, 4)?;
            m.ctx.copy(&host.all(), &m.state.all(), S0)
        }),
        ("upload", |m| m.ctx.upload(&m.state.all(), &[1; 4])),
        ("download", |m| m.ctx.download(&m.state.all(), &mut [0; 4])),
        ("fill", |m| m.ctx.fill(&m.state.all(), 1, S0)),
        ("alloc", |m| {
            m.ctx.alloc("device", Space::Device, 4).map(drop)
        }),
    ];
    for &symbol in ForeignTable::OPTIONAL {
        let expected: &[&str] = match symbol {
            "frt_ctx_stream" => &["stream"],
            "frt_event_query" => &["query"],
            "frt_buffer_upload" => &["to device", "upload"],
            "frt_buffer_download" => &["to host", "download"],
            "frt_buffer_fill" => &["fill"],
            "frt_event_sync" | "frt_stream_sync" | "frt_buffer_free" | "frt_ctx_backend"
            | "frt_last_error" => &[],
            other => panic!("no expectation for {other}"),
        };
        let model = model_without(&[symbol]);
        for (name, call) in &calls {
            match call(&model) {
                Ok(()) => assert!(!expected.contains(name), "{name} without {symbol}"),
                Err(error) => {
                    assert!(expected.contains(name), "{name}: {error}");
                    assert!(error.is_unavailable());
                    assert!(error.to_string().contains(symbol), "{name}: {error}");
                }
            }
        }
        assert_eq!(model.fake.violations(), [""; 0], "without {symbol}");
    }
}

#[test]
fn a_library_of_published_functions_alone_still_ticks() {
    let model = model_without(ForeignTable::OPTIONAL);
    let Model {
        fake,
        ctx,
        state,
        graph,
    } = &model;
    let saved = ctx.alloc("saved", Space::Device, 4).unwrap();
    let event = ctx.event().unwrap();
    ctx.adopt_streams(2).unwrap();
    fake.take_trace();
    for _ in 0..2 {
        graph.replay(3, S0).unwrap();
        ctx.record(&event, S0).unwrap();
        ctx.wait(StreamId(1), &event).unwrap();
        ctx.copy(&saved.all(), &state.all(), StreamId(1)).unwrap();
        ctx.synchronize(StreamId(1)).unwrap();
        ctx.sync_event(&event).unwrap();
    }
    let first = [
        "graph_replay #1 key 3 s0",
        "event_record #3 s0",
        "stream_wait s1 #3",
        "buffer_copy #2+0 #0+0 4 s1",
        "plan_create",
        "plan_add #4 #1 key 0 s1",
        "plan_sync #4",
        "plan_create",
        "plan_add #5 #1 key 0 s0",
        "plan_sync #5",
    ];
    let second = [&first[..4], &first[6..7], &first[9..]].concat();
    assert_eq!(fake.take_trace(), [&first[..], &second].concat());

    let bare = Fake::new();
    let ctx = bare.context_without(&["frt_stream_sync"]).unwrap();
    let error = ctx.synchronize(S0).unwrap_err();
    assert!(error.is_unavailable());
    assert!(error.to_string().contains("no graph is adopted"), "{error}");
    bare.adopted_graph(&ctx);
    ctx.synchronize(S0).unwrap();
}

// ---- statuses ----

#[test]
fn every_status_becomes_an_error_with_symbol_status_and_reason() {
    type Call = fn(&Model, &Context, &Buffer) -> Result<(), Error>;
    let calls: [(&str, Call); 13] = [
        ("frt_ctx_stream", |_, ctx, _| ctx.stream(0).map(drop)),
        ("frt_event_record", |_, ctx, _| {
            ctx.record(&ctx.event()?, S0)
        }),
        ("frt_stream_wait", |_, ctx, _| {
            let event = ctx.event()?;
            ctx.record(&event, S0)?;
            ctx.wait(S0, &event)
        }),
        ("frt_event_query", |_, ctx, _| {
            let event = ctx.event()?;
            ctx.record(&event, S0)?;
            ctx.query(&event).map(drop)
        }),
        ("frt_event_sync", |_, ctx, _| {
            let event = ctx.event()?;
            ctx.record(&event, S0)?;
            ctx.sync_event(&event)
        }),
        ("frt_stream_sync", |_, ctx, _| ctx.synchronize(S0)),
        ("frt_buffer_copy", |_, ctx, b| {
            ctx.copy(&b.slice(0, 2)?, &b.slice(2, 2)?, S0)
        }),
        ("frt_buffer_upload", |_, ctx, b| {
            ctx.upload(&b.all(), &[1; 4])
        }),
        ("frt_buffer_download", |_, ctx, b| {
            ctx.download(&b.all(), &mut [1; 4])
        }),
        ("frt_buffer_fill", |_, ctx, b| ctx.fill(&b.all(), 1, S0)),
        ("frt_graph_replay", |m, _, _| m.graph.replay(3, S0)),
        ("frt_graph_evict", |m, _, _| m.graph.evict(3)),
        ("frt_buffer_fill", |_, ctx, _| {
            ctx.alloc("zeroed", Space::Device, 4).map(drop)
        }),
    ];
    for (symbol, call) in calls {
        for (status, code) in [
            (-1, -1),
            (-2, -2),
            (-3, -5),
            (-4, -4),
            (-5, -5),
            (-6, -6),
            (-7, -5),
            (7, -5),
            (i32::MAX, -5),
            (i32::MIN, -5),
        ] {
            if symbol == "frt_ctx_stream" && status > 0 {
                continue; // an id
            }
            let model = model_without(&[]);
            model.fake.answer(symbol, i64::from(status));
            let error = call(&model, &model.ctx, &model.state).unwrap_err();
            assert_eq!(error.code(), code, "{symbol} answers {status}");
            assert_eq!(
                error.to_string(),
                format!("`{symbol}` of the foreign library answered {status}: {REASON}")
            );
            let expected = Error::Library {
                symbol,
                status,
                reason: REASON.into(),
            };
            assert_eq!(error, expected);
        }
    }

    let model = model_without(&["frt_last_error"]);
    model.fake.answer("frt_graph_replay", -5);
    let error = model.graph.replay(3, S0).unwrap_err().to_string();
    assert!(
        error.ends_with("answered -5: it gives no reason"),
        "{error}"
    );
}

// ---- calls ----

#[test]
fn replay_and_the_table_of_variants_are_the_librarys() {
    let Model {
        fake,
        ctx,
        state,
        graph,
    } = model_without(&[]);
    assert_eq!(
        (ctx.backend(), ctx.isa()),
        (BackendKind::Foreign, "foreign cpu")
    );
    assert_eq!((graph.name(), graph.variant_count()), ("step", 1));
    assert_eq!((graph.has_variant(3), graph.has_variant(4)), (true, false));
    graph.replay(3, S0).unwrap();
    assert_eq!(read(&ctx, &state), [7; 4]);
    assert_eq!(graph.replay(4, S0).unwrap_err().code(), -2);
    // The key is looked up before the stream.
    assert_eq!(graph.replay(4, StreamId(9)).unwrap_err().code(), -2);
    let error = graph.replay(3, StreamId(9)).unwrap_err();
    assert!(matches!(
        error,
        Error::BadStream {
            stream: 9,
            count: 1
        }
    ));
    graph.evict(3).unwrap();
    assert_eq!(graph.evict(3).unwrap_err().code(), -2);
    assert_eq!(graph.variant_count(), 0);
    for wild in [-1, 2, 77] {
        fake.answer("frt_graph_has_variant", wild);
        assert!(!graph.has_variant(3), "answered {wild}");
    }
    graph.bind("port", &state).unwrap();
    assert_eq!(graph.bound("port").unwrap().id(), state.id());
    assert_eq!(fake.violations(), [""; 0]);
}

#[test]
fn copies_of_all_pairs_of_spaces_take_the_function_that_can() {
    let Model {
        fake, ctx, state, ..
    } = model_without(&[]);
    let device = ctx.alloc("device", Space::Device, 8).unwrap();
    let host = ctx.alloc("host", Space::Host, 8).unwrap();
    let other = ctx.alloc("other", Space::Host, 8).unwrap();
    assert_eq!(read(&ctx, &device), [0; 8], "zeroed");
    assert_eq!((host.addr() % 64, read(&ctx, &host)), (0, vec![0; 8]));
    host.host_write(0, &[1, 2, 3, 4, 5, 6, 7, 8]).unwrap();
    ctx.adopt_streams(2).unwrap();
    fake.take_trace();

    let s1 = StreamId(1);
    ctx.copy(&device.slice(2, 3).unwrap(), &host.slice(4, 3).unwrap(), s1)
        .unwrap();
    ctx.copy(
        &state.slice(1, 2).unwrap(),
        &device.slice(3, 2).unwrap(),
        S0,
    )
    .unwrap();
    ctx.copy(&other.slice(0, 4).unwrap(), &state.all(), s1)
        .unwrap();
    ctx.copy(&host.slice(5, 3).unwrap(), &other.slice(1, 3).unwrap(), s1)
        .unwrap();
    ctx.fill(&device.slice(7, 1).unwrap(), 9, s1).unwrap();
    ctx.fill(&other.slice(7, 1).unwrap(), 8, S0).unwrap();
    ctx.copy(&device.slice(8, 0).unwrap(), &host.slice(0, 0).unwrap(), S0)
        .unwrap();
    assert_eq!(
        fake.take_trace(),
        [
            "buffer_upload #2+2 3 s1",
            "buffer_copy #0+1 #2+3 2 s0",
            "buffer_download #0+0 4 s1",
            "stream_sync s1",
            "buffer_fill #2+7 9 1 s1",
            "stream_sync s0",
        ]
    );
    assert_eq!(read(&ctx, &device), [0, 0, 5, 6, 7, 0, 0, 9]);
    assert_eq!(read(&ctx, &state), [0, 6, 7, 0]);
    assert_eq!(read(&ctx, &other), [0, 6, 7, 0, 0, 0, 0, 8]);
    assert_eq!(read(&ctx, &host), [1, 2, 3, 4, 5, 6, 7, 0]);

    fake.take_trace();
    ctx.upload(&device.slice(4, 2).unwrap(), &[50, 51]).unwrap();
    ctx.upload(&host.slice(0, 1).unwrap(), &[60]).unwrap();
    assert_eq!(
        fake.take_trace(),
        [
            "stream_sync s0",
            "stream_sync s1",
            "buffer_upload #2+4 2 s0",
            "stream_sync s0",
            "stream_sync s1",
        ]
    );
    assert_eq!(read(&ctx, &device), [0, 0, 5, 6, 50, 51, 0, 9]);
    assert_eq!(read(&ctx, &host)[0], 60);
    assert!(ctx.upload(&device.all(), &[0; 7]).is_err());
    assert!(device.host_write(0, &[1]).is_err(), "device space");
}

#[test]
fn events_and_streams_carry_over() {
    let Model { fake, ctx, .. } = model_without(&[]);
    let s1 = ctx.stream(-3).unwrap();
    assert_eq!((s1, ctx.stream_count()), (StreamId(1), 2));
    let event = ctx.event().unwrap();
    // Never recorded: nobody waits, and it is ready.
    ctx.wait(s1, &event).unwrap();
    assert!(ctx.query(&event).unwrap());
    ctx.sync_event(&event).unwrap();
    ctx.record(&event, S0).unwrap();
    ctx.wait(s1, &event).unwrap();
    fake.answer("frt_event_query", 1);
    assert!(!ctx.query(&event).unwrap());
    fake.answer_truly("frt_event_query");
    assert!(ctx.query(&event).unwrap());
    ctx.sync_event(&event).unwrap();
    ctx.synchronize(s1).unwrap();
    ctx.synchronize_all().unwrap();
    drop(event);
    assert_eq!(
        fake.take_trace(),
        [
            "ctx_stream -3",
            "ctx_event",
            "event_record #2 s0",
            "stream_wait s1 #2",
            "event_query #2",
            "event_query #2",
            "event_sync #2",
            "stream_sync s1",
            "stream_sync s0",
            "stream_sync s1",
            "event_destroy #2",
        ]
    );
    for bad in [-1, 2, i32::MAX] {
        let error = ctx.synchronize(StreamId(bad)).unwrap_err();
        assert!(matches!(error, Error::BadStream { .. }), "{error}");
    }
    assert_eq!(fake.take_trace(), [""; 0], "no bad id reaches the library");
}

#[test]
fn a_failing_stream_does_not_keep_the_others_from_being_synchronised() {
    let Model { fake, ctx, .. } = model_without(&[]);
    ctx.adopt_streams(3).unwrap();
    fake.answer("frt_stream_sync", -5);
    assert_eq!(ctx.synchronize_all().unwrap_err().code(), -5);
    assert_eq!(
        fake.take_trace(),
        ["stream_sync s0", "stream_sync s1", "stream_sync s2"]
    );
}

#[test]
fn plans_of_ours_run_over_graphs_of_the_library() {
    let Model {
        fake, ctx, graph, ..
    } = model_without(&[]);
    ctx.adopt_streams(2).unwrap();
    let mut plan = ctx.plan();
    plan.add(&graph, 3, S0).unwrap();
    plan.add(&graph, 3, StreamId(1)).unwrap();
    plan.after(1, 0).unwrap();
    fake.take_trace();
    plan.execute(0).unwrap();
    plan.sync().unwrap();
    assert_eq!(
        fake.take_trace(),
        [
            "graph_replay #1 key 3 s0",
            "event_record #2 s0",
            "stream_wait s1 #2",
            "graph_replay #1 key 3 s1",
            "event_record #3 s1",
            "stream_sync s0",
            "stream_sync s1",
        ]
    );
}

#[test]
fn what_only_an_own_context_can_do_is_refused() {
    let Model {
        fake,
        ctx,
        state,
        graph,
    } = model_without(&[]);
    let own = Context::cpu(CpuOptions::default()).unwrap();
    let own_buffer = own.alloc("own", Space::Device, 4).unwrap();
    let own_graph = own.graph("own", 0).unwrap();
    own_graph
        .capture::<Error>(1, |r| r.fill(&own_buffer.all(), 1))
        .unwrap();
    let null = std::ptr::null_mut::<c_void>();
    let place = state.all().as_ptr();
    // SAFETY: all of them are refused.
    let refused = unsafe {
        [
            graph.capture::<Error>(1, |_| panic!("never called")),
            graph.evict_lru().map(drop),
            graph.executable(3).map(drop),
            graph.adopt(1, &own_graph.executable(1).unwrap()),
            graph.adopt_raw(1, place.cast()),
            ctx.enqueue::<Error>(S0, |_| panic!("never called")),
            ctx.graph("mine", 0).map(drop),
            ctx.wrap("mine", Space::Device, place, 4).map(drop),
            ctx.wrap_stream(null).map(drop),
            ctx.raw_stream(S0).map(drop),
            ctx.priority(S0).map(drop),
        ]
    };
    for (index, result) in refused.into_iter().enumerate() {
        let error = result.unwrap_err();
        assert!(matches!(error, Error::Invalid { .. }), "{index}: {error}");
        let text = error.to_string();
        assert!(
            text.ends_with("not possible on a foreign context"),
            "{index}: {text}"
        );
    }
    assert_eq!(fake.take_trace(), [""; 0]);
    graph.replay(3, S0).unwrap();

    // And the other way round.
    // SAFETY: refused.
    let refused = unsafe {
        [
            own.adopt_buffer(place.cast(), "b", 4).map(drop),
            own.adopt_graph(place.cast(), "g").map(drop),
            own.adopt_streams(2),
            own.exclusive(|| panic!("never called")),
        ]
    };
    for result in refused {
        let error = result.unwrap_err().to_string();
        assert!(
            error.ends_with("expected a foreign context, got a cpu context"),
            "{error}"
        );
    }
    let error = ctx.copy(&state.all(), &own_buffer.all(), S0).unwrap_err();
    assert!(matches!(error, Error::ForeignContext { .. }));
}

// ---- garbage ----

#[test]
fn garbage_of_an_allocation_is_an_error_and_goes_back() {
    let Model { fake, ctx, .. } = model_without(&[]);
    fake.answer("frt_buffer_alloc", 0);
    let error = ctx.alloc("big", Space::Device, 64).unwrap_err();
    let expected = Error::OutOfMemory {
        buffer: "big".into(),
        bytes: 64,
        space: Space::Device,
        free: None,
    };
    assert_eq!((error.code(), error), (-6, expected));
    fake.answer_truly("frt_buffer_alloc");
    for (symbol, answer) in [
        ("frt_buffer_dptr", 0),
        ("frt_buffer_dptr", -8),
        ("frt_buffer_bytes", 0),
        ("frt_buffer_bytes", 63),
        ("frt_buffer_bytes", -1),
    ] {
        fake.answer(symbol, answer);
        fake.take_trace();
        let error = ctx.alloc("b", Space::Device, 64).unwrap_err();
        assert_eq!(error.code(), -5, "{symbol} answers {answer}: {error}");
        assert!(error.to_string().contains("expected 64 bytes"), "{error}");
        let trace = fake.take_trace();
        let last = trace.last().unwrap();
        assert!(last.starts_with("buffer_free"), "{trace:?}");
        fake.answer_truly(symbol);
    }
    // Names end at a NUL, as C's do.
    let named = ctx.alloc("a\0b", Space::Device, 1).unwrap();
    assert_eq!(fake.take_trace()[0], "buffer_alloc a 1");
    drop(named);
    assert_eq!(ctx.memory(), Default::default());
    assert_eq!(fake.violations(), [""; 0]);
}

#[test]
fn garbage_to_adopt_is_an_error() {
    let fake = Fake::new();
    let ctx = fake.context();
    let null = std::ptr::null_mut();
    // SAFETY: null is refused, and the rest are handles of the library.
    unsafe {
        assert_eq!(ctx.adopt_buffer(null, "b", 4).unwrap_err().code(), -1);
        assert_eq!(ctx.adopt_graph(null, "g").unwrap_err().code(), -1);
        let handle = fake.buffer(4);
        let error = ctx.adopt_buffer(handle, "b", 5).unwrap_err();
        assert!(error.to_string().contains("expected 5 bytes"), "{error}");
        assert_eq!(ctx.adopt_buffer(handle, "b", 3).unwrap().bytes(), 3);
        let empty = ctx.adopt_buffer(handle, "b", 0).unwrap();
        ctx.fill(&empty.all(), 1, S0).unwrap();
        ctx.upload(&empty.all(), &[]).unwrap();
        ctx.download(&empty.all(), &mut []).unwrap();
        for (symbol, answer) in [("frt_buffer_dptr", 0), ("frt_buffer_bytes", 0)] {
            fake.answer(symbol, answer);
            let error = ctx.adopt_buffer(handle, "b", 4).unwrap_err();
            assert_eq!(error.code(), -5, "{symbol}: {error}");
            fake.answer_truly(symbol);
        }
    }
    assert_eq!(fake.context_at(null, &[]).unwrap_err().code(), -1);
    assert_eq!(ctx.adopt_streams(4097).unwrap_err().code(), -1);
    ctx.adopt_streams(4096).unwrap();
    ctx.adopt_streams(0).unwrap();
    assert_eq!(ctx.stream_count(), 4096);
}

#[test]
fn garbage_of_streams_events_and_plans_is_an_error() {
    let Model { fake, ctx, .. } = model_without(&["frt_stream_sync"]);
    ctx.adopt_streams(2).unwrap();
    for id in [0, 1, 4096, i64::from(i32::MAX)] {
        fake.answer("frt_ctx_stream", id);
        assert_eq!(ctx.stream(0).unwrap_err().code(), -5, "id {id}");
    }
    assert_eq!(ctx.stream_count(), 2);
    fake.answer("frt_ctx_event", 0);
    let error = ctx.event().unwrap_err();
    assert_eq!(error.code(), -5);
    assert_eq!(
        error.to_string(),
        format!("foreign backend, frt_ctx_event: no event: {REASON}")
    );
    fake.answer("frt_plan_create", 0);
    assert_eq!(ctx.synchronize(S0).unwrap_err().code(), -5);
    fake.answer_truly("frt_plan_create");
    fake.answer("frt_plan_add", -1);
    fake.take_trace();
    assert_eq!(ctx.synchronize(S0).unwrap_err().code(), -1);
    assert_eq!(
        fake.take_trace(),
        ["plan_create", "plan_add #2 #1 key 0 s0", "plan_destroy #2"]
    );
    fake.answer_truly("frt_plan_add");
    ctx.synchronize(S0).unwrap();
    for wild in [-1, 2] {
        fake.answer("frt_ctx_backend", wild);
        assert_eq!(fake.context().isa(), "foreign");
    }
    assert_eq!(fake.violations(), [""; 0]);
}

// ---- ends ----

#[test]
fn the_anchor_goes_once_and_after_everything_else() {
    // Whichever handle is the last.
    for last in 0..6 {
        let Model {
            fake,
            ctx,
            state,
            graph,
        } = model_without(&["frt_stream_sync"]);
        ctx.synchronize(S0).unwrap();
        let device = ctx.alloc("device", Space::Device, 4).unwrap();
        let host = ctx.alloc("host", Space::Host, 4).unwrap();
        let event = ctx.event().unwrap();
        fake.take_trace();
        let mut handles: Vec<Box<dyn Send>> = vec![
            Box::new(ctx),
            Box::new(state),
            Box::new(graph),
            Box::new(device.all()),
            Box::new(host),
            Box::new(event),
        ];
        drop(device);
        let kept = handles.remove(last);
        drop(handles);
        let before = fake.take_trace();
        assert!(!before.contains(&"anchor".into()), "{last}: {before:?}");
        // On whatever thread.
        std::thread::spawn(move || drop(kept)).join().unwrap();
        let trace = [before, fake.take_trace()].concat();
        let mut sorted = trace.clone();
        sorted.sort();
        assert_eq!(
            sorted,
            [
                "anchor",
                "buffer_free #3",
                "event_destroy #4",
                "plan_destroy #2"
            ],
            "{last}"
        );
        assert_eq!(trace.last().unwrap(), "anchor", "{last}: {trace:?}");
        assert_eq!(Arc::strong_count(&fake), 1, "the anchor's hold is gone");
        assert_eq!(fake.violations(), [""; 0]);
    }
}

#[test]
fn what_is_dropped_inside_a_host_access_ends_with_the_next_call() {
    let Model { fake, ctx, .. } = model_without(&[]);
    let host = ctx.alloc("host", Space::Host, 4).unwrap();
    let device = ctx.alloc("device", Space::Device, 4).unwrap();
    let event = ctx.event().unwrap();
    fake.take_trace();
    host.host_with_mut(|_| {
        assert_eq!(
            ctx.synchronize(S0).unwrap_err(),
            Error::Busy {
                call: "synchronize"
            }
        );
        drop((device, event));
    })
    .unwrap();
    assert_eq!(fake.take_trace(), [""; 0]);
    ctx.synchronize(S0).unwrap();
    assert_eq!(
        fake.take_trace(),
        ["buffer_free #2", "event_destroy #3", "stream_sync s0"]
    );
    // Also when there is no next call.
    let late = ctx.event().unwrap();
    host.host_with_mut(|_| drop(late)).unwrap();
    drop((ctx, host));
    assert_eq!(
        fake.take_trace(),
        ["ctx_event", "event_destroy #4", "anchor"]
    );
}

#[test]
fn calls_to_the_library_by_others_keep_the_context_out() {
    let Model {
        fake, ctx, graph, ..
    } = model_without(&[]);
    let event = ctx.event().unwrap();
    fake.take_trace();
    let answer = ctx.exclusive(|| {
        assert!(matches!(graph.replay(3, S0), Err(Error::Busy { .. })));
        assert!(matches!(ctx.exclusive(|| ()), Err(Error::Busy { .. })));
        assert!(!graph.has_variant(3));
        drop(event);
        fake.take_trace().len()
    });
    assert_eq!(answer.unwrap(), 0);
    graph.replay(3, S0).unwrap();
    assert_eq!(
        fake.take_trace(),
        ["event_destroy #2", "graph_replay #1 key 3 s0"]
    );
}

#[test]
fn memory_that_cannot_be_freed_serves_the_next_buffer_of_its_length() {
    let Model { fake, ctx, .. } = model_without(&["frt_buffer_free"]);
    let first = ctx.alloc("first", Space::Device, 4).unwrap();
    ctx.fill(&first.all(), 9, S0).unwrap();
    let addr = first.addr();
    drop(first);
    assert_eq!(ctx.memory(), Default::default());
    fake.take_trace();
    let longer = ctx.alloc("longer", Space::Device, 5).unwrap();
    let second = ctx.alloc("second", Space::Device, 4).unwrap();
    let third = ctx.alloc("third", Space::Device, 4).unwrap();
    assert_eq!(second.addr(), addr);
    assert!(longer.addr() != addr && third.addr() != addr);
    assert_eq!(read(&ctx, &second), [0; 4]);
    let allocs = fake.take_trace();
    let allocs = allocs.iter().filter(|c| c.starts_with("buffer_alloc"));
    assert_eq!(allocs.count(), 2);
    assert_eq!(ctx.memory().device_bytes, 13);
}

#[test]
fn calls_from_many_threads_reach_the_library_one_at_a_time() {
    let Model {
        fake,
        ctx,
        state,
        graph,
    } = model_without(&[]);
    fake.be_quiet();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..200 {
                    let event = ctx.event().unwrap();
                    graph.replay(3, S0).unwrap();
                    ctx.record(&event, S0).unwrap();
                    ctx.query(&event).unwrap();
                    let own = ctx.alloc("own", Space::Device, 4).unwrap();
                    ctx.copy(&own.all(), &state.all(), S0).unwrap();
                    assert_eq!(read(&ctx, &own), [7; 4]);
                }
            });
        }
    });
    assert_eq!(fake.violations(), [""; 0]);
    assert_eq!(ctx.memory(), Default::default());
}
