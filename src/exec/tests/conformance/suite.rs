//! The tests. Each takes a factory and makes the contexts it needs. Graphs come from `new_graph`, and what
//! they hold from `record`, so that another library can make both; only tests of recording itself record
//! with a callback.

use super::{new_graph, record, Factory};
use flashrt_exec::{
    BackendKind, Buffer, CaptureOptions, CapturePhase, Context, Error, Graph, Slice, Space,
    StreamId, KEY_INHERIT,
};

const S0: StreamId = StreamId(0);

/// One operation to record.
#[derive(Clone, Debug)]
pub enum Step {
    /// Destination, source.
    Copy(Slice, Slice),
    Fill(Slice, u8),
}

/// Who keeps the table of a graph answers for a missing variant: this crate with all it knows, another
/// library with its status.
fn assert_no_variant(error: &Error, graph: &str, key: Option<u64>, count: usize) {
    assert_eq!(error.code(), -2, "{error}");
    let expected = Error::NoVariant {
        graph: graph.into(),
        key,
        count,
    };
    assert!(
        *error == expected || matches!(error, Error::Library { .. }),
        "{error}"
    );
}

/// False where graphs cannot be looked into, since another library keeps them.
fn keeps_graphs(ctx: &Context) -> bool {
    ctx.backend() != BackendKind::Foreign
}

fn device(ctx: &Context, name: &str, bytes: usize) -> Buffer {
    ctx.alloc(name, Space::Device, bytes).unwrap()
}

fn read(ctx: &Context, slice: &Slice) -> Vec<u8> {
    let mut out = vec![0xEE; slice.bytes()];
    ctx.download(slice, &mut out).unwrap();
    out
}

/// A graph whose variant `key` sets all of `dst` to `value`.
fn fill_graph(ctx: &Context, name: &str, key: u64, dst: &Buffer, value: u8) -> Graph {
    let graph = new_graph(ctx, name, 0);
    record(&graph, key, &[Step::Fill(dst.all(), value)]);
    graph
}

/// A graph whose variant 0 copies all of `src` over `dst`.
fn copy_graph(ctx: &Context, name: &str, dst: &Buffer, src: &Buffer) -> Graph {
    let graph = new_graph(ctx, name, 0);
    record(&graph, 0, &[Step::Copy(dst.all(), src.all())]);
    graph
}

// ---- streams and buffers ----

pub fn stream_0_exists_and_ids_count_up(make: Factory) {
    let ctx = make();
    assert_eq!(ctx.stream_count(), 1);
    ctx.synchronize(S0).unwrap();
    assert_eq!(ctx.stream(0).unwrap(), StreamId(1));
    assert_eq!(ctx.stream(-1).unwrap(), StreamId(2));
    assert_eq!(ctx.stream_count(), 3);
    for id in [3, -1, i32::MAX, i32::MIN] {
        let error = ctx.synchronize(StreamId(id)).unwrap_err();
        assert_eq!(
            error,
            Error::BadStream {
                stream: id,
                count: 3
            }
        );
        assert_eq!(error.code(), -1);
    }
}

pub fn a_wrapped_stream_is_a_stream_like_any_other(make: Factory) {
    let ctx = make();
    assert_eq!(ctx.stream(0).unwrap(), StreamId(1));
    // SAFETY: the legacy default stream always lives.
    let wrapped = unsafe { ctx.wrap_stream(std::ptr::null_mut()) }.unwrap();
    assert_eq!((wrapped, ctx.stream_count()), (StreamId(2), 3));
    assert!(ctx.raw_stream(wrapped).unwrap().is_null());
    assert_eq!(
        ctx.raw_stream(S0).unwrap().is_null(),
        ctx.backend() == BackendKind::Cpu
    );
    for id in [3, -1, i32::MAX] {
        let error = ctx.raw_stream(StreamId(id)).unwrap_err();
        assert!(matches!(error, Error::BadStream { .. }), "{error}");
    }

    let (a, b) = (device(&ctx, "a", 4), device(&ctx, "b", 4));
    let event = ctx.event().unwrap();
    ctx.fill(&a.all(), 6, S0).unwrap();
    ctx.record(&event, S0).unwrap();
    ctx.wait(wrapped, &event).unwrap();
    ctx.copy(&b.all(), &a.all(), wrapped).unwrap();
    ctx.synchronize(wrapped).unwrap();
    assert_eq!(read(&ctx, &b.all()), [6; 4]);

    let graph = ctx.graph("graph", 0).unwrap();
    graph
        .capture::<Error>(0, |r| {
            assert_eq!(r.raw_stream().is_null(), r.backend() == BackendKind::Cpu);
            // SAFETY: refused before anything is done with it.
            let inside = unsafe { r.context().wrap_stream(std::ptr::null_mut()) };
            assert!(matches!(inside, Err(Error::Recording { .. })), "{inside:?}");
            r.fill(&a.all(), 1)
        })
        .unwrap();
    assert_eq!(ctx.stream_count(), 3);
}

pub fn priorities_are_clamped(make: Factory) {
    let ctx = make();
    let urgent = ctx.stream(-1_000_000).unwrap();
    let calm = ctx.stream(1_000_000).unwrap();
    assert_eq!(ctx.priority(S0).unwrap(), 0);
    assert_eq!(ctx.priority(calm).unwrap(), 0);
    assert!((-64..0).contains(&ctx.priority(urgent).unwrap()));
}

pub fn buffers_are_zeroed_aligned_and_at_home(make: Factory) {
    let ctx = make();
    let a = device(&ctx, "a", 1000);
    let b = ctx.alloc("a", Space::Host, 3).unwrap();
    assert_eq!(read(&ctx, &a.all()), vec![0; 1000]);
    assert_eq!((a.name(), a.bytes(), a.space()), ("a", 1000, Space::Device));
    assert_eq!((b.name(), b.bytes(), b.space()), ("a", 3, Space::Host));
    assert_ne!(a.id(), b.id());
    assert_eq!((a.addr() % 64, b.addr() % 64), (0, 0));
    assert_eq!(a.clone().addr(), a.addr());
    let window = a.slice(64, 10).unwrap();
    assert_eq!(window.as_ptr() as usize, a.addr() + 64);
    let memory = ctx.memory();
    assert_eq!(
        (memory.device_bytes, memory.host_bytes, memory.buffers),
        (1000, 3, 2)
    );
}

pub fn buffers_of_no_bytes_or_too_many_are_refused(make: Factory) {
    let ctx = make();
    assert_eq!(ctx.alloc("none", Space::Device, 0).unwrap_err().code(), -1);
    for bytes in [usize::MAX, usize::MAX / 2, 1 << 60] {
        let error = ctx.alloc("huge", Space::Device, bytes).unwrap_err();
        assert_eq!(error.code(), -6);
        assert!(
            matches!(&error, Error::OutOfMemory { buffer, bytes: b, space: Space::Device, .. } if buffer == "huge" && *b == bytes),
            "{error}"
        );
    }
    assert_eq!(ctx.memory().buffers, 0);
}

