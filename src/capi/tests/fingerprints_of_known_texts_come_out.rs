//! `frt_runtime_fingerprint` hashes what it is given.

use flashrt_capi::frt_runtime_fingerprint;
use std::ptr::null;

#[test]
fn the_fingerprint_of_known_texts_comes_out() {
    let of = |text: &str| {
        // SAFETY: the pointer and the length are those of a live string.
        unsafe { frt_runtime_fingerprint(text.as_ptr().cast(), text.len() as _) }
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
