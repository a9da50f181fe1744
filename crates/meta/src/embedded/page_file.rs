//! The tree's file as redb sees it: each block is verified against its checksum when it is read from the disk.
//!
//! Why:        redb trusts what it reads, and after a storage error it refuses all work. So a damaged page is replaced
//!             by a stand-in that redb itself cannot descend into, and other pages remain readable.
//! Invariants: P1 the checksums of all pages that a head refers to are durable before the head is written.
//!             P2 no byte of a damaged page reaches redb, and nothing built from a stand-in reaches the file.
//!             P3 after a failed write or sync nothing reaches the file; older commits stay readable (M5).
//! Durability: the head is written in `sync_data`, between the sync of the checksums and that of the file.
//! Locking:    `pending_head`, `damage` and the held blocks are leaf locks.
//! Not here:   the checksum entries and their file (page_sums), the content of pages (tree, tree_walk).

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use margay_env::File;
use parking_lot::Mutex;
use redb::StorageBackend;

use super::page_sums::{BLOCK_BYTES, Compared, PageSums};
use crate::EngineError;

/// Bytes that redb overwrites in place at the beginning of the file.
pub(super) const HEAD_BYTES: usize = 320;
/// Offset in the head of the byte whose lowest bit selects the valid commit slot.
const HEAD_FLAGS_AT: usize = 9;
const HEAD_SLOT_FLAG: u8 = 1;
/// Maximum number of damaged locations that are recorded.
const DAMAGE_HELD_MAX: usize = 1000;

#[derive(Debug)]
pub(super) struct PageFile {
    file: Arc<dyn File>,
    pub(super) sums: PageSums,
    /// The head that redb wrote and `sync_data` has not written yet.
    pending_head: Mutex<Option<Vec<u8>>>,
    /// Offset of each damaged page, and the reason.
    damage: Mutex<BTreeMap<u64, String>>,
    /// Some page failed its checksum; otherwise all damage is read errors of the disk.
    mismatch: AtomicBool,
    frozen: AtomicBool,
    is_open: AtomicBool,
    /// Set by the first write or sync that fails once the tree is open.
    held: OnceLock<Held>,
}

/// Takes what redb writes after a failed write or sync, which redb is not told of: it would refuse reads, too. Only the
/// rest of one fold comes here.
#[derive(Debug)]
struct Held {
    failed: io::ErrorKind,
    why: String,
    /// By their offset.
    blocks: Mutex<BTreeMap<u64, Box<[u8]>>>,
    file_bytes: AtomicU64,
}

impl Held {
    fn write(&self, offset: u64, data: &[u8]) {
        let mut blocks = self.blocks.lock();
        for (at, block) in (offset..).step_by(BLOCK_BYTES).zip(data.chunks(BLOCK_BYTES)) {
            blocks.insert(at, block.into());
        }
    }

    /// Copies a block; false if it is in the file.
    fn read(&self, offset: u64, out: &mut [u8]) -> bool {
        let blocks = self.blocks.lock();
        let Some(block) = blocks.get(&offset).filter(|block| block.len() == out.len()) else { return false };
        out.copy_from_slice(block);
        true
    }
}

/// The storage backend given to redb.
#[derive(Debug)]
pub(super) struct Backend(pub(super) Arc<PageFile>);

/// Fills `page` with a branch page without valid children: redb refuses them on a lookup, and stops when it tries to
/// copy the keys into another page or reads the page as a leaf (the first key ends before it begins; as a leaf, all
/// rows end after the page).
fn stand_in(page: &mut [u8]) {
    const BRANCH: u8 = 2;
    const KEYS: usize = 2;
    const CHILDREN_AT: usize = 8 + 16 * (KEYS + 1);
    const NO_PAGE: u64 = 31 << 59;
    page.fill(0);
    page[0] = BRANCH;
    page[2..4].copy_from_slice(&(KEYS as u16).to_le_bytes());
    page[4..20].fill(0xff);
    for child in 0..=KEYS {
        let at = CHILDREN_AT + 8 * child;
        page[at..at + 8].copy_from_slice(&NO_PAGE.to_le_bytes());
    }
    // The ends of both keys stay 0: the second key is empty, so that every lookup goes to its right.
}

/// An unexpected head is damage; an unreadable one is a read error.
pub(super) fn head_failed(error: io::Error) -> EngineError {
    match error.kind() {
        io::ErrorKind::InvalidData => EngineError::Corrupt(error.to_string()),
        _ => EngineError::Io(error),
    }
}

