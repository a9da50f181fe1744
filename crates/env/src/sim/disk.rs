//! The simulated disk's calls on paths, and its fault injection.
//!
//! Invariants: after `fail_after(n)` and n further changes every call fails, as on a machine that lost its power.
//! Not here:   calls on open files (file).

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;

use super::content::PAGE_BYTES;
use super::file::SimFile;
use super::random::SimRandom;
use super::tree::Tree;
use crate::{DirEntry, Disk, File, LockHandle, OpenMode, Space};

/// Size of a simulated disk when none is given, in bytes.
const CAPACITY_BYTES: u64 = 1 << 40;

/// A disk in memory; cheap to clone, all clones are one disk.
#[derive(Clone, Debug)]
pub struct SimDisk {
    pub(super) state: Arc<Mutex<State>>,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) tree: Tree,
    pub(super) random: SimRandom,
    locks: BTreeSet<u64>,
    /// Number of changing calls so far (all but reads).
    pub(super) changes: u64,
    /// This change and every later call fail.
    pub(super) stop_at: Option<u64>,
    pub(super) stopped: bool,
    /// The stop kills the process only, without a power loss.
    pub(super) only_killed: bool,
    /// Countdown of `sync_data` calls until one fails.
    pub(super) syncs_until_failure: Option<u64>,
    pub(super) dir_syncs_until_failure: Option<u64>,
    pub(super) cold: bool,
    /// Syncs of bytes, and of names, return Ok and do nothing.
    pub(super) lies: (bool, bool),
}

impl State {
    /// Every changing call calls this first.
    pub(super) fn begin_change(&mut self) -> io::Result<()> {
        self.check_running()?;
        self.changes += 1;
        if self.stop_at.is_some_and(|stop| self.changes > stop) {
            self.stopped = true;
        }
        self.check_running()
    }

    pub(super) fn check_running(&self) -> io::Result<()> {
        if self.stopped { Err(io::Error::other("the simulated machine has stopped")) } else { Ok(()) }
    }

    /// Counts down to an injected failure.
    pub(super) fn is_due(countdown: &mut Option<u64>) -> bool {
        match countdown {
            Some(1) => {
                *countdown = None;
                true
            }
            Some(left) => {
                *left -= 1;
                false
            }
            None => false,
        }
    }
}

impl SimDisk {
    /// An empty disk. The seed decides what a failed sync leaves behind.
    pub fn new(seed: u64) -> SimDisk {
        SimDisk::with_tree(Tree::new(CAPACITY_BYTES), seed)
    }

    pub(super) fn with_tree(tree: Tree, seed: u64) -> SimDisk {
        let state = State {
            tree,
            random: SimRandom::new(seed),
            locks: BTreeSet::new(),
            changes: 0,
            stop_at: None,
            stopped: false,
            only_killed: false,
            syncs_until_failure: None,
            dir_syncs_until_failure: None,
            cold: false,
            lies: (false, false),
        };
        SimDisk { state: Arc::new(Mutex::new(state)) }
    }

    /// Sets the size of the disk; writes beyond it fail with `StorageFull`.
    pub fn set_capacity(&self, bytes: u64) {
        self.state.lock().tree.capacity_pages = bytes / PAGE_BYTES;
    }

    /// Number of changing calls since the disk was created (all but reads).
    pub fn changes(&self) -> u64 {
        self.state.lock().changes
    }

    /// Lets `changes` more changes happen; then the machine stops: every call fails.
    pub fn fail_after(&self, changes: u64) {
        let mut state = self.state.lock();
        state.stop_at = Some(state.changes + changes);
        state.only_killed = false;
    }

    /// As `fail_after`, but only the process is killed: [`SimDisk::kill`] returns the disk that it leaves.
    pub fn kill_after(&self, changes: u64) {
        self.fail_after(changes);
        self.state.lock().only_killed = true;
    }

    /// Makes the `call`th `sync_data` from now (1 is the next) fail. The bytes stay readable until a power loss; a
    /// random part of them reached the disk, and a later sync does not write the rest.
    pub fn fail_sync_at(&self, call: u64) {
        self.state.lock().syncs_until_failure = Some(call.max(1));
    }

    /// Makes the `call`th `sync_dir` from now (1 is the next) fail. The names stay visible, but a later sync does not
    /// write those that did not reach the disk, as on a file system that caches directories like data.
    pub fn fail_sync_dir_at(&self, call: u64) {
        self.state.lock().dir_syncs_until_failure = Some(call.max(1));
    }

    /// While cold, the page cache is empty: `read_cached_at` returns `WouldBlock`.
    pub fn set_cold(&self, cold: bool) {
        self.state.lock().cold = cold;
    }

    /// Makes syncs of bytes, of names, or of both return Ok without doing anything, like a broken device or a program
    /// that forgets them. So a crash test can show that it is able to fail.
    pub fn set_lying(&self, bytes: bool, names: bool) {
        self.state.lock().lies = (bytes, names);
    }

