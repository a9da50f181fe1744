//! Checksums of the blocks of the tree's file, in a file beside it.
//!
//! Why:        redb verifies its own checksums only when it repairs; these are verified on each read from the disk.
//! Layout:     `<data>/tree/rows.sums`, see docs/format/log.md: a header twice, then a CRC-32C for each block of 4 KiB.
//! Invariants: S1 an entry is durable before the block can be reached from a durable head (`PageFile`).
//!             S2 a write that changes an entry rewrites its neighbours unchanged, so a torn one cannot harm them.
//!             S3 once the file is complete, reading a block without an entry is damage.
//! Locking:    one lock over the entries, held for memory operations only except in `flush`, which one thread at a time
//!             calls.
//! Not here:   which blocks are read and written (page_file).

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use margay_env::{Env, File, OpenMode};
use parking_lot::{Mutex, RwLock};

use super::full_disk::FullDisk;
use crate::EngineError;

/// The unit of checksums, and redb's smallest page.
pub(super) const BLOCK_BYTES: usize = 4096;
const FILE_NAME: &str = "rows.sums";
const UNFINISHED_NAME: &str = "rows.sums.new";
const MAGIC: [u8; 8] = *b"margysum";
const VERSION: u32 = 1;
/// Bytes before the entries.
const HEADER_BYTES: usize = 4096;
/// Distance of the two copies of the header: a sector, which a device writes whole or not at all.
const COPY_BYTES: usize = 512;
/// Checksums of heads that the header can hold.
const HEADS_MAX: usize = 8;
/// Entries in one write.
const GROUP: usize = BLOCK_BYTES / 4;
const COMPLETE: u32 = 1;

/// What a comparison says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Compared {
    Right,
    Wrong,
    /// The block has no entry.
    Absent,
}

#[derive(Debug, Default)]
struct State {
    sums: Vec<u32>,
    /// Groups of entries that the file does not have yet.
    dirty: BTreeSet<usize>,
    /// Checksums of the heads that may be found in the tree's file. None: any.
    heads: Vec<u32>,
    complete: bool,
    generation: u64,
    /// The header must be written and synced before anything depends on it.
    header_dirty: bool,
}

#[derive(Debug)]
pub(super) struct PageSums {
    file: Arc<dyn File>,
    state: RwLock<State>,
    /// Orders writes of the file.
    writing: Mutex<()>,
    /// For writes of this file and of the tree's own.
    pub(super) full_disk: FullDisk,
}

/// The entry of a block: never 0, which says that there is none.
fn sum(block: usize, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&(block as u64).to_le_bytes()), bytes).max(1)
}

fn head_sum(head: &[u8]) -> u32 {
    crc32c::crc32c(head)
}

impl State {
    fn encode_header(&self) -> [u8; COPY_BYTES] {
        assert!(self.heads.len() <= HEADS_MAX, "heads are settled after each commit of the tree");
        let mut header = [0; COPY_BYTES];
        header[..8].copy_from_slice(&MAGIC);
        header[8..12].copy_from_slice(&VERSION.to_le_bytes());
        header[16..24].copy_from_slice(&self.generation.to_le_bytes());
        header[24..28].copy_from_slice(&u32::from(self.complete).to_le_bytes());
        header[28..32].copy_from_slice(&(self.heads.len() as u32).to_le_bytes());
        for (index, head) in self.heads.iter().enumerate() {
            header[32 + 4 * index..36 + 4 * index].copy_from_slice(&head.to_le_bytes());
        }
        let crc = crc32c::crc32c(&header);
        header[12..16].copy_from_slice(&crc.to_le_bytes());
        header
    }
}

/// `Ok(None)`: not a whole header.
fn decode_header(bytes: &[u8]) -> Result<Option<State>, EngineError> {
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
    let mut unsigned = bytes[..COPY_BYTES].to_vec();
    unsigned[12..16].fill(0);
    if bytes[..8] != MAGIC || crc32c::crc32c(&unsigned) != word(12) {
        return Ok(None);
    }
    if word(8) != VERSION {
        let text = format!("tree/{FILE_NAME} has format {}, this program reads {VERSION}: use a newer margay", word(8));
        return Err(EngineError::Corrupt(text));
    }
    let count = (word(28) as usize).min(HEADS_MAX);
    Ok(Some(State {
        heads: (0..count).map(|index| word(32 + 4 * index)).collect(),
        complete: word(24) & COMPLETE != 0,
        generation: u64::from_le_bytes(bytes[16..24].try_into().expect("eight bytes")),
        ..State::default()
    }))
}

