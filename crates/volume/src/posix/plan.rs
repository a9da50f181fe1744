//! Plans the rows of a file's next version from its pieces.
//!
//! Why:        publishing decides in one pass what is inline, what travels in the log, and which extents are written.
//! Invariants: P1 a payload contains the buffered bytes in the order of their offsets.
//! Not here:   the commit (publish).

use bytes::Bytes;
use margay_meta::PayloadLocation;
use margay_rows::record::Data;
use margay_rows::record::data::{ENTRY_EXTENTS_MAX, EXTENT_ROW_EXTENT_AT, INLINE_BYTES_MAX, extent_starts, hole};
use margay_rows::{Ino, key};
use margay_segment::{Extent, Run, SegmentId, add_checksums};

use crate::api::Error;
use crate::draft::Draft;
use crate::open_files::pieces::{Content, Pieces};
use crate::upload::place::PutEntry;

#[derive(Debug)]
pub(crate) struct Plan {
    /// The whole file, if it is small and no piece is stored.
    pub(crate) inline: Option<Vec<u8>>,
    /// All extents with their offsets in the file; those of the payload have no location yet.
    pub(crate) extents: Vec<(u64, Extent)>,
    /// Indexes of the payload's extents.
    payload_extents: Vec<usize>,
    payload: Option<(Bytes, u64)>,
}

/// The pieces are unencrypted.
pub(crate) fn plan(pieces: &Pieces) -> Result<Plan, Error> {
    let mut plan = Plan { inline: inline(pieces), extents: Vec::new(), payload_extents: Vec::new(), payload: None };
    if plan.inline.is_some() {
        return Ok(plan);
    }
    let mut payload = Vec::new();
    let len = pieces.memory();
    payload.reserve_exact((len + len / 1024) as usize);
    for (offset, piece) in pieces.iter() {
        match &piece.content {
            Content::Hole => plan.extents.push((offset, hole(piece.len))),
            Content::Stored(extent) => plan.extents.push((offset, *extent)),
            Content::Memory(bytes) => {
                plan.take_payload(offset, payload.len() as u64, bytes.len() as u64);
                payload.extend_from_slice(bytes);
            }
            Content::Encrypted(..) => return Err(Error::Corrupt("encrypted bytes were not made plain".to_owned())),
        }
    }
    if len > 0 {
        let crc = add_checksums(&mut payload);
        let run = Run { segment: SegmentId(0), offset: 0, len, crc };
        for index in &plan.payload_extents {
            plan.extents[*index].1.run = run;
        }
        plan.payload = Some((payload.into(), len));
    }
    Ok(plan)
}

fn inline(pieces: &Pieces) -> Option<Vec<u8>> {
    if pieces.end() > INLINE_BYTES_MAX as u64 {
        return None;
    }
    let mut bytes = Vec::with_capacity(pieces.end() as usize);
    for (_, piece) in pieces.iter() {
        match &piece.content {
            Content::Hole => bytes.resize(bytes.len() + piece.len as usize, 0),
            Content::Memory(part) => bytes.extend_from_slice(part),
            Content::Stored(_) | Content::Encrypted(..) => return None,
        }
    }
    Some(bytes)
}

impl Plan {
    /// Bytes that continue the last extent, in payload and file, are merged with it.
    fn take_payload(&mut self, offset: u64, skip: u64, len: u64) {
        let index = self.extents.len();
        if let (Some(last), Some((_, extent))) = (self.payload_extents.last(), self.extents.last_mut())
            && *last + 1 == index
        {
            extent.len += len;
            return;
        }
        self.payload_extents.push(index);
        let run = Run { segment: SegmentId(0), offset: 0, len: 0, crc: 0 };
        self.extents.push((offset, Extent { run, skip, len }));
    }

    /// The payload, followed by its checksums.
    pub(crate) fn payload_bytes(&self) -> Option<Bytes> {
        self.payload.as_ref().map(|(bytes, _)| bytes.clone())
    }

    pub(crate) fn in_payload(&self, extent: usize) -> bool {
        self.payload_extents.binary_search(&extent).is_ok()
    }

    /// The run of the payload, where the engine placed it.
    pub(crate) fn payload_run(&self, at: PayloadLocation) -> Option<Run> {
        let (_, extent) = self.extents.get(*self.payload_extents.first()?)?;
        Some(Run { segment: at.segment, offset: at.offset, ..extent.run })
    }

    /// How the entry stores the data.
    pub(crate) fn data(&self) -> Data {
        match &self.inline {
            Some(bytes) => Data::Inline(bytes.clone()),
            None if self.extents.len() <= ENTRY_EXTENTS_MAX => {
                Data::Extents(self.extents.iter().map(|(_, extent)| *extent).collect())
            }
            None => Data::Rows,
        }
    }

    /// Attaches the payload; the engine fills in its location in all extents.
    pub(crate) fn attach(&self, draft: &mut Draft, (ino, row): (Ino, &[u8]), entry: &PutEntry) {
        let (Some((bytes, _)), Some(first)) = (&self.payload, self.payload_extents.first()) else { return };
        let mut places = Vec::with_capacity(self.payload_extents.len());
        if let Some(first) = entry.first_extent {
            let starts = extent_starts(self.extents.iter().map(|(_, extent)| extent));
            places.extend(self.payload_extents.iter().map(|index| (entry.write, first + starts[*index])));
        } else {
            for index in &self.payload_extents {
                let row = key::extent(ino, self.extents[*index].0);
                let write = draft.write_of(&row).expect("an extent of the payload is written");
                places.push((write, EXTENT_ROW_EXTENT_AT));
            }
        }
        let row = entry.first_extent.map(|_| row);
        draft.attach_payload(bytes.clone(), &self.extents[*first].1.run, (ino, row), places);
    }

    /// The extents, once the payload has a location.
    pub(crate) fn placed(mut self, run: &Run) -> Vec<(u64, Extent)> {
        for index in &self.payload_extents {
            self.extents[*index].1.run = *run;
        }
        self.extents
    }
}