impl PageFile {
    pub(super) fn new(file: Arc<dyn File>, sums: PageSums) -> PageFile {
        PageFile {
            file,
            sums,
            pending_head: Mutex::new(None),
            damage: Mutex::new(BTreeMap::new()),
            mismatch: AtomicBool::new(false),
            frozen: AtomicBool::new(false),
            is_open: AtomicBool::new(false),
            held: OnceLock::new(),
        }
    }

    pub(super) fn file(&self) -> &dyn File {
        self.file.as_ref()
    }

    /// Stops all writes: redb's memory may contain data built from a stand-in.
    pub(super) fn freeze(&self) {
        self.frozen.store(true, Ordering::SeqCst);
    }

    /// From now on there are readers, which a failed write must not stop.
    pub(super) fn opened(&self) {
        self.is_open.store(true, Ordering::SeqCst);
    }

    /// From now on redb's writes are held instead of written. Gives the error back if nobody reads yet.
    fn hold(&self, error: io::Error) -> Result<&Held, io::Error> {
        if !self.is_open.load(Ordering::SeqCst) {
            return Err(error);
        }
        Ok(self.held.get_or_init(|| Held {
            failed: error.kind(),
            why: error.to_string(),
            blocks: Mutex::default(),
            file_bytes: AtomicU64::new(self.file.len().unwrap_or_default()),
        }))
    }

    /// The failed write or sync, if there was one.
    pub(super) fn check_failed(&self) -> Result<(), EngineError> {
        match self.held.get() {
            Some(held) => Err(EngineError::Io(io::Error::new(held.failed, held.why.clone()))),
            None => Ok(()),
        }
    }

    /// Number of damaged pages since the start, and a line about the first ones.
    pub(super) fn damage(&self) -> (usize, Option<String>) {
        let damage = self.damage.lock();
        let shown: Vec<&str> = damage.values().take(3).map(String::as_str).collect();
        (damage.len(), (!shown.is_empty()).then(|| shown.join("; ")))
    }

    /// Whether all damage so far is read errors of the disk.
    pub(super) fn only_refused(&self) -> bool {
        !self.damage.lock().is_empty() && !self.mismatch.load(Ordering::Relaxed)
    }

    fn note(&self, offset: u64, why: &str) {
        let mut damage = self.damage.lock();
        if damage.len() < DAMAGE_HELD_MAX && !damage.contains_key(&offset) {
            let text = format!("tree/rows.redb, page at byte {offset}: {why}");
            tracing::error!(%text, "a page of the tree is damaged: what lies on it cannot be read; run margay fsck, restore from a backup");
            damage.insert(offset, text);
        }
    }