pub fn windows_are_checked_without_overflow(make: Factory) {
    let ctx = make();
    let a = device(&ctx, "a", 16);
    for (offset, len) in [
        (0, 17),
        (16, 1),
        (17, 0),
        (usize::MAX, 2),
        (8, usize::MAX - 4),
    ] {
        let error = a.slice(offset, len).unwrap_err();
        assert_eq!(
            error,
            Error::OutOfRange {
                buffer: "a".into(),
                offset,
                len,
                bytes: 16
            }
        );
        assert_eq!(error.code(), -1);
    }
    assert_eq!(a.slice(16, 0).unwrap().bytes(), 0);
    let window = a.slice(4, 8).unwrap();
    let inner = window.slice(2, 6).unwrap();
    assert_eq!((inner.offset(), inner.bytes()), (6, 6));
    assert!(
        window.slice(2, 7).is_err(),
        "inside the buffer, outside the window"
    );
    assert!(window.slice(usize::MAX, 2).is_err());
}

pub fn copies_cross_all_spaces(make: Factory) {
    let ctx = make();
    for from in [Space::Device, Space::Host] {
        for to in [Space::Device, Space::Host] {
            let src = ctx.alloc("src", from, 256).unwrap();
            let dst = ctx.alloc("dst", to, 256).unwrap();
            let bytes: Vec<u8> = (0..=255).collect();
            ctx.upload(&src.all(), &bytes).unwrap();
            ctx.copy(&dst.all(), &src.all(), S0).unwrap();
            ctx.synchronize(S0).unwrap();
            assert_eq!(read(&ctx, &dst.all()), bytes, "{from} to {to}");
        }
    }
}

pub fn windowed_copies_touch_nothing_else(make: Factory) {
    let ctx = make();
    let (src, dst) = (device(&ctx, "src", 32), device(&ctx, "dst", 32));
    ctx.upload(&src.all(), &(100..132).collect::<Vec<u8>>())
        .unwrap();
    ctx.fill(&dst.all(), 7, S0).unwrap();
    ctx.copy(&dst.slice(5, 3).unwrap(), &src.slice(20, 3).unwrap(), S0)
        .unwrap();
    let mut expected = vec![7; 32];
    expected[5..8].copy_from_slice(&[120, 121, 122]);
    assert_eq!(read(&ctx, &dst.all()), expected);
    // Inside one buffer, windows side by side.
    ctx.copy(&src.slice(0, 4).unwrap(), &src.slice(4, 4).unwrap(), S0)
        .unwrap();
    assert_eq!(
        read(&ctx, &src.slice(0, 8).unwrap()),
        [104, 105, 106, 107, 104, 105, 106, 107]
    );
}

pub fn empty_copies_succeed(make: Factory) {
    let ctx = make();
    let a = device(&ctx, "a", 4);
    let end = a.slice(4, 0).unwrap();
    ctx.copy(&end, &a.slice(1, 0).unwrap(), S0).unwrap();
    ctx.fill(&end, 9, S0).unwrap();
    ctx.upload(&end, &[]).unwrap();
    assert_eq!(read(&ctx, &a.all()), [0; 4]);
}

pub fn bad_copies_are_refused(make: Factory) {
    let ctx = make();
    let (a, b) = (device(&ctx, "a", 8), device(&ctx, "b", 4));
    let lengths = ctx.copy(&a.all(), &b.all(), S0).unwrap_err();
    assert_eq!(
        lengths,
        Error::LengthMismatch {
            dst: "a".into(),
            dst_bytes: 8,
            src: "b".into(),
            src_bytes: 4
        }
    );
    let overlap = ctx
        .copy(&a.slice(0, 5).unwrap(), &a.slice(3, 5).unwrap(), S0)
        .unwrap_err();
    assert_eq!(
        overlap,
        Error::Overlap {
            buffer: "a".into(),
            src: 3,
            dst: 0,
            bytes: 5
        }
    );
    let stream = ctx
        .copy(&b.all(), &a.slice(0, 4).unwrap(), StreamId(9))
        .unwrap_err();
    assert_eq!(
        stream,
        Error::BadStream {
            stream: 9,
            count: 1
        }
    );
    assert_eq!(
        (lengths.code(), overlap.code(), stream.code()),
        (-1, -1, -1)
    );
    assert_eq!(ctx.upload(&b.all(), &[1; 5]).unwrap_err().code(), -1);
    assert_eq!(ctx.download(&b.all(), &mut [1; 3]).unwrap_err().code(), -1);
    assert_eq!(read(&ctx, &a.all()), [0; 8]);
}

pub fn objects_of_another_context_are_refused(make: Factory) {
    let (ctx, other) = (make(), make());
    let (mine, foreign) = (device(&ctx, "mine", 4), device(&other, "foreign", 4));
    let event = other.event().unwrap();
    let graph = fill_graph(&other, "graph", 1, &foreign, 1);
    let executable = graph.executable(1).unwrap();
    let my_graph = ctx.graph("my graph", 0).unwrap();
    let refused = [
        ctx.copy(&mine.all(), &foreign.all(), S0),
        ctx.copy(&foreign.all(), &mine.all(), S0),
        ctx.fill(&foreign.all(), 1, S0),
        ctx.upload(&foreign.all(), &[0; 4]),
        ctx.download(&foreign.all(), &mut [0; 4]),
        ctx.record(&event, S0),
        ctx.wait(S0, &event),
        ctx.query(&event).map(drop),
        ctx.sync_event(&event),
        ctx.plan().add(&graph, 1, S0).map(drop),
        my_graph.bind("port", &foreign),
        my_graph.adopt(1, &executable),
    ];
    for (index, result) in refused.into_iter().enumerate() {
        let error = result.unwrap_err();
        assert!(
            matches!(error, Error::ForeignContext { .. }),
            "{index}: {error}"
        );
        assert_eq!(error.code(), -1);
    }
    let error = my_graph
        .capture::<Error>(1, |r| r.fill(&foreign.all(), 1))
        .unwrap_err();
    assert!(
        error
            .to_string()
            .contains("buffer \"foreign\" belongs to another context"),
        "{error}"
    );
    assert_eq!((my_graph.variant_count(), ctx.stream_count()), (0, 1));
}

