//! Built-in policies lowered to captured graphs.
#![warn(missing_docs)]