    /// The head in the file.
    pub(super) fn head(&self) -> Result<[u8; HEAD_BYTES], io::Error> {
        let mut head = [0; HEAD_BYTES];
        self.file.read_exact_at(&mut head, 0)?;
        if !self.sums.knows_head(&head) {
            let text = "the head of tree/rows.redb is damaged or of another time than tree/rows.sums: restore it from a backup";
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        Ok(head)
    }

    /// Accepts the head of a file that has no checksums yet.
    pub(super) fn adopt_head(&self) -> Result<(), EngineError> {
        if self.file.len()? >= HEAD_BYTES as u64 {
            self.sums.adopt(&self.head().map_err(head_failed)?);
        }
        Ok(())
    }

    /// From now on only the head in the file is valid. Fails if what redb wrote did not reach the file.
    pub(super) fn settle(&self) -> Result<(), EngineError> {
        self.check_failed()?;
        if self.frozen.load(Ordering::SeqCst) || self.pending_head.lock().is_some() {
            return Ok(());
        }
        let head = self.head().map_err(head_failed)?;
        self.sums.settle(&head)
    }

    /// Reads whole blocks from the disk. The error says why they are not valid.
    pub(super) fn read_blocks(&self, offset: u64, out: &mut [u8]) -> Result<(), String> {
        if !offset.is_multiple_of(BLOCK_BYTES as u64) || !out.len().is_multiple_of(BLOCK_BYTES) {
            return Err("not a whole page".into());
        }
        self.file.read_exact_at(out, offset).map_err(|error| format!("it cannot be read: {error}"))?;
        if self.are_right(offset, out) {
            return Ok(());
        }
        for copy in (0..).map_while(|index| self.file.copy(index)) {
            if copy.read_exact_at(out, offset).is_ok() && self.are_right(offset, out) {
                tracing::error!(offset, "a page of the tree is damaged on one disk and was read from another one");
                return Ok(());
            }
        }
        self.mismatch.store(true, Ordering::Relaxed);
        Err("it does not match its checksum".into())
    }

    fn are_right(&self, offset: u64, blocks: &[u8]) -> bool {
        let first = (offset / BLOCK_BYTES as u64) as usize;
        blocks.chunks(BLOCK_BYTES).enumerate().all(|(index, bytes)| match self.sums.compare(first + index, bytes) {
            Compared::Right => true,
            Compared::Absent => !self.sums.is_complete(),
            Compared::Wrong => false,
        })
    }

    /// As `read_blocks`, with what did not reach the file.
    fn read_newest(&self, offset: u64, out: &mut [u8]) -> Result<(), String> {
        let Some(held) = self.held.get() else { return self.read_blocks(offset, out) };
        for (at, block) in (offset..).step_by(BLOCK_BYTES).zip(out.chunks_mut(BLOCK_BYTES)) {
            if !held.read(at, block) {
                self.read_blocks(at, block)?;
            }
        }
        Ok(())
    }

    /// Makes what was written durable, and then the head.
    fn sync(&self) -> Result<(), io::Error> {
        let head = self.pending_head.lock().clone();
        if let Some(head) = &head {
            // A commit writes the head once more with the other slot selected. Its checksum is stored now, so that
            // write needs no sync of checksums.
            let mut next = head.clone();
            next[HEAD_FLAGS_AT] ^= HEAD_SLOT_FLAG;
            self.sums.expect_heads(head, &next);
        }
        self.sums.flush().map_err(io::Error::other)?;
        if let Some(head) = head {
            self.sums.full_disk.write_all_at(self.file.as_ref(), &head, 0)?;
            *self.pending_head.lock() = None;
        }
        self.file.sync_data()
    }

    fn check_frozen(&self) -> io::Result<()> {
        if self.frozen.load(Ordering::SeqCst) {
            return Err(io::Error::other("the tree is not written any more, since a page of it is damaged"));
        }
        Ok(())
    }
}

impl StorageBackend for Backend {
    fn len(&self) -> Result<u64, io::Error> {
        match self.0.held.get() {
            Some(held) => Ok(held.file_bytes.load(Ordering::SeqCst)),
            None => self.0.file.len(),
        }
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), io::Error> {
        if offset == 0 {
            let pending = self.0.pending_head.lock().clone();
            let head = match pending {
                Some(pending) => pending,
                None => self.0.head()?.to_vec(),
            };
            out.copy_from_slice(head.get(..out.len()).ok_or(io::ErrorKind::InvalidInput)?);
            return Ok(());
        }
        if let Err(why) = self.0.read_newest(offset, out) {
            self.0.note(offset, &why);
            stand_in(out);
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> Result<(), io::Error> {
        let pages = &self.0;
        pages.check_frozen()?;
        let held = match pages.held.get() {
            Some(held) => held,
            None => {
                pages.sums.set_len((len / BLOCK_BYTES as u64) as usize);
                let Err(error) = pages.file.set_len(len) else { return Ok(()) };
                pages.hold(error)?
            }
        };
        held.file_bytes.store(len, Ordering::SeqCst);
        Ok(())
    }

    fn sync_data(&self) -> Result<(), io::Error> {
        let pages = &self.0;
        pages.check_frozen()?;
        if pages.held.get().is_none()
            && let Err(error) = pages.sync()
        {
            pages.hold(error)?;
        }
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), io::Error> {
        let pages = &self.0;
        pages.check_frozen()?;
        if offset == 0 {
            assert_eq!(data.len(), HEAD_BYTES, "redb writes its head and whole pages");
            *pages.pending_head.lock() = Some(data.to_vec());
            return Ok(());
        }
        assert!(offset.is_multiple_of(BLOCK_BYTES as u64) && data.len().is_multiple_of(BLOCK_BYTES));
        let held = match pages.held.get() {
            Some(held) => held,
            None => {
                pages.sums.set((offset / BLOCK_BYTES as u64) as usize, data);
                let written = pages.sums.full_disk.write_all_at(pages.file.as_ref(), data, offset);
                let Err(error) = written else { return Ok(()) };
                pages.hold(error)?
            }
        };
        held.write(offset, data);
        Ok(())
    }
}