pub fn host_access_is_for_host_space_and_checked(make: Factory) {
    let ctx = make();
    let host = ctx.alloc("host", Space::Host, 8).unwrap();
    let dev = device(&ctx, "dev", 8);
    host.host_write(2, &[1, 2, 3]).unwrap();
    host.host_with_mut(|bytes| bytes[7] = 9).unwrap();
    let mut out = [0; 6];
    host.host_read(2, &mut out).unwrap();
    assert_eq!(out, [1, 2, 3, 0, 0, 9]);
    assert_eq!(read(&ctx, &host.all()), [0, 0, 1, 2, 3, 0, 0, 9]);

    let wrong = dev.host_write(0, &[1]).unwrap_err();
    let expected = Error::WrongSpace {
        buffer: "dev".into(),
        expected: Space::Host,
        got: Space::Device,
    };
    assert_eq!((wrong.code(), wrong), (-1, expected));
    assert!(dev.host_read(0, &mut [0]).is_err());
    assert!(dev.host_with_mut(|_| ()).is_err());
    for offset in [6, usize::MAX] {
        let error = host.host_write(offset, &[0; 3]).unwrap_err();
        assert_eq!(
            error,
            Error::OutOfRange {
                buffer: "host".into(),
                offset,
                len: 3,
                bytes: 8
            }
        );
        assert!(host.host_read(offset, &mut [0; 3]).is_err());
    }
    assert_eq!(read(&ctx, &host.all()), [0, 0, 1, 2, 3, 0, 0, 9]);
}

pub fn memory_returns_when_the_last_handle_goes(make: Factory) {
    let ctx = make();
    let a = device(&ctx, "a", 100);
    let graph = fill_graph(&ctx, "graph", 1, &a, 1);
    let window = a.slice(0, 1).unwrap();
    drop(a);
    assert_eq!(ctx.memory().device_bytes, 100);
    drop(window);
    assert_eq!(ctx.memory().device_bytes, 100, "the graph holds it");
    graph.evict(1).unwrap();
    assert_eq!(ctx.memory(), Default::default());

    // Work that never ran must not keep its memory, or its context, alive.
    let (a, b) = (device(&ctx, "a", 10), device(&ctx, "b", 10));
    ctx.copy(&a.all(), &b.all(), S0).unwrap();
    drop(b);
    drop(ctx);
    drop(graph);
    assert_eq!(a.bytes(), 10);
}

