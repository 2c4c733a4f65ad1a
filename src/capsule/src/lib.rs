//! Frozen execution state: snapshot, restore, fork, rollback.
//!
//! A capsule holds the *continuation* bytes of one live set at a committed boundary: nothing of it in flight, every region of
//! class [`StateClass::Continuation`] copied whole. It never holds graphs. A [`Store`] keeps capsules in device or host memory
//! under a byte budget, by name, with a linear history per live set.
//!
//! Order of every restore: name, capsule, fingerprint and identity text, region table, host state block, and only then the
//! first live write. A failure after that poisons the live set: a half-restored set never ticks.
//!
//! Of the other two state classes, *output* rows are cleared at a new epoch ([`clear_outputs`]) and *world* state is in no
//! buffer at all. Whether the declared regions really are the whole state is what [`verify`] finds out.
//!
//! Thread rule: the thread that drives the live sets drives the store. `Store` is `Send`.
#![warn(missing_docs)]
#![forbid(unsafe_code)]

mod capsule;
mod error;
mod history;
mod image;
mod layout;
mod memory;
mod name;
mod store;
pub mod verify;

pub use capsule::{clear_outputs, Boundary, Capsule, CapsuleInfo, Tier};
pub use error::Error;
pub use flashrt_runtime::StateClass;
pub use image::{CapsuleImage, RegionImage};
pub use layout::RegionEntry;
pub use memory::{CapsuleMemory, ContextMemory};
pub use name::{check_name, MAX_NAME_BYTES};
pub use store::{
    restore_with, RestoreReport, Rollback, SnapshotRequest, Store, StoreConfig, StoreUse,
};
