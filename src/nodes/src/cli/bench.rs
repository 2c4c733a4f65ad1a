//! `flashrt bench`: the time of a tick and of the parts around the model, of a capsule against a plain copy of the same bytes
//! in the same run, and the memory of a long run.

use std::path::Path;
use std::time::Instant;

use anyhow::{ensure, Result};
use flashrt_capsule::{Boundary, SnapshotRequest, Store, StoreConfig, Tier};
use flashrt_runtime::KEY_INHERIT;

use super::output::{self, say};
use super::policy::{plan, Inputs, Policy};
use super::{pipeline, table};

/// Runs before the clock starts.
pub const WARM_UP: usize = 20;
/// Growth of resident memory that still counts as flat: the system maps pages and arenas late.
const FLAT_BYTES: i128 = 1 << 20;
/// What a snapshot and a restore are held against.
const PLAIN_COPY: &str = "memcpy of the same bytes";

/// What to measure.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub enum What {
    /// Inputs set, plan run to its end, actions read.
    Tick,
    /// What is around the model: message to ring, ring to port bytes, chunk to publish.
    Pipeline,
    /// Snapshot and restore, to verified completion.
    Capsule,
    /// Resident memory over --count ticks with snapshots and restores.
    Memory,
}

impl What {
    /// Unit of the table and how many microseconds it has.
    fn unit(self) -> (&'static str, f64) {
        match self {
            What::Tick => ("ms", 1e3),
            What::Pipeline | What::Capsule | What::Memory => ("us", 1.0),
        }
    }
}

/// Times of one thing, microseconds.
pub struct Series {
    name: String,
    micros: Vec<f64>,
    bytes: Option<u64>,
    /// Median over the median of the plain copy in the same run.
    ratio: Option<f64>,
}

impl Series {
    fn measure(
        name: impl Into<String>,
        count: usize,
        mut work: impl FnMut(usize) -> Result<()>,
    ) -> Result<Series> {
        for i in 0..WARM_UP.min(count) {
            work(i)?;
        }
        let mut micros = Vec::with_capacity(count);
        for i in 0..count {
            let start = Instant::now();
            work(WARM_UP + i)?;
            micros.push(start.elapsed().as_secs_f64() * 1e6);
        }
        Ok(Series::of(name.into(), micros))
    }

    /// Times that were taken elsewhere, in any order.
    pub fn of(name: String, mut micros: Vec<f64>) -> Series {
        micros.sort_by(f64::total_cmp);
        Series {
            name,
            micros,
            bytes: None,
            ratio: None,
        }
    }

    /// The same, of so many bytes each.
    pub fn of_bytes(mut self, bytes: u64) -> Series {
        self.bytes = Some(bytes);
        self
    }

    /// The value that this share of the runs did not exceed.
    fn quantile(&self, share: f64) -> f64 {
        let last = self.micros.len().saturating_sub(1);
        self.micros
            .get((last as f64 * share).round() as usize)
            .copied()
            .unwrap_or(f64::NAN)
    }

    fn json(&self) -> serde_json::Value {
        serde_json::json!({
            "name": self.name,
            "count": self.micros.len(),
            "bytes": self.bytes,
            "p50_us": self.quantile(0.5),
            "p99_us": self.quantile(0.99),
            "max_us": self.quantile(1.0),
            "p50_ratio": self.ratio,
        })
    }

    fn row(&self, unit_us: f64) -> Vec<String> {
        let size = self.bytes.map(table::bytes).unwrap_or_default();
        let mut row = vec![self.name.clone(), self.micros.len().to_string(), size];
        row.extend([0.5, 0.99, 1.0].map(|q| {
            let value = self.quantile(q) / unit_us;
            format!("{value:.2}")
        }));
        row.extend(self.ratio.map(|r| format!("{r:.2}")));
        row
    }
}

