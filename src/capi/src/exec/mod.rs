//! The execution contract for C: contexts, streams, events, buffers, graphs and plans.

mod abi;

pub use abi::*;
