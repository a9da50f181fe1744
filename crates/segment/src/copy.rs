//! Copies of segments that another store has made.
//!
//! Why:        a disk that is lost takes no bytes with it. A copy has the name of its segment, so it is read as any other.
//! Invariants: C1 a copy is of a segment of another store, and what is written to it is what that store's file has there: bytes
//!                that arrive twice do no harm, and a part that has not arrived is zero.
//!             C2 a copy is removed only when the rows do not name this store for it; own segments never are, here.
//!             C3 a hole is punched only in a range of which the store that made the segment says that it has punched it too.
//! Locking:    `Folder::copies` while the file of a copy is made or removed; order: before the table.
//! Durability: `Store::sync` of the segment, after `write_copy`.
//! Not here:   what is sent and to whom (margay-cluster), the rows (margay-volume).

use std::sync::Arc;

use margay_env::{File, OpenMode};

use crate::error::invalid;
use crate::folder::Folder;
use crate::quarantine::Proof;
use crate::segment::Segment;
use crate::store::Store;
use crate::{Kind, SegmentError, SegmentId};

impl Store {
    /// Puts bytes into a copy, which is made if it is absent. Durable after `sync`.
    pub fn write_copy(&self, id: SegmentId, kind: Kind, offset: u64, bytes: &[u8]) -> Result<(), SegmentError> {
        let folder = self.folder();
        folder.check_poison()?;
        self.check_copy(id)?;
        drop(folder.space.grant(bytes.len() as u64)?);
        let end = offset.checked_add(bytes.len() as u64).ok_or_else(|| invalid("bytes behind the end of any file"))?;
        let (segment, file) = folder.copy(id, kind)?;
        file.write_all_at(bytes, offset)?;
        segment.grow_len(end);
        Ok(())
    }

    /// Nothing is added to a copy any more, until `write_copy` is called again.
    pub fn seal_copy(&self, id: SegmentId) -> Result<(), SegmentError> {
        self.check_copy(id)?;
        self.folder().listed(id)?.seal();
        // The handle of its writer is closed by a sync that began later.
        self.start_sync(id)
    }

