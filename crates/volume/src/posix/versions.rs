//! Changes by the mount in a bucket with versioning.
//!
//! Why:        a name there is a key with versions: what unlink, rename and overwriting remove is kept as a version,
//!             and what they create is one.
//! Invariants: V1 every change of a name asserts the bucket's row, so it is made under one versioning state.
//!             V2 a file keeps its number while it is written and renamed; its old version gets a new one.
//!             V3 versions have no names in the mount.
//! Not here:   the rows (crate::versions), versions created by a publish (publish_version).

use std::sync::Arc;

use margay_rows::Ino;
use margay_rows::key::{self, Counted};
use margay_rows::record::{FileEntry, Version};

use crate::api::Error;
use crate::cache::BucketState;
use crate::draft::{Draft, Seen};
use crate::entry::Located;
use crate::posix::api::PosixError;
use crate::posix::attempt::{Attempt, Try};
use crate::posix::handle::Handle;
use crate::posix::mount::Mount;
use crate::versioned_key::VersionedKey;

/// A name in a bucket with versioning, as a key.
#[derive(Debug)]
pub(crate) struct VersionedName {
    state: Arc<BucketState>,
    key: String,
}

impl VersionedName {
    pub(crate) fn object(&self) -> VersionedKey<'_> {
        self.state.object(&self.key)
    }
}

impl Mount {
    /// The state of the bucket, asserted by the draft.
    pub(crate) fn bucket_state(&self, draft: &mut Draft) -> Result<Arc<BucketState>, Attempt> {
        let state = self.volume.bucket_state(self.bucket_root)?;
        state.assert_in(draft);
        Ok(state)
    }

    /// Refuses operations that versioning does not allow.
    pub(crate) fn refuse_versions(&self, draft: &mut Draft) -> Result<(), Attempt> {
        if self.bucket_state(draft)?.keeps() { Err(Error::KeepsVersions.into()) } else { Ok(()) }
    }

    /// A locked file stays unchanged, and an encrypted one is not decrypted without permission. A hard-linked file,
    /// older than versioning, has no single key, so new content could not be versioned: refuse.
    pub(crate) fn check_may_write(&self, handle: &Handle) -> Result<(), PosixError> {
        let bucket = self.volume.bucket_state(self.bucket_root)?;
        let (several, encrypted) = {
            let state = handle.file.state.read();
            (state.file.links > 1, state.file.is_encrypted())
        };
        self.check_plain(bucket.encrypts || encrypted)?;
        if several && bucket.keeps() {
            return Err(PosixError::NotPermitted);
        }
        if !bucket.object_lock {
            return Ok(());
        }
        // The cached state of an open file does not include its locks.
        match self.locate_file(handle.ino())? {
            Some(located) => self.check_unlocked(&located.file),
            None => Ok(()),
        }
    }

    /// A locked current version is read-only here.
    pub(crate) fn check_unlocked(&self, file: &FileEntry) -> Result<(), PosixError> {
        match self.volume.check_unlocked(file, false, &mut Seen::default()) {
            Err(Error::Locked) => Err(PosixError::NotPermitted),
            other => Ok(other?),
        }
    }

    /// `None` if the bucket has no versioning; that is asserted too.
    pub(crate) fn versioned(
        &self,
        draft: &mut Draft,
        parent: Ino,
        name: &str,
    ) -> Result<Option<VersionedName>, Attempt> {
        let state = self.bucket_state(draft)?;
        if !state.keeps() {
            return Ok(None);
        }
        // A removed directory is detected by its reader.
        let key = self.volume.key_of(parent, name)?.ok_or(Attempt::Conflict)?;
        Ok(Some(VersionedName { state, key }))
    }

    /// Drafts that a new file takes a free name: it is counted, and is a version of the name's key.
    pub(crate) fn draft_new_name(
        &self,
        draft: &mut Draft,
        (parent, name): (Ino, &str),
        file: &mut FileEntry,
        one: &mut Try,
    ) -> Result<(), Attempt> {
        draft.add(key::usage(self.bucket_root, Counted::Objects), 1);
        draft.add(key::usage(self.bucket_root, Counted::Bytes), file.size as i64);
        if let Some(name) = self.versioned(draft, parent, name)? {
            name.object().check_length()?;
            file.version = self.draft_version(draft, &name.object(), None, one)?;
        }
        Ok(())
    }

    /// Drafts the removal of this name and counts it; with versioning the file becomes a version below a delete marker.
    /// The caller removes or replaces the entry's row.
    pub(crate) fn draft_end_of_name(
        &self,
        draft: &mut Draft,
        (parent, name): (Ino, &str),
        located: &Located,
        one: &mut Try,
    ) -> Result<(), Attempt> {
        self.check_unlocked(&located.file)?;
        draft.add(key::usage(self.bucket_root, Counted::Objects), -1);
        match self.versioned(draft, parent, name)? {
            Some(name) => {
                self.volume.draft_delete_marker(draft, &name.object(), Some(located), &mut one.seen)?;
            }
            None => {
                draft.add(key::usage(self.bucket_root, Counted::Bytes), -(located.file.size as i64));
                self.volume.drop_name(draft, located, &mut one.seen)?;
            }
        }
        Ok(())
    }

    /// Drafts that a file moves from one name to another, perhaps replacing a file; returns the file as its new
    /// version. The caller drafts the entries' rows.
    pub(crate) fn draft_moved_name(
        &self,
        draft: &mut Draft,
        (from, moved): ((Ino, &str), &Located),
        (to, replaced): ((Ino, &str), Option<&Located>),
        one: &mut Try,
    ) -> Result<FileEntry, Attempt> {
        let mut there = moved.file.clone();
        let Some(source) = self.versioned(draft, from.0, from.1)? else {
            if let Some(replaced) = replaced {
                self.draft_end_of_name(draft, to, replaced, one)?;
            }
            return Ok(there);
        };
        self.check_unlocked(&moved.file)?;
        self.volume.draft_left(draft, &source.object(), moved, &mut one.seen)?;
        if let Some(replaced) = replaced {
            self.check_unlocked(&replaced.file)?;
            draft.add(key::usage(self.bucket_root, Counted::Objects), -1);
        }
        let key = self.volume.key_of(to.0, to.1)?.ok_or(Attempt::Conflict)?;
        source.state.object(&key).check_length()?;
        self.volume.draft_locks_left(draft, &mut there);
        self.draft_default_retention(draft, &mut there)?;
        there.version = self.draft_version(draft, &source.state.object(&key), replaced, one)?;
        Ok(there)
    }

    /// Drafts the bucket's default retention of a new version. An open file gets it at its last close.
    pub(crate) fn draft_default_retention(&self, draft: &mut Draft, file: &mut FileEntry) -> Result<(), Attempt> {
        let bucket = self.bucket_state(draft)?;
        Ok(self.volume.draft_locks(draft, &bucket, file)?)
    }

    /// Drafts that the new file is the newest version of a key, and displaces the current one.
    fn draft_version(
        &self,
        draft: &mut Draft,
        key: &VersionedKey<'_>,
        current: Option<&Located>,
        one: &mut Try,
    ) -> Result<Version, Attempt> {
        let version = self.volume.newest_version(key, current, &mut one.seen)?;
        self.volume.draft_displaced(draft, key, current, version, &mut one.seen)?;
        Ok(version)
    }
}
