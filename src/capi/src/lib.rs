//! C ABI of exec, runtime and capsule, as a shared and a static library.
//!
//! A symbol appears here when it does what its contract says. The C side is in `include/`.
//!
//! Rules of this crate: no panic crosses the boundary, every pointer is checked for null, every `unsafe` block says why it is
//! sound.
#![warn(missing_docs)]

mod capsule;
mod exec;
mod handles;
mod runtime;
mod status;

pub use capsule::*;
pub use exec::*;
pub use runtime::*;
pub use status::*;

pub use flashrt_runtime::{MODEL_RUNTIME_ABI_VERSION, RUNTIME_ABI_VERSION};
