//! Percent escapes of bytes, as URLs and signatures write them.
//!
//! Not here: which bytes are escaped in listings (`xml::write`) and in canonical requests (`auth`), what a decoder's caller says
//!           about text that is no such encoding.

use base16ct::{mixed, upper};

/// Why a text cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Undecodable {
    /// A percent sign without two hexadecimal digits.
    Escape,
    /// What it stands for is no UTF-8.
    Utf8,
}

/// `%XX` of a byte.
pub fn escape(byte: u8) -> [u8; 3] {
    let mut escape = *b"%00";
    upper::encode(&[byte], &mut escape[1..]).expect("two digits fit");
    escape
}

/// Encodes as V4 signatures require: everything except letters, digits and `-._~`, and `/` as a separator.
pub fn encode_into(out: &mut String, text: &str, keep_slash: bool) {
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) || (keep_slash && byte == b'/') {
            out.push(byte as char);
        } else {
            out.extend(escape(byte).map(char::from));
        }
    }
}

/// Decodes `%XX` of either case, once; in queries and in listings `+` is a space.
pub fn decode(text: &str, plus_is_space: bool) -> Result<String, Undecodable> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        match first {
            b'%' => {
                let (digits, behind) = rest.split_at_checked(2).ok_or(Undecodable::Escape)?;
                let mut byte = [0];
                mixed::decode(digits, &mut byte).map_err(|_| Undecodable::Escape)?;
                bytes.push(byte[0]);
                rest = behind;
            }
            b'+' if plus_is_space => bytes.push(b' '),
            other => bytes.push(*other),
        }
    }
    String::from_utf8(bytes).map_err(|_| Undecodable::Utf8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_decoded_once_or_not_at_all() {
        assert_eq!(decode("a%2fb%2Fc+d%252F", true).unwrap(), "a/b/c d%2F");
        assert_eq!(decode("a+b", false).unwrap(), "a+b");
        for (wrong, why) in [
            ("%", Undecodable::Escape),
            ("a%2", Undecodable::Escape),
            ("%zz", Undecodable::Escape),
            ("%+1", Undecodable::Escape),
            ("%c3", Undecodable::Utf8),
        ] {
            assert_eq!(decode(wrong, true), Err(why), "{wrong}");
        }
        let mut out = String::new();
        encode_into(&mut out, "a/b c~ä", false);
        assert_eq!((out.as_str(), decode(&out, false).as_deref()), ("a%2Fb%20c~%C3%A4", Ok("a/b c~ä")));
    }
}
