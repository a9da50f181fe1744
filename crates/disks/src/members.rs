//! The members of a volume, and the list that says who is trusted.
//!
//! Why:        one failed disk must neither stop the volume nor later be taken for the truth.
//! Invariants: O1 once a member is out, nothing that it lacks is acknowledged before the list in another directory says so.
//!             O2 the last directory with all metadata is never taken out: its errors go to the caller.
//!             O3 when the list can be written nowhere, nothing is acknowledged any more.
//! Locking:    order: the catalogue's `round` and `names`, an entry's `inner`, `record`; `all` is a leaf.
//! Durability: the list is replaced as a whole and synced, in each directory of metadata.
//! Not here:   files (catalogue), calls of the port (layer, file), copying (fill).

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use margay_env::{Env, files};
use parking_lot::{Condvar, Mutex, RwLock};

use crate::class::{Class, RECORD_FILE};
use crate::member::{Lost, Member, again, is_fault};
use crate::record::{Record, State};

#[derive(Debug)]
pub(crate) struct Members {
    /// The ports below.
    pub(crate) env: Env,
    /// The data directory by which callers name files.
    pub(crate) root: PathBuf,
    pub(crate) volume: u128,
    pub(crate) all: RwLock<Vec<Arc<Member>>>,
    pub(crate) copies: AtomicU32,
    /// The newest list that is durable.
    pub(crate) record: Mutex<Record>,
    /// Members that are out and not yet listed so.
    unsettled: AtomicU64,
    /// The newest list found no room.
    pending: AtomicBool,
    dead: OnceLock<String>,
    pub(crate) wake: (Mutex<bool>, Condvar),
}

impl Members {
    pub(crate) fn new(env: Env, root: PathBuf, record: Record, members: Vec<Arc<Member>>) -> Members {
        Members {
            env,
            root,
            volume: record.volume,
            all: RwLock::new(members),
            copies: AtomicU32::new(record.copies),
            record: Mutex::new(record),
            unsettled: AtomicU64::new(0),
            pending: AtomicBool::new(false),
            dead: OnceLock::new(),
            wake: (Mutex::new(false), Condvar::new()),
        }
    }

    pub(crate) fn members(&self) -> Vec<Arc<Member>> {
        self.all.read().clone()
    }

    /// Members that get what is written of this class.
    pub(crate) fn living(&self, class: Class) -> Vec<Arc<Member>> {
        self.all.read().iter().filter(|member| member.state(class).is_living()).cloned().collect()
    }

    pub(crate) fn copies_wanted(&self, class: Class) -> usize {
        match class {
            Class::Data => self.copies.load(Ordering::Relaxed) as usize,
            _ => self.all.read().iter().filter(|member| member.state(class) != State::None).count(),
        }
    }

    pub(crate) fn wake(&self) {
        *self.wake.0.lock() = true;
        self.wake.1.notify_all();
    }

    /// A read failed there: others are read first, and the disk is looked at.
    pub(crate) fn suspect(&self, member: &Arc<Member>, name: &Path, error: &io::Error) {
        if !member.suspect.swap(true, Ordering::Relaxed) {
            let (disk, file) = (member.root.display(), name.display());
            tracing::warn!(%disk, %file, %error, "a read failed; another copy is read where there is one");
            self.wake();
        }
    }

    /// Waits until everybody who is out is listed so.
    pub(crate) fn settled(&self) -> io::Result<()> {
        if self.unsettled.load(Ordering::SeqCst) > 0 {
            drop(self.record.lock());
        }
        if self.pending.load(Ordering::SeqCst) {
            let mut record = self.record.lock();
            if self.pending.load(Ordering::SeqCst) {
                self.store_record(&mut record)?;
            }
        }
        self.check_dead()
    }

    fn check_dead(&self) -> io::Result<()> {
        match self.dead.get() {
            Some(why) => Err(io::Error::other(why.clone())),
            None => Ok(()),
        }
    }

    /// Neither read nor written from now on; an error if nobody else has what it has.
    pub(crate) fn take_out(&self, member: &Arc<Member>, error: &io::Error) -> io::Result<()> {
        self.unsettled.fetch_add(1, Ordering::SeqCst);
        let done = {
            let mut record = self.record.lock();
            self.take_out_within(&mut record, member, error)
        };
        self.unsettled.fetch_sub(1, Ordering::SeqCst);
        self.wake();
        done
    }

    fn take_out_within(&self, record: &mut Record, member: &Arc<Member>, error: &io::Error) -> io::Result<()> {
        if !member.is_living() {
            return self.check_dead();
        }
        if self.is_last(member) {
            return Err(again(error));
        }
        let is_absent = error.kind() == io::ErrorKind::NotFound;
        member.leave(Lost { is_absent, why: error.to_string() }, record.generation + 1);
        tracing::error!(
            disk = %member.root.display(), %error,
            "this disk is out: everything goes on without it; replace it, then `margay disk add {}`", member.root.display()
        );
        self.store_record(record)
    }

    /// Whether nobody else has what it has.
    pub(crate) fn is_last(&self, member: &Arc<Member>) -> bool {
        let members = self.all.read();
        let other = |class| {
            members
                .iter()
                .any(|other| other.id != member.id && matches!(other.state(class), State::In | State::Leaving))
        };
        match member.state(Class::Metadata) {
            State::In => !other(Class::Metadata),
            State::None | State::Out => !other(Class::Data),
            State::Filling | State::Leaving => false,
        }
    }

    /// Writes the list as it is now, with the next generation.
    pub(crate) fn store_record(&self, record: &mut Record) -> io::Result<()> {
        // It may take somebody out: who syncs meanwhile waits until that is listed.
        self.unsettled.fetch_add(1, Ordering::SeqCst);
        let stored = self.write_record(record);
        self.unsettled.fetch_sub(1, Ordering::SeqCst);
        stored
    }

    fn write_record(&self, record: &mut Record) -> io::Result<()> {
        self.check_dead()?;
        loop {
            let members = self.members();
            record.generation += 1;
            record.copies = self.copies.load(Ordering::Relaxed);
            record.members = members.iter().map(|member| member.listed()).collect();
            let (mut written, mut failed) = (0, None);
            // First where it is trusted: elsewhere alone it would be a list whose own directory has not everything.
            let mut living: Vec<_> =
                members.iter().filter(|member| member.state(Class::Metadata).is_living()).collect();
            living.sort_by_key(|member| member.state(Class::Metadata) != State::In);
            for member in living {
                let is_trusted = member.state(Class::Metadata) == State::In;
                if !is_trusted && written == 0 && failed.is_some() {
                    break;
                }
                match files::write_new(&self.env, &member.path(Path::new(RECORD_FILE)), &record.encode()) {
                    Ok(()) => written += usize::from(is_trusted),
                    Err(error) => failed = Some((member, error)),
                }
            }
            let Some((member, error)) = failed else {
                self.pending.store(false, Ordering::SeqCst);
                return Ok(());
            };
            if written == 0 && !is_fault(&error) {
                // Without room: it is tried again before anything is acknowledged.
                self.pending.store(true, Ordering::SeqCst);
                return Err(error);
            }
            if written == 0 {
                let why = format!("the list of disks could be written nowhere: {error}");
                // The first reason is kept.
                let _ = self.dead.set(why);
                return self.check_dead();
            }
            tracing::error!(disk = %member.root.display(), %error, "this disk is out: the list of disks could not be written");
            let is_absent = error.kind() == io::ErrorKind::NotFound;
            member.leave(Lost { is_absent, why: error.to_string() }, record.generation + 1);
        }
    }
}
