//! Changes of files by a user, with what the oracle is told before and after each.
//!
//! Not here:   directories, reading, syncs (machine).

use margay_upstream::Fsync;
use margay_volume::posix::*;

use super::{BOTH, Done, NEW, READ, User, plain, split};
use crate::text::{Written, named};

impl User {
    pub(super) fn rename(&self, from: &str, to: &str, mode: RenameMode) -> Done<()> {
        let is_file = self.at(from).and_then(|ino| self.mount.attributes(ino))?.kind != FileKind::Directory;
        self.sim.world().oracle.makes(&self.name, is_file.then_some(to));
        self.sim.world().oracle.makes(&self.name, is_file.then_some(from));
        let ((from_in, from), (to_in, to_name)) = (split(from), split(to));
        let (from_in, to_in) = (self.at(from_in)?, self.at(to_in)?);
        let rename = |mode| self.mount.rename(from_in, &plain(from), to_in, &plain(to_name), mode);
        match (mode, self.at(to)) {
            (RenameMode::Replace, Ok(_)) => self.over(to, |_| rename(mode)),
            // What comes under the name meanwhile was not seen.
            (RenameMode::Replace, Err(_)) => rename(RenameMode::NoReplace),
            _ => rename(mode),
        }
    }

    /// Opens a file, or makes it. What it will have is not known yet.
    pub(super) fn create(&self, path: &str) -> Done<Handle> {
        self.sim.world().oracle.makes(&self.name, Some(path));
        let (directory, name) = split(path);
        let directory = self.at(directory)?;
        self.orders(|order| order.may_hold(path, Some(String::new())));
        self.orders(|order| order.is_known = false);
        Ok(self.mount.create(directory, &plain(name), &NEW, BOTH)?.1)
    }

    /// All of a file, or of a new one, or a part of it.
    pub(super) fn write(&self, path: &str, draft: impl FnOnce(&[u8]) -> Written, syncs: bool) -> Done<()> {
        let handle = self.create(path)?;
        let written = self.bytes(&handle).and_then(|seen| {
            let (new, seen_as) = (draft(&seen), named(&seen));
            let content = named(&new.whole);
            {
                let mut world = self.sim.world();
                world.oracle.supersedes(&seen_as);
                world.oracle.writes(&content);
            }
            self.supersedes_closed(&handle);
            self.orders(|order| order.may_hold(path, Some(content.clone())));
            let is_longer = seen.len() > new.whole.len();
            let emptied = AttributeChange { size: Some(0), ..AttributeChange::default() };
            let emptied = if is_longer { self.mount.set_attributes(handle.ino(), &emptied).map(drop) } else { Ok(()) };
            let written = emptied.and_then(|()| self.mount.write(&handle, new.offset as u64, &new.bytes, false));
            let flushed = written.and_then(|_| self.mount.flush(&handle));
            flushed.inspect_err(|_| self.sim.world().oracle.forgives(&seen_as)).map(|()| content)
        });
        if let Ok(content) = &written {
            self.has_closed(&handle, content);
            self.written.lock().unwrap().push(content.clone());
            self.orders(|order| order.has_written(path, content));
        }
        if let Ok(content) = &written
            && syncs
            && self.sync(Some(&handle))
        {
            self.check_sent(path, content);
        }
        self.mount.release(handle)?;
        written.map(drop)
    }

    /// A sync of one file has returned.
    pub(super) fn check_sent(&self, path: &str, content: &str) {
        let mut world = self.sim.world();
        let crate::sim::World { store, oracle, .. } = &mut *world;
        match self.fsync {
            Fsync::Upstream => oracle.is_sent(&self.name, path, content, &store.objects),
            Fsync::Local => {
                oracle.is_kept(&self.name, [content.to_owned()]);
                // What the bucket has needs no order.
                let is_there = store.objects.get(path).is_some_and(|object| object.name == content);
                if let Some(order) = oracle.order.as_mut().filter(|_| self.name == "m0" && !is_there) {
                    order.ends();
                }
            }
        }
    }

    /// What is removed is elsewhere before: nobody who reads the bucket misses it.
    pub(super) fn move_by_copy(&self, from: &str, to: &str) -> Done<()> {
        let (directory, name) = split(from);
        let handle = self.mount.open_file(self.at(from)?, READ)?;
        // Who writes it has not finished.
        let is_growing = self.is_growing(&handle);
        let bytes = if is_growing { Err(PosixError::Invalid) } else { self.bytes(&handle) };
        let moved = bytes.and_then(|bytes| {
            {
                let mut world = self.sim.world();
                let crate::sim::World { store, oracle, .. } = &mut *world;
                oracle.moves(&self.name, (from, to), &named(&bytes), &store.objects);
            }
            self.write(to, |_| Written::all(bytes), false)?;
            self.check_same(from, &handle)?;
            self.orders(|order| order.may_remove(from));
            self.mount.unlink(self.at(directory)?, &plain(name))?;
            self.orders(|order| order.has_removed(from));
            Ok(())
        });
        self.mount.release(handle)?;
        moved
    }
}
