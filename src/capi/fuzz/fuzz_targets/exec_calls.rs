//! Any sequence of calls of the execution ABI.
#![no_main]

#[path = "../../tests/fuzz_short_runs/exec_calls.rs"]
mod exec_calls;
#[path = "../../tests/fuzz_short_runs/input.rs"]
mod input;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| exec_calls::run(bytes));
