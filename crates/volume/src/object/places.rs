//! Where the bytes of an object are: the segments that its rows name, and the stores that the rows of those name.
//!
//! Why:        an operator asks this of a volume whose servers may all be stopped, so it needs the rows alone.
//! Not here:   whether a store still has what a row says (scrub), earlier versions.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use margay_meta::Engine;
use margay_rows::record::data::{decode_extent_row, is_hole};
use margay_rows::record::{Bucket, Data, Entry, FileEntry, SegmentRecord};
use margay_rows::{Ino, key};
use margay_segment::{Extent, Run, SegmentId};

use crate::api::Error;

/// A segment with bytes of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectSegment {
    pub id: SegmentId,
    /// Bytes of the object in it, in all extents.
    pub bytes: u64,
    /// The runs that have these bytes, ascending.
    pub runs: Vec<Run>,
    /// `None`: it has no row yet, and is at the store that made it.
    pub record: Option<SegmentRecord>,
}

/// Where the bytes of an object are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectPlaces {
    /// Of the object, in bytes.
    pub size: u64,
    /// Bytes that are in its row.
    pub in_row: u64,
    /// Ascending.
    pub segments: Vec<ObjectSegment>,
}

/// Finds the current object; `NoSuchBucket` or `NoSuchKey` without one. The rows are read one after the other, so a change at the
/// same moment may be half seen.
pub fn object_places(engine: &dyn Engine, bucket: &str, name: &str) -> Result<ObjectPlaces, Error> {
    let row = engine.get(&key::bucket(bucket))?.value.ok_or(Error::NoSuchBucket)?;
    let mut directory = Bucket::decode(&row.value)?.root;
    let (mut rest, mut is_explicit) = (name, false);
    while let Some((step, behind)) = rest.split_once('/') {
        let Some(Entry::Directory(found)) = entry(engine, directory, &format!("{step}/"))? else {
            return Err(Error::NoSuchKey);
        };
        (directory, is_explicit, rest) = (found.ino, found.explicit, behind);
    }
    let file = match entry(engine, directory, rest)? {
        Some(Entry::File(file)) => file,
        Some(Entry::Link(ino)) => linked(engine, ino)?,
        // A directory that was made on purpose is an empty object.
        None if rest.is_empty() && is_explicit => return Ok(ObjectPlaces::default()),
        Some(Entry::Directory(_)) | None => return Err(Error::NoSuchKey),
    };
    let mut places = ObjectPlaces { size: file.size, ..ObjectPlaces::default() };
    let extents = match file.data {
        Data::Inline(bytes) => {
            places.in_row = bytes.len() as u64;
            Vec::new()
        }
        Data::Extents(extents) => extents,
        Data::Rows => extents_of(engine, file.ino)?,
    };
    let mut used: BTreeMap<SegmentId, (u64, BTreeMap<u64, Run>)> = BTreeMap::new();
    for extent in extents.iter().filter(|extent| !is_hole(extent)) {
        let (bytes, runs) = used.entry(extent.run.segment).or_default();
        *bytes += extent.len;
        runs.insert(extent.run.offset, extent.run);
    }
    for (id, (bytes, runs)) in used {
        let row = engine.get(&key::segment(id))?.value;
        let record = row.map(|row| SegmentRecord::decode(&row.value)).transpose()?;
        places.segments.push(ObjectSegment { id, bytes, runs: runs.into_values().collect(), record });
    }
    Ok(places)
}

fn entry(engine: &dyn Engine, directory: Ino, sort_name: &str) -> Result<Option<Entry>, Error> {
    let row = engine.get(&key::entry(directory, sort_name.as_bytes()))?.value;
    Ok(row.map(|row| Entry::decode(&row.value)).transpose()?)
}

fn linked(engine: &dyn Engine, ino: Ino) -> Result<FileEntry, Error> {
    let row = engine.get(&key::inode(ino))?.value;
    match row.map(|row| Entry::decode(&row.value)).transpose()? {
        Some(Entry::File(file)) => Ok(file),
        _ => Err(Error::Corrupt(format!("file {} has a name and no record; `margay fsck` says more", ino.0))),
    }
}

fn extents_of(engine: &dyn Engine, ino: Ino) -> Result<Vec<Extent>, Error> {
    let (start, end) = key::extents(ino);
    let mut extents = Vec::new();
    engine.scan(&start, &end, &mut |row| {
        extents.push(decode_extent_row(row.value));
        ControlFlow::Continue(())
    })?;
    Ok(extents.into_iter().collect::<Result<_, _>>()?)
}
