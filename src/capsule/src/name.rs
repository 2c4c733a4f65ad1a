//! The rule for capsule names.

use crate::Error;

/// Longest capsule name in bytes.
pub const MAX_NAME_BYTES: usize = 128;

/// `Ok` when `name` is `[A-Za-z0-9][A-Za-z0-9_.-]{0,127}`: safe as a file name and in a message.
pub fn check_name(name: &str) -> Result<(), Error> {
    let b = name.as_bytes();
    let is_good = (1..=MAX_NAME_BYTES).contains(&b.len())
        && b[0].is_ascii_alphanumeric()
        && b.iter()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, b'_' | b'.' | b'-'));
    if is_good {
        return Ok(());
    }
    Err(Error::BadName {
        name: name.chars().take(MAX_NAME_BYTES).collect(),
        bytes: name.len(),
    })
}
