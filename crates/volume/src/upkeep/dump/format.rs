//! The byte format of a dump: one stream, written and read sequentially.
//!
//! Layout:     header, rows, pieces of segments and small files, end record; docs/format/dump.md.
//! Invariants: F1 the checksum of each piece continues that of the previous one, so none can be missing, changed or
//!                reordered; a stream without its end record is reported as truncated.
//!             F2 a decoder never panics and uses at most a block of rows and `PIECE_BYTES_MAX` of memory.
//!             F3 equal rows and bytes give an equal stream: it contains no times.
//! Not here:   which pieces are written (mod), what the reader does with them (the caller of [`read_dump`]).

use std::io::{Read, Write};

use margay_segment::{Kind, SegmentId};

use crate::api::Error;
use crate::upkeep::backup::read_rows;

const MAGIC: [u8; 8] = *b"mgydump\n";
/// The version that this build writes, and the newest that it reads.
const VERSION: u32 = 1;
/// Bytes of the header.
pub const DUMP_HEADER_BYTES: usize = 40;
/// Pieces follow the rows.
const FLAG_DATA: u32 = 1;
const PIECE_HEADER_BYTES: usize = 32;
/// Largest piece, in bytes.
pub const PIECE_BYTES_MAX: usize = 1 << 20;
/// Longest name of a small file, in bytes.
const NAME_BYTES_MAX: usize = 64;

const TAG_END: u32 = 0;
const TAG_SEGMENT: u32 = 1;
const TAG_FILE: u32 = 2;

const KINDS: [(Kind, u32); 3] = [(Kind::Log, 0), (Kind::Pack, 1), (Kind::Raw, 2)];

/// What a stream begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DumpHeader {
    /// Without it, only rows.
    pub with_data: bool,
    /// No segment that the rows refer to has a larger id; 0 if there is none.
    pub largest: SegmentId,
    /// Bytes of the pieces of segments.
    pub bytes: u64,
}

/// Position of a piece in its segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PiecePlace {
    pub segment: SegmentId,
    pub kind: Kind,
    pub offset: u64,
}

/// The receiver of a dump's content.
pub trait DumpSink {
    /// Every row, in order.
    fn row(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error>;
    /// All rows were received.
    fn rows_end(&mut self) -> Result<(), Error>;
    /// A small file beside the segments.
    fn file(&mut self, name: &str, bytes: &[u8]) -> Result<(), Error>;
    /// Pieces of one segment come in ascending order.
    fn piece(&mut self, place: &PiecePlace, bytes: &[u8]) -> Result<(), Error>;
}

fn damaged(what: &str) -> Error {
    Error::Corrupt(format!("the dump is damaged: {what}"))
}

fn io(error: std::io::Error) -> Error {
    margay_segment::SegmentError::from(error).into()
}

pub(crate) fn encode_dump_header(header: &DumpHeader) -> [u8; DUMP_HEADER_BYTES] {
    let mut bytes = [0; DUMP_HEADER_BYTES];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
    bytes[12..16].copy_from_slice(&(if header.with_data { FLAG_DATA } else { 0 }).to_le_bytes());
    bytes[16..24].copy_from_slice(&header.largest.0.to_le_bytes());
    bytes[24..32].copy_from_slice(&header.bytes.to_le_bytes());
    let crc = crc32c::crc32c(&bytes[..DUMP_HEADER_BYTES - 4]);
    bytes[DUMP_HEADER_BYTES - 4..].copy_from_slice(&crc.to_le_bytes());
    bytes
}

/// Decodes the first bytes of a stream.
pub fn decode_dump_header(bytes: &[u8; DUMP_HEADER_BYTES]) -> Result<DumpHeader, Error> {
    if bytes[..8] != MAGIC {
        return Err(Error::Corrupt("it is no dump".to_owned()));
    }
    let version = half(bytes, 8);
    if version > VERSION {
        return Err(Error::Corrupt(format!("the dump has format {version}: load it with a newer margay")));
    }
    if crc32c::crc32c(&bytes[..DUMP_HEADER_BYTES - 4]) != half(bytes, DUMP_HEADER_BYTES - 4) {
        return Err(damaged("its header has the wrong checksum"));
    }
    let with_data = half(bytes, 12) & FLAG_DATA != 0;
    Ok(DumpHeader { with_data, largest: SegmentId(word(bytes, 16)), bytes: word(bytes, 24) })
}

fn half(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("the place is inside"))
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("the place is inside"))
}

/// Writes what follows the rows.
#[derive(Debug)]
pub(super) struct PieceWriter<W> {
    to: W,
    crc: u32,
    pieces: u64,
    bytes: u64,
}

impl<W: Write> PieceWriter<W> {
    pub(super) fn new(to: W) -> PieceWriter<W> {
        PieceWriter { to, crc: 0, pieces: 0, bytes: 0 }
    }

    fn write(&mut self, tag: u32, (one, two, kind): (u64, u64, u32), bytes: &[u8]) -> Result<(), Error> {
        let mut header = [0; PIECE_HEADER_BYTES];
        header[..4].copy_from_slice(&tag.to_le_bytes());
        header[4..8].copy_from_slice(&(bytes.len() as u32).to_le_bytes());
        header[8..16].copy_from_slice(&one.to_le_bytes());
        header[16..24].copy_from_slice(&two.to_le_bytes());
        header[24..28].copy_from_slice(&kind.to_le_bytes());
        self.crc = chained(self.crc, &header, bytes);
        header[28..].copy_from_slice(&self.crc.to_le_bytes());
        self.to.write_all(&header).map_err(io)?;
        self.to.write_all(bytes).map_err(io)
    }

