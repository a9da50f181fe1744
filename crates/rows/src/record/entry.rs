//! A directory entry: a file with what `ls -l` and HEAD need, or a directory's identity.
//!
//! Why:        a listing reads nothing but entries, so what it shows comes first and decodes alone.
//! Layout:     1, kind 1 = file: flags, ino, size, modified, etag 16, parts, changed, mode, uid, gid, data, headers,
//!                with flag 4: bits, then what they name (1 device number, 2 time accessed, 4 links, 8 documents,
//!                16 version)
//!             1, kind 2 = directory: flags, ino, mode, uid, gid, with flag 2: time changed, time accessed
//!             1, kind 3 = link: ino. The file is in an inode record, in the layout of kind 1.
//! Invariants: a file entry is at most `ENTRY_BYTES_MAX` bytes: headers that do not fit are in rows
//!             (`files_round_trip_and_stay_small`).
//!             A directory entry changes only on rename, removal, chmod and a change of its flags.

use margay_env::Timestamp;

use super::data::Data;
use super::headers;
use super::version::Version;
use super::wire::{Damaged, Reader, Writer};
use crate::ino::Ino;
use crate::kinds::{Document, DocumentSet};
use crate::values::{ETag, Headers};

/// Largest value of a file's entry, in bytes.
pub const ENTRY_BYTES_MAX: usize = 512;

const LAYOUT: u8 = 1;
const KIND_FILE: u8 = 1;
const KIND_DIRECTORY: u8 = 2;
const KIND_LINK: u8 = 3;
/// File: more headers are in rows.
const FLAG_HEADER_ROWS: u8 = 2;
/// File: fields that few files have come at the end.
const FLAG_RARE: u8 = 4;
/// File or directory: there are extended attributes in rows.
const FLAG_XATTRS: u8 = 8;
/// File: its ETag counts parts, and there are no rows of them. Earlier versions pass it over and look for rows.
const FLAG_NO_PART_ROWS: u8 = 16;
/// Directory: stays when it is empty, and is an object `x/`.
const FLAG_EXPLICIT: u8 = 1;
/// Directory: its own times follow.
const FLAG_TIMES: u8 = 2;

const RARE_DEVICE: u64 = 1;
const RARE_ACCESSED: u64 = 2;
const RARE_LINKS: u64 = 4;
const RARE_DOCUMENTS: u64 = 8;
const RARE_VERSION: u64 = 16;

/// The bits of a mode that say what kind of file it is; 0 there is a regular file.
pub const MODE_KIND: u32 = 0o170_000;
pub const MODE_SYMLINK: u32 = 0o120_000;
pub const MODE_SOCKET: u32 = 0o140_000;
pub const MODE_BLOCK: u32 = 0o060_000;
pub const MODE_CHAR: u32 = 0o020_000;
pub const MODE_FIFO: u32 = 0o010_000;
/// The bits of a mode that `chmod` changes.
pub const MODE_RIGHTS: u32 = 0o7777;
/// Of these, what gives a program the rights of its owner or group.
pub const MODE_SET_IDS: u32 = 0o6000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileEntry {
    pub ino: Ino,
    pub size: u64,
    pub modified: Timestamp,
    pub changed: Timestamp,
    pub etag: ETag,
    /// Rights and kind; kind 0 is a regular file, the others are `S_IFLNK` and so on.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub data: Data,
    /// The headers that are in the entry.
    pub headers: Headers,
    pub header_rows: bool,
    pub xattrs: bool,
    /// There may be rows of its parts; only with an ETag that counts parts.
    pub part_rows: bool,
    /// Device number of a device file, else 0.
    pub device: u32,
    /// `None`: as `modified`.
    pub accessed: Option<Timestamp>,
    /// Names that lead here; more than 1 only in an inode record.
    pub links: u32,
    /// Those that have rows.
    pub documents: DocumentSet,
    pub version: Version,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectoryEntry {
    pub ino: Ino,
    pub explicit: bool,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub xattrs: bool,
    /// When its rights or times were last set (`None`: never); a change of what is in it is in the times row.
    pub changed: Option<Timestamp>,
    pub accessed: Option<Timestamp>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    File(FileEntry),
    Directory(DirectoryEntry),
    /// One of several names of a file whose attributes are in the inode record of this number.
    Link(Ino),
}

/// What a listing shows of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Summary {
    File { size: u64, modified: Timestamp, etag: ETag },
    Directory(DirectoryEntry),
    Link(Ino),
}

