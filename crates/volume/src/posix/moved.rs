//! Finds an open file that another process has renamed.
//!
//! Why:        what was written to it belongs under its present name; only if it has none, nowhere.
//! Invariants: N1 a file counts as removed only if it was at none of its places, and no commit up to these reads has
//!                moved it since the places were known. So all of this waits until the feed shows what was read.
//!             N2 nothing is read, and no lock taken, where the engine is not shared.
//! Not here:   the places (trails).

use std::ops::ControlFlow;

use margay_meta::Cursor;
use margay_rows::record::Entry;
use margay_rows::{Ino, key};

use crate::api::Error;
use crate::draft::Seen;
use crate::entry::Located;
use crate::open::Volume;

impl Volume {
    /// Notes where a file is that is open now, as of a read or commit.
    pub(crate) fn note_open(&self, ino: Ino, parent: Ino, sort_name: &str, observed: Cursor) {
        if !self.engine.is_shared() {
            return;
        }
        if self.trails.opened(ino, key::entry(parent, sort_name.as_bytes()), observed) {
            return;
        }
        let again = self.file_at(parent, sort_name.as_bytes(), &mut Seen::default());
        if !again.is_ok_and(|found| found.is_some_and(|found| found.file.ino == ino)) {
            self.trails.lost(ino);
        }
    }

    /// The file, if it is open and another process has moved it. `read`: the commit as of which it was gone from where it
    /// was.
    pub(crate) fn locate_moved(&self, ino: Ino, mut read: Cursor) -> Result<Option<Located>, Error> {
        if !self.engine.is_shared() {
            return Ok(None);
        }
        let mut moves = None;
        loop {
            // The feed shows durable commits only.
            self.engine.wait_durable(read)?;
            self.engine.wait_feed()?;
            while !self.follow_once()?.is_newest {}
            let Some(trail) = self.trails.of(ino) else { return Ok(None) };
            if moves.replace(trail.moves) == Some(trail.moves) {
                return Ok(None);
            }
            let mut seen = Seen::default();
            let places = if trail.lost { self.search(ino, &mut seen)? } else { trail.places.iter().cloned().collect() };
            for place in places {
                let (parent, name) = key::parse_entry(&place)?;
                let found = self.file_at(parent, name.as_bytes(), &mut seen)?;
                if let Some(found) = found.filter(|found| found.file.ino == ino) {
                    self.known.moved(ino, parent, name);
                    self.trails.found(ino, &trail, &place);
                    return Ok(Some(found));
                }
            }
            read = seen.cursor;
        }
    }

    /// Entries of this file: reads all of them.
    fn search(&self, ino: Ino, seen: &mut Seen) -> Result<Vec<Vec<u8>>, Error> {
        tracing::warn!(ino = ino.0, "the feed of changes does not reach back far enough: an open file is searched for");
        let mut places = Vec::new();
        self.scan(&key::all_entries(), seen, |row| {
            if Entry::decode(row.value)?.file().is_some_and(|file| file.ino == ino) {
                places.push(row.key.to_vec());
            }
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(places)
    }
}
