//! fire, swap, sync, ready and, from the second time on, a tick take nothing from the heap. One test, alone in its binary.

mod capsule_support;
use capsule_support::*;
use flashrt_capi::*;
use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::ptr::{null, null_mut, without_provenance_mut};

#[path = "../../../test/support/heap.rs"]
mod heap;

/// Counts calls and does nothing else: no memory, no lock.
struct Counts(Cell<u64>);

fn count(this: *mut c_void) {
    // SAFETY: `this` is the `Counts` of the test below.
    let counts = unsafe { &*this.cast::<Counts>() };
    counts.0.set(counts.0.get() + 1);
}

extern "C" fn replay(this: *mut c_void, _: cap_graph, _: u64, _: c_int) -> c_int {
    count(this);
    0
}
extern "C" fn has(this: *mut c_void, _: cap_graph, _: u64) -> c_int {
    count(this);
    1
}
extern "C" fn bytes(this: *mut c_void, _: cap_buffer) -> usize {
    count(this);
    64
}
extern "C" fn upload(
    this: *mut c_void,
    _: cap_buffer,
    _: usize,
    _: *const c_void,
    _: usize,
    _: c_int,
) -> c_int {
    count(this);
    0
}
extern "C" fn sync(this: *mut c_void, _: c_int) -> c_int {
    count(this);
    0
}
extern "C" fn event(this: *mut c_void) -> cap_event {
    count(this);
    without_provenance_mut(8)
}
extern "C" fn on_event(this: *mut c_void, _: cap_event) -> c_int {
    count(this);
    0
}
extern "C" fn record(this: *mut c_void, _: cap_event, _: c_int) -> c_int {
    count(this);
    0
}
extern "C" fn wait(this: *mut c_void, _: c_int, _: cap_event) -> c_int {
    count(this);
    0
}
extern "C" fn event_free(this: *mut c_void, _: cap_event) {
    count(this);
}

#[test]
fn hot_verbs_allocate_nothing() {
    let fake = Fake::default();
    let counts = Counts(Cell::new(0));
    let table = cap_backend {
        self_: (&raw const counts).cast_mut().cast(),
        graph_replay: Some(replay),
        graph_has: Some(has),
        buffer_bytes: Some(bytes),
        buffer_upload: Some(upload),
        sync: Some(sync),
        event: Some(event),
        event_query: Some(on_event),
        event_record: Some(record),
        stream_wait: Some(wait),
        event_free: Some(event_free),
        fingerprint: Some(fingerprint),
        ..fake.table()
    };
    extern "C" fn fingerprint(_: *mut c_void) -> u64 {
        1
    }
    let graph = without_provenance_mut(8);
    let stages = [stage(graph, 1, 0), stage(graph, 1, 1), stage(graph, 1, 0)];
    let deps = [[1, 0], [2, 1]];
    let schedule = cap_schedule {
        stages: stages.as_ptr(),
        n_stages: 3,
        deps: deps.as_ptr(),
        n_deps: 2,
    };
    let boundary = cap_boundary {
        regions: null(),
        n_regions: 0,
        meta: null(),
        meta_len: 0,
    };
    let src = [0u8; 64];
    let mut failed = 0;
    // SAFETY: the table is whole, its `self` outlives the context, and every argument is live.
    unsafe {
        let ctx = cap_ctx_create(&table);
        let capsule = cap_snapshot(ctx, &boundary, HOST, 0);
        assert!(!capsule.is_null(), "{}", text());
        let mut round = || {
            assert_eq!(cap_fire(ctx, &stages[0]), OK);
            assert_eq!(
                cap_swap(ctx, without_provenance_mut(8), src.as_ptr().cast(), 64, 1),
                OK
            );
            assert_eq!(cap_sync(ctx, 1), OK);
            assert_eq!(cap_capsule_ready(ctx, capsule), OK);
            assert_eq!(cap_drive_tick(ctx, &schedule, 0, &mut failed), OK);
            assert_eq!(cap_drive_tick(ctx, &schedule, 0, null_mut()), OK);
        };
        round();
        let calls = counts.0.get();
        heap::count_this_thread();
        let before = (heap::taken(), heap::freed());
        for _ in 0..1000 {
            round();
        }
        assert_eq!((heap::taken(), heap::freed()), before);
        // It was all real: the calls of a round are those of the first.
        assert_eq!(
            counts.0.get() - calls,
            1000 * (2 + 2 + 1 + 1 + 2 * (3 + 2 * 3 + 2))
        );
        cap_ctx_destroy(ctx);
    }
}
