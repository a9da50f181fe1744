//! What a bucket of another store has of a volume, and what it lacks.
//!
//! Layout:     object: 1, text key, text ETag, text write id, varint size, varint number of its bytes, varint content,
//!             varint attributes; or 2, the same, and varint time | dirty: 1, flags, if it has a name: varint directory and text sort name; varint since,
//!             varint changed, varint count of leftovers, each text key, text ETag, varint since, with a flag text write id and
//!             varint time; with a flag: text key of the write whose outcome is not known | kept state: 1, flag (it has bytes), text key, varint since, varint
//!             changed, varint size, varint content, varint attributes, varint count of headers, each text name, bytes value |
//!             upload: 1, text key, text id
//! Invariants: U1 keys and ETags are texts as the bucket gave them.
//! Not here:   when a row changes (margay-upstream).

use super::wire::{Damaged, Reader, Writer};
use crate::ino::Ino;

const LAYOUT: u8 = 1;
/// Of an object whose time is known.
const LAYOUT_TIMED: u8 = 2;
const FLAG_NAMED: u8 = 1;
const FLAG_MOVED: u8 = 2;
const FLAG_SENT: u8 = 4;
/// Leftovers have write ids and times.
const FLAG_IDENTIFIED: u8 = 8;
/// Objects of one file that wait for their removal.
const LEFTOVERS_MAX: usize = 65_536;
/// Headers of one object.
const HEADERS_MAX: usize = 4096;

/// The object of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamObject {
    pub key: String,
    pub etag: String,
    /// What its metadata says of the write that made it; empty if nothing.
    pub write_id: String,
    pub size: u64,
    /// By which extents refer to its bytes; 0: none do.
    pub number: u64,
    /// Which content and which attributes of the file it has.
    pub content: u64,
    pub attributes: u64,
    /// When the bucket got it, in milliseconds, as the bucket says; 0: not known.
    pub modified: u64,
}

/// An object that is to be removed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UpstreamLeftover {
    pub key: String,
    pub etag: String,
    pub since: u64,
    /// As those of `UpstreamObject`; neither is known of a row of an older program.
    pub write_id: String,
    pub modified: u64,
}

/// A file or directory of which the bucket does not have the local state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UpstreamDirty {
    /// Its directory and sort name; `None`: it was removed.
    pub name: Option<(Ino, String)>,
    /// A directory: the keys of everything below changed with its name.
    pub moved: bool,
    /// The first change that the bucket lacks, and the last one.
    pub since: u64,
    pub changed: u64,
    pub leftovers: Vec<UpstreamLeftover>,
    /// A write of it to this key may have succeeded.
    pub sent: Option<String>,
}

/// A state that a file had when an epoch ended, and that is to be sent before what changed later.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UpstreamKept {
    pub key: String,
    /// The first change that it has, and the last one.
    pub since: u64,
    pub changed: u64,
    pub size: u64,
    pub content: u64,
    pub attributes: u64,
    /// Its bytes are kept beside it; else its object has them.
    pub has_bytes: bool,
    /// Metadata of its object.
    pub headers: Vec<(String, Vec<u8>)>,
}

/// A multipart upload that was begun and is not known to have ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamUpload {
    pub key: String,
    pub id: String,
}

impl UpstreamUpload {
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::new(8 + self.key.len() + self.id.len());
        writer.byte(LAYOUT);
        writer.bytes(self.key.as_bytes());
        writer.bytes(self.id.as_bytes());
        writer.finish()
    }

    pub fn decode(value: &[u8]) -> Result<UpstreamUpload, Damaged> {
        let mut reader = Reader::new(value);
        reader.layout(LAYOUT)?;
        let upload = UpstreamUpload { key: reader.text()?.to_owned(), id: reader.text()?.to_owned() };
        reader.end()?;
        Ok(upload)
    }
}

