//! The ring: a pure selection rule, and counters that add up.

mod common;
use common::*;
use flashrt_session::ring::{Candidate, Ring};
use proptest::prelude::*;

fn nowhere(_: u32) {}

#[test]
fn the_newest_at_or_before_the_tick_is_used() {
    let mut ring = Ring::with_capacity(4);
    for (stamp, item) in [(10, 1), (30, 3), (20, 2)] {
        ring.insert(stamp, item, &mut nowhere);
    }
    assert_eq!(ring.candidate(5), None);
    assert_eq!(
        ring.candidate(25),
        Some(Candidate {
            stamp_ns: 20,
            is_new: true
        })
    );
    ring.take(25, &mut nowhere);
    assert_eq!(ring.current().unwrap().item, 2);
    // 10 was passed over, 30 waits.
    assert_eq!(
        (
            ring.counters().used,
            ring.counters().superseded,
            ring.pending()
        ),
        (1, 1, 1)
    );
    assert_eq!(
        ring.candidate(25),
        Some(Candidate {
            stamp_ns: 20,
            is_new: false
        })
    );
    ring.take(30, &mut nowhere);
    assert_eq!(ring.current().unwrap().item, 3);
}

#[test]
fn of_equal_stamps_the_later_arrival_is_used() {
    let mut ring = Ring::with_capacity(4);
    ring.insert(10, 1, &mut nowhere);
    ring.insert(10, 2, &mut nowhere);
    ring.take(10, &mut nowhere);
    assert_eq!(ring.current().unwrap().item, 2);
    ring.insert(10, 3, &mut nowhere);
    assert!(
        ring.candidate(10).unwrap().is_new,
        "a message sent again is a new message"
    );
}

#[test]
fn an_old_message_never_replaces_a_newer_one_that_was_used() {
    let mut ring = Ring::with_capacity(4);
    ring.insert(20, 2, &mut nowhere);
    ring.take(50, &mut nowhere);
    ring.insert(10, 1, &mut nowhere);
    assert_eq!(
        ring.take(50, &mut nowhere),
        Some(Candidate {
            stamp_ns: 20,
            is_new: false
        })
    );
    assert_eq!(ring.pending(), 0);
}

#[test]
fn a_full_ring_gives_up_what_arrived_first_whatever_its_stamp() {
    let mut ring = Ring::with_capacity(2);
    let mut back = Vec::new();
    for (stamp, item) in [(900, 1), (901, 2), (10, 3), (20, 4)] {
        ring.insert(stamp, item, &mut |old| back.push(old));
    }
    assert_eq!(back, [1, 2]);
    assert_eq!(ring.earliest_ns(), Some(10));
    ring.take(30, &mut |old| back.push(old));
    assert_eq!(ring.current().unwrap().item, 4);
    assert_eq!(back, [1, 2, 3]);
}

#[test]
fn a_flush_forgets_the_current_message_too() {
    let mut ring = Ring::with_capacity(4);
    ring.insert(20, 2, &mut nowhere);
    ring.take(50, &mut nowhere);
    ring.insert(30, 3, &mut nowhere);
    let mut back = Vec::new();
    ring.flush(&mut |item| back.push(item));
    assert_eq!(back, [3, 2]);
    assert_eq!(ring.candidate(100), None);
}

