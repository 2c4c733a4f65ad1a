//! Snapshot and restore against one plain copy of the same bytes, on a GPU and on the CPU, in one run.
//!
//! `cargo run --release -p flashrt-capsule --example gpu_bench_capsule [-- cuda|cpu] [MOST_MIB]`
//!
//! A live set has so many equal regions beside some small ones of its own. An operation is timed from the call to its completion, in
//! turn with the plain copy: device to device for the device tier, device to and from pinned memory for the host tier. After the
//! timing the state is overwritten, restored and compared. Prints one JSON object.

use std::time::Instant;

use flashrt_capsule::{Boundary, SnapshotRequest, Store, StoreConfig, Tier};
use flashrt_exec::{Buffer, Context, CpuOptions, Space, StreamId};
use flashrt_runtime::testing::{ToyOptions, ToyProducer};
use flashrt_runtime::{LiveSet, Producer};

type Error = Box<dyn std::error::Error>;

const S0: StreamId = StreamId(0);
const SIZES: [usize; 6] = [1, 8, 90, 168, 360, 1024];
const REGIONS: [usize; 3] = [1, 16, 200];

fn main() -> Result<(), Error> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let most = words.iter().find_map(|w| w.parse().ok()).unwrap_or(360);
    let ctx = match words.iter().any(|w| w == "cpu") {
        true => Context::cpu(CpuOptions::default())?,
        false => Context::cuda(0)?,
    };
    let mut rows = Vec::new();
    for mib in SIZES.into_iter().filter(|&mib| mib <= most) {
        for regions in REGIONS {
            measure(&ctx, mib, regions, &mut rows)?;
        }
    }
    println!(
        "{{\"bench\": \"capsule, backend {}\", \"device\": \"{}\", \"rows\": [\n{}\n]}}",
        ctx.backend(),
        ctx.isa(),
        rows.join(",\n")
    );
    Ok(())
}

fn measure(ctx: &Context, mib: usize, regions: usize, rows: &mut Vec<String>) -> Result<(), Error> {
    // Regions of a model start on the alignment of its buffers.
    let each = ((mib << 20) / regions) & !255;
    let options = ToyOptions {
        extra_regions: (regions, each),
        ..ToyOptions::default()
    };
    let mut live = ToyProducer::new(ctx, options).build("bench")?;
    let mut store = Store::new(StoreConfig {
        device_budget_bytes: 4 << 30,
        host_budget_bytes: 4 << 30,
        capacity: 4,
    });
    let state = live
        .buffers()
        .iter()
        .find(|b| b.name() == "extra")
        .ok_or("no state")?
        .clone();
    let pattern: Vec<u8> = (0..state.bytes())
        .map(|i| (i * 7 + i / 4099) as u8)
        .collect();
    ctx.upload(&state.all(), &pattern)?;
    for tier in [Tier::Device, Tier::Host] {
        let request = SnapshotRequest {
            overwrite: true,
            ..SnapshotRequest::new(Some("bench"), tier, Boundary::default())
        };
        store.reserve(&live, tier, 2)?;
        let bytes = store.snapshot(&live, &request)?.bytes;
        let space = match tier {
            Tier::Host => Space::Host,
            _ => Space::Device,
        };
        let plain = ctx.alloc("plain", space, state.bytes())?;
        let count = if mib >= 360 { 50 } else { 200 };
        for op in ["snapshot", "restore"] {
            let is_snapshot = op == "snapshot";
            let (mut ours, mut copies) = (Vec::new(), Vec::new());
            for i in 0..count + 10 {
                let ours_us = timed(|| match is_snapshot {
                    true => store.snapshot(&live, &request).map(drop),
                    false => store.restore("bench", &mut live, false).map(drop),
                })?;
                let copy_us = timed(|| copy(ctx, &state, &plain, is_snapshot))?;
                if i >= 10 {
                    ours.push(ours_us);
                    copies.push(copy_us);
                }
            }
            verify(ctx, &mut live, &mut store, &state, &pattern)?;
            rows.push(row(tier, op, mib, regions, bytes, ours, copies));
        }
        store.drop_capsule("bench")?;
    }
    Ok(())
}

fn copy(ctx: &Context, state: &Buffer, plain: &Buffer, out: bool) -> Result<(), Error> {
    match out {
        true => ctx.copy(&plain.all(), &state.all(), S0)?,
        false => ctx.copy(&state.all(), &plain.all(), S0)?,
    }
    Ok(ctx.synchronize(S0)?)
}

/// Overwrites the state, restores it and compares every byte.
fn verify(
    ctx: &Context,
    live: &mut LiveSet,
    store: &mut Store,
    state: &Buffer,
    pattern: &[u8],
) -> Result<(), Error> {
    ctx.upload(&state.all(), pattern)?;
    store.snapshot(
        live,
        &SnapshotRequest {
            overwrite: true,
            ..SnapshotRequest::new(Some("bench"), store.list()[0].tier, Boundary::default())
        },
    )?;
    ctx.fill(&state.all(), 0xA5, S0)?;
    store.restore("bench", live, false)?;
    let mut got = vec![0; state.bytes()];
    ctx.download(&state.all(), &mut got)?;
    match got == pattern {
        true => Ok(()),
        false => Err("restored bytes differ".into()),
    }
}

fn timed<E>(work: impl FnOnce() -> Result<(), E>) -> Result<f64, E> {
    let begin = Instant::now();
    work()?;
    Ok(begin.elapsed().as_secs_f64() * 1e6)
}

fn row(
    tier: Tier,
    op: &str,
    mib: usize,
    regions: usize,
    bytes: u64,
    mut ours: Vec<f64>,
    mut copies: Vec<f64>,
) -> String {
    ours.sort_by(f64::total_cmp);
    copies.sort_by(f64::total_cmp);
    let at = |all: &[f64], share: f64| all[((all.len() - 1) as f64 * share).round() as usize];
    let (p50, copy) = (at(&ours, 0.5), at(&copies, 0.5));
    format!(
        "{{\"tier\": \"{tier}\", \"op\": \"{op}\", \"mib\": {mib}, \"regions\": {regions}, \"us_p50\": {p50:.1}, \
         \"us_p99\": {:.1}, \"us_max\": {:.1}, \"n\": {}, \"copy_us_p50\": {copy:.1}, \"ratio_to_copy\": {:.3}, \
         \"gb_per_s\": {:.1}}}",
        at(&ours, 0.99),
        at(&ours, 1.0),
        ours.len(),
        p50 / copy,
        bytes as f64 / p50 / 1e3
    )
}