pub fn wrapped_memory_is_used_in_place_and_never_freed(make: Factory) {
    let ctx = make();
    for space in [Space::Device, Space::Host] {
        let owner = ctx.alloc("owner", space, 16).unwrap();
        let before = ctx.memory();
        let start = owner.slice(4, 8).unwrap().as_ptr();
        // SAFETY: eight bytes of `owner`, which outlives all use of the wrapper.
        let wrapped = unsafe { ctx.wrap("wrapped", space, start, 8) }.unwrap();
        assert_eq!((wrapped.name(), wrapped.bytes()), ("wrapped", 8));
        assert_eq!((wrapped.space(), wrapped.addr()), (space, start as usize));
        assert_ne!(wrapped.id(), owner.id());
        assert_eq!(ctx.memory(), before, "the memory belongs to its owner");

        ctx.fill(&wrapped.slice(1, 2).unwrap(), 7, S0).unwrap();
        let graph = fill_graph(&ctx, "graph", 0, &wrapped, 5);
        let expected = [0, 0, 0, 0, 0, 7, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(read(&ctx, &owner.all()), expected);
        if space == Space::Host {
            wrapped.host_write(7, &[3]).unwrap();
            assert_eq!(wrapped.host_with_mut(|bytes| bytes.len()).unwrap(), 8);
            assert_eq!(wrapped.host_write(8, &[3]).unwrap_err().code(), -1);
            assert_eq!(read(&ctx, &owner.all())[11], 3);
        }
        drop(wrapped);
        graph.replay(0, S0).unwrap();
        drop(graph);
        let expected = [0, 0, 0, 0, 5, 5, 5, 5, 5, 5, 5, 5, 0, 0, 0, 0];
        assert_eq!(read(&ctx, &owner.all()), expected);
        assert_eq!(ctx.memory(), before);
    }
}

pub fn wrapped_memory_may_be_empty_but_not_null_or_endless(make: Factory) {
    let ctx = make();
    let owner = device(&ctx, "owner", 4);
    let start = owner.all().as_ptr();
    // SAFETY: no bytes are promised.
    let empty = unsafe { ctx.wrap("empty", Space::Device, start, 0) }.unwrap();
    assert_eq!(empty.bytes(), 0);
    ctx.copy(&empty.all(), &owner.slice(0, 0).unwrap(), S0)
        .unwrap();
    ctx.fill(&empty.all(), 1, S0).unwrap();
    ctx.upload(&empty.all(), &[]).unwrap();
    assert!(read(&ctx, &empty.all()).is_empty());
    assert_eq!(empty.slice(0, 1).unwrap_err().code(), -1);
    assert_eq!(read(&ctx, &owner.all()), [0; 4]);

    for (addr, bytes) in [
        (std::ptr::null_mut(), 4),
        (std::ptr::null_mut(), 0),
        (start, isize::MAX as usize + 1),
        (start, usize::MAX),
    ] {
        // SAFETY: refused before anything is done with it.
        let error = unsafe { ctx.wrap("bad", Space::Device, addr, bytes) }.unwrap_err();
        assert_eq!(error.code(), -1, "{addr:p} and {bytes} bytes");
        assert!(error.to_string().contains("\"bad\""), "{error}");
    }
}

pub fn copies_between_two_names_of_the_same_bytes_are_refused(make: Factory) {
    let ctx = make();
    let owner = device(&ctx, "owner", 16);
    // SAFETY: the bytes of `owner`, which outlives all use of the wrapper.
    let alias = unsafe { ctx.wrap("alias", Space::Device, owner.all().as_ptr(), 16) }.unwrap();
    let (low, high) = (alias.slice(0, 8).unwrap(), owner.slice(8, 8).unwrap());
    ctx.upload(&low, &[1, 2, 3, 4, 5, 6, 7, 8]).unwrap();
    ctx.copy(&high, &low, S0).unwrap();
    assert_eq!(read(&ctx, &high), [1, 2, 3, 4, 5, 6, 7, 8]);
    let error = ctx.copy(&owner.slice(7, 8).unwrap(), &low, S0).unwrap_err();
    assert_eq!(
        error,
        Error::Overlap {
            buffer: "owner".into(),
            src: 0,
            dst: 7,
            bytes: 8
        }
    );
}

// ---- graphs ----

pub fn capture_runs_nothing_and_replay_runs_it(make: Factory) {
    let ctx = make();
    let a = device(&ctx, "a", 4);
    let graph = fill_graph(&ctx, "graph", 5, &a, 0xAB);
    assert_eq!(read(&ctx, &a.all()), [0; 4]);
    graph.replay(5, S0).unwrap();
    ctx.synchronize(S0).unwrap();
    assert_eq!(read(&ctx, &a.all()), [0xAB; 4]);
}

pub fn graphs_hand_over_through_a_shared_buffer(make: Factory) {
    let ctx = make();
    let (shared, out) = (device(&ctx, "shared", 16), device(&ctx, "out", 16));
    let producer = fill_graph(&ctx, "producer", 0, &shared, 42);
    let consumer = copy_graph(&ctx, "consumer", &out, &shared);
    producer.bind("out", &shared).unwrap();
    consumer.bind("in", &shared).unwrap();
    let (a, b) = (
        producer.bound("out").unwrap(),
        consumer.bound("in").unwrap(),
    );
    assert_eq!((a.id(), a.addr()), (b.id(), b.addr()));
    producer.replay(0, S0).unwrap();
    consumer.replay(0, S0).unwrap();
    ctx.synchronize(S0).unwrap();
    assert_eq!(read(&ctx, &out.all()), [42; 16]);
}

pub fn streams_are_ordered_by_an_event(make: Factory) {
    let ctx = make();
    let s1 = ctx.stream(-1).unwrap();
    let (a, b) = (device(&ctx, "a", 64), device(&ctx, "b", 64));
    let consumer = copy_graph(&ctx, "consumer", &b, &a);
    let (filled, copied) = (ctx.event().unwrap(), ctx.event().unwrap());
    for value in 1..50 {
        ctx.fill(&a.all(), value, S0).unwrap();
        ctx.record(&filled, S0).unwrap();
        ctx.wait(s1, &filled).unwrap();
        consumer.replay(0, s1).unwrap();
        ctx.record(&copied, s1).unwrap();
        // The next fill must not overtake the copy.
        ctx.wait(S0, &copied).unwrap();
        if value % 7 == 0 {
            ctx.synchronize(s1).unwrap();
            assert_eq!(read(&ctx, &b.all()), [value; 64]);
        }
    }
    ctx.sync_event(&copied).unwrap();
    assert!(ctx.query(&copied).unwrap());
    assert_eq!(read(&ctx, &b.all()), [49; 64]);
}

pub fn waiting_for_an_event_never_recorded_does_nothing(make: Factory) {
    let ctx = make();
    let event = ctx.event().unwrap();
    ctx.wait(S0, &event).unwrap();
    ctx.synchronize(S0).unwrap();
    ctx.sync_event(&event).unwrap();
    assert!(ctx.query(&event).unwrap());
    assert_eq!(ctx.wait(StreamId(1), &event).unwrap_err().code(), -1);
    assert_eq!(ctx.record(&event, StreamId(-1)).unwrap_err().code(), -1);
}

pub fn a_wait_keeps_the_mark_that_it_saw(make: Factory) {
    let ctx = make();
    let (s1, s2) = (ctx.stream(0).unwrap(), ctx.stream(0).unwrap());
    let (a, b) = (device(&ctx, "a", 4), device(&ctx, "b", 4));
    let event = ctx.event().unwrap();
    ctx.fill(&a.all(), 1, S0).unwrap();
    ctx.record(&event, S0).unwrap();
    ctx.wait(s1, &event).unwrap();
    // Moving the event to an empty stream must not release s1 before its fill.
    ctx.record(&event, s2).unwrap();
    ctx.copy(&b.all(), &a.all(), s1).unwrap();
    ctx.synchronize(s1).unwrap();
    assert_eq!(read(&ctx, &b.all()), [1; 4]);
}

pub fn polling_an_event_ends(make: Factory) {
    let ctx = make();
    let a = device(&ctx, "a", 4);
    let event = ctx.event().unwrap();
    for value in 1..=10 {
        ctx.fill(&a.all(), value, S0).unwrap();
    }
    ctx.record(&event, S0).unwrap();
    let begin = std::time::Instant::now();
    while !ctx.query(&event).unwrap() {
        assert!(begin.elapsed().as_secs() < 10, "no end in sight");
    }
    assert_eq!(read(&ctx, &a.all()), [10; 4]);
}

pub fn more_work_than_a_queue_holds_still_runs_in_order(make: Factory) {
    let ctx = make();
    let s1 = ctx.stream(0).unwrap();
    let (a, b) = (device(&ctx, "a", 4), device(&ctx, "b", 4));
    let event = ctx.event().unwrap();
    for round in 0..2000 {
        ctx.fill(&a.all(), (round % 251) as u8, S0).unwrap();
    }
    ctx.record(&event, S0).unwrap();
    ctx.wait(s1, &event).unwrap();
    for _ in 0..2000 {
        ctx.copy(&b.all(), &a.all(), s1).unwrap();
    }
    ctx.synchronize(s1).unwrap();
    assert_eq!(read(&ctx, &b.all()), [(1999 % 251) as u8; 4]);
}

/// A graph of at most `max` variants over one buffer; variant `k` fills it with `k`.
fn table(ctx: &Context, max: usize, keys: &[u64]) -> (Graph, Buffer) {
    let buffer = device(ctx, "value", 1);
    let graph = new_graph(ctx, "table", max);
    for &key in keys {
        record(&graph, key, &[Step::Fill(buffer.all(), key as u8)]);
    }
    (graph, buffer)
}

pub fn a_third_variant_evicts_the_least_recent_of_two(make: Factory) {
    let ctx = make();
    let (graph, _) = table(&ctx, 2, &[1, 2, 3]);
    assert_eq!(graph.variant_count(), 2);
    assert_eq!([1, 2, 3].map(|k| graph.has_variant(k)), [false, true, true]);
    let error = graph.replay(1, S0).unwrap_err();
    assert_no_variant(&error, "table", Some(1), 2);
    let (unlimited, _) = table(&ctx, 0, &(0..100).collect::<Vec<_>>());
    assert_eq!(unlimited.variant_count(), 100);
}

pub fn replay_refreshes_a_variant_and_looking_does_not(make: Factory) {
    let ctx = make();
    let (graph, value) = table(&ctx, 0, &[1, 2, 3]);
    graph.replay(1, S0).unwrap();
    // None of these is a use.
    assert!(graph.has_variant(2));
    graph.bind("value", &value).unwrap();
    graph.executable(2).unwrap();
    assert_eq!(graph.replay(2, StreamId(5)).unwrap_err().code(), -1);
    assert_eq!(graph.evict_lru().unwrap(), 2);
    assert_eq!(graph.evict_lru().unwrap(), 3);
    assert_eq!(graph.evict_lru().unwrap(), 1);
    assert_eq!(
        read(&ctx, &value.all()),
        [1],
        "submitted before it was evicted"
    );
}

pub fn replacing_a_variant_evicts_nothing(make: Factory) {
    let ctx = make();
    let (graph, value) = table(&ctx, 2, &[1, 2]);
    record(&graph, 1, &[Step::Fill(value.all(), 77)]);
    assert_eq!(graph.variant_count(), 2);
    graph.replay(1, S0).unwrap();
    assert_eq!(read(&ctx, &value.all()), [77]);
    record(&graph, 3, &[Step::Fill(value.all(), 3)]);
    assert_eq!([1, 2, 3].map(|k| graph.has_variant(k)), [true, false, true]);
}

pub fn eviction_answers_for_missing_keys(make: Factory) {
    let ctx = make();
    let (graph, _) = table(&ctx, 0, &[1]);
    assert_eq!(graph.evict(2).unwrap_err().code(), -2);
    graph.evict(1).unwrap();
    assert_eq!(graph.evict(1).unwrap_err().code(), -2);
    if keeps_graphs(&ctx) {
        assert_no_variant(&graph.evict_lru().unwrap_err(), "table", None, 0);
    }
    assert_eq!(graph.variant_count(), 0);
    let unbound = graph.bound("nowhere").unwrap_err();
    assert_eq!(unbound.code(), -3);
}

pub fn a_missing_variant_is_told_before_a_bad_stream(make: Factory) {
    let ctx = make();
    let (graph, _) = table(&ctx, 0, &[1]);
    assert_eq!(graph.replay(2, StreamId(9)).unwrap_err().code(), -2);
    assert_eq!(graph.replay(1, StreamId(9)).unwrap_err().code(), -1);
}

pub fn all_ones_is_a_key_like_any_other(make: Factory) {
    let ctx = make();
    let (graph, value) = table(&ctx, 0, &[1]);
    let mut plan = ctx.plan();
    plan.add(&graph, KEY_INHERIT, S0).unwrap();
    assert_eq!(plan.execute(u64::MAX).unwrap_err().code(), -2);
    record(&graph, u64::MAX, &[Step::Fill(value.all(), 200)]);
    plan.execute(u64::MAX).unwrap();
    assert_eq!(read(&ctx, &value.all()), [200]);
}

pub fn an_evicted_variant_in_flight_runs_to_its_end(make: Factory) {
    let ctx = make();
    let temporary = device(&ctx, "temporary", 8);
    let out = device(&ctx, "out", 8);
    let graph = new_graph(&ctx, "graph", 1);
    let steps = [
        Step::Fill(temporary.all(), 3),
        Step::Copy(out.all(), temporary.all()),
    ];
    record(&graph, 1, &steps);
    drop((temporary, steps));
    graph.replay(1, S0).unwrap();
    graph.evict(1).unwrap();
    drop(graph);
    assert_eq!(read(&ctx, &out.all()), [3; 8]);
    assert_eq!(ctx.memory().buffers, 1, "and then lets its memory go");
}

pub fn binding_never_redirects_captured_work(make: Factory) {
    let ctx = make();
    let (a, b) = (device(&ctx, "a", 4), device(&ctx, "b", 4));
    let graph = fill_graph(&ctx, "graph", 0, &a, 5);
    graph.bind("out", &a).unwrap();
    graph.bind("out", &b).unwrap();
    assert_eq!(graph.bound("out").unwrap().id(), b.id());
    graph.replay(0, S0).unwrap();
    assert_eq!(read(&ctx, &a.all()), [5; 4]);
    assert_eq!(read(&ctx, &b.all()), [0; 4]);
}

pub fn an_adopted_variant_replays_like_its_owner(make: Factory) {
    let ctx = make();
    let a = device(&ctx, "a", 4);
    let owner = fill_graph(&ctx, "owner", 1, &a, 9);
    let adopter = ctx.graph("adopter", 1).unwrap();
    adopter.adopt(100, &owner.executable(1).unwrap()).unwrap();
    owner.evict(1).unwrap();
    drop(owner);
    adopter.replay(100, S0).unwrap();
    assert_eq!(read(&ctx, &a.all()), [9; 4]);
    let (other, _) = table(&ctx, 0, &[1]);
    adopter.adopt(101, &other.executable(1).unwrap()).unwrap();
    assert!(
        !adopter.has_variant(100),
        "adoption counts against the limit"
    );
}

pub fn a_raw_executable_names_one_variant_while_it_lives(make: Factory) {
    let ctx = make();
    let (graph, _) = table(&ctx, 0, &[1, 2]);
    let (one, two) = (graph.executable(1).unwrap(), graph.executable(2).unwrap());
    assert!(!one.raw().is_null());
    assert_ne!(one.raw(), two.raw());
    graph.evict(1).unwrap();
    graph.adopt(3, &one).unwrap();
    assert_eq!(graph.executable(3).unwrap().raw(), one.raw());
    assert_eq!(one.clone().raw(), one.raw());
}

pub fn a_raw_executable_is_adopted_where_the_driver_has_one(make: Factory) {
    let ctx = make();
    let a = device(&ctx, "a", 4);
    let owner = fill_graph(&ctx, "owner", 1, &a, 9);
    let adopter = ctx.graph("adopter", 1).unwrap();
    let raw = owner.executable(1).unwrap().raw();

    // SAFETY: refused before anything is done with it.
    let null = unsafe { adopter.adopt_raw(100, std::ptr::null_mut()) };
    assert_eq!(null.unwrap_err().code(), -1);
    // SAFETY: `owner` keeps the executable until the end of this test, and synchronises before.
    let adopted = unsafe { adopter.adopt_raw(100, raw) };
    if ctx.backend() == BackendKind::Cpu {
        assert_eq!(adopted.unwrap_err().code(), -1);
        assert_eq!(adopter.variant_count(), 0);
        return;
    }
    adopted.unwrap();
    adopter.replay(100, S0).unwrap();
    assert_eq!(read(&ctx, &a.all()), [9; 4]);
    drop(adopter);
    ctx.upload(&a.all(), &[0; 4]).unwrap();
    owner.replay(1, S0).unwrap();
    assert_eq!(read(&ctx, &a.all()), [9; 4]);
}

// ---- captures that fail ----

#[derive(Debug)]
enum CallerError {
    Own(&'static str),
    Exec(Error),
}

impl From<Error> for CallerError {
    fn from(error: Error) -> Self {
        CallerError::Exec(error)
    }
}

fn capture_error(error: &Error) -> (CapturePhase, &str, u64) {
    assert_eq!(error.code(), -4, "{error}");
    match error {
        Error::Capture {
            graph, key, phase, ..
        } => (*phase, graph, *key),
        other => panic!("not a capture error: {other}"),
    }
}

pub fn a_failed_capture_changes_nothing_and_names_its_phase(make: Factory) {
    let ctx = make();
    let (graph, value) = table(&ctx, 2, &[1, 2]);
    let wide = device(&ctx, "wide", 2);

    // The recorder's own refusal names the phase.
    let error = graph
        .capture::<Error>(1, |r| r.copy(&wide.all(), &value.all()))
        .unwrap_err();
    assert_eq!(capture_error(&error), (CapturePhase::Record, "table", 1));
    assert!(error.to_string().contains("takes 2 bytes"), "{error}");

    // The caller's own error comes back as it is, also after work was recorded.
    let result = graph.capture(3, |r| {
        r.fill(&value.all(), 99)?;
        Err(CallerError::Own("no weights"))
    });
    assert!(matches!(result, Err(CallerError::Own("no weights"))));

    assert_eq!([1, 2, 3].map(|k| graph.has_variant(k)), [true, true, false]);
    for key in [2, 1] {
        graph.replay(key, S0).unwrap();
        assert_eq!(read(&ctx, &value.all()), [key as u8]);
    }
    assert_eq!(graph.evict_lru().unwrap(), 2);
}

pub fn an_empty_capture_is_refused_at_its_end(make: Factory) {
    let ctx = make();
    let (graph, value) = table(&ctx, 0, &[1]);
    let error = graph.capture::<Error>(1, |_| Ok(())).unwrap_err();
    assert_eq!(capture_error(&error), (CapturePhase::End, "table", 1));
    assert!(
        error.to_string().contains("nothing was recorded"),
        "{error}"
    );
    graph.replay(1, S0).unwrap();
    assert_eq!(read(&ctx, &value.all()), [1]);
}

pub fn an_empty_capture_is_legal_where_the_caller_says_so(make: Factory) {
    let ctx = make();
    let (graph, value) = table(&ctx, 0, &[1]);
    let options = CaptureOptions { allow_empty: true };
    graph
        .capture_with::<Error>(2, options, |r| {
            assert!(r.is_empty());
            Ok(())
        })
        .unwrap();
    graph
        .capture_with::<Error>(3, options, |r| {
            r.fill(&value.all(), 3)?;
            assert!(!r.is_empty());
            Ok(())
        })
        .unwrap();
    assert_eq!(graph.variant_count(), 3);
    // Nothing is a stream's work too: what follows on the same stream still runs.
    for (key, expected) in [(1, 1), (2, 1), (3, 3), (2, 3)] {
        graph.replay(key, S0).unwrap();
        assert_eq!(read(&ctx, &value.all()), [expected], "after key {key}");
    }
}

pub fn a_swallowed_failure_still_fails_the_capture(make: Factory) {
    let ctx = make();
    let (graph, value) = table(&ctx, 0, &[]);
    let wide = device(&ctx, "wide", 2);
    let error = graph
        .capture::<Error>(1, |r| {
            r.fill(&value.all(), 1)?;
            let _ = r.copy(&value.all(), &wide.all());
            Ok(())
        })
        .unwrap_err();
    assert_eq!(capture_error(&error).0, CapturePhase::End);
    assert!(error.to_string().contains("takes 1 bytes"), "{error}");
    assert_eq!(graph.variant_count(), 0);
}

pub fn a_capture_inside_a_capture_is_refused_at_its_begin(make: Factory) {
    let ctx = make();
    let (graph, value) = table(&ctx, 0, &[1]);
    let mut inner = None;
    graph
        .capture::<Error>(2, |r| {
            inner = graph.capture::<Error>(3, |r| r.fill(&value.all(), 3)).err();
            r.fill(&value.all(), 2)
        })
        .unwrap();
    let inner = inner.unwrap();
    assert_eq!(capture_error(&inner), (CapturePhase::Begin, "table", 3));
    assert!(
        inner
            .to_string()
            .contains("graph \"table\" key 2 is being recorded"),
        "{inner}"
    );
    assert_eq!([1, 2, 3].map(|k| graph.has_variant(k)), [true, true, false]);
}

pub fn a_panicking_callback_ends_its_recording(make: Factory) {
    let ctx = make();
    let (graph, value) = table(&ctx, 0, &[1]);
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        graph.capture::<Error>(2, |_| std::panic::resume_unwind(Box::new("callback")))
    }));
    assert!(panicked.is_err());
    graph.replay(1, S0).unwrap();
    assert_eq!(read(&ctx, &value.all()), [1]);
    assert_eq!(graph.variant_count(), 1);
}

