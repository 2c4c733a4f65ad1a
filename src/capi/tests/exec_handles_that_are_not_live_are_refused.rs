//! Every function, for every kind of handle that is not a live one of its kind: a status, null or 0, and a text.

mod exec_support;
use exec_support::*;

use flashrt_capi::*;
use std::ffi::{c_void, CStr};
use std::ptr::{null_mut, without_provenance_mut};

/// What a function answers when its handle is bad.
#[derive(Debug, PartialEq, Clone, Copy)]
enum Answer {
    Status(i32),
    Null,
    Zero,
    Empty,
    Nothing,
}
use Answer::*;

unsafe extern "C" fn record(_: *mut c_void, _: *mut c_void) {
    panic!("called for a bad handle");
}
unsafe extern "C" fn function(_: *mut c_void) {}

fn null<T>(p: *mut T) -> Answer {
    assert!(p.is_null());
    Null
}

type Call = Box<dyn Fn(*mut c_void) -> Answer>;

struct Objects {
    ctx: frt_ctx,
    event: frt_event,
    buffer: frt_buffer,
    graph: frt_graph,
    plan: frt_plan,
}

impl Objects {
    fn new(ctx: frt_ctx) -> Objects {
        // SAFETY: as for C.
        unsafe {
            Objects {
                ctx,
                event: frt_ctx_event(ctx),
                buffer: buffer(ctx, 4),
                graph: graph(ctx, 0),
                plan: frt_plan_create(ctx),
            }
        }
    }
}

