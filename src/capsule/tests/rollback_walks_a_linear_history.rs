//! Rollback by steps, name and age; what a later snapshot discards.

mod common;

use common::*;
use flashrt_capsule::{Rollback, SnapshotRequest, Tier};

fn names(v: &[std::sync::Arc<str>]) -> Vec<&str> {
    v.iter().map(|n| &**n).collect()
}

#[test]
fn steps_go_back_boundary_by_boundary_to_the_same_bytes() {
    let (mut live, mut s) = (one(), store());
    let mut after = Vec::new();
    for t in 0..4 {
        s.snapshot(
            &live,
            &SnapshotRequest::new(None, Tier::Device, at(t, t * 100)),
        )
        .unwrap();
        after.push(run(&mut live, t..t + 1));
    }
    let back = |s: &mut flashrt_capsule::Store, live: &mut _, n| {
        s.rollback(Rollback::Steps(n), 0, live)
            .map(|r| r.info.boundary.tick)
    };
    assert_eq!(
        back(&mut s, &mut live, 1).unwrap(),
        3,
        "something was run since: the newest one"
    );
    assert_eq!(
        back(&mut s, &mut live, 1).unwrap(),
        2,
        "standing on 3: the one before"
    );
    assert_eq!(run(&mut live, 2..3), after[2]);
    assert_eq!(back(&mut s, &mut live, 2).unwrap(), 1);
    let e = back(&mut s, &mut live, 2).unwrap_err();
    assert!(
        e.is_not_found()
            && e.to_string()
                .contains("2 steps back asked for, there are 1"),
        "{e}"
    );
    assert!(back(&mut s, &mut live, 0).is_err());
    assert_eq!(back(&mut s, &mut live, 1).unwrap(), 0);
    assert_eq!(
        [run(&mut live, 0..1), run(&mut live, 1..2)].concat(),
        after[..2].concat()
    );
}

#[test]
fn a_snapshot_after_a_rollback_discards_what_was_newer() {
    let (mut live, mut s) = (one(), store());
    for t in 0..2 {
        s.snapshot(&live, &unnamed()).unwrap();
        run(&mut live, t..t + 1);
    }
    s.snapshot(&live, &named("goal")).unwrap();
    run(&mut live, 2..3);
    let pinned = s.snapshot(&live, &unnamed()).unwrap().name;
    s.pin(&pinned, true).unwrap();
    run(&mut live, 3..4);
    s.snapshot(&live, &unnamed()).unwrap();
    s.rollback(Rollback::Steps(3), 0, &mut live).unwrap();
    assert_eq!(names(&s.history("main").0), ["cap-000002", "cap-000001"]);
    assert_eq!(
        names(&s.history("main").1),
        ["goal", "cap-000003", "cap-000004"]
    );

    // Forward again is possible as long as nothing new was taken.
    s.rollback(Rollback::Name("goal"), 0, &mut live).unwrap();
    s.rollback(Rollback::Steps(1), 0, &mut live).unwrap();
    s.snapshot(&live, &named("branch")).unwrap();
    assert_eq!(
        names(&s.history("main").0),
        ["branch", "cap-000002", "cap-000001"]
    );
    assert!(s.history("main").1.is_empty());
    assert!(
        s.info("cap-000004").unwrap_err().is_not_found(),
        "unnamed: dropped"
    );
    assert!(s.info("goal").is_ok(), "named: kept, by name only");
    assert!(s.info("cap-000003").unwrap().pinned, "pinned: kept");
    let e = s
        .rollback(Rollback::Name("goal"), 0, &mut live)
        .unwrap_err();
    assert!(
        e.to_string().contains("capsule 'goal' is not part of it"),
        "{e}"
    );
    s.restore("goal", &mut live, false).unwrap();
    assert_eq!(
        names(&s.history("main").0)[..2],
        ["goal", "branch"],
        "restored: part of it again"
    );
}