impl UpstreamObject {
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::new(64 + self.key.len() + self.etag.len() + self.write_id.len());
        writer.byte(if self.modified == 0 { LAYOUT } else { LAYOUT_TIMED });
        writer.bytes(self.key.as_bytes());
        writer.bytes(self.etag.as_bytes());
        writer.bytes(self.write_id.as_bytes());
        for number in [self.size, self.number, self.content, self.attributes] {
            writer.varint(number);
        }
        if self.modified != 0 {
            writer.varint(self.modified);
        }
        writer.finish()
    }

    pub fn decode(value: &[u8]) -> Result<UpstreamObject, Damaged> {
        let mut reader = Reader::new(value);
        let is_timed = match reader.byte()? {
            LAYOUT => false,
            LAYOUT_TIMED => true,
            _ => return Err(Damaged("unknown layout")),
        };
        let (key, etag) = (reader.text()?.to_owned(), reader.text()?.to_owned());
        let write_id = reader.text()?.to_owned();
        let (size, number) = (reader.varint()?, reader.varint()?);
        let (content, attributes) = (reader.varint()?, reader.varint()?);
        let modified = if is_timed { reader.varint()? } else { 0 };
        let object = UpstreamObject { key, etag, write_id, size, number, content, attributes, modified };
        reader.end()?;
        Ok(object)
    }
}

impl UpstreamDirty {
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::new(64);
        writer.byte(LAYOUT);
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        let sent = flag(self.sent.is_some(), FLAG_SENT);
        let identified = flag(!self.leftovers.is_empty(), FLAG_IDENTIFIED);
        writer.byte(flag(self.name.is_some(), FLAG_NAMED) | flag(self.moved, FLAG_MOVED) | sent | identified);
        if let Some((directory, name)) = &self.name {
            writer.varint(directory.0);
            writer.bytes(name.as_bytes());
        }
        writer.varint(self.since);
        writer.varint(self.changed);
        writer.varint(self.leftovers.len() as u64);
        for left in &self.leftovers {
            writer.bytes(left.key.as_bytes());
            writer.bytes(left.etag.as_bytes());
            writer.varint(left.since);
            writer.bytes(left.write_id.as_bytes());
            writer.varint(left.modified);
        }
        if let Some(key) = &self.sent {
            writer.bytes(key.as_bytes());
        }
        writer.finish()
    }

    pub fn decode(value: &[u8]) -> Result<UpstreamDirty, Damaged> {
        let mut reader = Reader::new(value);
        reader.layout(LAYOUT)?;
        let flags = reader.byte()?;
        if flags & !(FLAG_NAMED | FLAG_MOVED | FLAG_SENT | FLAG_IDENTIFIED) != 0 {
            return Err(Damaged("unknown flags of a dirty file"));
        }
        let name = match flags & FLAG_NAMED {
            0 => None,
            _ => Some((Ino(reader.varint()?), reader.text()?.to_owned())),
        };
        let (since, changed) = (reader.varint()?, reader.varint()?);
        let count = reader.small::<usize>()?;
        if count > LEFTOVERS_MAX {
            return Err(Damaged("too many leftovers"));
        }
        let mut leftovers = Vec::new();
        for _ in 0..count {
            let (key, etag) = (reader.text()?.to_owned(), reader.text()?.to_owned());
            let since = reader.varint()?;
            let (write_id, modified) = match flags & FLAG_IDENTIFIED {
                0 => (String::new(), 0),
                _ => (reader.text()?.to_owned(), reader.varint()?),
            };
            leftovers.push(UpstreamLeftover { key, etag, since, write_id, modified });
        }
        let sent = match flags & FLAG_SENT {
            0 => None,
            _ => Some(reader.text()?.to_owned()),
        };
        reader.end()?;
        Ok(UpstreamDirty { name, moved: flags & FLAG_MOVED != 0, since, changed, leftovers, sent })
    }
}

