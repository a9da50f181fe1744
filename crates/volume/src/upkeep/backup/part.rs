//! Restores one bucket, or its keys with a prefix.
//!
//! Why:        one lost bucket should not need a restore of everything.
//! Layout:     the rows are read twice: once to find those of the part and their owners, once to write them.
//! Invariants: A1 rows of the part are written unchanged, with two exceptions: directories above the prefix become
//!                implicit, and the link count of a hard-linked file counts the remaining links.
//!             A2 counters are added up from the written rows. Opening the volume creates back rows, locations and the
//!                counters of segments.
//!             A3 rows that belong to no key are omitted: unfinished uploads, queued events, orphans, identities.
//! Not here:   directories (part_tree), copies of segments (the caller).

use std::collections::{HashMap, HashSet};
use std::path::Path;

use margay_env::Env;
use margay_meta::Engine;
use margay_rows::Ino;
use margay_rows::key::{self, Counted, Table};
use margay_rows::record::data::decode_extent_row;
use margay_rows::record::{Bucket, Damaged, Data, DirectoryRecord, Entry, FileEntry, VersionRow};
use margay_segment::Extent;

use super::list::{Ends, end_of};
use super::part_tree::{Kept, PartTree};
use super::restore::Putting;
use super::rows::read_rows;
use super::{BackupError, rows_of};
use crate::api::Error;
use crate::draft::distinct_runs;
use crate::upgrade;

/// The part of a moment to restore.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartName {
    pub bucket: String,
    /// Empty: all of the bucket.
    pub prefix: String,
}

/// The rows of a part, and their totals.
#[derive(Debug)]
pub struct Part {
    name: PartName,
    root: Ino,
    tree: PartTree,
    /// Files of the part with rows besides their entry.
    with_rows: HashSet<Ino>,
    /// Files with extent rows.
    large: HashSet<Ino>,
    /// Remaining names of hard-linked files.
    names: HashMap<Ino, u32>,
    ends: Ends,
    subdirectories: HashMap<Ino, i64>,
    objects: i64,
    bytes: i64,
    versions: i64,
}

impl Part {
    /// Finds the rows of a moment that belong to a part.
    pub fn find(env: &Env, backup: &Path, moment: &str, name: PartName) -> Result<Part, BackupError> {
        let (mut root, mut records) = (None, HashMap::new());
        read_rows(&mut rows_of(env, backup, moment)?, |key, value| {
            match Table::of(key) {
                Some(Table::Bucket) if key::parse_bucket(key)? == name.bucket => {
                    root = Some(Bucket::decode(value)?.root);
                }
                Some(Table::Directory) => {
                    let DirectoryRecord { parent, sort_name } = DirectoryRecord::decode(value)?;
                    records.insert(key::parse_ino(key)?.0, (parent, sort_name));
                }
                _ => {}
            }
            Ok(())
        })?;
        let Some(root) = root else { return Err(BackupError::NoBucket { bucket: name.bucket }) };
        let tree = PartTree::new(root, &name.prefix, &records);
        drop(records);
        let mut part = Part {
            name,
            root,
            tree,
            with_rows: HashSet::new(),
            large: HashSet::new(),
            names: HashMap::new(),
            ends: Ends::new(),
            subdirectories: HashMap::new(),
            objects: 0,
            bytes: 0,
            versions: 0,
        };
        part.gather(env, backup, moment)?;
        if !part.name.prefix.is_empty() && !part.tree.any() && part.versions == 0 {
            return Err(BackupError::NoKeys(part.name));
        }
        Ok(part)
    }

    /// The segments that it refers to.
    pub fn segments(&self) -> &Ends {
        &self.ends
    }

