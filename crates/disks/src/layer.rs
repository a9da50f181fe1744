//! The port of a disk over several directories.
//!
//! Invariants: L1 a path outside the data directory, and a file of the process, is handed through.
//!             L2 a file is listed, opened, renamed and removed by what is known of it, and not by what one directory shows.
//! Locking:    `names` is held while names change.
//! Not here:   bytes (file, entry).

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use margay_env::{DirEntry, Disk, File, LockHandle, OpenMode, Space};
use parking_lot::MutexGuard;

use crate::catalogue::{Catalogue, Names};
use crate::class::{Class, DATA_FOLDER, FOLDERS, class};
use crate::entry::{Copy, Entry, Outcome, together};
use crate::file::CopiedFile;
use crate::member::{Member, is_fault};
use crate::record::State;

#[derive(Debug)]
pub(crate) struct Layer(pub(crate) Arc<Catalogue>);

/// A path as the layer sees it.
enum Place {
    Outside,
    /// A file with copies, from the data directory.
    Copied(PathBuf, Class),
    /// The data directory (empty) or a folder with copies.
    Folder(PathBuf),
}

impl Layer {
    fn place(&self, path: &Path) -> Place {
        let Ok(name) = path.strip_prefix(&self.0.root) else { return Place::Outside };
        match class(name) {
            Class::Local if name.as_os_str().is_empty() || FOLDERS.iter().any(|folder| name == Path::new(folder)) => {
                Place::Folder(name.to_owned())
            }
            Class::Local => Place::Outside,
            class => Place::Copied(name.to_owned(), class),
        }
    }

    fn disk(&self) -> &dyn Disk {
        &*self.0.env.disk
    }

    /// Members for a new file, best first; more than are needed, for those that fail.
    fn candidates(&self, class: Class) -> Vec<Arc<Member>> {
        let mut members = self.0.living(class);
        if class == Class::Data {
            members.retain(|member| member.state(class) == State::In);
            // Disks with about the same room take turns.
            let turn = self.0.turn.fetch_add(1, Ordering::Relaxed);
            let count = members.len().max(1);
            members.rotate_left(turn % count);
            let free = |member: &Arc<Member>| self.disk().space(&member.root).map_or(0, |space| space.free_bytes);
            members.sort_by_cached_key(|member| std::cmp::Reverse(free(member).ilog2_or_zero()));
        }
        members
    }

    fn create(&self, names: &mut MutexGuard<'_, Names>, name: PathBuf, class: Class) -> io::Result<Arc<Entry>> {
        let wanted = if class == Class::Data { self.0.copies_wanted(class) } else { usize::MAX };
        let (mut copies, mut outcome, mut full) = (Vec::new(), Outcome::default(), None);
        for member in self.candidates(class) {
            if copies.len() == wanted {
                break;
            }
            match self.make(&member.path(&name)) {
                Ok(file) => {
                    copies.push(Copy::new(&member, true, Some(file)));
                    outcome.add_member(&member, Ok(()));
                }
                // Another disk takes the copy.
                Err(error) if !is_fault(&error) => full = Some(error),
                Err(error) => outcome.add_member(&member, Err(error)),
            }
        }
        if let (true, Some(error)) = (copies.is_empty() || class == Class::Metadata, full) {
            copies.iter().for_each(|copy| drop(self.disk().remove(&copy.member.path(&name))));
            return Err(error);
        }
        if copies.is_empty() && outcome.is_empty() {
            return Err(io::Error::other("no disk is left for a new file"));
        }
        outcome.settle(&self.0)?;
        let first = self.0.turn.load(Ordering::Relaxed);
        names.removed.remove(&name);
        let entry = Arc::new(Entry::new(class, name.clone(), copies, first));
        names.entries.insert(name, Arc::clone(&entry));
        Ok(entry)
    }

    /// What is there under this name is of no known file.
    fn make(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        let file = self.disk().open(path, OpenMode::OpenOrCreate)?;
        if file.len()? > 0 {
            file.set_len(0)?;
        }
        Ok(file)
    }

    /// Changes the name of each copy that counts.
    fn rename_copies(&self, names: &mut MutexGuard<'_, Names>, from: &Path, to: &Path) -> io::Result<()> {
        let entry = names.entries.get(from).cloned().ok_or(io::ErrorKind::NotFound)?;
        let replaced = names.entries.get(to).cloned();
        {
            let mut inner = entry.inner.write();
            let counting = inner.copies.iter().filter(|copy| copy.complete && copy.counts(entry.class));
            let members: Vec<Arc<Member>> = counting.map(|copy| Arc::clone(&copy.member)).collect();
            self.change_names(&members, |member| self.disk().rename(&member.path(from), &member.path(to)))?;
            inner.name = to.to_owned();
            if let Some(replaced) = replaced {
                let mut old = replaced.inner.write();
                old.removed = true;
                let left = old.copies.iter().filter(|copy| !members.iter().any(|member| member.id == copy.member.id));
                // One that stays has no name that anybody knows.
                left.for_each(|copy| drop(self.disk().remove(&copy.member.path(to))));
            }
        }
        names.entries.remove(from);
        names.entries.insert(to.to_owned(), entry);
        self.note_removed(names, from);
        Ok(())
    }