/// Every function with every handle argument: name, the call with that argument replaced, the answer.
fn calls(o: &Objects) -> Vec<(&'static str, Call, Answer)> {
    let &Objects {
        ctx,
        event,
        buffer,
        graph,
        plan,
    } = o;
    macro_rules! call {
        ($name:literal, $expected:expr, $h:ident => $call:expr) => {{
            // SAFETY: as for C.
            let f = move |$h: *mut c_void| unsafe { $call };
            ($name, Box::new(f) as Call, $expected)
        }};
    }
    let bad = Status(FRT_ERR_INVALID);
    vec![
        call!("frt_ctx_destroy", Nothing, h => { frt_ctx_destroy(h.cast()); Nothing }),
        call!("frt_ctx_backend", bad, h => Status(frt_ctx_backend(h.cast()))),
        call!("frt_ctx_stream", bad, h => Status(frt_ctx_stream(h.cast(), 0))),
        call!("frt_ctx_wrap_stream", bad, h => Status(frt_ctx_wrap_stream(h.cast(), null_mut()))),
        call!("frt_stream_sync", bad, h => Status(frt_stream_sync(h.cast(), 0))),
        call!("frt_stream_handle", Null, h => null(frt_stream_handle(h.cast(), 0))),
        call!("frt_stream_host_func", bad, h => Status(frt_stream_host_func(h, Some(function), null_mut()))),
        call!("frt_ctx_event", Null, h => null(frt_ctx_event(h.cast()))),
        call!("frt_event_destroy", Nothing, h => { frt_event_destroy(h.cast()); Nothing }),
        call!("frt_event_record", bad, h => Status(frt_event_record(h.cast(), 0))),
        call!("frt_stream_wait ctx", bad, h => Status(frt_stream_wait(h.cast(), 0, event))),
        call!("frt_stream_wait ev", bad, h => Status(frt_stream_wait(ctx, 0, h.cast()))),
        call!("frt_event_query", bad, h => Status(frt_event_query(h.cast()))),
        call!("frt_event_sync", bad, h => Status(frt_event_sync(h.cast()))),
        call!("frt_buffer_alloc", Null, h => null(frt_buffer_alloc(h.cast(), c"b".as_ptr(), 4))),
        call!("frt_buffer_alloc_host", Null, h => null(frt_buffer_alloc_host(h.cast(), c"b".as_ptr(), 4))),
        call!("frt_buffer_wrap", Null, h => {
            null(frt_buffer_wrap(h.cast(), c"b".as_ptr(), frt_buffer_dptr(buffer), 4))
        }),
        call!("frt_buffer_free", bad, h => Status(frt_buffer_free(h.cast()))),
        call!("frt_buffer_dptr", Null, h => null(frt_buffer_dptr(h.cast()))),
        call!("frt_buffer_bytes", Zero, h => { assert_eq!(frt_buffer_bytes(h.cast()), 0); Zero }),
        call!("frt_buffer_name", Empty, h => {
            assert_eq!(CStr::from_ptr(frt_buffer_name(h.cast())), c"");
            Empty
        }),
        call!("frt_buffer_space", bad, h => Status(frt_buffer_space(h.cast()))),
        call!("frt_buffer_copy ctx", bad, h => Status(frt_buffer_copy(h.cast(), buffer, 0, buffer, 2, 2, 0))),
        call!("frt_buffer_copy dst", bad, h => Status(frt_buffer_copy(ctx, h.cast(), 0, buffer, 2, 2, 0))),
        call!("frt_buffer_copy src", bad, h => Status(frt_buffer_copy(ctx, buffer, 0, h.cast(), 2, 2, 0))),
        call!("frt_buffer_fill ctx", bad, h => Status(frt_buffer_fill(h.cast(), buffer, 0, 1, 1, 0))),
        call!("frt_buffer_fill dst", bad, h => Status(frt_buffer_fill(ctx, h.cast(), 0, 1, 1, 0))),
        call!("frt_buffer_upload ctx", bad, h => {
            Status(frt_buffer_upload(h.cast(), buffer, 0, c"abc".as_ptr().cast(), 4, 0))
        }),
        call!("frt_buffer_upload dst", bad, h => {
            Status(frt_buffer_upload(ctx, h.cast(), 0, c"abc".as_ptr().cast(), 4, 0))
        }),
        call!("frt_buffer_download ctx", bad, h => {
            let mut out = [0u8; 4];
            Status(frt_buffer_download(h.cast(), buffer, 0, (&raw mut out).cast(), 4, 0))
        }),
        call!("frt_buffer_download src", bad, h => {
            let mut out = [0u8; 4];
            Status(frt_buffer_download(ctx, h.cast(), 0, (&raw mut out).cast(), 4, 0))
        }),
        call!("frt_graph_create", Null, h => null(frt_graph_create(h.cast(), c"g".as_ptr(), 0))),
        call!("frt_graph_destroy", Nothing, h => { frt_graph_destroy(h.cast()); Nothing }),
        call!("frt_graph_capture", bad, h => Status(frt_graph_capture(h.cast(), 1, Some(record), null_mut()))),
        call!("frt_graph_adopt", bad, h => Status(frt_graph_adopt(h.cast(), 1, without_provenance_mut(64)))),
        call!("frt_graph_executable", Null, h => null(frt_graph_executable(h.cast(), 1))),
        call!("frt_graph_bind g", bad, h => Status(frt_graph_bind(h.cast(), c"p".as_ptr(), buffer))),
        call!("frt_graph_bind buf", bad, h => Status(frt_graph_bind(graph, c"p".as_ptr(), h.cast()))),
        call!("frt_graph_replay", bad, h => Status(frt_graph_replay(h.cast(), 1, 0))),
        call!("frt_graph_has_variant", Zero, h => { assert_eq!(frt_graph_has_variant(h.cast(), 1), 0); Zero }),
        call!("frt_graph_evict", bad, h => Status(frt_graph_evict(h.cast(), 1))),
        call!("frt_graph_evict_lru", bad, h => Status(frt_graph_evict_lru(h.cast()))),
        call!("frt_graph_variant_count", Zero, h => { assert_eq!(frt_graph_variant_count(h.cast()), 0); Zero }),
        call!("frt_plan_create", Null, h => null(frt_plan_create(h.cast()))),
        call!("frt_plan_destroy", Nothing, h => { frt_plan_destroy(h.cast()); Nothing }),
        call!("frt_plan_add p", bad, h => Status(frt_plan_add(h.cast(), graph, 1, 0))),
        call!("frt_plan_add g", bad, h => Status(frt_plan_add(plan, h.cast(), 1, 0))),
        call!("frt_plan_after", bad, h => Status(frt_plan_after(h.cast(), 0, 1))),
        call!("frt_plan_validate", bad, h => Status(frt_plan_validate(h.cast()))),
        call!("frt_plan_execute", bad, h => Status(frt_plan_execute(h.cast(), 1))),
        call!("frt_plan_sync", bad, h => Status(frt_plan_sync(h.cast()))),
    ]
}

/// Handles that no function takes, with what the text says of them.
fn never_live(o: &Objects) -> Vec<*mut c_void> {
    let mut all: Vec<*mut c_void> = vec![
        without_provenance_mut(1),
        without_provenance_mut(8),
        without_provenance_mut(usize::MAX),
        without_provenance_mut(0xf7ff_ffff_ffff_fff0),
        record as *mut c_void,
        Box::leak(Box::new([0u64; 16])).as_mut_ptr().cast(),
    ];
    for handle in [o.ctx.cast::<c_void>(), o.graph.cast(), o.buffer.cast()] {
        for n in [1, 4, 8] {
            // Misaligned.
            all.push(handle.wrapping_byte_add(n));
        }
        // Never issued: another generation, a slot far away.
        all.push(handle.wrapping_byte_add(1 << 40));
        all.push(handle.wrapping_byte_add(16 * 1_000_000));
    }
    all
}

