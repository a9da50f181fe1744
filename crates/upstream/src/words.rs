//! Values of metadata that are not ASCII: encoded words of RFC 2047, as AWS returns them.
//!
//! Why:        `user.title` may be `ü`, and a header may not; other clients see the same value.
//! Invariants: W1 what is encoded is decoded to the same. What does not decode is the value itself.
//! Not here:   values that no header can hold (xattrs).

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

const BEGIN: &str = "=?";
const END: &str = "?=";
const CHARSET: &str = "utf-8";

/// A value as a header.
pub(crate) fn encoded(value: &str) -> String {
    match value.is_ascii() && !value.starts_with(BEGIN) {
        true => value.to_owned(),
        false => format!("{BEGIN}UTF-8?B?{}{END}", BASE64_STANDARD.encode(value)),
    }
}

/// A header as a value; `None`: it is not UTF-8.
pub(crate) fn decoded(header: &[u8]) -> Option<String> {
    let plain = std::str::from_utf8(header).ok()?;
    let words: Option<Vec<Vec<u8>>> = plain.split_ascii_whitespace().map(word).collect();
    let value = words.filter(|words| !words.is_empty()).and_then(|words| String::from_utf8(words.concat()).ok());
    Some(value.unwrap_or_else(|| plain.to_owned()))
}

/// The bytes of one encoded word.
fn word(text: &str) -> Option<Vec<u8>> {
    let (charset, rest) = text.strip_prefix(BEGIN)?.strip_suffix(END)?.split_once('?')?;
    let (kind, text) = rest.split_once('?').filter(|_| charset.eq_ignore_ascii_case(CHARSET))?;
    match kind {
        "B" | "b" => BASE64_STANDARD.decode(text).ok(),
        "Q" | "q" => Some(quoted(text)),
        _ => None,
    }
}

/// `_` is a space, `=` is followed by two digits.
fn quoted(text: &str) -> Vec<u8> {
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let Some((byte, after)) = rest.split_first() {
        let digits = after.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        let code = digits.filter(|_| *byte == b'=').and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(code.unwrap_or(if *byte == b'_' { b' ' } else { *byte }));
        rest = if code.is_some() { &after[2..] } else { after };
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_value_comes_back() {
        for value in ["", "plain", "\u{fc}ber", "=?UTF-8?B?eA==?=", "=?x", "a b"] {
            let header = encoded(value);
            assert!(header.is_ascii(), "{header}");
            assert_eq!(decoded(header.as_bytes()).as_deref(), Some(value));
        }
        assert_eq!(encoded("\u{fc}"), "=?UTF-8?B?w7w=?=");
    }

    #[test]
    fn words_of_others_are_read() {
        let read = |text: &str| decoded(text.as_bytes()).unwrap();
        assert_eq!(read("=?utf-8?q?=C3=BC_b?="), "\u{fc} b");
        assert_eq!(read("=?UTF-8?B?w7w=?= =?UTF-8?B?w7w=?="), "\u{fc}\u{fc}");
        for odd in ["=?UTF-8?B?%?=", "=?latin1?B?w7w=?=", "=?UTF-8?B?w7w=?= x", "=?UTF-8?B?/w==?="] {
            assert_eq!(read(odd), odd);
        }
        assert_eq!(decoded(b"\xff"), None);
    }
}
