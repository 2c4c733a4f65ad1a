//! Null, dead, foreign and misaligned arguments are a status and a text.

mod capsule_support;
use capsule_support::*;
use flashrt_capi::*;
use std::ptr::{null, null_mut, without_provenance_mut};

/// Status of every verb that takes a capsule.
fn verbs(ctx: cap_ctx, capsule: cap_capsule) -> Vec<i32> {
    let (mut n, mut len, mut meta) = (0, 0, null());
    let window = region(null_mut(), 0, 0);
    // SAFETY: whatever the handles are, the other arguments are right.
    unsafe {
        vec![
            cap_capsule_ready(ctx, capsule),
            cap_restore(ctx, capsule, 0),
            cap_restore_into(ctx, capsule, &window, 0, 0),
            cap_regions(ctx, capsule, null_mut(), &mut n),
            cap_capsule_meta(ctx, capsule, &mut meta, &mut len),
            cap_tier_move(ctx, capsule, HOST, 0),
            cap_serialize(ctx, capsule, null_mut(), &mut len),
        ]
    }
}

#[test]
fn a_live_capsule_of_the_context_is_taken_by_all() {
    let core = Core::default();
    let capsule = core.snapshot(&[], &[], HOST, 0);
    assert_eq!(verbs(core.ctx, capsule)[1..], [OK; 6]);
}

#[test]
fn a_capsule_of_another_context_is_refused_and_stays() {
    let (core, other) = (Core::default(), Core::default());
    let capsule = other.snapshot(&[], b"m", HOST, 0);
    assert_eq!(verbs(core.ctx, capsule), [ARG; 7]);
    assert_eq!(
        text(),
        "cap_serialize: the capsule belongs to another context"
    );
    core.discard(capsule);
    assert_eq!(other.meta(capsule).unwrap(), b"m");
}

#[test]
fn a_dropped_capsule_is_refused_for_ever() {
    let core = Core::default();
    let live = core.fake.buffer(b"x");
    let capsule = core.snapshot(&[region(live, 0, 1)], &[], HOST, 0);
    assert_eq!(core.sync(0), OK);
    core.discard(capsule);
    assert_eq!(core.fake.allocations(), []);
    assert_eq!(verbs(core.ctx, capsule), [ARG; 7]);
    assert!(text().starts_with("cap_serialize: 0x"), "{}", text());
    // Others take its place; a second drop is nothing.
    for _ in 0..1000 {
        let next = core.snapshot(&[], &[], HOST, 0);
        assert_ne!(next, capsule);
        core.discard(capsule);
        assert_eq!(core.size(next), Ok(32));
        core.discard(next);
    }
}

#[test]
fn null_and_made_up_handles_are_refused() {
    let core = Core::default();
    let capsule = core.snapshot(&[], &[], HOST, 0);
    let mut strange = vec![0, 1, 8, 0x1000, usize::MAX, core.ctx.addr()];
    strange.extend((0..64).map(|bit| capsule.addr() ^ 1 << bit));
    for n in strange {
        assert_eq!(
            verbs(core.ctx, without_provenance_mut(n)),
            [ARG; 7],
            "{n:#x}"
        );
        core.discard(without_provenance_mut(n));
    }
    let local = 0u64;
    for n in [0, 8, capsule.addr(), (&raw const local).addr()] {
        let ctx = without_provenance_mut(n);
        assert_eq!(verbs(ctx, capsule), [ARG; 7], "{n:#x}");
        let stage = stage(null_mut(), 0, 0);
        // SAFETY: the other arguments are right.
        unsafe {
            assert!(cap_snapshot(ctx, null(), HOST, 0).is_null());
            assert!(cap_load(ctx, b"x".as_ptr().cast(), 1).is_null());
            assert_eq!(cap_fire(ctx, &stage), ARG);
            assert_eq!(cap_drive_tick(ctx, null(), 0, null_mut()), ARG);
            assert_eq!(cap_swap(ctx, null_mut(), null(), 0, 0), ARG);
            assert_eq!(cap_sync(ctx, 0), ARG);
            assert_eq!(cap_ctx_fingerprint(ctx), 0);
            cap_ctx_destroy(ctx);
        }
    }
    assert_eq!(core.size(capsule), Ok(32));
}

