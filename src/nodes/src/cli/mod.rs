//! The `flashrt` command.
