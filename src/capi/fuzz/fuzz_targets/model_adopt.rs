//! Foreign models of any content in front of a consumer.
#![no_main]

#[path = "../../tests/fuzz_short_runs/foreign_base.rs"]
mod foreign_base;
#[path = "../../tests/fuzz_short_runs/input.rs"]
mod input;
#[path = "../../tests/fuzz_short_runs/model_adopt.rs"]
mod model_adopt;
#[path = "../../tests/fuzz_short_runs/owner.rs"]
mod owner;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| model_adopt::run(bytes));
