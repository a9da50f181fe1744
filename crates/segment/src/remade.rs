//! Files that are made right from those of other stores: bytes of a run that is damaged here, or a whole file that is gone.
//!
//! Why:        the file of a segment is the same at each of its stores, so what one has lost another one can give.
//! Layout:     `<name>.fetching` until it is whole and durable, then the segment's own name.
//! Invariants: R1 a segment appears in the folder only once all of its file is durable; a start removes what was left half done.
//!             R2 a file is made only if the folder has none of that id, in quarantine neither.
//!             R3 only a run that was found bad here is written over, so no good byte is.
//! Locking:    `Folder::copies` while a file appears; order: before the quarantine and the table.
//! Durability: `Remade::finish`, `Store::sync_mended`.
//! Not here:   where the bytes come from, and whether they are right (the caller verifies).

use std::path::PathBuf;
use std::sync::Arc;

use margay_env::{Env, File, OpenMode};

use crate::error::invalid;
use crate::folder::Folder;
use crate::names::fetching_name;
use crate::segment::Segment;
use crate::space::SpaceGate;
use crate::store::Store;
use crate::{Kind, Run, SegmentError, SegmentId, SegmentInfo, verify_run_in};

/// A file that is being made; dropping it removes it.
#[derive(Debug)]
pub struct Remade {
    id: SegmentId,
    kind: Kind,
    path: PathBuf,
    file: Arc<dyn File>,
    env: Env,
    space: Arc<SpaceGate>,
    is_finished: bool,
}

impl Remade {
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), SegmentError> {
        drop(self.space.grant(bytes.len() as u64)?);
        Ok(self.file.write_all_at(bytes, offset)?)
    }

    /// Reads the whole run and checks every checksum.
    pub fn verify(&self, run: &Run) -> Result<(), SegmentError> {
        assert_eq!(run.segment, self.id, "a run of this segment");
        verify_run_in(&*self.file, run)
    }
}

impl Drop for Remade {
    fn drop(&mut self) {
        if !self.is_finished {
            // What stays is removed by the next start (R1).
            let _ = self.env.disk.remove(&self.path);
        }
    }
}

impl Store {
    /// Begins the file of a segment that is not here (R2). One at a time for each segment.
    pub fn remake(&self, id: SegmentId, kind: Kind) -> Result<Remade, SegmentError> {
        let folder = self.folder();
        folder.check_poison()?;
        check_absent(folder, id)?;
        let path = folder.options.folder.join(fetching_name(id, kind));
        let file = folder.env.disk.open(&path, OpenMode::OpenOrCreate)?;
        file.set_len(0)?;
        let (env, space) = (folder.env.clone(), Arc::clone(&folder.space));
        Ok(Remade { id, kind, path, file, env, space, is_finished: false })
    }

    /// The file is whole: it gets its name. Durable when it returns (R1).
    pub fn finish_remade(&self, mut remade: Remade) -> Result<SegmentInfo, SegmentError> {
        let folder = self.folder();
        remade.file.sync_data()?;
        let _no_copy_is_made = folder.copies.lock();
        check_absent(folder, remade.id)?;
        folder.env.disk.rename(&remade.path, &folder.path(remade.id, remade.kind))?;
        remade.is_finished = true;
        if let Err(error) = folder.env.disk.sync_dir(&folder.options.folder) {
            folder.poison(format!("sync of the segment folder: {error}"));
            return Err(error.into());
        }
        let segment = Segment::found(remade.id, remade.kind, remade.file.len()?);
        let info = segment.info();
        folder.insert_found(segment);
        Ok(info)
    }

    /// Writes bytes of a run that was found bad (R3), also behind the end of a file that is short. Durable after `sync_mended`.
    pub fn mend(&self, id: SegmentId, offset: u64, bytes: &[u8]) -> Result<(), SegmentError> {
        let folder = self.folder();
        folder.check_poison()?;
        let end = offset.checked_add(bytes.len() as u64).ok_or_else(|| invalid("bytes behind the end of any file"))?;
        // The run may be a hole now.
        drop(folder.space.grant(bytes.len() as u64)?);
        let segment = folder.listed(id)?;
        folder.file(&segment)?.write_all_at(bytes, offset)?;
        segment.grow_len(end);
        Ok(())
    }

