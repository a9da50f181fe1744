//! Percent-encoding of paths, queries and forms.
//!
//! Not here: decoding (`xml`).

use margay_s3::percent::escape;

/// Percent-encodes as V4 signatures require: everything except letters, digits and `-._~`, and `/` as a separator.
pub fn encode_into(out: &mut String, text: &str, keep_slash: bool) {
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) || (keep_slash && byte == b'/') {
            out.push(byte as char);
        } else {
            out.extend(escape(byte).map(char::from));
        }
    }
}

/// A key as a whole path.
pub(crate) fn encoded_path(key: &str) -> String {
    let mut path = String::from("/");
    encode_into(&mut path, key, true);
    path
}
