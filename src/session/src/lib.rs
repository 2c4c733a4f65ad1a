//! Tick engine without ROS: inputs, commands, chunks, lifecycle, replay.
#![warn(missing_docs)]
#![forbid(unsafe_code)]

pub mod code;
pub mod command;
pub mod config;
pub mod engine;
pub mod image;
pub mod io;
pub mod lifecycle;
pub mod status;

pub use code::{ResultCode, SessionError};
pub use command::{CapsuleReport, Command, Operation, Outcome, RollbackTarget, TickRequest, Tier};
pub use config::{Config, ConfigError};
pub use engine::Engine;
pub use io::{
    ChunkRef, Clock, CommandRef, Event, ImageRef, JointsRef, PushOutcome, Sink, SystemClock,
    TickPortRecord, TickRecord,
};
pub use status::{ConfigureReport, Description, PortDescription, PortStatus, Status};
