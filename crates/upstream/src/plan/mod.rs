//! Which requests bring a bucket to the state of the local tree, and in which order: a pure function of what the bucket has
//! and what the tree has.
//!
//! Why:        no log of operations is kept. The difference of two states says what is to be done: a file that was made and
//!             removed again costs nothing, ten changes of it cost one request, and a restart only computes the difference again.
//! Invariants: W1 a file is in the bucket under its old or its new key at every instant after it first was there.
//!             W2 a key has one request in progress at most, and a file too.
//!             W3 a removal waits for all writes that were due before it, so what was copied or moved elsewhere first is there
//!                first. Writes that cannot succeed (`is_refused`) do not count.
//!             W4 a write to a key waits while another file that still exists is in the bucket under that key only. A circle of
//!                such files is broken by a copy of one of them to a temporary key.
//!             W5 every request says which state of its key it replaces, so that the change of another client is noticed and not
//!                overwritten.
//!             W6 nothing that changed after the end of an epoch starts before all that changed until then is done. So the
//!                bucket shows the states between two syncs in their order, and never one without what was synced before.
//! Source:     the order of write-back in this project's design, docs/design/0029.
//! Not here:   when a file is due, when an epoch ends and what a file held then (the caller gives the state that is to be sent
//!             next), how many requests are in progress at once (the caller), renames of whole directories, conflicts with other
//!             clients.

mod closed;
mod finish;
mod order;

use std::collections::HashMap;

pub use self::closed::close;
pub use self::finish::finish;
pub use self::order::{Bounds, first_write, plan};

/// The number of a file of the local volume.
pub type FileNumber = u64;

/// Position of a change in the order of local commits.
pub type Sequence = u64;

/// An object of the bucket: the state of a file that was sent last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Base {
    pub key: String,
    pub etag: String,
    /// Which content of the file it has, and which attributes; numbers that differ after each change.
    pub content: u64,
    pub attributes: u64,
}

/// The file in the local tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Local {
    pub key: String,
    pub content: u64,
    pub attributes: u64,
}

/// An object of the bucket that is to be removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leftover {
    pub key: String,
    pub etag: String,
    /// The removal became due with this change.
    pub since: Sequence,
}

/// A file of which the bucket does not have the local state, or has more than that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dirty {
    pub file: FileNumber,
    pub base: Option<Base>,
    /// `None`: the file was removed.
    pub local: Option<Local>,
    pub leftovers: Vec<Leftover>,
    /// The first change that the bucket has not got.
    pub since: Sequence,
    /// The first change after the request in progress was made; `since` when that is done.
    pub since_sent: Option<Sequence>,
    /// The last change.
    pub changed: Sequence,
    /// The caller wants it sent now; what it depends on is sent too.
    pub is_due: bool,
    /// The store refuses its writes for good; it is tried again only when this is unset.
    pub is_refused: bool,
}

/// What a request requires of its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Required {
    Absent,
    /// The object with this ETag.
    Etag(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// The whole object: content and attributes.
    Put,
    /// From this key, whose ETag is required; with the file's attributes. From its own key: attributes alone.
    Copy {
        from: String,
        etag: String,
    },
    /// As `Copy`, to a temporary key, with the attributes that the object has.
    SetAside {
        from: String,
        etag: String,
    },
    Delete,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedRequest {
    pub file: FileNumber,
    pub key: String,
    pub action: Action,
    pub required: Required,
    /// The state of the file that it brings; of no meaning for `Delete`.
    pub content: u64,
    pub attributes: u64,
    /// The last change of the file that it brings.
    pub changed: Sequence,
    /// The file whose object the key has now.
    pub replaces: Option<FileNumber>,
}

impl PlannedRequest {
    /// The key that is only read.
    fn source(&self) -> Option<&str> {
        match &self.action {
            Action::Copy { from, .. } | Action::SetAside { from, .. } => Some(from),
            Action::Put | Action::Delete => None,
        }
    }
}

impl Dirty {
    /// Whether the bucket lacks something of a file that exists.
    pub fn lacks(&self) -> bool {
        self.local.as_ref().is_some_and(|local| {
            self.base.as_ref().is_none_or(|base| {
                (&base.key, base.content, base.attributes) != (&local.key, local.content, local.attributes)
            })
        })
    }

    /// Whether nothing is left to do.
    pub fn is_clean(&self) -> bool {
        self.leftovers.is_empty() && !self.lacks() && (self.local.is_some() || self.base.is_none())
    }

    /// What of the file is to be removed: leftovers, and the object of a file that was removed.
    fn removals(&self) -> impl Iterator<Item = (&str, &str, Sequence)> {
        let gone = self.base.as_ref().filter(|_| self.local.is_none());
        let leftovers = self.leftovers.iter().map(|left| (left.key.as_str(), left.etag.as_str(), left.since));
        leftovers.chain(gone.map(|base| (base.key.as_str(), base.etag.as_str(), self.changed)))
    }
}

/// What the bucket has under a key, as far as dirty files say.
struct Occupant<'a> {
    by: &'a Dirty,
    etag: &'a str,
    /// The file exists, and the bucket has it under this key.
    is_needed: bool,
}

fn occupants(dirty: &[Dirty]) -> HashMap<&str, Occupant<'_>> {
    let mut found = HashMap::new();
    for by in dirty {
        for (key, etag, _) in by.removals() {
            let before = found.insert(key, Occupant { by, etag, is_needed: false });
            assert!(before.is_none(), "a key has one object");
        }
        if let Some(base) = by.base.as_ref().filter(|_| by.local.is_some()) {
            let before = found.insert(base.key.as_str(), Occupant { by, etag: &base.etag, is_needed: true });
            assert!(before.is_none(), "a key has one object");
        }
    }
    found
}