impl UpstreamKept {
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::new(256 + self.key.len());
        writer.byte(LAYOUT);
        writer.byte(u8::from(self.has_bytes));
        writer.bytes(self.key.as_bytes());
        for number in [self.since, self.changed, self.size, self.content, self.attributes] {
            writer.varint(number);
        }
        writer.varint(self.headers.len() as u64);
        for (name, value) in &self.headers {
            writer.bytes(name.as_bytes());
            writer.bytes(value);
        }
        writer.finish()
    }

    pub fn decode(value: &[u8]) -> Result<UpstreamKept, Damaged> {
        let mut reader = Reader::new(value);
        reader.layout(LAYOUT)?;
        let has_bytes = match reader.byte()? {
            0 => false,
            1 => true,
            _ => return Err(Damaged("unknown flags of a kept state")),
        };
        let key = reader.text()?.to_owned();
        let (since, changed, size) = (reader.varint()?, reader.varint()?, reader.varint()?);
        let (content, attributes) = (reader.varint()?, reader.varint()?);
        let count = reader.small::<usize>()?;
        if count > HEADERS_MAX {
            return Err(Damaged("too many headers"));
        }
        let mut headers = Vec::new();
        for _ in 0..count {
            headers.push((reader.text()?.to_owned(), reader.bytes()?.to_vec()));
        }
        reader.end()?;
        Ok(UpstreamKept { key, since, changed, size, content, attributes, has_bytes, headers })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_an_upstream_round_trip() {
        let object = UpstreamObject {
            key: "ä/b".to_owned(),
            etag: "\"0-2\"".to_owned(),
            write_id: "w".to_owned(),
            size: 1 << 40,
            number: 7,
            content: u64::MAX,
            attributes: 3,
            modified: 0,
        };
        let timed = UpstreamObject { modified: 1_500_000_000_301, ..object.clone() };
        for object in [&object, &timed] {
            assert_eq!(UpstreamObject::decode(&object.encode()), Ok(object.clone()));
        }
        assert_eq!(object.encode()[0], 1, "as older programs wrote it");
        let (key, etag, write_id) = ("old".to_owned(), "e".to_owned(), "i-5-1.2".to_owned());
        let left = UpstreamLeftover { key, etag, since: 9, write_id, modified: 7000 };
        let dirty = UpstreamDirty {
            name: Some((Ino(5), "n".to_owned())),
            moved: true,
            since: 1,
            changed: 300,
            leftovers: vec![left.clone(), left],
            sent: Some("k".to_owned()),
        };
        assert_eq!(UpstreamDirty::decode(&dirty.encode()), Ok(dirty));
        let gone = UpstreamDirty::default();
        assert_eq!(UpstreamDirty::decode(&gone.encode()), Ok(gone));
        // As an older program wrote it: 1, no flag, since, changed, one leftover.
        let old = UpstreamDirty::decode(&[1, 0, 5, 6, 1, 1, b'k', 1, b'e', 7]).map(|dirty| dirty.leftovers);
        let left =
            UpstreamLeftover { since: 7, key: "k".to_owned(), etag: "e".to_owned(), ..UpstreamLeftover::default() };
        assert_eq!(old, Ok(vec![left]));
        let kept = UpstreamKept {
            key: "k".to_owned(),
            since: 3,
            changed: 400,
            size: 1 << 33,
            content: u64::MAX,
            attributes: 9,
            has_bytes: true,
            headers: vec![("x-amz-meta-mode".to_owned(), b"0644".to_vec()), ("x-amz-meta-b".to_owned(), vec![0xff])],
        };
        assert_eq!(UpstreamKept::decode(&kept.encode()), Ok(kept.clone()));
        assert!(UpstreamKept::decode(&kept.encode()[1..]).is_err() && UpstreamKept::decode(&[1, 2]).is_err());
        for wrong in [&[1, 16, 0, 0, 0][..], &[2], &[1, 0, 0, 0, 255, 255, 255, 1]] {
            assert!(UpstreamDirty::decode(wrong).is_err());
        }
        assert!(UpstreamObject::decode(&object.encode()[1..]).is_err());
        let upload = UpstreamUpload { key: "k".to_owned(), id: "i/=".to_owned() };
        assert_eq!(UpstreamUpload::decode(&upload.encode()), Ok(upload.clone()));
        assert!(UpstreamUpload::decode(&upload.encode()[1..]).is_err());
    }
}