#[track_caller]
fn refused(name: &str, call: &Call, expected: Answer, handle: *mut c_void) {
    assert_eq!(call(handle), expected, "{name} with {handle:p}");
    let is_silent = handle.is_null() && expected == Nothing;
    if !is_silent {
        let function = name.split(' ').next().unwrap();
        assert!(
            last().starts_with(function),
            "{name} with {handle:p}: {}",
            last()
        );
    }
}

#[test]
fn null_fabricated_and_misaligned_handles_are_refused() {
    on_each_backend(|ctx| {
        let objects = Objects::new(ctx);
        for (name, call, expected) in calls(&objects) {
            refused(name, &call, expected, null_mut());
            for handle in never_live(&objects) {
                refused(name, &call, expected, handle);
            }
        }
        // All objects are as they were.
        // SAFETY: as for C.
        unsafe {
            capture_fill(ctx, objects.graph, 1, objects.buffer, 3);
            expect(frt_plan_add(objects.plan, objects.graph, 1, 0), 0);
            expect(frt_plan_execute(objects.plan, 1), FRT_OK);
            expect(frt_event_record(objects.event, 0), FRT_OK);
        }
        assert_eq!(read(ctx, objects.buffer), [3; 4]);
    });
}

#[test]
fn handles_of_another_kind_are_refused() {
    on_each_backend(|ctx| {
        let o = Objects::new(ctx);
        // SAFETY: as for C.
        let stream = unsafe { frt_stream_handle(ctx, 0) };
        let handles: [(&str, *mut c_void); 6] = [
            ("ctx", o.ctx.cast()),
            ("event", o.event.cast()),
            ("buffer", o.buffer.cast()),
            ("graph", o.graph.cast()),
            ("plan", o.plan.cast()),
            ("stream", stream),
        ];
        for (name, call, expected) in calls(&o) {
            // Which kind an argument takes: said, or the first word of the name.
            let (function, argument) = name.split_once(' ').unwrap_or((name, ""));
            let kind = match (function, argument) {
                (_, "ctx") => "ctx",
                (_, "ev") => "event",
                (_, "dst" | "src" | "buf") => "buffer",
                (_, "g") => "graph",
                (_, "p") => "plan",
                ("frt_ctx_event" | "frt_stream_sync" | "frt_stream_handle", _) => "ctx",
                ("frt_buffer_alloc" | "frt_buffer_alloc_host" | "frt_buffer_wrap", _) => "ctx",
                ("frt_graph_create" | "frt_plan_create", _) => "ctx",
                _ => function.split('_').nth(1).unwrap(),
            };
            assert!(handles.iter().any(|(k, _)| *k == kind), "{name}: {kind}");
            for (other, handle) in handles {
                if other != kind {
                    refused(name, &call, expected, handle);
                }
            }
        }
    });
}

#[test]
fn destroyed_handles_stay_refused_when_new_objects_take_their_place() {
    on_each_backend(|ctx| {
        let old = Objects::new(ctx);
        // SAFETY: as for C.
        unsafe {
            frt_event_destroy(old.event);
            expect(frt_buffer_free(old.buffer), FRT_OK);
            frt_graph_destroy(old.graph);
            frt_plan_destroy(old.plan);
        }
        let new = Objects::new(ctx);
        let dead = [
            old.event.cast(),
            old.buffer.cast(),
            old.graph.cast(),
            old.plan.cast(),
        ];
        for (name, call, expected) in calls(&new) {
            for handle in dead {
                refused(name, &call, expected, handle);
            }
        }
    });
}

#[test]
fn everything_of_a_destroyed_context_is_dead() {
    let (gone, ctx) = (cpu(), cpu());
    let old = Objects::new(gone);
    // SAFETY: as for C.
    let stream = unsafe { frt_stream_handle(gone, 0) };
    // SAFETY: as for C.
    unsafe { frt_ctx_destroy(gone) };
    let new = Objects::new(ctx);
    let dead = [
        old.ctx.cast(),
        old.event.cast(),
        old.buffer.cast(),
        old.graph.cast(),
        old.plan.cast(),
        stream,
    ];
    for (name, call, expected) in calls(&new) {
        for handle in dead {
            refused(name, &call, expected, handle);
        }
    }
    // SAFETY: as for C.
    unsafe { frt_ctx_destroy(ctx) };
}

#[test]
fn the_text_says_what_was_expected_and_what_came() {
    // SAFETY: as for C.
    unsafe {
        expect(frt_graph_replay(NO_GRAPH, 1, 0), FRT_ERR_INVALID);
        assert_eq!(
            last(),
            "frt_graph_replay: expected a handle (graph), got null"
        );
        expect(
            frt_graph_replay(without_provenance_mut(0x30), 1, 0),
            FRT_ERR_INVALID,
        );
        assert_eq!(
            last(),
            "frt_graph_replay: 0x30 is no live handle (graph): destroyed, of another kind or not ours"
        );
    }
}
