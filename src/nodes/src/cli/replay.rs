//! `flashrt replay`: a recorded bag, offline.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{bail, Result};

/// Replays `bag` into `out`. Exit code 3 if any action differs from what the tick log says.
///
/// # Errors
/// A file cannot be read or written, or does not fit the deployment.
pub fn run(_config: &Path, _bag: &Path, _out: &Path, _node: &str) -> Result<ExitCode> {
    bail!("not written yet")
}
