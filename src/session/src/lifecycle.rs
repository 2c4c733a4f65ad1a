//! The managed lifecycle of ROS 2 as a pure state machine. Ids and labels are those of `lifecycle_msgs` and of
//! rcl_lifecycle's default machine. A transition is split into [`Machine::begin`] and [`Machine::finish`], so that the
//! work between them runs with no lock held and a second request meanwhile is answered busy.

use std::fmt;

/// A primary or transition state. Numbers as in `lifecycle_msgs/msg/State`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum State {
    /// Before the machine exists.
    Unknown = 0,
    /// Nothing loaded.
    Unconfigured = 1,
    /// Loaded and warm, no outputs.
    Inactive = 2,
    /// Ticking.
    Active = 3,
    /// The end.
    Finalized = 4,
    /// Between Unconfigured and Inactive.
    Configuring = 10,
    /// Between Inactive and Unconfigured.
    CleaningUp = 11,
    /// On the way to Finalized.
    ShuttingDown = 12,
    /// Between Inactive and Active.
    Activating = 13,
    /// Between Active and Inactive.
    Deactivating = 14,
    /// A transition's work raised an error.
    ErrorProcessing = 15,
}

impl State {
    /// Every state.
    pub const ALL: [State; 11] = [
        State::Unknown,
        State::Unconfigured,
        State::Inactive,
        State::Active,
        State::Finalized,
        State::Configuring,
        State::CleaningUp,
        State::ShuttingDown,
        State::Activating,
        State::Deactivating,
        State::ErrorProcessing,
    ];

    /// Number in `lifecycle_msgs/msg/State`.
    pub fn id(self) -> u8 {
        self as u8
    }

    /// Label that rcl_lifecycle gives.
    pub fn label(self) -> &'static str {
        match self {
            State::Unknown => "unknown",
            State::Unconfigured => "unconfigured",
            State::Inactive => "inactive",
            State::Active => "active",
            State::Finalized => "finalized",
            State::Configuring => "configuring",
            State::CleaningUp => "cleaningup",
            State::ShuttingDown => "shuttingdown",
            State::Activating => "activating",
            State::Deactivating => "deactivating",
            State::ErrorProcessing => "errorprocessing",
        }
    }

    /// True for the four states in which the machine may rest.
    pub fn is_primary(self) -> bool {
        matches!(
            self,
            State::Unconfigured | State::Inactive | State::Active | State::Finalized
        )
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label())
    }
}

/// Result of the work between begin and finish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Callback {
    /// Done.
    Success,
    /// Not done, everything as before.
    Failure,
    /// Not done, and the old state is not whole.
    Error,
}

/// One edge of the machine. Numbers as in `lifecycle_msgs/msg/Transition`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transition {
    /// Transition number.
    pub id: u8,
    /// Label that rcl_lifecycle gives.
    pub label: &'static str,
    /// Where it starts.
    pub start: State,
    /// Where it leads.
    pub goal: State,
}

const fn edge(id: u8, label: &'static str, start: State, goal: State) -> Transition {
    Transition {
        id,
        label,
        start,
        goal,
    }
}

/// `lifecycle_msgs/msg/Transition` constants that requests use.
pub mod id {
    /// Instantiate (not part of the running machine).
    pub const CREATE: u8 = 0;
    /// Unconfigured to Inactive.
    pub const CONFIGURE: u8 = 1;
    /// Inactive to Unconfigured.
    pub const CLEANUP: u8 = 2;
    /// Inactive to Active.
    pub const ACTIVATE: u8 = 3;
    /// Active to Inactive.
    pub const DEACTIVATE: u8 = 4;
    /// Unconfigured to Finalized.
    pub const UNCONFIGURED_SHUTDOWN: u8 = 5;
    /// Inactive to Finalized.
    pub const INACTIVE_SHUTDOWN: u8 = 6;
    /// Active to Finalized.
    pub const ACTIVE_SHUTDOWN: u8 = 7;
    /// Free (not part of the running machine).
    pub const DESTROY: u8 = 8;
}

const SUCCESS: &str = "transition_success";
const FAILURE: &str = "transition_failure";
const ERROR: &str = "transition_error";

