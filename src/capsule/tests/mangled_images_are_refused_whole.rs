//! Capsule data from outside, changed at random: refused with the live set and the store as they were, or taken exactly.

mod common;
use common::*;
use flashrt_capsule::{CapsuleImage, RegionEntry, RegionImage, Tier};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Change {
    Drop(usize),
    Double(usize),
    Swap(usize, usize),
    Cut(usize, usize),
    Grow(usize),
    Entry(usize, u64, u64),
    Name(usize, String),
    Identity(usize, u8),
    Fingerprint(u64),
    Add,
}

fn change() -> impl Strategy<Value = Change> {
    let i = 0usize..16;
    let edge = prop_oneof![
        Just(0),
        Just(1),
        Just(u64::MAX),
        Just(1 << 63),
        any::<u64>()
    ];
    prop_oneof![
        i.clone().prop_map(Change::Drop),
        i.clone().prop_map(Change::Double),
        (i.clone(), i.clone()).prop_map(|(a, b)| Change::Swap(a, b)),
        (i.clone(), 1usize..5000).prop_map(|(a, b)| Change::Cut(a, b)),
        i.clone().prop_map(Change::Grow),
        (i.clone(), edge.clone(), edge).prop_map(|(i, a, b)| Change::Entry(i, a, b)),
        (i.clone(), "\\PC{0,12}").prop_map(|(i, n)| Change::Name(i, n)),
        (0usize..5000, any::<u8>()).prop_map(|(i, b)| Change::Identity(i, b)),
        any::<u64>().prop_map(Change::Fingerprint),
        Just(Change::Add),
    ]
}

fn apply(image: &mut CapsuleImage, change: &Change) {
    let count = image.regions.len().max(1);
    let r = &mut image.regions;
    match change {
        _ if r.is_empty() => {}
        Change::Drop(i) => drop(r.remove(i % count)),
        Change::Double(i) => r.push(r[i % count].clone()),
        Change::Swap(a, b) => r.swap(a % count, b % count),
        Change::Cut(i, n) => {
            let data = &mut r[i % count].data;
            let length = data.len().saturating_sub(*n);
            data.truncate(length);
        }
        Change::Grow(i) => r[i % count].data.push(1),
        Change::Entry(i, offset, bytes) => {
            (r[i % count].entry.offset, r[i % count].entry.bytes) = (*offset, *bytes);
        }
        Change::Name(i, name) => r[i % count].entry.name.clone_from(name),
        Change::Identity(i, b) => {
            let length = image.identity.len().max(1);
            if let Some(byte) = image.identity.get_mut(i % length) {
                *byte = *b;
            }
        }
        Change::Fingerprint(f) => image.fingerprint = *f,
        Change::Add => r.push(RegionImage {
            entry: RegionEntry {
                name: "more".into(),
                buffer: "more".into(),
                offset: u64::MAX,
                bytes: u64::MAX,
            },
            data: Vec::new(),
        }),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_change(changes in prop::collection::vec(change(), 1..4)) {
        let mut live = one();
        run(&mut live, 0..2);
        let mut store = store();
        store.snapshot(&live, &named("good")).unwrap();
        let good = store.export("good", &live).unwrap();
        let mut bad = good.clone();
        changes.iter().for_each(|c| apply(&mut bad, c));
        run(&mut live, 2..4);
        let before = image(&live);
        let usage = store.usage();
        match store.import("bad", &bad, Tier::Host, &live) {
            Ok(_) => {
                // Same table and sizes, or whole regions left out: what went in comes out.
                prop_assert_eq!(&store.export("bad", &live).unwrap(), &bad);
                let is_partial = bad.regions.iter().any(|r| r.data.is_empty() && r.entry.bytes > 0);
                prop_assert_eq!(store.restore("bad", &mut live, false).is_ok(), !is_partial);
            }
            Err(error) => {
                prop_assert!(error.to_string().len() < 4000);
                prop_assert_eq!(store.list().len(), 1);
                prop_assert_eq!(store.usage(), usage);
                prop_assert_eq!(image(&live), before);
                store.restore("good", &mut live, false).unwrap();
            }
        }
    }
}