#[test]
fn age_means_the_newest_boundary_at_least_that_old() {
    let (mut live, mut s) = (one(), store());
    let none = s.rollback(Rollback::AgeMs(0), 0, &mut live).unwrap_err();
    assert!(none.to_string().contains("no boundary"), "{none}");
    for (t, ms) in [(0, 1000), (1, 1500), (2, 1900)] {
        s.snapshot(&live, &SnapshotRequest::new(None, Tier::Host, at(t, ms)))
            .unwrap();
        run(&mut live, t..t + 1);
    }
    let now = 2_000_000_000;
    let mut go = |age, now| {
        s.rollback(Rollback::AgeMs(age), now, &mut live)
            .map(|r| r.info.boundary.tick)
    };
    let e = go(1001, now).unwrap_err();
    assert!(
        e.to_string()
            .contains("1001 ms asked for, the oldest boundary is 1000 ms old"),
        "{e}"
    );
    assert_eq!(go(0, now).unwrap(), 2);
    assert_eq!(go(101, now).unwrap(), 1);
    assert_eq!(
        go(50, now).unwrap(),
        1,
        "what is newer than the present is not looked at"
    );
    assert_eq!(go(501, now).unwrap(), 0);
    assert!(
        go(1, 0).is_err(),
        "a clock before the boundaries gives age 0, not a wrap-around"
    );
}

#[test]
fn dropped_and_overwritten_capsules_leave_every_history() {
    let mut m = open(&["a", "b"]);
    let mut s = store();
    s.snapshot(&m.sets[0], &named("one")).unwrap();
    run(&mut m.sets[0], 0..1);
    s.snapshot(&m.sets[0], &named("two")).unwrap();
    run(&mut m.sets[0], 1..2);
    s.drop_capsule("two").unwrap();
    let r = s.rollback(Rollback::Steps(1), 0, &mut m.sets[0]).unwrap();
    assert_eq!(&*r.info.name, "one");

    let mut again = named("one");
    again.overwrite = true;
    s.snapshot(&m.sets[1], &again).unwrap();
    assert!(s.history("a").0.is_empty());
    assert_eq!(names(&s.history("b").0), ["one"]);
    assert!(s
        .rollback(Rollback::Steps(1), 0, &mut m.sets[0])
        .unwrap_err()
        .is_not_found());
}

#[test]
fn histories_of_two_sets_are_separate_and_a_fork_joins_its_target() {
    let mut m = open(&["a", "b"]);
    let mut s = store();
    let first = s.snapshot(&m.sets[0], &unnamed()).unwrap().name;
    run(&mut m.sets[0], 0..1);
    let second = s.snapshot(&m.sets[0], &unnamed()).unwrap().name;
    s.snapshot(&m.sets[1], &named("own")).unwrap();
    run(&mut m.sets[1], 5..6);
    s.restore(&second, &mut m.sets[1], false).unwrap();
    assert_eq!(names(&s.history("b").0), [&*second, "own"]);
    let expected = run(&mut m.sets[0], 1..2);
    assert_eq!(run(&mut m.sets[1], 1..2), expected);
    // `b` stands on it, so `a` does not discard it.
    s.rollback(Rollback::Name(&first), 0, &mut m.sets[0])
        .unwrap();
    s.snapshot(&m.sets[0], &unnamed()).unwrap();
    assert!(s.info(&second).is_ok());
    assert!(!names(&s.history("a").0).contains(&&*second));
    s.rollback(Rollback::Steps(1), 0, &mut m.sets[1]).unwrap();
    assert_eq!(run(&mut m.sets[1], 1..2), expected);
}

#[test]
fn a_full_store_makes_room_for_a_snapshot_that_discards() {
    let mut live = one();
    let (_, host) = store().capsule_bytes(&live, Tier::Host);
    let mut s = flashrt_capsule::Store::new(flashrt_capsule::StoreConfig {
        device_budget_bytes: 0,
        host_budget_bytes: 3 * host,
        capacity: 3,
    });
    for t in 0..3 {
        s.snapshot(&live, &unnamed()).unwrap();
        run(&mut live, t..t + 1);
    }
    assert!(s.snapshot(&live, &unnamed()).unwrap_err().is_no_space());
    s.rollback(Rollback::Steps(2), 0, &mut live).unwrap();
    s.snapshot(&live, &unnamed()).unwrap();
    assert_eq!(
        names(&s.history("main").0),
        ["cap-000004", "cap-000002", "cap-000001"]
    );
}
