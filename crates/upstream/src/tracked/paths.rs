//! Keys of files in the bucket: the path of their directory and their sort name.
//!
//! Invariants: P1 a kept path is forgotten when any directory moves.
//! Locking:    the caller's.

use std::collections::HashMap;

use margay_meta::{Engine, EngineError};
use margay_rows::record::DirectoryRecord;
use margay_rows::{Ino, key};

/// The directory of temporary keys below the prefix; it is not shown.
const TEMPORARY: &str = ".margay-tmp/";
/// Paths that are kept.
const KEPT_MAX: usize = 65_536;
/// A longer chain of parents is taken for a circle.
const DEPTH_MAX: usize = 1 << 16;

#[derive(Debug)]
pub(crate) struct Paths {
    /// The directory that has the prefix as its path.
    root: Ino,
    /// Empty, or ends in `/`.
    prefix: String,
    kept: HashMap<Ino, String>,
}

impl Paths {
    /// The root is told when it is known.
    pub(crate) fn below(prefix: &str) -> Paths {
        assert!(prefix.is_empty() || prefix.ends_with('/'), "a prefix is a directory");
        Paths { root: Ino(0), prefix: prefix.to_owned(), kept: HashMap::new() }
    }

    pub(crate) fn set_root(&mut self, root: Ino) {
        self.root = root;
        self.kept.clear();
    }

    pub(crate) fn root(&self) -> Ino {
        self.root
    }

    pub(crate) fn forget(&mut self) {
        self.kept.clear();
    }

    /// The part of a key below the prefix: the key of the same object in the volume.
    pub(crate) fn local<'k>(&self, key: &'k str) -> &'k str {
        key.strip_prefix(&self.prefix).unwrap_or(key)
    }

    /// The directory of temporary keys, beside the files: what may write below the prefix may write it.
    pub(crate) fn temporary_directory(&self) -> String {
        format!("{}{TEMPORARY}", self.prefix)
    }

    /// Whether a key is that directory, or below it.
    pub(crate) fn is_temporary(&self, key: &str) -> bool {
        self.local(key).starts_with(TEMPORARY)
    }

    /// Begins the temporary keys of a process.
    pub(crate) fn temporary(&self, id: &str, process: u64) -> String {
        format!("{}{id}-{process:x}-", self.temporary_directory())
    }

    /// The key of a name; `None` if its directory is not there.
    pub(crate) fn key(
        &mut self,
        engine: &dyn Engine,
        (directory, name): (Ino, &str),
    ) -> Result<Option<String>, EngineError> {
        Ok(self.of(engine, directory)?.map(|path| path + name))
    }

    /// The path of a directory, with the prefix.
    pub(crate) fn of(&mut self, engine: &dyn Engine, directory: Ino) -> Result<Option<String>, EngineError> {
        if let Some(path) = self.kept.get(&directory) {
            return Ok(Some(path.clone()));
        }
        let (mut names, mut at) = (Vec::new(), directory);
        while at != self.root {
            if names.len() >= DEPTH_MAX {
                return Err(EngineError::Corrupt("directories form a circle".to_owned()));
            }
            let Some(row) = engine.get(&key::directory(at))?.value else { return Ok(None) };
            let record =
                DirectoryRecord::decode(&row.value).map_err(|error| EngineError::Corrupt(error.to_string()))?;
            if record.parent == Ino(0) {
                // Another bucket.
                return Ok(None);
            }
            names.push(record.sort_name);
            at = record.parent;
        }
        let path = names.iter().rev().fold(self.prefix.clone(), |path, name| path + name);
        if self.kept.len() >= KEPT_MAX {
            self.kept.clear();
        }
        self.kept.insert(directory, path.clone());
        Ok(Some(path))
    }
}
