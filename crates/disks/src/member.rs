//! One directory with copies, and how far it is trusted.
//!
//! Invariants: M1 each time that a directory comes to lack something, its epoch grows: a copy of an earlier epoch is none.
//! Locking:    `lost` is a leaf lock.
//! Not here:   when it is taken out (members), what is in it (entry).

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::class::Class;
use crate::record::{Listed, State};

#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) id: u64,
    pub(crate) root: PathBuf,
    metadata: AtomicU8,
    data: AtomicU8,
    epoch: AtomicU64,
    /// Generation of the list that first said that it is out: who left later has newer files.
    left: AtomicU64,
    /// A read failed: others are asked first, and it is looked at.
    pub(crate) suspect: AtomicBool,
    lost: Mutex<Option<Lost>>,
}

/// Why a member is out.
#[derive(Clone, Debug)]
pub(crate) struct Lost {
    /// Its directory was not there, and its device said nothing else: when it is back it may be filled without being asked.
    pub(crate) is_absent: bool,
    pub(crate) why: String,
}

const ALL: [State; 5] = [State::None, State::In, State::Filling, State::Leaving, State::Out];

impl Member {
    pub(crate) fn new(listed: &Listed) -> Member {
        Member {
            id: listed.id,
            root: listed.root.clone(),
            metadata: AtomicU8::new(listed.metadata as u8),
            data: AtomicU8::new(listed.data as u8),
            epoch: AtomicU64::new(0),
            left: AtomicU64::new(listed.left),
            suspect: AtomicBool::new(false),
            lost: Mutex::new(listed.failed.then(|| Lost {
                is_absent: false,
                why: "it met an error before the last start; `margay disk add` fills it again".to_owned(),
            })),
        }
    }

    pub(crate) fn listed(&self) -> Listed {
        let (metadata, data) = (self.state(Class::Metadata), self.state(Class::Data));
        let left = if self.is_out() { self.left() } else { 0 };
        let failed = left > 0 && self.lost().is_some_and(|lost| !lost.is_absent);
        Listed { id: self.id, metadata, data, left, failed, root: self.root.clone() }
    }

    fn role(&self, class: Class) -> &AtomicU8 {
        if class == Class::Data { &self.data } else { &self.metadata }
    }

    pub(crate) fn state(&self, class: Class) -> State {
        ALL.get(usize::from(self.role(class).load(Ordering::SeqCst))).copied().unwrap_or_default()
    }

    pub(crate) fn set(&self, class: Class, state: State) {
        self.role(class).store(state as u8, Ordering::SeqCst);
    }

    pub(crate) fn is_living(&self) -> bool {
        self.state(Class::Metadata).is_living() || self.state(Class::Data).is_living()
    }

    pub(crate) fn is_out(&self) -> bool {
        self.state(Class::Metadata) == State::Out || self.state(Class::Data) == State::Out
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::SeqCst)
    }

    pub(crate) fn left(&self) -> u64 {
        self.left.load(Ordering::SeqCst)
    }

    /// Takes it out of all of its roles; the list of generation `at` says so first. Who is out already left before.
    pub(crate) fn leave(&self, lost: Lost, at: u64) {
        let was_out = self.is_out();
        if !was_out {
            self.left.store(at, Ordering::SeqCst);
        }
        self.epoch.fetch_add(1, Ordering::SeqCst);
        for class in [Class::Metadata, Class::Data] {
            if self.state(class) != State::None {
                self.set(class, State::Out);
            }
        }
        let mut known = self.lost.lock();
        // An error of before is not forgotten because its directory is not there, too.
        if !was_out || known.is_none() {
            *known = Some(lost);
        }
    }

    pub(crate) fn lost(&self) -> Option<Lost> {
        self.lost.lock().clone()
    }

    pub(crate) fn forgive(&self) {
        *self.lost.lock() = None;
        self.suspect.store(false, Ordering::Relaxed);
    }

    pub(crate) fn path(&self, name: &Path) -> PathBuf {
        self.root.join(name)
    }
}

/// Errors of the numbers of open files and of memory, which say nothing about a disk.
const NOT_OF_A_DISK: [i32; 3] = [12, 23, 24];

/// Whether an error says that the disk has failed, and not that it is full or that the call was wrong.
pub(crate) fn is_fault(error: &io::Error) -> bool {
    use io::ErrorKind::*;
    let refused = matches!(
        error.kind(),
        StorageFull
            | QuotaExceeded
            | FileTooLarge
            | Unsupported
            | InvalidInput
            | AlreadyExists
            | WouldBlock
            | Interrupted
    );
    !refused && !error.raw_os_error().is_some_and(|number| NOT_OF_A_DISK.contains(&number))
}

/// The same error again; its source stays with the first one.
pub(crate) fn again(error: &io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(number) => io::Error::from_raw_os_error(number),
        None => io::Error::new(error.kind(), error.to_string()),
    }
}
