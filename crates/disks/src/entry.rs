//! One file and its copies.
//!
//! Invariants: E1 what is written goes to each copy that counts, or its member is out before the writer goes on.
//!             E2 a copy is read only once it is complete, and only of its member's own epoch.
//!             E3 a copy is added while nobody writes, so none of them misses a write that another one has.
//! Locking:    `inner` is held shared while a file is read or written, and exclusively while copies or the name change. Under
//!             it only `Members::take_out` is called. It is taken after the catalogue's `names`.
//! Not here:   which members get a copy (layer, fill).

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use margay_env::{Disk, File, OpenMode};
use parking_lot::RwLock;

use crate::class::{Class, doubtful_name};
use crate::member::{Member, again, is_fault};
use crate::members::Members;
use crate::record::State;

#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) class: Class,
    pub(crate) inner: RwLock<Inner>,
    /// Which copy is read first: files spread over disks.
    first: AtomicUsize,
}

#[derive(Debug)]
pub(crate) struct Inner {
    /// From the data directory.
    pub(crate) name: PathBuf,
    pub(crate) copies: Vec<Copy>,
    pub(crate) handles: usize,
    pub(crate) removed: bool,
}

/// Where something is synced.
type Target = (Arc<Member>, io::Result<Arc<dyn File>>);

#[derive(Debug)]
pub(crate) struct Copy {
    pub(crate) member: Arc<Member>,
    pub(crate) epoch: u64,
    pub(crate) complete: bool,
    /// When its disk left: it is from before that, has a name of its own, and is asked last.
    pub(crate) doubt: Option<u64>,
    /// A copy that is being made met an error.
    pub(crate) broken: AtomicBool,
    pub(crate) file: OnceLock<Arc<dyn File>>,
}

impl Copy {
    pub(crate) fn new(member: &Arc<Member>, complete: bool, file: Option<Arc<dyn File>>) -> Copy {
        Copy {
            member: Arc::clone(member),
            epoch: member.epoch(),
            complete,
            doubt: None,
            broken: AtomicBool::new(false),
            file: file.map_or_else(OnceLock::new, OnceLock::from),
        }
    }

    pub(crate) fn doubtful(member: &Arc<Member>, left: u64) -> Copy {
        Copy { doubt: Some(left), ..Copy::new(member, true, None) }
    }

    /// When its disk left: a copy of a disk that left later is newer.
    pub(crate) fn left(&self) -> u64 {
        self.doubt.unwrap_or_else(|| self.member.left())
    }

    pub(crate) fn path(&self, name: &Path) -> PathBuf {
        match self.doubt {
            Some(left) => self.member.path(&doubtful_name(name, left)),
            None => self.member.path(name),
        }
    }

    /// It gets what is written.
    pub(crate) fn counts(&self, class: Class) -> bool {
        self.doubt.is_none()
            && self.epoch == self.member.epoch()
            && self.member.state(class).is_living()
            && !self.broken.load(Ordering::Relaxed)
    }

    pub(crate) fn is_readable(&self, class: Class) -> bool {
        self.complete && self.counts(class)
    }

    pub(crate) fn file(&self, disk: &dyn Disk, name: &Path) -> io::Result<Arc<dyn File>> {
        if let Some(file) = self.file.get() {
            return Ok(Arc::clone(file));
        }
        let path = self.path(name);
        let opened = disk.open(&path, OpenMode::ReadWrite).or_else(|error| match error.kind() {
            // A disk that has failed is often still readable.
            io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied => disk.open(&path, OpenMode::Read),
            _ => Err(error),
        })?;
        Ok(Arc::clone(self.file.get_or_init(|| opened)))
    }
}

impl Inner {
    /// Complete copies on members that stay.
    pub(crate) fn whole(&self, class: Class) -> usize {
        let stays = |copy: &&Copy| copy.is_readable(class) && copy.member.state(class) != State::Leaving;
        self.copies.iter().filter(stays).count()
    }

    pub(crate) fn readable(&self, class: Class) -> usize {
        self.copies.iter().filter(|copy| copy.is_readable(class)).count()
    }
}

impl Entry {
    pub(crate) fn new(class: Class, name: PathBuf, copies: Vec<Copy>, first: usize) -> Entry {
        let inner = RwLock::new(Inner { name, copies, handles: 0, removed: false });
        Entry { class, inner, first: AtomicUsize::new(first) }
    }

    /// Runs `op` on readable copies until one succeeds. Copies of members that are out are asked last, and only for payload,
    /// which has checksums of its own.
    pub(crate) fn read<T>(&self, members: &Members, op: impl Fn(&dyn File) -> io::Result<T>) -> io::Result<T> {
        let inner = self.inner.read();
        let first = self.first.load(Ordering::Relaxed);
        let mut error = None;
        for rank in 0..4 {
            let count = inner.copies.len();
            for copy in (0..count).map(|index| &inner.copies[(index + first) % count]) {
                if self.rank(copy) != Some(rank) {
                    continue;
                }
                match copy.file(&*members.env.disk, &inner.name).and_then(|file| op(&*file)) {
                    Ok(value) => return Ok(value),
                    Err(refused) if !is_fault(&refused) || refused.kind() == io::ErrorKind::UnexpectedEof => {
                        return Err(refused);
                    }
                    Err(failed) => {
                        members.suspect(&copy.member, &inner.name, &failed);
                        error.get_or_insert(failed);
                    }
                }
            }
        }
        Err(error.unwrap_or_else(|| io::Error::new(io::ErrorKind::NotFound, "no disk has a copy of this file")))
    }

