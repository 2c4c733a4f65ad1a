//! ROS 2 shell and command line of flashrt.
//!
//! `policy_node` (feature `ros`) maps topics, services and parameters onto a [`flashrt_session::Engine`]; the command
//! `flashrt` needs no ROS. Errors are [`anyhow::Error`]s: whatever arrives here is on its way to a person.
#![warn(missing_docs)]
#![forbid(unsafe_code)]

pub mod cli;
pub mod parameters;
pub mod share;

#[cfg(feature = "ros")]
pub mod ros;
