//! Work of the host inside streams: one kernel at a time, and the panics that nobody was told of yet.

use crate::cpu::panic_message;
use crate::gate::{Entered, Gate};
use crate::recorder::HostKernel;
use crate::{Error, Pool};
use std::ffi::c_void;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering::*};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// What the kernels of a context share. Kernels hold it; it holds nothing of the driver, because they
/// run where no call of the driver is allowed.
pub(super) struct Host {
    /// Held by a running kernel and by a host access. Calls of the context only look whether their own
    /// thread is inside.
    gate: Gate<()>,
    pool: Pool,
    failures: Mutex<Vec<Failure>>,
    has_failures: AtomicBool,
}

struct Failure {
    stream: i32,
    error: Error,
}

/// Where a launch came from, for the text of a failure.
#[derive(Default)]
pub(super) struct Origin {
    /// Known when the recording ends.
    text: OnceLock<String>,
    /// The stream of the last launch.
    stream: AtomicI32,
}

impl Origin {
    pub(super) fn set_text(&self, text: String) {
        let _ = self.text.set(text);
    }

    pub(super) fn set_stream(&self, stream: i32) {
        self.stream.store(stream, Relaxed);
    }
}

/// A recorded kernel. Its address is what the driver gets: boxed, it stays until its executable is gone.
pub(super) struct HostCall {
    name: &'static str,
    /// Kernels are `Send` but need not be `Sync`. Never contended: they run inside the gate.
    kernel: Mutex<Box<dyn HostKernel>>,
    origin: Arc<Origin>,
    host: Arc<Host>,
}

impl HostCall {
    pub(super) fn new(
        name: &'static str,
        kernel: Box<dyn HostKernel>,
        origin: &Arc<Origin>,
        host: &Arc<Host>,
    ) -> Box<HostCall> {
        Box::new(HostCall {
            name,
            kernel: Mutex::new(kernel),
            origin: origin.clone(),
            host: host.clone(),
        })
    }

    /// What the driver calls, with the address of the call.
    ///
    /// # Safety
    /// `data` points to a `HostCall` that stays until this returns.
    pub(super) unsafe extern "C" fn run(data: *mut c_void) {
        // SAFETY: the caller's promise.
        let call = unsafe { &*data.cast::<HostCall>() };
        let result = catch_unwind(AssertUnwindSafe(|| {
            let _inside = call.host.gate.enter("a kernel")?;
            lock(&call.kernel).run(&call.host.pool);
            Ok(())
        }));
        match result {
            Ok(Ok(())) => {}
            Ok(Err(error)) => call.fail(Error::to_string(&error)),
            Err(payload) => call.fail(panic_message(&*payload)),
        }
    }

    fn fail(&self, message: String) {
        let stream = self.origin.stream.load(Relaxed);
        let error = Error::KernelPanicked {
            kernel: self.name,
            origin: self.origin.text.get().cloned().unwrap_or_default(),
            stream,
            message,
        };
        let mut failures = lock(&self.host.failures);
        // Only the first one of a stream is kept until it is told.
        if failures.iter().all(|f| f.stream != stream) {
            failures.push(Failure { stream, error });
            self.host.has_failures.store(true, Release);
        }
    }
}

impl Host {
    pub(super) fn new() -> Result<Arc<Host>, Error> {
        Ok(Arc::new(Host {
            gate: Gate::new(()),
            pool: Pool::new(1)?,
            failures: Mutex::new(Vec::new()),
            has_failures: AtomicBool::new(false),
        }))
    }

    pub(super) fn threads(&self) -> usize {
        self.pool.threads()
    }

    /// True inside a kernel or a host access: nothing may wait for the device there.
    pub(super) fn is_inside(&self) -> bool {
        self.gate.is_inside()
    }

    pub(super) fn check(&self, call: &'static str) -> Result<(), Error> {
        match self.is_inside() {
            true => Err(Error::Busy { call }),
            false => Ok(()),
        }
    }

    /// Keeps kernels out.
    pub(super) fn enter(&self, call: &'static str) -> Result<Entered<'_, ()>, Error> {
        self.gate.enter(call)
    }

    /// Tells a failure of a stream that `covers` names, once.
    pub(super) fn report(&self, covers: impl Fn(i32) -> bool) -> Result<(), Error> {
        if !self.has_failures.load(Acquire) {
            return Ok(());
        }
        let mut failures = lock(&self.failures);
        let Some(index) = failures.iter().position(|f| covers(f.stream)) else {
            return Ok(());
        };
        let told = failures.swap_remove(index);
        self.has_failures.store(!failures.is_empty(), Release);
        Err(told.error)
    }

    /// Tells the failure of the lowest stream and forgets the others.
    pub(super) fn report_any(&self) -> Result<(), Error> {
        let failures = std::mem::take(&mut *lock(&self.failures));
        self.has_failures.store(false, Release);
        match failures.into_iter().min_by_key(|f| f.stream) {
            Some(told) => Err(told.error),
            None => Ok(()),
        }
    }
}

/// A lock whose value is whole even after a panic.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
