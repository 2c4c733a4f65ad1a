//! A tick fires what is due, in order, behind what it depends on.

mod capsule_support;
use capsule_support::*;
use flashrt_capi::*;
use std::ptr::{null, null_mut};

fn fired(core: &Core) -> Vec<usize> {
    for stream in 0..4 {
        core.fake.run(stream);
    }
    core.fake
        .with(|state| std::mem::take(&mut state.ran))
        .into_iter()
        .map(|r| r.0)
        .collect()
}

#[test]
fn a_stage_fires_its_variant_on_its_stream() {
    let core = Core::default();
    let graph = core.fake.graph(5, &[40]);
    assert_eq!(core.fire(&stage(graph, 40, 3)), OK);
    assert_eq!(core.fake.with(|state| state.ran.len()), 0);
    assert_eq!(core.sync(3), OK);
    assert_eq!(core.fake.with(|state| state.ran.clone()), [(5, 40)]);
}

#[test]
fn a_missing_variant_is_an_argument_error_and_a_failed_replay_the_backends() {
    let core = Core::default();
    let graph = core.fake.graph(5, &[40]);
    assert_eq!(core.fire(&stage(graph, 41, 0)), ARG);
    assert_eq!(text(), "cap_fire: the graph has no variant for key 41");
    assert_eq!(core.fire(&stage(null_mut(), 40, 0)), ARG);
    core.fake
        .with(|state| state.broken = Some(Break::Function("graph_replay")));
    assert_eq!(core.fire(&stage(graph, 40, 0)), BACKEND);
    core.fake
        .with(|state| state.broken = Some(Break::Function("graph_has")));
    assert_eq!(core.fire(&stage(graph, 40, 0)), BACKEND);
}

#[test]
fn the_trigger_does_not_matter_to_fire() {
    let core = Core::default();
    let graph = core.fake.graph(5, &[40]);
    for trigger in [CAP_ON_EVENT as i32, CAP_ON_DEMAND as i32] {
        let stage = cap_stage {
            trigger,
            ..stage(graph, 40, 0)
        };
        assert_eq!(core.fire(&stage), OK);
        assert_eq!(core.tick(&[stage], &[], 0), (OK, -1));
    }
    assert_eq!(fired(&core), [5, 5]);
}

#[test]
fn a_stage_is_due_when_the_clock_says_so() {
    let core = Core::default();
    let graph = core.fake.graph(1, &[0]);
    let due = |num, den, clock| {
        let stage = cap_stage {
            cadence_num: num,
            cadence_den: den,
            ..stage(graph, 0, 0)
        };
        assert_eq!(core.tick(&[stage], &[], clock), (OK, -1));
        !fired(&core).is_empty()
    };
    let ticks = |num, den| {
        (0..8)
            .map(|clock| u8::from(due(num, den, clock)))
            .collect::<Vec<_>>()
    };
    assert_eq!(ticks(1, 1), [1; 8]);
    assert_eq!(ticks(1, 4), [1, 0, 0, 0, 1, 0, 0, 0]);
    assert_eq!(ticks(3, 4), [1, 1, 1, 0, 1, 1, 1, 0]);
    assert_eq!(ticks(0, 4), [0; 8]);
    assert_eq!(ticks(-1, 4), [0; 8]);
    assert_eq!(ticks(0, 0), [1; 8]);
    assert_eq!(ticks(0, -3), [1; 8]);
    assert!(due(1, 5, u64::MAX)); // 2^64 - 1 is a multiple of 5
    assert!(!due(1, 4, u64::MAX));
    assert!(due(i32::MAX, i32::MAX, u64::MAX));
}

#[test]
fn stages_fire_in_the_order_of_the_array() {
    let core = Core::default();
    let stages: Vec<_> = [3, 1, 2]
        .map(|g| stage(core.fake.graph(g, &[0]), 0, 0))
        .into();
    assert_eq!(core.tick(&stages, &[], 0), (OK, -1));
    assert_eq!(fired(&core), [3, 1, 2]);
    assert_eq!(core.fake.calls(), ["graph_replay"; 3]);
}

#[test]
fn a_pair_is_waiter_then_dependency() {
    let core = Core::default();
    let (a, b) = (core.fake.graph(1, &[0]), core.fake.graph(2, &[0]));
    let stages = [stage(a, 0, 1), stage(b, 0, 0)];
    // Stream 0 runs first in `fired`: only the wait brings stage 0 before stage 1.
    assert_eq!(core.tick(&stages, &[[1, 0]], 0), (OK, -1));
    assert_eq!(fired(&core), [1, 2]);
    // The other way round it names a later dependency, which did not fire earlier in this tick.
    assert_eq!(core.tick(&stages, &[[0, 1]], 0), (OK, -1));
    assert_eq!(fired(&core), [2, 1]);
    assert_eq!(core.tick(&stages, &[[1, 1], [0, 0]], 0), (OK, -1));
    assert_eq!(fired(&core), [2, 1]);
}

