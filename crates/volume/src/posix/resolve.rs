//! Resolves a name in a directory to its entry, or to the entry that a new file or directory would get.
//!
//! Why:        `a` and `a/` are two entries and one POSIX name, so every operation must read both.
//! Invariants: N1 creating a name asserts both entries (X5): the new one is absent or as it was read, the other one
//!                absent, or for [`Name::Beside`] present.
//! Not here:   escapes (the door).

use std::ops::ControlFlow;

use margay_meta::RowVersion;
use margay_rows::record::{DirectoryEntry, Entry};
use margay_rows::{Ino, key};

use crate::api::Error;
use crate::draft::{Draft, Seen};
use crate::posix::api::{FileKind, NAME_BYTES_MAX, Name, PosixError, long_name_hash, may_be_long};
use crate::posix::attempt::Try;
use crate::posix::locate::{Located, LocatedDirectory};
use crate::posix::mount::Mount;

/// The prefix and length of an escape for a byte that is not UTF-8; it counts as one byte.
const ESCAPE: &str = "@{x";
const ESCAPE_BYTES: usize = 6;

/// A directory by its entry.
#[derive(Clone, Debug)]
pub(crate) struct Subdirectory {
    pub(crate) entry_key: Vec<u8>,
    pub(crate) version: RowVersion,
    pub(crate) entry: DirectoryEntry,
}

#[derive(Clone, Debug)]
pub(crate) enum Found {
    Directory(Subdirectory),
    File(Located),
}

impl Found {
    pub(crate) fn ino(&self) -> Ino {
        match self {
            Found::Directory(directory) => directory.entry.ino,
            Found::File(located) => located.file.ino,
        }
    }

    pub(crate) fn entry_key(&self) -> &[u8] {
        match self {
            Found::Directory(directory) => &directory.entry_key,
            Found::File(located) => &located.entry_key,
        }
    }

    /// Asserts that the kernel's name leads here.
    pub(crate) fn assert_in(&self, draft: &mut Draft) {
        match self {
            Found::Directory(directory) => draft.assert_version(directory.entry_key.clone(), directory.version),
            Found::File(located) => draft.assert_version(located.entry_key.clone(), located.entry_version),
        }
    }
}

/// A name and its entries.
#[derive(Clone, Debug)]
pub(crate) struct Resolved {
    /// Without the `/` of a directory.
    pub(crate) name: String,
    /// The name of a file beside a directory.
    pub(crate) beside: bool,
    pub(crate) found: Option<Found>,
}

/// The two rows that a name may be: a directory and a file.
fn rows_of_name(parent: Ino, name: &str) -> [Vec<u8>; 2] {
    [key::entry(parent, sort_name_of_directory(name).as_bytes()), key::entry(parent, name.as_bytes())]
}

fn sort_name_of_directory(name: &str) -> String {
    [name, "/"].concat()
}

/// Length of the POSIX name, in bytes.
fn posix_bytes(name: &str) -> usize {
    if name.len() <= NAME_BYTES_MAX {
        return name.len();
    }
    name.len() - name.matches(ESCAPE).count() * (ESCAPE_BYTES - 1)
}

impl Resolved {
    /// The entry for a file of this name.
    pub(crate) fn file_key(&self, parent: Ino) -> Vec<u8> {
        key::entry(parent, self.name.as_bytes())
    }

    /// The entry for a directory of this name.
    pub(crate) fn directory_key(&self, parent: Ino) -> Vec<u8> {
        key::entry(parent, sort_name_of_directory(&self.name).as_bytes())
    }

    /// Its sort name as an entry of this kind.
    pub(crate) fn sort_name(&self, kind: FileKind) -> String {
        if kind == FileKind::Directory { sort_name_of_directory(&self.name) } else { self.name.clone() }
    }

    /// Asserts the other entry of a file's name, where the name was resolved from cached rows: somebody may have made a
    /// directory of that name since. (Rows that were just read need it not: the change then comes before the directory.)
    pub(crate) fn assert_kept(&self, draft: &mut Draft, parent: Ino, one: &Try) {
        if one.kept && !self.beside && matches!(self.found, Some(Found::File(_))) {
            draft.assert_absent(self.directory_key(parent));
        }
    }

    /// Drafts that the name is free, and returns the key for something of this kind.
    pub(crate) fn draft_free(
        &self,
        draft: &mut Draft,
        parent: &LocatedDirectory,
        kind: FileKind,
    ) -> Result<Vec<u8>, PosixError> {
        let ino = parent.entry.ino;
        let (file, directory) = (self.file_key(ino), self.directory_key(ino));
        if self.name.is_empty() && parent.is_root() && kind != FileKind::Directory {
            // It would be an object with an empty key.
            return Err(PosixError::Invalid);
        }
        draft.assert_absent(file.clone());
        if self.beside {
            if kind == FileKind::Directory {
                return Err(PosixError::Invalid);
            }
            draft.assert_exists(directory);
            return Ok(file);
        }
        draft.assert_absent(directory.clone());
        Ok(if kind == FileKind::Directory { directory } else { file })
    }
}

