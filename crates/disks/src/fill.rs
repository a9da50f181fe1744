//! Fills members again, beside all other work.
//!
//! Invariants: F1 a copy gets all that is written from the moment that it is listed, and is read only once all earlier bytes
//!                are in it and it is durable with its name.
//!             F2 nothing that a member had before it was out is trusted: its page cache may show what its disk lacks.
//!             F3 a copy that moves is removed only when as many others are complete as are wanted.
//! Locking:    a piece is copied with the entry's `inner` held exclusively.
//! Not here:   when a member comes back (admit), when this runs (filler).

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use margay_env::{File, OpenMode};

use crate::catalogue::Catalogue;
use crate::class::{Class, DATA_FOLDER, FILLING, FOLDERS};
use crate::entry::{Copy, Entry, Inner};
use crate::member::{Member, is_fault};
use crate::record::State;

/// Bytes that are copied at once, while writers of the file wait.
const PIECE_BYTES: u64 = 1 << 20;

/// A copy that is to be made.
struct Job {
    entry: Arc<Entry>,
    target: Arc<Member>,
}

impl Catalogue {
    /// Makes the copies that are missing now, of all classes or of one; returns whether some could not be made.
    pub(crate) fn fill_once(&self, only: Option<Class>) -> bool {
        let _round = self.round.lock();
        self.promote();
        let mut all_made = true;
        let mut jobs = self.missing();
        jobs.retain(|job| only.is_none_or(|class| job.entry.class == class));
        if !jobs.is_empty() {
            let bytes = |job: &Job| job.entry.read(self, |file| file.allocated_bytes()).unwrap_or(0);
            let total_bytes = jobs.iter().map(bytes).sum();
            {
                let mut progress = self.progress.lock();
                progress.since = Some(self.env.clock.monotonic());
                (progress.done_bytes, progress.total_bytes) = (0, total_bytes);
                progress.files_left = jobs.len() as u64;
            }
            tracing::info!(files = jobs.len(), bytes = total_bytes, "copies that are missing are being made");
            for job in jobs {
                if self.stopping.load(Ordering::SeqCst) {
                    return true;
                }
                all_made &= self.make(&job);
            }
            self.end_round();
        }
        if all_made {
            self.complete_members();
        }
        self.drop_doubtful();
        self.drain();
        !all_made
    }

    fn make(&self, job: &Job) -> bool {
        let result = self.copy_file(&job.entry, &job.target);
        let mut progress = self.progress.lock();
        progress.files_left = progress.files_left.saturating_sub(1);
        match result {
            Ok(()) => progress.copied_files += 1,
            Err(error) => {
                progress.failed_files += 1;
                let (disk, file) = (job.target.root.display(), job.entry.inner.read().name.clone());
                tracing::warn!(%disk, file = %file.display(), %error, "a copy could not be made; it is tried again");
            }
        }
        job.target.is_living() && job.entry.inner.read().copies.iter().any(|copy| copy.is_readable(job.entry.class))
    }

    fn end_round(&self) {
        let mut progress = self.progress.lock();
        let since = progress.since.take().unwrap_or_default();
        let seconds = (self.env.clock.monotonic().saturating_sub(since)).as_secs_f64().max(0.001);
        tracing::info!(
            bytes = progress.done_bytes,
            seconds,
            mib_per_second = progress.done_bytes as f64 / seconds / f64::from(1 << 20),
            "the missing copies are made"
        );
    }

