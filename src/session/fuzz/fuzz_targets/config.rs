//! Any text as a deployment file: a checked configuration or an error with words, never a panic.
#![no_main]

use flashrt_session::Config;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    match Config::from_yaml(text) {
        Ok(config) => {
            assert!(!config.joint_names().is_empty());
            assert!(config.control_period_ns() > 0);
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
