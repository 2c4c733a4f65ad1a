//! A blob is read and written byte for byte as the published table says.

mod capsule_support;
use capsule_support::*;

/// Regions of 3, 0 and 5 bytes, meta of 2, host tier, written by hand from the table.
#[cfg(target_endian = "little")]
const GOLDEN: &[u8] = &[
    0x53, 0x50, 0x41, 0x43, // 0: magic
    0x01, 0x00, 0x00, 0x00, // 4: version
    0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, // 8: fingerprint
    0x01, 0x00, 0x00, 0x00, // 16: tier
    0x03, 0x00, 0x00, 0x00, // 20: regions
    0x02, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, // 24: bytes of the meta
    0x03, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, // 32: bytes of the regions
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, //
    0x05, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, //
    0xa0, 0xa1, // 56: meta
    0x11, 0x12, 0x13, // 58: the regions
    0x21, 0x22, 0x23, 0x24, 0x25,
];

#[test]
fn a_snapshot_is_written_as_the_table_says() {
    let core = Core::default();
    let a = core.fake.buffer(&[0x10, 0x11, 0x12, 0x13, 0x14]);
    let b = core.fake.buffer(&[0x21, 0x22, 0x23, 0x24, 0x25]);
    let regions = [region(a, 1, 3), region(b, 5, 0), region(b, 0, 5)];
    let capsule = core.snapshot(&regions, &[0xa0, 0xa1], HOST, 0);
    assert_eq!(core.size(capsule), Ok(66));
    assert_eq!(core.serialize(capsule).unwrap(), GOLDEN);
}

#[test]
fn the_tier_is_written_as_it_is_at_that_time() {
    let core = Core::default();
    let buffer = core.fake.buffer(&[7; 4]);
    for tier in [GPU, HOST, DISK] {
        let capsule = core.snapshot(&[region(buffer, 0, 4)], &[], tier, 0);
        assert_eq!(core.serialize(capsule).unwrap()[16..20], tier.to_le_bytes());
        let other = (tier + 1) % 3;
        assert_eq!(core.tier_move(capsule, other, 0), OK);
        assert_eq!(
            core.serialize(capsule).unwrap()[16..20],
            other.to_le_bytes()
        );
    }
}

#[test]
fn a_blob_of_that_table_is_loaded_and_restored_into_windows() {
    let core = Core::default();
    let capsule = core.load(GOLDEN);
    assert!(!capsule.is_null(), "{}", text());
    assert_eq!(flashrt_capi::cap_load_status(), OK);
    assert_eq!(core.meta(capsule).unwrap(), [0xa0, 0xa1]);
    let sizes: Vec<_> = core.regions(capsule).unwrap().iter().map(|r| r.1).collect();
    assert_eq!(sizes, [3, 0, 5]);
    assert_eq!(
        core.fake.allocations(),
        [
            (1, vec![0x11, 0x12, 0x13]),
            (1, vec![0x21, 0x22, 0x23, 0x24, 0x25])
        ]
    );
    let live = core.fake.buffer(&[0; 12]);
    let windows = [region(live, 8, 4), region(live, 0, 0), region(live, 1, 5)];
    assert_eq!(core.restore_into(capsule, &windows, 0), OK);
    assert_eq!(core.sync(0), OK);
    let expected = [0, 0x21, 0x22, 0x23, 0x24, 0x25, 0, 0, 0x11, 0x12, 0x13, 0];
    assert_eq!(core.fake.read(live), expected);
    // And written again as it came.
    assert_eq!(core.serialize(capsule).unwrap(), GOLDEN);
}

#[test]
fn a_blob_of_another_tier_becomes_host_memory() {
    let core = Core::default();
    for tier in [0u8, 2, 77] {
        let mut blob = GOLDEN.to_vec();
        blob[16] = tier;
        let capsule = core.load(&blob);
        assert!(core.fake.allocations().iter().all(|a| a.0 == 1));
        assert_eq!(core.serialize(capsule).unwrap(), GOLDEN);
        core.discard(capsule);
    }
}

#[test]
fn a_capsule_without_regions_and_meta_is_a_header() {
    let core = Core::default();
    let capsule = core.snapshot(&[], &[], GPU, 0);
    let blob = core.serialize(capsule).unwrap();
    assert_eq!(blob.len(), 32);
    let loaded = core.load(&blob);
    assert_eq!(core.meta(loaded).unwrap(), []);
    assert_eq!(core.regions(loaded).unwrap(), []);
    assert_eq!(core.restore(capsule, 0), OK);
}