/// Measures and prints.
///
/// # Errors
/// The deployment cannot be loaded, or a run fails.
pub fn run(what: What, config: &Path, count: usize, is_json: bool) -> Result<()> {
    ensure!(count > 0, "--count must be at least 1");
    let mut policy = Policy::load(config)?;
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
    let (backend, isa, threads) = (
        policy.context.backend(),
        policy.context.isa().to_string(),
        policy.context.threads(),
    );
    let mut memory = None;
    let series = match what {
        What::Tick => ticks(&mut policy, count)?,
        What::Capsule => capsules(&mut policy, count)?,
        What::Pipeline => pipeline::series(engine_config(policy), count)?,
        What::Memory => {
            memory = Some(pipeline::memory(engine_config(policy), count)?);
            Vec::new()
        }
    };
    if is_json {
        let all: Vec<_> = series.iter().map(Series::json).collect();
        let memory = memory.map(|m| {
            serde_json::json!({
                "ticks": m.ticks, "snapshots": m.snapshots, "restores": m.restores,
                "resident_before": m.before, "resident_after": m.after,
                "growth": growth(&m), "is_flat": growth(&m) <= FLAT_BYTES,
            })
        });
        say!(
            "{}",
            serde_json::json!({
                "backend": backend.to_string(), "isa": isa, "threads": threads, "cores": cores,
                "warm_up": WARM_UP, "series": all, "memory": memory,
            })
        );
        return Ok(());
    }
    say!("{backend}, {isa}, {threads} threads on {cores} cores, {WARM_UP} runs of warm-up");
    if let Some(m) = memory {
        say!(
            "resident memory over {} ticks, {} snapshots, {} restores: {} KiB before, {} KiB after, growth {} KiB: {}",
            m.ticks,
            m.snapshots,
            m.restores,
            m.before / 1024,
            m.after / 1024,
            growth(&m) / 1024,
            if growth(&m) <= FLAT_BYTES { "flat" } else { "not flat" }
        );
        return Ok(());
    }
    let (unit, unit_us) = what.unit();
    let [p50, p99, max] = ["p50", "p99", "max"].map(|q| format!("{q} {unit}"));
    let mut head = vec!["what", "runs", "size", &p50, &p99, &max];
    if series.iter().any(|s| s.ratio.is_some()) {
        head.push("p50 / memcpy");
    }
    output::print(format_args!(
        "{}",
        table::plain(&head, series.iter().map(|s| s.row(unit_us)))
    ))
}

/// Bytes by which the resident memory grew.
fn growth(memory: &pipeline::Memory) -> i128 {
    i128::from(memory.after) - i128::from(memory.before)
}

/// The deployment file alone: the engine loads a model of its own, and two would be in memory.
fn engine_config(policy: Policy) -> flashrt_session::Config {
    policy.config
}

fn ticks(policy: &mut Policy, count: usize) -> Result<Vec<Series>> {
    let prompt = policy.config.prompt.text.clone();
    let (keys, plans) = (policy.keys(), policy.plans());
    let live = &mut policy.model.sets[0];
    let mut inputs = Inputs::new(live)?;
    inputs.prompt(live, &prompt)?;
    let mut all = Vec::new();
    for (key, key_name) in keys {
        for (name, is_input_new) in &plans {
            let id = plan(live, name)?;
            all.push(Series::measure(
                format!("tick, plan {name}, {key_name}"),
                count,
                |i| {
                    if *is_input_new {
                        inputs.set(live, i as u64)?;
                    }
                    inputs.tick(live, id, key)
                },
            )?);
        }
    }
    all.push(Series::measure(
        "images and state into the ports",
        count,
        |i| inputs.set(live, i as u64),
    )?);
    Ok(all)
}

fn capsules(policy: &mut Policy, count: usize) -> Result<Vec<Series>> {
    let prompt = policy.config.prompt.text.clone();
    let plans = policy.plans();
    let live = &mut policy.model.sets[0];
    ensure!(
        policy.config.model.native.is_none() || live.regions().len() > 1,
        "the native model has no regions that can be saved: there are no capsules to time"
    );
    let mut inputs = Inputs::new(live)?;
    inputs.prompt(live, &prompt)?;
    inputs.set(live, 0)?;
    let id = plan(live, &plans[0].0)?;
    inputs.tick(live, id, KEY_INHERIT)?;

    let mut all = Vec::new();
    for tier in [Tier::Device, Tier::Host] {
        let mut store = Store::new(StoreConfig {
            device_budget_bytes: u64::MAX,
            host_budget_bytes: u64::MAX,
            capacity: 4,
        });
        store.reserve(live, tier, 2)?;
        let mut request = SnapshotRequest::new(Some("bench"), tier, Boundary::default());
        request.overwrite = true;
        let bytes = store.snapshot(live, &request)?.bytes;
        all.push(
            Series::measure(format!("snapshot, {tier} tier"), count, |_| {
                store.snapshot(live, &request)?;
                Ok(())
            })?
            .of_bytes(bytes),
        );
        all.push(
            Series::measure(format!("restore, {tier} tier"), count, |_| {
                store.restore("bench", live, false)?;
                Ok(())
            })?
            .of_bytes(bytes),
        );
        if matches!(tier, Tier::Device) {
            let source = vec![0x5A_u8; usize::try_from(bytes)?];
            let mut target = vec![0_u8; source.len()];
            all.push(
                Series::measure(PLAIN_COPY, count, |_| {
                    target.copy_from_slice(std::hint::black_box(&source));
                    std::hint::black_box(&mut target);
                    Ok(())
                })?
                .of_bytes(bytes),
            );
        }
    }
    let copy_us = all
        .iter()
        .find(|s| s.name == PLAIN_COPY)
        .map(|s| s.quantile(0.5));
    for series in &mut all {
        series.ratio = copy_us.map(|copy_us| series.quantile(0.5) / copy_us);
    }
    Ok(all)
}
