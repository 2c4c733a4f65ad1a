//! `raw·std + mean`, then the state on anchored columns; one fused step and one addition, exact.

mod common;
use common::*;
use flashrt_ops::{action_unnormalize, Anchor};

#[test]
fn statistics_may_be_per_column_or_per_row_and_padding_columns_are_dropped() {
    let (h, a, wide) = (7, 6, 9);
    let mut s = Seed(8);
    let (raw, state) = (s.values(h * wide), s.scaled(4, 50.0));
    let anchored = [1u8, 0, 2, 1, 1, 0];
    for (std_rows, mean_rows) in [(1, 1), (h, 1), (1, h), (h, h)] {
        let (std, mean) = (s.values(std_rows * a), s.values(mean_rows * a));
        for with_anchor in [false, true] {
            let got = everywhere(|ctx| {
                let raw = tensor(ctx, &[h, wide], &raw);
                let stat = |rows, v: &[f32]| {
                    if rows == 1 {
                        tensor(ctx, &[a], v)
                    } else {
                        tensor(ctx, &[rows, a], v)
                    }
                };
                let (std, mean) = (stat(std_rows, &std), stat(mean_rows, &mean));
                let state = tensor(ctx, &[4], &state);
                let mask = mask(ctx, &anchored);
                let out = poisoned(ctx, &[h, a]);
                let anchor = with_anchor.then_some(Anchor {
                    state: &state,
                    mask: &mask,
                });
                run(ctx, |r| {
                    action_unnormalize(r, &raw, &std, &mean, anchor, &out)
                });
                out.download_f32(ctx).unwrap()
            });
            for (i, g) in got.iter().enumerate() {
                let (row, d) = (i / a, i % a);
                let at = |v: &[f32], rows| if rows == 1 { v[d] } else { v[row * a + d] };
                let mut want =
                    raw[row * wide + d].mul_add(at(&std, std_rows), at(&mean, mean_rows));
                // Column 4 is marked but the state has four elements only.
                if with_anchor && anchored[d] != 0 && d < 4 {
                    want += state[d];
                }
                assert_eq!(g.to_bits(), want.to_bits(), "row {row}, column {d}");
            }
        }
    }
}
