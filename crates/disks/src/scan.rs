//! Finds the files of all members when a volume is opened, and makes copies equal that a crash has left different.
//!
//! Why:        a power loss keeps different unsynced changes on each disk.
//! Invariants: A1 the first directory with all metadata is what a crash of one disk leaves, so it is right; what another one
//!                has differently is copied from it, and until then that one is not trusted (the list says so first).
//!             A2 payload that rows name is durable in each copy, so copies that differ are not compared; a name that was
//!                changed at some of them is the one out of quarantine.
//! Not here:   which members are there (open).

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use margay_env::{Disk, OpenMode};

use crate::catalogue::Catalogue;
use crate::class::{Class, DATA_FOLDER, FILLING, FOLDERS, segment};
use crate::entry::{Copy, Entry};
use crate::error::DisksError;
use crate::member::Member;
use crate::record::State;

/// What is compared at once, in bytes.
const PIECE_BYTES: usize = 256 << 10;
/// Metadata that is made equal before the volume opens, in bytes; more is copied beside the work.
const FILL_AT_OPEN_BYTES_MAX: u64 = 1 << 30;
pub(crate) fn open(catalogue: &Arc<Catalogue>, emptied: &BTreeSet<u64>) -> Result<(), DisksError> {
    let was_clean = catalogue.record.lock().clean;
    let mut core_failed = Vec::new();
    for member in catalogue.members().iter().filter(|member| member.is_living()) {
        let prepared = prepare(catalogue, member);
        let is_emptied = emptied.contains(&member.id);
        if let Err(error) = prepared.and_then(|()| if is_emptied { remove_payload(catalogue, member) } else { Ok(()) })
        {
            core_failed.push((Arc::clone(member), error));
        }
    }
    for (member, error) in core_failed {
        catalogue.take_out(&member, &error).map_err(|error| DisksError::Io(member.root.clone(), error))?;
    }
    let fail = |error| DisksError::Io(catalogue.root.clone(), error);
    let differing = scan_metadata(catalogue, was_clean).map_err(fail)?;
    scan_data(catalogue).map_err(fail)?;
    // From here on a crash leaves copies that may differ.
    catalogue.record.lock().clean = false;
    for member in catalogue.members().iter().filter(|member| member.is_out() && member.lost().is_none()) {
        if let Err(error) = catalogue.take_back(member) {
            tracing::warn!(disk = %member.root.display(), %error, "this disk was out and cannot be filled again");
        }
    }
    catalogue.store_record(&mut catalogue.record.lock()).map_err(fail)?;
    if differing > 0 && differing <= FILL_AT_OPEN_BYTES_MAX {
        catalogue.fill_once(Some(Class::Metadata));
    }
    Ok(())
}

/// Makes the folders, and removes copies that were not complete.
fn prepare(catalogue: &Catalogue, member: &Member) -> io::Result<()> {
    let disk = &*catalogue.env.disk;
    for folder in FOLDERS {
        disk.create_dir_all(&member.path(Path::new(folder)))?;
    }
    for folder in ["", FOLDERS[0], FOLDERS[1]] {
        for entry in disk.list(&member.path(Path::new(folder)))? {
            if !entry.is_dir && entry.name.ends_with(FILLING) {
                disk.remove(&member.path(&Path::new(folder).join(&entry.name)))?;
            }
        }
    }
    Ok(())
}

fn remove_payload(catalogue: &Catalogue, member: &Member) -> io::Result<()> {
    let files = catalogue.files_of(member, Class::Data)?;
    for (name, _) in &files {
        catalogue.env.disk.remove(&member.path(name))?;
    }
    if files.is_empty() { Ok(()) } else { catalogue.env.disk.sync_dir(&member.path(Path::new(DATA_FOLDER))) }
}

/// Returns how many bytes have to be copied again because copies differ.
fn scan_metadata(catalogue: &Arc<Catalogue>, was_clean: bool) -> io::Result<u64> {
    loop {
        match compare_metadata(catalogue, was_clean) {
            Ok(differing) => return Ok(differing),
            // Without it another one leads, or nobody is compared; an error if it is the last one.
            Err((Some(member), error)) => catalogue.take_out(&member, &error)?,
            Err((None, error)) => return Err(error),
        }
    }
}

