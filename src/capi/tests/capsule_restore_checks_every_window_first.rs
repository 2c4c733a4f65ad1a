//! A restore checks owner, fingerprint and every window before the first byte moves.

mod capsule_support;
use capsule_support::*;
use std::ptr::null_mut;

struct Set {
    core: Core,
    a: flashrt_capi::cap_buffer,
    b: flashrt_capi::cap_buffer,
    capsule: flashrt_capi::cap_capsule,
}

/// A capsule of two windows, whose buffers have other bytes since.
fn set() -> Set {
    let core = Core::default();
    let a = core.fake.buffer(&[1, 2, 3, 4]);
    let b = core.fake.buffer(&[5, 6, 7, 8]);
    let capsule = core.snapshot(&[region(a, 1, 2), region(b, 0, 4)], &[], GPU, 0);
    assert_eq!(core.sync(0), OK);
    core.fake.write(a, &[0; 4]);
    core.fake.write(b, &[0; 4]);
    core.fake.calls();
    Set {
        core,
        a,
        b,
        capsule,
    }
}

impl Set {
    fn nothing_moved(&self) {
        let calls = self.core.fake.calls();
        assert!(!calls.contains(&"buffer_copy"), "{calls:?}");
        assert_eq!(self.core.sync(0), OK);
    }
}

#[test]
fn the_windows_get_their_bytes_back_and_the_rest_stays() {
    let set = set();
    assert_eq!(set.core.restore(set.capsule, 0), OK);
    assert_eq!(
        set.core.fake.read(set.a),
        [0; 4],
        "before the stream has run"
    );
    assert_eq!(set.core.sync(0), OK);
    assert_eq!(set.core.fake.read(set.a), [0, 2, 3, 0]);
    assert_eq!(set.core.fake.read(set.b), [5, 6, 7, 8]);
}

#[test]
fn a_restore_may_be_repeated_from_every_tier() {
    let set = set();
    for tier in [HOST, DISK, GPU, HOST] {
        set.core.fake.write(set.b, &[0; 4]);
        assert_eq!(set.core.tier_move(set.capsule, tier, 0), OK);
        assert_eq!(set.core.restore(set.capsule, 3), OK);
        assert_eq!(set.core.sync(3), OK);
        assert_eq!(set.core.fake.read(set.b), [5, 6, 7, 8]);
    }
}

#[test]
fn an_origin_that_has_shrunk_since_is_refused() {
    let set = set();
    set.core.fake.write(set.b, &[0; 3]);
    assert_eq!(set.core.restore(set.capsule, 0), ARG);
    assert_eq!(
        text(),
        "cap_restore: region 1: 4 bytes at 0 of a buffer of 3"
    );
    set.nothing_moved();
    assert_eq!(set.core.fake.read(set.a), [0; 4]);
}

#[test]
fn another_fingerprint_is_refused_for_both() {
    let set = set();
    set.core.fake.with(|state| state.fingerprint = 1);
    let windows = [region(set.a, 0, 2), region(set.b, 0, 4)];
    assert_eq!(set.core.restore(set.capsule, 0), FINGERPRINT);
    assert_eq!(set.core.restore_into(set.capsule, &windows, 0), FINGERPRINT);
    assert_eq!(
        text(),
        "cap_restore_into: made under fingerprint 0x1122334455667788, the backend has 0x0000000000000001"
    );
    set.nothing_moved();
}

#[test]
fn a_loaded_capsule_has_no_origin_to_go_back_to() {
    let set = set();
    let blob = set.core.serialize(set.capsule).unwrap();
    let loaded = set.core.load(&blob);
    set.core.fake.calls();
    assert_eq!(set.core.restore(loaded, 0), ARG);
    assert_eq!(
        text(),
        "cap_restore: a loaded capsule has no origin: cap_restore_into names the windows"
    );
    set.nothing_moved();
}

#[test]
fn a_branch_gets_the_bytes_into_windows_of_its_own() {
    let set = set();
    let branch = set.core.fake.buffer(&[9; 8]);
    // The first window is longer than the region: what is behind it stays.
    let windows = [region(branch, 5, 3), region(branch, 1, 4)];
    assert_eq!(set.core.restore_into(set.capsule, &windows, 0), OK);
    assert_eq!(set.core.sync(0), OK);
    assert_eq!(set.core.fake.read(branch), [9, 5, 6, 7, 8, 2, 3, 9]);
}

#[test]
fn windows_of_another_number_are_refused() {
    let set = set();
    let one = [region(set.b, 0, 4)];
    assert_eq!(set.core.restore_into(set.capsule, &one, 0), ARG);
    assert_eq!(text(), "cap_restore_into: 1 windows for 2 regions");
    let three = [region(set.b, 0, 4); 3];
    assert_eq!(set.core.restore_into(set.capsule, &three, 0), ARG);
    set.nothing_moved();
}

#[test]
fn a_window_that_is_too_small_is_refused() {
    let set = set();
    let windows = [region(set.a, 0, 4), region(set.b, 0, 3)];
    assert_eq!(set.core.restore_into(set.capsule, &windows, 0), ARG);
    assert_eq!(
        text(),
        "cap_restore_into: region 1: 4 bytes for a window of 3"
    );
    set.nothing_moved();
}

#[test]
fn a_window_outside_its_buffer_is_refused_before_the_first_copy() {
    let set = set();
    for off in [1, 4, 5, usize::MAX, usize::MAX - 3, usize::MAX / 2] {
        let windows = [region(set.a, 0, 2), region(set.b, off, 4)];
        assert_eq!(
            set.core.restore_into(set.capsule, &windows, 0),
            ARG,
            "{off}"
        );
        let expected = format!("cap_restore_into: region 1: 4 bytes at {off} of a buffer of 4");
        assert_eq!(text(), expected);
        set.nothing_moved();
    }
    let windows = [region(set.a, 0, 2), region(null_mut(), 0, 4)];
    assert_eq!(set.core.restore_into(set.capsule, &windows, 0), ARG);
    assert_eq!(text(), "cap_restore_into: region 1: its buffer is null");
    set.nothing_moved();
}

#[test]
fn a_restore_on_another_stream_waits_for_the_snapshot() {
    let core = Core::default();
    let live = core.fake.buffer(b"old");
    let capsule = core.snapshot(&[region(live, 0, 3)], &[], HOST, 1);
    let branch = core.fake.buffer(b"...");
    // The snapshot's stream has not run: without the wait stream 2 would copy nothing yet.
    assert_eq!(core.restore_into(capsule, &[region(branch, 0, 3)], 2), OK);
    assert_eq!(core.sync(2), OK);
    assert_eq!(core.fake.read(branch), b"old");
}

#[test]
fn a_backend_that_fails_midway_is_told() {
    let set = set();
    set.core
        .fake
        .with(|state| state.broken = Some(Break::Function("buffer_copy")));
    assert_eq!(set.core.restore(set.capsule, 0), BACKEND);
    assert_eq!(
        text(),
        "cap_restore: `buffer_copy` of the backend answered -7"
    );
}
