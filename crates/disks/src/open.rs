//! Opens the directories of a volume: which are there, which are trusted, which come new.
//!
//! Invariants: N1 nothing is written to a directory before all of them were looked at and found right.
//!             N2 a directory of metadata that is missing, and not listed as out, may have gone on alone: without it the volume
//!                opens only when told so.
//!             N3 of two lists with one generation and different content none is believed; and none of two that each say of the
//!                other's directory that it is out, and trust their own.
//!             N4 a trusted directory of metadata without a list that can be read is a missing one.
//! Not here:   what the files are (scan), filling (fill).

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use margay_env::{Env, files};

use crate::catalogue::Catalogue;
use crate::class::{Class, IDENTITY_FILE, RECORD_FILE};
use crate::error::DisksError;
use crate::member::{Lost, Member};
use crate::members::Members;
use crate::place::{check_empty, check_empty_home, check_path, has_only_its_mark, identity, read_small};
use crate::record::{self, Identity, Listed, Record, State};
use crate::{DiskWish, scan};

/// What is going to be opened.
struct Plan<'a> {
    env: &'a Env,
    data: &'a Path,
    record: Record,
    /// Ids of members whose directory is there.
    present: BTreeSet<u64>,
    /// Directories that become members.
    fresh: Vec<(PathBuf, u64)>,
    is_first: bool,
    /// Directories with a list.
    listing: BTreeSet<PathBuf>,
    /// Members that get payload again: what they have of it is of an earlier time.
    emptied: BTreeSet<u64>,
}

/// `None`: a directory without others.
pub(crate) fn open(env: &Env, data: &Path, wanted: &DiskWish) -> Result<Option<Arc<Catalogue>>, DisksError> {
    let (found, listing) = newest(env, data, wanted.mirror.as_deref())?;
    if found.is_none() && wanted.is_nothing() {
        return Ok(None);
    }
    for root in
        [Some(data), wanted.mirror.as_deref()].into_iter().flatten().chain(wanted.disks.iter().map(|disk| &**disk))
    {
        check_path(root)?;
    }
    let is_first = found.is_none();
    let record = match found {
        Some(record) => record,
        None => first_record(env, data)?,
    };
    let mut plan = Plan {
        env,
        data,
        record,
        present: BTreeSet::new(),
        fresh: Vec::new(),
        is_first,
        listing,
        emptied: BTreeSet::new(),
    };
    plan.place(data, Class::Metadata, wanted)?;
    if let Some(mirror) = &wanted.mirror {
        plan.place(mirror, Class::Metadata, wanted)?;
    }
    for disk in &wanted.disks {
        plan.place(disk, Class::Data, wanted)?;
    }
    plan.give_way(wanted);
    plan.check_missing(wanted)?;
    plan.check_copies(wanted)?;
    plan.warn_of_one_disk();
    let emptied = std::mem::take(&mut plan.emptied);
    let catalogue = plan.begin()?;
    scan::open(&catalogue, &emptied)?;
    Ok(Some(catalogue))
}

/// A start that ended before the first list was written has left its mark: it goes on.
fn first_record(env: &Env, data: &Path) -> Result<Record, DisksError> {
    let volume = match identity(env, data)? {
        Some(own) => own.volume,
        None => (u128::from(env.random.next_u64()) << 64) | u128::from(env.random.next_u64()),
    };
    Ok(Record { volume, generation: 0, clean: true, copies: 1, members: Vec::new() })
}

/// The newest list in any directory of metadata that is named here or in another list, and the directories that have one.
fn newest(env: &Env, data: &Path, mirror: Option<&Path>) -> Result<(Option<Record>, BTreeSet<PathBuf>), DisksError> {
    let mut ahead: Vec<PathBuf> = [Some(data), mirror].into_iter().flatten().map(Path::to_owned).collect();
    let mut seen = BTreeSet::new();
    let mut found: Vec<(Record, PathBuf)> = Vec::new();
    let mut unreadable = None;
    while let Some(root) = ahead.pop() {
        if !seen.insert(root.clone()) {
            continue;
        }
        let Some(record) = read_small(env, &root, RECORD_FILE, Record::decode)? else {
            unreadable = unreadable.or_else(|| exists_unread(env, &root));
            continue;
        };
        let is_named = [Some(data), mirror].contains(&Some(&*root));
        let metadata = record.members.iter().filter(|member| member.metadata != State::None);
        ahead.extend(metadata.map(|member| member.root.clone()));
        match found.first() {
            Some((known, _)) if known.volume != record.volume && is_named => return Err(DisksError::OtherVolume(root)),
            Some((known, _)) if known.volume != record.volume => {}
            _ => found.push((record, root)),
        }
    }
    found.sort_by_key(|(record, _)| std::cmp::Reverse(record.generation));
    let listing = found.iter().map(|(_, root)| root.clone()).collect();
    let mut found = found.into_iter();
    let Some((best, place)) = found.next() else {
        // It may say that there are others.
        return unreadable.map_or(Ok((None, listing)), |root| Err(DisksError::NoRecord(root)));
    };
    let own = identity(env, &place)?.map(|own| own.member);
    let state = |record: &Record| {
        let listed = record.members.iter().find(|member| Some(member.id) == own);
        listed.map(|member| member.metadata)
    };
    for (older, root) in found {
        let is_other = older.generation == best.generation && older != best;
        // A directory that came back in order is first listed as being filled, in each list.
        let went_on_alone = state(&older) == Some(State::Out) && state(&best) == Some(State::In);
        if is_other || went_on_alone {
            return Err(DisksError::Split(place, root));
        }
    }
    Ok((Some(best), listing))
}

