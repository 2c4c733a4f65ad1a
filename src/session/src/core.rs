//! The device side of the engine behind one trait: live sets, and the capsules that belong to them. [`crate::live`] is the
//! real one; tests put their own in its place.

use flashrt_runtime::{HostFields, ImageView};

use crate::code::SessionError;
use crate::command::{CapsuleReport, RollbackTarget, Tier};
use crate::status::Description;

/// Which stages a tick runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plan {
    /// Context and action as one graph.
    Full,
    /// Context, then action.
    ContextAction,
    /// The action stage alone, on the context of an earlier tick.
    Action,
}

impl Plan {
    /// Name in the tick log.
    pub fn name(self) -> &'static str {
        match self {
            Plan::Full => "full",
            Plan::ContextAction => "context_action",
            Plan::Action => "action",
        }
    }
    /// The plan of this name.
    pub fn from_name(name: &str) -> Option<Plan> {
        [Plan::Full, Plan::ContextAction, Plan::Action]
            .into_iter()
            .find(|p| p.name() == name)
    }
}

/// Dimensions that the engine needs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CoreInfo {
    /// For describe.
    pub description: Description,
    /// Views of the image port.
    pub views: usize,
    /// Values of the state port.
    pub state_dim: usize,
    /// Rows of a chunk.
    pub horizon: usize,
    /// Columns of a chunk.
    pub action_dim: usize,
    /// Bytes that one view is expected to have (room is made for them ahead).
    pub image_bytes: usize,
    /// The model takes an instruction.
    pub has_prompt: bool,
}

/// What to freeze.
#[derive(Clone, Copy, Debug)]
pub struct SnapshotSpec<'a> {
    /// `None`: a name is generated.
    pub name: Option<&'a str>,
    /// Where.
    pub tier: Tier,
    /// Replace a capsule of the same name.
    pub overwrite: bool,
    /// Regions left out.
    pub exclude: &'a [String],
    /// Tick number of the state.
    pub tick: u64,
    /// Epoch.
    pub epoch: u64,
    /// Steady time.
    pub steady_ns: u64,
    /// ROS time.
    pub ros_ns: i64,
}

/// What a restore did.
#[derive(Clone, Debug, PartialEq)]
pub struct Restored {
    /// Capsule.
    pub name: String,
    /// Bytes written.
    pub bytes: u64,
    /// Bytes moved from another tier first.
    pub promoted_bytes: u64,
}

/// All capsules.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CapsuleList {
    /// Oldest first.
    pub capsules: Vec<CapsuleReport>,
    /// Index of the boundary that the set stands on; -1: none.
    pub cursor: i32,
    /// Bytes in the device tier.
    pub device_bytes: u64,
    /// Its budget.
    pub device_budget_bytes: u64,
    /// Bytes in the host tier.
    pub host_bytes: u64,
    /// Its budget.
    pub host_budget_bytes: u64,
}

/// One model with its live sets and capsules. Driven by one thread. `set` is an index into the configured sessions.
///
/// Contract of the hot calls (`set_images`, `set_state`, `run`, `read_actions`, `fields`, `set_fields`): after warm-up they
/// allocate nothing.
pub trait Core: Send {
    /// Dimensions.
    fn info(&self) -> &CoreInfo;
    /// Hands all views over, in order.
    fn set_images(&mut self, set: usize, views: &[ImageView<'_>]) -> Result<(), SessionError>;
    /// Hands the state over.
    fn set_state(&mut self, set: usize, state: &[f32]) -> Result<(), SessionError>;
    /// A new instruction. On error the old one stays.
    fn set_prompt(&mut self, set: usize, text: &str) -> Result<(), SessionError>;
    /// Runs a plan and waits for it.
    fn run(&mut self, set: usize, plan: Plan, key: u64) -> Result<(), SessionError>;
    /// The chunk of the last run: `[horizon, action_dim]` f32 little-endian.
    fn read_actions(&mut self, set: usize, out: &mut [u8]) -> Result<(), SessionError>;
    /// Host-side continuation state.
    fn fields(&self, set: usize) -> Result<HostFields, SessionError>;
    /// Replaces it.
    fn set_fields(&mut self, set: usize, fields: &HostFields) -> Result<(), SessionError>;
    /// Freezes a set.
    fn snapshot(
        &mut self,
        set: usize,
        spec: &SnapshotSpec<'_>,
    ) -> Result<CapsuleReport, SessionError>;
    /// Writes a capsule into a set.
    fn restore(
        &mut self,
        set: usize,
        name: &str,
        allow_partial: bool,
    ) -> Result<Restored, SessionError>;
    /// Goes back in a set's history.
    fn rollback(
        &mut self,
        set: usize,
        target: &RollbackTarget,
        steady_ns: u64,
    ) -> Result<Restored, SessionError>;
    /// Back to the warm start.
    fn reset(&mut self, set: usize) -> Result<Restored, SessionError>;
    /// Forgets a capsule; returns its bytes.
    fn drop_capsule(&mut self, name: &str) -> Result<u64, SessionError>;
    /// All capsules.
    fn list(&self, set: usize, steady_ns: u64) -> CapsuleList;
    /// Captures or evicts a bucket in every set; returns the variants of one set afterwards.
    fn prepare(&mut self, graph: &str, key: u64, evict: bool) -> Result<u32, SessionError>;
    /// The hot contract on or off.
    fn set_hot(&mut self, is_hot: bool);
    /// Why a set cannot be used any more; `None`: it can.
    fn poison(&self, set: usize) -> Option<String>;
}
