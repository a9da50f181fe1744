//! Streaming CSV reader.
//!
//! Why:        the buffers of a record are reused for the next one, so a record costs no allocation.
//! Invariants: R1 a record has at most `RECORD_BYTES_MAX` bytes and `COLUMNS_MAX` fields.
//!             R2 the result does not depend on how the input is split: a decision that needs further bytes waits for
//!                them.
//! Not here:   the role of the first record (selection), bytes outside a scan range (scan_range).

use super::CsvInput;
use crate::error::{Error, Kind};
use crate::{COLUMNS_MAX, RECORD_BYTES_MAX};

const BOM: &[u8] = b"\xef\xbb\xbf";

/// One record: its fields, concatenated.
#[derive(Debug, Default)]
pub(crate) struct Record {
    text: Vec<u8>,
    ends: Vec<usize>,
}

impl Record {
    /// `None`: the record has fewer fields.
    pub(crate) fn field(&self, index: usize) -> Result<Option<&str>, Error> {
        let Some(&end) = self.ends.get(index) else { return Ok(None) };
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        let text = std::str::from_utf8(&self.text[start..end]);
        text.map(Some).map_err(|_| Error::new(Kind::InvalidText, "The object is not UTF-8; only that is supported"))
    }

    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }
}

#[derive(Debug)]
pub(crate) struct Reader {
    format: CsvInput,
    /// Quotes and escapes are recognized within a field too, not only at its start (Ceph's dialect).
    quotes_anywhere: bool,
    /// Bytes that may have a special meaning.
    special: Box<[bool; 256]>,
    input: Vec<u8>,
    at: usize,
    record: Record,
    position: Position,
}

/// The reader's state within a record.
#[derive(Clone, Copy, Debug, Default)]
struct Position {
    /// False at the first byte of the object only.
    moved: bool,
    in_record: bool,
    in_comment: bool,
    in_quotes: bool,
    /// The field has bytes, or had a quote.
    in_field: bool,
    /// The field had a quote.
    was_quoted: bool,
}

impl Reader {
    pub(crate) fn new(format: CsvInput, quotes_anywhere: bool) -> Reader {
        let mut special = Box::new([false; 256]);
        let delimiters = [&format.record_delimiter, &format.field_delimiter];
        let first = delimiters.into_iter().filter_map(|delimiter| delimiter.bytes().next());
        for byte in first.chain(format.quote).chain(format.escape) {
            special[usize::from(byte)] = true;
        }
        let (record, position) = (Record::default(), Position::default());
        Reader { format, quotes_anywhere, special, input: Vec::new(), at: 0, record, position }
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.input.drain(..self.at);
        self.at = 0;
        self.input.extend_from_slice(bytes);
    }

    /// The next record; `None` when the bytes pushed so far contain no further one. `last`: no more bytes follow.
    pub(crate) fn next(&mut self, last: bool) -> Result<Option<&Record>, Error> {
        if !self.position.in_record {
            self.record.text.clear();
            self.record.ends.clear();
        }
        // Lookahead that a decision may need: a delimiter, a quote and the byte after it, the byte order mark.
        let ahead = self.format.record_delimiter.len().max(self.format.field_delimiter.len()).max(BOM.len());
        loop {
            let rest = self.input.get(self.at..).unwrap_or_default();
            if rest.is_empty() {
                break;
            }
            if self.position.in_record {
                let run = rest.iter().position(|byte| self.special[usize::from(*byte)]).unwrap_or(rest.len());
                if run > 0 {
                    self.take(run, 0)?;
                    continue;
                }
            }
            if rest.len() < ahead && !last {
                return Ok(None);
            }
            if self.step()? {
                return Ok(Some(&self.record));
            }
        }
        if !(last && self.position.in_record) {
            return Ok(None);
        }
        self.end_field()?;
        self.position = Position { moved: true, ..Position::default() };
        Ok(Some(&self.record))
    }

    /// Handles one byte with a possible special meaning; returns whether a record ends here.
    fn step(&mut self) -> Result<bool, Error> {
        let rest = &self.input[self.at..];
        let (byte, next) = (rest[0], rest.get(1).copied());
        let ends_record = rest.starts_with(self.format.record_delimiter.as_bytes());
        let Position { in_record, in_comment, in_quotes, in_field, moved, .. } = self.position;
        if !in_record {
            return self.between(byte, next, (moved, in_comment, ends_record));
        }
        let escapes = self.format.escape == Some(byte) && self.format.escape != self.format.quote;
        if in_quotes {
            let is_quote = self.format.quote == Some(byte);
            let is_doubled = is_quote && self.format.escape == Some(byte) && next == Some(byte);
            if is_doubled || (escapes && next.is_some()) {
                self.take(1, 1)?;
            } else if is_quote {
                self.position.in_quotes = false;
                self.at += 1;
            } else if ends_record && !self.format.quoted_record_delimiters {
                return self.end_record();
            } else {
                self.take(1, 0)?;
            }
        } else if ends_record {
            return self.end_record();
        } else if rest.starts_with(self.format.field_delimiter.as_bytes()) {
            self.at += self.format.field_delimiter.len();
            self.end_field()?;
        } else if escapes && next.is_some() && self.quotes_anywhere {
            self.take(1, 1)?;
        } else if self.format.quote == Some(byte) && (self.quotes_anywhere || !in_field) {
            self.at += 1;
            self.position = Position { in_quotes: true, in_field: true, was_quoted: true, ..self.position };
        } else {
            self.take(1, 0)?;
        }
        Ok(false)
    }

