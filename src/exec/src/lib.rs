//! Execution contract: streams, events, named buffers, graphs and plans.
#![warn(missing_docs)]
