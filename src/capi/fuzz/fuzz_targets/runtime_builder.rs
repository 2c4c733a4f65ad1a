//! Any sequence of calls of the runtime ABI.
#![no_main]

#[path = "../../tests/fuzz_short_runs/input.rs"]
mod input;
#[path = "../../tests/fuzz_short_runs/owner.rs"]
mod owner;
#[path = "../../tests/fuzz_short_runs/runtime_builder.rs"]
mod runtime_builder;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| runtime_builder::run(bytes));
