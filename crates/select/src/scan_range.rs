//! Filters the records that begin within a byte range of an object.
//!
//! Why:        several clients split an object into ranges; exactly one of them must read each record.
//! Invariants: R1 a record belongs to the range that contains its first byte. So the reader of a range that does not
//!                begin at 0 also gets the preceding bytes, as many as a delimiter has, and skips everything up to the
//!                first delimiter.
//! Not here:   quoted delimiters (a request with both is refused), the header (read before).

/// Passes the bytes of these records only.
#[derive(Debug)]
pub(crate) struct ScanRange {
    delimiter: Vec<u8>,
    /// Offset of the next byte in the object.
    offset: u64,
    /// Last byte of the range.
    end: u64,
    /// Bytes of a delimiter matched so far.
    matched: usize,
    /// Nothing was passed yet.
    before: bool,
    after: bool,
}

impl ScanRange {
    /// For the bytes from `start` to `end`, both inclusive. The first byte pushed is the one at `start`, or the one a
    /// delimiter's length before it.
    pub(crate) fn new(delimiter: &str, start: u64, end: u64) -> ScanRange {
        let delimiter = delimiter.as_bytes().to_vec();
        let before = start > 0;
        let offset = start.saturating_sub(delimiter.len() as u64);
        ScanRange { delimiter, offset: if before { offset } else { 0 }, end, matched: 0, before, after: false }
    }

    /// All records of the range have been passed.
    pub(crate) fn is_over(&self) -> bool {
        self.after
    }

    /// Bytes of a delimiter matched after this byte.
    fn matched_with(&self, byte: u8) -> usize {
        let seen = &self.delimiter[..self.matched];
        // After a mismatch, a suffix may still be the start of another delimiter (as in Knuth-Morris-Pratt).
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
            // The next record begins after the range.
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

    /// Reads a text in ranges of `size` bytes, pushed in pieces of `piece` bytes.
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