fn exists_unread(env: &Env, root: &Path) -> Option<PathBuf> {
    let is_there = env.disk.exists(&root.join(RECORD_FILE)).unwrap_or(true);
    is_there.then(|| root.to_owned())
}

impl Plan<'_> {
    fn place(&mut self, root: &Path, class: Class, wanted: &DiskWish) -> Result<(), DisksError> {
        let Some(identity) = identity(self.env, root)? else { return self.place_fresh(root, class, wanted, None) };
        if identity.volume != self.record.volume {
            return Err(DisksError::OtherVolume(root.to_owned()));
        }
        let is_data_dir = root == self.data;
        let is_listed = self.record.members.iter().any(|member| member.id == identity.member);
        let is_begun = self.is_first && is_data_dir;
        if !is_listed && (is_begun || has_only_its_mark(self.env, root)) {
            return self.place_fresh(root, class, wanted, Some(identity.member));
        }
        let is_fresh = self.fresh.iter().any(|(other, id)| other == root && *id == identity.member);
        if is_fresh {
            return self.place_fresh(root, class, wanted, None);
        }
        let Some(member) = self.record.members.iter_mut().find(|member| member.id == identity.member) else {
            return Err(DisksError::Dismissed(root.to_owned()));
        };
        if !self.present.insert(member.id) && !is_data_dir && member.root != root {
            return Err(DisksError::Twice(member.root.clone(), root.to_owned()));
        }
        member.root = root.to_owned();
        match class {
            Class::Data if member.data == State::None => {
                self.emptied.insert(member.id);
                member.data = State::In;
            }
            Class::Data if member.data == State::Leaving => member.data = State::In,
            Class::Metadata if member.metadata == State::None => member.metadata = State::Filling,
            _ => {}
        }
        Ok(())
    }

    /// `known`: the id that its mark gives it.
    fn place_fresh(
        &mut self,
        root: &Path,
        class: Class,
        wanted: &DiskWish,
        known: Option<u64>,
    ) -> Result<(), DisksError> {
        if self.fresh.iter().any(|(other, _)| other == root) {
            // The data directory may be named as a disk, too.
            let member = self.record.members.iter_mut().find(|member| member.root == root);
            return match member {
                Some(member) if class == Class::Data && root == self.data => {
                    member.data = State::In;
                    Ok(())
                }
                _ => Err(DisksError::Twice(root.to_owned(), root.to_owned())),
            };
        }
        let is_first = self.is_first && root == self.data;
        // What is in a new member is removed, so it must be nobody's; the data directory of a new volume keeps what it has.
        match root == self.data {
            _ if known.is_some() => {}
            true if !is_first => check_empty_home(self.env, root)?,
            true => {}
            false => check_empty(self.env, root)?,
        }
        // Another disk in the place of one that is listed.
        let old = self.record.members.iter().find(|member| member.root == root);
        if let Some(old) = old {
            let is_trusted = |state| matches!(state, State::In | State::Leaving);
            if (is_trusted(old.metadata) || is_trusted(old.data)) && !wanted.accept_missing {
                return Err(DisksError::Replaced(root.to_owned()));
            }
        }
        let old = old.cloned();
        self.record.members.retain(|member| member.root != root);
        let id = known.unwrap_or_else(|| self.env.random.next_u64());
        let mut listed =
            Listed { id, metadata: State::None, data: State::None, left: 0, failed: false, root: root.to_owned() };
        match class {
            Class::Metadata => listed.metadata = if is_first { State::In } else { State::Filling },
            _ => listed.data = State::In,
        }
        if is_first || old.is_some_and(|old| old.data != State::None && class == Class::Metadata) {
            listed.data = State::In;
        }
        self.record.members.push(listed);
        self.fresh.push((root.to_owned(), id));
        self.present.insert(id);
        Ok(())
    }

    /// Payload moves from the data directory to the disks that are named.
    fn give_way(&mut self, wanted: &DiskWish) {
        let others = self.record.members.iter().any(|member| member.root != self.data && member.data == State::In);
        let is_named = wanted.disks.iter().any(|disk| disk == self.data);
        let home = self.record.members.iter_mut().find(|member| member.root == self.data);
        if let Some(home) =
            home.filter(|home| home.data == State::In && others && !is_named && !wanted.disks.is_empty())
        {
            home.data = State::Leaving;
        }
    }

    fn check_missing(&mut self, wanted: &DiskWish) -> Result<(), DisksError> {
        let mut missing_data = Vec::new();
        // Payload of those who were out before may be nowhere else, too.
        let were_out = self.record.members.iter().filter(|member| member.data == State::Out).count();
        for member in &mut self.record.members {
            let own = Some(Identity { volume: self.record.volume, member: member.id });
            let is_there = self.present.contains(&member.id) || identity(self.env, &member.root)? == own;
            let is_fresh = self.fresh.iter().any(|(_, id)| *id == member.id);
            if is_there && (member.metadata != State::In || is_fresh || self.listing.contains(&member.root)) {
                self.present.insert(member.id);
                continue;
            }
            self.present.remove(&member.id);
            if member.metadata == State::In && !wanted.accept_missing {
                return Err(DisksError::MissingMetadata(member.root.clone()));
            }
            if matches!(member.data, State::In | State::Leaving) {
                missing_data.push(member.root.clone());
            }
            let out = |state: &mut State| *state = if *state == State::None { State::None } else { State::Out };
            out(&mut member.metadata);
            out(&mut member.data);
            member.left = if member.left == 0 { self.record.generation + 1 } else { member.left };
            tracing::error!(disk = %member.root.display(), "this disk is not there: the volume opens without it");
        }
        let too_many = !missing_data.is_empty() && missing_data.len() + were_out >= self.record.copies as usize;
        if too_many && !wanted.accept_missing {
            return Err(DisksError::MissingData(missing_data));
        }
        if !self.record.members.iter().any(|member| member.metadata == State::In) {
            return Err(DisksError::NoMetadata(self.data.to_owned()));
        }
        Ok(())
    }

    fn check_copies(&mut self, wanted: &DiskWish) -> Result<(), DisksError> {
        let stays = |member: &&Listed| !matches!(member.data, State::None | State::Leaving);
        let disks = self.record.members.iter().filter(stays).count();
        if let Some(copies) = wanted.copies {
            self.record.copies = copies;
        }
        if self.record.members.len() > record::MEMBERS_MAX {
            return Err(DisksError::TooMany);
        }
        if self.record.copies as usize > disks {
            return Err(DisksError::TooFew { copies: self.record.copies, disks });
        }
        Ok(())
    }

    /// Two directories with the same room, to the byte, are likely on one file system.
    fn warn_of_one_disk(&self) {
        let living = self.record.members.iter().filter(|member| member.data == State::In);
        let spaces: Vec<_> =
            living.filter_map(|member| Some((member, self.env.disk.space(&member.root).ok()?))).collect();
        for (index, (member, space)) in spaces.iter().enumerate() {
            if let Some((other, _)) = spaces[..index].iter().find(|(_, other)| other == space) {
                let (one, other) = (member.root.display(), other.root.display());
                tracing::warn!(%one, %other, "these two are probably on one file system: copies there do not survive its loss");
            }
        }
    }

    /// From here on directories are written.
    fn begin(self) -> Result<Arc<Catalogue>, DisksError> {
        let fail = |root: &Path, error| DisksError::Io(root.to_owned(), error);
        for (root, member) in &self.fresh {
            self.env.disk.create_private_dir(root).map_err(|error| fail(root, error))?;
            let own = Identity { volume: self.record.volume, member: *member };
            let found = identity(self.env, root)?;
            let is_twice = self.fresh.iter().filter(|(_, other)| other == member).count() > 1;
            if found == Some(own) && !is_twice {
                continue;
            }
            if found.is_some() {
                let other = self.fresh.iter().map(|(other, _)| other).find(|other| *other != root).unwrap_or(root);
                return Err(DisksError::Twice(other.clone(), root.clone()));
            }
            let text = own.encode();
            files::write_new(self.env, &root.join(IDENTITY_FILE), &text).map_err(|error| fail(root, error))?;
        }
        let members = self.record.members.iter().map(|listed| Arc::new(Member::new(listed))).collect::<Vec<_>>();
        let mut locks = Vec::new();
        for member in members.iter().filter(|member| self.present.contains(&member.id) && member.root != self.data) {
            match self.env.disk.lock(&member.root.join("lock")) {
                Ok(lock) => locks.push(lock),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Err(DisksError::InUse(member.root.clone()));
                }
                Err(error) if member.is_living() => return Err(fail(&member.root, error)),
                Err(_) => {}
            }
        }
        for member in members.iter().filter(|member| !self.present.contains(&member.id)) {
            let lost = Lost { is_absent: true, why: "it was not there at the start".to_owned() };
            member.leave(lost, self.record.generation + 1);
        }
        let members = Members::new(self.env.clone(), self.data.to_owned(), self.record, members);
        Ok(Arc::new(Catalogue::new(members, locks)))
    }
}
