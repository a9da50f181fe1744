//! How the data of a file or part is stored.
//!
//! Why:        small files are stored in their entry, others refer to a few extents there or to many in rows.
//! Layout:     tag 0: length, bytes | tag 1: count, extents | tag 2: extents are in rows. extent: segment 8 BE, offset
//!             8 BE, run length varint, crc 4 BE, skip varint, length varint.
//! Invariants: D1 segment and offset have fixed positions and widths, so that an engine can fill them in
//!                (asserted where a payload is attached: the volume's draft).

use margay_segment::{Extent, Run, SegmentId};

use super::wire::{Damaged, Reader, Writer};

/// Maximum number of extents of an object.
pub const OBJECT_EXTENTS_MAX: usize = 20_000;
/// Maximum size of inline data, in bytes.
pub const INLINE_BYTES_MAX: usize = 128;
/// Maximum number of extents in an entry.
pub const ENTRY_EXTENTS_MAX: usize = 4;
/// Maximum number of extents of a part; they are all in the part's value.
pub const PART_EXTENTS_MAX: usize = 1536;

/// The segment id of holes: no segment file has it. (In a draft, an extent whose payload the engine has not placed yet
/// has it too.)
const NOWHERE: SegmentId = SegmentId(0);

/// Unwritten bytes, which read as zeros. They have no run, so they have no owner and are not live.
pub fn hole(len: u64) -> Extent {
    Extent::whole(Run { segment: NOWHERE, offset: 0, len, crc: 0 })
}

pub fn is_hole(extent: &Extent) -> bool {
    extent.run.segment == NOWHERE
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Data {
    Inline(Vec<u8>),
    Extents(Vec<Extent>),
    /// Extents are in rows under (ino, offset).
    Rows,
}

impl Data {
    /// Returns the position of the first extent's segment field; its offset field follows 8 bytes later.
    pub fn encode(&self, writer: &mut Writer) -> Option<usize> {
        match self {
            Data::Inline(bytes) => {
                writer.byte(0);
                writer.bytes(bytes);
                None
            }
            Data::Extents(extents) => {
                assert!(extents.len() <= PART_EXTENTS_MAX, "no more extents are read back");
                writer.byte(1);
                writer.varint(extents.len() as u64);
                let first = writer.position();
                extents.iter().for_each(|extent| encode_extent(extent, writer));
                (!extents.is_empty()).then_some(first)
            }
            Data::Rows => {
                writer.byte(2);
                None
            }
        }
    }

    pub fn decode(reader: &mut Reader<'_>) -> Result<Data, Damaged> {
        match reader.byte()? {
            0 => Ok(Data::Inline(reader.bytes()?.to_vec())),
            1 => {
                let count = reader.small::<usize>()?;
                if count > PART_EXTENTS_MAX {
                    return Err(Damaged("too many extents"));
                }
                (0..count).map(|_| decode_extent(reader)).collect::<Result<Vec<_>, _>>().map(Data::Extents)
            }
            2 => Ok(Data::Rows),
            _ => Err(Damaged("unknown kind of data")),
        }
    }
}

pub fn encode_extent(extent: &Extent, writer: &mut Writer) {
    let end = extent.skip.checked_add(extent.len);
    assert!(end.is_some_and(|end| end <= extent.run.len), "an extent lies inside its run");
    writer.raw(&extent.run.segment.0.to_be_bytes());
    writer.raw(&extent.run.offset.to_be_bytes());
    writer.varint(extent.run.len);
    writer.raw(&extent.run.crc.to_be_bytes());
    writer.varint(extent.skip);
    writer.varint(extent.len);
}

pub fn decode_extent(reader: &mut Reader<'_>) -> Result<Extent, Damaged> {
    let segment = SegmentId(u64::from_be_bytes(reader.array()?));
    let offset = u64::from_be_bytes(reader.array()?);
    let len = reader.varint()?;
    let crc = u32::from_be_bytes(reader.array()?);
    let extent = Extent { run: Run { segment, offset, len, crc }, skip: reader.varint()?, len: reader.varint()? };
    match extent.skip.checked_add(extent.len) {
        Some(end) if end <= extent.run.len => Ok(extent),
        _ => Err(Damaged("an extent lies outside its run")),
    }
}

/// The position of each of these extents when they are encoded one after the other.
pub fn extent_starts<'a>(extents: impl Iterator<Item = &'a Extent>) -> Vec<usize> {
    let mut writer = Writer::new(0);
    let start = |extent| {
        let start = writer.position();
        encode_extent(extent, &mut writer);
        start
    };
    extents.map(start).collect()
}

const EXTENT_LAYOUT: u8 = 1;
/// Position of the extent in an extent row.
pub const EXTENT_ROW_EXTENT_AT: usize = 1;

/// The value of an extent row.
pub fn extent_row(extent: &Extent) -> Vec<u8> {
    let mut writer = Writer::new(40);
    writer.byte(EXTENT_LAYOUT);
    encode_extent(extent, &mut writer);
    writer.finish()
}

pub fn decode_extent_row(value: &[u8]) -> Result<Extent, Damaged> {
    let mut reader = Reader::new(value);
    reader.layout(EXTENT_LAYOUT)?;
    let extent = decode_extent(&mut reader)?;
    reader.end()?;
    Ok(extent)
}
