//! What a request that succeeded changes of what the bucket has.
//!
//! Not here:   requests that failed: nothing changes, and the next plan has them again.

use std::collections::HashMap;

use super::{Action, Base, Dirty, FileNumber, Leftover, PlannedRequest};

/// Takes the answer into account; `etag` is that of the object that was written. Returns the files that it changed, of which
/// some may be clean now. The caller stores all of them in one commit.
pub fn finish(files: &mut HashMap<FileNumber, Dirty>, request: &PlannedRequest, etag: &str) -> Vec<FileNumber> {
    let mut changed = vec![request.file];
    if let Some(other) = request.replaces.filter(|other| *other != request.file) {
        take_object(files, other, &request.key);
        changed.push(other);
    }
    take_leftover(files, request);
    let Some(one) = files.get_mut(&request.file) else { return changed };
    if request.action == Action::Delete {
        one.base.take_if(|base| base.key == request.key);
        return changed;
    }
    let (key, etag) = (request.key.clone(), etag.to_owned());
    let sent = Base { key, etag, content: request.content, attributes: request.attributes };
    if let Some(old) = one.base.replace(sent).filter(|old| old.key != request.key) {
        one.leftovers.push(Leftover { key: old.key, etag: old.etag, since: request.changed });
    }
    if !matches!(request.action, Action::SetAside { .. }) {
        one.since = one.since_sent.take().unwrap_or(one.changed);
    }
    changed
}

/// The object of another file was replaced.
fn take_object(files: &mut HashMap<FileNumber, Dirty>, file: FileNumber, key: &str) {
    let Some(other) = files.get_mut(&file) else { return };
    other.leftovers.retain(|left| left.key != key);
    if let Some(base) = other.base.take_if(|base| base.key == key) {
        assert!(other.local.is_none(), "{} replaced the only object of a file that exists (W4)", base.key);
    }
}

/// A leftover of the file itself was removed, or replaced by its own object.
fn take_leftover(files: &mut HashMap<FileNumber, Dirty>, request: &PlannedRequest) {
    if let Some(one) = files.get_mut(&request.file) {
        one.leftovers.retain(|left| left.key != request.key);
    }
}