    /// Before the first byte of a record: skips empty records and comments.
    fn between(&mut self, byte: u8, next: Option<u8>, at: (bool, bool, bool)) -> Result<bool, Error> {
        let (moved, in_comment, ends_record) = at;
        self.position.moved = true;
        if !moved && self.input[self.at..].starts_with(BOM) {
            self.at += BOM.len();
        } else if ends_record {
            self.at += self.format.record_delimiter.len();
            self.position.in_comment = false;
        } else if in_comment {
            self.at += 1;
        } else if byte == b'\r' && next == Some(b'\n') && self.format.record_delimiter == "\n" {
            self.at += 2;
        } else if self.format.comment == Some(byte) {
            self.position.in_comment = true;
        } else {
            self.position.in_record = true;
        }
        Ok(false)
    }

    /// Appends `count` bytes to the field, after skipping `passed` bytes.
    fn take(&mut self, count: usize, passed: usize) -> Result<(), Error> {
        let start = self.at + passed;
        if self.record.text.len() + count > RECORD_BYTES_MAX {
            return Err(Error::new(Kind::RecordTooLong, "A record is longer than 1 MiB"));
        }
        self.record.text.extend_from_slice(&self.input[start..start + count]);
        self.at = start + count;
        self.position.in_field = true;
        Ok(())
    }

    fn end_field(&mut self) -> Result<(), Error> {
        if self.record.ends.len() == COLUMNS_MAX {
            return Err(Error::new(Kind::TooManyColumns, format!("A record has more than {COLUMNS_MAX} fields")));
        }
        self.record.ends.push(self.record.text.len());
        self.position = Position { in_quotes: false, in_field: false, was_quoted: false, ..self.position };
        Ok(())
    }

    fn end_record(&mut self) -> Result<bool, Error> {
        self.at += self.format.record_delimiter.len();
        let start = self.record.ends.last().copied().unwrap_or(0);
        // Lines of Windows files when the request does not name their line end.
        let has_return = self.record.text.len() > start && self.record.text.last() == Some(&b'\r');
        if has_return && !self.position.was_quoted && self.format.record_delimiter == "\n" {
            self.record.text.pop();
        }
        self.end_field()?;
        self.position = Position { moved: true, ..Position::default() };
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, format: &CsvInput, anywhere: bool) -> Vec<Vec<String>> {
        let mut outcomes = Vec::new();
        for size in [1, 2, 3, text.len().max(1)] {
            let mut reader = Reader::new(format.clone(), anywhere);
            let mut all = Vec::new();
            let fields = |record: &Record| -> Vec<String> {
                (0..record.len()).map(|index| record.field(index).unwrap().unwrap().to_owned()).collect()
            };
            for piece in text.as_bytes().chunks(size) {
                reader.push(piece);
                while let Some(record) = reader.next(false).unwrap() {
                    all.push(fields(record));
                }
            }
            while let Some(record) = reader.next(true).unwrap() {
                all.push(fields(record));
            }
            outcomes.push(all);
        }
        assert!(outcomes.iter().all(|outcome| *outcome == outcomes[0]), "{text:?}: {outcomes:?}");
        outcomes.swap_remove(0)
    }

    #[test]
    fn fields_and_records_are_found() {
        let plain = CsvInput::default();
        let cases: &[(&str, &[&[&str]])] = &[
            ("", &[]),
            ("a", &[&["a"]]),
            ("a,b\nc,\n", &[&["a", "b"], &["c", ""]]),
            ("\n\na\r\n\r\nb\r\n", &[&["a"], &["b"]]),
            ("\u{feff}a,\"b,\"\"c\"\n", &[&["a", "b,\"c"]]),
            ("\"a\r\"\n", &[&["a\r"]]),
            ("5\" pipe,x\n", &[&["5\" pipe", "x"]]),
            (",,\n", &[&["", "", ""]]),
            ("\"a\nb\"\n", &[&["a"], &["b\""]]),
        ];
        for (text, expected) in cases {
            assert_eq!(read(text, &plain, false), *expected, "{text:?}");
        }
        let multi = CsvInput { quoted_record_delimiters: true, ..plain.clone() };
        assert_eq!(read("\"a\nb\",c\n", &multi, false), [["a\nb", "c"]]);
        let other =
            CsvInput { record_delimiter: "||".into(), field_delimiter: "¦".into(), comment: Some(b'#'), ..plain };
        assert_eq!(read("#x||a¦b|c||d", &other, false), [vec!["a", "b|c"], vec!["d"]]);
    }

    #[test]
    fn quotes_within_fields_count_in_cephs_dialect() {
        let format = CsvInput { escape: Some(b'\\'), ..CsvInput::default() };
        let line = ",x=\"c1,c2\",y=\\\"z\\\" \\, end,\n";
        assert_eq!(read(line, &format, true), [["", "x=c1,c2", "y=\"z\" , end", ""]]);
        assert_eq!(read("\"a\\\"b\",c\n", &format, false), [["a\"b", "c"]]);
    }

    #[test]
    fn records_are_bounded() {
        let mut reader = Reader::new(CsvInput::default(), false);
        reader.push(&vec![b'x'; RECORD_BYTES_MAX + 1]);
        assert_eq!(reader.next(false).unwrap_err().kind, Kind::RecordTooLong);
        let mut reader = Reader::new(CsvInput::default(), false);
        reader.push(&vec![b','; COLUMNS_MAX + 1]);
        assert_eq!(reader.next(true).unwrap_err().kind, Kind::TooManyColumns);
        let mut reader = Reader::new(CsvInput::default(), false);
        reader.push(b"\xff,a\n");
        assert_eq!(reader.next(true).unwrap().unwrap().field(0).unwrap_err().kind, Kind::InvalidText);
    }
}
