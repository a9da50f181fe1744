//! The records that begin within a range of an object's bytes.
//!
//! Why:        several clients share an object by ranges; each record must be read by exactly one of them.
//! Invariants: a record belongs to the range that its first byte is in, so whoever reads a range that does not begin at
//!             0 is given the bytes of one delimiter before it, and passes over everything up to the first delimiter.
//! Not here:   quoted delimiters (a request with both is refused), the header (read before).

/// Lets through the bytes of such records.
#[derive(Debug)]
pub(crate) struct ScanRange {
    delimiter: Vec<u8>,
    /// Of the next byte, in the object.
    offset: u64,
    /// Last byte of the range.
    end: u64,
    /// So much of a delimiter has been seen.
    matched: usize,
    /// Nothing was let through yet.
    before: bool,
    after: bool,
}

impl ScanRange {
    /// Of the bytes from `start` to `end`, both within; the first byte that is given is that at `start`, or the one that
    /// many bytes of a delimiter before.
    pub(crate) fn new(delimiter: &str, start: u64, end: u64) -> ScanRange {
        let delimiter = delimiter.as_bytes().to_vec();
        let before = start > 0;
        let offset = start.saturating_sub(delimiter.len() as u64);
        ScanRange { delimiter, offset: if before { offset } else { 0 }, end, matched: 0, before, after: false }
    }

    /// All records of the range have been let through.
    pub(crate) fn is_over(&self) -> bool {
        self.after
    }

    /// How much of a delimiter has been seen when this byte has been, too.
    fn matched_with(&self, byte: u8) -> usize {
        let seen = &self.delimiter[..self.matched];
        // What does not go on may still end with the beginning of another one.
        let begins = |from: &usize| {
            let part = &seen[*from..];
            self.delimiter.starts_with(part) && self.delimiter[part.len()] == byte
        };
        (0..=seen.len()).find(begins).map_or(0, |from| seen.len() - from + 1)
    }

    /// The part of these bytes that belongs to the range.
    pub(crate) fn filter<'b>(&mut self, bytes: &'b [u8]) -> &'b [u8] {
        if self.after {
            return &[];
        }
        let mut from = if self.before { bytes.len() } else { 0 };
        for (index, byte) in bytes.iter().enumerate() {
            self.offset += 1;
            self.matched = self.matched_with(*byte);
            if self.matched < self.delimiter.len() {
                continue;
            }
            self.matched = 0;
            if self.before {
                self.before = false;
                from = index + 1;
            }
            // The next record begins behind the range.
            if self.offset > self.end {
                self.after = true;
                return &bytes[from..=index];
            }
        }
        &bytes[from..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a text in ranges of `size` bytes, given in pieces of `piece` bytes.
    fn read(text: &str, delimiter: &str, size: u64, piece: usize) -> Vec<String> {
        let mut all = Vec::new();
        let mut start = 0;
        while start < text.len() as u64 {
            let mut range = ScanRange::new(delimiter, start, start + size - 1);
            let from = if start == 0 { 0 } else { start.saturating_sub(delimiter.len() as u64) };
            let mut out = Vec::new();
            for bytes in text.as_bytes()[from as usize..].chunks(piece) {
                out.extend_from_slice(range.filter(bytes));
            }
            all.push(String::from_utf8(out).unwrap());
            start += size;
        }
        all
    }

    #[test]
    fn every_record_is_in_one_range() {
        for (text, delimiter) in
            [("a\nbb\n\nccc\nd", "\n"), ("a\r\nbb\r\r\nc\r\n", "\r\n"), ("\n\n", "\n"), ("abc", "\n")]
        {
            for size in 1..=text.len() as u64 {
                for piece in 1..=text.len() {
                    let parts = read(text, delimiter, size, piece);
                    assert_eq!(parts.concat(), text, "{text:?} {size} {piece} {parts:?}");
                }
            }
        }
        // Half a delimiter, then a whole one, which begins with the same bytes.
        assert_eq!(read("ééêb", "éê", 5, 9), ["ééê", "b"]);
        assert_eq!(read("a\nbb\nc\n", "\n", 2, 9), ["a\n", "bb\n", "c\n", ""]);
    }
}
