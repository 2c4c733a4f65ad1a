//! A library with an export alone: described and opened, never run.

mod foreign;
use flashrt_runtime::{ForeignProducer, Producer, KEY_INHERIT};

#[test]
fn an_export_is_described_and_has_no_plan() {
    let native = foreign::export_fixture();
    let model = native.open("regions-out-of-reach").unwrap();
    assert!(model.is_export_only());
    assert_eq!(model.declaration().regions[0].name, "memory");
    assert!(model.declaration().ports.is_empty());
    let mut set = ForeignProducer::new(model).build("main").unwrap();
    assert_eq!(set.default_plan(), None);
    assert!(set.plans().is_empty());
    let e = set
        .run(flashrt_runtime::PlanId(0), KEY_INHERIT)
        .unwrap_err();
    assert!(e.is_not_found() && !set.is_poisoned(), "{e}");
    drop(set);
    assert_eq!((native.count("release"), native.count("unload")), (1, 1));
}

#[test]
fn a_broken_export_is_refused_and_given_back() {
    let native = foreign::export_fixture();
    let e = native.open("fingerprint-off").err().unwrap().to_string();
    assert!(e.contains("fingerprint"), "{e}");
    assert_eq!((native.count("release"), native.count("unload")), (1, 1));
    let native = foreign::export_fixture();
    assert!(native.open("streams-null").is_err());
    assert_eq!((native.count("release"), native.count("unload")), (1, 1));
    let native = foreign::export_fixture();
    assert!(native.open("export-size").is_err());
    assert_eq!(native.count("release"), 0);
}
