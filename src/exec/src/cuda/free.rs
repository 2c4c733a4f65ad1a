//! Giving memory and executables back once the device cannot be using them any more.

use super::capture::Parts;
use super::device::Device;
use super::driver::{Driver, GraphExec, Raw};
use super::host::lock;
use cudarc::driver::sys;
use std::marker::PhantomData;
use std::sync::atomic::Ordering::*;

/// What nothing refers to any more, but the device may still be using.
pub(super) enum Dead {
    Device(sys::CUdeviceptr),
    Host(usize),
    Event(Raw<sys::CUevent_st>),
    Exec(GraphExec, Parts),
}

/// While it lives, this thread may allocate, wait and free although some other code captures in a strict
/// mode, which such calls would break.
pub(super) struct RelaxedMode<'a> {
    driver: &'a Driver,
    before: sys::CUstreamCaptureMode,
    /// The mode belongs to one thread.
    stays: PhantomData<*const ()>,
}

impl Drop for RelaxedMode<'_> {
    fn drop(&mut self) {
        // SAFETY: reads and writes one mode; it is that of this thread, which the guard cannot leave.
        let _ = unsafe {
            self.driver
                .cuThreadExchangeStreamCaptureMode(&mut self.before)
        };
    }
}

impl Device {
    pub(super) fn relaxed(&self) -> RelaxedMode<'_> {
        let mut mode = RelaxedMode {
            driver: self.driver,
            before: sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED,
            stays: PhantomData,
        };
        // SAFETY: reads and writes one mode, of this thread.
        let _ = unsafe {
            self.driver
                .cuThreadExchangeStreamCaptureMode(&mut mode.before)
        };
        mode
    }

    /// Frees `dead` once the device has done what was submitted: now, unless nothing may wait now.
    pub(super) fn bury(&self, dead: Dead) {
        lock(&self.dead).push(dead);
        self.has_dead.store(true, Release);
        self.sweep();
    }

    /// Events need no waiting: the driver keeps one until it is past. Kernels may call nothing at all.
    pub(super) fn drop_event(&self, event: Raw<sys::CUevent_st>) {
        if self.host.is_inside() {
            lock(&self.dead).push(Dead::Event(event));
            self.has_dead.store(true, Release);
            return;
        }
        drop(self.free(Dead::Event(event)));
    }

    /// Frees what is dead, unless nothing may wait now.
    pub(super) fn sweep(&self) {
        if !self.has_dead.load(Acquire) || self.host.is_inside() {
            return;
        }
        let dead = {
            let streams = self.read();
            // Taken before waiting: what is buried meanwhile may be in use by later work.
            let dead = std::mem::take(&mut *lock(&self.dead));
            self.has_dead.store(false, Release);
            if self.make_current().is_err() || !self.settle(&streams) {
                lock(&self.dead).extend(dead);
                self.has_dead.store(true, Release);
                return;
            }
            if self.is_lost() {
                // Nobody can say what the device still does with it.
                std::mem::forget(dead);
                return;
            }
            dead.into_iter().map(|d| self.free(d)).collect::<Vec<_>>()
        };
        // Outside the table's lock: kernels have foreign drop code, and buffers come back here.
        drop(dead);
    }

    /// Gives one thing back to the driver, which has no use for it any more. What remains is ours to drop.
    fn free(&self, dead: Dead) -> Option<Parts> {
        let _relaxed = self.relaxed();
        let (answer, parts) = match dead {
            // SAFETY: came from `cuMemAlloc_v2`; nobody holds it and no stream uses it.
            Dead::Device(address) => (unsafe { self.driver.cuMemFree_v2(address) }, None),
            // SAFETY: came from `cuMemHostAlloc`; as above.
            Dead::Host(address) => (
                unsafe { self.driver.cuMemFreeHost(address as *mut _) },
                None,
            ),
            // SAFETY: an event of this crate, with no handle left.
            Dead::Event(event) => (unsafe { self.driver.cuEventDestroy_v2(event.0) }, None),
            // SAFETY: an executable of this crate, with no handle left.
            Dead::Exec(exec, parts) => (
                unsafe { self.driver.cuGraphExecDestroy(exec.0) },
                Some(parts),
            ),
        };
        // A failure that matters comes again in the next call.
        let _ = self.check(answer);
        parts
    }

    /// As [`Device::bury`], for an executable that is known to have ended.
    pub(super) fn free_ended(&self, exec: GraphExec, parts: Parts) {
        match self.host.is_inside() || self.make_current().is_err() {
            true => self.bury(Dead::Exec(exec, parts)),
            false => drop(self.free(Dead::Exec(exec, parts))),
        }
    }
}
