//! A swap writes at most as many bytes as its buffer has.

mod capsule_support;
use capsule_support::*;
use flashrt_capi::cap_swap;
use std::ptr::{null, null_mut};

#[test]
fn the_bytes_land_at_the_start_when_the_stream_has_run() {
    let core = Core::default();
    let live = core.fake.buffer(b"......");
    let src = b"abc".to_vec();
    assert_eq!(core.swap(live, &src, 1), OK);
    assert_eq!(core.fake.read(live), b"......");
    assert_eq!(core.sync(1), OK);
    assert_eq!(core.fake.read(live), b"abc...");
}

#[test]
fn the_whole_buffer_is_the_most() {
    let core = Core::eager();
    let live = core.fake.buffer(b"...");
    assert_eq!(core.swap(live, b"abc", 0), OK);
    core.fake.calls();
    assert_eq!(core.swap(live, b"abcd", 0), ARG);
    assert_eq!(text(), "cap_swap: 4 bytes into a buffer of 3");
    // SAFETY: so many bytes are refused before one is read.
    let status = unsafe { cap_swap(core.ctx, live, b"a".as_ptr().cast(), usize::MAX, 0) };
    assert_eq!(status, ARG);
    assert_eq!(core.fake.calls(), ["buffer_bytes"; 2]);
    assert_eq!(core.fake.read(live), b"abc");
}

#[test]
fn null_and_unknown_buffers_and_no_bytes_are_told_apart() {
    let core = Core::eager();
    let live = core.fake.buffer(b"...");
    // SAFETY: nulls are refused.
    unsafe {
        assert_eq!(
            cap_swap(core.ctx, null_mut(), b"a".as_ptr().cast(), 1, 0),
            ARG
        );
        assert_eq!(text(), "cap_swap: `dst` is null");
        assert_eq!(cap_swap(core.ctx, live, null(), 1, 0), ARG);
        assert_eq!(text(), "cap_swap: `src` is null");
    }
    assert_eq!(core.swap(std::ptr::without_provenance_mut(8), b"a", 0), ARG);
    assert_eq!(core.swap(live, b"", 0), OK);
    core.fake
        .with(|state| state.broken = Some(Break::Function("buffer_upload")));
    assert_eq!(core.swap(live, b"a", 0), BACKEND);
}
