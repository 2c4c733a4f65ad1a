//! The capsule ABI: frozen state and its verbs over a backend that the caller supplies.
//!
//! | File | Holds |
//! |---|---|
//! | `abi` | everything of `capsule/capsule.h` |
//! | `call` | names, statuses and texts of a call |
//! | `backend` | the caller's functions, behind results |
//! | `context` | a context and the capsules that belong to it |
//! | `state` | snapshot, restore, tier move, serialise |
//! | `blob`, `load` | the bytes of a blob; a capsule from them |
//! | `drive` | fire, tick, swap, sync |
//! | `frt` | a backend over the execution ABI of this library |
//!
//! Every function of a backend may call back into this interface: no reference to an object and no lock is held meanwhile,
//! and what a call uses lives until it ends, also when it is dropped in between.

mod abi;
mod backend;
mod blob;
mod call;
mod context;
mod drive;
mod frt;
mod load;
mod state;

pub use abi::*;
pub use abi::{cap_space::*, cap_status::*, cap_tier::*, cap_trigger::*};