impl PageSums {
    /// Makes the file anew. `complete`: the tree's file is new too, so no block lacks its entry.
    pub(super) fn make(env: &Env, folder: &Path, complete: bool) -> Result<PageSums, EngineError> {
        PageSums::write_whole(env, folder, State { complete, ..State::default() })
    }

    /// Opens the file; `None` when there is none: the tree is older than these checksums.
    pub(super) fn open(env: &Env, folder: &Path, after_fault: bool) -> Result<Option<PageSums>, EngineError> {
        let path = folder.join(FILE_NAME);
        if !env.disk.exists(&path)? {
            return Ok(None);
        }
        let file = env.disk.open(&path, OpenMode::ReadWrite)?;
        let mut bytes = vec![0; file.len()? as usize];
        file.read_exact_at(&mut bytes, 0)?;
        let mut newest: Option<State> = None;
        if bytes.len() >= HEADER_BYTES {
            for at in [0, COPY_BYTES] {
                if let Some(found) = decode_header(&bytes[at..at + COPY_BYTES])?
                    && newest.as_ref().is_none_or(|other| other.generation < found.generation)
                {
                    newest = Some(found);
                }
            }
        }
        let Some(mut state) = newest else {
            return Err(EngineError::Corrupt(format!(
                "both headers of tree/{FILE_NAME} are damaged: remove this file, and checksums are made anew from the tree"
            )));
        };
        let entries = bytes[HEADER_BYTES..].as_chunks::<4>().0;
        state.sums = entries.iter().map(|entry| u32::from_le_bytes(*entry)).collect();
        if after_fault {
            // What the kernel shows need not be on the disk, so it is written again, under a new name.
            return Ok(Some(PageSums::write_whole(env, folder, state)?));
        }
        Ok(Some(PageSums { file, state: RwLock::new(state), writing: Mutex::new(()), full_disk: FullDisk::default() }))
    }

    fn write_whole(env: &Env, folder: &Path, mut state: State) -> Result<PageSums, EngineError> {
        let unfinished = folder.join(UNFINISHED_NAME);
        if env.disk.exists(&unfinished)? {
            env.disk.remove(&unfinished)?;
        }
        let file = env.disk.open(&unfinished, OpenMode::CreateNew)?;
        state.header_dirty = true;
        state.dirty = (0..state.sums.len().div_ceil(GROUP)).collect();
        file.set_len(HEADER_BYTES as u64)?;
        let sums =
            PageSums { file, state: RwLock::new(state), writing: Mutex::new(()), full_disk: FullDisk::default() };
        sums.flush()?;
        env.disk.rename(&unfinished, &folder.join(FILE_NAME))?;
        env.disk.sync_dir(folder)?;
        Ok(sums)
    }

    pub(super) fn compare(&self, block: usize, bytes: &[u8]) -> Compared {
        match self.state.read().sums.get(block).copied().unwrap_or(0) {
            0 => Compared::Absent,
            entry if entry == sum(block, bytes) => Compared::Right,
            _ => Compared::Wrong,
        }
    }

    /// Notes the blocks that are about to be written from `first` on.
    pub(super) fn set(&self, first: usize, bytes: &[u8]) {
        let entries = bytes.chunks(BLOCK_BYTES).enumerate().map(|(index, bytes)| sum(first + index, bytes));
        let entries: Vec<u32> = entries.collect();
        let mut state = self.state.write();
        let end = first + entries.len();
        if state.sums.len() < end {
            state.sums.resize(end, 0);
        }
        state.sums[first..end].copy_from_slice(&entries);
        state.dirty.extend(first / GROUP..=(end - 1) / GROUP);
    }

    /// The tree's file now has so many blocks.
    pub(super) fn set_len(&self, blocks: usize) {
        let mut state = self.state.write();
        let old = state.sums.len();
        if blocks < old {
            state.sums[blocks..].fill(0);
            state.dirty.extend(blocks / GROUP..old.div_ceil(GROUP));
        } else {
            state.sums.resize(blocks, 0);
        }
    }

    /// Whether this may be the head of the tree's file.
    pub(super) fn knows_head(&self, head: &[u8]) -> bool {
        let state = self.state.read();
        state.heads.is_empty() || state.heads.contains(&head_sum(head))
    }

