//! The C header states the numbers that the library has, and the function hashes what it is given.

use flashrt_capi::*;
use std::ptr::null;

const HEADER: &str = include_str!("../include/flashrt/constants.h");

fn defined(name: &str) -> i128 {
    let line = HEADER.lines().find_map(|l| {
        l.strip_prefix("#define ")?
            .strip_prefix(name)?
            .strip_prefix(' ')
    });
    match line {
        Some("UINT64_MAX") => u64::MAX.into(),
        Some(n) => n.parse().unwrap(),
        None => panic!("{name} is not in the header"),
    }
}

#[test]
fn every_constant_has_the_same_value_on_both_sides() {
    for (name, value) in [
        ("FRT_OK", i128::from(FRT_OK)),
        ("FRT_ERR_INVALID", FRT_ERR_INVALID.into()),
        ("FRT_ERR_NO_VARIANT", FRT_ERR_NO_VARIANT.into()),
        ("FRT_ERR_UNBOUND", FRT_ERR_UNBOUND.into()),
        ("FRT_ERR_CAPTURE", FRT_ERR_CAPTURE.into()),
        ("FRT_ERR_BACKEND", FRT_ERR_BACKEND.into()),
        ("FRT_ERR_OOM", FRT_ERR_OOM.into()),
        ("FRT_KEY_INHERIT", FRT_KEY_INHERIT.into()),
        ("FRT_RUNTIME_ABI_VERSION", RUNTIME_ABI_VERSION.into()),
        (
            "FRT_MODEL_RUNTIME_ABI_VERSION",
            MODEL_RUNTIME_ABI_VERSION.into(),
        ),
    ] {
        assert_eq!(defined(name), value, "{name}");
    }
    assert_eq!(HEADER.matches("#define FRT_").count(), 10);
}

#[test]
fn the_fingerprint_of_known_texts_comes_out() {
    let of = |text: &str| {
        // SAFETY: the pointer and the length are those of a live string.
        unsafe { frt_runtime_fingerprint(text.as_ptr().cast(), text.len()) }
    };
    assert_eq!(
        of("frt-runtime-identity-v1\nprovider=step\n"),
        0x4763a0bc8c01be17
    );
    assert_eq!(of(""), 0xcbf29ce484222325);
    assert_eq!(of("a"), 0xaf63dc4c8601ec8c);
    // SAFETY: null is allowed.
    assert_eq!(unsafe { frt_runtime_fingerprint(null(), 9) }, of(""));
}
