//! Execution contract: streams, events, named buffers, graphs and plans.
#![warn(missing_docs)]

mod error;
mod stub;
mod types;

pub use error::{CapturePhase, Error};
pub use stub::*;
pub use types::*;