    /// Removes a copy that no row names; one that is absent is fine. Open readers keep their bytes.
    pub fn remove_copy(&self, id: SegmentId) -> Result<(), SegmentError> {
        self.check_copy(id)?;
        let folder = self.folder();
        match folder.listed(id) {
            Ok(segment) => {
                folder.begin_removal();
                folder.remove(&segment, Proof::Unnamed)
            }
            Err(SegmentError::Missing(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// How often bytes were put into a copy since it was opened: one that is made again does not grow.
    pub fn copy_writes(&self, id: SegmentId) -> Result<u64, SegmentError> {
        Ok(self.folder().listed(id)?.copy_writes())
    }

    /// As `remove_copy`, but false if bytes were put into it since `copy_writes` was `writes`.
    pub fn remove_copy_not_written(&self, id: SegmentId, writes: u64) -> Result<bool, SegmentError> {
        // A write counts before it begins, under the same lock: one that comes later makes the file anew.
        let _no_write_begins = self.folder().copies.lock();
        match self.copy_writes(id) {
            Ok(now) if now != writes => Ok(false),
            Ok(_) | Err(SegmentError::Missing(_)) => self.remove_copy(id).map(|()| true),
            Err(error) => Err(error),
        }
    }

    /// Frees a range of a copy, which then reads as zeros (C3); one that is absent is fine. Not synced.
    pub fn punch_copy(&self, id: SegmentId, offset: u64, len: u64) -> Result<(), SegmentError> {
        self.check_copy(id)?;
        let (segment, file) = match self.punchable(id) {
            Err(SegmentError::Missing(_)) => return Ok(()),
            found => found?,
        };
        let end =
            offset.checked_add(len).ok_or_else(|| invalid("a hole behind the end of any file"))?.min(segment.len());
        if offset < end {
            file.punch_hole(offset, end - offset)?;
        }
        Ok(())
    }

    /// C1.
    fn check_copy(&self, id: SegmentId) -> Result<(), SegmentError> {
        if id.0 == 0 || id.made_by() == self.name().number {
            return Err(invalid(format!("segment {id:?} is no copy here")));
        }
        Ok(())
    }
}

impl Folder {
    fn copy(&self, id: SegmentId, kind: Kind) -> Result<(Arc<Segment>, Arc<dyn File>), SegmentError> {
        let _making = self.copies.lock();
        let segment = match self.listed(id) {
            Err(SegmentError::Missing(_)) => {
                let (segment, file) = self.create_copy(id, kind)?;
                segment.note_copy_write();
                return Ok((segment, file));
            }
            segment => segment?,
        };
        segment.note_copy_write();
        if segment.kind != kind {
            return Err(invalid(format!("segment {id:?} is of another kind")));
        }
        let file = match segment.writing() {
            Some(file) => file,
            None => {
                let file = self.env.disk.open(&self.path(id, kind), OpenMode::ReadWrite)?;
                segment.reopen(Arc::clone(&file));
                file
            }
        };
        Ok((segment, file))
    }

    fn create_copy(&self, id: SegmentId, kind: Kind) -> Result<(Arc<Segment>, Arc<dyn File>), SegmentError> {
        self.create_as(id, kind, |_| Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use margay_env::Env;

    use super::*;
    use crate::{Extent, Options, RunLength, RunWriter, Segments, StoreName, StoreNumber};

    fn store(folder: &std::path::Path, number: u16) -> Arc<Store> {
        let store = Store::open(Env::real(), Options::new(folder)).unwrap();
        if number != store.name().number.0 {
            store.attach(StoreName { number: StoreNumber(number), generation: 1, ..store.name() }).unwrap();
        }
        store
    }

    fn copy_of(from: &Store, writer: &dyn RunWriter, to: &Store) {
        let (id, range) = (writer.segment(), writer.written());
        let mut bytes = vec![0; (range.end - range.start) as usize];
        from.file(id).unwrap().read_exact_at(&mut bytes, range.start).unwrap();
        to.write_copy(id, from.state(id).unwrap().kind, range.start, &bytes).unwrap();
    }

    #[test]
    fn a_copy_is_read_as_the_segment_also_after_a_restart_and_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let (path, other) = (folder.path().join("one"), folder.path().join("two"));
        let (one, two) = (store(&path, 1), store(&other, 2));
        let mut extents = Vec::new();
        for (count, length) in [RunLength::Exact(10), RunLength::Exact(200_000), RunLength::ExactAlone(70_000)]
            .into_iter()
            .chain([RunLength::Growing])
            .enumerate()
        {
            let len = match length {
                RunLength::Exact(len) | RunLength::ExactAlone(len) => len as usize,
                RunLength::Growing => 300_001,
            };
            let mut writer = one.begin(length, b"owner").unwrap();
            // A copy may be made of what is there so far.
            copy_of(&one, &*writer, &two);
            writer.write(&vec![count as u8 + 1; len]).unwrap();
            let run = writer.end().unwrap();
            copy_of(&one, &*writer, &two);
            copy_of(&one, &*writer, &two);
            two.sync_blocking(run.segment).unwrap();
            extents.push((Extent::whole(run), count as u8 + 1));
        }
        let check = |store: &Store| {
            for (extent, byte) in &extents {
                store.verify(extent).unwrap();
                assert!(store.read(extent, 0, extent.len).unwrap().iter().all(|found| found == byte));
            }
        };
        check(&two);
        extents.iter().for_each(|(extent, _)| two.seal_copy(extent.run.segment).unwrap());
        check(&two);
        drop(two);
        let two = store(&other, 2);
        check(&two);
        // What the maker has punched; the others stay.
        let holed = &extents[1].0;
        two.punch_copy(holed.run.segment, holed.run.offset, holed.run.len).unwrap();
        two.punch_copy(SegmentId(holed.run.segment.0 + 100), 0, 9).unwrap();
        assert!(
            two.punch_copy(holed.run.segment, u64::MAX, 9).is_err() && one.punch_copy(holed.run.segment, 0, 9).is_err()
        );
        assert!(matches!(two.verify(holed), Err(SegmentError::Corrupt { .. })));
        extents.iter().filter(|(extent, _)| extent != holed).for_each(|(extent, _)| two.verify(extent).unwrap());
        assert!(
            two.remove_copy(extents[0].0.run.segment).is_ok() && one.remove_copy(extents[0].0.run.segment).is_err()
        );
        assert!(matches!(two.verify(&extents[0].0), Err(SegmentError::Missing(_))));
        assert!(two.remove_copy(extents[0].0.run.segment).is_ok());
        assert!(two.write_copy(extents[2].0.run.segment, Kind::Pack, 0, b"no").is_err());
        assert!(two.write_copy(extents[2].0.run.segment, Kind::Raw, u64::MAX, b"no").is_err());
        let (other, writes) = (extents[2].0.run.segment, two.copy_writes(extents[2].0.run.segment).unwrap());
        let len = two.state(other).unwrap().len;
        two.write_copy(other, two.state(other).unwrap().kind, 0, b"again").unwrap();
        assert_eq!((two.state(other).unwrap().len, two.copy_writes(other).unwrap()), (len, writes + 1));
        assert!(!two.remove_copy_not_written(other, writes).unwrap() && two.state(other).is_ok());
        assert!(two.remove_copy_not_written(other, writes + 1).unwrap() && two.state(other).is_err());
        assert!(one.write_copy(extents[0].0.run.segment, Kind::Pack, 0, b"no").is_err());
    }
}