    fn gather(&mut self, env: &Env, backup: &Path, moment: &str) -> Result<(), Error> {
        let mut extents: (Ino, Vec<Extent>) = (Ino(0), Vec::new());
        // Tables come in the order of their bytes: entries, inodes, versions, extents.
        read_rows(&mut rows_of(env, backup, moment)?, |key, value| {
            match Table::of(key) {
                Some(Table::Entry) => self.gather_entry(key, value)?,
                Some(Table::Inode) => self.gather_inode(key, value)?,
                Some(Table::Version) => self.gather_version(key, value)?,
                Some(Table::Extent) => {
                    let ino = key::parse_extent(key)?.0;
                    if ino != extents.0 {
                        self.own_rows(&extents);
                        extents = (ino, Vec::new());
                    }
                    if self.large.contains(&ino) {
                        extents.1.push(decode_extent_row(value)?);
                    }
                }
                _ => {}
            }
            Ok(())
        })?;
        self.own_rows(&extents);
        Ok(())
    }

    fn gather_entry(&mut self, key: &[u8], value: &[u8]) -> Result<(), Damaged> {
        let (directory, name) = key::parse_entry(key)?;
        let kept = self.tree.entry(directory, name);
        if kept == Kept::Not {
            return Ok(());
        }
        let entry = Entry::decode(value)?;
        if kept == Kept::Way {
            // The directory's own key belongs to the part only if it is the prefix.
            let explicit = matches!(&entry, Entry::Directory(entry) if entry.explicit);
            if explicit && self.tree.is_prefix_itself(&entry) {
                self.tree.found();
            }
            return Ok(());
        }
        self.tree.found();
        match entry {
            Entry::File(file) => {
                self.name(file.size, 1);
                self.file(&file);
            }
            Entry::Link(ino) => *self.names.entry(ino).or_default() += 1,
            Entry::Directory(_) => *self.subdirectories.entry(directory).or_default() += 1,
        }
        Ok(())
    }

    fn gather_inode(&mut self, key: &[u8], value: &[u8]) -> Result<(), Damaged> {
        let ino = key::parse_ino(key)?.0;
        if let Some(names) = self.names.get(&ino).copied()
            && let Entry::File(file) = Entry::decode(value)?
        {
            self.name(file.size, names);
            self.file(&file);
        }
        Ok(())
    }

    fn gather_version(&mut self, key: &[u8], value: &[u8]) -> Result<(), Damaged> {
        let (root, name, _) = key::parse_version(key)?;
        if self.holds(root, &name) {
            self.versions += 1;
            if let VersionRow::File(file) = VersionRow::decode(value)? {
                self.bytes = self.bytes.saturating_add(file.size as i64);
                self.file(&file);
            }
        }
        Ok(())
    }

    fn holds(&self, root: Ino, key: &str) -> bool {
        root == self.root && key.starts_with(&self.name.prefix)
    }

    /// Each name of a file counts as an object of its size.
    fn name(&mut self, size: u64, names: u32) {
        self.objects += i64::from(names);
        self.bytes = self.bytes.saturating_add((size as i64).saturating_mul(names.into()));
    }

    fn file(&mut self, file: &FileEntry) {
        let of_parts = file.part_rows;
        if file.xattrs || !file.documents.is_empty() || file.header_rows || of_parts {
            self.with_rows.insert(file.ino);
        }
        match &file.data {
            Data::Inline(_) => {}
            Data::Extents(extents) => self.own(extents),
            Data::Rows => drop(self.large.insert(file.ino)),
        }
    }

    fn own_rows(&mut self, (ino, extents): &(Ino, Vec<Extent>)) {
        if self.large.contains(ino) {
            self.own(extents);
        }
    }

    /// Records how much of their segments the runs of an owner need.
    fn own(&mut self, extents: &[Extent]) {
        for run in distinct_runs(extents) {
            let end = self.ends.entry(run.segment).or_default();
            *end = end_of(&run).max(*end);
        }
    }