    fn remove_copies(&self, names: &mut MutexGuard<'_, Names>, name: &Path) -> io::Result<()> {
        let entry = names.entries.get(name).cloned().ok_or(io::ErrorKind::NotFound)?;
        let mut inner = entry.inner.write();
        let counting = inner.copies.iter().filter(|copy| copy.is_readable(entry.class));
        let members: Vec<Arc<Member>> = counting.map(|copy| Arc::clone(&copy.member)).collect();
        if !members.is_empty() {
            self.change_names(&members, |member| match self.disk().remove(&member.path(name)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                other => other,
            })?;
        }
        inner.removed = true;
        self.0.remove_doubtful(&mut inner, |_| true);
        drop(inner);
        names.entries.remove(name);
        self.note_removed(names, name);
        Ok(())
    }

    /// Changes a name on each member, first on the one that cannot be taken out: while nobody has changed it, an error
    /// changes nothing; behind that, who has not is out, for whatever reason.
    fn change_names(&self, members: &[Arc<Member>], op: impl Fn(&Member) -> io::Result<()>) -> io::Result<()> {
        let mut members = members.to_vec();
        members.sort_by_key(|member| !self.0.is_last(member));
        let (mut outcome, mut is_changed) = (Outcome::default(), false);
        for member in &members {
            match op(member) {
                Err(error) if !is_changed && (!is_fault(&error) || self.0.is_last(member)) => {
                    self.0.differ.store(true, Ordering::Relaxed);
                    // The error of the call counts; who failed before it is out.
                    let _ = outcome.settle(&self.0);
                    return Err(error);
                }
                Err(error) => outcome.fail(member, error),
                Ok(()) => {
                    is_changed = true;
                    outcome.add_member(member, Ok(()));
                }
            }
        }
        outcome.settle(&self.0).inspect_err(|_| self.0.differ.store(true, Ordering::Relaxed))
    }

    /// A disk that is out may still have it.
    fn note_removed(&self, names: &mut MutexGuard<'_, Names>, name: &Path) {
        if class(name) == Class::Data && self.0.members().iter().any(|member| member.is_out()) {
            names.removed.insert(name.to_owned());
        }
    }

    fn list_copied(&self, folder: &Path, entries: &mut Vec<DirEntry>) -> io::Result<()> {
        let mut found = std::collections::BTreeMap::<String, DirEntry>::new();
        let names = self.0.names.lock();
        for member in self.0.members().iter().filter(|member| member.is_living()) {
            let listed = match self.disk().list(&member.path(folder)) {
                Ok(listed) => listed,
                Err(error) if is_fault(&error) => {
                    self.0.suspect(member, folder, &error);
                    continue;
                }
                Err(error) => return Err(error),
            };
            for entry in listed.into_iter().filter(|entry| !entry.is_dir) {
                let Some(known) = names.entries.get(&folder.join(&entry.name)) else { continue };
                let inner = known.inner.read();
                if !inner.copies.iter().any(|copy| copy.member.id == member.id && copy.is_readable(known.class)) {
                    continue;
                }
                let kept = found.entry(entry.name.clone()).or_insert_with(|| entry.clone());
                kept.len = kept.len.max(entry.len);
            }
        }
        for name in names.entries.keys().filter(|name| name.parent() == Some(folder)) {
            let Some(name) = name.file_name().map(|name| name.to_string_lossy().into_owned()) else { continue };
            if !found.contains_key(&name) {
                // Its only copies are on disks that are out.
                entries.push(DirEntry { name, is_dir: false, len: 0, used_bytes: 0 });
            }
        }
        entries.extend(found.into_values());
        Ok(())
    }

