//! Lower-case hexadecimal of 32-byte digests and signatures.
//!
//! Why: signatures travel as 64 hex digits on every request and every chunk, so this must not allocate.

use base16ct::{lower, mixed};

/// The 64 hex digits of a 32-byte value.
pub(crate) fn encode(bytes: &[u8; 32]) -> [u8; 64] {
    let mut out = [0; 64];
    lower::encode(bytes, &mut out).expect("64 digits fit");
    out
}

/// The same as text.
pub(crate) fn text(bytes: &[u8; 32]) -> String {
    lower::encode_string(bytes)
}

/// The value of exactly 64 hex digits of either case.
pub(crate) fn decode(digits: &[u8]) -> Option<[u8; 32]> {
    let mut out = [0; 32];
    let decoded = mixed::decode(digits, &mut out).ok()?;
    (decoded.len() == 32).then_some(out)
}

/// The byte that two hex digits of either case stand for.
pub(crate) fn byte(digits: &[u8; 2]) -> Option<u8> {
    let mut out = [0];
    mixed::decode(digits, &mut out).ok()?;
    Some(out[0])
}
