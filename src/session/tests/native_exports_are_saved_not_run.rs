//! A library that gives an export alone: its regions are saved and restored through its execution library, a node refuses it.

mod common;
#[path = "../../../test/support/producers.rs"]
mod producers;

use std::sync::Arc;

use common::*;
use flashrt_capsule::{Boundary, SnapshotRequest, Store, StoreConfig, Tier};
use flashrt_runtime::{ForeignLibrary, ForeignProducer, LiveSet, PlanId, Producer, KEY_INHERIT};
use flashrt_session::*;
use producers::*;

fn noise(set: &LiveSet) -> Vec<u8> {
    let region = set.regions().iter().find(|r| r.name == "rollout").unwrap();
    let mut bytes = vec![0; region.slice.bytes()];
    set.context().download(&region.slice, &mut bytes).unwrap();
    bytes
}

#[test]
fn the_regions_of_an_export_are_saved_and_restored() {
    let library = Library::of(Which::Export);
    let model = ForeignLibrary::open(&library.path, r#"{"seed": 4}"#).unwrap();
    assert!(model.is_export_only());
    assert_eq!(model.declaration().graphs.len(), 2);
    let mut set = ForeignProducer::new(model).build("main").unwrap();
    let first = Oracle::new(4).noise_bytes();
    assert_eq!(noise(&set), first);
    for tier in [Tier::Device, Tier::Host] {
        let mut store = Store::new(StoreConfig::default());
        let request = SnapshotRequest::new(Some("a"), tier, Boundary::default());
        store.snapshot(&set, &request).unwrap();
        let slice = set.regions()[0].slice.clone();
        set.context().upload(&slice, &[9; 96]).unwrap();
        assert_eq!(noise(&set), [9; 96]);
        store.restore("a", &mut set, false).unwrap();
        assert_eq!(noise(&set), first, "{tier:?}");
    }
    let e = set.run(PlanId(0), KEY_INHERIT).unwrap_err();
    assert!(e.is_not_found() && !set.is_poisoned(), "{e}");
    drop(set);
    assert!(!library.is_loaded());
}

#[test]
fn a_node_refuses_an_export_and_says_why() {
    let library = Library::of(Which::Export);
    let engine = Engine::new(FakeClock::new(), Arc::new(Recorder::default()));
    let yaml = toy_yaml(
        "{mode: trigger}",
        "{control_rate_hz: 10}",
        "{topic: c, limits: 'off', max_step: 'off'}",
    )
    .replace("sessions: [main, alt]\n", "")
    .replace(
        "builtin: pi05, weights: nowhere",
        &format!("library: {}", library.path.display()),
    );
    let e = engine.configure(config(&yaml)).unwrap_err();
    assert_eq!(e.code, ResultCode::Unsupported);
    assert!(e.message.contains("export without ports"), "{e}");
    assert!(!library.is_loaded());
}
