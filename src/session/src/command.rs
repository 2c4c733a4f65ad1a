//! Commands to the device thread, their outcomes, and the table that keeps outcomes for late callers.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use crate::code::ResultCode;
use crate::status::Description;

/// A request for one tick in lockstep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TickRequest {
    /// Tick time, ROS nanoseconds; 0: now.
    pub stamp_ns: i64,
    /// Wait until each required port has an input with a stamp at least this; 0: no wait.
    pub not_before_ns: i64,
    /// Longest wait for inputs.
    pub wait_ms: u32,
    /// Run the action stage on the cached context.
    pub action_only: bool,
}

/// Which capsule a rollback goes to.
#[derive(Clone, Debug, PartialEq)]
pub enum RollbackTarget {
    /// 1: the newest capsule before the cursor.
    Steps(u32),
    /// By name.
    Name(String),
    /// The newest capsule whose steady age is at least this many seconds.
    AgeS(f64),
}

/// Where a capsule is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tier {
    /// Device memory.
    Device,
    /// Host memory.
    Host,
}

impl Tier {
    /// `"device"` or `"host"`.
    pub fn name(self) -> &'static str {
        match self {
            Tier::Device => "device",
            Tier::Host => "host",
        }
    }
    /// The tier of this name.
    pub fn from_name(name: &str) -> Option<Tier> {
        match name {
            "device" => Some(Tier::Device),
            "host" => Some(Tier::Host),
            _ => None,
        }
    }
}

/// A command. All are applied in arrival order by the device thread, between two ticks, also while Inactive.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Freeze the active live set.
    Snapshot {
        /// `None` or empty: a name is generated.
        name: Option<String>,
        /// `None`: the configured default.
        tier: Option<Tier>,
        /// Replace a capsule of the same name.
        overwrite: bool,
        /// Regions left out, for verification: the capsule is marked partial.
        exclude: Vec<String>,
    },
    /// Put a capsule back into the active live set: a new epoch.
    Restore {
        /// Capsule.
        name: String,
        /// Accept a partial capsule.
        allow_partial: bool,
    },
    /// Restore an earlier capsule of the linear history: a new epoch.
    Rollback(RollbackTarget),
    /// Restore a capsule into an idle live set: a new epoch of that set.
    Fork {
        /// Capsule.
        name: String,
        /// Target live set.
        session: String,
        /// Tick the target from now on.
        switch_to: bool,
    },
    /// Back to the warm start taken at configure: a new epoch.
    Reset {
        /// Set the prompt again that is in force now.
        keep_prompt: bool,
    },
    /// Forget a capsule.
    Drop {
        /// Capsule.
        name: String,
    },
    /// List capsules. Answers in every state.
    List,
    /// Capture or evict a shape bucket. Outside Active only.
    Prepare {
        /// Empty: every graph that has buckets.
        graph: String,
        /// Flow steps.
        key: u64,
        /// Evict instead of capture.
        evict: bool,
    },
    /// One tick. Active only.
    Tick(TickRequest),
    /// What is deployed.
    Describe,
    /// A new instruction.
    Prompt(String),
    /// ROS time jumped: a new epoch, everything latched by stamp is forgotten.
    TimeJump {
        /// Size and direction in nanoseconds, for the log.
        delta_ns: i64,
    },
}

impl Command {
    /// Name for operation_status.
    pub fn kind(&self) -> &'static str {
        match self {
            Command::Snapshot { .. } => "snapshot",
            Command::Restore { .. } => "restore",
            Command::Rollback(_) => "rollback",
            Command::Fork { .. } => "fork",
            Command::Reset { .. } => "reset",
            Command::Drop { .. } => "drop",
            Command::List => "list",
            Command::Prepare { .. } => "prepare",
            Command::Tick(_) => "tick",
            Command::Describe => "describe",
            Command::Prompt(_) => "prompt",
            Command::TimeJump { .. } => "time_jump",
        }
    }
}

/// One stored capsule. Maps onto `flashrt_ros/CapsuleInfo`.
#[derive(Clone, Debug, PartialEq)]
pub struct CapsuleReport {
    /// Name.
    pub name: String,
    /// Where it is.
    pub tier: Tier,
    /// Payload.
    pub bytes: u64,
    /// Regions saved.
    pub regions: u32,
    /// 16 hex digits.
    pub fingerprint: String,
    /// Tick number of the saved state.
    pub tick: u64,
    /// Epoch in which it was taken.
    pub epoch: u64,
    /// ROS time at the snapshot.
    pub created_ns: i64,
    /// Steady time since the snapshot.
    pub age_s: f64,
    /// Exempt from eviction.
    pub is_pinned: bool,
    /// Leaves regions out.
    pub is_partial: bool,
}

