//! Open files of the simulated disk.
//!
//! Invariants: every change goes to the current bytes and to the list that a crash chooses from.

use std::io;

use super::content::{Change, PAGE_BYTES};
use super::crash::keep_some;
use super::disk::{SimDisk, State};
use crate::File;

#[derive(Debug)]
pub(super) struct SimFile {
    pub(super) disk: SimDisk,
    pub(super) node: u64,
}

impl SimFile {
    /// Makes changes visible and pending; `StorageFull` when the disk has no room for the given range.
    fn change(&self, fills: (u64, u64), changes: Vec<Change>) -> io::Result<()> {
        let (offset, len) = fills;
        if offset.checked_add(len).is_none_or(|end| end > i64::MAX as u64) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut state = self.disk.state.lock();
        state.check_running()?;
        if let Err(error) = state.begin_change() {
            // The power failed during this very write: part of it may have reached the disk.
            if !state.only_killed {
                state.tree.file_mut(self.node).pending.extend(changes);
            }
            return Err(error);
        }
        let room = state.tree.capacity_pages.saturating_sub(state.tree.used_pages);
        let file = state.tree.file_mut(self.node);
        if file.current.missing_pages(offset, len) > room {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let before = file.current.pages();
        for change in &changes {
            file.current.apply(change);
        }
        let after = file.current.pages();
        file.pending.extend(changes);
        state.tree.used_pages = state.tree.used_pages + after - before;
        Ok(())
    }
}

impl File for SimFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let state = self.disk.state.lock();
        state.check_running()?;
        Ok(state.tree.files[&self.node].current.read(buffer, offset))
    }

    fn read_cached_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        if self.disk.state.lock().cold {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.read_at(buffer, offset)
    }

    fn write_all_at(&self, buffer: &[u8], offset: u64) -> io::Result<()> {
        let len = buffer.len() as u64;
        if len == 0 {
            return self.disk.state.lock().check_running();
        }
        let write = Change::Write { offset, bytes: buffer.to_vec() };
        self.change((offset, len), vec![write, Change::Grow { len: offset.saturating_add(len) }])
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut state = self.disk.state.lock();
        state.begin_change()?;
        let fails = State::is_due(&mut state.syncs_until_failure);
        if state.lies.0 {
            return Ok(());
        }
        let State { tree, random, .. } = &mut *state;
        let file = tree.file_mut(self.node);
        let pending = std::mem::take(&mut file.pending);
        if fails {
            // The page cache now marks the pages clean: the rest is never written again.
            keep_some(&mut file.durable, &pending, random, 50);
            return Err(io::Error::other("injected failure of a sync"));
        }
        for change in &pending {
            file.durable.apply(change);
        }
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        let state = self.disk.state.lock();
        state.check_running()?;
        Ok(state.tree.files[&self.node].current.len)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        if len > i64::MAX as u64 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.change((0, 0), vec![Change::SetLen { len }])
    }

    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        let grow = Change::Grow { len: offset.saturating_add(len) };
        self.change((offset, len), vec![Change::Allocate { offset, len }, grow])
    }

    fn punch_hole(&self, offset: u64, len: u64) -> io::Result<()> {
        if offset.checked_add(len).is_none() || len == 0 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.change((0, 0), vec![Change::Punch { offset, len }])
    }

    fn allocated_bytes(&self) -> io::Result<u64> {
        let state = self.disk.state.lock();
        state.check_running()?;
        Ok(state.tree.files[&self.node].current.pages() * PAGE_BYTES)
    }
}

impl Drop for SimFile {
    fn drop(&mut self) {
        self.disk.state.lock().tree.close_handle(self.node);
    }
}
