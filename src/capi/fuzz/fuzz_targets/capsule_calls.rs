//! Any sequence of capsule verbs over a backend that fails and calls back.
#![no_main]

#[path = "../../tests/fuzz_short_runs/capsule_calls.rs"]
mod capsule_calls;
#[path = "../../tests/capsule_support/mod.rs"]
mod capsule_support;
#[path = "../../tests/fuzz_short_runs/input.rs"]
mod input;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| capsule_calls::run(bytes));
