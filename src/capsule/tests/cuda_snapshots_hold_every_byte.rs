//! Snapshots of a live set on a GPU, in both tiers, with more regions than one launch of the copy kernel takes.

use std::io::Write;

use flashrt_capsule::{Boundary, SnapshotRequest, Store, StoreConfig, Tier};
use flashrt_exec::{Context, Slice, StreamId};
use flashrt_runtime::testing::{ToyOptions, ToyProducer};
use flashrt_runtime::{LiveSet, Producer, StateClass};

/// A context on device 0; `None` where there is none, after saying so. With `FLASHRT_REQUIRE_CUDA` set that is a failure.
fn cuda() -> Option<Context> {
    match Context::cuda(0) {
        Ok(ctx) => Some(ctx),
        Err(e) if e.is_unavailable() && std::env::var_os("FLASHRT_REQUIRE_CUDA").is_none() => {
            let _ = writeln!(std::io::stderr(), "skipped: {e}");
            None
        }
        Err(e) => panic!("{e}"),
    }
}

fn state(live: &LiveSet) -> Vec<Slice> {
    let regions = live.regions().iter();
    regions
        .filter(|r| r.class == StateClass::Continuation)
        .map(|r| r.slice.clone())
        .collect()
}

fn write(ctx: &Context, windows: &[Slice], seed: usize) -> Vec<Vec<u8>> {
    let bytes = |w: &Slice| {
        (0..w.bytes())
            .map(|i| (i * 13 + seed * 7 + w.offset()) as u8)
            .collect()
    };
    let all: Vec<Vec<u8>> = windows.iter().map(bytes).collect();
    for (window, bytes) in windows.iter().zip(&all) {
        ctx.upload(window, bytes).unwrap();
    }
    all
}

fn read(ctx: &Context, windows: &[Slice]) -> Vec<Vec<u8>> {
    let one = |w: &Slice| {
        let mut out = vec![0; w.bytes()];
        ctx.download(w, &mut out).unwrap();
        out
    };
    windows.iter().map(one).collect()
}

#[test]
fn restore_brings_back_every_byte_of_300_regions_from_either_tier() {
    let Some(ctx) = cuda() else { return };
    // An odd length: windows of every alignment.
    for bytes in [1, 1023, 70_001] {
        let options = ToyOptions {
            extra_regions: (300, bytes),
            ..ToyOptions::default()
        };
        let mut live = ToyProducer::new(&ctx, options).build("a").unwrap();
        let mut store = Store::new(StoreConfig {
            device_budget_bytes: 1 << 30,
            host_budget_bytes: 1 << 30,
            capacity: 8,
        });
        // The host state block is the runtime's: it is left alone.
        let windows: Vec<_> = state(&live)
            .into_iter()
            .filter(|w| w.buffer().name() != "host_state")
            .collect();
        assert!(windows.len() > 300);
        let mut saved = Vec::new();
        for (i, tier) in [Tier::Device, Tier::Host].into_iter().enumerate() {
            store.reserve(&live, tier, 1).unwrap();
            saved.push(write(&ctx, &windows, i));
            let request = SnapshotRequest::new(Some(["d", "h"][i]), tier, Boundary::default());
            store.snapshot(&live, &request).unwrap();
        }
        for (name, want) in ["d", "h"].into_iter().zip(&saved) {
            for window in &windows {
                ctx.fill(window, 0xA5, StreamId(0)).unwrap();
            }
            store.restore(name, &mut live, false).unwrap();
            assert!(
                read(&ctx, &windows) == *want,
                "{name}, regions of {bytes} bytes"
            );
        }
    }
}

#[test]
fn a_snapshot_holds_what_the_stream_was_writing_when_it_was_asked_for() {
    let Some(ctx) = cuda() else { return };
    let options = ToyOptions {
        extra_regions: (16, 4 << 20),
        ..ToyOptions::default()
    };
    let mut live = ToyProducer::new(&ctx, options).build("a").unwrap();
    let mut store = Store::new(StoreConfig {
        device_budget_bytes: 1 << 30,
        host_budget_bytes: 1 << 30,
        capacity: 8,
    });
    store.reserve(&live, Tier::Device, 1).unwrap();
    let extra = live
        .buffers()
        .iter()
        .find(|b| b.name() == "extra")
        .unwrap()
        .clone();
    for round in 0..20u8 {
        // Not waited for.
        for value in 0..round {
            ctx.fill(&extra.all(), value, StreamId(0)).unwrap();
        }
        ctx.fill(&extra.all(), 100 + round, StreamId(0)).unwrap();
        let request = SnapshotRequest {
            overwrite: true,
            ..SnapshotRequest::new(Some("x"), Tier::Device, Boundary::default())
        };
        store.snapshot(&live, &request).unwrap();
        // A write that follows must not reach the snapshot.
        ctx.fill(&extra.all(), 0, StreamId(0)).unwrap();
        store.restore("x", &mut live, false).unwrap();
        let mut got = vec![0; extra.bytes()];
        ctx.download(&extra.all(), &mut got).unwrap();
        assert!(got.iter().all(|&b| b == 100 + round), "round {round}");
    }
}
