//! Streaming JSON reader: finds the records that the path of FROM selects; an array yields its elements.
//!
//! Why:        `{"root":[...]}` of any size is read with one record in memory; values off the path are not kept.
//! Invariants: R1 memory holds one record or key of at most `RECORD_BYTES_MAX`, and the containers on the path (at most
//!                one more than its steps).
//!             R2 the result does not depend on how the input is split.
//! Not here:   full validation of skipped values: only their strings and brackets are tracked.

use super::Json;
use crate::RECORD_BYTES_MAX;
use crate::ast::Step;
use crate::error::{Error, Kind};

#[derive(Debug)]
pub(crate) struct Reader {
    path: Vec<Step>,
    input: Vec<u8>,
    at: usize,
    open: Vec<Container>,
    state: State,
    /// The record or key that is being read.
    held: Vec<u8>,
}

/// A container on the path; step `level` selects among its members.
#[derive(Clone, Copy, Debug)]
enum Container {
    Object { level: usize },
    Array { level: usize, index: usize },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Want {
    /// This many steps of the path are done.
    Follow(usize),
    /// A record, even if it is an array.
    Record,
    Nothing,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Value {
        want: Want,
        /// The array may end here.
        first: bool,
    },
    Key {
        first: bool,
    },
    InKey {
        escaped: bool,
    },
    Colon {
        want: Want,
    },
    /// Inside a value that is read or skipped.
    Within {
        keep: bool,
        scan: Scan,
    },
    /// After a value.
    Next,
}

#[derive(Clone, Copy, Debug, Default)]
struct Scan {
    depth: usize,
    in_text: bool,
    escaped: bool,
}

impl Reader {
    pub(crate) fn new(path: Vec<Step>) -> Reader {
        let state = State::Value { want: Want::Follow(0), first: false };
        Reader { path, input: Vec::new(), at: 0, open: Vec::new(), state, held: Vec::new() }
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.input.drain(..self.at);
        self.at = 0;
        self.input.extend_from_slice(bytes);
    }

    /// The next record; `None` when the bytes pushed so far contain no further one. `last`: no more bytes follow.
    pub(crate) fn next(&mut self, last: bool) -> Result<Option<Json>, Error> {
        while let Some(&byte) = self.input.get(self.at) {
            if let State::Within { keep, scan } = self.state {
                if self.within(keep, scan)? {
                    return self.record();
                }
                continue;
            }
            if let State::InKey { escaped } = self.state {
                self.in_key(byte, escaped)?;
                continue;
            }
            if byte.is_ascii_whitespace() {
                self.at += 1;
                continue;
            }
            match self.state {
                State::Value { first: true, .. } if byte == b']' => self.close(),
                State::Value { want, .. } => self.begin(byte, want)?,
                State::Key { first } => match byte {
                    b'"' => {
                        self.at += 1;
                        self.held.clear();
                        self.held.push(byte);
                        self.state = State::InKey { escaped: false };
                    }
                    b'}' if first => self.close(),
                    _ => return Err(unexpected(byte)),
                },
                State::Colon { want } if byte == b':' => {
                    self.at += 1;
                    self.state = State::Value { want, first: false };
                }
                State::Colon { .. } => return Err(unexpected(byte)),
                State::Next => self.behind(byte)?,
                State::Within { .. } | State::InKey { .. } => {}
            }
        }
        if last { self.end() } else { Ok(None) }
    }

    /// A top-level number ends with the input.
    fn end(&mut self) -> Result<Option<Json>, Error> {
        let cut = || Error::new(Kind::TruncatedInput, "The object ends within a JSON document");
        match self.state {
            State::Value { .. } | State::Next if self.open.is_empty() => Ok(None),
            State::Within { keep, scan } if self.open.is_empty() && scan.depth == 0 && !scan.in_text => {
                self.state = State::Next;
                if keep { self.record() } else { Ok(None) }
            }
            _ => Err(cut()),
        }
    }