#[test]
fn the_wait_follows_the_dependency_and_events_end_with_the_tick() {
    let core = Core::default();
    let stages: Vec<_> = (0..3)
        .map(|i| stage(core.fake.graph(1 + i, &[0]), 0, i as i32))
        .collect();
    assert_eq!(core.tick(&stages, &[[1, 0], [2, 0], [2, 1]], 0), (OK, -1));
    assert_eq!(
        core.fake.calls(),
        [
            "graph_replay",
            "event",
            "event_record",
            "stream_wait",
            "graph_replay",
            "event",
            "event_record",
            "stream_wait",
            "stream_wait",
            "graph_replay",
            "event_free",
            "event_free"
        ]
    );
    assert_eq!(core.fake.events(), 0);
}

#[test]
fn a_dependency_that_does_not_fire_is_not_waited_for() {
    let core = Core::default();
    let slow = cap_stage {
        cadence_den: 4,
        ..stage(core.fake.graph(1, &[0]), 0, 1)
    };
    let fast = stage(core.fake.graph(2, &[0]), 0, 0);
    assert_eq!(core.tick(&[slow, fast], &[[1, 0]], 1), (OK, -1));
    assert_eq!(core.fake.calls(), ["graph_replay"]);
}

#[test]
fn the_first_failing_stage_is_named_and_ends_the_tick() {
    let core = Core::default();
    let stages = [
        stage(core.fake.graph(1, &[0]), 0, 0),
        stage(core.fake.graph(2, &[0]), 99, 0),
        stage(core.fake.graph(3, &[0]), 0, 0),
    ];
    assert_eq!(core.tick(&stages, &[[1, 0]], 0), (BACKEND, 1));
    assert_eq!(
        text(),
        "cap_drive_tick: stage 1: `graph_replay` of the backend answered -7"
    );
    assert_eq!(fired(&core), [1]);
    assert_eq!(core.fake.events(), 0);
}

#[test]
fn an_order_that_cannot_be_kept_fails_the_stage() {
    for (function, failed) in [("event", 0), ("event_record", 0), ("stream_wait", 1)] {
        let core = Core::default();
        let stages = [
            stage(core.fake.graph(1, &[0]), 0, 0),
            stage(core.fake.graph(2, &[0]), 0, 1),
        ];
        core.fake
            .with(|state| state.broken = Some(Break::Function(function)));
        assert_eq!(
            core.tick(&stages, &[[1, 0]], 0),
            (BACKEND, failed),
            "{function}"
        );
        assert_eq!(core.fake.events(), 0);
    }
}

#[test]
fn a_schedule_with_anything_out_of_order_fires_nothing() {
    let core = Core::default();
    let stages = [stage(core.fake.graph(1, &[0]), 0, 0); 2];
    for pair in [[0, 2], [2, 0], [-1, 0], [0, -1], [i32::MAX, i32::MIN]] {
        assert_eq!(core.tick(&stages, &[[1, 0], pair], 0), (ARG, -1));
        let expected = format!(
            "cap_drive_tick: pair 1 is {{{}, {}}}, expected two of 2 stages",
            pair[0], pair[1]
        );
        assert_eq!(text(), expected);
    }
    let none = stage(null_mut(), 0, 0);
    assert_eq!(core.tick(&[stages[0], none], &[], 0), (ARG, 1));
    let mut schedule = cap_schedule {
        stages: null(),
        n_stages: 1,
        deps: null(),
        n_deps: 0,
    };
    // SAFETY: arrays that are not there are refused.
    unsafe {
        assert_eq!(cap_drive_tick(core.ctx, &schedule, 0, null_mut()), ARG);
        schedule.n_stages = -1;
        assert_eq!(cap_drive_tick(core.ctx, &schedule, 0, null_mut()), ARG);
        schedule.n_stages = 0;
        assert_eq!(cap_drive_tick(core.ctx, &schedule, 0, null_mut()), OK);
        schedule.n_deps = 1;
        assert_eq!(cap_drive_tick(core.ctx, &schedule, 0, null_mut()), ARG);
        assert_eq!(cap_drive_tick(core.ctx, null(), 0, null_mut()), ARG);
    }
    assert_eq!(core.fake.calls(), [""; 0]);
}
