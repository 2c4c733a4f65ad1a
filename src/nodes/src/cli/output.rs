//! What a command prints.

use std::fmt::Arguments;
use std::io::{self, ErrorKind, Write};

use anyhow::{Context as _, Result};

/// Prints to stdout at once. A reader that went away (`| head -1`) is no error: the command goes on to its exit code.
///
/// # Errors
/// Any other failure, for instance a full disk.
pub fn print(text: Arguments<'_>) -> Result<()> {
    let mut out = io::stdout().lock();
    match out.write_fmt(text).and_then(|()| out.flush()) {
        Err(e) if e.kind() == ErrorKind::BrokenPipe => Ok(()),
        other => other.context("cannot write to stdout"),
    }
}

/// [`print`] with the end of the line; ends the calling function on an error.
macro_rules! say {
    ($($text:tt)*) => {
        $crate::cli::output::print(format_args!("{}\n", format_args!($($text)*)))?
    };
}
pub(crate) use say;