pub fn case_150_a_graph_owns_everything_it_touches(make: Factory) {
    let ctx = make();
    let out = device(&ctx, "out", 4096);
    let graph = new_graph(&ctx, "graph", 0);
    {
        let weights = device(&ctx, "weights", 4096);
        let scratch = device(&ctx, "scratch", 4096);
        let bytes: Vec<u8> = (0..4096).map(|i| (i * 7 % 256) as u8).collect();
        ctx.upload(&weights.all(), &bytes).unwrap();
        let steps = [
            Step::Copy(scratch.all(), weights.all()),
            Step::Fill(scratch.slice(0, 16).unwrap(), 0xAA),
            Step::Copy(out.all(), scratch.all()),
        ];
        record(&graph, 1, &steps);
    }
    // Freed memory would be handed out again here, and written over.
    let pressure: Vec<Buffer> = (0..1024)
        .map(|i| {
            let buffer = device(&ctx, "pressure", if i % 2 == 0 { 4096 } else { 1 << 16 });
            ctx.fill(&buffer.all(), 0x55, S0).unwrap();
            buffer
        })
        .collect();
    ctx.synchronize(S0).unwrap();
    let mut expected: Vec<u8> = (0..4096).map(|i| (i * 7 % 256) as u8).collect();
    expected[..16].fill(0xAA);
    for round in 0..10_000 {
        graph.replay(1, S0).unwrap();
        if round % 100 == 0 {
            assert_eq!(read(&ctx, &out.all()), expected, "replay {round}");
        }
    }
    assert_eq!(read(&ctx, &out.all()), expected);
    drop(pressure);
}