    /// Takes the head of a file that is older than its checksums for right.
    pub(super) fn adopt(&self, head: &[u8]) {
        let mut state = self.state.write();
        if state.heads.is_empty() {
            state.heads.push(head_sum(head));
            state.header_dirty = true;
        }
    }

    /// Notes that one of these heads is about to be written: until `settle`, each of them and the one before is right.
    pub(super) fn expect_heads(&self, head: &[u8], next: &[u8]) {
        let mut state = self.state.write();
        if state.heads.contains(&head_sum(head)) {
            return;
        }
        let room = HEADS_MAX - 2;
        if state.heads.len() > room {
            let surplus = state.heads.len() - room;
            state.heads.drain(..surplus);
        }
        state.heads.extend([head_sum(head), head_sum(next)]);
        state.header_dirty = true;
    }

    /// The head that is durable: no other is right any more. Not synced: a crash may bring the older list back.
    pub(super) fn settle(&self, head: &[u8]) -> Result<(), EngineError> {
        let _writing = self.writing.lock();
        let header = {
            let mut state = self.state.write();
            if state.heads == [head_sum(head)] {
                return Ok(());
            }
            state.heads = vec![head_sum(head)];
            state.generation += 1;
            state.encode_header()
        };
        Ok(self.full_disk.write_all_at(self.file.as_ref(), &header.repeat(2), 0)?)
    }

    /// Makes everything noted so far durable.
    pub(super) fn flush(&self) -> Result<(), EngineError> {
        let _writing = self.writing.lock();
        let (header, groups) = {
            let mut state = self.state.write();
            let header = std::mem::take(&mut state.header_dirty).then(|| {
                state.generation += 1;
                state.encode_header()
            });
            let dirty = std::mem::take(&mut state.dirty);
            let group = |index: usize| {
                let end = state.sums.len().min((index + 1) * GROUP);
                let entries = state.sums.get(index * GROUP..end).unwrap_or_default();
                (index, entries.iter().flat_map(|entry| entry.to_le_bytes()).collect::<Vec<u8>>())
            };
            (header, dirty.into_iter().map(group).collect::<Vec<_>>())
        };
        if header.is_none() && groups.is_empty() {
            return Ok(());
        }
        for (index, bytes) in &groups {
            self.full_disk.write_all_at(self.file.as_ref(), bytes, (HEADER_BYTES + index * BLOCK_BYTES) as u64)?;
        }
        if let Some(header) = header {
            self.full_disk.write_all_at(self.file.as_ref(), &header.repeat(2), 0)?;
        }
        Ok(self.file.sync_data()?)
    }

    /// Adds the entry of a block that was found right by another checksum.
    pub(super) fn learn(&self, block: usize, bytes: &[u8]) {
        if self.compare(block, bytes) == Compared::Absent {
            self.set(block, bytes);
        }
    }

    /// Makes what was settled durable.
    pub(super) fn finish(&self) -> Result<(), EngineError> {
        self.flush()?;
        Ok(self.file.sync_data()?)
    }

    pub(super) fn is_complete(&self) -> bool {
        self.state.read().complete
    }

    /// From now on a block without an entry is damage.
    pub(super) fn set_complete(&self) -> Result<(), EngineError> {
        {
            let mut state = self.state.write();
            if state.complete {
                return Ok(());
            }
            state.complete = true;
            state.header_dirty = true;
        }
        self.flush()
    }

    /// Whether the file says what this process holds: damage of the checksums themselves, found before they are needed.
    pub(super) fn file_agrees(&self) -> Result<bool, EngineError> {
        let _writing = self.writing.lock();
        let (sums, dirty) = {
            let state = self.state.read();
            (state.sums.clone(), state.dirty.clone())
        };
        let mut bytes = vec![0; BLOCK_BYTES];
        for (index, group) in sums.chunks(GROUP).enumerate() {
            let stored = &mut bytes[..group.len() * 4];
            let at = HEADER_BYTES + index * BLOCK_BYTES;
            let read = self.file.read_at(stored, at as u64)?;
            stored[read..].fill(0);
            let same = stored.as_chunks::<4>().0.iter().zip(group).all(|(stored, held)| *stored == held.to_le_bytes());
            if !same && !dirty.contains(&index) && !self.state.read().dirty.contains(&index) {
                return Ok(false);
            }
        }
        let mut header = vec![0; 2 * COPY_BYTES];
        self.file.read_exact_at(&mut header, 0)?;
        Ok(decode_header(&header[..COPY_BYTES])?.is_some() && decode_header(&header[COPY_BYTES..])?.is_some())
    }
}
