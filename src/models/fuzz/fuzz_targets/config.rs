//! Any bytes as `config.json`: what passes the check has dimensions whose products fit, and a usable word list or an error.
#![no_main]

use flashrt_models::pi05::Pi05Config;
use flashrt_models::{Tokenizer, WordList};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(config) = serde_json::from_slice::<Pi05Config>(bytes) else {
        return;
    };
    if config.check().is_err() {
        return;
    }
    assert!(config.prefix_tokens() >= config.image_tokens());
    assert!(config.patch_elements() > 0 && config.q_width() >= config.kv_width());
    assert!(!config.dims().is_empty());
    let Some(words) = &config.words else { return };
    if let Ok(list) = WordList::new(words, config.state_offset(), config.max_prompt_tokens) {
        let mut ids = Vec::new();
        for text in ["", "pick up the block", "\0", "<pad>", "state action"] {
            if list.encode(text, Some(&[-1, 0, 255]), &mut ids).is_ok() {
                assert!(ids.len() <= list.max_tokens());
                assert!(ids.iter().all(|id| (0..list.vocabulary() as i32).contains(id)));
            }
        }
    }
});
