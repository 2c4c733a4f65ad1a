//! The kernels of a GPU: compiling, loading, and what identifies them.

use std::path::Path;

use flashrt_exec::Context;

use crate::Error;

/// Which kernels: compiling those of the tensor cores takes ten times as long as all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelSet {
    /// Of the operations on f32 that every transformer has: norms, activations, rope, embeddings, matmul, attention, noise, actions.
    F32,
    /// Every kernel.
    All,
}

#[cfg(feature = "cuda")]
impl KernelSet {
    fn modules(self) -> &'static [&'static crate::device::Module] {
        match self {
            KernelSet::F32 => crate::device::F32_MODULES,
            KernelSet::All => crate::device::MODULES,
        }
    }
}

/// Compiles and loads kernels for the device of `ctx`, from the cache where it can. Set-up only: takes seconds the first time (half a
/// minute for all), milliseconds later. Does nothing on other backends. An operation whose kernels are not loaded loads them when it is recorded.
///
/// The cache is the folder `FLASHRT_KERNEL_CACHE` (empty: none), else `flashrt/kernels` in the user's cache folder.
///
/// # Errors
/// [`Error::KernelArch`], [`Error::NoCompiler`], [`Error::KernelCompile`], [`Error::KernelLoad`]; it may be tried again.
pub fn prepare(ctx: &Context, set: KernelSet) -> Result<(), Error> {
    #[cfg(feature = "cuda")]
    crate::cuda::prepare(ctx, set.modules())?;
    let _ = (ctx, set);
    Ok(())
}

/// What the results of the kernels of `ctx` depend on, as one line for an identity: architecture, compiler, digest of the code. `None`
/// on the CPU, where [`crate::NUMERICS`] says it all. Loads the kernels.
///
/// # Errors
/// Those of [`prepare`].
pub fn identity(ctx: &Context, set: KernelSet) -> Result<Option<String>, Error> {
    #[cfg(feature = "cuda")]
    return crate::cuda::identity(ctx, set.modules());
    #[cfg(not(feature = "cuda"))]
    {
        let _ = (ctx, set);
        Ok(None)
    }
}

/// Compiles every kernel for `arch`, such as `sm_87`, into `folder`, for machines without a compiler: they find them there by
/// `FLASHRT_KERNEL_CACHE`. Needs NVRTC, no GPU. The number of files.
///
/// # Errors
/// [`Error::NoCompiler`], [`Error::KernelCompile`], [`Error::KernelFile`].
pub fn compile_ahead(arch: &str, folder: &Path) -> Result<usize, Error> {
    #[cfg(feature = "cuda")]
    return crate::cuda::compile_ahead(arch, folder);
    #[cfg(not(feature = "cuda"))]
    {
        let _ = (arch, folder);
        Err(Error::NoCompiler {
            reason: "this build has no feature `cuda`".into(),
        })
    }
}
