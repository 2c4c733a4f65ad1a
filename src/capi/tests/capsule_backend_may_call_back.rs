//! A function of the backend may use the interface itself: what a call works with lives until the call ends.

mod capsule_support;
use capsule_support::*;
use flashrt_capi::*;
use std::cell::RefCell;
use std::rc::Rc;

/// Runs `inside` at the first call of `function` that `verb` makes.
fn interrupted(
    core: &Core,
    function: &'static str,
    inside: impl FnOnce() + 'static,
    verb: impl FnOnce() -> i32,
) -> i32 {
    let inside = RefCell::new(Some(inside));
    core.fake.with(|state| {
        state.hook = Some(Box::new(move |name| {
            if name == function {
                if let Some(inside) = inside.take() {
                    inside();
                }
            }
        }))
    });
    let status = verb();
    core.fake.with(|state| state.hook = None);
    status
}

fn drop_it(ctx: cap_ctx, capsule: cap_capsule) -> impl FnOnce() {
    // SAFETY: the same thread, and the capsule is alive.
    move || unsafe { cap_capsule_drop(ctx, capsule) }
}

#[test]
fn a_capsule_that_is_dropped_midway_goes_when_the_call_ends() {
    type Verb = fn(&Core, cap_capsule) -> i32;
    let verbs: [(&str, Verb); 5] = [
        ("buffer_copy", |core, capsule| core.restore(capsule, 0)),
        ("buffer_copy", |core, capsule| {
            core.tier_move(capsule, HOST, 0)
        }),
        ("buffer_free", |core, capsule| {
            core.tier_move(capsule, HOST, 0)
        }),
        ("event_query", |core, capsule| core.ready(capsule)),
        ("buffer_download", |core, capsule| {
            core.serialize(capsule).err().unwrap_or(OK)
        }),
    ];
    for (function, verb) in verbs {
        let core = Core::eager();
        let live = core.fake.buffer(b"state");
        let capsule = core.snapshot(&[region(live, 0, 2), region(live, 2, 3)], &[], GPU, 0);
        let status = interrupted(&core, function, drop_it(core.ctx, capsule), || {
            verb(&core, capsule)
        });
        assert_eq!(status, OK, "{function}: {}", text());
        assert_eq!(core.fake.allocations(), [], "{function}");
        assert_eq!(core.fake.events(), 0, "{function}");
        assert_eq!(core.ready(capsule), ARG);
    }
}

#[test]
fn a_context_that_is_destroyed_midway_goes_when_the_call_ends() {
    let core = Core::eager();
    let live = core.fake.buffer(b"state");
    let capsule = core.snapshot(&[region(live, 0, 5)], &[], GPU, 0);
    let ctx = core.ctx;
    // SAFETY: the same thread, and the context is alive.
    let destroy = move || unsafe { cap_ctx_destroy(ctx) };
    let status = interrupted(&core, "buffer_copy", destroy, || core.restore(capsule, 0));
    assert_eq!(status, OK);
    assert_eq!(core.fake.allocations(), []);
    assert_eq!(core.sync(0), ARG);
}

#[test]
fn a_capsule_that_is_made_after_its_context_went_is_no_handle() {
    for function in ["buffer_alloc", "event_record", "fingerprint"] {
        let core = Core::eager();
        let live = core.fake.buffer(b"state");
        let ctx = core.ctx;
        // SAFETY: the same thread, and the context is alive.
        let destroy = move || unsafe { cap_ctx_destroy(ctx) };
        let made = Rc::new(RefCell::new(std::ptr::null_mut()));
        let status = interrupted(&core, function, destroy, || {
            *made.borrow_mut() = core.snapshot(&[region(live, 0, 5)], &[], GPU, 0);
            OK
        });
        assert_eq!(status, OK);
        assert!(made.borrow().is_null());
        assert_eq!(text(), "cap_snapshot: the context was destroyed meanwhile");
        assert_eq!(core.fake.allocations(), []);
        assert_eq!(core.fake.events(), 0);
    }
}

#[test]
fn a_tick_inside_a_tick_has_events_of_its_own() {
    let core = Core::eager();
    let graph = core.fake.graph(1, &[0]);
    let stages = [stage(graph, 0, 0), stage(graph, 0, 1)];
    let ctx = core.ctx;
    let inside = move || {
        let deps = [[1, 0]];
        let schedule = cap_schedule {
            stages: stages.as_ptr(),
            n_stages: 2,
            deps: deps.as_ptr(),
            n_deps: 1,
        };
        // SAFETY: the schedule is whole.
        assert_eq!(
            unsafe { cap_drive_tick(ctx, &schedule, 0, std::ptr::null_mut()) },
            OK
        );
    };
    let status = interrupted(&core, "stream_wait", inside, || {
        core.tick(&stages, &[[1, 0]], 0).0
    });
    assert_eq!(status, OK);
    assert_eq!(core.fake.events(), 0);
}

#[test]
fn a_schedule_that_changes_midway_is_read_as_it_is_then() {
    let core = Core::eager();
    let graph = core.fake.graph(1, &[0, 1]);
    let stages = Box::leak(Box::new([stage(graph, 0, 0), stage(graph, 0, 0)]));
    let start: *mut cap_stage = stages.as_mut_ptr();
    let schedule = cap_schedule {
        stages: start,
        n_stages: 2,
        deps: std::ptr::null(),
        n_deps: 0,
    };
    // SAFETY: the array is leaked, and nobody holds a reference to it.
    let inside = move || unsafe { (*start.add(1)).key = 1 };
    let ctx = core.ctx;
    let status = interrupted(&core, "graph_replay", inside, || {
        // SAFETY: the schedule is whole.
        unsafe { cap_drive_tick(ctx, &schedule, 0, std::ptr::null_mut()) }
    });
    assert_eq!(status, OK);
    assert_eq!(core.fake.with(|state| state.ran.clone()), [(1, 0), (1, 1)]);
    // SAFETY: leaked above.
    drop(unsafe { Box::from_raw(start.cast::<[cap_stage; 2]>()) });
}
