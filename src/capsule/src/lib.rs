//! Frozen execution state: snapshot, restore, fork, rollback.
#![warn(missing_docs)]
