//! Execution contract: contexts, streams, events, named buffers, graphs and plans.
//!
//! This crate runs recorded work over memory that never moves, on one device. It knows nothing of
//! models, ports, capsules or ROS, and it decides nothing: no scheduling, no retry, no thread with a
//! will of its own. Start reading at [`Context`], then [`Graph`].
//!
//! | Word | Is | Type |
//! |---|---|---|
//! | context | one device with all that lives on it | [`Context`] |
//! | buffer | named bytes at a fixed address, in device or host space | [`Buffer`], [`Slice`] |
//! | stream | a queue: what is submitted to it runs in that order | [`StreamId`] |
//! | event | a mark in a stream, which other streams can wait for | [`Event`] |
//! | graph | a table from shape key to captured work, with exact keys and a size limit | [`Graph`] |
//! | plan | replays in a fixed order, with events where they cross streams | [`Plan`] |
//!
//! ```
//! use flashrt_exec::{Context, CpuOptions, Error, Space, StreamId};
//!
//! # fn main() -> Result<(), Error> {
//! let ctx = Context::cpu(CpuOptions::default())?;
//! let input = ctx.alloc("input", Space::Host, 4)?;
//! let output = ctx.alloc("output", Space::Device, 4)?;
//!
//! // Set-up: record once what a tick does. Nothing runs yet.
//! let step = ctx.graph("step", 0)?;
//! step.capture::<Error>(1, |r| r.copy(&output.all(), &input.all()))?;
//!
//! // Tick: new contents in the same memory, the same work. Allocates nothing.
//! input.host_write(0, &[1, 2, 3, 4])?;
//! step.replay(1, StreamId(0))?;
//! ctx.synchronize(StreamId(0))?;
//!
//! let mut bytes = [0; 4];
//! ctx.download(&output.all(), &mut bytes)?;
//! assert_eq!(bytes, [1, 2, 3, 4]);
//! # Ok(())
//! # }
//! ```
//!
//! # Rules
//!
//! * **Fixed memory.** Captured work holds addresses. Change the contents of buffers, never their
//!   binding. A variant owns everything that it touches, so no order of drops is wrong.
//! * **Set-up allocates, ticks do not.** Replaying, copying, filling, recording, waiting, querying and
//!   synchronising allocate nothing, and neither does executing a plan. Everything else may.
//! * **Order comes from streams and events alone.** Two streams without an event between them run in
//!   any order, whatever one backend happens to do.
//! * **One driving thread.** Calls from a second thread are safe and wait; nothing promises their order.
//! * **All or nothing.** A refused call and a failed capture change nothing. Every error names what was
//!   expected and what came, and [`Error::code`] is its number in the C ABI.
//! * **Results do not depend on the number of threads.** A kernel's tasks are numbered, and each writes
//!   only what its number names ([`Pool::for_each`]).
//!
//! # Backends
//!
//! [`Context::cpu`] needs nothing but the host. Its streams are *deferred*: submitted work runs when the driving thread
//! asks for a result, in order of submission. [`StreamOrder::Adversarial`] is the test mode: a seeded
//! generator picks the next operation among all streams that may run, so that a missing event wait
//! gives a wrong result for some seed rather than on some machine.
//!
//! [`Context::cuda`] runs the same calls on an NVIDIA GPU, over the driver that it finds at run time, and
//! answers [`Error::BackendUnavailable`] where there is none.
//!
//! [`Context::foreign`] is another execution library, reached through its C ABI: replay, events and copies
//! are carried over, buffers and graphs of the library are adopted, nothing is decided or scheduled here.
//! What it cannot do (such as capture) it refuses; its table of calls says what.
//!
//! The conformance tests (`tests/conformance`) are written once and run on every backend.
#![warn(missing_docs)]

mod buffer;
mod context;
mod cpu;
mod cuda;
mod error;
mod event;
mod foreign;
mod gate;
mod graph;
mod heap;
mod plan;
mod pool;
mod recorder;
mod table;
mod types;

pub use buffer::{Buffer, Slice};
pub use context::Context;
pub use error::{CapturePhase, Error};
pub use event::Event;
pub use foreign::{ForeignExec, ForeignTable};
pub use graph::{Executable, Graph};
pub use plan::Plan;
pub use pool::Pool;
pub use recorder::{HostKernel, Recorder};
pub use types::*;
