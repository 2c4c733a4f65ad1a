//! The rule for names inside a live set.

use crate::Error;

/// Longest name of a buffer, region, graph, port or plan of a live set, in bytes. Far below the length at
/// which the identity text would cut a record.
pub const MAX_NAME_BYTES: usize = 96;

/// Refuses names that could make two declarations print the same identity text.
pub(crate) fn check_name(kind: &'static str, name: &str) -> Result<(), Error> {
    let bad = |reason| {
        Err(Error::BadName {
            kind,
            name: name.to_owned(),
            reason,
        })
    };
    if name.is_empty() {
        return bad("is empty");
    }
    if name.len() > MAX_NAME_BYTES {
        return bad("is longer than 96 bytes");
    }
    if name.contains([':', '=', ';', ',']) || name.chars().any(char::is_control) {
        return bad("has ':', '=', ';', ',' or a control character");
    }
    Ok(())
}