/// The result of a command. Fields that a kind does not use are zero or empty.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Operation.
    pub op_id: u64,
    /// Command kind.
    pub kind: &'static str,
    /// Result.
    pub code: ResultCode,
    /// Reason or report.
    pub message: String,
    /// Live set concerned.
    pub session: String,
    /// Epoch afterwards.
    pub epoch: u64,
    /// Tick number afterwards.
    pub tick: u64,
    /// Capsule concerned.
    pub name: String,
    /// Bytes copied, or freed by a drop.
    pub bytes: u64,
    /// Bytes moved from another tier first.
    pub promoted_bytes: u64,
    /// Device thread time from call to verified completion.
    pub duration_us: f64,
    /// Prompt in force afterwards.
    pub prompt: String,
    /// The new capsule of a snapshot.
    pub capsule: Option<CapsuleReport>,
    /// List, oldest first.
    pub capsules: Vec<CapsuleReport>,
    /// Index in the linear history; -1: none.
    pub cursor: i32,
    /// Bytes in the device tier.
    pub device_bytes: u64,
    /// Its budget.
    pub device_budget_bytes: u64,
    /// Bytes in the host tier.
    pub host_bytes: u64,
    /// Its budget.
    pub host_budget_bytes: u64,
    /// Captured variants after a prepare.
    pub variants: u32,
    /// Chunk of a tick; 0: none was published.
    pub chunk_id: u64,
    /// Latency of a tick.
    pub latency_ms: f64,
    /// Answer of describe.
    pub description: Option<Arc<Description>>,
}

impl Outcome {
    /// An outcome with code and text, everything else empty.
    pub fn new(
        op_id: u64,
        kind: &'static str,
        code: ResultCode,
        message: impl Into<String>,
    ) -> Outcome {
        Outcome {
            op_id,
            kind,
            code,
            message: message.into(),
            session: String::new(),
            epoch: 0,
            tick: 0,
            name: String::new(),
            bytes: 0,
            promoted_bytes: 0,
            duration_us: 0.0,
            prompt: String::new(),
            capsule: None,
            capsules: Vec::new(),
            cursor: -1,
            device_bytes: 0,
            device_budget_bytes: 0,
            host_bytes: 0,
            host_budget_bytes: 0,
            variants: 0,
            chunk_id: 0,
            latency_ms: 0.0,
            description: None,
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct OpCell {
    done: Mutex<Option<Outcome>>,
    changed: Condvar,
}

impl OpCell {
    /// False when there was an outcome already, which stays.
    pub(crate) fn finish(&self, outcome: Outcome) -> bool {
        let mut done = lock(&self.done);
        let is_first = done.is_none();
        if is_first {
            *done = Some(outcome);
            self.changed.notify_all();
        }
        is_first
    }
    fn peek(&self) -> Option<Outcome> {
        lock(&self.done).clone()
    }
}

/// A command in the queue or already applied. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Operation {
    pub(crate) op_id: u64,
    pub(crate) kind: &'static str,
    pub(crate) cell: Arc<OpCell>,
}

impl Operation {
    /// Id for `operation_status`.
    pub fn op_id(&self) -> u64 {
        self.op_id
    }
    /// Command kind.
    pub fn kind(&self) -> &'static str {
        self.kind
    }
    /// Blocks up to `timeout` (steady time; [`Duration::MAX`]: for ever); `None`: still running.
    pub fn wait(&self, timeout: Duration) -> Option<Outcome> {
        // `None`: no clock reaches that end.
        let end = Instant::now().checked_add(timeout);
        let mut done = lock(&self.cell.done);
        loop {
            if let Some(outcome) = done.as_ref() {
                return Some(outcome.clone());
            }
            done = match end {
                None => self
                    .cell
                    .changed
                    .wait(done)
                    .unwrap_or_else(|poisoned| poisoned.into_inner()),
                Some(end) => {
                    let left = end.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return None;
                    }
                    let waited = self.cell.changed.wait_timeout(done, left);
                    waited.unwrap_or_else(|poisoned| poisoned.into_inner()).0
                }
            };
        }
    }
    /// The outcome if it is there already.
    pub fn poll(&self) -> Option<Outcome> {
        self.cell.peek()
    }
}

/// Operations by id: running ones, and a bounded number of finished ones for callers that stopped waiting.
#[derive(Debug)]
pub(crate) struct OpTable {
    next_id: u64,
    capacity: usize,
    entries: VecDeque<Operation>,
}

impl OpTable {
    pub(crate) fn new(capacity: usize) -> OpTable {
        OpTable {
            next_id: 1,
            capacity,
            entries: VecDeque::with_capacity(capacity),
        }
    }

    pub(crate) fn open(&mut self, kind: &'static str) -> Operation {
        let operation = Operation {
            op_id: self.next_id,
            kind,
            cell: Arc::default(),
        };
        self.next_id += 1;
        // Only finished entries may go: a running one must stay findable.
        while self.entries.len() >= self.capacity {
            match self.entries.iter().position(|e| e.cell.peek().is_some()) {
                Some(oldest_done) => drop(self.entries.remove(oldest_done)),
                None => break,
            }
        }
        self.entries.push_back(operation.clone());
        operation
    }

    pub(crate) fn find(&self, op_id: u64) -> Option<Operation> {
        self.entries.iter().find(|e| e.op_id == op_id).cloned()
    }
}

/// A poisoned lock holds plain data that is valid at every step: go on with it.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
}
