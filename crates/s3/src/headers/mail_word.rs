//! User metadata outside ASCII: RFC 2047 encoded words, as AWS accepts and returns them.
//!
//! Invariants: E1 `encode` returns printable ASCII, so no stored value can break a response's headers.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Bytes of text in one encoded word, whose maximum length is 75 characters (RFC 2047, section 2).
const WORD_BYTES_MAX: usize = 45;

/// The decoded value; words that cannot be decoded stay unchanged.
pub(crate) fn decode(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    let mut rest = value;
    let mut after_word = false;
    while let Some(at) = rest.find("=?") {
        let between = &rest[..at];
        match word(&rest[at..]) {
            Some((decoded, len)) => {
                // White space between two encoded words only separates them.
                if !(after_word && between.trim().is_empty()) {
                    text.push_str(between);
                }
                text.push_str(&decoded);
                rest = &rest[at + len..];
                after_word = true;
            }
            None => {
                text.push_str(&rest[..at + 2]);
                rest = &rest[at + 2..];
                after_word = false;
            }
        }
    }
    text.push_str(rest);
    text
}

/// Decodes the first word; also returns its length in bytes.
fn word(text: &str) -> Option<(String, usize)> {
    let (charset, rest) = text.strip_prefix("=?")?.split_once('?')?;
    let (encoding, rest) = rest.split_once('?')?;
    let (payload, _) = rest.split_once("?=")?;
    let len = 2 + charset.len() + 1 + encoding.len() + 1 + payload.len() + 2;
    let bytes = match encoding {
        "B" | "b" => STANDARD.decode(payload).ok()?,
        "Q" | "q" => quoted_printable(payload)?,
        _ => return None,
    };
    let decoded = match charset.to_ascii_lowercase().as_str() {
        "utf-8" | "us-ascii" => String::from_utf8(bytes).ok()?,
        "iso-8859-1" => bytes.into_iter().map(char::from).collect(),
        _ => return None,
    };
    Some((decoded, len))
}

fn quoted_printable(payload: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(payload.len());
    let mut rest = payload.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'_' => b' ',
            b'=' => {
                let mut byte = [0];
                base16ct::mixed::decode([rest.next()?, rest.next()?], &mut byte).ok()?;
                byte[0]
            }
            b' ' | b'?' => return None,
            other => other,
        });
    }
    Some(bytes)
}

/// The value as a header: unchanged if printable ASCII, else as encoded words.
pub(crate) fn encode(text: &str) -> String {
    if text.bytes().all(|byte| (0x20..0x7f).contains(&byte)) {
        return text.to_owned();
    }
    let mut value = String::with_capacity(text.len() * 2);
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.floor_char_boundary(WORD_BYTES_MAX);
        if !value.is_empty() {
            value.push(' ');
        }
        value.push_str("=?UTF-8?B?");
        value.push_str(&STANDARD.encode(&rest[..end]));
        value.push_str("?=");
        rest = &rest[end..];
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_decoded() {
        assert_eq!(decode("plain = ? value"), "plain = ? value");
        assert_eq!(decode("=?UTF-8?B?w7w=?="), "ü");
        assert_eq!(decode("a =?utf-8?q?=C3=BC_b?= c"), "a ü b c");
        assert_eq!(decode("=?UTF-8?B?w7w=?= =?UTF-8?B?w7w=?="), "üü");
        assert_eq!(decode("=?ISO-8859-1?Q?=FC?="), "ü");
        for unchanged in ["=?", "=?UTF-8?B?", "=?UTF-8?X?a?=", "=?UTF-8?B?!!?=", "=?KOI8-R?Q?a?=", "=?UTF-8?Q?=F?="] {
            assert_eq!(decode(unchanged), unchanged);
        }
    }

    #[test]
    fn what_is_encoded_is_ascii_and_decodes_to_itself() {
        for text in ["", "plain", "ü", "a\r\nInjected: yes", &"кот 🐈 ".repeat(40)] {
            let value = encode(text);
            assert!(value.bytes().all(|byte| (0x20..0x7f).contains(&byte)), "{value}");
            assert!(value.split(' ').all(|word| word.len() <= 75));
            assert_eq!(decode(&value), text);
        }
    }
}
