//! Writes XML into one growing buffer.
//!
//! Why:        a list page of 1000 keys must cost little more than its bytes; no item allocates.
//! Invariants: X1 text is always escaped; characters that XML 1.0 cannot contain (control bytes) become character
//!                references, as at AWS.

use std::fmt::Write as _;

use bytes::{BufMut, BytesMut};

use crate::percent;

pub(crate) const NAMESPACE: &str = "http://s3.amazonaws.com/doc/2006-03-01/";

/// Appends elements; names are trusted, texts are not.
pub(crate) struct Writer<'a> {
    out: &'a mut BytesMut,
}

impl<'a> Writer<'a> {
    pub(crate) fn new(out: &'a mut BytesMut) -> Writer<'a> {
        Writer { out }
    }

    /// The XML declaration.
    pub(crate) fn document(&mut self) {
        self.out.put_slice(b"<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    }

    /// The declaration and a root element in the S3 namespace.
    pub(crate) fn root(&mut self, name: &str) {
        self.document();
        self.raw("<");
        self.raw(name);
        self.raw(" xmlns=\"");
        self.raw(NAMESPACE);
        self.raw("\">");
    }

    pub(crate) fn open(&mut self, name: &str) {
        self.raw("<");
        self.raw(name);
        self.raw(">");
    }

    pub(crate) fn close(&mut self, name: &str) {
        self.raw("</");
        self.raw(name);
        self.raw(">");
    }

    /// An element with text.
    pub(crate) fn text(&mut self, name: &str, text: &str) {
        self.open(name);
        escape(self.out, text);
        self.close(name);
    }

    /// An element with text, or nothing when there is none.
    pub(crate) fn optional(&mut self, name: &str, text: Option<&str>) {
        if let Some(text) = text {
            self.text(name, text);
        }
    }

    pub(crate) fn number(&mut self, name: &str, number: u64) {
        self.open(name);
        decimal(self.out, number);
        self.close(name);
    }

    pub(crate) fn flag(&mut self, name: &str, flag: bool) {
        self.text(name, if flag { "true" } else { "false" });
    }

    /// Appends text that is already XML.
    pub(crate) fn raw(&mut self, xml: &str) {
        self.out.put_slice(xml.as_bytes());
    }

    pub(crate) fn buffer(&mut self) -> &mut BytesMut {
        self.out
    }
}

/// Whether a text needs no escaping: printable ASCII without XML's special characters.
pub(crate) fn is_plain(text: &str) -> bool {
    let plain = |byte: u8| (0x20..0x7f).contains(&byte) && !matches!(byte, b'&' | b'<' | b'>' | b'"');
    // Without an early exit the compiler vectorizes the loop.
    text.bytes().fold(true, |all, byte| all & plain(byte))
}

/// Appends text such that an XML parser returns the same text.
pub(crate) fn escape(out: &mut BytesMut, text: &str) {
    let bytes = text.as_bytes();
    let mut done = 0;
    for (at, byte) in bytes.iter().enumerate() {
        let reference: &[u8] = match byte {
            b'&' => b"&amp;",
            b'<' => b"&lt;",
            b'>' => b"&gt;",
            b'"' => b"&quot;",
            0..0x20 | 0x7f => b"",
            _ => continue,
        };
        out.put_slice(&bytes[done..at]);
        done = at + 1;
        if reference.is_empty() {
            write!(out, "&#x{byte:X};").expect("a buffer grows");
        } else {
            out.put_slice(reference);
        }
    }
    out.put_slice(&bytes[done..]);
}

/// Whether XML 1.0 can represent a text, references included.
pub(crate) fn carries(text: &str) -> bool {
    // U+FFFE and U+FFFF begin with 0xEF, which few other texts contain, so most texts are checked once, by bytes.
    let suspicious = |byte: u8| (byte < 0x20 && !matches!(byte, b'\t' | b'\n' | b'\r')) || byte == 0xef;
    let lacks = |one: char| matches!(one, '\0'..'\t' | '\u{b}' | '\u{c}' | '\u{e}'..' ' | '\u{fffe}' | '\u{ffff}');
    !text.bytes().any(suspicious) || !text.contains(lacks)
}

/// Appends a number in decimal.
pub(crate) fn decimal(out: &mut BytesMut, mut number: u64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.put_slice(&digits[at..]);
}

/// Appends text percent-encoded for `encoding-type=url`: everything but letters, digits and `-_.~/`.
pub(crate) fn percent_encode(out: &mut BytesMut, text: &str) {
    for &byte in text.as_bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~' | b'/') {
            out.put_u8(byte);
        } else {
            out.put_slice(&percent::escape(byte));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn escaped(text: &str) -> String {
        let mut out = BytesMut::new();
        escape(&mut out, text);
        String::from_utf8(out.to_vec()).unwrap()
    }

    #[test]
    fn text_survives_an_xml_reader() {
        assert_eq!(escaped("plain/key"), "plain/key");
        assert_eq!(escaped("a&b<c>\"d\""), "a&amp;b&lt;c&gt;&quot;d&quot;");
        assert_eq!(escaped("line\r\n\ttab\u{1}"), "line&#xD;&#xA;&#x9;tab&#x1;");
        assert_eq!(escaped("ключ 🐈"), "ключ 🐈");
        assert_eq!(escaped(""), "");
    }

    #[test]
    fn xml_does_not_carry_every_text() {
        for text in ["", "a\t\r\nb", "\u{7f}\u{80}", "\u{fffd}", "\u{ff01}\u{10ffff}", "🐈"] {
            assert!(carries(text), "{text:?}");
        }
        for text in ["\0", "a\u{1}", "\u{1f}b", "a\u{fffe}", "\u{ffff}"] {
            assert!(!carries(text), "{text:?}");
        }
    }

    #[test]
    fn plain_text_is_what_escaping_leaves_as_it_is() {
        for one in ('\0'..='\u{100}').chain(['é', '\u{fffe}']) {
            let text = format!("a{one}b");
            let mut out = BytesMut::new();
            escape(&mut out, &text);
            assert!(!is_plain(&text) || (out == text.as_bytes() && carries(&text)), "{one:?}");
            assert!(is_plain(&text) || !one.is_ascii() || out != text.as_bytes(), "{one:?} is plain");
        }
    }

    #[test]
    fn numbers_are_decimal() {
        for number in [0, 7, 10, 12_345, u64::MAX] {
            let mut out = BytesMut::new();
            decimal(&mut out, number);
            assert_eq!(out, number.to_string().as_bytes());
        }
    }

    #[test]
    fn url_encoding_keeps_slashes_and_never_uses_plus() {
        let mut out = BytesMut::new();
        percent_encode(&mut out, "a b+c/ü%");
        assert_eq!(&out[..], b"a%20b%2Bc/%C3%BC%25");
    }
}
