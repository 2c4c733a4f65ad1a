//! Which instruction set the CPU kernels run with. It never changes a result.

use std::cell::Cell;
use std::sync::OnceLock;

/// An instruction set that the CPU kernels are compiled for.
///
/// All of them give the same bytes: vector lanes hold different output elements, and every
/// element is computed by the same chain of correctly rounded operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Isa {
    /// The target's baseline; fused multiply-add may be a library call. Slow, the reference.
    Portable,
    /// x86-64 with AVX2 and FMA.
    Avx2,
    /// x86-64 with AVX-512F.
    Avx512,
}

impl Isa {
    /// Instruction sets that this machine and this build can run, slowest first.
    pub fn available() -> &'static [Isa] {
        static FOUND: OnceLock<Vec<Isa>> = OnceLock::new();
        FOUND.get_or_init(|| {
            #[allow(unused_mut)]
            let mut found = vec![Isa::Portable];
            #[cfg(target_arch = "x86_64")]
            {
                if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
                    found.push(Isa::Avx2);
                    #[cfg(flashrt_avx512)]
                    if is_x86_feature_detected!("avx512f") {
                        found.push(Isa::Avx512);
                    }
                }
            }
            found
        })
    }

    /// The instruction set that operations recorded by this thread now will run with: the
    /// fastest one, unless [`Isa::with`] says otherwise.
    pub fn selected() -> Isa {
        FORCED
            .get()
            .unwrap_or_else(|| *Isa::available().last().unwrap_or(&Isa::Portable))
    }

    /// Records everything inside `f` on this thread for `self`, for tests and benches.
    /// An instruction set that is not [available](Isa::available) is replaced by the fastest one below it.
    pub fn with<R>(self, f: impl FnOnce() -> R) -> R {
        struct Restore(Option<Isa>);
        impl Drop for Restore {
            fn drop(&mut self) {
                FORCED.set(self.0);
            }
        }
        let usable = Isa::available()
            .iter()
            .copied()
            .filter(|i| *i <= self)
            .max();
        let _restore = Restore(FORCED.replace(usable));
        f()
    }
}

thread_local! {
    static FORCED: Cell<Option<Isa>> = const { Cell::new(None) };
}
