//! Names and nodes of the simulated disk: the current state, and the durable one.
//!
//! Invariants: T1 a node stays while a name (current, durable or pending) or a handle refers to it.
//!             T2 pending name changes are kept in their order.
//!             T3 directories are durable from the start (see `Disk::create_dir_all`).
//! Not here:   faults (disk), what a crash keeps (crash).

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Component, Path};

use super::content::{Change, Content, PAGE_BYTES};
use super::random::SimRandom;

pub(super) const ROOT: u64 = 0;

#[derive(Clone, Debug)]
pub(super) struct Tree {
    pub(super) files: BTreeMap<u64, FileNode>,
    pub(super) dirs: BTreeMap<u64, DirNode>,
    pub(super) pending: Vec<NameChange>,
    pub(super) next_node: u64,
    /// Pages of files that have a name or a handle.
    pub(super) used_pages: u64,
    pub(super) capacity_pages: u64,
    /// Names removed since unreachable nodes were last dropped.
    removals: usize,
}

#[derive(Clone, Debug, Default)]
pub(super) struct FileNode {
    pub(super) current: Content,
    pub(super) durable: Content,
    pub(super) pending: Vec<Change>,
    pub(super) handles: u32,
    pub(super) named: bool,
}

#[derive(Clone, Debug, Default)]
pub(super) struct DirNode {
    pub(super) current: BTreeMap<String, u64>,
    pub(super) durable: BTreeMap<String, u64>,
}

/// A change of names that a crash keeps or loses on its own; durable once `dir` was synced.
#[derive(Clone, Debug)]
pub(super) struct NameChange {
    pub(super) dir: u64,
    pub(super) what: NameStep,
}

#[derive(Clone, Debug)]
pub(super) enum NameStep {
    Set { name: String, node: u64 },
    Remove { name: String },
    Rename { from_dir: u64, from: String, to: String, node: u64 },
}

impl Tree {
    pub(super) fn new(capacity_bytes: u64) -> Tree {
        Tree {
            files: BTreeMap::new(),
            dirs: BTreeMap::from([(ROOT, DirNode::default())]),
            pending: Vec::new(),
            next_node: ROOT + 1,
            used_pages: 0,
            capacity_pages: capacity_bytes / PAGE_BYTES,
            removals: 0,
        }
    }

    /// The node at a path, file or directory.
    pub(super) fn find(&self, path: &Path) -> io::Result<u64> {
        let mut node = ROOT;
        for name in components(path)? {
            let dir = self.dirs.get(&node).ok_or(io::ErrorKind::NotADirectory)?;
            node = *dir.current.get(name).ok_or(io::ErrorKind::NotFound)?;
        }
        Ok(node)
    }

    pub(super) fn find_dir(&self, path: &Path) -> io::Result<u64> {
        let node = self.find(path)?;
        if self.dirs.contains_key(&node) { Ok(node) } else { Err(io::ErrorKind::NotADirectory.into()) }
    }