pub fn case_152_commands_inside_a_capture_are_refused_and_temporaries_may_drop(make: Factory) {
    let ctx = make();
    let (graph, value) = table(&ctx, 0, &[1]);
    let event = ctx.event().unwrap();
    let one = device(&ctx, "one", 1);
    let temporary = device(&ctx, "temporary", 1);
    let mut plan = ctx.plan();
    plan.add(&graph, 1, S0).unwrap();
    let mut refusals = Vec::new();
    graph
        .capture::<Error>(2, |r| {
            let ctx = r.context().clone();
            refusals = vec![
                ctx.synchronize(S0),
                ctx.synchronize_all(),
                ctx.alloc("late", Space::Device, 8).map(drop),
                ctx.stream(0).map(drop),
                ctx.copy(&value.all(), &one.all(), S0),
                ctx.fill(&value.all(), 4, S0),
                ctx.record(&event, S0),
                ctx.wait(S0, &event),
                ctx.query(&event).map(drop),
                ctx.sync_event(&event),
                ctx.upload(&value.all(), &[4]),
                ctx.download(&value.all(), &mut [0]),
                ctx.enqueue(S0, |r| r.fill(&value.all(), 4)),
                graph.replay(1, S0),
                plan.execute(0),
                plan.sync(),
            ];
            r.fill(&temporary.all(), 66)?;
            r.copy(&value.all(), &temporary.all())?;
            drop(temporary);
            Ok(())
        })
        .unwrap();
    for (index, refusal) in refusals.into_iter().enumerate() {
        let error = refusal.unwrap_err();
        assert!(matches!(error, Error::Recording { .. }), "{index}: {error}");
        let text = error.to_string();
        assert!(
            text.contains("graph \"table\" key 2 is being recorded (phase record)"),
            "{text}"
        );
        assert_eq!(error.code(), -4);
    }
    assert_eq!(ctx.stream_count(), 1);
    graph.replay(2, S0).unwrap();
    ctx.synchronize(S0).unwrap();
    assert_eq!(read(&ctx, &value.all()), [66]);
}

