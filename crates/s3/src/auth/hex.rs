//! Lower-case hexadecimal of 32-byte digests and signatures.
//!
//! Why: signatures travel as 64 hex digits on every request and every chunk, so this must not allocate.

/// The 64 hex digits of a 32-byte value.
pub(crate) fn encode(bytes: &[u8; 32]) -> [u8; 64] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut out = [0; 64];
    for (pair, byte) in out.chunks_exact_mut(2).zip(bytes) {
        pair[0] = DIGITS[usize::from(byte >> 4)];
        pair[1] = DIGITS[usize::from(byte & 15)];
    }
    out
}

/// The same as text.
pub(crate) fn text(bytes: &[u8; 32]) -> String {
    encode(bytes).iter().map(|digit| char::from(*digit)).collect()
}

/// The value of exactly 64 hex digits of either case.
pub(crate) fn decode(digits: &[u8]) -> Option<[u8; 32]> {
    if digits.len() != 64 {
        return None;
    }
    let mut out = [0; 32];
    for (byte, pair) in out.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = nibble(pair[0])? << 4 | nibble(pair[1])?;
    }
    Some(out)
}

/// The value of one hex digit.
pub(crate) fn nibble(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}
