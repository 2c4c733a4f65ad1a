//! Latency statistics in fixed memory: a histogram with 32 buckets per octave, read and written without a lock.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const SUB_BITS: u32 = 5;
const SUB: usize = 1 << SUB_BITS;
/// 40 octaves above the linear part: up to about 2^45 ns, ten hours.
const BUCKETS: usize = SUB * 41;

/// Counts durations. A percentile is exact within 1/32 of its value.
#[derive(Debug)]
pub struct Latency {
    counts: Box<[AtomicU64]>,
    total: AtomicU64,
    max_ns: AtomicU64,
    last_ns: AtomicU64,
}

impl Default for Latency {
    fn default() -> Self {
        Latency {
            counts: (0..BUCKETS).map(|_| AtomicU64::new(0)).collect(),
            total: AtomicU64::new(0),
            max_ns: AtomicU64::new(0),
            last_ns: AtomicU64::new(0),
        }
    }
}

fn bucket(ns: u64) -> usize {
    if ns < SUB as u64 {
        return ns as usize;
    }
    let octave = 63 - ns.leading_zeros() - SUB_BITS;
    let sub = (ns >> octave) as usize - SUB;
    (SUB + octave as usize * SUB + sub).min(BUCKETS - 1)
}

/// Largest duration that falls into a bucket.
fn upper(index: usize) -> u64 {
    if index < SUB {
        return index as u64;
    }
    let octave = (index - SUB) / SUB;
    let sub = ((index - SUB) % SUB) as u64;
    ((SUB as u64 + sub + 1) << octave) - 1
}

impl Latency {
    /// Counts one duration. No allocation, no lock.
    pub fn record(&self, ns: u64) {
        self.counts[bucket(ns)].fetch_add(1, Relaxed);
        self.total.fetch_add(1, Relaxed);
        self.max_ns.fetch_max(ns, Relaxed);
        self.last_ns.store(ns, Relaxed);
    }

    /// Durations counted.
    pub fn count(&self) -> u64 {
        self.total.load(Relaxed)
    }

    /// Milliseconds below or at which the fraction `p` (0..1) of durations lies; 0 when there is none.
    pub fn percentile_ms(&self, p: f64) -> f64 {
        let total: u64 = self.counts.iter().map(|c| c.load(Relaxed)).sum();
        let rank = ((total as f64 * p).ceil() as u64).clamp(1, total.max(1));
        let mut seen = 0;
        for (index, count) in self.counts.iter().enumerate() {
            seen += count.load(Relaxed);
            if total > 0 && seen >= rank {
                return upper(index).min(self.max_ns.load(Relaxed)) as f64 / 1e6;
            }
        }
        0.0
    }

    /// The largest, in milliseconds.
    pub fn max_ms(&self) -> f64 {
        self.max_ns.load(Relaxed) as f64 / 1e6
    }

    /// The newest, in milliseconds.
    pub fn last_ms(&self) -> f64 {
        self.last_ns.load(Relaxed) as f64 / 1e6
    }
}
