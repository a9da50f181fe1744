//! Takes a disk back, takes a new one, and gives one up.
//!
//! Invariants: T1 a file of a disk that was out counts only if nobody else has it, and nobody who is out may have a newer one; all
//!                others are in doubt, durably, before the list trusts the disk.
//! Not here:   copying (fill), directories at the start (open).

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use margay_env::files;

use crate::catalogue::{Catalogue, Names};
use crate::class::{Class, FOLDERS, IDENTITY_FILE, doubtful_name, segment};
use crate::entry::{Copy, Entry};
use crate::error::DisksError;
use crate::member::Member;
use crate::place::{check_empty, check_path, identity};
use crate::record::{Identity, Listed, State};

impl Catalogue {
    /// A disk that was out gets writes again; what it lacks is copied later.
    pub(crate) fn take_back(&self, member: &Arc<Member>) -> io::Result<()> {
        for folder in FOLDERS {
            self.env.disk.create_dir_all(&member.path(Path::new(folder)))?;
        }
        let mut names = self.names.lock();
        // Somebody else may have taken it back meanwhile.
        let (metadata, data) = (member.state(Class::Metadata), member.state(Class::Data));
        if metadata != State::Out && data != State::Out {
            return Ok(());
        }
        if metadata == State::Out {
            for (name, _) in self.files_of(member, Class::Metadata)? {
                self.env.disk.remove(&member.path(&name))?;
            }
        }
        if data == State::Out {
            self.keep_payload(&mut names, member)?;
        }
        for folder in FOLDERS {
            self.env.disk.sync_dir(&member.path(Path::new(folder)))?;
        }
        let mut record = self.record.lock();
        if metadata == State::Out {
            member.set(Class::Metadata, State::Filling);
        }
        if data == State::Out {
            member.set(Class::Data, State::In);
        }
        member.forgive();
        self.store_record(&mut record)?;
        if !self.members().iter().any(|member| member.is_out()) {
            names.removed.clear();
        }
        tracing::info!(disk = %member.root.display(), "this disk is used again, and gets what it lacks");
        Ok(())
    }

    /// What nobody has newer counts again; the rest is in doubt.
    fn keep_payload(&self, names: &mut Names, member: &Arc<Member>) -> io::Result<()> {
        let Names { entries, removed } = names;
        let payload = entries.iter().filter(|(_, entry)| entry.class == Class::Data);
        let by_segment: BTreeMap<PathBuf, PathBuf> = payload.map(|(name, _)| (segment(name), name.clone())).collect();
        for (name, _) in self.files_of(member, Class::Data)? {
            // It may have been set aside, or taken back, since.
            let known = by_segment.get(&segment(&name));
            let entry = known.and_then(|known| entries.get(known)).cloned();
            let is_elsewhere = entry.as_ref().is_some_and(|entry| entry.inner.read().readable(Class::Data) > 0);
            if entry.is_none() && removed.contains(&name) {
                self.env.disk.remove(&member.path(&name))?;
                continue;
            }
            if is_elsewhere || self.may_be_older(member.left()) {
                self.env.disk.rename(&member.path(&name), &member.path(&doubtful_name(&name, member.left())))?;
                continue;
            }
            match (entry, known) {
                (Some(entry), Some(known)) => {
                    if *known != name {
                        self.env.disk.rename(&member.path(&name), &member.path(known))?;
                    }
                    let mut inner = entry.inner.write();
                    inner.copies.retain(|copy| copy.member.id != member.id);
                    inner.copies.push(Copy::new(member, true, None));
                }
                _ => {
                    let copies = vec![Copy::new(member, true, None)];
                    entries.insert(name.clone(), Arc::new(Entry::new(Class::Data, name, copies, 0)));
                }
            }
        }
        // Copies of before it left have other names now.
        for entry in entries.values().filter(|entry| entry.class == Class::Data) {
            let is_stale =
                |copy: &Copy| copy.member.id == member.id && (copy.epoch != member.epoch() || copy.doubt.is_some());
            entry.inner.write().copies.retain(|copy| !is_stale(copy));
        }
        self.find_doubtful(names, member)
    }

