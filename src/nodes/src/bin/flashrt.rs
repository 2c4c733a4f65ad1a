//! The `flashrt` command.
fn main() {}
