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
