//! Toy live sets for the tests of this crate.
#![allow(dead_code)] // each test file uses its part

use flashrt_capsule::{Boundary, SnapshotRequest, Store, StoreConfig, Tier};
use flashrt_exec::CpuOptions;
use flashrt_runtime::testing::{tick, ToyOptions, ToyProducer};
use flashrt_runtime::{Context, LiveSet, Model};

pub fn context() -> Context {
    Context::cpu(CpuOptions {
        threads: 1,
        ..CpuOptions::default()
    })
    .unwrap()
}

pub fn open_with(options: ToyOptions, names: &[&str]) -> Model {
    let names: Vec<String> = names.iter().map(|n| n.to_string()).collect();
    Model::open(Box::new(ToyProducer::new(&context(), options)), &names).unwrap()
}

pub fn open(names: &[&str]) -> Model {
    open_with(ToyOptions::default(), names)
}

pub fn one() -> LiveSet {
    open(&["main"]).sets.remove(0)
}

pub fn store() -> Store {
    Store::new(StoreConfig::default())
}

/// Output bytes of these ticks on the staged plan.
pub fn run(live: &mut LiveSet, ticks: std::ops::Range<u64>) -> Vec<u8> {
    ticks
        .flat_map(|t| tick(live, "context_action", 10, t).unwrap())
        .collect()
}

/// All bytes of all buffers of the set.
pub fn image(live: &LiveSet) -> Vec<u8> {
    let mut out = Vec::new();
    for b in live.buffers() {
        let mut bytes = vec![0; b.bytes()];
        live.context().download(&b.all(), &mut bytes).unwrap();
        out.extend(bytes);
    }
    out
}

pub fn at(tick: u64, steady_ms: u64) -> Boundary {
    Boundary {
        tick,
        epoch: 1,
        steady_ns: steady_ms * 1_000_000,
        ros_ns: 0,
    }
}

pub fn named(name: &str) -> SnapshotRequest<'_> {
    SnapshotRequest::new(Some(name), Tier::Host, Boundary::default())
}

pub fn unnamed() -> SnapshotRequest<'static> {
    SnapshotRequest::new(None, Tier::Host, Boundary::default())
}
