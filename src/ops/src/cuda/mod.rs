//! Kernels on an NVIDIA GPU: compiled when a context first needs them, launched by recorded work.
//!
//! `nvrtc` compiles a file of `kernels/`, `cache` keeps what came out on disk, `library` loads it for a context. Nothing of CUDA but
//! the driver must be there when the cache already holds a file.

mod cache;
pub(crate) mod cublaslt;
mod library;
mod nvrtc;

use std::ffi::c_void;
use std::sync::Arc;

use cudarc::driver::sys;
use flashrt_exec::{Context, Recorder};

use crate::device::{Call, Module};
use crate::{Error, Tensor};
use library::Library;

pub(crate) use cache::compile_ahead;

/// Bytes of dynamic shared memory that a kernel gets without asking.
const UNASKED_SHARED: u32 = 48 << 10;

/// Records `calls` one after another.
pub(crate) fn record(
    r: &mut Recorder<'_>,
    op: &'static str,
    touches: &[&Tensor],
    calls: Vec<Call>,
) -> Result<(), Error> {
    let library = Library::of(r.context())?;
    let slices: Vec<_> = touches.iter().map(|t| t.slice()).collect();
    for call in calls {
        if let Some(n) = call.excess {
            return Err(Error::Argument {
                op,
                argument: "elements",
                expected: format!("at most {} on cuda", i32::MAX),
                got: n.to_string(),
            });
        }
        if call.grid.contains(&0) {
            continue;
        }
        let (function, module) = library.function(call.module, call.kernel)?;
        if call.shared > UNASKED_SHARED {
            library::allow_shared(function, call.shared)
                .map_err(|reason| library.failed(call.module, call.kernel, &reason))?;
        }
        let mut args: Vec<*mut c_void> = call
            .args
            .iter()
            .map(|a| a.as_ptr().cast_mut().cast())
            .collect();
        let submit = |stream: *mut c_void| {
            let [x, y] = call.grid;
            // SAFETY: the kernel takes just these parameters (a test launches each), whose bytes live until the call returns; a
            // function of a loaded module of the stream's context.
            let answer = unsafe {
                sys::cuLaunchKernel(
                    function.0,
                    x,
                    y,
                    1,
                    call.block,
                    1,
                    1,
                    call.shared,
                    stream.cast(),
                    args.as_mut_ptr(),
                    std::ptr::null_mut(),
                )
            };
            library::answer("cuLaunchKernel", answer)
                .map_err(|reason| format!("{}: {reason}", call.kernel))
        };
        // SAFETY: the operation checked every operand that the kernel has a pointer to, and names it in `touches`; `module` keeps
        // the code.
        unsafe { r.device_work(op, &slices, Some(module), submit) }?;
    }
    Ok(())
}

/// Bytes of shared memory that a block can have on the device of `ctx`.
pub(crate) fn shared_limit(ctx: &Context) -> Result<usize, Error> {
    Ok(Library::of(ctx)?.shared)
}

/// Compiles and loads these kernels for the device of `ctx`. Does nothing on other backends, and the second time.
pub(crate) fn prepare(ctx: &Context, modules: &[&'static Module]) -> Result<(), Error> {
    if ctx.device_ordinal().is_none() {
        return Ok(());
    }
    let library = Library::of(ctx)?;
    modules
        .iter()
        .try_for_each(|module| library.load(module).map(drop))
}

/// What the results of the kernels of `ctx` depend on; loads them. `None` on other backends.
pub(crate) fn identity(
    ctx: &Context,
    modules: &[&'static Module],
) -> Result<Option<String>, Error> {
    if ctx.device_ordinal().is_none() {
        return Ok(None);
    }
    let library: Arc<Library> = Library::of(ctx)?;
    library.identity(modules).map(Some)
}
