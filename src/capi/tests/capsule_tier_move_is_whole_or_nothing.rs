//! A tier move ends in the new tier or leaves the capsule as it was.

mod capsule_support;
use capsule_support::*;

#[test]
fn the_bytes_move_and_the_old_memory_is_freed_last() {
    let core = Core::default();
    let live = core.fake.buffer(b"abcdef");
    let capsule = core.snapshot(&[region(live, 0, 2), region(live, 2, 4)], &[], GPU, 0);
    assert_eq!(core.sync(0), OK);
    core.fake.calls();
    assert_eq!(core.tier_move(capsule, HOST, 0), OK);
    assert_eq!(
        core.fake.allocations(),
        [(1, b"ab".to_vec()), (1, b"cdef".to_vec())]
    );
    assert_eq!(
        core.fake.calls(),
        [
            "buffer_alloc",
            "buffer_copy",
            "buffer_alloc",
            "buffer_copy",
            "event",
            "event_record",
            "sync",
            "buffer_free",
            "buffer_free",
            "event_free"
        ]
    );
}

#[test]
fn the_same_tier_is_a_no_op() {
    let core = Core::default();
    let live = core.fake.buffer(b"ab");
    let capsule = core.snapshot(&[region(live, 0, 2)], &[], DISK, 0);
    core.fake.calls();
    assert_eq!(core.tier_move(capsule, DISK, 5), OK);
    assert_eq!(core.fake.calls(), [""; 0]);
    assert!(core.ready(capsule) > 0);
}

#[test]
fn a_tier_that_is_none_is_refused() {
    let core = Core::default();
    let capsule = core.snapshot(&[], &[], GPU, 0);
    for tier in [-1, 3] {
        assert_eq!(core.tier_move(capsule, tier, 0), ARG);
    }
}

#[test]
fn readiness_is_that_of_the_move() {
    let core = Core::default();
    let live = core.fake.buffer(b"ab");
    let capsule = core.snapshot(&[region(live, 0, 2)], &[], GPU, 0);
    assert_eq!(core.tier_move(capsule, HOST, 1), OK);
    assert_eq!(core.ready(capsule), OK);
    assert_eq!(core.fake.events(), 1);
}

#[test]
fn a_move_on_another_stream_waits_for_the_snapshot() {
    let core = Core::default();
    let live = core.fake.buffer(b"ab");
    let capsule = core.snapshot(&[region(live, 0, 2)], &[], GPU, 1);
    // Stream 1 has not run yet.
    assert_eq!(core.tier_move(capsule, HOST, 2), OK);
    assert_eq!(core.fake.allocations(), [(1, b"ab".to_vec())]);
}

#[test]
fn after_any_failure_the_capsule_is_whole_in_its_old_tier() {
    for function in [
        "buffer_alloc",
        "buffer_copy",
        "event",
        "event_record",
        "sync",
        "stream_wait",
    ] {
        let core = Core::default();
        let live = core.fake.buffer(b"abcdef");
        let capsule = core.snapshot(&[region(live, 0, 2), region(live, 2, 4)], &[], GPU, 1);
        core.fake.run(1);
        let before = core.fake.allocations();
        let views = core.regions(capsule).unwrap();
        core.fake
            .with(|state| state.broken = Some(Break::Function(function)));
        let expected = if function == "buffer_alloc" {
            NOMEM
        } else {
            BACKEND
        };
        assert_eq!(core.tier_move(capsule, HOST, 2), expected, "{function}");
        core.fake.with(|state| state.broken = None);
        assert_eq!(core.fake.allocations(), before, "{function}");
        assert_eq!(core.fake.events(), 1, "{function}");
        assert_eq!(core.regions(capsule).unwrap(), views, "{function}");
        core.fake.write(live, &[0; 6]);
        assert_eq!(core.restore(capsule, 0), OK);
        assert_eq!(core.sync(0), OK);
        assert_eq!(core.fake.read(live), b"abcdef");
        // The blob says the old tier.
        assert_eq!(core.serialize(capsule).unwrap()[16], 0);
        assert_eq!(core.tier_move(capsule, HOST, 2), OK);
    }
}