/// What a line of a directory without attributes needs of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line {
    File { ino: Ino, size: u64, mode: u32 },
    Directory(DirectoryEntry),
    Link(Ino),
}

/// A file entry's bytes, and where its first extent's segment field is.
#[derive(Debug)]
pub struct EncodedFile {
    pub value: Vec<u8>,
    pub first_extent: Option<usize>,
}

const UNSET: Timestamp = Timestamp(i64::MIN);

/// The MD5 of no bytes.
pub const EMPTY_ETAG: ETag = ETag {
    digest: [0xd4, 0x1d, 0x8c, 0xd9, 0x8f, 0x00, 0xb2, 0x04, 0xe9, 0x80, 0x09, 0x98, 0xec, 0xf8, 0x42, 0x7e],
    parts: 0,
};

impl FileEntry {
    /// Its bytes are encrypted: it has a document that holds its data key.
    pub fn is_encrypted(&self) -> bool {
        self.documents.contains(Document::Encryption)
    }

    /// An object that S3 made; its rights are those of a file that a root process makes with umask 022.
    pub fn new(ino: Ino, size: u64, etag: ETag, now: Timestamp, data: Data, headers: Headers) -> FileEntry {
        FileEntry {
            ino,
            size,
            modified: now,
            changed: now,
            etag,
            mode: 0o644,
            uid: 0,
            gid: 0,
            data,
            headers,
            header_rows: false,
            xattrs: false,
            part_rows: etag.parts > 0,
            device: 0,
            accessed: None,
            links: 1,
            documents: DocumentSet::default(),
            version: Version::OLD,
        }
    }

    /// Moves headers that would make the entry too large out of it: they are returned and belong into rows, beside
    /// those that are there.
    pub fn fit_headers(&mut self) -> Headers {
        let mut bytes = self.encode().value.len();
        let mut overflow = Headers::new();
        while bytes > ENTRY_BYTES_MAX {
            let largest = self.headers.iter().max_by_key(|(name, value)| headers::bytes_of(name, value));
            let Some(name) = largest.map(|(name, _)| name.clone()) else { break };
            if let Some(value) = self.headers.remove(&name) {
                overflow.insert(name, value);
            }
            bytes = self.encode().value.len();
        }
        self.header_rows |= !overflow.is_empty();
        overflow
    }

