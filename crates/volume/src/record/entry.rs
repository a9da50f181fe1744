//! A directory entry: a file with what `ls -l` and HEAD need, or a directory's identity.
//!
//! Why:        a listing reads nothing but entries, so what it shows comes first and decodes alone.
//! Layout:     1, kind 1 = file: flags, ino, size, modified, etag 16, parts, changed, mode, uid, gid, data, headers
//!             1, kind 2 = directory: flags, ino, mode, uid, gid
//! Invariants: a file entry is at most `ENTRY_BYTES_MAX` bytes: headers that do not fit are in rows.
//!             A directory entry changes only on rename, removal, chmod and a change of its flags.

use margay_env::Timestamp;

use super::data::Data;
use super::headers;
use super::wire::{Damaged, Reader, Writer};
use crate::api::{ETag, Headers};
use crate::key::Ino;

/// Largest value of a file's entry, in bytes.
pub(crate) const ENTRY_BYTES_MAX: usize = 512;

const LAYOUT: u8 = 1;
const KIND_FILE: u8 = 1;
const KIND_DIRECTORY: u8 = 2;
/// File: some of its runs have, or once had, other owners; share rows decide.
const FLAG_SHARED: u8 = 1;
/// File: more headers are in rows.
const FLAG_HEADER_ROWS: u8 = 2;
/// Directory: stays when it is empty, and is an object `x/`.
const FLAG_EXPLICIT: u8 = 1;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileEntry {
    pub(crate) ino: Ino,
    pub(crate) size: u64,
    pub(crate) modified: Timestamp,
    pub(crate) changed: Timestamp,
    pub(crate) etag: ETag,
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) shared: bool,
    pub(crate) data: Data,
    /// The headers that are in the entry.
    pub(crate) headers: Headers,
    pub(crate) header_rows: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DirectoryEntry {
    pub(crate) ino: Ino,
    pub(crate) explicit: bool,
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    File(FileEntry),
    Directory(DirectoryEntry),
}

/// What a listing shows of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Summary {
    File { size: u64, modified: Timestamp, etag: ETag },
    Directory(DirectoryEntry),
}

/// A file entry's bytes, and where its first extent's segment field is.
pub(crate) struct EncodedFile {
    pub(crate) value: Vec<u8>,
    pub(crate) first_extent: Option<usize>,
}

/// The MD5 of no bytes.
pub(crate) const EMPTY_ETAG: ETag = ETag {
    digest: [0xd4, 0x1d, 0x8c, 0xd9, 0x8f, 0x00, 0xb2, 0x04, 0xe9, 0x80, 0x09, 0x98, 0xec, 0xf8, 0x42, 0x7e],
    parts: 0,
};

impl FileEntry {
    /// An object that S3 made; its rights are those of a file that a root process makes with umask 022.
    pub(crate) fn new(ino: Ino, size: u64, etag: ETag, now: Timestamp, data: Data, headers: Headers) -> FileEntry {
        FileEntry {
            ino,
            size,
            modified: now,
            changed: now,
            etag,
            mode: 0o644,
            uid: 0,
            gid: 0,
            shared: false,
            data,
            headers,
            header_rows: false,
        }
    }

    /// Moves headers that would make the entry too large out of it: they are returned and belong into rows.
    pub(crate) fn fit_headers(&mut self) -> Headers {
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
        self.header_rows = !overflow.is_empty();
        overflow
    }

    pub(crate) fn encode(&self) -> EncodedFile {
        let mut writer = Writer::new(192);
        writer.byte(LAYOUT);
        writer.byte(KIND_FILE);
        let shared = if self.shared { FLAG_SHARED } else { 0 };
        writer.byte(shared | if self.header_rows { FLAG_HEADER_ROWS } else { 0 });
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
        EncodedFile { value: writer.finish(), first_extent }
    }
}

impl DirectoryEntry {
    /// A directory that S3 made on the way to a key.
    pub(crate) fn implicit(ino: Ino) -> DirectoryEntry {
        DirectoryEntry { ino, explicit: false, mode: 0o755, uid: 0, gid: 0 }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::new(16);
        writer.byte(LAYOUT);
        writer.byte(KIND_DIRECTORY);
        writer.byte(if self.explicit { FLAG_EXPLICIT } else { 0 });
        writer.varint(self.ino.0);
        writer.varint(self.mode.into());
        writer.varint(self.uid.into());
        writer.varint(self.gid.into());
        writer.finish()
    }

    fn decode(mut reader: Reader<'_>) -> Result<DirectoryEntry, Damaged> {
        let flags = reader.byte()?;
        let entry = DirectoryEntry {
            ino: Ino(reader.varint()?),
            explicit: flags & FLAG_EXPLICIT != 0,
            mode: reader.small()?,
            uid: reader.small()?,
            gid: reader.small()?,
        };
        reader.end()?;
        Ok(entry)
    }
}

impl Entry {
    pub(crate) fn decode(value: &[u8]) -> Result<Entry, Damaged> {
        let mut reader = Reader::new(value);
        reader.layout(LAYOUT)?;
        match reader.byte()? {
            KIND_FILE => {}
            KIND_DIRECTORY => return DirectoryEntry::decode(reader).map(Entry::Directory),
            _ => return Err(Damaged("unknown kind of entry")),
        }
        let flags = reader.byte()?;
        let ino = Ino(reader.varint()?);
        let size = reader.varint()?;
        let modified = reader.time()?;
        let etag = ETag { digest: reader.array()?, parts: reader.small()? };
        let entry = FileEntry {
            ino,
            size,
            modified,
            etag,
            changed: reader.time()?,
            mode: reader.small()?,
            uid: reader.small()?,
            gid: reader.small()?,
            shared: flags & FLAG_SHARED != 0,
            header_rows: flags & FLAG_HEADER_ROWS != 0,
            data: Data::decode(&mut reader)?,
            headers: headers::decode(&mut reader)?,
        };
        reader.end()?;
        Ok(Entry::File(entry))
    }

    pub(crate) fn file(self) -> Option<FileEntry> {
        match self {
            Entry::File(file) => Some(file),
            Entry::Directory(_) => None,
        }
    }
}

impl Summary {
    /// Reads the front of an entry only.
    pub(crate) fn decode(value: &[u8]) -> Result<Summary, Damaged> {
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
            _ => Err(Damaged("unknown kind of entry")),
        }
    }
}