    /// The parent directory of a path, and the path's last name.
    pub(super) fn find_parent<'a>(&self, path: &'a Path) -> io::Result<(u64, &'a str)> {
        let names = components(path)?;
        let (last, before) = names.split_last().ok_or(io::ErrorKind::InvalidInput)?;
        let mut node = ROOT;
        for name in before {
            let dir = self.dirs.get(&node).ok_or(io::ErrorKind::NotADirectory)?;
            node = *dir.current.get(*name).ok_or(io::ErrorKind::NotFound)?;
        }
        if self.dirs.contains_key(&node) { Ok((node, last)) } else { Err(io::ErrorKind::NotADirectory.into()) }
    }

    pub(super) fn make_dirs(&mut self, path: &Path) -> io::Result<()> {
        let mut node = ROOT;
        for name in components(path)? {
            let fresh = self.next_node;
            let dir = self.dirs.get_mut(&node).ok_or(io::ErrorKind::NotADirectory)?;
            node = match dir.current.get(name) {
                Some(found) => *found,
                None => {
                    dir.current.insert(name.to_owned(), fresh);
                    dir.durable.insert(name.to_owned(), fresh);
                    self.next_node += 1;
                    self.dirs.insert(fresh, DirNode::default());
                    fresh
                }
            };
        }
        if self.dirs.contains_key(&node) { Ok(()) } else { Err(io::ErrorKind::AlreadyExists.into()) }
    }

    pub(super) fn make_file(&mut self, dir: u64, name: &str) -> u64 {
        let node = self.next_node;
        self.next_node += 1;
        self.files.insert(node, FileNode { named: true, ..FileNode::default() });
        self.dir_mut(dir).current.insert(name.to_owned(), node);
        self.pending.push(NameChange { dir, what: NameStep::Set { name: name.to_owned(), node } });
        node
    }

    pub(super) fn remove(&mut self, dir: u64, name: &str) -> io::Result<()> {
        let node = *self.dir_mut(dir).current.get(name).ok_or(io::ErrorKind::NotFound)?;
        if self.dirs.contains_key(&node) {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        self.dir_mut(dir).current.remove(name);
        self.pending.push(NameChange { dir, what: NameStep::Remove { name: name.to_owned() } });
        self.unname(node);
        Ok(())
    }

    pub(super) fn rename(&mut self, from: (u64, &str), to: (u64, &str)) -> io::Result<()> {
        let node = *self.dir_mut(from.0).current.get(from.1).ok_or(io::ErrorKind::NotFound)?;
        let replaced = self.dir_mut(to.0).current.get(to.1).copied();
        if replaced == Some(node) {
            return Ok(());
        }
        if self.dirs.contains_key(&node) || replaced.is_some_and(|old| self.dirs.contains_key(&old)) {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "the simulated disk renames files only"));
        }
        self.dir_mut(from.0).current.remove(from.1);
        self.dir_mut(to.0).current.insert(to.1.to_owned(), node);
        let (from_dir, from) = (from.0, from.1.to_owned());
        let what = NameStep::Rename { from_dir, from, to: to.1.to_owned(), node };
        self.pending.push(NameChange { dir: to.0, what });
        if let Some(old) = replaced {
            self.unname(old);
        }
        Ok(())
    }

    /// Makes the names of a directory durable.
    pub(super) fn sync_dir(&mut self, dir: u64) {
        let (synced, mut rest): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.pending).into_iter().partition(|change| change.dir == dir);
        for change in synced {
            if let NameStep::Rename { from_dir, from, node, .. } = &change.what {
                // A rename also makes the creation under its old name, in another directory, durable.
                let settled = |step: &NameStep| matches!(step, NameStep::Set { name, node: made } if name == from && made == node);
                rest.retain(|other| other.dir != *from_dir || !settled(&other.what));
            }
            self.make_durable(change);
        }
        self.pending = rest;
        self.drop_unknown();
    }

    /// A failed sync of a directory: some changes reach the disk, the others never do, though all stay visible.
    pub(super) fn fail_sync_dir(&mut self, dir: u64, random: &SimRandom) {
        let (tried, rest) = std::mem::take(&mut self.pending).into_iter().partition(|change| change.dir == dir);
        self.pending = rest;
        let tried: Vec<NameChange> = tried;
        for change in tried {
            if random.chance(50) {
                self.make_durable(change);
            }
        }
    }

    /// Applies a change to the durable names.
    pub(super) fn make_durable(&mut self, change: NameChange) {
        match change.what {
            NameStep::Set { name, node } => {
                self.dir_mut(change.dir).durable.insert(name, node);
            }
            NameStep::Remove { name } => {
                self.dir_mut(change.dir).durable.remove(&name);
            }
            NameStep::Rename { from_dir, from, to, node } => {
                let source = &mut self.dir_mut(from_dir).durable;
                if source.get(&from) == Some(&node) {
                    source.remove(&from);
                }
                self.dir_mut(change.dir).durable.insert(to, node);
            }
        }
    }

    pub(super) fn dir_mut(&mut self, node: u64) -> &mut DirNode {
        self.dirs.get_mut(&node).expect("directories are never removed")
    }

    pub(super) fn file_mut(&mut self, node: u64) -> &mut FileNode {
        self.files.get_mut(&node).expect("a handle or name keeps the node")
    }

    pub(super) fn close_handle(&mut self, node: u64) {
        let file = self.file_mut(node);
        file.handles -= 1;
        self.free_if_unused(node);
    }

    fn unname(&mut self, node: u64) {
        self.file_mut(node).named = false;
        self.removals += 1;
        self.free_if_unused(node);
    }

    fn free_if_unused(&mut self, node: u64) {
        let file = &self.files[&node];
        if !file.named && file.handles == 0 {
            self.used_pages -= file.current.pages();
        }
    }

    /// Drops unreachable nodes, now and then.
    fn drop_unknown(&mut self) {
        if self.removals < 64 + self.files.len() / 2 {
            return;
        }
        self.removals = 0;
        let mut known: BTreeSet<u64> = BTreeSet::new();
        for dir in self.dirs.values() {
            known.extend(dir.current.values().chain(dir.durable.values()));
        }
        known.extend(self.pending.iter().filter_map(|change| match &change.what {
            NameStep::Set { node, .. } | NameStep::Rename { node, .. } => Some(*node),
            NameStep::Remove { .. } => None,
        }));
        self.files.retain(|node, file| file.handles > 0 || known.contains(node));
    }
}

fn components(path: &Path) -> io::Result<Vec<&str>> {
    let mut names = Vec::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => names.push(name.to_str().ok_or(io::ErrorKind::InvalidFilename)?),
            Component::ParentDir => {
                names.pop();
            }
            Component::RootDir => names.clear(),
            Component::CurDir | Component::Prefix(_) => {}
        }
    }
    Ok(names)
}
