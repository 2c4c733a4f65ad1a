//! The CUDA backend, over the driver API alone.
//!
//! The driver library is looked up when the first context is asked for, so one binary runs with and
//! without a GPU. `driver` holds the functions, `device` the primary context with its streams, and the
//! other files one kind of object each. Without the feature `cuda` there is `absent` in their place.
//!
//! # What differs from the CPU backend
//!
//! * Work runs at once, on the device. What nobody asks for runs too; dropping a context waits for it.
//! * Dropping the last handle of memory or of a variant waits for the streams of the context, then frees.
//!   Inside a capture, a kernel or a host access nothing may wait: then it is freed a little later.
//! * A host kernel runs on a thread of the driver, one at a time for the whole context. When it panics,
//!   the device operations behind it in the same launch still run. The failure is told as on the CPU.
//! * Host access does not wait for copies under way, as on the CPU: synchronise before it.
//! * A failure that spoils the device's context (an illegal address, say) is told by every later call.
//! * The primary context of the device stays current on the threads that made calls.

#[cfg(not(feature = "cuda"))]
mod absent;
#[cfg(feature = "cuda")]
mod backend;
#[cfg(feature = "cuda")]
mod capture;
#[cfg(feature = "cuda")]
mod device;
#[cfg(feature = "cuda")]
mod driver;
#[cfg(feature = "cuda")]
mod event;
#[cfg(feature = "cuda")]
mod free;
#[cfg(feature = "cuda")]
mod gather;
#[cfg(feature = "cuda")]
mod host;
#[cfg(feature = "cuda")]
mod memory;
#[cfg(feature = "cuda")]
mod streams;
#[cfg(feature = "cuda")]
mod transfer;

#[cfg(not(feature = "cuda"))]
pub(crate) use absent::{CudaBackend, CudaCapture, CudaEvent, CudaExec, CudaMemory};
#[cfg(feature = "cuda")]
pub(crate) use {
    backend::CudaBackend,
    capture::{CudaCapture, CudaExec},
    event::CudaEvent,
    memory::CudaMemory,
};
