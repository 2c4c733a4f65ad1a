//! The hand-over machine under any sequence of chunks, control steps and new epochs, against the plainest model of it.

use std::collections::VecDeque;

use flashrt_session::chunk::{Machine, Phase, Rules, Step};
use proptest::prelude::*;

const MS: u64 = 1_000_000;

#[derive(Clone, Debug)]
enum Op {
    Offer,
    Step { after_ms: u64 },
    Clear,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        3 => Just(Op::Offer),
        12 => (0u64..400).prop_map(|after_ms| Op::Step { after_ms }),
        1 => Just(Op::Clear),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    /// A chunk that began is emitted to its end, row after row; what waits gives way only to a newer one; a hold follows a
    /// row of the same epoch and ends in time; every chunk comes back exactly once.
    #[test]
    fn every_sequence_keeps_order_and_bounds(
        ops in prop::collection::vec(op(), 1..120),
        execute_rows in 1u32..5,
        max_hold_ms in 0u64..600,
    ) {
        let mut machine = Machine::new(Rules { execute_rows, max_hold_ns: max_hold_ms * MS });
        let (mut now_ns, mut offered) = (5 * MS, 0u32);
        let mut back: Vec<u32> = Vec::new();
        // Model: rows still to come, the chunk that waits, the time of the last row of this epoch.
        let mut rows: VecDeque<(u32, u32)> = VecDeque::new();
        let mut waiting: Option<u32> = None;
        let mut last_row_ns: Option<u64> = None;
        let mut has_starved = false;
        for op in ops {
            match op {
                Op::Offer => {
                    offered += 1;
                    let replaced = machine.offer(offered);
                    prop_assert_eq!(replaced, waiting.replace(offered));
                    back.extend(replaced);
                }
                Op::Clear => {
                    machine.clear(&mut |c| back.push(c));
                    rows.clear();
                    (waiting, last_row_ns, has_starved) = (None, None, false);
                    prop_assert_eq!(machine.phase(), Phase::Idle);
                    prop_assert_eq!(back.len(), offered as usize, "all are back");
                }
                Op::Step { after_ms } => {
                    now_ns += after_ms * MS;
                    let is_seam = rows.is_empty() && waiting.is_some();
                    if is_seam {
                        let chunk = waiting.take().unwrap();
                        rows.extend((0..execute_rows).map(|row| (chunk, row)));
                    }
                    let expected = match (rows.pop_front(), last_row_ns) {
                        (Some((_, row)), _) => {
                            (last_row_ns, has_starved) = (Some(now_ns), false);
                            Step::Row { row, is_seam }
                        }
                        (None, None) => Step::Nothing,
                        (None, Some(last)) if now_ns - last <= max_hold_ms * MS => Step::Hold,
                        (None, Some(_)) => {
                            Step::Starved { is_first: !std::mem::replace(&mut has_starved, true) }
                        }
                    };
                    prop_assert_eq!(machine.step(now_ns, &mut |c| back.push(c)), expected);
                }
            }
            prop_assert_eq!(machine.rows_left() as usize, rows.len());
            prop_assert_eq!(machine.wants_next(), rows.is_empty() && waiting.is_none());
        }
        machine.clear(&mut |c| back.push(c));
        back.sort_unstable();
        prop_assert_eq!(back, (1..=offered).collect::<Vec<_>>());
    }
}
