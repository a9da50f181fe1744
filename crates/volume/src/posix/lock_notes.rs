//! Which owners of a mount have, or may have, locks on which files.
//!
//! Why:        a close of a file without locks must not cost a look at rows, and a close of one with locks must not miss them.
//! Invariants: N1 a note is forgotten only by a commit that left its owner none, if no lock was being asked for when that began and
//!                none has been since.
//! Locking:    one leaf lock.
//! Not here:   the rows (sessions), when something is asked or given back (file_lock).

use std::collections::BTreeMap;

use margay_rows::Ino;
use parking_lot::Mutex;

/// A file, and how the kernel names the owner.
type Owner = (Ino, u64);

/// A lock that could not be given back at a close.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owed {
    pub(crate) file: Ino,
    pub(crate) owner: u64,
    pub(crate) handle: u64,
}

#[derive(Debug, Default)]
pub(crate) struct LockNotes(Mutex<BTreeMap<Owner, Note>>);

/// What was asked for by one owner on one file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Note {
    /// How often it asked.
    asked: u64,
    /// Of these, not answered yet.
    open: u64,
}

/// A lock is being asked for.
#[derive(Debug)]
pub(crate) struct Asking<'n>(&'n LockNotes, Owner);

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        if let Some(note) = self.0.0.lock().get_mut(&self.1) {
            assert!(note.open > 0, "what is asked for is counted (N1)");
            note.open -= 1;
        }
    }
}

impl LockNotes {
    pub(crate) fn ask(&self, owner: Owner) -> Asking<'_> {
        let mut all = self.0.lock();
        let note = all.entry(owner).or_default();
        (note.asked, note.open) = (note.asked + 1, note.open + 1);
        drop(all);
        Asking(self, owner)
    }

    /// `None`: it has none.
    pub(crate) fn note(&self, owner: Owner) -> Option<Note> {
        self.0.lock().get(&owner).copied()
    }

    /// The owner had none after a commit that began when its note was this one.
    pub(crate) fn forget(&self, owner: Owner, then: Note) {
        let mut all = self.0.lock();
        if then.open == 0 && all.get(&owner) == Some(&then) {
            all.remove(&owner);
        }
    }

    /// The kernel has left.
    pub(crate) fn clear(&self) {
        self.0.lock().clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_stays_while_a_lock_is_asked_for_or_was_meanwhile() {
        let (notes, owner) = (LockNotes::default(), (Ino(7), 5));
        assert_eq!(notes.note(owner), None);
        let asking = notes.ask(owner);
        // It may be taken after the other commit.
        let then = notes.note(owner).unwrap();
        drop(asking);
        notes.forget(owner, then);
        let then = notes.note(owner).unwrap();
        drop(notes.ask(owner));
        notes.forget(owner, then);
        let then = notes.note(owner).unwrap();
        notes.forget(owner, then);
        assert_eq!(notes.note(owner), None);
        let asking = notes.ask(owner);
        notes.clear();
        drop(asking);
    }
}
