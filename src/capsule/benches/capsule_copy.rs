//! Snapshot and restore against a plain memcpy of the same bytes, in one run.
//!
//! The set has 200 extra regions of 64 KiB next to its own; CPU backend. A snapshot is timed from the call to its verified
//! completion. `memcpy` copies the same bytes between two host blocks, region by region in the first row and as one block in
//! the second.

use criterion::{criterion_group, criterion_main, Criterion, Throughput};
use flashrt_capsule::{Boundary, SnapshotRequest, Store, StoreConfig, Tier};
use flashrt_exec::CpuOptions;
use flashrt_runtime::testing::{ToyOptions, ToyProducer};
use flashrt_runtime::{Context, Producer};

const REGIONS: usize = 200;

fn copies(c: &mut Criterion) {
    for bytes in [4 << 10, 64 << 10] {
        let ctx = Context::cpu(CpuOptions {
            threads: 1,
            ..CpuOptions::default()
        })
        .expect("cpu context");
        let options = ToyOptions {
            extra_regions: (REGIONS, bytes),
            ..ToyOptions::default()
        };
        let mut live = ToyProducer::new(&ctx, options).build("bench").expect("toy");
        let mut store = Store::new(StoreConfig {
            device_budget_bytes: 1 << 30,
            host_budget_bytes: 1 << 30,
            capacity: 4,
        });
        let mut group = c.benchmark_group(format!("capsule/cpu/{REGIONS}x{}KiB", bytes >> 10));
        for tier in [Tier::Device, Tier::Host] {
            let request = SnapshotRequest {
                overwrite: true,
                ..SnapshotRequest::new(Some("bench"), tier, Boundary::default())
            };
            store.reserve(&live, tier, 2).expect("memory");
            let total = store.snapshot(&live, &request).expect("snapshot").bytes;
            group.throughput(Throughput::Bytes(total));
            group.bench_function(format!("snapshot/{tier}"), |b| {
                b.iter(|| store.snapshot(&live, &request).expect("snapshot"));
            });
            group.bench_function(format!("restore/{tier}"), |b| {
                b.iter(|| store.restore("bench", &mut live, false).expect("restore"));
            });
            store.drop_capsule("bench").expect("drop");
        }
        let sizes: Vec<usize> = live
            .regions()
            .iter()
            .filter(|r| r.class == flashrt_capsule::StateClass::Continuation)
            .map(|r| r.slice.bytes())
            .collect();
        let total: usize = sizes.iter().sum();
        let (src, mut dst) = (vec![1u8; total], vec![0u8; total]);
        group.bench_function("memcpy/by region", |b| {
            b.iter(|| {
                let mut at = 0;
                for n in &sizes {
                    dst[at..at + n].copy_from_slice(&src[at..at + n]);
                    at += n;
                }
                std::hint::black_box(&mut dst);
            });
        });
        group.bench_function("memcpy/one block", |b| {
            b.iter(|| {
                dst.copy_from_slice(&src);
                std::hint::black_box(&mut dst);
            });
        });
        group.finish();
    }
}

criterion_group!(benches, copies);
criterion_main!(benches);
