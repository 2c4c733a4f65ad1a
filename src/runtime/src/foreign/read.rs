//! Reads another library's texts, bounded, and copies them.

use std::ffi::c_char;

use super::Fault;

/// Longest name or error text, in bytes.
pub(super) const MAX_TEXT: usize = 64 << 10;
/// Longest identity or manifest, in bytes.
pub(super) const MAX_DOCUMENT: usize = 16 << 20;

/// Copies the bytes of a text before its closing NUL; `None` when there is no NUL within `limit` bytes.
///
/// # Safety
/// `at` points to bytes that are readable up to a NUL or up to `limit`, and that nobody writes now.
pub(super) unsafe fn bytes_until_nul(at: *const c_char, limit: usize) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    while out.len() < limit {
        // SAFETY: no NUL before it and below `limit`: readable by the caller's promise.
        let byte = unsafe { at.add(out.len()).cast::<u8>().read() };
        if byte == 0 {
            return Some(out);
        }
        out.push(byte);
    }
    None
}

/// A document: bytes, not null, at most [`MAX_DOCUMENT`].
///
/// # Safety
/// `at` is null, or as for [`bytes_until_nul`].
pub(super) unsafe fn document(what: &str, at: *const c_char) -> Result<Vec<u8>, Fault> {
    if at.is_null() {
        return Err(Fault::object(format!("{what} is null")));
    }
    // SAFETY: not null, and the caller's promise.
    unsafe { bytes_until_nul(at, MAX_DOCUMENT) }
        .ok_or_else(|| Fault::object(format!("{what} has no end within {MAX_DOCUMENT} bytes")))
}

/// A name: UTF-8, not null, at most [`MAX_TEXT`] bytes.
///
/// # Safety
/// As [`document`].
pub(super) unsafe fn name(what: &str, at: *const c_char) -> Result<String, Fault> {
    if at.is_null() {
        return Err(Fault::object(format!("the name of {what} is null")));
    }
    // SAFETY: not null, and the caller's promise.
    let bytes = unsafe { bytes_until_nul(at, MAX_TEXT) }.ok_or_else(|| {
        Fault::object(format!(
            "the name of {what} has no end within {MAX_TEXT} bytes"
        ))
    })?;
    String::from_utf8(bytes).map_err(|e| {
        Fault::object(format!(
            "the name of {what} is not UTF-8 from byte {} on",
            e.utf8_error().valid_up_to()
        ))
    })
}

/// An error text, for messages: never fails.
///
/// # Safety
/// As [`document`].
pub(super) unsafe fn error_text(at: *const c_char) -> String {
    if at.is_null() {
        return "no text (null)".to_owned();
    }
    // SAFETY: not null, and the caller's promise.
    match unsafe { bytes_until_nul(at, MAX_TEXT) } {
        None => format!("a text without an end within {MAX_TEXT} bytes"),
        Some(bytes) if bytes.is_empty() => "no text (empty)".to_owned(),
        Some(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
    }
}
