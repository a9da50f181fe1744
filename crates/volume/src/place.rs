//! A new file's or part's data as rows: inline, extents in its value, or extent rows.
//!
//! Why:        PUT, multipart and copies give data its form in one place.
//! Invariants: every run that becomes named is counted as live in the same batch; a payload is counted by the
//!             engine when it places it.
//! Not here:   letting go of old data (release).

use bytes::Bytes;
use margay_rows::Ino;
use margay_rows::key::{self, Live};
use margay_rows::record::data::{self, ENTRY_EXTENTS_MAX, INLINE_BYTES_MAX};
use margay_rows::record::{Data, FileEntry};
use margay_segment::{Extent, Run, SegmentId};

use crate::api::{Error, Headers};
use crate::draft::Draft;
use crate::upload::Body;

/// The data of a value, and the payload that will be at its first extent.
#[derive(Debug)]
pub(crate) struct Placed {
    pub(crate) data: Data,
    pub(crate) payload: Option<Bytes>,
}

/// Where a small body goes, as the extent that the engine completes.
fn payload_extent(bytes: &Bytes) -> Extent {
    let len = bytes.len() as u64;
    Extent::whole(Run { segment: SegmentId(0), offset: 0, len, crc: Run::crc_of(bytes) })
}

/// Gives a staged body its form in an entry, and counts its runs.
pub(crate) fn place_body(draft: &mut Draft, ino: Ino, body: &Body) -> Placed {
    match body {
        Body::Small(bytes) if bytes.len() <= INLINE_BYTES_MAX => {
            Placed { data: Data::Inline(bytes.to_vec()), payload: None }
        }
        Body::Small(bytes) => Placed { data: Data::Extents(vec![payload_extent(bytes)]), payload: Some(bytes.clone()) },
        Body::Runs(runs) => {
            count_runs(draft, runs);
            let extents = runs.iter().copied().map(Extent::whole).collect();
            Placed { data: place_extents(draft, ino, extents), payload: None }
        }
    }
}

/// Gives a staged body its form in a part: never inline, all extents in the value.
pub(crate) fn place_part(draft: &mut Draft, body: &Body) -> Placed {
    match body {
        Body::Small(bytes) if bytes.is_empty() => Placed { data: Data::Extents(Vec::new()), payload: None },
        Body::Small(bytes) => Placed { data: Data::Extents(vec![payload_extent(bytes)]), payload: Some(bytes.clone()) },
        Body::Runs(runs) => {
            count_runs(draft, runs);
            Placed { data: Data::Extents(runs.iter().copied().map(Extent::whole).collect()), payload: None }
        }
    }
}

/// Counts runs that become named.
pub(crate) fn count_runs(draft: &mut Draft, runs: &[Run]) {
    for run in runs {
        draft.add(key::live(run.segment, Live::Gained), run.len as i64);
    }
}

/// Extents in the entry, or in rows when they are many. Does not count them.
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

/// Which write of the draft an entry is, and where its first extent is in the value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PutEntry {
    pub(crate) write: usize,
    pub(crate) first_extent: Option<usize>,
}

/// Writes the entry, with its headers in it as far as they fit, and attaches its payload.
pub(crate) fn put_file(
    draft: &mut Draft,
    key: Vec<u8>,
    mut file: FileEntry,
    payload: Option<Bytes>,
) -> Result<(), Error> {
    let put = put_entry(draft, key, &mut file)?;
    if let Some(bytes) = payload {
        let at = put.first_extent.expect("a payload has an extent that names it");
        let len = bytes.len() as u64;
        draft.attach_payload(bytes, len, [(put.write, at)]);
    }
    Ok(())
}

/// Writes the entry, with its headers in it as far as they fit.
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
