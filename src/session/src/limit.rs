//! Limits of a command: finiteness, range, and the change from one command to the next. Pure.

use crate::config::LimitReaction;

/// Limits per joint, topic units.
#[derive(Clone, Debug, Default)]
pub struct Limits {
    /// `(lo, hi)`; `None`: declared off.
    pub range: Option<Vec<(f64, f64)>>,
    /// Largest change per command; `None`: declared off.
    pub max_step: Option<Vec<f64>>,
}

/// What became of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// To be emitted; so many values were moved onto a limit.
    Emit {
        /// Values changed.
        limited: u32,
    },
    /// Not to be emitted: joint `index` is not finite.
    NonFinite {
        /// First such joint.
        index: usize,
    },
    /// Not to be emitted: joint `index` breaks a limit and the reaction is refuse.
    OverLimit {
        /// First such joint.
        index: usize,
    },
}

/// Applies the limits to `row` in place. `anchor` is the command that the change is measured from. Finiteness is tested
/// before any comparison, because a clamp turns NaN into a limit. A row that is not emitted is left as it came.
pub fn apply(
    row: &mut [f64],
    anchor: Option<&[f64]>,
    limits: &Limits,
    reaction: LimitReaction,
) -> Verdict {
    if let Some(index) = row.iter().position(|v| !v.is_finite()) {
        return Verdict::NonFinite { index };
    }
    let limited_value = |index: usize, value: f64| {
        let mut limited = value;
        if let Some((lo, hi)) = limits.range.as_ref().and_then(|r| r.get(index)) {
            limited = limited.clamp(*lo, *hi);
        }
        let step = limits.max_step.as_ref().and_then(|s| s.get(index));
        if let (Some(step), Some(from)) = (step, anchor.and_then(|a| a.get(index))) {
            limited = limited.clamp(from - step, from + step);
        }
        limited
    };
    let changed = |row: &[f64]| {
        (0..row.len())
            .filter(|i| limited_value(*i, row[*i]) != row[*i])
            .count()
    };
    if reaction == LimitReaction::Refuse {
        if let Some(index) = (0..row.len()).find(|i| limited_value(*i, row[*i]) != row[*i]) {
            return Verdict::OverLimit { index };
        }
    }
    let limited = changed(row) as u32;
    for (index, value) in row.iter_mut().enumerate() {
        *value = limited_value(index, *value);
    }
    Verdict::Emit { limited }
}