    /// Files with fewer copies than wanted, and who gets one.
    fn missing(&self) -> Vec<Job> {
        let entries: Vec<Arc<Entry>> = self.names.lock().entries.values().cloned().collect();
        let (metadata, data) = (self.living(Class::Metadata), self.living(Class::Data));
        let wanted = self.copies_wanted(Class::Data);
        let mut jobs = Vec::new();
        for entry in entries {
            let inner = entry.inner.read();
            let has = |member: &Arc<Member>| {
                inner.copies.iter().any(|copy| copy.member.id == member.id && copy.is_readable(entry.class))
            };
            let lacking = match entry.class {
                Class::Data => {
                    let count = wanted.saturating_sub(inner.whole(Class::Data));
                    let mut others: Vec<_> =
                        data.iter().filter(|member| member.state(Class::Data) == State::In).collect();
                    others.retain(|member| !has(member));
                    let free =
                        |member: &&Arc<Member>| self.env.disk.space(&member.root).map_or(0, |space| space.free_bytes);
                    if count > 0 {
                        others.sort_by_cached_key(|member| std::cmp::Reverse(free(member)));
                    }
                    others.into_iter().take(count).collect::<Vec<_>>()
                }
                _ => metadata.iter().filter(|member| !has(member)).collect(),
            };
            let lacking: Vec<Arc<Member>> = lacking.into_iter().cloned().collect();
            drop(inner);
            jobs.extend(lacking.into_iter().map(|target| Job { entry: Arc::clone(&entry), target }));
        }
        jobs
    }

    fn copy_file(&self, entry: &Arc<Entry>, target: &Arc<Member>) -> io::Result<()> {
        let partial = partial_name(&entry.inner.read().name);
        let path = target.path(&partial);
        let made = self.copy_to(entry, target, &path);
        if let Err(error) = &made {
            let mut inner = entry.inner.write();
            inner.copies.retain(|copy| copy.member.id != target.id || copy.complete);
            if error.kind() == io::ErrorKind::StorageFull && inner.readable(entry.class) > 0 {
                // The next round has the room of the old copy.
                self.remove_doubtful(&mut inner, |member| member.id == target.id);
            }
            drop(inner);
            // What stays is removed when the volume is opened.
            let _ = self.env.disk.remove(&path);
        }
        made
    }

    fn copy_to(&self, entry: &Arc<Entry>, target: &Arc<Member>, path: &Path) -> io::Result<()> {
        let _open = Held::new(entry);
        entry.read(self, |_| Ok(()))?;
        let file = self.env.disk.open(path, OpenMode::OpenOrCreate)?;
        file.set_len(0)?;
        {
            let mut inner = entry.inner.write();
            let reserved = if entry.class == Class::Metadata { self.source(&inner, entry.class)?.len()? } else { 0 };
            // Room that the log has reserved must be there also in its copy.
            if reserved > 0 {
                file.allocate(0, reserved)?;
            }
            inner.copies.retain(|copy| copy.member.id != target.id || copy.doubt.is_some());
            inner.copies.push(Copy::new(target, false, Some(Arc::clone(&file))));
        }
        let mut at = 0;
        let mut piece = vec![0; PIECE_BYTES as usize];
        loop {
            if self.stopping.load(Ordering::SeqCst) {
                return Err(io::Error::new(io::ErrorKind::Interrupted, "the server stops"));
            }
            let count = self.copy_piece(entry, target, &mut piece, at)?;
            if count == 0 {
                break;
            }
            at += count;
            let mut progress = self.progress.lock();
            progress.done_bytes += count;
            progress.copied_bytes += count;
        }
        // The bulk, while others may write.
        file.sync_data()?;
        self.complete(entry, target, path, &file)
    }

    /// Returns the bytes copied, 0 at the end. Writers wait.
    fn copy_piece(&self, entry: &Entry, target: &Arc<Member>, piece: &mut [u8], at: u64) -> io::Result<u64> {
        let inner = entry.inner.write();
        check_wanted(&inner, entry.class, target)?;
        let copy = inner.copies.iter().find(|copy| copy.member.id == target.id && !copy.complete);
        let file = copy.filter(|_| !inner.removed).and_then(|copy| copy.file.get());
        let file = file.ok_or_else(|| io::Error::other("it is no longer wanted"))?;
        let len = self.source(&inner, entry.class)?.len()?.saturating_sub(at);
        let count = usize::try_from(len).unwrap_or(usize::MAX).min(piece.len());
        let bytes = &mut piece[..count];
        self.read_somewhere(&inner, entry.class, bytes, at)?;
        let bytes = &*bytes;
        // The new file has zeros by itself, and holes stay holes; its length is set at the end.
        if bytes.iter().any(|byte| *byte != 0) {
            file.write_all_at(bytes, at)?;
        }
        Ok(count as u64)
    }

