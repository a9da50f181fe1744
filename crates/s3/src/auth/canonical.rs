//! The canonical request: the text that the signature covers.
//!
//! Why:        clients escape paths and queries differently and treat runs of spaces differently, so a few readings of
//!             the same bytes are tried; each covers method, path, query and headers in full.
//! Invariants: C1 every reading has the same path, query and header values after decoding.
//! Not here:   keys and signatures.

use http::HeaderMap;

use super::{AuthError, hex};
use crate::percent::{self, escape};

/// The query parameter with the signature, which it cannot cover.
pub(crate) const SIGNATURE_PARAMETER: &str = "X-Amz-Signature";

/// How the query's bytes are canonicalized.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueryReading {
    /// Decode and re-encode names and values, and sort.
    Encoded,
    /// Sort the pairs as sent.
    Sorted,
    /// Keep the query as sent (curl before 8.0).
    Verbatim,
}

/// How the request's bytes are canonicalized.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    /// Keep the path as sent instead of decoding and re-encoding it.
    pub raw_path: bool,
    pub query: QueryReading,
    /// Keep runs of spaces inside header values.
    pub keep_spaces: bool,
}

impl Reading {
    /// As AWS documents it.
    pub(crate) const DOCUMENTED: Reading =
        Reading { raw_path: false, query: QueryReading::Encoded, keep_spaces: false };

    /// All readings, the documented one first.
    pub(crate) fn all() -> impl Iterator<Item = Reading> {
        let queries = [QueryReading::Encoded, QueryReading::Sorted, QueryReading::Verbatim];
        queries.into_iter().flat_map(|query| {
            [(false, false), (true, false), (false, true), (true, true)].map(|(raw_path, keep_spaces)| Reading {
                raw_path,
                query,
                keep_spaces,
            })
        })
    }
}

/// The parts of a request that its signature covers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Canonical<'a> {
    pub method: &'a str,
    /// Exactly as on the wire, without the query.
    pub path: &'a str,
    /// Exactly as on the wire, without the question mark.
    pub query: &'a str,
    pub headers: &'a HeaderMap,
    /// The request's only host, as the client wrote it.
    pub host: &'a str,
    /// Sorted lower-case names separated by semicolons.
    pub signed_headers: &'a str,
    /// The value that stands for the payload.
    pub payload: &'a str,
}

impl Canonical<'_> {
    /// Appends the canonical request.
    pub(crate) fn write(&self, reading: Reading, out: &mut Vec<u8>) -> Result<(), AuthError> {
        out.extend_from_slice(self.method.as_bytes());
        out.push(b'\n');
        match self.path {
            "" => out.push(b'/'),
            path if reading.raw_path => out.extend_from_slice(path.as_bytes()),
            path => reencode(path, Plus::Itself, Slash::Kept, out),
        }
        out.push(b'\n');
        write_query(self.query, reading.query, out);
        out.push(b'\n');
        for name in self.signed_headers.split(';') {
            self.write_header(name, reading.keep_spaces, out)?;
        }
        out.push(b'\n');
        out.extend_from_slice(self.signed_headers.as_bytes());
        out.push(b'\n');
        out.extend_from_slice(self.payload.as_bytes());
        Ok(())
    }

    fn write_header(&self, name: &str, keep_spaces: bool, out: &mut Vec<u8>) -> Result<(), AuthError> {
        out.extend_from_slice(name.as_bytes());
        out.push(b':');
        let mut values = self.headers.get_all(name).iter();
        match values.next() {
            // HTTP/2 has no Host header.
            _ if name == "host" => out.extend_from_slice(self.host.as_bytes()),
            Some(first) => {
                write_value(first.as_bytes(), keep_spaces, out);
                for value in values {
                    out.push(b',');
                    write_value(value.as_bytes(), keep_spaces, out);
                }
            }
            None => return Err(AuthError::SignedHeaderAbsent(name.to_owned())),
        }
        out.push(b'\n');
        Ok(())
    }
}

fn write_value(value: &[u8], keep_spaces: bool, out: &mut Vec<u8>) {
    let value = value.trim_ascii();
    if keep_spaces || !value.windows(2).any(|pair| pair == b"  ") {
        out.extend_from_slice(value);
        return;
    }
    let mut last = 0;
    for byte in value {
        if *byte != b' ' || last != b' ' {
            out.push(*byte);
        }
        last = *byte;
    }
}

