//! A lock that refuses to be entered twice by one thread instead of hanging.

use crate::{pool, Error};
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Held while commands are queued, while kernels run and while the caller touches host memory.
/// A kernel or a host access that comes back to its context gets [`Error::Busy`].
pub(crate) struct Gate<T> {
    owner: AtomicUsize,
    value: Mutex<T>,
}

/// Proof of being inside; leaves on drop.
pub(crate) struct Entered<'a, T> {
    // Cleared in `drop`, before `guard` unlocks.
    owner: &'a AtomicUsize,
    guard: MutexGuard<'a, T>,
}

/// A number that no other living thread has. Never 0.
fn this_thread() -> usize {
    thread_local! { static MARK: u8 = const { 0 }; }
    MARK.with(|mark| std::ptr::from_ref(mark) as usize)
}

impl<T> Gate<T> {
    pub(crate) fn new(value: T) -> Gate<T> {
        Gate {
            owner: AtomicUsize::new(0),
            value: Mutex::new(value),
        }
    }

    /// Enters, waiting for another thread to leave. `call` names the caller in the refusal.
    pub(crate) fn enter(&self, call: &'static str) -> Result<Entered<'_, T>, Error> {
        if self.is_inside() {
            return Err(Error::Busy { call });
        }
        // Kernel panics are caught inside, so a poisoned lock still guards a whole value.
        let guard = self.value.lock().unwrap_or_else(PoisonError::into_inner);
        self.owner.store(this_thread(), Relaxed);
        Ok(Entered {
            owner: &self.owner,
            guard,
        })
    }

    /// True on a thread for which waiting at the gate would never end.
    pub(crate) fn is_inside(&self) -> bool {
        // Only this thread writes its own number, so Relaxed cannot show a false match. A worker is
        // inside a kernel whose driver holds the gate.
        self.owner.load(Relaxed) == this_thread() || pool::on_worker()
    }

    /// The value, when nobody else can be inside.
    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.value.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Deref for Entered<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T> DerefMut for Entered<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

impl<T> Drop for Entered<'_, T> {
    fn drop(&mut self) {
        self.owner.store(0, Relaxed);
    }
}