impl Mount {
    /// Resolves a name. An escape that stands for nothing, and so cannot be created, is `NotFound`.
    pub(crate) fn resolve(&self, parent: Ino, name: &Name, seen: &mut Seen) -> Result<Resolved, PosixError> {
        let resolved = |name: &str, beside, found| Ok(Resolved { name: name.to_owned(), beside, found });
        match name {
            Name::Plain(name) => {
                check_name(name)?;
                if !seen.is_ahead() {
                    self.volume.fetch_to_keep(rows_of_name(parent, name).into(), seen)?;
                }
                resolved(name, false, self.find(parent, name, seen)?)
            }
            Name::Beside(name) => {
                check_name(name)?;
                self.resolve_beside(parent, name, seen)
            }
            Name::Long { prefix, hash, beside } => {
                let name = self.find_long(parent, prefix, *hash)?.ok_or(PosixError::NotFound)?;
                if *beside {
                    return self.resolve_beside(parent, &name, seen);
                }
                let found = self.find(parent, &name, seen)?;
                resolved(&name, false, found)
            }
        }
    }

    /// Reads all entries of a change's names in one call. The first attempt takes them from the cache, if a look-up has
    /// brought them there.
    pub(crate) fn look_at(&self, names: &[(Ino, &Name)], one: &mut Try) -> Result<(), PosixError> {
        let rows: Vec<_> = names
            .iter()
            .flat_map(|(parent, name)| match name {
                Name::Plain(name) => rows_of_name(*parent, name).to_vec(),
                Name::Beside(_) | Name::Long { .. } => Vec::new(),
            })
            .collect();
        if rows.is_empty() {
            return Ok(());
        }
        one.kept = !one.fresh && self.volume.fetch_kept(&rows, &mut one.seen);
        if !one.kept {
            self.volume.fetch_to_keep(rows, &mut one.seen)?;
        }
        Ok(())
    }

    fn resolve_beside(&self, parent: Ino, name: &str, seen: &mut Seen) -> Result<Resolved, PosixError> {
        if self.find_directory(parent, name, seen)?.is_none() {
            return Err(PosixError::NotFound);
        }
        let file = self.read_file(parent, name.as_bytes(), seen)?;
        Ok(Resolved { name: name.to_owned(), beside: true, found: file.map(Found::File) })
    }

    /// Resolves the name of a new file. The kernel looked it up just before, so the first attempt reads nothing: its
    /// commit asserts that the name is free.
    pub(crate) fn resolve_for_new(&self, parent: Ino, name: &Name, one: &mut Try) -> Result<Resolved, PosixError> {
        match name {
            Name::Plain(name) if !one.fresh => {
                check_name(name)?;
                Ok(Resolved { name: name.clone(), beside: false, found: None })
            }
            name => self.resolve(parent, name, &mut one.seen),
        }
    }

    fn find(&self, parent: Ino, name: &str, seen: &mut Seen) -> Result<Option<Found>, PosixError> {
        if let Some(directory) = self.find_directory(parent, name, seen)? {
            return Ok(Some(Found::Directory(directory)));
        }
        Ok(self.read_file(parent, name.as_bytes(), seen)?.map(Found::File))
    }

    fn find_directory(&self, parent: Ino, name: &str, seen: &mut Seen) -> Result<Option<Subdirectory>, PosixError> {
        let entry_key = key::entry(parent, sort_name_of_directory(name).as_bytes());
        let Some(row) = self.volume.get(&entry_key, seen)? else { return Ok(None) };
        match Entry::decode(&row.value).map_err(Error::from)? {
            Entry::Directory(entry) => Ok(Some(Subdirectory { entry_key, version: row.version, entry })),
            Entry::File(_) | Entry::Link(_) => {
                Err(Error::Corrupt("a file has the name of a directory".to_owned()).into())
            }
        }
    }

    fn find_long(&self, parent: Ino, prefix: &str, hash: u64) -> Result<Option<String>, PosixError> {
        let start = key::entry(parent, prefix.as_bytes());
        let end = key::successor(&start).unwrap_or_else(|| key::entries(parent).1);
        let mut found = None;
        self.volume.scan(&(start, end), &mut Seen::default(), |row| {
            let name = key::parse_entry(row.key)?.1;
            let name = name.strip_suffix('/').unwrap_or(name);
            if may_be_long(name) && long_name_hash(name) == hash {
                found = Some(name.to_owned());
                return Ok(ControlFlow::Break(()));
            }
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(found)
    }
}

fn check_name(name: &str) -> Result<(), PosixError> {
    if name.contains('/') {
        return Err(PosixError::Invalid);
    }
    if posix_bytes(name) > NAME_BYTES_MAX {
        return Err(PosixError::NameTooLong);
    }
    Ok(())
}
