//! `flashrt bench`: the time of a tick, and of a capsule against a plain copy of the same bytes in the same run.

use std::path::Path;
use std::time::Instant;

use anyhow::{ensure, Result};
use flashrt_capsule::{Boundary, SnapshotRequest, Store, StoreConfig, Tier};
use flashrt_runtime::KEY_INHERIT;

use super::output::{self, say};
use super::policy::{plan, Inputs, Policy};
use super::table;

/// Runs before the clock starts.
const WARM_UP: usize = 20;

/// What to measure.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub enum What {
    /// Inputs set, plan run to its end, actions read.
    Tick,
    /// Snapshot and restore, to verified completion.
    Capsule,
}

/// Times of one thing, microseconds.
struct Series {
    name: String,
    micros: Vec<f64>,
    bytes: Option<u64>,
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
        micros.sort_by(f64::total_cmp);
        Ok(Series {
            name: name.into(),
            micros,
            bytes: None,
        })
    }

    fn of_bytes(mut self, bytes: u64) -> Series {
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
        })
    }

    fn row(&self) -> Vec<String> {
        let size = self.bytes.map(table::bytes).unwrap_or_default();
        let mut row = vec![self.name.clone(), self.micros.len().to_string(), size];
        row.extend([0.5, 0.99, 1.0].map(|q| format!("{:.3}", self.quantile(q) / 1e3)));
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
    let series = match what {
        What::Tick => ticks(&mut policy, count)?,
        What::Capsule => capsules(&mut policy, count)?,
    };
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
    let (backend, isa, threads) = (
        policy.context.backend(),
        policy.context.isa(),
        policy.context.threads(),
    );
    if is_json {
        let all: Vec<_> = series.iter().map(Series::json).collect();
        say!(
            "{}",
            serde_json::json!({
                "backend": backend.to_string(), "isa": isa, "threads": threads, "cores": cores,
                "warm_up": WARM_UP, "series": all,
            })
        );
    } else {
        say!("{backend}, {isa}, {threads} threads on {cores} cores, {WARM_UP} runs of warm-up");
        output::print(format_args!(
            "{}",
            table::plain(
                &["what", "runs", "size", "p50 ms", "p99 ms", "max ms"],
                series.iter().map(Series::row)
            )
        ))?;
    }
    Ok(())
}

fn ticks(policy: &mut Policy, count: usize) -> Result<Vec<Series>> {
    let prompt = policy.config.prompt.text.clone();
    let keys = policy.config.model.flow_steps.clone();
    let live = &mut policy.model.sets[0];
    let mut inputs = Inputs::new(live)?;
    inputs.prompt(live, &prompt)?;
    let mut all = Vec::new();
    for key in keys {
        for (name, is_input_new) in [("full", true), ("action", false)] {
            let id = plan(live, name)?;
            all.push(Series::measure(
                format!("tick, plan {name}, {key} flow steps"),
                count,
                |i| {
                    if is_input_new {
                        inputs.set(live, i as u64)?;
                    }
                    inputs.tick(live, id, u64::from(key))
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
    let live = &mut policy.model.sets[0];
    let mut inputs = Inputs::new(live)?;
    inputs.prompt(live, &prompt)?;
    inputs.set(live, 0)?;
    let id = plan(live, "full")?;
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
                Series::measure("memcpy of the same bytes", count, |_| {
                    target.copy_from_slice(std::hint::black_box(&source));
                    std::hint::black_box(&mut target);
                    Ok(())
                })?
                .of_bytes(bytes),
            );
        }
    }
    Ok(all)
}
