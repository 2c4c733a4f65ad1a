//! The exported functions as the library behind a foreign context: the conformance tests of `flashrt-exec`
//! run over our own C ABI, so that producer and consumer of it agree. What a foreign context cannot do,
//! recording above all, happens on the library's side, as its owner does it.

#[path = "../../exec/tests/conformance/suite.rs"]
#[allow(dead_code)] // tests of what only an own context can do
mod suite;

use flashrt_capi::*;
use flashrt_exec::{
    BackendKind, Context, Error, ForeignExec, ForeignTable, Graph, Slice, Space, StreamId,
};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ffi::{c_char, c_int, c_void, CString};
use suite::Step;

/// Makes a fresh context for one run of one test.
pub type Factory<'a> = &'a dyn Fn() -> Context;

/// What the owner of the library knows: each test runs on one thread.
#[derive(Default)]
struct Owner {
    /// The context that was made last.
    ctx: Cell<frt_ctx>,
    /// Device buffers of foreign contexts, by address.
    buffers: RefCell<HashMap<usize, frt_buffer>>,
    /// Graphs by name; a later one replaces an earlier one.
    graphs: RefCell<HashMap<String, frt_graph>>,
}

thread_local! {
    static OWNER: Owner = Owner::default();
}

/// Destroys the library's context, which must be the last thing that happens to it.
struct Anchor(frt_ctx);

// SAFETY: the context is idle by then, and may be destroyed by any thread.
unsafe impl Send for Anchor {}

impl Drop for Anchor {
    fn drop(&mut self) {
        // SAFETY: everything of the foreign context is gone.
        unsafe { frt_ctx_destroy(self.0) }
    }
}

/// `frt_buffer_alloc`, noting the handle.
unsafe extern "C" fn noting_alloc(
    ctx: *mut c_void,
    name: *const c_char,
    bytes: usize,
) -> *mut c_void {
    // SAFETY: the caller's arguments.
    let buffer = unsafe { frt_buffer_alloc(ctx.cast(), name, bytes) };
    // SAFETY: live, or null.
    let addr = unsafe { frt_buffer_dptr(buffer) } as usize;
    OWNER.with(|owner| owner.buffers.borrow_mut().insert(addr, buffer));
    buffer.cast()
}

fn address(symbol: &str) -> *mut c_void {
    macro_rules! find {
        ($($name:ident)*) => {
            match symbol {
                "frt_buffer_alloc" => noting_alloc as *mut c_void,
                $(stringify!($name) => $name as *mut c_void,)*
                _ => panic!("the library does not export {symbol}"),
            }
        };
    }
    find!(
        frt_ctx_event frt_event_destroy frt_event_record frt_stream_wait frt_buffer_dptr frt_buffer_bytes
        frt_buffer_copy frt_graph_replay frt_graph_has_variant frt_graph_evict frt_graph_variant_count
        frt_plan_create frt_plan_add frt_plan_sync frt_plan_destroy frt_ctx_stream frt_event_query
        frt_event_sync frt_stream_sync frt_buffer_upload frt_buffer_download frt_buffer_fill
        frt_buffer_free frt_ctx_backend frt_last_error
    )
}

/// A foreign context over a context of the library, which lacks `without`.
fn context_without(kind: c_int, without: &[&str]) -> Option<Context> {
    // SAFETY: takes numbers.
    let ctx = unsafe { frt_ctx_create_with(kind, 0) };
    if ctx.is_null() {
        return None;
    }
    OWNER.with(|owner| owner.ctx.set(ctx));
    let find = |symbol| match without.contains(&symbol) {
        true => std::ptr::null_mut(),
        false => address(symbol),
    };
    let exec = ForeignExec {
        // SAFETY: the exported functions are the ABI.
        table: unsafe { ForeignTable::from_symbols(find) },
        ctx: ctx.cast(),
        anchor: Box::new(Anchor(ctx)),
    };
    // SAFETY: the context lives until the anchor goes, and nobody else uses it at the same time.
    Some(unsafe { Context::foreign(exec) }.expect("a foreign context"))
}

/// A graph that the owner makes and the foreign context adopts.
pub fn new_graph(ctx: &Context, name: &str, max_variants: usize) -> Graph {
    let label = CString::new(name).expect("a name");
    OWNER.with(|owner| {
        // SAFETY: the newest context, which is `ctx`'s; the graph lives as long as that.
        unsafe {
            let graph = frt_graph_create(owner.ctx.get(), label.as_ptr(), max_variants);
            assert!(!graph.is_null());
            owner.graphs.borrow_mut().insert(name.into(), graph);
            ctx.adopt_graph(graph.cast(), name).expect("a graph")
        }
    })
}

