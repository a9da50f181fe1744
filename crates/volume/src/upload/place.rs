//! Chooses how a file's or part's data is stored: inline, as extents in its value, or as extent rows.
//!
//! Why:        PUT, multipart uploads and copies share this choice.
//! Invariants: D1 a new reference to a run gets its back row in the same batch; the engine completes that of a payload.
//! Not here:   releasing old data (release).

use bytes::Bytes;
use margay_rows::Ino;
use margay_rows::key;
use margay_rows::record::data::{self, ENTRY_EXTENTS_MAX, INLINE_BYTES_MAX};
use margay_rows::record::{Data, FileEntry};
use margay_segment::{Extent, Run, SegmentId};

use crate::api::{Error, Headers};
use crate::draft::{Draft, Owning, naming_row};
use crate::upload::Body;

/// The data of a value, and the runs that it refers to.
#[derive(Debug)]
pub(crate) struct Placed {
    pub(crate) data: Data,
    pub(crate) named: NewRuns,
}

/// The runs of a new file or part.
#[derive(Debug)]
pub(crate) struct NewRuns {
    /// The content of its first extent.
    pub(crate) payload: Option<Bytes>,
    /// Runs that are already stored, each once.
    pub(crate) runs: Vec<Run>,
    pub(crate) owning: Owning,
}

impl NewRuns {
    fn none() -> NewRuns {
        NewRuns::stored(Vec::new(), Owning::First)
    }

    fn payload(bytes: &Bytes) -> NewRuns {
        NewRuns { payload: Some(bytes.clone()), ..NewRuns::none() }
    }

    pub(crate) fn stored(runs: Vec<Run>, owning: Owning) -> NewRuns {
        NewRuns { payload: None, runs, owning }
    }
}

/// The extent of a small body, whose location the engine fills in.
fn payload_extent(bytes: &Bytes) -> Extent {
    let len = bytes.len() as u64;
    Extent::whole(Run { segment: SegmentId(0), offset: 0, len, crc: Run::crc_of(bytes) })
}

/// Stores a staged body in an entry.
pub(crate) fn place_body(draft: &mut Draft, ino: Ino, body: &Body) -> Placed {
    match body {
        Body::Small(bytes) if bytes.len() <= INLINE_BYTES_MAX => {
            Placed { data: Data::Inline(bytes.to_vec()), named: NewRuns::none() }
        }
        Body::Small(bytes) => {
            Placed { data: Data::Extents(vec![payload_extent(bytes)]), named: NewRuns::payload(bytes) }
        }
        Body::Runs(runs) => {
            let extents = runs.iter().copied().map(Extent::whole).collect();
            let data = place_extents(draft, ino, extents);
            Placed { data, named: NewRuns::stored(runs.clone(), Owning::First) }
        }
    }
}

/// Stores a staged body in a part: never inline, all extents in the value.
pub(crate) fn place_part(body: &Body) -> Placed {
    let (extents, named) = match body {
        Body::Small(bytes) if bytes.is_empty() => (Vec::new(), NewRuns::none()),
        Body::Small(bytes) => (vec![payload_extent(bytes)], NewRuns::payload(bytes)),
        Body::Runs(runs) => {
            (runs.iter().copied().map(Extent::whole).collect(), NewRuns::stored(runs.clone(), Owning::First))
        }
    };
    Placed { data: Data::Extents(extents), named }
}

/// Stores extents in the entry, or in rows if they are many. The caller drafts their owners.
pub(crate) fn place_extents(draft: &mut Draft, ino: Ino, extents: Vec<Extent>) -> Data {
    if extents.len() <= ENTRY_EXTENTS_MAX {
        return Data::Extents(extents);
    }
    let mut offset = 0;
    for extent in &extents {
        draft.put(key::extent(ino, offset), data::extent_row(extent));
        offset += extent.len;
    }
    Data::Rows
}

/// The index of an entry's write in the draft, and the position of its first extent in the value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PutEntry {
    pub(crate) write: usize,
    pub(crate) first_extent: Option<usize>,
}

/// Writes the row of a file whose data does not change.
pub(crate) fn put_file(draft: &mut Draft, key: Vec<u8>, mut file: FileEntry) -> Result<(), Error> {
    put_entry(draft, key, &mut file).map(|_| ())
}

/// Writes the row of a new file, which owns these runs from now on; returns the file as it is stored.
pub(crate) fn put_new_file(
    draft: &mut Draft,
    key: Vec<u8>,
    mut file: FileEntry,
    named: NewRuns,
) -> Result<FileEntry, Error> {
    if file.data == Data::Rows {
        draft.locate_extent_rows(file.ino, &key);
    }
    draft.own_runs(file.ino, naming_row(&file.data, &key), &named.runs, named.owning);
    let back = named.payload.is_some().then(|| key.clone());
    let put = put_entry(draft, key, &mut file)?;
    let is_named = named.payload.is_none() || matches!(&file.data, Data::Extents(extents) if extents.len() == 1);
    assert!(is_named, "a payload has one extent that names it");
    if let (Some(bytes), Data::Extents(extents)) = (named.payload, &file.data) {
        let at = put.first_extent.expect("a payload has an extent that names it");
        draft.attach_payload(bytes, &extents[0].run, (file.ino, back.as_deref()), [(put.write, at)]);
    }
    Ok(file)
}

/// Writes the entry, with its headers inline as far as they fit.
pub(crate) fn put_entry(draft: &mut Draft, key: Vec<u8>, file: &mut FileEntry) -> Result<PutEntry, Error> {
    put_header_rows(draft, file.ino, file.fit_headers())?;
    let encoded = file.encode();
    Ok(PutEntry { write: draft.put(key, encoded.value), first_extent: encoded.first_extent })
}

fn put_header_rows(draft: &mut Draft, ino: Ino, headers: Headers) -> Result<(), Error> {
    for (name, value) in headers {
        let key = key::header(ino, &name);
        if key.len() > margay_meta::KEY_BYTES_MAX || value.len() > margay_meta::VALUE_BYTES_MAX {
            return Err(Error::TooLarge);
        }
        draft.put(key, value.into_bytes());
    }
    Ok(())
}
