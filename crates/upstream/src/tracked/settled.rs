//! Waiting until the bucket has a file, or until anything becomes clean or refused.
//!
//! Why:        with one condition for all, each answer would wake every thread that is in fsync.
//! Locking:    who waits holds the table of dirty files, and looks at it; a notice that is missed costs the time of one look.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use margay_rows::Ino;
use parking_lot::{Condvar, Mutex};

#[derive(Debug, Default)]
pub(crate) struct Settled {
    any: Arc<Condvar>,
    files: Mutex<HashMap<Ino, Weak<Condvar>>>,
}

/// Files whose waiters are kept track of before those that are gone are swept out.
const SWEPT_AT: usize = 1024;

impl Settled {
    /// The condition of one file, or of any.
    pub(crate) fn of(&self, file: Option<Ino>) -> Arc<Condvar> {
        let Some(ino) = file else { return Arc::clone(&self.any) };
        let mut files = self.files.lock();
        if let Some(waited) = files.get(&ino).and_then(Weak::upgrade) {
            return waited;
        }
        if files.len() >= SWEPT_AT {
            files.retain(|_, waited| waited.strong_count() > 0);
        }
        let waited = Arc::default();
        files.insert(ino, Arc::downgrade(&waited));
        waited
    }

    /// These files may be clean now, or refused.
    pub(crate) fn notify(&self, inos: impl IntoIterator<Item = Ino>) {
        self.any.notify_all();
        let files = self.files.lock();
        for waited in inos.into_iter().filter_map(|ino| files.get(&ino)?.upgrade()) {
            waited.notify_all();
        }
    }
}