    pub fn encode(&self) -> EncodedFile {
        assert!(self.etag.parts > 0 || !self.part_rows, "only an object of parts has rows of them");
        let mut writer = Writer::new(192);
        writer.byte(LAYOUT);
        writer.byte(KIND_FILE);
        let rare = self.rare();
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        writer.byte(
            flag(self.header_rows, FLAG_HEADER_ROWS)
                | flag(rare != 0, FLAG_RARE)
                | flag(self.xattrs, FLAG_XATTRS)
                | flag(self.etag.parts > 0 && !self.part_rows, FLAG_NO_PART_ROWS),
        );
        writer.varint(self.ino.0);
        writer.varint(self.size);
        writer.time(self.modified);
        writer.raw(&self.etag.digest);
        writer.varint(self.etag.parts.into());
        writer.time(self.changed);
        writer.varint(self.mode.into());
        writer.varint(self.uid.into());
        writer.varint(self.gid.into());
        let first_extent = self.data.encode(&mut writer);
        headers::encode(self.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())), &mut writer);
        if rare != 0 {
            self.encode_rare(rare, &mut writer);
        }
        EncodedFile { value: writer.finish(), first_extent }
    }

    fn rare(&self) -> u64 {
        let bit = |set: bool, bit: u64| if set { bit } else { 0 };
        bit(self.device != 0, RARE_DEVICE)
            | bit(self.accessed.is_some(), RARE_ACCESSED)
            | bit(self.links != 1, RARE_LINKS)
            | bit(!self.documents.is_empty(), RARE_DOCUMENTS)
            | bit(self.version != Version::OLD, RARE_VERSION)
    }

    fn encode_rare(&self, rare: u64, writer: &mut Writer) {
        writer.varint(rare);
        if self.device != 0 {
            writer.varint(self.device.into());
        }
        if let Some(accessed) = self.accessed {
            writer.time(accessed);
        }
        if self.links != 1 {
            writer.varint(self.links.into());
        }
        if !self.documents.is_empty() {
            writer.varint(self.documents.bits());
        }
        if self.version != Version::OLD {
            assert!(self.version.sequence <= u64::MAX >> 1, "a sequence leaves a bit free");
            writer.varint(self.version.sequence << 1 | u64::from(self.version.is_null));
        }
    }

    fn decode_rare(&mut self, reader: &mut Reader<'_>) -> Result<(), Damaged> {
        let rare = reader.varint()?;
        let known = RARE_DEVICE | RARE_ACCESSED | RARE_LINKS | RARE_DOCUMENTS | RARE_VERSION;
        if rare == 0 || rare & !known != 0 {
            return Err(Damaged("unknown fields of a file"));
        }
        if rare & RARE_DEVICE != 0 {
            self.device = reader.small()?;
        }
        if rare & RARE_ACCESSED != 0 {
            self.accessed = Some(reader.time()?);
        }
        if rare & RARE_LINKS != 0 {
            self.links = reader.small()?;
        }
        if rare & RARE_DOCUMENTS != 0 {
            self.documents = DocumentSet::from_bits(reader.varint()?).ok_or(Damaged("unknown documents"))?;
        }
        if rare & RARE_VERSION != 0 {
            let version = reader.varint()?;
            self.version = Version { sequence: version >> 1, is_null: version & 1 != 0 };
        }
        Ok(())
    }

    fn decode(mut reader: Reader<'_>) -> Result<FileEntry, Damaged> {
        let flags = reader.byte()?;
        let ino = Ino(reader.varint()?);
        let size = reader.varint()?;
        let modified = reader.time()?;
        let etag = ETag { digest: reader.array()?, parts: reader.small()? };
        let mut entry = FileEntry {
            ino,
            size,
            modified,
            etag,
            changed: reader.time()?,
            mode: reader.small()?,
            uid: reader.small()?,
            gid: reader.small()?,
            header_rows: flags & FLAG_HEADER_ROWS != 0,
            xattrs: flags & FLAG_XATTRS != 0,
            part_rows: etag.parts > 0 && flags & FLAG_NO_PART_ROWS == 0,
            data: Data::decode(&mut reader)?,
            headers: headers::decode(&mut reader)?,
            device: 0,
            accessed: None,
            links: 1,
            documents: DocumentSet::default(),
            version: Version::OLD,
        };
        if flags & FLAG_RARE != 0 {
            entry.decode_rare(&mut reader)?;
        }
        reader.end()?;
        Ok(entry)
    }

    /// The name of its kind, when it is not a regular file.
    pub fn special(&self) -> Option<&'static str> {
        match self.kind() {
            MODE_SYMLINK => Some("symlink"),
            MODE_FIFO => Some("fifo"),
            MODE_SOCKET => Some("socket"),
            MODE_CHAR => Some("char"),
            MODE_BLOCK => Some("block"),
            _ => None,
        }
    }

    /// Major and minor number, from the 32 bits in which Linux packs them.
    pub fn device_numbers(&self) -> (u32, u32) {
        (self.device >> 8 & 0xfff, self.device & 0xff | self.device >> 12 & 0xf_ff00)
    }

    /// The kind bits of its mode.
    pub fn kind(&self) -> u32 {
        self.mode & MODE_KIND
    }
}

