//! Foreign models of any content below an override and a wrap.
#![no_main]

#[path = "../../tests/fuzz_short_runs/foreign_base.rs"]
mod foreign_base;
#[path = "../../tests/fuzz_short_runs/input.rs"]
mod input;
#[path = "../../tests/fuzz_short_runs/model_override.rs"]
mod model_override;
#[path = "../../tests/fuzz_short_runs/owner.rs"]
mod owner;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| model_override::run(bytes));
