//! Tick engine without ROS: inputs, commands, chunks, lifecycle, replay.
//!
//! [`Engine`] is the door: a ROS node pushes messages in, submits [`Command`]s and gets chunks, commands and log entries
//! through a [`Sink`]. Behind it stand pure state machines ([`ring`], [`gate`], [`chunk`], [`limit`], [`lifecycle`]) that
//! know no clock, no thread and no device, and one thread that drives them over a [`core::Core`].
//!
//! The crate knows neither ROS types nor CUDA types.
#![warn(missing_docs)]
#![forbid(unsafe_code)]

pub mod bag;
pub mod cdr;
pub mod chunk;
pub mod code;
pub mod command;
pub mod config;
pub mod core;
mod driver;
mod emission;
pub mod engine;
pub mod gate;
pub mod image;
mod inlet;
pub mod io;
pub mod joints;
pub mod latency;
pub mod lifecycle;
pub mod limit;
pub mod live;
pub mod messages;
pub mod replay;
pub mod ring;
mod shared;
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
