//! The plain hand-over machine and the limits, as pure functions.

use flashrt_session::chunk::{Machine, Phase, Rules, Step};
use flashrt_session::config::LimitReaction;
use flashrt_session::limit::{apply, Limits, Verdict};

const MS: u64 = 1_000_000;

fn machine() -> Machine<u32> {
    Machine::new(Rules {
        execute_rows: 2,
        max_hold_ns: 250 * MS,
    })
}

fn row(row: u32, is_seam: bool) -> Step {
    Step::Row { row, is_seam }
}

#[test]
fn rows_come_in_order_then_the_hold_then_nothing() {
    let mut m = machine();
    let mut back = Vec::new();
    assert_eq!(m.step(0, &mut |c| back.push(c)), Step::Nothing);
    assert!(m.wants_next());
    assert_eq!(m.offer(1), None);
    assert_eq!(m.phase(), Phase::Pending);
    let steps: Vec<Step> = (1..=6)
        .map(|i| m.step(i * 100 * MS, &mut |c| back.push(c)))
        .collect();
    assert_eq!(
        steps,
        [
            row(0, true),
            row(1, false),
            Step::Hold,
            Step::Hold,
            Step::Starved { is_first: true },
            Step::Starved { is_first: false }
        ]
    );
    assert_eq!(m.phase(), Phase::Starved);
    // A late chunk is taken.
    m.offer(2);
    assert_eq!(m.step(700 * MS, &mut |c| back.push(c)), row(0, true));
    assert_eq!(back, [1]);
}

#[test]
fn the_next_chunk_is_wanted_when_the_last_row_goes_out() {
    let mut m = machine();
    m.offer(1);
    m.step(0, &mut drop);
    assert!(!m.wants_next());
    m.step(1, &mut drop);
    assert!(m.wants_next());
    m.offer(2);
    assert!(!m.wants_next());
    assert_eq!(m.step(2, &mut drop), row(0, true));
}

#[test]
fn case_180_a_seated_chunk_is_not_pushed_out_by_a_faster_producer() {
    let mut m = machine();
    m.offer(1);
    assert_eq!(m.step(0, &mut drop), row(0, true));
    assert_eq!(m.offer(2), None);
    assert_eq!(m.offer(3), Some(2), "of waiting chunks the newest stays");
    assert_eq!(m.step(1, &mut drop), row(1, false));
    assert_eq!(m.seated(), Some(&1));
    m.step(2, &mut drop);
    assert_eq!(m.seated(), Some(&3));
}

#[test]
fn case_56_a_new_epoch_holds_nothing_of_the_old_one() {
    let mut m = machine();
    m.offer(1);
    m.step(0, &mut drop);
    m.offer(2);
    let mut back = Vec::new();
    m.clear(&mut |c| back.push(c));
    assert_eq!(back, [1, 2]);
    assert_eq!(m.step(1, &mut drop), Step::Nothing);
    assert_eq!(m.phase(), Phase::Idle);
}

#[test]
fn without_hold_the_machine_starves_at_once() {
    let mut m: Machine<u32> = Machine::new(Rules {
        execute_rows: 1,
        max_hold_ns: 0,
    });
    m.offer(1);
    m.step(0, &mut drop);
    assert_eq!(m.step(1, &mut drop), Step::Starved { is_first: true });
}

fn limits() -> Limits {
    Limits {
        range: Some(vec![(-1.0, 1.0); 2]),
        max_step: Some(vec![0.5; 2]),
    }
}

#[test]
fn case_52_finiteness_is_tested_before_the_clamp() {
    for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        for reaction in [LimitReaction::Clamp, LimitReaction::Refuse] {
            let mut r = [0.0, bad];
            assert_eq!(
                apply(&mut r, Some(&[0.0, 0.0]), &limits(), reaction),
                Verdict::NonFinite { index: 1 }
            );
        }
    }
}

#[test]
fn case_54_a_step_over_the_limit_is_clamped_to_the_last_command() {
    let mut r = [1.5, 0.1];
    assert_eq!(
        apply(&mut r, Some(&[0.0, 0.0]), &limits(), LimitReaction::Clamp),
        Verdict::Emit { limited: 1 }
    );
    assert_eq!(r, [0.5, 0.1]);
    let mut r = [-3.0, 3.0];
    assert_eq!(
        apply(&mut r, Some(&[-0.9, 0.8]), &limits(), LimitReaction::Clamp),
        Verdict::Emit { limited: 2 }
    );
    assert_eq!(r, [-1.0, 1.0]);
}

#[test]
fn case_54_or_the_row_is_refused_as_declared() {
    let mut r = [0.2, 1.5];
    assert_eq!(
        apply(&mut r, Some(&[0.0, 0.0]), &limits(), LimitReaction::Refuse),
        Verdict::OverLimit { index: 1 }
    );
    assert_eq!(r, [0.2, 1.5]);
}

#[test]
fn without_an_anchor_only_the_range_holds_and_off_is_off() {
    let mut r = [0.9, -2.0];
    assert_eq!(
        apply(&mut r, None, &limits(), LimitReaction::Clamp),
        Verdict::Emit { limited: 1 }
    );
    assert_eq!(r, [0.9, -1.0]);
    let mut r = [1e9, -1e9];
    let off = Limits::default();
    assert_eq!(
        apply(&mut r, Some(&[0.0, 0.0]), &off, LimitReaction::Clamp),
        Verdict::Emit { limited: 0 }
    );
}
