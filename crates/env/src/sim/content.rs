//! The bytes of a simulated file, and single changes to them.
//!
//! Why:        sparse pages, shared between copies, make large allocated files and copies of whole disks cheap.
//! Invariants: C1 reads stop at `len`.
//!             C2 bytes beyond `len` are kept only while changes are replayed; `trim` drops them.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Unit of space on the simulated disk, in bytes.
pub(super) const PAGE_BYTES: u64 = 4096;

type Page = [u8; PAGE_BYTES as usize];

#[derive(Clone, Debug, Default)]
pub(super) struct Content {
    pub(super) len: u64,
    pages: BTreeMap<u64, Arc<Page>>,
}

/// One change to a file that a crash may lose on its own.
#[derive(Clone, Debug)]
pub(super) enum Change {
    /// Written bytes, without the new length of the file.
    Write {
        offset: u64,
        bytes: Vec<u8>,
    },
    /// The file grew to at least this length.
    Grow {
        len: u64,
    },
    SetLen {
        len: u64,
    },
    Allocate {
        offset: u64,
        len: u64,
    },
    Punch {
        offset: u64,
        len: u64,
    },
}

impl Content {
    pub(super) fn pages(&self) -> u64 {
        self.pages.len() as u64
    }

    /// Pages that a write or allocation of a range would add.
    pub(super) fn missing_pages(&self, offset: u64, len: u64) -> u64 {
        if len == 0 {
            return 0;
        }
        let (first, last) = (offset / PAGE_BYTES, (offset + len - 1) / PAGE_BYTES);
        (last - first + 1) - self.pages.range(first..=last).count() as u64
    }

    pub(super) fn read(&self, buffer: &mut [u8], offset: u64) -> usize {
        let count = self.len.saturating_sub(offset).min(buffer.len() as u64) as usize;
        let mut done = 0;
        while done < count {
            let (page, within) = split(offset + done as u64);
            let part = (count - done).min(PAGE_BYTES as usize - within);
            match self.pages.get(&page) {
                Some(bytes) => buffer[done..done + part].copy_from_slice(&bytes[within..within + part]),
                None => buffer[done..done + part].fill(0),
            }
            done += part;
        }
        count
    }

    pub(super) fn apply(&mut self, change: &Change) {
        match change {
            Change::Write { offset, bytes } => self.write(*offset, bytes),
            Change::Grow { len } => self.len = self.len.max(*len),
            Change::SetLen { len } => {
                self.len = *len;
                self.trim();
            }
            Change::Allocate { offset, len } => self.allocate(*offset, *len),
            Change::Punch { offset, len } => self.punch(*offset, *len),
        }
    }

    pub(super) fn write(&mut self, offset: u64, bytes: &[u8]) {
        let mut done = 0;
        while done < bytes.len() {
            let (page, within) = split(offset + done as u64);
            let part = (bytes.len() - done).min(PAGE_BYTES as usize - within);
            let target = Arc::make_mut(self.pages.entry(page).or_insert_with(zero_page));
            target[within..within + part].copy_from_slice(&bytes[done..done + part]);
            done += part;
        }
    }

    fn allocate(&mut self, offset: u64, len: u64) {
        if len == 0 {
            return;
        }
        let zeros = zero_page();
        for page in offset / PAGE_BYTES..=(offset + len - 1) / PAGE_BYTES {
            self.pages.entry(page).or_insert_with(|| Arc::clone(&zeros));
        }
    }

    fn punch(&mut self, offset: u64, len: u64) {
        let end = offset + len;
        let touched: Vec<u64> = match len {
            0 => Vec::new(),
            _ => self.pages.range(offset / PAGE_BYTES..=(end - 1) / PAGE_BYTES).map(|(page, _)| *page).collect(),
        };
        for page in touched {
            let (from, to) = (page * PAGE_BYTES, (page + 1) * PAGE_BYTES);
            if offset <= from && to <= end {
                self.pages.remove(&page);
                continue;
            }
            let bytes = Arc::make_mut(self.pages.get_mut(&page).expect("listed above"));
            bytes[(offset.max(from) - from) as usize..(end.min(to) - from) as usize].fill(0);
        }
    }

    /// Drops bytes beyond the length.
    pub(super) fn trim(&mut self) {
        let (page, within) = split(self.len);
        self.pages.split_off(&self.len.div_ceil(PAGE_BYTES));
        if within > 0 && self.pages.contains_key(&page) {
            let bytes = Arc::make_mut(self.pages.get_mut(&page).expect("checked above"));
            bytes[within..].fill(0);
        }
    }
}

fn split(offset: u64) -> (u64, usize) {
    (offset / PAGE_BYTES, (offset % PAGE_BYTES) as usize)
}

fn zero_page() -> Arc<Page> {
    Arc::new([0; PAGE_BYTES as usize])
}