/// Every edge of rcl_lifecycle's default machine, requests first.
pub const TRANSITIONS: [Transition; 25] = [
    edge(
        id::CONFIGURE,
        "configure",
        State::Unconfigured,
        State::Configuring,
    ),
    edge(id::CLEANUP, "cleanup", State::Inactive, State::CleaningUp),
    edge(id::ACTIVATE, "activate", State::Inactive, State::Activating),
    edge(
        id::DEACTIVATE,
        "deactivate",
        State::Active,
        State::Deactivating,
    ),
    edge(
        id::UNCONFIGURED_SHUTDOWN,
        "shutdown",
        State::Unconfigured,
        State::ShuttingDown,
    ),
    edge(
        id::INACTIVE_SHUTDOWN,
        "shutdown",
        State::Inactive,
        State::ShuttingDown,
    ),
    edge(
        id::ACTIVE_SHUTDOWN,
        "shutdown",
        State::Active,
        State::ShuttingDown,
    ),
    edge(10, SUCCESS, State::Configuring, State::Inactive),
    edge(11, FAILURE, State::Configuring, State::Unconfigured),
    edge(12, ERROR, State::Configuring, State::ErrorProcessing),
    edge(20, SUCCESS, State::CleaningUp, State::Unconfigured),
    edge(21, FAILURE, State::CleaningUp, State::Inactive),
    edge(22, ERROR, State::CleaningUp, State::ErrorProcessing),
    edge(30, SUCCESS, State::Activating, State::Active),
    edge(31, FAILURE, State::Activating, State::Inactive),
    edge(32, ERROR, State::Activating, State::ErrorProcessing),
    edge(40, SUCCESS, State::Deactivating, State::Inactive),
    edge(41, FAILURE, State::Deactivating, State::Active),
    edge(42, ERROR, State::Deactivating, State::ErrorProcessing),
    edge(50, SUCCESS, State::ShuttingDown, State::Finalized),
    edge(51, FAILURE, State::ShuttingDown, State::Finalized),
    edge(52, ERROR, State::ShuttingDown, State::ErrorProcessing),
    edge(60, SUCCESS, State::ErrorProcessing, State::Unconfigured),
    edge(61, FAILURE, State::ErrorProcessing, State::Finalized),
    edge(62, ERROR, State::ErrorProcessing, State::Finalized),
];

/// The edges that a client may take from `state` (empty in a transition state other than by callback results).
pub fn available(state: State) -> impl Iterator<Item = &'static Transition> {
    TRANSITIONS.iter().filter(move |t| t.start == state)
}

/// The request edge with this number from `state`. A generic shutdown number is accepted from any primary state.
pub fn request_by_id(state: State, transition: u8) -> Option<&'static Transition> {
    TRANSITIONS
        .iter()
        .find(|t| t.start == state && state.is_primary() && t.id == transition)
}

/// The request edge with this label from `state`.
pub fn request_by_label(state: State, label: &str) -> Option<&'static Transition> {
    TRANSITIONS
        .iter()
        .find(|t| t.start == state && state.is_primary() && t.label == label)
}

/// Why a transition did not begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Another transition is under way.
    #[error("busy: {0} is still running")]
    Busy(State),
    /// No such edge from this state.
    #[error("transition {transition} is not possible in state {state}")]
    NotPossible {
        /// Where the machine is.
        state: State,
        /// Number that was asked for.
        transition: u8,
    },
}

/// The machine. Pure: no callbacks, no clock, no locks.
#[derive(Clone, Debug)]
pub struct Machine {
    state: State,
}

impl Default for Machine {
    fn default() -> Self {
        Machine {
            state: State::Unconfigured,
        }
    }
}

impl Machine {
    /// Where it is.
    pub fn state(&self) -> State {
        self.state
    }

    /// Starts a transition: the machine moves into the transition state. The caller does the work and then calls
    /// [`Machine::finish`].
    ///
    /// # Errors
    /// [`Refusal::Busy`] during a transition, [`Refusal::NotPossible`] without such an edge; the state does not change.
    pub fn begin(&mut self, transition: u8) -> Result<&'static Transition, Refusal> {
        if !self.state.is_primary() {
            return Err(Refusal::Busy(self.state));
        }
        match request_by_id(self.state, transition) {
            Some(edge) => {
                self.state = edge.goal;
                Ok(edge)
            }
            None => Err(Refusal::NotPossible {
                state: self.state,
                transition,
            }),
        }
    }

    /// Ends the transition under way. After `Error` the machine is in ErrorProcessing and wants a second finish.
    /// In a primary state this does nothing and returns `None`.
    pub fn finish(&mut self, result: Callback) -> Option<&'static Transition> {
        let label = match result {
            Callback::Success => SUCCESS,
            Callback::Failure => FAILURE,
            Callback::Error => ERROR,
        };
        if self.state.is_primary() {
            return None;
        }
        let edge = TRANSITIONS
            .iter()
            .find(|t| t.start == self.state && t.label == label)?;
        self.state = edge.goal;
        Some(edge)
    }
}
