//! A snapshot checks its boundary before it takes anything, and frees all of it when it fails.

mod capsule_support;
use capsule_support::*;
use flashrt_capi::*;
use std::ptr::{null, null_mut};

fn refused(core: &Core, boundary: &cap_boundary, tier: i32) -> String {
    core.fake.calls();
    // SAFETY: the boundary's arrays are there, or it must be refused.
    let capsule = unsafe { cap_snapshot(core.ctx, boundary, tier, 0) };
    assert!(capsule.is_null());
    let calls = core.fake.calls();
    assert!(
        calls.iter().all(|&call| call == "buffer_bytes"),
        "{calls:?}"
    );
    text()
}

fn boundary(regions: &[cap_region]) -> cap_boundary {
    cap_boundary {
        regions: regions.as_ptr(),
        n_regions: regions.len() as i32,
        meta: null(),
        meta_len: 0,
    }
}

#[test]
fn the_bytes_are_those_at_the_place_in_the_stream() {
    let core = Core::default();
    let live = core.fake.buffer(b"now");
    let capsule = core.snapshot(&[region(live, 0, 3)], b"at 7", GPU, 2);
    assert!(core.ready(capsule) > 0);
    assert_eq!(core.fake.allocations(), [(0, vec![0xcc; 3])]);
    core.fake.run(2);
    assert_eq!(core.ready(capsule), OK);
    assert_eq!(core.fake.allocations(), [(0, b"now".to_vec())]);
    assert_eq!(core.meta(capsule).unwrap(), b"at 7");
}

#[test]
fn a_host_capsule_lies_in_host_memory() {
    let core = Core::default();
    let live = core.fake.buffer(b"now");
    for tier in [HOST, DISK] {
        let capsule = core.snapshot(&[region(live, 1, 2)], &[], tier, 0);
        assert_eq!(core.sync(0), OK);
        assert_eq!(core.fake.allocations(), [(1, b"ow".to_vec())]);
        core.discard(capsule);
    }
}

#[test]
fn the_meta_is_a_copy() {
    let core = Core::default();
    let mut meta = vec![1, 2, 3];
    let capsule = core.snapshot(&[], &meta, HOST, 0);
    meta.fill(9);
    assert_eq!(core.meta(capsule).unwrap(), [1, 2, 3]);
}

#[test]
fn readiness_is_not_touched_by_a_restore() {
    let core = Core::default();
    let live = core.fake.buffer(b"now");
    let capsule = core.snapshot(&[region(live, 0, 3)], &[], GPU, 0);
    core.fake.run(0);
    assert_eq!(core.restore(capsule, 0), OK);
    assert_eq!(core.ready(capsule), OK);
    core.fake
        .with(|state| state.broken = Some(Break::Function("event_query")));
    assert_eq!(core.ready(capsule), BACKEND);
}

#[test]
fn a_window_outside_its_buffer_is_refused() {
    let core = Core::default();
    let live = core.fake.buffer(&[0; 8]);
    for (off, bytes) in [(0, 9), (8, 1), (9, 0), (1, usize::MAX), (usize::MAX, 1)] {
        let regions = [region(live, 0, 8), region(live, off, bytes)];
        assert_eq!(
            refused(&core, &boundary(&regions), HOST),
            format!("cap_snapshot: region 1: {bytes} bytes at {off} of a buffer of 8")
        );
    }
    let regions = [region(null_mut(), 0, 0)];
    assert_eq!(
        refused(&core, &boundary(&regions), HOST),
        "cap_snapshot: region 0: its buffer is null"
    );
}

#[test]
fn arrays_that_are_not_there_are_refused() {
    let core = Core::default();
    let none = cap_boundary {
        n_regions: 1,
        ..boundary(&[])
    };
    let none = cap_boundary {
        regions: null(),
        ..none
    };
    assert_eq!(
        refused(&core, &none, HOST),
        "cap_snapshot: `regions` is null, `n_regions` is 1"
    );
    let negative = cap_boundary {
        n_regions: -1,
        ..boundary(&[])
    };
    assert_eq!(
        refused(&core, &negative, HOST),
        "cap_snapshot: `n_regions` is -1, expected 0 or more"
    );
    let meta = cap_boundary {
        meta_len: 1,
        ..boundary(&[])
    };
    assert_eq!(
        refused(&core, &meta, HOST),
        "cap_snapshot: `meta` is 0x0 with `meta_len` 1"
    );
    let endless = cap_boundary {
        meta: (&raw const meta).cast(),
        meta_len: usize::MAX,
        ..boundary(&[])
    };
    assert!(refused(&core, &endless, HOST).contains("`meta_len` 18446744073709551615"));
}

#[test]
fn a_tier_that_is_none_is_refused() {
    let core = Core::default();
    for tier in [-1, 3, i32::MAX] {
        assert_eq!(
            refused(&core, &boundary(&[]), tier),
            format!("cap_snapshot: tier {tier}, expected 0 to 2")
        );
    }
}

#[test]
fn regions_that_no_memory_could_hold_are_refused_before_anything_is_taken() {
    // A backend that says it has a huge buffer.
    let core = Core::default();
    unsafe extern "C" fn huge(_: *mut std::ffi::c_void, _: cap_buffer) -> usize {
        usize::MAX
    }
    let table = cap_backend {
        buffer_bytes: Some(huge),
        ..core.fake.table()
    };
    // SAFETY: the table is whole, and the fake outlives the context.
    let ctx = unsafe { cap_ctx_create(&table) };
    let live = core.fake.buffer(&[0]);
    let half = usize::MAX / 4 + 1;
    for regions in [
        vec![region(live, 0, usize::MAX)],
        vec![region(live, 0, half), region(live, 0, half)],
        vec![region(live, 0, half); 4],
    ] {
        core.fake.calls();
        // SAFETY: the boundary is there.
        let capsule = unsafe { cap_snapshot(ctx, &boundary(&regions), HOST, 0) };
        assert!(capsule.is_null());
        assert_eq!(core.fake.calls(), [""; 0]);
        assert_eq!(
            text(),
            "cap_snapshot: the regions are longer together than memory can be"
        );
    }
    // SAFETY: one thread uses it.
    unsafe { cap_ctx_destroy(ctx) };
}

#[test]
fn copies_are_over_before_the_memory_of_a_failed_snapshot_goes() {
    let core = Core::default();
    let live = core.fake.buffer(b"now");
    core.fake
        .with(|state| state.broken = Some(Break::Function("event")));
    core.fake.calls();
    assert!(core
        .snapshot(&[region(live, 0, 3); 2], &[], HOST, 4)
        .is_null());
    assert_eq!(text(), "cap_snapshot: `event` of the backend gave null");
    let calls = core.fake.calls();
    let place = |name| calls.iter().position(|&call| call == name);
    assert!(place("sync") < place("buffer_free"), "{calls:?}");
    // The queue of the fake refers to freed buffers otherwise, which is a fault.
    core.fake.run(4);
}
