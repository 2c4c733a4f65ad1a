//! Any bytes as `stats.json`: what is accepted normalises every finite state and action to finite numbers.
#![no_main]

use std::path::Path;

use flashrt_models::stats::Stats;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(stats) = Stats::parse(bytes, Path::new("stats.json")) else {
        return;
    };
    for i in 0..stats.state.len() {
        for x in [0.0, -1.0, 3.5, 1e6] {
            assert!(!stats.state.normalize(i, x).is_nan());
        }
    }
    let a = &stats.action;
    assert_eq!(a.mean.len(), a.rows * a.width);
    assert_eq!(a.std.len(), a.rows * a.width);
    assert!(a.mean.iter().chain(&a.std).all(|x| x.is_finite()));
    assert!(a.std.iter().all(|s| *s > 0.0));
});