pub fn eager_work_is_queued_whole_or_not_at_all(make: Factory) {
    let ctx = make();
    let (a, b) = (device(&ctx, "a", 4), device(&ctx, "b", 4));
    ctx.enqueue::<Error>(S0, |r| {
        r.fill(&a.all(), 1)?;
        r.copy(&b.all(), &a.all())
    })
    .unwrap();
    assert_eq!(read(&ctx, &b.all()), [1; 4]);

    let result = ctx.enqueue(S0, |r| {
        r.fill(&a.all(), 2)?;
        Err(CallerError::Own("changed my mind"))
    });
    assert!(matches!(result, Err(CallerError::Own(_))));
    let result = ctx.enqueue(S0, |r| -> Result<(), CallerError> {
        r.fill(&a.all(), 3)?;
        let _ = r.copy(&a.slice(0, 3).unwrap(), &a.slice(1, 3).unwrap());
        Ok(())
    });
    assert!(
        matches!(result, Err(CallerError::Exec(Error::Invalid { .. }))),
        "{result:?}"
    );
    assert_eq!(
        ctx.enqueue::<Error>(StreamId(4), |_| Ok(()))
            .unwrap_err()
            .code(),
        -1
    );
    ctx.enqueue::<Error>(S0, |_| Ok(())).unwrap();
    assert_eq!(read(&ctx, &a.all()), [1; 4]);
}

// ---- plans ----

pub fn a_plan_chains_vision_encoder_action(make: Factory) {
    let ctx = make();
    let s1 = ctx.stream(-1).unwrap();
    let (frame, seen, thought, act) = (
        device(&ctx, "frame", 8),
        device(&ctx, "seen", 8),
        device(&ctx, "thought", 8),
        device(&ctx, "act", 8),
    );
    let vision = copy_graph(&ctx, "vision", &seen, &frame);
    let encoder = copy_graph(&ctx, "encoder", &thought, &seen);
    let action = copy_graph(&ctx, "action", &act, &thought);
    let mut plan = ctx.plan();
    assert_eq!(plan.add(&vision, KEY_INHERIT, S0).unwrap(), 0);
    assert_eq!(plan.add(&encoder, 0, s1).unwrap(), 1);
    assert_eq!(plan.add(&action, KEY_INHERIT, S0).unwrap(), 2);
    plan.after(1, 0).unwrap();
    plan.after(2, 1).unwrap();
    plan.validate().unwrap();
    for value in 1..20 {
        ctx.upload(&frame.all(), &[value; 8]).unwrap();
        plan.execute(0).unwrap();
        plan.sync().unwrap();
        assert_eq!(read(&ctx, &act.all()), [value; 8]);
    }
}

pub fn a_plan_fans_out_and_in(make: Factory) {
    let ctx = make();
    let streams: Vec<_> = (0..4).map(|_| ctx.stream(0).unwrap()).collect();
    let (source, joined) = (device(&ctx, "source", 4), device(&ctx, "joined", 4));
    let input = device(&ctx, "input", 4);
    let mut plan = ctx.plan();
    let first = plan
        .add(&copy_graph(&ctx, "first", &source, &input), 0, streams[0])
        .unwrap();
    let mut parts = Vec::new();
    let join = new_graph(&ctx, "join", 0);
    for (index, &stream) in streams[..3].iter().enumerate() {
        let part = device(&ctx, "part", 1);
        let graph = new_graph(&ctx, "part", 0);
        let window = source.slice(index, 1).unwrap();
        record(&graph, 0, &[Step::Copy(part.all(), window)]);
        let node = plan.add(&graph, 0, stream).unwrap();
        plan.after(node, first).unwrap();
        parts.push((node, part));
    }
    let steps = parts.iter().enumerate().map(|(index, (_, part))| {
        let window = joined.slice(2 - index, 1).unwrap();
        Step::Copy(window, part.all())
    });
    record(&join, 0, &steps.collect::<Vec<_>>());
    let last = plan.add(&join, 0, streams[3]).unwrap();
    for (node, _) in &parts {
        plan.after(last, *node).unwrap();
    }
    for round in 0..10u8 {
        ctx.upload(&input.all(), &[round, round + 50, round + 100, 0])
            .unwrap();
        plan.execute(0).unwrap();
        // The last stream alone: it must pull in everything it depends on.
        ctx.synchronize(streams[3]).unwrap();
        assert_eq!(
            read(&ctx, &joined.all()),
            [round + 100, round + 50, round, 0]
        );
    }
}

pub fn a_plan_refuses_bad_nodes_and_edges(make: Factory) {
    let ctx = make();
    let (graph, _) = table(&ctx, 0, &[1]);
    let mut plan = ctx.plan();
    assert_eq!(plan.add(&graph, 1, StreamId(1)).unwrap_err().code(), -1);
    plan.add(&graph, 1, S0).unwrap();
    plan.add(&graph, 1, S0).unwrap();
    for (node, dep) in [(2, 0), (0, 2), (1, 1), (usize::MAX, 0)] {
        let error = plan.after(node, dep).unwrap_err();
        assert_eq!(
            (error.code(), error),
            (
                -1,
                Error::BadEdge {
                    node,
                    dep,
                    count: 2
                }
            )
        );
    }
    plan.after(1, 0).unwrap();
    plan.after(1, 0).unwrap();
    assert_eq!(plan.node_count(), 2);
    plan.execute(0).unwrap();
    plan.sync().unwrap();
}

pub fn a_forward_edge_is_accepted_and_validate_refuses_it(make: Factory) {
    let ctx = make();
    let s1 = ctx.stream(0).unwrap();
    let (a, b) = (device(&ctx, "a", 1), device(&ctx, "b", 1));
    let (early, late) = (
        fill_graph(&ctx, "early", 0, &a, 1),
        fill_graph(&ctx, "late", 0, &b, 2),
    );
    let mut plan = ctx.plan();
    plan.add(&early, 0, S0).unwrap();
    plan.add(&late, 0, s1).unwrap();
    plan.after(0, 1).unwrap();
    let error = plan.validate().unwrap_err();
    assert_eq!(
        (error.code(), error),
        (-1, Error::ForwardEdge { node: 0, dep: 1 })
    );
    for _ in 0..3 {
        plan.execute(0).unwrap();
    }
    plan.sync().unwrap();
    assert_eq!(
        (read(&ctx, &a.all()), read(&ctx, &b.all())),
        (vec![1], vec![2])
    );
}

