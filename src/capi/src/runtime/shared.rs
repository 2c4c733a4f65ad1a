//! The reference count of every object that leaves the library.

use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};

/// An owner's pointer with its callbacks, as a producer hands it in.
#[derive(Clone, Copy)]
pub(super) struct Owner {
    pub(super) pointer: *mut c_void,
    pub(super) release: Option<unsafe extern "C" fn(*mut c_void)>,
}

impl Owner {
    /// # Safety
    /// The callback accepts the pointer; called once.
    pub(super) unsafe fn release(self) {
        if let Some(release) = self.release {
            // SAFETY: the producer's own callback on its own pointer.
            unsafe { release(self.pointer) }
        }
    }
}

/// What is done once, when the last reference is gone and before the object is freed.
pub(super) trait Last {
    /// # Safety
    /// `this` is alive, no reference to it is left, and nothing calls this a second time.
    unsafe fn last(this: *const Self);
}

/// A value on the heap with a reference count. Starts with one reference.
pub(super) struct Shared<T> {
    refs: AtomicUsize,
    pub(super) value: T,
}

impl<T: Last> Shared<T> {
    /// Moves the value to its final place. Pointers into it stay good until the last release.
    pub(super) fn new(value: T) -> *mut Shared<T> {
        Box::into_raw(Box::new(Shared {
            refs: AtomicUsize::new(1),
            value,
        }))
    }

    /// Adds a reference. Any thread. Null is ignored.
    ///
    /// # Safety
    /// Null, or an `owner` from [`Shared::new`] to which the caller holds a reference.
    pub(super) unsafe extern "C" fn retain(owner: *mut c_void) {
        if owner.is_null() {
            return;
        }
        // SAFETY: a reference is held, so the object is alive.
        let refs = unsafe { &(*owner.cast::<Shared<T>>()).refs };
        // A new reference comes from one that is held: nothing to order.
        if refs.fetch_add(1, Ordering::Relaxed) > isize::MAX as usize {
            std::process::abort();
        }
    }

    /// Gives a reference back; the last one ends the object. Any thread. Null is ignored.
    ///
    /// # Safety
    /// Null, or an `owner` from [`Shared::new`] to which the caller holds a reference; that reference is gone afterwards.
    pub(super) unsafe extern "C" fn release(owner: *mut c_void) {
        if owner.is_null() {
            return;
        }
        let this = owner.cast::<Shared<T>>();
        // SAFETY: a reference is held, so the object is alive. Release: what this thread did with it comes before the end;
        // acquire: what the other threads did too.
        if unsafe { &(*this).refs }.fetch_sub(1, Ordering::AcqRel) != 1 {
            return;
        }
        // SAFETY: that was the last reference: nobody else reaches the object, and this line is reached once.
        unsafe {
            T::last(&raw const (*this).value);
            drop(Box::from_raw(this));
        }
    }
}
