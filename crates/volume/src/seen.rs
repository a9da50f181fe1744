//! What an attempt has read, so that an answer without a commit can be checked too.
//!
//! Why:        a commit asserts what it rests on; a refusal commits nothing, and its reads were made at several
//!             moments. When every row is as it was read, they all held at the moment of the last read.
//! Invariants: a version is never used twice, so an equal version means that the row was the same all the time.
//! Not here:   rows that were scanned: a scan is one moment, and what it was for is a row that is here.

use margay_meta::Seq;

#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// The newest commit that what was read rests on.
    pub(crate) seq: Seq,
    /// Keys and versions, in the order of reading.
    rows: Vec<(Vec<u8>, Option<Seq>)>,
}

impl Seen {
    pub(crate) fn rises_to(&mut self, seq: Seq) {
        self.seq = self.seq.max(seq);
    }

    pub(crate) fn row(&mut self, key: &[u8], version: Option<Seq>) {
        self.rows.push((key.to_vec(), version));
    }

    pub(crate) fn absorb(&mut self, other: Seen) {
        self.rises_to(other.seq);
        self.rows.extend(other.rows);
    }

    /// Keys and versions, in the order of reading.
    pub(crate) fn rows(&self) -> &[(Vec<u8>, Option<Seq>)] {
        &self.rows
    }

    /// Keeps the newest commit only, for walks that are long.
    pub(crate) fn forget_rows(&mut self) {
        self.rows.clear();
    }
}
