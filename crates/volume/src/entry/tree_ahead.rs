//! Reads rows of several directories in one call: the current one, and those that a listing enters next.
//!
//! Why:        a listing without delimiter enters every directory; one call for each of a hundred small ones would take
//!             a hundred times as long as one call for all.
//! Invariants: A1 one call reads at most as many rows as the listing is expected to take; the engine applies the limit
//!                in listing order, so what is cut off comes last.
//! Not here:   the order of the walk (tree).

use std::collections::HashMap;

use margay_env::Timestamp;
use margay_meta::{Ask, ReadLimit, RowBatch};
use margay_rows::record::{Damaged, DirectoryEntry, Summary};
use margay_rows::{Ino, key};

use crate::api::Error;
use crate::draft::Seen;
use crate::driver::counters::time_of;
use crate::open::Volume;

/// Maximum number of directories in one call.
const DIRECTORIES_MAX: usize = 1024;

/// Rows of a directory from a name on, in order and without gaps.
#[derive(Debug)]
pub(crate) struct Batch {
    start: Vec<u8>,
    pub(crate) rows: RowBatch,
    /// The directory's modification time, if it was read too.
    pub(crate) modified: Option<Timestamp>,
}

impl Batch {
    pub(crate) fn new(start: Vec<u8>, rows: RowBatch) -> Batch {
        Batch { start, rows, modified: None }
    }

    /// Index of the first row whose name is not less than this one.
    pub(crate) fn position(&self, name: &[u8]) -> usize {
        self.rows.partition_point(|row| key::parse_ino(row).is_ok_and(|(_, found)| found < name))
    }

    /// Whether the batch includes this name.
    pub(crate) fn covers(&self, name: &[u8]) -> bool {
        self.start.as_slice() <= name && (!self.rows.more || self.position(name) < self.rows.len())
    }

    /// Whether the directory has an object of its own name, which a batch from the start visits first.
    pub(crate) fn has_object(&self) -> Result<bool, Damaged> {
        assert!(self.start.is_empty(), "it begins at the start");
        match self.rows.get(0) {
            Some(row) => Ok(key::parse_ino(row.key)?.1.is_empty()),
            None => Ok(false),
        }
    }
}

/// The rows of a directory from a name on, for keys below `end`. `path` is the directory's.
pub(crate) fn wanted_range(directory: Ino, path: &[u8], from: &[u8], end: Option<&[u8]>) -> key::Range {
    let (_, last) = key::entries(directory);
    let last = match end.and_then(|end| end.strip_prefix(path)) {
        Some(name) if !name.is_empty() => key::entry(directory, name),
        _ => last,
    };
    (key::entry(directory, from), last)
}

/// Directories to read, in listing order.
pub(crate) struct Upcoming {
    asks: Vec<Ask>,
    /// The directory of each question for rows or time.
    of: Vec<Ino>,
    rows_max: usize,
    /// Rows of the listing that are not yet assigned.
    left: usize,
}

impl Upcoming {
    /// Starts with a part of one directory.
    pub(crate) fn new(ino: Ino, (start, end): key::Range, rows_max: usize) -> Upcoming {
        let asks = vec![Ask::Scan { start, end, rows_max, keys_only: false }, Ask::Get { key: key::times(ino) }];
        Upcoming { asks, of: vec![ino, ino], rows_max, left: rows_max.saturating_sub(1) }
    }

    /// Adds what follows a child of a directory; false if nothing beyond it is known.
    pub(crate) fn add_behind(&mut self, batches: &HashMap<Ino, Batch>, directory: Ino, child: &[u8]) -> bool {
        match batches.get(&directory) {
            Some(batch) => self.add(batches, batch, batch.position(&key::after(child.to_vec()))),
            None => false,
        }
    }

    fn add(&mut self, batches: &HashMap<Ino, Batch>, batch: &Batch, from: usize) -> bool {
        for index in from..batch.rows.len() {
            if self.left == 0 || self.of.len() >= DIRECTORIES_MAX {
                return false;
            }
            let Some(row) = batch.rows.get(index) else { return false };
            match Summary::decode(row.value) {
                Ok(Summary::Directory(entry)) => match batches.get(&entry.ino) {
                    Some(batch) => {
                        if !self.add(batches, batch, 0) {
                            return false;
                        }
                    }
                    None => self.add_directory(&entry),
                },
                Ok(_) => self.left -= 1,
                // Reported when it is visited.
                Err(_) => return false,
            }
        }
        !batch.rows.more
    }

    fn add_directory(&mut self, entry: &DirectoryEntry) {
        let (start, end) = key::entries(entry.ino);
        self.asks.push(Ask::Scan { start, end, rows_max: self.rows_max, keys_only: false });
        self.of.push(entry.ino);
        if entry.explicit {
            self.asks.push(Ask::Get { key: key::times(entry.ino) });
            self.of.push(entry.ino);
        }
        // It rarely contains nothing.
        self.left -= 1;
    }

    /// Reads all of it; the first directory from `start` on.
    pub(crate) async fn read(
        self,
        volume: &Volume,
        batches: &mut HashMap<Ino, Batch>,
        start: Vec<u8>,
        seen: &mut Seen,
    ) -> Result<(), Error> {
        let limit = ReadLimit { rows: self.rows_max, ..ReadLimit::default() };
        let mut found = volume.read(&self.asks, limit, seen).await?.into_iter();
        let mut start = Some(start);
        for (ask, ino) in self.asks.iter().zip(&self.of) {
            let Some(answer) = found.next() else { break };
            match ask {
                Ask::Scan { .. } => {
                    let (first, rows) = (start.take(), answer.rows());
                    // What the limit cut off is read when it is needed.
                    if first.is_some() || !rows.is_empty() || !rows.more {
                        batches.insert(*ino, Batch::new(first.unwrap_or_default(), rows));
                    }
                }
                Ask::Get { .. } => {
                    if let Some(batch) = batches.get_mut(ino) {
                        batch.modified = Some(time_of(answer.row().as_ref())?);
                    }
                }
            }
        }
        Ok(())
    }
}
