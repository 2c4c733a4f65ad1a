//! A blob with anything out of order gives no capsule, takes nothing from the backend, and says why.

mod capsule_support;
use capsule_support::*;
use flashrt_capi::{cap_load, cap_load_status};
use std::ptr::null;

fn blob(core: &Core) -> Vec<u8> {
    let a = core.fake.buffer(&[1, 2, 3]);
    let b = core.fake.buffer(&[4, 5, 6, 7]);
    let capsule = core.snapshot(&[region(a, 0, 3), region(b, 0, 4)], b"meta", HOST, 0);
    let blob = core.serialize(capsule).unwrap();
    core.discard(capsule);
    core.fake.calls();
    blob
}

/// Status and text of a load that must fail.
fn refused(core: &Core, blob: &[u8]) -> (i32, String) {
    assert!(core.load(blob).is_null());
    assert_eq!(core.fake.allocations(), []);
    let calls = core.fake.calls();
    assert!(calls.iter().all(|&call| call == "fingerprint"), "{calls:?}");
    (cap_load_status(), text())
}

fn edited(blob: &[u8], at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut blob = blob.to_vec();
    blob[at..at + bytes.len()].copy_from_slice(bytes);
    blob
}

#[test]
fn every_truncation_is_a_format_error() {
    let core = Core::default();
    let blob = blob(&core);
    for len in 0..blob.len() {
        assert_eq!(refused(&core, &blob[..len]).0, FORMAT, "{len} bytes");
    }
}

#[test]
fn trailing_bytes_are_a_format_error() {
    let core = Core::default();
    let mut blob = blob(&core);
    blob.push(0);
    let (status, text) = refused(&core, &blob);
    assert_eq!(status, FORMAT);
    assert_eq!(text, "cap_load: 60 bytes, expected 59 by its own sizes");
}

#[test]
fn another_magic_is_a_format_error() {
    let core = Core::default();
    let blob = blob(&core);
    for bit in 0..32 {
        let byte = [blob[bit / 8] ^ (1 << (bit % 8))];
        assert_eq!(refused(&core, &edited(&blob, bit / 8, &byte)).0, FORMAT);
    }
}

#[test]
fn another_version_is_a_version_error() {
    let core = Core::default();
    let blob = blob(&core);
    for version in [0, 2, 1 << 24, u32::MAX] {
        let (status, text) = refused(&core, &edited(&blob, 4, &version.to_ne_bytes()));
        assert_eq!(status, VERSION);
        assert_eq!(
            text,
            format!("cap_load: blob version {version}, expected 1")
        );
    }
}

#[test]
fn another_fingerprint_is_a_fingerprint_error_that_shows_both() {
    let core = Core::default();
    let blob = blob(&core);
    core.fake.with(|state| state.fingerprint = 7);
    let (status, text) = refused(&core, &blob);
    assert_eq!(status, FINGERPRINT);
    assert_eq!(
        text,
        "cap_load: made under fingerprint 0x1122334455667788, the backend has 0x0000000000000007"
    );
}

#[test]
fn more_than_2_to_the_20_regions_are_a_format_error() {
    let core = Core::default();
    let blob = blob(&core);
    for n in [(1 << 20) + 1, u32::MAX] {
        let (status, text) = refused(&core, &edited(&blob, 20, &n.to_ne_bytes()));
        assert_eq!(status, FORMAT);
        assert_eq!(
            text,
            format!("cap_load: {n} regions, expected at most 1048576")
        );
    }
}

#[test]
fn a_capsule_of_2_to_the_20_empty_regions_is_written_and_loaded() {
    let core = Core::default();
    let buffer = core.fake.buffer(&[]);
    let regions = vec![region(buffer, 0, 0); 1 << 20];
    let capsule = core.snapshot(&regions, &[], HOST, 0);
    let blob = core.serialize(capsule).unwrap();
    assert_eq!(blob.len(), 32 + (8 << 20));
    let loaded = core.load(&blob);
    assert_eq!(core.restore_into(loaded, &regions, 0), OK);
    let more = [&regions[..], &regions[..1]].concat();
    assert!(core.snapshot(&more, &[], HOST, 0).is_null());
    assert_eq!(
        text(),
        "cap_snapshot: 1048577 regions, expected at most 1048576"
    );
}

#[test]
fn sizes_that_overflow_are_a_format_error() {
    let core = Core::default();
    let blob = blob(&core);
    // Meta, first and second region.
    for at in [24, 32, 40] {
        for size in [u64::MAX, u64::MAX - 50, 1 << 63, 1 << 32, 1000] {
            let edited = edited(&blob, at, &size.to_ne_bytes());
            assert_eq!(refused(&core, &edited).0, FORMAT, "{size} at {at}");
        }
    }
    // 2^64 - 1 and 8 are 7 again in 64 bits.
    let mut wrapped = edited(&blob, 32, &u64::MAX.to_ne_bytes());
    wrapped = edited(&wrapped, 40, &8u64.to_ne_bytes());
    assert_eq!(refused(&core, &wrapped).0, FORMAT);
}

#[test]
fn a_null_or_endless_blob_is_an_argument_error() {
    let core = Core::default();
    // SAFETY: both are refused before a byte is read.
    unsafe {
        assert!(cap_load(core.ctx, null(), 40).is_null());
        assert_eq!(cap_load_status(), ARG);
        assert!(cap_load(core.ctx, [0u8; 40].as_ptr().cast(), usize::MAX).is_null());
        assert_eq!(cap_load_status(), ARG);
        assert!(cap_load(std::ptr::null_mut(), [0u8; 40].as_ptr().cast(), 40).is_null());
        assert_eq!(cap_load_status(), ARG);
    }
}

#[test]
fn the_status_is_that_of_the_last_load_on_this_thread() {
    let core = Core::default();
    let blob = blob(&core);
    assert_eq!(cap_load_status(), OK);
    refused(&core, &blob[..9]);
    assert_eq!(core.sync(0), OK);
    assert_eq!(cap_load_status(), FORMAT);
    std::thread::spawn(|| assert_eq!(cap_load_status(), OK))
        .join()
        .unwrap();
    assert!(!core.load(&blob).is_null());
    assert_eq!(cap_load_status(), OK);
}

#[test]
fn a_failing_backend_is_told_apart() {
    let core = Core::default();
    let blob = blob(&core);
    for (function, status) in [
        ("buffer_alloc", NOMEM),
        ("buffer_upload", BACKEND),
        ("sync", BACKEND),
        ("event", BACKEND),
        ("event_record", BACKEND),
    ] {
        core.fake
            .with(|state| state.broken = Some(Break::Function(function)));
        assert!(core.load(&blob).is_null());
        assert_eq!(cap_load_status(), status, "{function}: {}", text());
        assert_eq!(core.fake.allocations(), []);
        assert_eq!(core.fake.events(), 0);
    }
}