impl DirectoryEntry {
    /// A directory that S3 made on the way to a key.
    pub fn implicit(ino: Ino) -> DirectoryEntry {
        DirectoryEntry {
            ino,
            explicit: false,
            mode: 0o755,
            uid: 0,
            gid: 0,
            xattrs: false,
            changed: None,
            accessed: None,
        }
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::new(16);
        writer.byte(LAYOUT);
        writer.byte(KIND_DIRECTORY);
        let times = self.changed.is_some() || self.accessed.is_some();
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        writer.byte(flag(self.explicit, FLAG_EXPLICIT) | flag(times, FLAG_TIMES) | flag(self.xattrs, FLAG_XATTRS));
        writer.varint(self.ino.0);
        writer.varint(self.mode.into());
        writer.varint(self.uid.into());
        writer.varint(self.gid.into());
        if times {
            // A time that is not set is written as the smallest one.
            writer.time(self.changed.unwrap_or(UNSET));
            writer.time(self.accessed.unwrap_or(UNSET));
        }
        writer.finish()
    }

    fn decode(mut reader: Reader<'_>) -> Result<DirectoryEntry, Damaged> {
        let flags = reader.byte()?;
        let mut entry = DirectoryEntry {
            ino: Ino(reader.varint()?),
            explicit: flags & FLAG_EXPLICIT != 0,
            xattrs: flags & FLAG_XATTRS != 0,
            mode: reader.small()?,
            uid: reader.small()?,
            gid: reader.small()?,
            changed: None,
            accessed: None,
        };
        if flags & FLAG_TIMES != 0 {
            let set = |time| (time != UNSET).then_some(time);
            entry.changed = set(reader.time()?);
            entry.accessed = set(reader.time()?);
        }
        reader.end()?;
        Ok(entry)
    }
}

impl Entry {
    pub fn decode(value: &[u8]) -> Result<Entry, Damaged> {
        let mut reader = Reader::new(value);
        reader.layout(LAYOUT)?;
        match reader.byte()? {
            KIND_FILE => FileEntry::decode(reader).map(Entry::File),
            KIND_DIRECTORY => DirectoryEntry::decode(reader).map(Entry::Directory),
            KIND_LINK => decode_link(reader).map(Entry::Link),
            _ => Err(Damaged("unknown kind of entry")),
        }
    }

    pub fn file(self) -> Option<FileEntry> {
        match self {
            Entry::File(file) => Some(file),
            Entry::Directory(_) | Entry::Link(_) => None,
        }
    }
}

/// The value of an entry that is one of several names of a file.
pub fn encode_link(ino: Ino) -> Vec<u8> {
    let mut writer = Writer::new(12);
    writer.byte(LAYOUT);
    writer.byte(KIND_LINK);
    writer.varint(ino.0);
    writer.finish()
}

fn decode_link(mut reader: Reader<'_>) -> Result<Ino, Damaged> {
    let ino = Ino(reader.varint()?);
    reader.end()?;
    Ok(ino)
}

impl Summary {
    /// Reads the front of an entry only.
    pub fn decode(value: &[u8]) -> Result<Summary, Damaged> {
        let mut reader = Reader::new(value);
        reader.layout(LAYOUT)?;
        match reader.byte()? {
            KIND_FILE => {
                reader.byte()?;
                reader.varint()?;
                let (size, modified) = (reader.varint()?, reader.time()?);
                let etag = ETag { digest: reader.array()?, parts: reader.small()? };
                Ok(Summary::File { size, modified, etag })
            }
            KIND_DIRECTORY => DirectoryEntry::decode(reader).map(Summary::Directory),
            KIND_LINK => decode_link(reader).map(Summary::Link),
            _ => Err(Damaged("unknown kind of entry")),
        }
    }
}

impl Line {
    /// Reads the front of an entry only.
    pub fn decode(value: &[u8]) -> Result<Line, Damaged> {
        let mut reader = Reader::new(value);
        reader.layout(LAYOUT)?;
        match reader.byte()? {
            KIND_FILE => {
                reader.byte()?;
                let (ino, size) = (Ino(reader.varint()?), reader.varint()?);
                // When its bytes were written, their digest, the parts of its ETag, when it was changed.
                reader.time()?;
                reader.array::<16>()?;
                reader.varint()?;
                reader.time()?;
                Ok(Line::File { ino, size, mode: reader.small()? })
            }
            KIND_DIRECTORY => DirectoryEntry::decode(reader).map(Line::Directory),
            KIND_LINK => decode_link(reader).map(Line::Link),
            _ => Err(Damaged("unknown kind of entry")),
        }
    }
}
