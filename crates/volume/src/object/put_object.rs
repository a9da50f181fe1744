//! PUT of an object: a new file at a key, replacing any existing one.
//!
//! Why:        the hot path: one read, one commit.
//! Invariants: P1 the commit asserts the bucket, each directory on the path, and that the entry is as it was read, so
//!                the evaluated condition holds; concurrent PUTs into one directory do not conflict.
//! Not here:   the bytes (upload), what happens to the old object (versions) and its data (release).

use margay_rows::Ino;
use margay_rows::event::EventKind;
use margay_rows::key::{self, Counted};
use margay_rows::kinds::Document;
use margay_rows::record::FileEntry;
use margay_rows::record::entry::{MODE_RIGHTS, MODE_SET_IDS, MODE_SYMLINK};

use crate::api::{Error, PutOutcome, PutRequest};
use crate::cache::{ACCESS_LIST, split};
use crate::draft::{Draft, Seen};
use crate::driver::{Decided, View};
use crate::entry::{Current, Located, Walk, check_key, documents};
use crate::error::Refused;
use crate::event::Told;
use crate::open::Volume;
use crate::upload::Staged;
use crate::upload::place::{self, Placed};

impl View<'_> {
    pub async fn put_object(self, request: PutRequest<'_>, staged: Staged) -> Result<PutOutcome, Error> {
        let rows = self.take_for_change(request.bucket);
        self.volume.put_from(rows, request, staged).await
    }
}

impl Volume {
    pub async fn put_object(&self, request: PutRequest<'_>, staged: Staged) -> Result<PutOutcome, Error> {
        self.put_from(Seen::default(), request, staged).await
    }

    /// The first attempt uses these rows.
    pub(crate) async fn put_from(
        &self,
        rows: Seen,
        request: PutRequest<'_>,
        staged: Staged,
    ) -> Result<PutOutcome, Error> {
        check_key(request.key)?;
        self.check_room()?;
        let done = self.change_from(rows, request.bucket, split(request.key), |walk, seen| {
            self.try_put_object(walk, &request, &staged, seen)
        });
        self.answer(done.await).await
    }

    fn try_put_object(
        &self,
        walk: &Walk<'_>,
        request: &PutRequest<'_>,
        staged: &Staged,
        seen: &mut Seen,
    ) -> Result<Decided<PutOutcome>, Refused> {
        let current = self.current(walk, request.key, seen)?;
        request.condition.check(current.etag(walk))?;
        let mut draft = Draft::default();
        let ino = self.new_ino()?;
        let Placed { data, named } = place::place_body(&mut draft, ino, &staged.body);
        let keyed = request.documents.contains_key(&Document::Encryption);
        assert_eq!(
            staged.encrypted, keyed,
            "an object has the key that its bytes are encrypted with, or they are plain"
        );
        let mut file = FileEntry::new(ino, staged.len, request.etag, self.now(), data, request.headers.clone());
        self.check_added(walk, &current, &file, seen)?;
        self.bequeath(&mut draft, &current, &mut file, seen)?;
        documents::draft_new(&mut draft, &mut file, &request.documents)?;
        let key = self.replace(walk, &current, &mut file, &mut draft, seen)?;
        self.take_headers(&mut file);
        let outcome = current.outcome(&file);
        let PutOutcome { etag, version, .. } = outcome;
        let kind = if request.is_copy { EventKind::Copy } else { EventKind::Put };
        let told = Told { kind, key: request.key, size: file.size, etag, version };
        self.draft_event(&mut draft, &walk.path, &told)?;
        let entry_key = key.clone();
        let file = place::put_new_file(&mut draft, key, file, named)?;
        self.entry_hints.note(&entry_key, &file, false);
        self.finish(draft, outcome)
    }

    /// Gives a new object the owner, permissions and access list of the file that it replaces. A symbolic link has no
    /// permissions of its own; a program's set-id bits were granted to the old bytes only.
    pub(crate) fn bequeath(
        &self,
        draft: &mut Draft,
        current: &Current<'_>,
        new: &mut FileEntry,
        seen: &mut Seen,
    ) -> Result<(), Error> {
        let Some(Located { file: old, .. }) = &current.file else { return Ok(()) };
        (new.uid, new.gid) = (old.uid, old.gid);
        if old.kind() == MODE_SYMLINK {
            return Ok(());
        }
        new.mode = old.mode & MODE_RIGHTS & !MODE_SET_IDS;
        // With a list, the group bits of the mode are the list's mask: without the list they would be the group's
        // permissions.
        if old.xattrs
            && let Some(row) = self.get(&key::xattr(old.ino, ACCESS_LIST), seen)?
        {
            new.xattrs = true;
            draft.put(key::xattr(new.ino, ACCESS_LIST), row.value.to_vec());
        }
        Ok(())
    }

    /// Refuses a new object that would exceed the bucket's quota.
    pub(crate) fn check_added(
        &self,
        walk: &Walk<'_>,
        current: &Current<'_>,
        new: &FileEntry,
        seen: &Seen,
    ) -> Result<(), Error> {
        let (objects, mut bytes) = growth(current.file.as_ref().map(|old| &old.file), Some(new));
        if current.object.keeps() {
            // With versioning, the displaced object usually stays.
            bytes = new.size as i64;
        }
        self.check_quota(&walk.path.bucket, (objects, bytes), seen)
    }

    /// Drafts a whole replacement except the new entry itself: preconditions, directories, counters, and what happens
    /// to the old file. Returns the new version and the new entry's key.
    pub(crate) fn replace(
        &self,
        walk: &Walk<'_>,
        current: &Current<'_>,
        new: &mut FileEntry,
        draft: &mut Draft,
        seen: &mut Seen,
    ) -> Result<Vec<u8>, Error> {
        walk.path.assert_in(draft);
        let directory = self.make_directories(walk, draft)?;
        if walk.complete() {
            if current.file.is_none() {
                draft.assert_absent(current.entry_key.clone());
            }
            draft.max(key::times(directory), new.modified.0.max(0) as u64);
        }
        self.draft_locks(draft, &walk.path.bucket, new)?;
        new.version = self.newest_version(&current.object, current.file.as_ref(), seen)?;
        self.draft_displaced(draft, &current.object, current.file.as_ref(), new.version, seen)?;
        draft.add(key::usage(walk.path.bucket.root, Counted::Objects), i64::from(current.file.is_none()));
        draft.add(key::usage(walk.path.bucket.root, Counted::Bytes), new.size as i64);
        Ok(key::entry(directory, current.name.as_bytes()))
    }
}

/// Objects and bytes that a bucket's usage gains when `new` replaces `old`.
fn growth(old: Option<&FileEntry>, new: Option<&FileEntry>) -> (i64, i64) {
    let size = |file: Option<&FileEntry>| file.map_or(0, |file| file.size as i64);
    (i64::from(new.is_some()) - i64::from(old.is_some()), size(new) - size(old))
}

/// Drafts the change of a bucket's usage when `new` replaces `old`.
pub(crate) fn count(draft: &mut Draft, root: Ino, old: Option<&FileEntry>, new: Option<&FileEntry>) {
    let (objects, bytes) = growth(old, new);
    draft.add(key::usage(root, Counted::Objects), objects);
    draft.add(key::usage(root, Counted::Bytes), bytes);
}
