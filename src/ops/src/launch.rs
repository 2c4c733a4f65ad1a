//! From a checked operation to work on a recorder.

use flashrt_exec::{BackendKind, Pool, Recorder};

use crate::device::Call;
use crate::lanes::{dispatch, Lanes};
use crate::{Error, Isa, Tensor};

/// Work of one CPU operation, cut into tasks that write disjoint bytes.
///
/// Tasks may run at once and in any order; the cut may depend on shapes, never on the thread count.
pub(crate) trait Kernel: Send + Sync + 'static {
    fn tasks(&self) -> usize;

    /// Runs one task.
    ///
    /// # Safety
    /// All pointers in `self` must be valid for the extents that the operation checked, and no
    /// other code may touch the outputs meanwhile. Must be `#[inline(always)]` and reached through
    /// [`dispatch`], so that the lanes' instructions exist.
    unsafe fn run<V: Lanes>(&self, task: usize);
}

/// Records an operation: `kernel` on the CPU, the launches of `calls` on a GPU.
///
/// `touches` must hold every tensor that either has a pointer into: they keep the memory alive.
pub(crate) fn record<K: Kernel>(
    r: &mut Recorder<'_>,
    op: &'static str,
    touches: &[&Tensor],
    kernel: K,
    calls: impl FnOnce() -> Vec<Call>,
) -> Result<(), Error> {
    // Empty outputs need no work.
    if kernel.tasks() == 0 {
        return Ok(());
    }
    match r.backend() {
        BackendKind::Cpu => on_cpu(r, op, touches, kernel),
        #[cfg(feature = "cuda")]
        BackendKind::Cuda => crate::cuda::record(r, op, touches, calls()),
        backend => {
            let _ = calls;
            Err(Error::Exec(flashrt_exec::Error::BackendUnavailable {
                backend,
                reason: format!("{op} has no kernel there"),
            }))
        }
    }
}

/// Records the launches of an operation that has no CPU half; operands of half precision come here.
pub(crate) fn on_device(
    r: &mut Recorder<'_>,
    op: &'static str,
    touches: &[&Tensor],
    calls: Vec<Call>,
) -> Result<(), Error> {
    #[cfg(feature = "cuda")]
    return crate::cuda::record(r, op, touches, calls);
    #[cfg(not(feature = "cuda"))]
    {
        let _ = (touches, calls);
        Err(Error::Exec(flashrt_exec::Error::BackendUnavailable {
            backend: r.backend(),
            reason: format!("{op} has no kernel there"),
        }))
    }
}

/// Bytes of shared memory that a block can have on the recorder's device; 0 where there is no such thing.
pub(crate) fn shared_limit(r: &Recorder<'_>) -> Result<usize, Error> {
    #[cfg(feature = "cuda")]
    if r.backend() == BackendKind::Cuda {
        return crate::cuda::shared_limit(r.context());
    }
    let _ = r;
    Ok(0)
}

fn on_cpu<K: Kernel>(
    r: &mut Recorder<'_>,
    op: &'static str,
    touches: &[&Tensor],
    kernel: K,
) -> Result<(), Error> {
    let isa = Isa::selected();
    let slices: Vec<_> = touches.iter().map(|t| t.slice()).collect();
    let work = move |pool: &Pool| {
        // SAFETY: the graph or stream keeps `touches` alive and runs operations one after
        // another, every extent was checked before `record`, and tasks write disjoint bytes.
        let one = |task: usize| unsafe { dispatch(isa, &kernel, task) };
        match kernel.tasks() {
            1 => one(0),
            n => pool.for_each(n, &one),
        }
    };
    Ok(r.host_kernel(op, &slices, Box::new(work))?)
}

/// A pointer that tasks may share: they write disjoint elements through it.
pub(crate) struct Ptr<T>(*mut T);

impl<T> Clone for Ptr<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Ptr<T> {}

// SAFETY: a plain address; who dereferences it vouches for the access (see `Kernel::run`).
unsafe impl<T> Send for Ptr<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Ptr<T> {}

impl<T> Ptr<T> {
    /// First element of a view whose element type has the size of `T`.
    pub fn of(t: &Tensor) -> Ptr<T> {
        debug_assert_eq!(t.dtype().bytes(), size_of::<T>());
        Ptr((t.slice().buffer().addr() + t.slice().offset()) as *mut T)
    }

    pub fn of_opt(t: Option<&Tensor>) -> Option<Ptr<T>> {
        t.map(Ptr::of)
    }

    #[inline(always)]
    pub fn get(self) -> *const T {
        self.0
    }

    #[inline(always)]
    pub fn mut_ptr(self) -> *mut T {
        self.0
    }
}
