//! Built-in policies lowered to captured graphs.
//!
//! A policy is read from a directory: `config.json` (dimensions, text), `stats.json` (normalisation) and
//! `model.safetensors` (weights). [`builtin::open`] gives a producer; the runtime asks it for live sets.
//!
//! | Policy | Module | Graphs |
//! |---|---|---|
//! | `pi05` | [`pi05`] | `context`, `action`, `full` |
#![warn(missing_docs)]
#![forbid(unsafe_code)]

pub mod builtin;
pub mod discretize;
mod error;
pub mod pi05;
pub mod stats;
pub mod tokenizer;
pub mod weights;

pub use error::Error;
pub use tokenizer::{Tokenizer, WordList};

/// Largest `config.json` or `stats.json`: room for a long word list.
const MAX_TEXT_BYTES: u64 = 16 << 20;

/// A small file whole, however long it claims to be.
fn read_text(path: &std::path::Path) -> Result<Vec<u8>, Error> {
    use std::io::Read as _;
    let io = |source| Error::Io {
        path: path.into(),
        source,
    };
    let mut text = Vec::new();
    let file = std::fs::File::open(path).map_err(io)?;
    file.take(MAX_TEXT_BYTES + 1)
        .read_to_end(&mut text)
        .map_err(io)?;
    if text.len() as u64 > MAX_TEXT_BYTES {
        return Err(io(std::io::Error::other(format!(
            "expected at most {MAX_TEXT_BYTES} bytes, got more"
        ))));
    }
    Ok(text)
}
