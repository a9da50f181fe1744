//! Drafts that make a row refer to stored runs: on a shared engine they commit only while the process's session lives.
//!
//! Why:        a run without a back row is kept by a pin: of an upload in the own store, of a reader at another store by the
//!             session. Neither binds anybody who has declared this process dead, which it may learn later.
//! Invariants: K1 on a shared engine each batch that puts a back row of a stored run asserts that a session lives. The run
//!                of a payload has no location before its commit, so nobody can have removed it.
//!             K2 it is the session in which the run was pinned, if only that pin keeps it: in the time before a later
//!                session began it may have been removed. Otherwise it is the present one.
//!             K3 only a publish rests on pins at other stores (`rest_on`): an open file may refer to runs that its row does not
//!                refer to any more. Who else refers to a run of another store asserts a row that does: copy, copy of a part,
//!                append, complete, rename, link, `copy_file_range`, versions that are kept or become current again.
//!                PUT, parts and a publish also bring runs of the own store, which another process may hold by now.
//! Not here:   adding the assertion (session_state), back rows themselves (back_rows).

use margay_meta::{Engine, Precondition, Write};
use margay_rows::Ino;
use margay_rows::key::{self, Table};

use super::Draft;

impl Draft {
    /// A draft that puts back rows anew of references that there are, while nothing else changes rows (upgrade).
    pub(crate) fn rebuilding() -> Draft {
        Draft { rebuilds: true, ..Draft::default() }
    }

    /// Whether it makes a row refer to a stored run, or changes how one does.
    pub(crate) fn refers_to_stored_runs(&self) -> bool {
        self.batch.writes.iter().any(|write| matches!(write, Write::Put { key, .. } if is_back_of_stored(key)))
    }

    /// Only pins of this session keep what the draft refers to.
    pub(crate) fn rest_on(&mut self, session: Ino) {
        self.pinned_in = Some(session);
    }

    /// The session whose pins alone keep what the draft refers to.
    pub(crate) fn rests_on(&self) -> Option<Ino> {
        self.pinned_in
    }

    /// Asserts that a session lives; its conflict is reported as `Fenced`, and not retried.
    pub(crate) fn assert_session(&mut self, session: Ino) {
        assert!(self.asserted.session.is_none(), "a batch is of one session");
        self.asserted.session = Some(self.batch.preconditions.len());
        self.batch.preconditions.push(Precondition::Exists { key: key::session(session) });
    }

    /// K1, where it is too late to add what is missing.
    pub(super) fn check_session(&self, engine: &dyn Engine) {
        let is_needed = engine.is_shared() && !self.rebuilds && self.refers_to_stored_runs();
        assert!(!is_needed || self.asserted.session.is_some(), "who refers to stored runs asserts a session (K1)");
    }
}

fn is_back_of_stored(key: &[u8]) -> bool {
    Table::of(key) == Some(Table::Back) && key::parse_back(key).is_ok_and(|(segment, ..)| segment.0 != 0)
}
