//! Any bytes as the blob of a capsule.
#![no_main]

#[path = "../../tests/fuzz_short_runs/capsule_blob.rs"]
mod capsule_blob;
#[path = "../../tests/capsule_support/mod.rs"]
mod capsule_support;
#[path = "../../tests/fuzz_short_runs/input.rs"]
mod input;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| capsule_blob::run(bytes));
