//! The kernels of a GPU: compiling, loading, and what identifies them.

use std::path::Path;

use flashrt_exec::Context;

use crate::Error;

/// Compiles and loads every kernel for the device of `ctx`, from the cache where it can. Set-up only: takes seconds the first time,
/// milliseconds later. Does nothing on other backends. An operation whose kernels are not loaded loads them when it is recorded.
///
/// The cache is the folder `FLASHRT_KERNEL_CACHE` (empty: none), else `flashrt/kernels` in the user's cache folder.
///
/// # Errors
/// [`Error::KernelArch`], [`Error::NoCompiler`], [`Error::KernelCompile`], [`Error::KernelLoad`]; it may be tried again.
pub fn prepare(ctx: &Context) -> Result<(), Error> {
    #[cfg(feature = "cuda")]
    crate::cuda::prepare(ctx)?;
    let _ = ctx;
    Ok(())
}

/// What the results of the kernels of `ctx` depend on, as one line for an identity: architecture, compiler, digest of the code. `None`
/// on the CPU, where [`crate::NUMERICS`] says it all. Loads every kernel.
///
/// # Errors
/// Those of [`prepare`].
pub fn identity(ctx: &Context) -> Result<Option<String>, Error> {
    #[cfg(feature = "cuda")]
    return crate::cuda::identity(ctx);
    #[cfg(not(feature = "cuda"))]
    {
        let _ = ctx;
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
