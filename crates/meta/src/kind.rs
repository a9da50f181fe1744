//! Kinds of rows: plain ones, and counters, which batches change without reading them.
//!
//! Why:        many batches change one counter at the same time. An engine on a database keeps it in several places that do
//!             not wait for each other, and sums them up when it is read; so it must know from the key alone which rows
//!             these are, in reads and deletions too (docs/design/0028).
//! Invariants: N1 the first byte of a key, its table, determines the kind of the row.
//!             N2 a plain row is changed by `Put` and `Delete` only; a counter by `Add` or `Max`, `Set` and `Delete` only.
//!             N3 no precondition is about a counter: neither its version nor whether it exists means anything.
//! Not here:   what the tables mean (rows, which compares its own table bytes with these when it is compiled).

use std::collections::BTreeSet;

use crate::contract::{
    BATCH_WRITES_MAX, Batch, CommitError, Field, KEY_BYTES_MAX, Precondition, VALUE_BYTES_MAX, Write,
};

/// How a row may be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowKind {
    Plain,
    /// A counter that `Add` changes: an `i64` in 8 little-endian bytes.
    Sum,
    /// A counter that `Max` raises: a `u64` in 8 little-endian bytes.
    Highest,
}

impl RowKind {
    /// The kind of the rows in a table.
    pub const fn of_table(table: u8) -> RowKind {
        match table {
            b'c' | b'f' | b'l' => RowKind::Sum,
            b't' => RowKind::Highest,
            _ => RowKind::Plain,
        }
    }

    pub fn of(key: &[u8]) -> RowKind {
        key.first().map_or(RowKind::Plain, |table| RowKind::of_table(*table))
    }
}

/// Whether a row may have a version that somebody compares.
pub fn is_plain(key: &[u8]) -> bool {
    RowKind::of(key) == RowKind::Plain
}

/// Whether a range has room for a counter.
pub fn has_counters(start: &[u8], end: &[u8]) -> bool {
    let (first, Some(last)) = (start.first().copied().unwrap_or(0), end.first().copied()) else { return false };
    let is_within = |table: u8| RowKind::of_table(table) != RowKind::Plain && end > [table].as_slice();
    start < end && (first..=last).any(is_within)
}

impl Write {
    /// Whether the row is of a kind that this write changes (N2).
    pub fn fits_row(&self) -> bool {
        let kind = RowKind::of(self.key());
        match self {
            Write::Put { .. } => kind == RowKind::Plain,
            Write::Delete { .. } => true,
            Write::Set { .. } => kind != RowKind::Plain,
            Write::Add { .. } => kind == RowKind::Sum,
            Write::Max { .. } => kind == RowKind::Highest,
        }
    }
}

impl Precondition {
    /// Whether no counter can be among its rows (N3).
    pub fn is_of_plain_rows(&self) -> bool {
        match self {
            Precondition::Version { key, .. } | Precondition::Exists { key } | Precondition::Absent { key } => {
                is_plain(key)
            }
            Precondition::RangeEmpty { start, end, .. } => !has_counters(start, end),
        }
    }
}

impl Batch {
    /// For engines: refuses a batch that breaks the limits of the contract, writes a key twice, or takes a row for one of another
    /// kind. Not its payload, which is the engine's own.
    pub fn check(&self) -> Result<(), CommitError> {
        if self.writes.len() > BATCH_WRITES_MAX {
            return Err(CommitError::Invalid("too many writes"));
        }
        self.check_kinds()?;
        let mut keys = BTreeSet::new();
        for write in &self.writes {
            if write.key().len() > KEY_BYTES_MAX {
                return Err(CommitError::Invalid("a key is too long"));
            }
            if matches!(write, Write::Put { value, .. } if value.len() > VALUE_BYTES_MAX) {
                return Err(CommitError::Invalid("a value is too long"));
            }
            if !keys.insert(write.key()) {
                return Err(CommitError::Invalid("a key is written twice"));
            }
        }
        Ok(())
    }

    /// For engines: refuses a batch that takes a row for one of another kind.
    pub(crate) fn check_kinds(&self) -> Result<(), CommitError> {
        if !self.preconditions.iter().all(Precondition::is_of_plain_rows) {
            return Err(CommitError::Invalid("a precondition is about a counter"));
        }
        if !self.writes.iter().all(Write::fits_row) {
            return Err(CommitError::Invalid("a write does not fit the kind of its row"));
        }
        let mut places = self.payload.iter().flat_map(|payload| &payload.places);
        if places.any(|place| place.field == Field::Key && place.at == 0) {
            return Err(CommitError::Invalid("a payload place changes a key's table"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_has_counters_if_one_of_its_tables_has() {
        for (start, end, has) in [
            (&b"s"[..], &b"t"[..], false),
            (b"s", b"t\0", true),
            (b"t\x05", b"t\x06", true),
            (b"u", b"w", false),
            (b"", b"\xff", true),
            (b"", b"c", false),
            (b"d", b"f", false),
            (b"d", b"g", true),
            (b"t", b"s", false),
            (b"m", b"", false),
        ] {
            assert_eq!(has_counters(start, end), has, "{start:?}..{end:?}");
        }
    }
}