    /// The copy that is right; if there is none, the newest one of payload, which has checksums of its own.
    fn source(&self, inner: &Inner, class: Class) -> io::Result<Arc<dyn File>> {
        let open = inner.copies.iter().find(|copy| copy.is_readable(class) && copy.file.get().is_some());
        let right = open.or_else(|| inner.copies.iter().find(|copy| copy.is_readable(class)));
        let last_resort = || self.best_of_doubtful(inner).filter(|_| class == Class::Data);
        let copy = right.or_else(last_resort);
        let copy = copy.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "no copy can be read"))?;
        copy.file(&*self.env.disk, &inner.name)
    }

    /// Reads from the source, and where that fails from another copy; from one that does not count only payload.
    fn read_somewhere(&self, inner: &Inner, class: Class, bytes: &mut [u8], at: u64) -> io::Result<()> {
        let failed = match self.source(inner, class)?.read_exact_at(bytes, at) {
            Ok(()) => return Ok(()),
            Err(error) => error,
        };
        let mut others: Vec<&Copy> = inner.copies.iter().filter(|copy| copy.complete).collect();
        // Instead of a sector of a right copy that cannot be read an old one is better than none: payload has checksums.
        let may_be_old = class == Class::Data && inner.readable(class) > 0;
        others.retain(|copy| may_be_old || copy.is_readable(class));
        others.sort_by_key(|copy| (!copy.is_readable(class), std::cmp::Reverse(copy.left())));
        for copy in others {
            let file = copy.file(&*self.env.disk, &inner.name);
            if file.and_then(|file| file.read_exact_at(bytes, at)).is_ok() {
                let (disk, file) = (copy.member.root.display(), inner.name.display());
                tracing::error!(%disk, %file, at, error = %failed, "a copy cannot be read; its bytes are taken from this disk");
                return Ok(());
            }
        }
        Err(failed)
    }

    /// Gives the copy its name, makes all of it durable, and lets it be read.
    fn complete(&self, entry: &Entry, target: &Arc<Member>, path: &Path, file: &Arc<dyn File>) -> io::Result<()> {
        // No name changes from here on.
        let names = self.names.lock();
        let mut inner = entry.inner.write();
        if inner.removed {
            return Err(io::Error::other("it was removed meanwhile"));
        }
        check_wanted(&inner, entry.class, target)?;
        let len = self.source(&inner, entry.class)?.len()?;
        if file.len()? != len {
            file.set_len(len)?;
        }
        file.sync_data()?;
        let name = inner.name.clone();
        let folder = target.path(name.parent().unwrap_or(Path::new("")));
        let renamed = self.env.disk.rename(path, &target.path(&name));
        let named = renamed.and_then(|()| self.env.disk.sync_dir(&folder));
        if let Err(error) = named.and_then(|()| check_wanted(&inner, entry.class, target)) {
            self.withdraw(target, &name, &error);
            return Err(error);
        }
        let is_new = |copy: &&mut Copy| copy.member.id == target.id && !copy.complete;
        inner.copies.iter_mut().filter(is_new).for_each(|copy| copy.complete = true);
        self.remove_doubtful(&mut inner, |member| member.id == target.id);
        drop(names);
        Ok(())
    }

    /// A copy that has its name and is not believed must not be found by the next start.
    fn withdraw(&self, target: &Arc<Member>, name: &Path, error: &io::Error) {
        let is_out = is_fault(error) && target.is_living() && self.take_out(target, error).is_ok();
        let path = target.path(name);
        let removed = self.env.disk.remove(&path).or_else(|error| match error.kind() {
            io::ErrorKind::NotFound => Ok(()),
            _ => Err(error),
        });
        let gone = removed.and_then(|()| self.env.disk.sync_dir(path.parent().unwrap_or(&target.root)));
        if let (false, Err(error)) = (is_out, gone) {
            // The last one stays: its errors go to who asks for more.
            let _ = self.take_out(target, &error);
        }
    }

    /// Members that have everything now are trusted again.
    fn complete_members(&self) {
        for member in self.members() {
            if member.state(Class::Metadata) != State::Filling {
                continue;
            }
            // No file comes between the look and the change.
            let names = self.names.lock();
            let has = |entry: &Arc<Entry>| {
                entry.class != Class::Metadata
                    || entry
                        .inner
                        .read()
                        .copies
                        .iter()
                        .any(|copy| copy.member.id == member.id && copy.is_readable(entry.class))
            };
            if !names.entries.values().all(has) {
                continue;
            }
            let synced = ["", FOLDERS[0], FOLDERS[1]]
                .iter()
                .try_for_each(|folder| self.env.disk.sync_dir(&member.path(Path::new(folder))));
            if let Err(error) = synced {
                // A member that is being filled is never the last one.
                let _ = self.take_out(&member, &error);
                continue;
            }
            let mut record = self.record.lock();
            if member.state(Class::Metadata) == State::Filling {
                member.set(Class::Metadata, State::In);
                if let Err(error) = self.store_record(&mut record) {
                    tracing::error!(%error, "the list of disks could not be written");
                }
                tracing::info!(disk = %member.root.display(), "this directory has all metadata now");
            }
        }
    }

    /// Removes copies that have moved, and members that have nothing left.
    fn drain(&self) {
        let leaving: Vec<Arc<Member>> =
            self.members().into_iter().filter(|member| member.state(Class::Data) == State::Leaving).collect();
        for member in leaving {
            let (mut left, mut removed) = (0, 0);
            let names = self.names.lock();
            for entry in names.entries.values().filter(|entry| entry.class == Class::Data) {
                let mut inner = entry.inner.write();
                if !inner.copies.iter().any(|copy| copy.member.id == member.id) {
                    continue;
                }
                if inner.whole(Class::Data) < self.copies_wanted(Class::Data) {
                    left += 1;
                    continue;
                }
                let (gone, kept) =
                    std::mem::take(&mut inner.copies).into_iter().partition(|copy| copy.member.id == member.id);
                inner.copies = kept;
                let gone: Vec<Copy> = gone;
                removed += gone.len();
                // One that stays is removed when this directory gets payload again.
                gone.iter().for_each(|copy| drop(self.env.disk.remove(&copy.path(&inner.name))));
            }
            drop(names);
            if removed > 0
                && let Err(error) = self.env.disk.sync_dir(&member.path(Path::new(DATA_FOLDER)))
            {
                let _ = self.take_out(&member, &error);
                continue;
            }
            if left == 0 {
                self.dismiss(&member);
            }
        }
    }

    fn dismiss(&self, member: &Arc<Member>) {
        let mut record = self.record.lock();
        member.set(Class::Data, State::None);
        if member.state(Class::Metadata) == State::None {
            self.all.write().retain(|other| other.id != member.id);
        }
        match self.store_record(&mut record) {
            Ok(()) => tracing::info!(disk = %member.root.display(), "all payload has moved away from here"),
            Err(error) => tracing::error!(%error, "the list of disks could not be written"),
        }
    }
}

/// The copy that is being made has met no error, and its disk neither.
fn check_wanted(inner: &Inner, class: Class, target: &Member) -> io::Result<()> {
    let copy = inner.copies.iter().find(|copy| copy.member.id == target.id && !copy.complete);
    match copy {
        Some(copy) if copy.counts(class) => Ok(()),
        Some(_) => Err(io::Error::other("it met an error")),
        None => Err(io::Error::other("it is no longer wanted")),
    }
}

fn partial_name(name: &Path) -> PathBuf {
    let mut name = name.to_owned().into_os_string();
    name.push(FILLING);
    name.into()
}

/// Keeps the files of an entry open.
struct Held<'a>(&'a Entry);

impl Held<'_> {
    fn new(entry: &Entry) -> Held<'_> {
        entry.hold();
        Held(entry)
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.let_go();
    }
}
