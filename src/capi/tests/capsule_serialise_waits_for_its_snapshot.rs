//! A blob holds the bytes of its snapshot, however early it is asked for.

mod capsule_support;
use capsule_support::*;
use flashrt_capi::*;
use std::ptr::null_mut;

#[test]
fn a_snapshot_on_another_stream_is_waited_for() {
    let core = Core::default();
    let live = core.fake.buffer(b"state");
    let capsule = core.snapshot(&[region(live, 0, 5)], &[], GPU, 3);
    assert!(core.ready(capsule) > 0);
    core.fake.calls();
    let blob = core.serialize(capsule).unwrap();
    assert_eq!(blob[40..], *b"state");
    assert_eq!(
        core.fake.calls(),
        [
            "event_query",
            "sync",
            "event_query",
            "buffer_download",
            "sync"
        ]
    );
}

#[test]
fn a_snapshot_that_is_ready_is_not_waited_for() {
    let core = Core::default();
    let live = core.fake.buffer(b"state");
    let capsule = core.snapshot(&[region(live, 0, 5)], &[], GPU, 3);
    core.fake.run(3);
    core.fake.calls();
    assert_eq!(core.serialize(capsule).unwrap()[40..], *b"state");
    assert_eq!(
        core.fake.calls(),
        ["event_query", "buffer_download", "sync"]
    );
}

#[test]
fn a_size_query_asks_the_backend_nothing() {
    let core = Core::default();
    let live = core.fake.buffer(b"state");
    let capsule = core.snapshot(&[region(live, 0, 5)], b"m", GPU, 3);
    core.fake.calls();
    assert_eq!(core.size(capsule), Ok(46));
    assert_eq!(core.fake.calls(), [""; 0]);
}

#[test]
fn too_little_room_is_refused_and_nothing_is_written() {
    let core = Core::default();
    let live = core.fake.buffer(b"state");
    let capsule = core.snapshot(&[region(live, 0, 5)], &[], GPU, 0);
    core.fake.calls();
    let mut out = [0x77u8; 45];
    for room in [0, 1, 32, 44] {
        let mut len = room;
        // SAFETY: `out` has room for more.
        let status = unsafe { cap_serialize(core.ctx, capsule, out.as_mut_ptr().cast(), &mut len) };
        assert_eq!((status, len), (ARG, room));
        assert_eq!(
            text(),
            format!("cap_serialize: 45 bytes into room for {room}")
        );
    }
    assert_eq!(out, [0x77; 45]);
    assert_eq!(core.fake.calls(), [""; 0]);
    // SAFETY: the null length is refused.
    let status = unsafe { cap_serialize(core.ctx, capsule, null_mut(), null_mut()) };
    assert_eq!(status, ARG);
}

#[test]
fn a_snapshot_that_never_ends_is_refused() {
    let core = Core::default();
    extern "C" fn pending(_: *mut std::ffi::c_void, _: cap_event) -> i32 {
        1
    }
    let table = cap_backend {
        event_query: Some(pending),
        ..core.fake.table()
    };
    let live = core.fake.buffer(b"state");
    let regions = [region(live, 0, 5)];
    let boundary = cap_boundary {
        regions: regions.as_ptr(),
        n_regions: 1,
        meta: std::ptr::null(),
        meta_len: 0,
    };
    let mut out = [0u8; 45];
    let mut len = 45;
    // SAFETY: the table is whole, the fake outlives the context, and the lengths are right.
    unsafe {
        let ctx = cap_ctx_create(&table);
        let capsule = cap_snapshot(ctx, &boundary, GPU, 6);
        assert_eq!(cap_capsule_ready(ctx, capsule), 1);
        let status = cap_serialize(ctx, capsule, out.as_mut_ptr().cast(), &mut len);
        assert_eq!(status, BACKEND);
        assert_eq!(
            text(),
            "cap_serialize: the snapshot is pending although its stream 6 was waited for"
        );
        cap_ctx_destroy(ctx);
    }
    assert_eq!(out, [0; 45]);
}

#[test]
fn a_failed_download_leaves_no_header_behind() {
    let core = Core::default();
    let live = core.fake.buffer(b"state");
    let capsule = core.snapshot(&[region(live, 0, 5)], &[], GPU, 0);
    for function in ["buffer_download", "sync", "event_query"] {
        core.fake
            .with(|state| state.broken = Some(Break::Function(function)));
        let mut out = [0u8; 45];
        let mut len = 45;
        // SAFETY: `out` has the room.
        let status = unsafe { cap_serialize(core.ctx, capsule, out.as_mut_ptr().cast(), &mut len) };
        assert_eq!(status, BACKEND, "{function}");
        assert_eq!(out[..40], [0; 40]);
    }
}