    /// Members that have this folder, of each class.
    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        let is_data = folder == Path::new(DATA_FOLDER);
        let members: Vec<Arc<Member>> = self
            .0
            .members()
            .into_iter()
            .filter(|member| {
                let is_living = |class| member.state(class).is_living();
                is_living(Class::Metadata) || (is_data && is_living(Class::Data))
            })
            .collect();
        let results = together(&members, |member| self.disk().sync_dir(&member.path(folder)));
        let mut outcome = Outcome::default();
        for (member, result) in members.iter().zip(results) {
            outcome.add_member(member, result);
        }
        outcome.settle(&self.0)?;
        self.0.settled()
    }

    /// Room for one more file with all of its copies.
    fn room(&self, folder: &Path) -> io::Result<Space> {
        let least = |spaces: Vec<Space>| spaces.into_iter().min_by_key(|space| space.free_bytes);
        let spaces = |members: Vec<Arc<Member>>| {
            let found = members.iter().filter_map(|member| self.disk().space(&member.root).ok());
            found.collect::<Vec<Space>>()
        };
        let metadata = least(spaces(self.0.living(Class::Metadata)));
        let no_disk = || io::Error::other("no directory of this volume can be asked for its room");
        if folder != Path::new(DATA_FOLDER) {
            return metadata.ok_or_else(no_disk);
        }
        let mut data = spaces(self.0.living(Class::Data));
        data.sort_by_key(|space| std::cmp::Reverse(space.free_bytes));
        data.truncate(self.0.copies_wanted(Class::Data));
        least(data.into_iter().chain(metadata).collect()).ok_or_else(no_disk)
    }
}

/// Rounded down to a power of two, so that disks with about the same room are equal.
trait Rounded {
    fn ilog2_or_zero(self) -> u32;
}

impl Rounded for u64 {
    fn ilog2_or_zero(self) -> u32 {
        self.checked_ilog2().unwrap_or(0)
    }
}

impl Disk for Layer {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let Place::Copied(name, class) = self.place(path) else { return self.disk().open(path, mode) };
        let mut names = self.0.names.lock();
        let entry = match (names.entries.get(&name).cloned(), mode) {
            (Some(_), OpenMode::CreateNew) => return Err(io::ErrorKind::AlreadyExists.into()),
            (Some(entry), _) => entry,
            (None, OpenMode::CreateNew | OpenMode::OpenOrCreate) => self.create(&mut names, name, class)?,
            (None, _) => return Err(io::ErrorKind::NotFound.into()),
        };
        let file = CopiedFile::open(&self.0, &entry);
        drop(names);
        // So that it stays readable when it is removed.
        entry.read(&self.0, |_| Ok(()))?;
        Ok(Arc::new(file))
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        let Place::Folder(folder) = self.place(path) else { return self.disk().create_dir_all(path) };
        let mut outcome = Outcome::default();
        for member in self.0.living(Class::Metadata) {
            outcome.add_member(&member, self.disk().create_dir_all(&member.path(&folder)));
        }
        outcome.settle(&self.0)
    }

    fn create_private_dir(&self, path: &Path) -> io::Result<()> {
        match self.place(path) {
            Place::Folder(_) => self.create_dir_all(path),
            _ => self.disk().create_private_dir(path),
        }
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        match self.place(path) {
            Place::Outside => self.disk().exists(path),
            Place::Copied(name, _) => Ok(self.0.names.lock().entries.contains_key(&name)),
            Place::Folder(folder) => {
                let members = self.0.living(Class::Metadata);
                Ok(members.iter().any(|member| self.disk().exists(&member.path(&folder)).unwrap_or(false)))
            }
        }
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        match self.place(path) {
            Place::Copied(name, _) => self.remove_copies(&mut self.0.names.lock(), &name),
            _ => self.disk().remove(path),
        }
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.disk().remove_dir(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        match (self.place(from), self.place(to)) {
            (Place::Copied(from, of), Place::Copied(to, into)) if of == into => {
                self.rename_copies(&mut self.0.names.lock(), &from, &to)
            }
            (Place::Outside, Place::Outside) => self.disk().rename(from, to),
            _ => Err(io::Error::new(io::ErrorKind::Unsupported, "a file with copies stays one")),
        }
    }

    fn list(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        let Place::Folder(folder) = self.place(path) else { return self.disk().list(path) };
        let mut entries = Vec::new();
        if folder.as_os_str().is_empty() {
            // Files of the process, if that directory still is there.
            let own = self.disk().list(path).unwrap_or_default();
            entries.extend(own.into_iter().filter(|entry| class(Path::new(&entry.name)) == Class::Local));
        }
        self.list_copied(&folder, &mut entries)?;
        Ok(entries)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        match self.place(path) {
            Place::Folder(folder) => self.sync_folder(&folder),
            _ => self.disk().sync_dir(path),
        }
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn LockHandle>> {
        self.disk().lock(path)
    }

    fn space(&self, path: &Path) -> io::Result<Space> {
        match self.place(path) {
            Place::Folder(folder) => self.room(&folder),
            _ => self.disk().space(path),
        }
    }
}