/// The pairs of a query as sent, empty pieces left out; a name without `=` has an empty value.
pub(crate) fn pairs(query: &str) -> impl Iterator<Item = (&str, &str)> {
    query.split('&').filter(|piece| !piece.is_empty()).map(|piece| piece.split_once('=').unwrap_or((piece, "")))
}

fn write_query(query: &str, reading: QueryReading, out: &mut Vec<u8>) {
    if query.is_empty() {
        return;
    }
    if reading == QueryReading::Verbatim {
        out.extend_from_slice(query.as_bytes());
        return;
    }
    let raw = reading == QueryReading::Sorted;
    // Encoded names and values, concatenated, with their positions.
    let mut encoded = Vec::with_capacity(query.len() + 16);
    let mut ranges = Vec::with_capacity(8);
    for (name, value) in pairs(query).filter(|(name, _)| *name != SIGNATURE_PARAMETER) {
        let start = encoded.len();
        write_query_part(name, raw, &mut encoded);
        let middle = encoded.len();
        write_query_part(value, raw, &mut encoded);
        ranges.push((start, middle, encoded.len()));
    }
    let pair = |range: &(usize, usize, usize)| (&encoded[range.0..range.1], &encoded[range.1..range.2]);
    ranges.sort_by(|left, right| pair(left).cmp(&pair(right)));
    for (index, range) in ranges.iter().enumerate() {
        if index > 0 {
            out.push(b'&');
        }
        let (name, value) = pair(range);
        out.extend_from_slice(name);
        out.push(b'=');
        out.extend_from_slice(value);
    }
}

fn write_query_part(text: &str, raw: bool, out: &mut Vec<u8>) {
    match raw {
        true => out.extend_from_slice(text.as_bytes()),
        false => reencode(text, Plus::Space, Slash::Encoded, out),
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Plus {
    Itself,
    Space,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Slash {
    Kept,
    Encoded,
}

/// Decodes percent escapes and re-encodes the result in the form of signatures: only letters, digits and `-._~` stay
/// unencoded. A `%` that starts no escape is encoded like any other byte.
pub(crate) fn reencode(text: &str, plus: Plus, slash: Slash, out: &mut Vec<u8>) {
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let (byte, after) = match (first, after) {
            (b'%', [high, low, after @ ..]) => match hex::byte(&[*high, *low]) {
                Some(byte) => (byte, after),
                None => (b'%', &rest[1..]),
            },
            (b'+', after) if plus == Plus::Space => (b' ', after),
            (byte, after) => (*byte, after),
        };
        rest = after;
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => out.push(byte),
            b'/' if slash == Slash::Kept => out.push(byte),
            _ => out.extend_from_slice(&escape(byte)),
        }
    }
}

/// Decodes the percent escapes of a query value; `None` when that gives no UTF-8.
pub(crate) fn decode(text: &str) -> Option<String> {
    percent::decode(text, true).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(text: &str, reading: QueryReading) -> String {
        let mut out = Vec::new();
        write_query(text, reading, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn queries_are_sorted_by_encoded_name_then_value() {
        assert_eq!(query("b=2&a=1&a=0&&c", QueryReading::Encoded), "a=0&a=1&b=2&c=");
        assert_eq!(
            query("prefix=a+b%2fc&X-Amz-Signature=00&delimiter=/", QueryReading::Encoded),
            "delimiter=%2F&prefix=a%20b%2Fc"
        );
        assert_eq!(query("prefix=a+b%2fc&delimiter=/", QueryReading::Sorted), "delimiter=/&prefix=a+b%2fc");
        // A name that is a prefix of another comes first, although `-` sorts before `=`.
        assert_eq!(query("a-b=1&a=1", QueryReading::Encoded), "a=1&a-b=1");
    }

    #[test]
    fn paths_are_encoded_once() {
        let path = |text: &str| {
            let mut out = Vec::new();
            reencode(text, Plus::Itself, Slash::Kept, &mut out);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(path("/a+b/%41%7e//../100%"), "/a%2Bb/A~//../100%25");
        assert_eq!(path("/%zz%4"), "/%25zz%254");
        assert_eq!(path("/ü%C3%BC"), "/%C3%BC%C3%BC");
    }

    #[test]
    fn runs_of_spaces_shrink_unless_kept() {
        let value = |keep| {
            let mut out = Vec::new();
            write_value(b"  a   b c ", keep, &mut out);
            out
        };
        assert_eq!(value(false), b"a b c");
        assert_eq!(value(true), b"a   b c");
    }
}
