//! One deployed, tickable model: ports, stages, identity, live sets.
//!
//! The crate knows three things and nothing above them:
//!
//! * **What a model declares.** [`Declaration`] is plain data: streams, graphs, buffers, regions, ports and
//!   stages. Its canonical text ([`Declaration::identity_bytes`]) and the 64-bit [`Declaration::fingerprint`]
//!   say whether two deployments can exchange state. [`DeclarationBuilder`] applies the construction rules.
//! * **What a model is at run time.** A [`LiveSet`] owns one independent set of mutable buffers, the graphs
//!   captured over them and the [`Verbs`] that move data in and out. A [`Producer`] builds as many live sets
//!   as wanted over one set of weights; [`Model`] holds them.
//! * **The hot contract.** While a live set is hot nothing is captured, rebound or allocated:
//!   [`LiveSet::run`], [`LiveSet::swap_in`] and [`LiveSet::swap_out`] allocate nothing, and
//!   [`LiveSet::hot_contract`] gives what a test compares (addresses and variant counts).
//!
//! * **Models out of native libraries.** [`foreign`] opens a producer through the published binary interface ([`abi`]) and makes
//!   it the same kind of live set.
//!
//! It never learns of sessions, epochs, capsules' names, topics or ROS.
//!
//! Thread rule: one thread drives a live set (and the context that it stands on). `LiveSet` is `Send`.
#![warn(missing_docs)]
#![deny(unsafe_code)]

#[allow(unsafe_code)]
pub mod abi;
mod builder;
mod declaration;
mod error;
mod fingerprint;
#[allow(unsafe_code)]
pub mod foreign;
mod host_state;
mod live_set;
mod live_set_builder;
mod model;
mod names;
mod split_gate;
pub mod stage_plan;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod types;
mod verbs;

pub use builder::{
    check_earlier, check_generic_after, check_graph_index, check_graph_stage, check_stage_name,
    check_staged,
};
pub use builder::{DeclarationBuilder, VerbTable};
pub use declaration::{
    first_difference, BufferDecl, Declaration, GenericStageDecl, GraphDecl, NameBytes, PortDecl,
    RegionDecl, StageDecl, StreamDecl,
};
pub use error::Error;
pub use fingerprint::fnv1a64;
pub use flashrt_exec::{
    Buffer, Context, Event, Graph, Recorder, ShapeKey, Slice, Space, StreamId, KEY_INHERIT,
};
pub use foreign::{ForeignFault, ForeignLibrary, ForeignModel, ForeignProducer};
pub use host_state::{
    HostFields, HostState, HOST_STATE_BYTES, HOST_STATE_LAYOUT, HOST_STATE_NAME, MAX_CONTEXT_STAMPS,
};
pub use live_set::{HotContract, LiveSet, PlanInfo, Region, StageExecutor, StageInfo};
pub use live_set_builder::{LiveSetBuilder, PortSpec, StageKey, StageSpec};
pub use model::{Model, Producer};
pub use names::MAX_NAME_BYTES;
pub use split_gate::{split_gate, SplitGate, SplitOutcome};
pub use types::{
    Direction, ExecutorKind, Layout, Modality, PixelFormat, PortDType, RegionFlags, Role,
    StateClass, Update,
};
pub use verbs::{ImageView, InputData, NoVerbs, PlanId, PortId, SetParts, StageId, Verbs};

/// Version number of the export layout that this crate describes (`FRT_RUNTIME_ABI_VERSION`).
pub const RUNTIME_ABI_VERSION: u32 = 1;
/// Version number of the model runtime layout (`FRT_MODEL_RUNTIME_ABI_VERSION`).
pub const MODEL_RUNTIME_ABI_VERSION: u32 = 1;