/// Captures `steps` under `key`, through the C ABI.
pub fn record(graph: &Graph, key: u64, steps: &[Step]) {
    struct Work<'a> {
        ctx: frt_ctx,
        steps: &'a [Step],
    }
    fn at(slice: &Slice) -> (frt_buffer, usize) {
        let addr = slice.buffer().addr();
        let handle = OWNER.with(|owner| owner.buffers.borrow()[&addr]);
        (handle, slice.offset())
    }
    unsafe extern "C" fn callback(user: *mut c_void, _stream: *mut c_void) {
        // SAFETY: `user` is the work below, which outlives the capture; handles are live.
        unsafe {
            let Work { ctx, steps } = *user.cast::<Work<'_>>();
            for step in steps {
                let status = match step {
                    Step::Copy(dst, src) => {
                        let ((to, to_at), (from, from_at)) = (at(dst), at(src));
                        frt_buffer_copy(ctx, to, to_at, from, from_at, dst.bytes(), 0)
                    }
                    Step::Fill(dst, value) => {
                        let (to, to_at) = at(dst);
                        frt_buffer_fill(ctx, to, to_at, c_int::from(*value), dst.bytes(), 0)
                    }
                };
                assert_eq!(status, FRT_OK);
            }
        }
    }
    OWNER.with(|owner| {
        let handle = owner.graphs.borrow()[graph.name()];
        let ctx = owner.ctx.get();
        let mut work = Work { ctx, steps };
        let user = (&raw mut work).cast();
        // SAFETY: a live graph, and a callback that takes `work`.
        let status = unsafe { frt_graph_capture(handle, key, Some(callback), user) };
        assert_eq!(status, FRT_OK);
    });
}

fn on_each_backend(test: fn(Factory)) {
    for kind in [FRT_BACKEND_CPU, FRT_BACKEND_CUDA] {
        match context_without(kind, &[]) {
            Some(ctx) => {
                drop(ctx);
                test(&|| context_without(kind, &[]).expect("a context"));
            }
            None => assert_eq!(kind, FRT_BACKEND_CUDA, "no context on the CPU"),
        }
    }
}

