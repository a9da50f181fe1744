//! What the fuzz target calls: a log of a load as arbitrary bytes.

/// What was read is written so that it is read again, and says the same.
pub fn load_log(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Some(written) = crate::load::reread_log(text) else { return };
    assert_eq!(crate::load::reread_log(&written), Some(written), "a log that was read is written and read");
}