    /// Flips one bit of a file, as bit rot does; `offset` in bytes, `bit` from 0 to 7.
    pub fn flip_bit(&self, path: &Path, offset: u64, bit: u8) -> io::Result<()> {
        let mut state = self.state.lock();
        let node = state.tree.find(path)?;
        let file = state.tree.files.get_mut(&node).ok_or(io::ErrorKind::IsADirectory)?;
        for content in [&mut file.current, &mut file.durable] {
            let mut byte = [0];
            if content.read(&mut byte, offset) == 1 {
                content.write(offset, &[byte[0] ^ (1 << (bit % 8))]);
            }
        }
        Ok(())
    }

    /// Flips a bit chosen by the disk's seed; returns its byte's offset, or `None` for an empty file.
    pub fn flip_some_bit(&self, path: &Path) -> io::Result<Option<u64>> {
        let (offset, bit) = {
            let state = self.state.lock();
            let node = state.tree.find(path)?;
            let len = state.tree.files.get(&node).ok_or(io::ErrorKind::IsADirectory)?.current.len;
            if len == 0 {
                return Ok(None);
            }
            (state.random.below(len), state.random.below(8) as u8)
        };
        self.flip_bit(path, offset, bit)?;
        Ok(Some(offset))
    }

    fn handle(&self, state: &mut State, node: u64) -> Arc<dyn File> {
        state.tree.file_mut(node).handles += 1;
        Arc::new(SimFile { disk: self.clone(), node })
    }
}

impl Disk for SimDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let mut state = self.state.lock();
        state.check_running()?;
        match state.tree.find(path) {
            Ok(_) if mode == OpenMode::CreateNew => Err(io::ErrorKind::AlreadyExists.into()),
            Ok(node) if state.tree.files.contains_key(&node) => Ok(self.handle(&mut state, node)),
            Ok(_) => Err(io::ErrorKind::IsADirectory.into()),
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            Err(error) => match mode {
                OpenMode::Read | OpenMode::ReadRegular | OpenMode::ReadWrite => Err(error),
                OpenMode::CreateNew | OpenMode::OpenOrCreate => {
                    state.begin_change()?;
                    let (dir, name) = state.tree.find_parent(path)?;
                    let node = state.tree.make_file(dir, name);
                    Ok(self.handle(&mut state, node))
                }
            },
        }
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        state.begin_change()?;
        state.tree.make_dirs(path)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        let state = self.state.lock();
        state.check_running()?;
        match state.tree.find(path) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        state.begin_change()?;
        let (dir, name) = state.tree.find_parent(path)?;
        state.tree.remove(dir, name)
    }

    fn remove_dir(&self, _path: &Path) -> io::Result<()> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "the simulated disk keeps its directories"))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        state.begin_change()?;
        let (from, to) = (state.tree.find_parent(from)?, state.tree.find_parent(to)?);
        state.tree.rename(from, to)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        let state = self.state.lock();
        state.check_running()?;
        let dir = state.tree.find_dir(path)?;
        let entries = state.tree.dirs[&dir].current.iter().map(|(name, node)| {
            let file = state.tree.files.get(node).map(|file| &file.current);
            let (len, used_bytes) = file.map_or((0, 0), |file| (file.len, file.pages() * PAGE_BYTES));
            DirEntry { name: name.clone(), is_dir: file.is_none(), len, used_bytes }
        });
        Ok(entries.collect())
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        state.begin_change()?;
        let dir = state.tree.find_dir(path)?;
        if State::is_due(&mut state.dir_syncs_until_failure) {
            let State { tree, random, .. } = &mut *state;
            tree.fail_sync_dir(dir, random);
            return Err(io::Error::other("injected failure of a directory sync"));
        }
        if !state.lies.1 {
            state.tree.sync_dir(dir);
        }
        Ok(())
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn LockHandle>> {
        let file = self.open(path, OpenMode::OpenOrCreate)?;
        let mut state = self.state.lock();
        let node = state.tree.find(path)?;
        if !state.locks.insert(node) {
            drop(state);
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(Box::new(SimLock { disk: self.clone(), node, file }))
    }

    fn space(&self, path: &Path) -> io::Result<Space> {
        let state = self.state.lock();
        state.check_running()?;
        state.tree.find(path)?;
        let free = state.tree.capacity_pages.saturating_sub(state.tree.used_pages);
        Ok(Space { total_bytes: state.tree.capacity_pages * PAGE_BYTES, free_bytes: free * PAGE_BYTES })
    }
}

#[derive(Debug)]
struct SimLock {
    disk: SimDisk,
    node: u64,
    #[allow(dead_code, reason = "keeps the node, so that its number is not another file's")]
    file: Arc<dyn File>,
}

impl LockHandle for SimLock {}

impl Drop for SimLock {
    fn drop(&mut self) {
        self.disk.state.lock().locks.remove(&self.node);
    }
}