    /// The order in which copies are asked; `None`: never.
    fn rank(&self, copy: &Copy) -> Option<u8> {
        let suspect = u8::from(copy.member.suspect.load(Ordering::Relaxed));
        match copy.is_readable(self.class) {
            true => Some(suspect),
            false if self.class == Class::Data && copy.complete => Some(2 + suspect),
            false => None,
        }
    }

    /// One of the readable copies by its number.
    pub(crate) fn copy(&self, members: &Members, index: usize) -> Option<Arc<dyn File>> {
        let inner = self.inner.read();
        let copy = inner.copies.iter().filter(|copy| copy.is_readable(self.class)).nth(index)?;
        copy.file(&*members.env.disk, &inner.name).ok()
    }

    /// Changes each copy that counts.
    pub(crate) fn change(&self, members: &Members, op: impl Fn(&dyn File) -> io::Result<()>) -> io::Result<()> {
        let inner = self.inner.read();
        let mut outcome = Outcome::default();
        for copy in inner.copies.iter().filter(|copy| copy.counts(self.class)) {
            let result = copy.file(&*members.env.disk, &inner.name).and_then(|file| op(&*file));
            outcome.add(copy, result);
        }
        outcome.settle(members)
    }

    /// Makes each copy that counts durable, at the same time.
    pub(crate) fn sync(&self, members: &Members) -> io::Result<()> {
        // Not under the lock: a copy that is added meanwhile is synced by who adds it.
        let targets: Vec<Target> = {
            let inner = self.inner.read();
            let counting = inner.copies.iter().filter(|copy| copy.is_readable(self.class));
            counting.map(|copy| (Arc::clone(&copy.member), copy.file(&*members.env.disk, &inner.name))).collect()
        };
        let results = together(&targets, |(_, file)| match file {
            Ok(file) => file.sync_data(),
            Err(error) => Err(again(error)),
        });
        let mut outcome = Outcome::default();
        for ((member, _), result) in targets.iter().zip(results) {
            outcome.add_member(member, result);
        }
        outcome.settle(members)?;
        members.settled()
    }

    pub(crate) fn hold(&self) {
        self.inner.write().handles += 1;
    }

    /// The last handle closes the files.
    pub(crate) fn let_go(&self) {
        let mut inner = self.inner.write();
        inner.handles = inner.handles.saturating_sub(1);
        if inner.handles == 0 {
            inner.copies.iter_mut().filter(|copy| copy.complete).for_each(|copy| drop(copy.file.take()));
        }
    }
}

/// What became of a change at several copies.
#[derive(Default)]
pub(crate) struct Outcome {
    succeeded: usize,
    /// Not the fault of a disk: full, or refused.
    refused: Option<io::Error>,
    failed: Vec<(Arc<Member>, io::Error)>,
}

impl Outcome {
    pub(crate) fn add(&mut self, copy: &Copy, result: io::Result<()>) {
        if copy.complete {
            self.add_member(&copy.member, result);
        } else if let Err(error) = result {
            tracing::warn!(disk = %copy.member.root.display(), %error, "a copy that is being made has failed");
            copy.broken.store(true, Ordering::Relaxed);
        }
    }

    pub(crate) fn add_member(&mut self, member: &Arc<Member>, result: io::Result<()>) {
        match result {
            Ok(()) => self.succeeded += 1,
            Err(error) if !is_fault(&error) => self.refused = self.refused.take().or(Some(error)),
            Err(error) => self.failed.push((Arc::clone(member), error)),
        }
    }

    /// It lacks what another one has, whoever's fault that is.
    pub(crate) fn fail(&mut self, member: &Arc<Member>, error: io::Error) {
        self.failed.push((Arc::clone(member), error));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.succeeded == 0 && self.refused.is_none() && self.failed.is_empty()
    }

    /// Takes out who has failed; an error if somebody has failed who cannot be taken out, or nobody has succeeded.
    pub(crate) fn settle(self, members: &Members) -> io::Result<()> {
        let mut last = None;
        for (member, error) in self.failed {
            if let Err(error) = members.take_out(&member, &error) {
                last = Some(error);
            }
        }
        match (self.refused, last) {
            (Some(refused), _) if refused.kind() != io::ErrorKind::Unsupported || self.succeeded == 0 => Err(refused),
            // It lacks this and stays the truth: others that succeeded do not help.
            (_, Some(error)) => Err(error),
            (_, _) if self.succeeded > 0 => Ok(()),
            _ => Err(io::Error::new(io::ErrorKind::NotFound, "no disk has a copy of this file")),
        }
    }
}

/// Runs `work` for each item, at the same time if there are several.
pub(crate) fn together<T: Sync>(items: &[T], work: impl Fn(&T) -> io::Result<()> + Sync) -> Vec<io::Result<()>> {
    let [first, others @ ..] = items else { return Vec::new() };
    if others.is_empty() {
        return vec![work(first)];
    }
    let work = &work;
    std::thread::scope(|scope| {
        let start = |item| std::thread::Builder::new().spawn_scoped(scope, move || work(item));
        let started: Vec<_> = others.iter().map(start).collect();
        let mut results = vec![work(first)];
        let broke_off = |_| Err(io::Error::other("a sync broke off"));
        results.extend(started.into_iter().zip(others).map(|(thread, item)| match thread {
            Ok(thread) => thread.join().unwrap_or_else(broke_off),
            // Without a thread they run one after the other.
            Err(_) => work(item),
        }));
        results
    })
}
