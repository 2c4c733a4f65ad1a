//! Normalisation of the state and un-normalisation of the actions.

use std::path::Path;

use serde::Deserialize;
use sha2::{Digest, Sha256};

use crate::Error;

/// What OpenPI adds to a quantile range so that it is never zero.
const QUANTILE_EPSILON: f64 = 1e-6;

/// How a joint state becomes a number in about [-1, 1]; all in f64.
///
/// One pair of bounds for each element: `2·(x - low) / (high - low + epsilon) - 1`.
#[derive(Debug, Clone, PartialEq)]
pub struct StateNorm {
    low: Vec<f64>,
    high: Vec<f64>,
    epsilon: f64,
}

impl StateNorm {
    /// Number of state elements.
    pub fn len(&self) -> usize {
        self.low.len()
    }

    /// True when there are no state elements.
    pub fn is_empty(&self) -> bool {
        self.low.is_empty()
    }

    /// Element `i` normalised. With epsilon zero the form is `(x - low)/(high - low)·2 - 1`, in this order.
    pub fn normalize(&self, i: usize, x: f32) -> f64 {
        let x = f64::from(x);
        if self.epsilon == 0.0 {
            (x - self.low[i]) / (self.high[i] - self.low[i]) * 2.0 - 1.0
        } else {
            2.0 * (x - self.low[i]) / (self.high[i] - self.low[i] + self.epsilon) - 1.0
        }
    }
}

/// How a raw action becomes a joint command: `a·std + mean`, by (row, column) or by column only.
#[derive(Debug, Clone, PartialEq)]
pub struct ActionNorm {
    /// `[rows, width]` row-major; the chunk's rows, or one row for all.
    pub mean: Vec<f32>,
    /// Same shape as `mean`.
    pub std: Vec<f32>,
    /// Rows of the two tables.
    pub rows: usize,
    /// Columns of the two tables.
    pub width: usize,
    /// Raw actions are clipped to [-1, 1] first (quantile statistics only).
    pub clip: bool,
}

/// Statistics of the data that a policy was trained on.
#[derive(Debug, Clone, PartialEq)]
pub struct Stats {
    /// For the state.
    pub state: StateNorm,
    /// For the actions.
    pub action: ActionNorm,
}

/// The file: either range and per-row mean/deviation, or quantiles for both.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    slo: Option<Vec<f64>>,
    shi: Option<Vec<f64>>,
    am: Option<Vec<Vec<f32>>>,
    asd: Option<Vec<Vec<f32>>>,
    state_q01: Option<Vec<f64>>,
    state_q99: Option<Vec<f64>>,
    action_q01: Option<Vec<f64>>,
    action_q99: Option<Vec<f64>>,
}

impl Stats {
    /// Reads `stats.json`.
    ///
    /// Keys `slo`, `shi` (state range, `[width]`) or `state_q01`, `state_q99`; `am`, `asd` (action mean and
    /// deviation, `[chunk][width]`) or `action_q01`, `action_q99`.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Json`], [`Error::Value`] for a missing pair, unequal lengths, a non-finite number,
    /// an empty range or a deviation that is not positive.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let text = crate::read_text(path)?;
        Self::parse(&text, path)
    }

    /// [`Stats::read`] of bytes; `path` is for messages only.
    ///
    /// # Errors
    /// As [`Stats::read`].
    pub fn parse(json: &[u8], path: &Path) -> Result<Self, Error> {
        let file: File = serde_json::from_slice(json).map_err(|source| Error::Json {
            path: path.into(),
            source,
        })?;
        let state = match (file.slo, file.shi, file.state_q01, file.state_q99) {
            (Some(low), Some(high), None, None) => state_norm("slo", low, "shi", high, 0.0)?,
            (None, None, Some(low), Some(high)) => {
                state_norm("state_q01", low, "state_q99", high, QUANTILE_EPSILON)?
            }
            _ => {
                return Err(pair(
                    "slo",
                    "expected `slo` and `shi`, or `state_q01` and `state_q99`",
                ))
            }
        };
        let action = match (file.am, file.asd, file.action_q01, file.action_q99) {
            (Some(mean), Some(std), None, None) => mean_std(mean, std)?,
            (None, None, Some(low), Some(high)) => quantiles(low, high)?,
            _ => {
                return Err(pair(
                    "am",
                    "expected `am` and `asd`, or `action_q01` and `action_q99`",
                ))
            }
        };
        Ok(Stats { state, action })
    }

    /// No change in either direction: for tests of a bare network.
    pub fn identity(state_width: usize, action_width: usize) -> Self {
        Stats {
            state: StateNorm {
                low: vec![-1.0; state_width],
                high: vec![1.0; state_width],
                epsilon: 0.0,
            },
            action: ActionNorm {
                mean: vec![0.0; action_width],
                std: vec![1.0; action_width],
                rows: 1,
                width: action_width,
                clip: false,
            },
        }
    }

    /// Lower-case hex SHA-256 of every number and rule that is used.
    pub fn digest(&self) -> String {
        let mut hash = Sha256::new();
        hash.update(b"stats-v1\n");
        for list in [&self.state.low, &self.state.high] {
            hash.update((list.len() as u64).to_le_bytes());
            list.iter().for_each(|x| hash.update(x.to_le_bytes()));
        }
        hash.update(self.state.epsilon.to_le_bytes());
        let a = &self.action;
        for n in [a.rows, a.width, usize::from(a.clip)] {
            hash.update((n as u64).to_le_bytes());
        }
        for list in [&a.mean, &a.std] {
            list.iter().for_each(|x| hash.update(x.to_le_bytes()));
        }
        crate::weights::hex(&hash.finalize())
    }
}

