//! The runtime half of the ABI: exports and model runtimes.
//!
//! [`export_abi`] and [`model_abi`] hold the functions, one file a header. Rules, identity and reads of foreign objects are those of
//! `flashrt_runtime`; what is here is memory: builders behind handles, and objects with a reference count that own all that their
//! descriptors point to. Handles of contexts, graphs, buffers and streams are stored and never dereferenced.

mod arrays;
mod builder;
mod built;
pub mod export_abi;
pub mod model_abi;
mod overridden;
mod shared;
mod stubs;
mod wrapped;

pub use export_abi::*;
pub use flashrt_runtime::abi;
pub use model_abi::*;