/// An error names the member whose it is.
fn compare_metadata(catalogue: &Arc<Catalogue>, was_clean: bool) -> Result<u64, (Option<Arc<Member>>, io::Error)> {
    let of = |member: &Arc<Member>| {
        let member = Arc::clone(member);
        move |error| (Some(member), error)
    };
    let members = catalogue.living(Class::Metadata);
    let mut trusted = members.iter().filter(|member| member.state(Class::Metadata) == State::In);
    let leader = trusted.next().ok_or_else(|| (None, io::Error::other("no directory has all metadata")))?;
    let files = catalogue.files_of(leader, Class::Metadata).map_err(of(leader))?;
    let mut copies: BTreeMap<PathBuf, Vec<Copy>> =
        files.iter().map(|(name, _)| (name.clone(), vec![Copy::new(leader, true, None)])).collect();
    let mut differing = 0;
    for member in members.iter().filter(|member| member.id != leader.id) {
        let is_trusted = member.state(Class::Metadata) == State::In;
        let theirs: BTreeMap<PathBuf, u64> =
            catalogue.files_of(member, Class::Metadata).map_err(of(member))?.into_iter().collect();
        let mut equal = BTreeSet::new();
        for (name, len) in files.iter().filter(|_| is_trusted) {
            let is_equal =
                theirs.get(name) == Some(len) && (was_clean || same(&*catalogue.env.disk, name, leader, member)?);
            if is_equal {
                equal.insert(name.clone());
            } else {
                differing += len;
            }
        }
        let strays: Vec<&PathBuf> = theirs.keys().filter(|name| !equal.contains(*name)).collect();
        if is_trusted && (equal.len() < files.len() || !strays.is_empty()) {
            tracing::info!(disk = %member.root.display(), files = strays.len(), "copies of metadata differ after a crash and are made equal");
            member.set(Class::Metadata, State::Filling);
            catalogue.store_record(&mut catalogue.record.lock()).map_err(|error| (None, error))?;
            differing = differing.max(1);
        }
        for name in strays {
            catalogue.env.disk.remove(&member.path(name)).map_err(of(member))?;
        }
        for name in equal {
            copies.entry(name).or_default().push(Copy::new(member, true, None));
        }
    }
    insert(catalogue, Class::Metadata, copies);
    Ok(differing)
}

fn insert(catalogue: &Catalogue, class: Class, copies: BTreeMap<PathBuf, Vec<Copy>>) {
    let mut names = catalogue.names.lock();
    for (name, copies) in copies {
        let first = if class == Class::Data { catalogue.turn.fetch_add(1, Ordering::Relaxed) } else { 0 };
        names.entries.insert(name.clone(), Arc::new(Entry::new(class, name, copies, first)));
    }
}

/// Whether a file has the same bytes on two members; an error names the member whose it is.
fn same(
    disk: &dyn Disk,
    name: &Path,
    left: &Arc<Member>,
    right: &Arc<Member>,
) -> Result<bool, (Option<Arc<Member>>, io::Error)> {
    let open = |member: &Arc<Member>| {
        let opened = disk.open(&member.path(name), OpenMode::Read).and_then(|file| Ok((file.len()?, file)));
        opened.map_err(|error| (Some(Arc::clone(member)), error))
    };
    let ((len, one), (other_len, other)) = (open(left)?, open(right)?);
    if other_len != len {
        return Ok(false);
    }
    let mut pieces = (vec![0; PIECE_BYTES], vec![0; PIECE_BYTES]);
    let mut at = 0;
    while at < len {
        let count = usize::try_from(len - at).unwrap_or(usize::MAX).min(PIECE_BYTES);
        let (one_piece, other_piece) = (&mut pieces.0[..count], &mut pieces.1[..count]);
        one.read_exact_at(one_piece, at).map_err(|error| (Some(Arc::clone(left)), error))?;
        other.read_exact_at(other_piece, at).map_err(|error| (Some(Arc::clone(right)), error))?;
        if one_piece != other_piece {
            return Ok(false);
        }
        at += count as u64;
    }
    Ok(true)
}

fn scan_data(catalogue: &Arc<Catalogue>) -> io::Result<()> {
    let mut copies: BTreeMap<PathBuf, Vec<Copy>> = BTreeMap::new();
    for member in catalogue.living(Class::Data) {
        for (name, _) in catalogue.files_of(&member, Class::Data)? {
            copies.entry(name).or_default().push(Copy::new(&member, true, None));
        }
    }
    settle_names(catalogue, &mut copies)?;
    insert(catalogue, Class::Data, copies);
    for member in catalogue.living(Class::Data) {
        catalogue.find_doubtful(&mut catalogue.names.lock(), &member)?;
    }
    Ok(())
}

/// One name for each segment.
fn settle_names(catalogue: &Catalogue, copies: &mut BTreeMap<PathBuf, Vec<Copy>>) -> io::Result<()> {
    let mut by_segment: BTreeMap<PathBuf, Vec<PathBuf>> = BTreeMap::new();
    for name in copies.keys() {
        by_segment.entry(segment(name)).or_default().push(name.clone());
    }
    for names in by_segment.values().filter(|names| names.len() > 1) {
        // The names are sorted: the one out of quarantine comes first.
        let (kept, others) = names.split_first().ok_or(io::ErrorKind::InvalidData)?;
        for other in others {
            for copy in copies.remove(other).unwrap_or_default() {
                let (from, to) = (copy.member.path(other), copy.member.path(kept));
                let known = copies.entry(kept.clone()).or_default();
                if known.iter().any(|known| known.member.id == copy.member.id) {
                    catalogue.env.disk.remove(&from)?;
                } else {
                    catalogue.env.disk.rename(&from, &to)?;
                    catalogue.env.disk.sync_dir(&copy.member.path(Path::new(DATA_FOLDER)))?;
                    known.push(copy);
                }
            }
        }
    }
    Ok(())
}
