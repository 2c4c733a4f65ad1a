//! Execution contract: streams, events, named buffers, graphs and plans.
#![warn(missing_docs)]

mod buffer;
mod context;
mod cpu;
mod cuda;
mod error;
mod event;
mod graph;
mod plan;
mod pool;
mod recorder;
mod table;
mod types;

pub use buffer::{Buffer, Slice};
pub use context::Context;
pub use error::{CapturePhase, Error};
pub use event::Event;
pub use graph::{Executable, Graph};
pub use plan::Plan;
pub use pool::Pool;
pub use recorder::{HostKernel, Recorder};
pub use types::*;
