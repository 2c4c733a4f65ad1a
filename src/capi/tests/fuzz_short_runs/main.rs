//! Short runs of the fuzz targets in `fuzz/`: a fixed number of inputs, the same ones each time.
//!
//! `FLASHRT_FUZZ_INPUTS` sets the number for one run by hand; a failing input is printed.

#[path = "../capsule_support/mod.rs"]
mod capsule_support;

mod capsule_blob;
mod capsule_calls;
mod exec_calls;
mod foreign_base;
mod input;
mod model_adopt;
mod model_override;
mod owner;
mod runtime_builder;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// Says which input it was when the body panics.
struct Told<'a>(u64, &'a [u8]);

impl Drop for Told<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("input {}: {:?}", self.0, self.1);
        }
    }
}

fn inputs(count: u64, longest: u64, body: fn(&[u8])) {
    let count = std::env::var("FLASHRT_FUZZ_INPUTS").map_or(count, |n| n.parse().unwrap());
    for i in 0..count {
        let mut random = Random(i);
        let len = random.next() % longest;
        let bytes: Vec<u8> = (0..len).map(|_| random.next() as u8).collect();
        let _told = Told(i, &bytes);
        body(&bytes);
    }
}

#[test]
fn any_calls_of_exec_are_answered() {
    inputs(3000, 3000, exec_calls::run);
}

#[test]
fn any_calls_of_the_runtime_builder_are_answered() {
    inputs(4000, 2500, runtime_builder::run);
}

#[test]
fn any_foreign_base_is_refused_or_given_back_once() {
    inputs(30_000, 500, model_override::run);
}

#[test]
fn any_foreign_model_is_refused_or_run_and_given_back_once() {
    inputs(10_000, 500, model_adopt::run);
}

#[test]
fn any_blob_is_refused_or_written_again_as_it_came() {
    inputs(20_000, 600, capsule_blob::run);
}

#[test]
fn any_calls_of_the_capsule_verbs_are_answered() {
    inputs(10_000, 1500, capsule_calls::run);
}
