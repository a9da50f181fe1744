//! A file of which the only bytes were at an object that somebody else has replaced or removed.
//!
//! Why:        here it got another name or other attributes at most, so there is nothing of it that could be kept beside theirs.
//! Examples:   `a` was renamed to `b` here and replaced there: `b` has the new content, and `a` goes. Removed there: `b` goes.
//! Invariants: F1 it is another file under the name, as in a comparison; its object is that of somebody else, and its dirty row is
//!                in the same batch, so that the object gets the name also after a crash.
//!             F2 a file that is open here, or was written since, stays: it is tried again.
//!             F3 a name whose bytes were those of another file's object (a copy) takes nothing over: two files would have one object.
//!             F4 attributes that were changed here stay: the object with the new content gets them.
//!             F5 a file that is open and has another name here has no object any more as soon as a new file here wants the key:
//!                the bytes of the open one are lost, and what would wait for them is an `fsync` of the new one.
//! Locking:    the turn of the file, without waiting for it, then the table of files, until the entries are committed.
//! Not here:   how it is found out (conflict), what is below names (list).

use http::HeaderMap;
use margay_client::upstream::Described;
use margay_rows::record::{Entry, UpstreamDirty};
use margay_rows::{Ino, key};

use super::Sender;
use super::request::{Unsent, far_numbers};
use crate::attributes::of_both;
use crate::heads::Found;
use crate::list::Rows;
use crate::plan::PlannedRequest;
use crate::tracked::{File, entry_at, rows_of_object};
use crate::xattrs;

fn local(error: impl ToString) -> Unsent {
    Unsent::Local(error.to_string())
}

impl Sender {
    /// The object with the bytes of the file, at this key, is now what is `there`, or gone; `None`: that is known of some object
    /// with its bytes. True if the file here has what is there. The request is in progress.
    pub(super) fn follow(
        &self,
        request: &PlannedRequest,
        source: Option<(&str, Option<&Described>)>,
    ) -> Result<bool, Unsent> {
        self.forget_kept_of(request.file);
        let (ino, below) = (Ino(request.file), &*self.tracked.below);
        let (_held, closed) = self.volume.hold_closed(&[ino]);
        if !closed.contains(&ino) {
            if let Some((from, _)) = source {
                self.give_up_key(request, from);
            }
            return Err(local(
                "its bytes in the bucket were replaced or removed; here it is open, so it is left alone until it is closed",
            ));
        }
        let mut files = self.tracked.files.lock();
        let Some(mut file) = files.table.get(ino).cloned() else { return Ok(false) };
        let Some((directory, name)) = file.dirty.name.clone() else { return Ok(false) };
        let entry = entry_at(below, &key::entry(directory, name.as_bytes())).map_err(local)?;
        // Else it was written since.
        let Some(entry) = entry.filter(|entry| far_numbers(entry).next().is_some()) else { return Ok(false) };
        let is_changed = has_changed_attributes(&file);
        let mut rows = Rows::new();
        let mut is_own = false;
        if let Some((from, _)) = source {
            file.dirty.leftovers.retain(|left| left.key != from);
            if let Some(object) = file.object.take_if(|object| object.key == from) {
                rows.extend(rows_of_object(ino, &object).map(|row| (row, None)));
                is_own = true;
            }
        }
        let mut found = None;
        if let Some((from, Some(there))) = source.filter(|_| is_own) {
            let attributes = if is_changed { self.with_own(&entry, there)? } else { None };
            found = Some(Found { attributes, ..Found::object(from, &name, there.clone()) });
        }
        let new = self.volume.new_number().map_err(local)?;
        let (since, changed) = (file.dirty.since, file.dirty.changed);
        let dirty = UpstreamDirty { name: Some((directory, name.clone())), since, changed, ..UpstreamDirty::default() };
        // What is left of the old one under other keys is removed.
        file.lose_name();
        file.removal_may_be_done = true;
        rows.push((key::upstream_dirty(ino), Some(file.dirty.encode())));
        if found.is_some() {
            rows.push((key::upstream_dirty(new), Some(dirty.encode())));
        }
        let come: Vec<(Ino, &Found)> = found.iter().map(|found| (new, found)).collect();
        if !self.listing.enter_as(directory, (&[(name, ino)], rows), &come).map_err(local)? {
            // Somebody here was faster.
            return Ok(false);
        }
        tracing::warn!(
            key = request.key,
            is_removed = found.is_none(),
            "replaced or removed in the bucket, and only renamed or given other attributes here: what is there counts"
        );
        files.table.put(ino, file);
        if found.is_some() {
            files.begin(below, new, dirty).map_err(local)?;
        }
        Ok(found.is_some())
    }

    /// Another file has got the name here that the object of this one had: it would wait until this one is closed (F5).
    fn give_up_key(&self, request: &PlannedRequest, from: &str) {
        let files = self.tracked.files.lock();
        let others = files.table.with_key(from).into_iter().filter(|ino| ino.0 != request.file);
        let mut nexts = others.filter_map(|ino| files.table.get(ino).and_then(File::next));
        let is_wanted = nexts.any(|next| next.key == from);
        drop(nexts);
        drop(files);
        if is_wanted {
            self.forget_objects(&PlannedRequest { key: from.to_owned(), replaces: None, ..request.clone() });
        }
    }

    /// What an object of somebody else is to say with the attributes of a file here.
    fn with_own(&self, entry: &Entry, there: &Described) -> Result<Option<HeaderMap>, Unsent> {
        let (whole, xattrs) = xattrs::whole(&*self.tracked.below, None, entry).map_err(local)?;
        Ok(whole.file().and_then(|file| of_both(&file, &xattrs, there)))
    }
}

/// Whether attributes of a file were changed here since its object was made.
fn has_changed_attributes(file: &File) -> bool {
    let there = file.object.as_ref().map(|object| object.attributes);
    file.state.is_some_and(|state| there.is_some_and(|there| there != state.attributes))
}