fn pair(key: &'static str, rule: &str) -> Error {
    Error::Value {
        key,
        got: "absent or mixed".into(),
        rule: rule.into(),
    }
}

fn range(
    low_key: &'static str,
    low: &[f64],
    high_key: &'static str,
    high: &[f64],
) -> Result<(), Error> {
    if low.len() != high.len() || low.is_empty() {
        return Err(Error::Value {
            key: high_key,
            got: format!("{} elements", high.len()),
            rule: format!(
                "expected as many as `{low_key}` has, {}, and at least one",
                low.len()
            ),
        });
    }
    for (i, (l, h)) in low.iter().zip(high).enumerate() {
        // A narrower or wider range makes infinities of plain numbers.
        let width = h - l;
        if !(l.is_finite() && width.is_finite() && width >= f64::from(f32::MIN_POSITIVE)) {
            return Err(Error::Value {
                key: high_key,
                got: format!("{h:?} at {i}"),
                rule: format!(
                    "expected a finite number above `{low_key}`, {l:?}, with a finite difference"
                ),
            });
        }
    }
    Ok(())
}

fn state_norm(
    low_key: &'static str,
    low: Vec<f64>,
    high_key: &'static str,
    high: Vec<f64>,
    epsilon: f64,
) -> Result<StateNorm, Error> {
    range(low_key, &low, high_key, &high)?;
    Ok(StateNorm { low, high, epsilon })
}

fn mean_std(mean: Vec<Vec<f32>>, std: Vec<Vec<f32>>) -> Result<ActionNorm, Error> {
    let (rows, width) = (mean.len(), mean.first().map_or(0, Vec::len));
    let even = |t: &[Vec<f32>]| t.len() == rows && t.iter().all(|r| r.len() == width);
    if rows == 0 || width == 0 || !even(&mean) || !even(&std) {
        return Err(Error::Value {
            key: "asd",
            got: format!("{} x {}", std.len(), std.first().map_or(0, Vec::len)),
            rule: format!("expected `am` and `asd` as equal full tables, at least 1 x 1; `am` starts {rows} x {width}"),
        });
    }
    let (mean, std): (Vec<f32>, Vec<f32>) = (mean.concat(), std.concat());
    if let Some(bad) = mean.iter().find(|x| !x.is_finite()) {
        return Err(Error::Value {
            key: "am",
            got: bad.to_string(),
            rule: "expected finite numbers".into(),
        });
    }
    if let Some(bad) = std.iter().find(|x| !(x.is_finite() && **x > 0.0)) {
        return Err(Error::Value {
            key: "asd",
            got: bad.to_string(),
            rule: "expected positive numbers".into(),
        });
    }
    Ok(ActionNorm {
        mean,
        std,
        rows,
        width,
        clip: false,
    })
}

/// `(a + 1)/2·(q99 - q01 + epsilon) + q01` as `a·std + mean`.
fn quantiles(low: Vec<f64>, high: Vec<f64>) -> Result<ActionNorm, Error> {
    range("action_q01", &low, "action_q99", &high)?;
    let half: Vec<f64> = low
        .iter()
        .zip(&high)
        .map(|(l, h)| (h - l + QUANTILE_EPSILON) / 2.0)
        .collect();
    let mean: Vec<f32> = low.iter().zip(&half).map(|(l, s)| (l + s) as f32).collect();
    let std: Vec<f32> = half.iter().map(|s| *s as f32).collect();
    if let Some(i) = (0..std.len()).find(|&i| !(mean[i].is_finite() && std[i].is_finite())) {
        return Err(Error::Value {
            key: "action_q99",
            got: format!("{:e} at {i}", high[i]),
            rule: format!(
                "expected a range whose middle and width fit f32, `action_q01` is {:e}",
                low[i]
            ),
        });
    }
    Ok(ActionNorm {
        mean,
        std,
        rows: 1,
        width: low.len(),
        clip: true,
    })
}