proptest! {
    /// Against the plainest model: a list of all messages that are still there.
    #[test]
    fn selection_and_counters_match_a_plain_list(ops in prop::collection::vec((0u8..10, -50i64..50), 1..200), capacity in 1usize..6) {
        let mut ring = Ring::with_capacity(capacity);
        let mut list: Vec<(i64, u32)> = Vec::new();
        let mut current: Option<(i64, u32)> = None;
        let mut recycled = 0u64;
        let mut serial = 0;
        for (op, stamp) in ops {
            match op {
                0..=6 => {
                    serial += 1;
                    ring.insert(stamp, serial, &mut |_| recycled += 1);
                    list.push((stamp, serial));
                    if list.len() > capacity {
                        list.remove(0);
                    }
                }
                7 | 8 => {
                    let newest = list.iter().filter(|m| m.0 <= stamp).max_by_key(|m| m.0).copied();
                    let used = match (newest, current) {
                        (Some(n), Some(c)) if n.0 < c.0 => (c.0 <= stamp).then_some(c),
                        (Some(n), _) => Some(n),
                        (None, Some(c)) if c.0 <= stamp => Some(c),
                        _ => None,
                    };
                    let got = ring.take(stamp, &mut |_| recycled += 1);
                    prop_assert_eq!(got.map(|c| c.stamp_ns), used.map(|u| u.0));
                    if let Some(used) = used {
                        prop_assert_eq!(ring.current().unwrap().item, used.1);
                        current = Some(used);
                        list.retain(|m| m.0 > used.0);
                    }
                }
                _ => {
                    ring.flush(&mut |_| recycled += 1);
                    list.clear();
                    current = None;
                }
            }
            let c = ring.counters();
            prop_assert_eq!(ring.pending(), list.len());
            prop_assert_eq!(c.inserted, c.used + c.superseded + ring.pending() as u64);
            // Nothing is lost: what is not inside went back.
            prop_assert_eq!(recycled, c.inserted - ring.pending() as u64 - u64::from(ring.current().is_some()));
        }
    }
}

#[test]
fn case_74_counters_of_a_burst_add_up_exactly() {
    let rig = Rig::active(toy_config());
    for i in 0..200i64 {
        if i % 10 == 3 {
            let short = [0u8; 5];
            rig.engine
                .push_image("front", image(2, 2, "rgb8", 6, &short), rig.now());
        } else {
            rig.push_image(i as u8, rig.now() + i * MS / 2);
        }
        if i % 50 == 20 {
            rig.push_state([0.0, 0.0], rig.now());
            rig.clock.advance_ms(10);
            rig.call(flashrt_session::Command::Tick(Default::default()));
        }
    }
    let port = rig.port("images.front");
    assert_eq!((port.received, port.refused), (200, 20));
    assert_eq!(
        port.received,
        port.used + port.superseded + port.refused + port.pending
    );
    assert!(
        port.used >= 1 && port.superseded > 100 && port.pending >= 1,
        "{port:?}"
    );
    // After a new epoch nothing is pending.
    rig.ok(flashrt_session::Command::Reset { keep_prompt: true });
    let port = rig.port("images.front");
    assert_eq!(port.pending, 0);
    assert_eq!(port.received, port.used + port.superseded + port.refused);
}

#[test]
fn case_38_a_zero_stamp_means_receive_time_and_is_flagged() {
    let rig = Rig::active(toy_config());
    rig.push_image(1, 0);
    rig.push_state([0.0, 0.0], rig.now());
    rig.clock.advance_ms(40);
    rig.ok(flashrt_session::Command::Tick(Default::default()));
    let port = rig.port("images.front");
    assert_eq!(port.age_ms, 40.0);
    assert!(port.is_unstamped);
    assert!(!rig.port("state").is_unstamped);
}

#[test]
fn a_refused_message_pushes_no_good_one_out() {
    let rig = Rig::active(toy_config());
    // The device thread is asleep in a tick: nothing is drained.
    rig.push_all(1);
    rig.control
        .is_stuck
        .store(true, std::sync::atomic::Ordering::SeqCst);
    let tick = rig
        .engine
        .submit(flashrt_session::Command::Tick(Default::default()))
        .unwrap();
    rig.wait_for("the tick", || {
        rig.control
            .is_in_run
            .load(std::sync::atomic::Ordering::SeqCst)
    });
    for i in 0..40 {
        rig.push_image(i, rig.now() + i64::from(i));
    }
    let before = rig.port("images.front");
    let short = [0u8; 5];
    for _ in 0..40 {
        rig.engine
            .push_image("front", image(2, 2, "rgb8", 6, &short), rig.now());
    }
    let after = rig.port("images.front");
    assert_eq!(
        (after.pending, after.superseded),
        (before.pending, before.superseded)
    );
    assert_eq!(after.refused, 40);
    rig.control
        .is_stuck
        .store(false, std::sync::atomic::Ordering::SeqCst);
    tick.wait(std::time::Duration::from_secs(20)).unwrap();
}
