//! Built-in policies by name.

use std::path::Path;

use flashrt_exec::Context;
use flashrt_runtime::Producer;

use crate::pi05::{Pi05, Pi05Options};
use crate::Error;

/// Names that [`open`] knows.
pub const NAMES: [&str; 1] = ["pi05"];

/// Loads the built-in policy `name` from the folder `dir` onto `ctx`.
///
/// # Errors
/// [`Error::UnknownPolicy`], and what the policy's loader says.
pub fn open(
    name: &str,
    ctx: &Context,
    dir: &Path,
    options: Pi05Options,
) -> Result<Box<dyn Producer>, Error> {
    match name {
        "pi05" => Ok(Box::new(Pi05::load(ctx, dir, options)?)),
        _ => Err(Error::UnknownPolicy {
            name: name.into(),
            known: NAMES.join(", "),
        }),
    }
}

/// Compiles the kernels of every built-in policy for a GPU of architecture `arch` into `folder`; the number of files. See
/// [`flashrt_ops::compile_ahead`].
///
/// # Errors
/// [`Error::Ops`].
pub fn compile_kernels(arch: &str, folder: &Path) -> Result<usize, Error> {
    Ok(flashrt_ops::compile_ahead(arch, folder)?)
}
