//! An open file that has copies.
//!
//! Not here:   what copies there are (entry).

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use margay_env::File;

use crate::catalogue::Catalogue;
use crate::entry::Entry;

#[derive(Debug)]
pub(crate) struct CopiedFile {
    pub(crate) catalogue: Arc<Catalogue>,
    pub(crate) entry: Arc<Entry>,
}

impl CopiedFile {
    pub(crate) fn open(catalogue: &Arc<Catalogue>, entry: &Arc<Entry>) -> CopiedFile {
        entry.hold();
        CopiedFile { catalogue: Arc::clone(catalogue), entry: Arc::clone(entry) }
    }

    fn change(&self, op: impl Fn(&dyn File) -> io::Result<()>) -> io::Result<()> {
        self.entry.change(&self.catalogue, op).inspect_err(|_| self.catalogue.differ.store(true, Ordering::Relaxed))
    }

    /// A copy may be shorter than another one, by what nobody has synced.
    fn read_longer(&self, short: usize, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut best = short;
        let mut other = vec![0; buffer.len()];
        for index in 0.. {
            let Some(file) = self.entry.copy(&self.catalogue, index) else { break };
            match file.read_at(&mut other, offset) {
                Ok(count) if count > best => {
                    buffer[..count].copy_from_slice(&other[..count]);
                    best = count;
                }
                _ => {}
            }
        }
        Ok(best)
    }
}

impl Drop for CopiedFile {
    fn drop(&mut self) {
        self.entry.let_go();
    }
}

impl File for CopiedFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let len = buffer.len();
        let cell = parking_lot::Mutex::new(&mut *buffer);
        let count = self.entry.read(&self.catalogue, |file| file.read_at(&mut cell.lock()[..], offset))?;
        let several = count < len && self.entry.copy(&self.catalogue, 1).is_some();
        if several { self.read_longer(count, buffer, offset) } else { Ok(count) }
    }

    fn read_cached_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let cell = parking_lot::Mutex::new(buffer);
        self.entry.read(&self.catalogue, |file| file.read_cached_at(&mut cell.lock()[..], offset))
    }

    fn will_read(&self, offset: u64, len: u64) {
        // The read that follows reports errors.
        let _ = self.entry.read(&self.catalogue, |file| {
            file.will_read(offset, len);
            Ok(())
        });
    }

    fn write_all_at(&self, buffer: &[u8], offset: u64) -> io::Result<()> {
        self.change(|file| file.write_all_at(buffer, offset))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.entry.sync(&self.catalogue).inspect_err(|_| self.catalogue.differ.store(true, Ordering::Relaxed))
    }

    fn len(&self) -> io::Result<u64> {
        let mut len = self.entry.read(&self.catalogue, |file| file.len())?;
        for index in 0.. {
            let Some(file) = self.entry.copy(&self.catalogue, index) else { break };
            len = len.max(file.len().unwrap_or(0));
        }
        Ok(len)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.change(|file| file.set_len(len))
    }

    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        self.change(|file| file.allocate(offset, len))
    }

    fn punch_hole(&self, offset: u64, len: u64) -> io::Result<()> {
        self.change(|file| file.punch_hole(offset, len))
    }

    fn allocated_bytes(&self) -> io::Result<u64> {
        self.entry.read(&self.catalogue, |file| file.allocated_bytes())
    }

    fn copy(&self, index: usize) -> Option<Arc<dyn File>> {
        self.entry.copy(&self.catalogue, index)
    }
}