    /// The first byte of a value.
    fn begin(&mut self, byte: u8, want: Want) -> Result<(), Error> {
        if !matches!(byte, b'{' | b'[' | b'"' | b'-' | b't' | b'f' | b'n' | b'0'..=b'9') {
            return Err(unexpected(byte));
        }
        let mut want = want;
        // `[*]` on a non-array yields the value itself.
        while let Want::Follow(level) = want
            && self.path.get(level) == Some(&Step::Every)
            && byte != b'['
        {
            want = Want::Follow(level + 1);
        }
        let Want::Follow(level) = want else {
            return self.enter(want == Want::Record);
        };
        let is_array = byte == b'[';
        let opened = match self.path.get(level) {
            // An array yields its elements as records, unless the path ends in `[*]`.
            None if is_array && self.path.last() != Some(&Step::Every) => Container::Array { level, index: 0 },
            None => return self.enter(true),
            Some(Step::Key { .. }) if byte == b'{' => Container::Object { level },
            Some(Step::Index(_) | Step::Every) if is_array => Container::Array { level, index: 0 },
            Some(_) => return self.enter(false),
        };
        self.at += 1;
        self.open.push(opened);
        self.state = match opened {
            Container::Object { .. } => State::Key { first: true },
            Container::Array { level, index } => State::Value { want: self.want_of_element(level, index), first: true },
        };
        Ok(())
    }

    fn want_of_element(&self, level: usize, index: usize) -> Want {
        match self.path.get(level) {
            None => Want::Record,
            Some(Step::Every) => Want::Follow(level + 1),
            Some(Step::Index(wanted)) if *wanted == index => Want::Follow(level + 1),
            Some(_) => Want::Nothing,
        }
    }

    fn enter(&mut self, keep: bool) -> Result<(), Error> {
        self.held.clear();
        self.state = State::Within { keep, scan: Scan::default() };
        Ok(())
    }

    /// Continues inside a value; returns whether a record ends here.
    fn within(&mut self, keep: bool, mut scan: Scan) -> Result<bool, Error> {
        let start = self.at;
        let mut ends = false;
        while let Some(&byte) = self.input.get(self.at) {
            let is_scalar = scan.depth == 0 && !scan.in_text;
            if is_scalar && (matches!(byte, b',' | b']' | b'}') || byte.is_ascii_whitespace()) {
                ends = true;
                break;
            }
            self.at += 1;
            if scan.in_text {
                match byte {
                    _ if scan.escaped => scan.escaped = false,
                    b'\\' => scan.escaped = true,
                    b'"' => {
                        scan.in_text = false;
                        ends = scan.depth == 0;
                    }
                    _ => {}
                }
            } else {
                match byte {
                    b'"' => scan.in_text = true,
                    b'{' | b'[' => scan.depth += 1,
                    b'}' | b']' => {
                        scan.depth -= 1;
                        ends = scan.depth == 0;
                    }
                    _ => {}
                }
            }
            if ends {
                break;
            }
        }
        if keep {
            if self.held.len() + self.at - start > RECORD_BYTES_MAX {
                return Err(Error::new(Kind::RecordTooLong, "A record is longer than 1 MiB"));
            }
            self.held.extend_from_slice(&self.input[start..self.at]);
        }
        self.state = if ends { State::Next } else { State::Within { keep, scan } };
        Ok(ends && keep)
    }

    fn record(&self) -> Result<Option<Json>, Error> {
        serde_json::from_slice(&self.held)
            .map(Some)
            .map_err(|error| Error::new(Kind::JsonParsing, format!("A record is no JSON: {error}")))
    }

    fn in_key(&mut self, byte: u8, escaped: bool) -> Result<(), Error> {
        self.at += 1;
        if self.held.len() >= RECORD_BYTES_MAX {
            return Err(Error::new(Kind::RecordTooLong, "A key is longer than 1 MiB"));
        }
        self.held.push(byte);
        if byte != b'"' || escaped {
            self.state = State::InKey { escaped: byte == b'\\' && !escaped };
            return Ok(());
        }
        let key: String = serde_json::from_slice(&self.held)
            .map_err(|error| Error::new(Kind::JsonParsing, format!("A key is no JSON text: {error}")))?;
        let Some(Container::Object { level }) = self.open.last() else { return Err(unexpected(byte)) };
        let fits = self.path.get(*level).is_some_and(|step| step.is_key(&key));
        let want = if fits { Want::Follow(level + 1) } else { Want::Nothing };
        self.state = State::Colon { want };
        Ok(())
    }