pub fn a_plan_stops_at_the_first_missing_variant(make: Factory) {
    let ctx = make();
    let (a, b, c) = (
        device(&ctx, "a", 1),
        device(&ctx, "b", 1),
        device(&ctx, "c", 1),
    );
    let mut plan = ctx.plan();
    plan.add(&fill_graph(&ctx, "a", 0, &a, 1), 0, S0).unwrap();
    plan.add(&fill_graph(&ctx, "b", 5, &b, 1), KEY_INHERIT, S0)
        .unwrap();
    plan.add(&fill_graph(&ctx, "c", 0, &c, 1), 0, S0).unwrap();
    let error = plan.execute(6).unwrap_err();
    assert_no_variant(&error, "b", Some(6), 1);
    plan.sync().unwrap();
    assert_eq!([&a, &b, &c].map(|x| read(&ctx, &x.all())[0]), [1, 0, 0]);
    plan.execute(5).unwrap();
    plan.sync().unwrap();
    assert_eq!([&a, &b, &c].map(|x| read(&ctx, &x.all())[0]), [1, 1, 1]);
}

pub fn an_empty_plan_succeeds(make: Factory) {
    let ctx = make();
    let plan = ctx.plan();
    plan.validate().unwrap();
    plan.execute(3).unwrap();
    plan.sync().unwrap();
}

// ---- many copies ----

/// Pieces of all lengths and alignments, more than one launch takes: each byte arrives, none beside it changes.
pub fn many_copies_are_each_exact_at_any_length_and_alignment(make: Factory) {
    let ctx = make();
    for (from, to) in [
        (Space::Device, Space::Device),
        (Space::Device, Space::Host),
        (Space::Host, Space::Device),
        (Space::Host, Space::Host),
    ] {
        let lengths = (0..300usize).map(|i| match i % 7 {
            0 => i,
            1 => 16 * i,
            2 => 4 * i + 4,
            3 => 1,
            4 => 0,
            5 => 700 + i,
            _ => match i {
                6 => 200_000,
                13 => 5 << 20,
                _ => 32,
            },
        });
        // (offset in the source, in the destination, length); one byte between windows.
        let (mut at_src, mut at_dst) = (0, 0);
        let windows: Vec<_> = lengths
            .enumerate()
            .map(|(i, len)| {
                let align = [1, 16, 4, 2][i % 4];
                let window = (at_src, at_dst, len);
                at_src = (at_src + len + 1).next_multiple_of(align);
                at_dst = (at_dst + len + 1).next_multiple_of(if i % 3 == 0 { 1 } else { align });
                window
            })
            .collect();
        let src = ctx.alloc("src", from, at_src).unwrap();
        let dst = ctx.alloc("dst", to, at_dst).unwrap();
        let bytes: Vec<u8> = (0..at_src).map(|i| (i * 31 % 251) as u8).collect();
        ctx.upload(&src.all(), &bytes).unwrap();
        ctx.fill(&dst.all(), 0xEE, S0).unwrap();
        let slices: Vec<_> = windows
            .iter()
            .map(|&(s, d, n)| (dst.slice(d, n).unwrap(), src.slice(s, n).unwrap()))
            .collect();
        let pairs: Vec<_> = slices.iter().map(|(d, s)| (d, s)).collect();
        ctx.copy_many(&pairs, S0).unwrap();
        ctx.synchronize(S0).unwrap();
        let mut expected = vec![0xEE; at_dst];
        for (s, d, n) in windows {
            expected[d..d + n].copy_from_slice(&bytes[s..s + n]);
        }
        assert!(read(&ctx, &dst.all()) == expected, "{from:?} to {to:?}");
    }
    ctx.copy_many(&[], S0).unwrap();
}

pub fn many_copies_are_all_checked_before_the_first_is_submitted(make: Factory) {
    let (ctx, other) = (make(), make());
    let (a, b) = (device(&ctx, "a", 16), device(&ctx, "b", 16));
    ctx.fill(&a.all(), 1, S0).unwrap();
    ctx.fill(&b.all(), 2, S0).unwrap();
    let good = (b.slice(0, 8).unwrap(), a.slice(0, 8).unwrap());
    let foreign = device(&other, "foreign", 8).all();
    let refused = [
        (b.slice(8, 8).unwrap(), a.slice(0, 4).unwrap()),
        (a.slice(4, 8).unwrap(), a.slice(0, 8).unwrap()),
        (b.slice(8, 8).unwrap(), foreign),
    ];
    for (dst, src) in &refused {
        ctx.copy_many(&[(&good.0, &good.1), (dst, src)], S0)
            .unwrap_err();
    }
    ctx.copy_many(&[(&good.0, &good.1)], StreamId(7))
        .unwrap_err();
    assert_eq!(read(&ctx, &b.all()), [2; 16]);
    ctx.copy_many(&[(&good.0, &good.1)], S0).unwrap();
    assert_eq!(read(&ctx, &b.all())[..9], [1, 1, 1, 1, 1, 1, 1, 1, 2]);
}

pub fn many_copies_on_a_side_stream_are_ordered_by_events(make: Factory) {
    let ctx = make();
    let side = ctx.stream(0).unwrap();
    let (pieces, each) = (16, 96 << 10);
    let state = device(&ctx, "state", pieces * each);
    let saved = device(&ctx, "saved", pieces * each);
    let slices: Vec<_> = (0..pieces)
        .map(|i| {
            let windows = (saved.slice(i * each, each), state.slice(i * each, each));
            (windows.0.unwrap(), windows.1.unwrap())
        })
        .collect();
    let pairs: Vec<_> = slices.iter().map(|(d, s)| (d, s)).collect();
    let (written, copied) = (ctx.event().unwrap(), ctx.event().unwrap());
    for round in 1..5u8 {
        // What came before is copied, what comes after is not.
        for value in [100, round] {
            ctx.fill(&state.all(), value, S0).unwrap();
        }
        ctx.record(&written, S0).unwrap();
        ctx.wait(side, &written).unwrap();
        ctx.copy_many(&pairs, side).unwrap();
        ctx.record(&copied, side).unwrap();
        ctx.wait(S0, &copied).unwrap();
        ctx.fill(&state.all(), 200, S0).unwrap();
        ctx.synchronize_all().unwrap();
        assert!(read(&ctx, &saved.all()).iter().all(|&b| b == round));
        assert!(read(&ctx, &state.all()).iter().all(|&b| b == 200));
    }
}