    pub(super) fn piece(&mut self, place: &PiecePlace, bytes: &[u8]) -> Result<(), Error> {
        assert!(bytes.len() <= PIECE_BYTES_MAX, "pieces are cut to this size");
        let kind = KINDS.iter().find(|(kind, _)| *kind == place.kind).map_or(0, |(_, number)| *number);
        self.pieces += 1;
        self.bytes += bytes.len() as u64;
        self.write(TAG_SEGMENT, (place.segment.0, place.offset, kind), bytes)
    }

    /// `name` and content together have at most `PIECE_BYTES_MAX`.
    pub(super) fn file(&mut self, name: &str, content: &[u8]) -> Result<(), Error> {
        assert!(name.len() <= NAME_BYTES_MAX && name.len() + content.len() <= PIECE_BYTES_MAX, "the file is small");
        self.pieces += 1;
        self.write(TAG_FILE, (name.len() as u64, 0, 0), &[name.as_bytes(), content].concat())
    }

    /// Writes the end record.
    pub(super) fn finish(mut self) -> Result<u64, Error> {
        let (pieces, bytes) = (self.pieces, self.bytes);
        self.write(TAG_END, (pieces, bytes, 0), &[])?;
        self.to.flush().map_err(io)?;
        Ok(bytes)
    }
}

/// The checksum over the header (up to its checksum) and the bytes, continued from the previous piece.
fn chained(before: u32, header: &[u8; PIECE_HEADER_BYTES], bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c_append(before, &header[..PIECE_HEADER_BYTES - 4]), bytes)
}

/// Reads the header; [`read_dump`] reads the rest.
pub fn read_dump_header(from: &mut dyn Read) -> Result<DumpHeader, Error> {
    let mut bytes = [0; DUMP_HEADER_BYTES];
    read(from, &mut bytes)?;
    decode_dump_header(&bytes)
}

/// Reads a dump after its header, to its end. After an error, what was received must not be used.
pub fn read_dump(from: &mut dyn Read, header: &DumpHeader, sink: &mut dyn DumpSink) -> Result<(), Error> {
    read_rows(from, |key, value| sink.row(key, value))?;
    sink.rows_end()?;
    if header.with_data {
        read_pieces(from, header, sink)?;
    }
    match from.read(&mut [0]) {
        Ok(0) => Ok(()),
        Ok(_) => Err(damaged("bytes follow its end")),
        Err(error) => Err(io(error)),
    }
}

fn read_pieces(from: &mut dyn Read, dump: &DumpHeader, sink: &mut dyn DumpSink) -> Result<(), Error> {
    let (mut crc, mut pieces, mut total) = (0, 0, 0_u64);
    let mut last: Option<(SegmentId, u64)> = None;
    let mut bytes = Vec::new();
    loop {
        let mut header = [0; PIECE_HEADER_BYTES];
        read(from, &mut header)?;
        let (tag, len) = (half(&header, 0), half(&header, 4) as usize);
        let (one, two, kind) = (word(&header, 8), word(&header, 16), half(&header, 24));
        if len > PIECE_BYTES_MAX {
            return Err(damaged("a piece is too long"));
        }
        bytes.resize(len, 0);
        read(from, &mut bytes)?;
        crc = chained(crc, &header, &bytes);
        if crc != half(&header, PIECE_HEADER_BYTES - 4) {
            return Err(damaged("a piece has the wrong checksum"));
        }
        match tag {
            TAG_END if (one, two, len) == (pieces, total, 0) && total == dump.bytes => return Ok(()),
            TAG_END => return Err(damaged("its end does not fit what came before")),
            TAG_SEGMENT => {
                let kind = KINDS.iter().find(|(_, number)| *number == kind).map(|(kind, _)| *kind);
                let kind = kind.ok_or_else(|| damaged("a piece is of an unknown kind of segment"))?;
                let place = PiecePlace { segment: SegmentId(one), kind, offset: two };
                let end = two.checked_add(len as u64).ok_or_else(|| damaged("a piece has an impossible place"))?;
                if one == 0 || one > dump.largest.0 || last.is_some_and(|last| (place.segment, two) < last) {
                    return Err(damaged("a piece is out of its place"));
                }
                last = Some((place.segment, end));
                total += len as u64;
                sink.piece(&place, &bytes)?;
            }
            TAG_FILE => {
                let name_len = usize::try_from(one).unwrap_or(usize::MAX);
                let name = bytes.get(..name_len).and_then(|name| std::str::from_utf8(name).ok());
                let name = name.filter(|name| is_plain_name(name)).ok_or_else(|| damaged("a file has no name"))?;
                sink.file(name, &bytes[name_len..])?;
            }
            _ => return Err(damaged("a piece is of an unknown kind")),
        }
        pieces += 1;
    }
}

/// A name without path separators.
fn is_plain_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte == b'-';
    !name.is_empty() && name.len() <= NAME_BYTES_MAX && name.bytes().all(plain)
}

fn read(from: &mut dyn Read, buffer: &mut [u8]) -> Result<(), Error> {
    from.read_exact(buffer).map_err(|error| match error.kind() {
        std::io::ErrorKind::UnexpectedEof => Error::Corrupt("the dump is cut short".to_owned()),
        _ => io(error),
    })
}
