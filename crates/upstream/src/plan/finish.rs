//! What a request that succeeded changes of what the bucket has.
//!
//! Not here:   requests that failed: nothing changes, and the next plan has them again.

use std::collections::HashMap;

use super::{Action, Base, Dirty, FileNumber, Leftover, PlannedRequest};

/// Takes the answer into account; `etag` is that of the object that was written. Returns the files that it changed, of which
/// some may be clean now. The caller stores all of them in one commit.
pub fn finish(files: &mut HashMap<FileNumber, Dirty>, request: &PlannedRequest, etag: &str) -> Vec<FileNumber> {
    let mut changed = vec![request.file];
    changed.extend(request.replaces.filter(|other| *other != request.file));
    for file in &changed {
        // The object that the key had is no more, whoever it belonged to.
        if let Some(one) = files.get_mut(file) {
            one.leftovers.retain(|left| left.key != request.key);
        }
    }
    for file in &changed[1..] {
        if let Some(base) = files.get_mut(file).and_then(|one| one.take_base(&request.key)) {
            let is_gone = files[file].local.is_none();
            assert!(is_gone, "{} replaced the only object of a file that exists (W4)", base.key);
        }
    }
    let Some(one) = files.get_mut(&request.file) else { return changed };
    if request.action == Action::Delete {
        one.take_base(&request.key);
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

impl Dirty {
    fn take_base(&mut self, key: &str) -> Option<Base> {
        self.base.take_if(|base| base.key == key)
    }
}
