//! Any bytes as a weights file: what opens has tensors within the file, and reading one gives finite numbers or an error.
#![no_main]

use flashrt_models::pi05::names;
use flashrt_models::weights::Weights;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let path = std::env::temp_dir().join(format!("flashrt-fuzz-weights-{}", std::process::id()));
    std::fs::write(&path, bytes).expect("the temporary folder can be written");
    if let Ok(weights) = Weights::open(&path, &names::canonical) {
        let all: Vec<String> = weights.names().map(String::from).collect();
        for name in all {
            let shape = weights.shape(&name).expect("a listed tensor has a shape").to_vec();
            if let Ok(values) = weights.read(&name, &shape) {
                assert_eq!(values.len(), shape.iter().product::<usize>());
                assert!(values.iter().all(|x| x.is_finite()));
            }
        }
    }
});