macro_rules! conformance {
    ($($name:ident),* $(,)?) => {
        $(#[test] fn $name() { on_each_backend(suite::$name) })*
    };
}

conformance! {
    stream_0_exists_and_ids_count_up,
    buffers_are_zeroed_aligned_and_at_home,
    buffers_of_no_bytes_or_too_many_are_refused,
    windows_are_checked_without_overflow,
    copies_cross_all_spaces,
    many_copies_are_each_exact_at_any_length_and_alignment,
    many_copies_are_all_checked_before_the_first_is_submitted,
    windowed_copies_touch_nothing_else,
    empty_copies_succeed,
    bad_copies_are_refused,
    host_access_is_for_host_space_and_checked,
    capture_runs_nothing_and_replay_runs_it,
    graphs_hand_over_through_a_shared_buffer,
    streams_are_ordered_by_an_event,
    waiting_for_an_event_never_recorded_does_nothing,
    a_wait_keeps_the_mark_that_it_saw,
    polling_an_event_ends,
    more_work_than_a_queue_holds_still_runs_in_order,
    a_third_variant_evicts_the_least_recent_of_two,
    replacing_a_variant_evicts_nothing,
    eviction_answers_for_missing_keys,
    a_missing_variant_is_told_before_a_bad_stream,
    all_ones_is_a_key_like_any_other,
    an_evicted_variant_in_flight_runs_to_its_end,
    binding_never_redirects_captured_work,
    case_150_a_graph_owns_everything_it_touches,
    a_plan_chains_vision_encoder_action,
    a_plan_fans_out_and_in,
    a_plan_refuses_bad_nodes_and_edges,
    a_forward_edge_is_accepted_and_validate_refuses_it,
    a_plan_stops_at_the_first_missing_variant,
    an_empty_plan_succeeds,
}

#[test]
fn every_function_that_a_foreign_context_can_use_is_exported() {
    for symbol in [ForeignTable::REQUIRED, ForeignTable::OPTIONAL].concat() {
        assert!(!address(symbol).is_null());
    }
    let cpu = context_without(FRT_BACKEND_CPU, &[]).expect("a context");
    assert_eq!(cpu.backend(), BackendKind::Foreign);
    assert_eq!(cpu.isa(), "foreign cpu");
}

#[test]
fn the_published_functions_alone_can_tick() {
    let ctx = context_without(FRT_BACKEND_CPU, ForeignTable::OPTIONAL).expect("a context");
    let (s0, s1) = (StreamId(0), StreamId(1));
    // SAFETY: the newest context.
    let id = unsafe { frt_ctx_stream(OWNER.with(|o| o.ctx.get()), 0) };
    assert_eq!(id, 1);
    ctx.adopt_streams(2).expect("streams");
    let state = ctx.alloc("state", Space::Device, 8).expect("a buffer");
    let saved = ctx.alloc("saved", Space::Device, 8).expect("a buffer");
    let step = new_graph(&ctx, "step", 0);
    record(&step, 1, &[Step::Fill(state.all(), 7)]);
    let event = ctx.event().expect("an event");
    step.replay(1, s0).expect("a replay");
    ctx.record(&event, s0).expect("a mark");
    ctx.wait(s1, &event).expect("a wait");
    ctx.copy(&saved.all(), &state.all(), s1).expect("a copy");
    // By a plan, since there is no frt_stream_sync.
    ctx.synchronize(s1).expect("a plan that waits");
    // The CPU backend's device space is the process's memory, and its work is done.
    let mut bytes = [0; 8];
    // SAFETY: eight bytes of `saved`, which lives, and nothing is under way.
    unsafe { std::ptr::copy_nonoverlapping(saved.all().as_ptr(), bytes.as_mut_ptr(), 8) };
    assert_eq!(bytes, [7; 8]);
}

#[test]
fn the_library_says_why_and_the_error_carries_it() {
    let ctx = context_without(FRT_BACKEND_CPU, &[]).expect("a context");
    let graph = new_graph(&ctx, "empty", 0);
    let error = graph.replay(5, StreamId(0)).expect_err("no variant");
    let Error::Library {
        symbol,
        status,
        reason,
    } = &error
    else {
        panic!("not the library's word: {error}");
    };
    assert_eq!((*symbol, *status), ("frt_graph_replay", FRT_ERR_NO_VARIANT));
    assert!(
        reason.contains("graph \"empty\" has no variant for key 5"),
        "{reason}"
    );

    // Streams that the owner never made: adopted here, refused there.
    ctx.adopt_streams(4).expect("ids are only numbers");
    let error = ctx.synchronize(StreamId(3)).expect_err("no such stream");
    assert_eq!(error.code(), FRT_ERR_INVALID);
    assert!(
        error.to_string().contains("stream 3 does not exist"),
        "{error}"
    );
}

#[test]
fn objects_of_another_foreign_context_are_refused() {
    let make = || context_without(FRT_BACKEND_CPU, &[]).expect("a context");
    let (ctx, other) = (make(), make());
    let mine = ctx.alloc("mine", Space::Device, 4).expect("a buffer");
    let theirs = other.alloc("theirs", Space::Device, 4).expect("a buffer");
    let event = other.event().expect("an event");
    let graph = new_graph(&other, "theirs", 0);
    let s0 = StreamId(0);
    for result in [
        ctx.copy(&mine.all(), &theirs.all(), s0),
        ctx.fill(&theirs.all(), 1, s0),
        ctx.upload(&theirs.all(), &[0; 4]),
        ctx.record(&event, s0),
        ctx.plan().add(&graph, 1, s0).map(drop),
    ] {
        let error = result.expect_err("another context");
        assert!(matches!(error, Error::ForeignContext { .. }), "{error}");
    }
}

#[test]
fn a_model_ends_after_everything_that_was_made_of_it() {
    // Each handle kept alone keeps the library's context alive; the last one lets it go.
    let ctx = context_without(FRT_BACKEND_CPU, &[]).expect("a context");
    let raw = OWNER.with(|owner| owner.ctx.get());
    let buffer = ctx.alloc("buffer", Space::Device, 4).expect("a buffer");
    let event = ctx.event().expect("an event");
    // SAFETY: any pointer may be asked about; the library knows dead handles.
    let is_alive = || unsafe { frt_ctx_backend(raw) } == FRT_BACKEND_CPU;
    drop(ctx);
    assert!(is_alive());
    drop(buffer);
    assert!(is_alive());
    drop(event);
    assert!(!is_alive());
}