    /// Blocks until what `mend` has written is durable.
    pub fn sync_mended(&self, id: SegmentId) -> Result<(), SegmentError> {
        let folder = self.folder();
        folder.check_poison()?;
        let segment = folder.listed(id)?;
        folder.file(&segment)?.sync_data().map_err(|error| {
            folder.poison(format!("sync of segment {id:?}: {error}"));
            error.into()
        })
    }
}

fn check_absent(folder: &Folder, id: SegmentId) -> Result<(), SegmentError> {
    if folder.quarantine.has(id) || folder.listed(id).is_ok() {
        return Err(invalid(format!("segment {id:?} has a file here")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use margay_env::Env;

    use super::*;
    use crate::{Extent, Options, RunLength, Segments, segment_name};

    fn store(folder: &std::path::Path) -> Arc<Store> {
        Store::open(Env::real(), Options::new(folder)).unwrap()
    }

    fn written(store: &Store) -> (Run, Vec<u8>) {
        let mut writer = store.begin(RunLength::Exact(200_000), b"owner").unwrap();
        writer.write(&[7; 200_000]).unwrap();
        let run = writer.end().unwrap();
        drop(writer);
        store.sync_blocking(run.segment).unwrap();
        store.seal(run.segment).unwrap();
        let mut bytes = vec![0; store.listed(run.segment).unwrap().len as usize];
        store.file(run.segment).unwrap().read_exact_at(&mut bytes, 0).unwrap();
        (run, bytes)
    }

    #[test]
    fn a_file_that_is_gone_is_made_again_and_one_that_was_half_made_goes() {
        let folder = tempfile::tempdir().unwrap();
        let (run, bytes) = written(&store(folder.path()));
        let path = folder.path().join(segment_name(run.segment, Kind::Pack));
        let half = folder.path().join(fetching_name(run.segment, Kind::Pack));
        let disk = Env::real().disk;
        disk.remove(&path).unwrap();
        disk.open(&half, OpenMode::OpenOrCreate).unwrap().write_all_at(b"half", 0).unwrap();
        let one = store(folder.path());
        assert!(!half.exists(), "the start removes it");
        let remade = one.remake(run.segment, Kind::Pack).unwrap();
        remade.write(0, &bytes[..100]).unwrap();
        assert!(remade.verify(&run).is_err() && one.listed(run.segment).is_err());
        drop(remade);
        assert!(!half.exists());
        let remade = one.remake(run.segment, Kind::Pack).unwrap();
        remade.write(100, &bytes[100..]).unwrap();
        remade.write(0, &bytes[..100]).unwrap();
        remade.verify(&run).unwrap();
        let info = one.finish_remade(remade).unwrap();
        assert_eq!((info.len, info.open), (bytes.len() as u64, false));
        one.verify(&Extent::whole(run)).unwrap();
        assert!(one.remake(run.segment, Kind::Pack).is_err(), "it is there");
        one.set_aside(run.segment).unwrap();
        assert!(one.remake(run.segment, Kind::Pack).is_err(), "it is in quarantine");
        drop(one);
        assert_eq!(store(folder.path()).quarantined().len(), 1);
    }

    #[test]
    fn a_run_is_mended_in_its_place_also_behind_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let (run, bytes) = written(&store(folder.path()));
        let path = folder.path().join(segment_name(run.segment, Kind::Pack));
        std::fs::File::options().write(true).open(path).unwrap().set_len(run.offset + 9).unwrap();
        let one = store(folder.path());
        assert!(one.verify(&Extent::whole(run)).is_err());
        one.mend(run.segment, run.offset, &bytes[run.offset as usize..]).unwrap();
        one.sync_mended(run.segment).unwrap();
        one.verify(&Extent::whole(run)).unwrap();
        assert_eq!(one.listed(run.segment).unwrap().len, bytes.len() as u64);
        assert!(one.mend(SegmentId(99), 0, b"no").is_err());
    }
}