    /// Copies in doubt that a member has, from this life or an earlier one.
    pub(crate) fn find_doubtful(&self, names: &mut Names, member: &Arc<Member>) -> io::Result<()> {
        let payload = names.entries.iter().filter(|(_, entry)| entry.class == Class::Data);
        let by_segment: BTreeMap<PathBuf, PathBuf> = payload.map(|(name, _)| (segment(name), name.clone())).collect();
        let mut found = self.files_in_doubt(member)?;
        // The newest one first.
        found.sort_by_key(|(_, left)| std::cmp::Reverse(*left));
        for (of, left) in found {
            let known = by_segment.get(&of).unwrap_or(&of);
            let new = || Arc::new(Entry::new(Class::Data, known.clone(), Vec::new(), 0));
            let entry = names.entries.entry(known.clone()).or_insert_with(new);
            let mut inner = entry.inner.write();
            if inner.copies.iter().any(|copy| copy.member.id == member.id) {
                self.env.disk.remove(&member.path(&doubtful_name(&of, left)))?;
            } else {
                inner.copies.push(Copy::doubtful(member, left));
            }
        }
        Ok(())
    }

    /// A directory for data: a new one, an empty one in the place of a disk that is out, or that disk itself.
    pub(crate) fn add(&self, root: &Path) -> Result<(), DisksError> {
        check_path(root)?;
        let fail = |error| DisksError::Io(root.to_owned(), error);
        let known = self.members().into_iter().find(|member| member.root == root);
        match (identity(&self.env, root)?, known) {
            (Some(found), _) if found.volume != self.volume => Err(DisksError::OtherVolume(root.to_owned())),
            (Some(found), Some(member)) if found.member == member.id && member.is_out() => {
                self.take_back(&member).map_err(fail)?;
                self.wake();
                Ok(())
            }
            (Some(found), Some(member)) if found.member == member.id => Err(DisksError::Healthy(root.to_owned())),
            (Some(_), _) => Err(DisksError::Dismissed(root.to_owned())),
            (None, Some(member)) if !member.is_out() => Err(DisksError::Healthy(root.to_owned())),
            (None, old) => self.add_empty(root, old),
        }
    }

    fn add_empty(&self, root: &Path, old: Option<Arc<Member>>) -> Result<(), DisksError> {
        let fail = |error| DisksError::Io(root.to_owned(), error);
        let is_data_dir = root == self.root;
        if !is_data_dir {
            check_empty(&self.env, root)?;
        }
        if self.members().len() >= crate::MEMBERS_MAX {
            return Err(DisksError::TooMany);
        }
        let id = self.env.random.next_u64();
        let make = || -> io::Result<()> {
            self.env.disk.create_private_dir(root)?;
            for folder in FOLDERS {
                self.env.disk.create_dir_all(&root.join(folder))?;
            }
            files::write_new(
                &self.env,
                &root.join(IDENTITY_FILE),
                &Identity { volume: self.volume, member: id }.encode(),
            )
        };
        make().map_err(fail)?;
        // Against a second server; that it has no other use is known by the mark above.
        self.locks.lock().extend(self.env.disk.lock(&root.join("lock")).ok());
        let was = |class| old.as_ref().map_or(State::None, |old| old.state(class));
        let metadata = if was(Class::Metadata) == State::None { State::None } else { State::Filling };
        let data = if old.is_some() && was(Class::Data) == State::None { State::None } else { State::In };
        let member =
            Arc::new(Member::new(&Listed { id, metadata, data, left: 0, failed: false, root: root.to_owned() }));
        let names = self.names.lock();
        let mut record = self.record.lock();
        {
            let mut members = self.all.write();
            members.retain(|member| old.as_ref().is_none_or(|old| old.id != member.id));
            members.push(member);
        }
        self.store_record(&mut record).map_err(fail)?;
        drop((names, record));
        tracing::info!(disk = %root.display(), "a new disk gets the copies that are missing");
        self.wake();
        Ok(())
    }

    /// All payload moves away from a disk.
    pub(crate) fn empty(&self, root: &Path) -> Result<(), DisksError> {
        let member = self.members().into_iter().find(|member| member.root == root);
        let member = member.ok_or_else(|| DisksError::Unknown(root.to_owned()))?;
        let others = self
            .living(Class::Data)
            .iter()
            .filter(|other| other.id != member.id && other.state(Class::Data) == State::In)
            .count();
        let copies = self.copies_wanted(Class::Data);
        if others < copies {
            return Err(DisksError::TooFew { copies: copies as u32, disks: others });
        }
        let mut record = self.record.lock();
        match member.state(Class::Data) {
            State::In => member.set(Class::Data, State::Leaving),
            State::Out => member.set(Class::Data, State::None),
            _ => return Err(DisksError::Healthy(root.to_owned())),
        }
        if member.state(Class::Data) == State::None && member.state(Class::Metadata) == State::None {
            self.all.write().retain(|other| other.id != member.id);
        }
        self.store_record(&mut record).map_err(|error| DisksError::Io(root.to_owned(), error))?;
        drop(record);
        self.wake();
        Ok(())
    }
}