    /// Between values.
    fn behind(&mut self, byte: u8) -> Result<(), Error> {
        match (self.open.last_mut(), byte) {
            (None, _) => {
                self.state = State::Value { want: Want::Follow(0), first: false };
                return Ok(());
            }
            (Some(Container::Object { .. }), b',') => self.state = State::Key { first: false },
            (Some(Container::Array { level, index }), b',') => {
                *index = index.saturating_add(1);
                let (level, index) = (*level, *index);
                self.state = State::Value { want: self.want_of_element(level, index), first: false };
            }
            (Some(Container::Object { .. }), b'}') | (Some(Container::Array { .. }), b']') => {
                self.close();
                return Ok(());
            }
            _ => return Err(unexpected(byte)),
        }
        self.at += 1;
        Ok(())
    }

    fn close(&mut self) {
        self.at += 1;
        self.open.pop();
        self.state = State::Next;
    }
}

fn unexpected(byte: u8) -> Error {
    Error::new(Kind::JsonParsing, format!("The object is no JSON: unexpected {:?}", char::from(byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Step {
        Step::Key { name: name.to_owned(), exact: false }
    }

    fn read(document: &str, path: &[Step]) -> Result<Vec<String>, Error> {
        let mut reader = Reader::new(path.to_vec());
        let mut all = Vec::new();
        for byte in document.bytes() {
            reader.push(&[byte]);
            all.extend(reader.next(false)?.map(|record| record.to_string()));
        }
        all.extend(reader.next(true)?.map(|record| record.to_string()));
        Ok(all)
    }

    #[test]
    fn paths_lead_to_records() {
        let document = r#"{"skip":[{"}":"]"}],"root":[{"a":1},{"a":[2,3]}],"x":{"root":4}}"#;
        for (path, expected) in [
            (vec![], vec![r#"{"skip":[{"}":"]"}],"root":[{"a":1},{"a":[2,3]}],"x":{"root":4}}"#]),
            (vec![key("root")], vec![r#"{"a":1}"#, r#"{"a":[2,3]}"#]),
            (vec![key("ROOT"), Step::Every], vec![r#"{"a":1}"#, r#"{"a":[2,3]}"#]),
            (vec![key("root"), Step::Index(1)], vec![r#"{"a":[2,3]}"#]),
            (vec![key("root"), Step::Every, key("a")], vec!["1", "2", "3"]),
            (vec![key("root"), Step::Index(1), key("a"), Step::Every], vec!["2", "3"]),
            (vec![key("x")], vec![r#"{"root":4}"#]),
            (vec![key("none")], vec![]),
        ] {
            assert_eq!(read(document, &path).unwrap(), expected, "{path:?}");
        }
        assert_eq!(
            read("{\"b\":1,\"a\":2}\n 3 \"x\"[4,[5]]\n6", &[]).unwrap(),
            [r#"{"b":1,"a":2}"#, "3", r#""x""#, "4", "[5]", "6"]
        );
    }

    #[test]
    fn what_is_no_json_is_an_error() {
        for document in ["{", "{]", "[1,", "[1}", "{\"a\" 1}", "x", "\"a", "{\"a\":}", "{'a':1}", "tru"] {
            assert!(read(document, &[key("a")]).is_err() || read(document, &[]).is_err(), "{document}");
        }
        let long = format!("\"{}\"", "x".repeat(RECORD_BYTES_MAX));
        let mut reader = Reader::new(Vec::new());
        reader.push(long.as_bytes());
        assert_eq!(reader.next(true).unwrap_err().kind, Kind::RecordTooLong);
    }
}