    /// Writes the part's rows into an empty engine and waits until they are durable; returns their number.
    pub fn restore(
        &self,
        env: &Env,
        backup: &Path,
        moment: &str,
        engine: &dyn Engine,
        pace: impl FnMut(u64),
    ) -> Result<u64, Error> {
        let mut putting = Putting::new(engine, pace);
        read_rows(&mut rows_of(env, backup, moment)?, |key, value| match self.row(key, value)? {
            Some(value) => putting.put(key.to_vec(), value),
            None => Ok(()),
        })?;
        for (key, count) in self.counters() {
            if count != 0 {
                putting.put(key, count.to_le_bytes().to_vec())?;
            }
        }
        putting.put(key::upgrade(), upgrade::progress_of_rebuild())?;
        putting.finish()
    }

    fn counters(&self) -> impl Iterator<Item = (Vec<u8>, i64)> + '_ {
        let usage =
            [(Counted::Objects, self.objects), (Counted::Bytes, self.bytes), (Counted::Versions, self.versions)];
        let usage = usage.into_iter().map(|(what, count)| (key::usage(self.root, what), count));
        // Each directory on the way to the prefix has exactly one child.
        let below = self.subdirectories.iter().map(|(ino, count)| (key::subdirectories(*ino), *count));
        let way = self.tree.way().map(|ino| (key::subdirectories(ino), 1));
        usage.chain(below).chain(way)
    }

    /// The value of a row in the part; `None` if it is omitted.
    fn row(&self, key: &[u8], value: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        let Some(table) = Table::of(key) else {
            return Err(Error::Corrupt("there are rows that this margay does not know: use a newer one".to_owned()));
        };
        let ino = || key::parse_ino(key).map(|(ino, _)| ino);
        let kept = match table {
            Table::Format | Table::Inos => true,
            Table::Bucket => key::parse_bucket(key)? == self.name.bucket,
            Table::Setting => ino()? == self.root,
            Table::Directory | Table::Times => self.tree.has(ino()?),
            Table::Entry => return Ok(self.entry_row(key, value)?),
            Table::Inode => return Ok(self.inode_row(ino()?, value)?),
            Table::Xattr => self.with_rows.contains(&ino()?) || self.tree.has(ino()?),
            Table::Header | Table::Document | Table::PartSizes => self.with_rows.contains(&ino()?),
            Table::Extent => self.large.contains(&ino()?),
            Table::Version => {
                let (root, name, _) = key::parse_version(key)?;
                self.holds(root, &name)
            }
            Table::NullVersion => {
                let (root, name) = key::parse_null_version(key)?;
                self.holds(root, &name)
            }
            // A2 and A3.
            Table::Usage | Table::Subdirectories | Table::Live => false,
            Table::Back | Table::Location | Table::Share => false,
            // These rows hold former locations.
            Table::Segment => false,
            Table::Orphan | Table::Part | Table::Upload | Table::Event | Table::EventBase | Table::Session => false,
            // Users are left out, and a directory of one bucket may have keys of its own.
            Table::Identity | Table::Fingerprint => false,
            // A part stands alone.
            Table::Upstream => false,
        };
        Ok(kept.then(|| value.to_vec()))
    }

    fn entry_row(&self, key: &[u8], value: &[u8]) -> Result<Option<Vec<u8>>, Damaged> {
        let (directory, name) = key::parse_entry(key)?;
        match (self.tree.entry(directory, name), Entry::decode(value)?) {
            (Kept::Whole, _) => Ok(Some(value.to_vec())),
            (Kept::Way, Entry::Directory(mut entry)) if self.tree.any() => {
                entry.explicit &= self.tree.is_prefix_itself(&Entry::Directory(entry));
                Ok(Some(entry.encode()))
            }
            _ => Ok(None),
        }
    }

    fn inode_row(&self, ino: Ino, value: &[u8]) -> Result<Option<Vec<u8>>, Damaged> {
        if ino == self.root {
            return Ok(Some(value.to_vec()));
        }
        let Some(names) = self.names.get(&ino) else { return Ok(None) };
        match Entry::decode(value)? {
            Entry::File(mut file) => {
                file.links = *names;
                Ok(Some(file.encode().value))
            }
            Entry::Directory(_) | Entry::Link(_) => Ok(None),
        }
    }
}
