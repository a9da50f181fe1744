//! Prefetch: predicts which rows a request will need and reads them in one call before it starts.
//!
//! Why:        an operation reads one row after another, each found through the last. If the path to its key is cached,
//!             all of them are known in advance, and the engine can answer them together.
//! Invariants: A1 a prediction is a hint: a row that was not prefetched is read when it is needed.
//! Not here:   how prefetched rows are used (seen, driver), the caches (path, entry_hints).

use std::sync::Arc;

use margay_meta::Ask;
use margay_rows::Ino;
use margay_rows::key::{self, Counted};

use crate::api::{Error, ObjectName, VersionId, Versioning};
use crate::cache::{Path, PathCache, RowsFor, Step, split};
use crate::draft::Seen;
use crate::open::Volume;
use crate::versioned_key::VersionedKey;

/// Parts of an upload that are prefetched; more are read when they are needed.
const PARTS_AHEAD_MAX: usize = 2048;

/// What a request is about to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose<'a> {
    /// Reads facts of the bucket, or lists it.
    Bucket,
    /// Reads what is known of an object.
    HeadObject(&'a str, Option<VersionId>),
    /// Reads its bytes too.
    GetObject(&'a str, Option<VersionId>),
    PutObject(&'a str),
    DeleteObject(&'a str, Option<VersionId>),
    CopyObject {
        key: &'a str,
        source: ObjectName<'a>,
    },
    RenameObject {
        from: &'a str,
        to: &'a str,
    },
    /// Reads or ends an upload.
    Upload {
        key: &'a str,
        upload: &'a str,
    },
    PutPart {
        key: &'a str,
        upload: &'a str,
        number: u16,
    },
    CopyPart {
        key: &'a str,
        upload: &'a str,
        number: u16,
        source: ObjectName<'a>,
    },
    CompleteUpload {
        key: &'a str,
        upload: &'a str,
    },
    /// A page of parts with numbers after `after`.
    ListParts {
        key: &'a str,
        upload: &'a str,
        after: u16,
        max: usize,
    },
}

/// The questions of a request.
#[derive(Debug)]
struct Asks<'v> {
    volume: &'v Volume,
    asks: Vec<Ask>,
}

impl Volume {
    /// Prefetches the rows of a request.
    pub(crate) async fn look_ahead(&self, bucket: &str, purpose: Purpose<'_>, seen: &mut Seen) -> Result<(), Error> {
        seen.looks_ahead_at(self.env.clock.monotonic());
        self.fetch(self.asks_ahead(bucket, purpose), seen).await
    }

    fn asks_ahead(&self, bucket: &str, purpose: Purpose<'_>) -> Vec<Ask> {
        let mut asks = Asks { volume: self, asks: Vec::with_capacity(8) };
        asks.get(key::bucket(bucket));
        match purpose {
            Purpose::Bucket => {}
            Purpose::HeadObject(key, version) => asks.object((bucket, key, version), RowsFor::Head),
            Purpose::GetObject(key, version) => asks.object((bucket, key, version), RowsFor::Get),
            Purpose::PutObject(key) => asks.place(bucket, key),
            Purpose::DeleteObject(key, version) => asks.removal((bucket, key, version)),
            Purpose::CopyObject { key, source } => {
                asks.place(bucket, key);
                asks.source(source);
            }
            Purpose::RenameObject { from, to } if from.ends_with('/') && to.ends_with('/') => {
                asks.directories(bucket, from, to)
            }
            Purpose::RenameObject { from, to } => {
                asks.place(bucket, to);
                asks.removal((bucket, from, None));
            }
            Purpose::Upload { key, upload } => drop(asks.upload(bucket, key, upload)),
            Purpose::PutPart { key, upload, number } => asks.part(bucket, (key, upload, number)),
            Purpose::CopyPart { key, upload, number, source } => {
                asks.part(bucket, (key, upload, number));
                asks.source(source);
            }
            Purpose::ListParts { key, upload, after, max } => {
                if let Some(ino) = asks.upload(bucket, key, upload) {
                    let range = (key::after(key::part(ino, after)), key::parts(ino).1);
                    asks.scan(range, max.saturating_add(1).min(PARTS_AHEAD_MAX));
                }
            }
            Purpose::CompleteUpload { key, upload } => {
                if let Some(ino) = asks.upload(bucket, key, upload) {
                    asks.scan(key::parts(ino), PARTS_AHEAD_MAX);
                }
                asks.place(bucket, key);
            }
        }
        asks.asks
    }
}

impl Asks<'_> {
    /// Paths of two keys share rows.
    fn get(&mut self, key: Vec<u8>) {
        if !self.asks.iter().any(|ask| matches!(ask, Ask::Get { key: asked } if *asked == key)) {
            self.asks.push(Ask::Get { key });
        }
    }

    fn scan(&mut self, (start, end): key::Range, rows_max: usize) {
        self.asks.push(Ask::Scan { start, end, rows_max, keys_only: false });
    }

    /// The rows of a cached path, and what it leads to; if only one above is cached, the row of the next directory,
    /// which is probably missing. Without any, nothing.
    fn path(&mut self, bucket: &str, directories: &str) -> Option<(Arc<Path>, bool)> {
        let paths = &self.volume.paths;
        let mut known = directories;
        loop {
            if let Some(path) = paths.get(&PathCache::name(bucket, known)) {
                path.steps.iter().for_each(|step| self.get(step.key.clone()));
                if let Some(next) = directories[known.len()..].split_inclusive('/').next() {
                    self.get(key::entry(path.directory(), next.as_bytes()));
                }
                return Some((path, known.len() == directories.len()));
            }
            if known.is_empty() {
                return None;
            }
            known = split(&known[..known.len() - 1]).0;
        }
    }

    /// The path to a key, its entry, and what the file has besides. `None`: the bucket is not known.
    fn entry(&mut self, bucket: &str, key: &str, rows_for: RowsFor) -> Option<Arc<Path>> {
        let (directories, name) = split(key);
        let (path, is_whole) = self.path(bucket, directories)?;
        if is_whole {
            let entry = key::entry(path.directory(), name.as_bytes());
            self.volume.entry_hints.asks(&entry, rows_for, &mut self.asks);
            self.get(entry);
        }
        Some(path)
    }

    fn object(&mut self, (bucket, key, version): ObjectName<'_>, rows_for: RowsFor) {
        let Some(path) = self.entry(bucket, key, rows_for) else { return };
        self.version(&path.versioned(key), version, rows_for);
    }

    fn version(&mut self, object: &VersionedKey<'_>, version: Option<VersionId>, rows_for: RowsFor) {
        match version {
            // The row that it leads to is found through it.
            Some(VersionId::Null) if object.keeps() => self.get(key::null_version(object.root, object.key)),
            Some(VersionId::Numbered(sequence)) if object.keeps() => {
                let row = object.row(sequence);
                self.volume.entry_hints.asks(&row, rows_for, &mut self.asks);
                self.get(row);
            }
            Some(_) | None => {}
        }
    }

    /// The source of a copy, in any bucket.
    fn source(&mut self, source: ObjectName<'_>) {
        self.get(key::bucket(source.0));
        self.object(source, RowsFor::Copy);
    }

    /// A key that will get a new object.
    fn place(&mut self, bucket: &str, key: &str) {
        let Some(path) = self.entry(bucket, key, RowsFor::Change) else { return };
        self.newest_version(&path, key);
        let quota = path.bucket.quota;
        for (limited, what) in [(quota.objects, Counted::Objects), (quota.bytes, Counted::Bytes)] {
            if limited.is_some() {
                self.get(key::usage(path.bucket.root, what));
            }
        }
    }

    fn newest_version(&mut self, path: &Path, key: &str) {
        if path.bucket.versioning != Versioning::Never {
            self.scan(key::versions_below(path.bucket.root, key, u64::MAX), 1);
        }
        if path.bucket.versioning == Versioning::Suspended {
            self.get(key::null_version(path.bucket.root, key));
        }
    }

    /// A key whose object goes.
    fn removal(&mut self, (bucket, key, version): ObjectName<'_>) {
        let Some(path) = self.entry(bucket, key, RowsFor::Change) else { return };
        self.newest_version(&path, key);
        self.version(&path.versioned(key), version, RowsFor::Change);
        let gone = key::entry(path.directory(), split(key).1.as_bytes());
        self.emptied(&path.steps, gone);
    }

    /// An implicit directory is removed with its last entry.
    fn emptied(&mut self, steps: &[Step], mut gone: Vec<u8>) {
        for step in steps.iter().rev().take_while(|step| !step.entry.explicit) {
            for range in key::entries_beside(step.entry.ino, &gone) {
                self.scan(range, 1);
            }
            gone.clone_from(&step.key);
        }
    }

    /// A directory that moves, both keys with a trailing `/`.
    fn directories(&mut self, bucket: &str, from: &str, to: &str) {
        if let Some((path, true)) = self.path(bucket, from)
            && let [above @ .., moved] = path.steps.as_slice()
        {
            self.emptied(above, moved.key.clone());
        }
        let (above, name) = to.split_at(split(&to[..to.len() - 1]).0.len());
        if let Some((path, true)) = self.path(bucket, above) {
            self.get(key::entry(path.directory(), name.as_bytes()));
        }
    }

    /// An upload's row; returns the upload's number, if it is known.
    fn upload(&mut self, bucket: &str, key: &str, upload: &str) -> Option<Ino> {
        let (path, _) = self.path(bucket, "")?;
        let row = key::upload(path.bucket.root, key, upload);
        if row.len() > margay_meta::KEY_BYTES_MAX {
            return None;
        }
        let ino = self.volume.entry_hints.upload(&row);
        self.get(row);
        ino
    }

    fn part(&mut self, bucket: &str, (key, upload, number): (&str, &str, u16)) {
        if let Some(ino) = self.upload(bucket, key, upload) {
            self.get(key::part(ino, number));
        }
    }
}