#[test]
fn misaligned_arguments_are_refused_before_they_are_read() {
    let core = Core::default();
    let capsule = core.snapshot(&[], &[], HOST, 0);
    let room = [0u64; 16];
    let odd = room.as_ptr().cast::<u8>().wrapping_add(1).cast_mut();
    let mut n = 0;
    let boundary = |regions| cap_boundary {
        regions,
        n_regions: 1,
        meta: null(),
        meta_len: 0,
    };
    let schedule = cap_schedule {
        stages: null(),
        n_stages: 0,
        deps: null(),
        n_deps: 0,
    };
    // SAFETY: the misaligned ones are refused.
    unsafe {
        assert!(cap_snapshot(core.ctx, odd.cast(), HOST, 0).is_null());
        assert_eq!(
            text(),
            format!("cap_snapshot: `boundary` is {odd:p}, expected a multiple of 8")
        );
        assert!(cap_snapshot(core.ctx, &boundary(odd.cast()), HOST, 0).is_null());
        assert_eq!(cap_restore_into(core.ctx, capsule, odd.cast(), 0, 0), ARG);
        assert_eq!(cap_regions(core.ctx, capsule, odd.cast(), &mut n), ARG);
        assert_eq!(cap_regions(core.ctx, capsule, null_mut(), odd.cast()), ARG);
        assert_eq!(
            cap_serialize(core.ctx, capsule, null_mut(), odd.cast()),
            ARG
        );
        let mut meta = null();
        assert_eq!(
            cap_capsule_meta(core.ctx, capsule, odd.cast(), odd.cast()),
            ARG
        );
        assert_eq!(
            cap_capsule_meta(core.ctx, capsule, &mut meta, odd.cast()),
            ARG
        );
        assert_eq!(cap_fire(core.ctx, odd.cast()), ARG);
        assert_eq!(cap_drive_tick(core.ctx, odd.cast(), 0, null_mut()), ARG);
        assert_eq!(cap_drive_tick(core.ctx, &schedule, 0, odd.cast()), ARG);
        let stages = cap_schedule {
            stages: odd.cast(),
            n_stages: 1,
            ..schedule
        };
        assert_eq!(cap_drive_tick(core.ctx, &stages, 0, null_mut()), ARG);
        let deps = cap_schedule {
            deps: odd.cast(),
            n_deps: 1,
            ..schedule
        };
        assert_eq!(cap_drive_tick(core.ctx, &deps, 0, null_mut()), ARG);
    }
    assert_eq!(room, [0; 16]);
}

#[test]
fn null_out_arguments_are_refused() {
    let core = Core::default();
    let capsule = core.snapshot(&[], &[], HOST, 0);
    let (mut meta, mut len) = (null(), 0);
    // SAFETY: nulls are refused.
    unsafe {
        assert_eq!(cap_regions(core.ctx, capsule, null_mut(), null_mut()), ARG);
        assert_eq!(
            cap_serialize(core.ctx, capsule, null_mut(), null_mut()),
            ARG
        );
        assert_eq!(
            cap_capsule_meta(core.ctx, capsule, null_mut(), &mut len),
            ARG
        );
        assert_eq!(
            cap_capsule_meta(core.ctx, capsule, &mut meta, null_mut()),
            ARG
        );
        assert_eq!(cap_restore_into(core.ctx, capsule, null(), 0, 0), ARG);
        assert_eq!(cap_fire(core.ctx, null()), ARG);
        assert!(cap_snapshot(core.ctx, null(), HOST, 0).is_null());
    }
    assert_eq!(text(), "cap_snapshot: `boundary` is null");
}

#[test]
fn views_are_written_as_far_as_there_is_room() {
    let core = Core::eager();
    let live = core.fake.buffer(b"abc");
    let regions = [region(live, 0, 1), region(live, 3, 0), region(live, 1, 2)];
    let capsule = core.snapshot(&regions, &[], HOST, 0);
    let unset = cap_region_view {
        ptr: without_provenance_mut(7),
        bytes: 7,
    };
    for room in 0..5 {
        let mut views = [unset; 4];
        let mut n = room;
        // SAFETY: there is room for 4 views.
        let status = unsafe { cap_regions(core.ctx, capsule, views.as_mut_ptr(), &mut n) };
        assert_eq!((status, n), (OK, 3));
        let written = views.iter().filter(|view| view.bytes != 7).count();
        assert_eq!(written, room.min(3) as usize);
        if room >= 3 {
            // SAFETY: the view is that of a live host capsule.
            let bytes = unsafe { std::slice::from_raw_parts(views[2].ptr.cast::<u8>(), 2) };
            assert_eq!(bytes, b"bc");
            assert!(views[1].ptr.is_null());
        }
    }
    let mut views = [unset; 4];
    let mut n = -1;
    // SAFETY: as above.
    let status = unsafe { cap_regions(core.ctx, capsule, views.as_mut_ptr(), &mut n) };
    assert_eq!((status, n), (ARG, -1));
    core.fake
        .with(|state| state.broken = Some(Break::Function("buffer_ptr")));
    n = 4;
    // SAFETY: as above.
    let status = unsafe { cap_regions(core.ctx, capsule, views.as_mut_ptr(), &mut n) };
    assert_eq!((status, n), (BACKEND, 4));
    assert!(views.iter().all(|view| view.bytes == 7));
}

#[test]
fn capsules_that_are_left_go_with_their_context() {
    let fake = Fake::default();
    let live = fake.buffer(b"x");
    let core = Core::over(fake);
    let capsule = core.snapshot(&[region(live, 0, 1)], &[], HOST, 0);
    let copy = core.load(&core.serialize(capsule).unwrap());
    assert!(!copy.is_null());
    let dropped = core.snapshot(&[region(live, 0, 1)], &[], HOST, 0);
    core.discard(dropped);
    // SAFETY: one thread uses it.
    unsafe { cap_ctx_destroy(core.ctx) };
    assert_eq!(core.fake.allocations(), []);
    assert_eq!(core.fake.events(), 0);
    assert_eq!(verbs(core.ctx, capsule), [ARG; 7]);
    core.discard(capsule);
}
