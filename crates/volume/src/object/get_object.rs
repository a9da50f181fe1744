//! HEAD and GET: reads the object at a key.
//!
//! Why:        both read the same rows; GET also pins the data.
//! Invariants: G1 returned data was live while its segments were pinned, and reclaim leaves pinned segments alone:
//!                either no bytes were removed between reading the entry and pinning, or the entry was read again after
//!                pinning.
//! Not here:   reading bytes (reader).

use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::Bytes;
use margay_env::Timestamp;
use margay_rows::Ino;
use margay_rows::key;
use margay_rows::record::data::OBJECT_EXTENTS_MAX;
use margay_rows::record::data::is_hole;
use margay_rows::record::entry::EMPTY_ETAG;
use margay_rows::record::multipart::{decode_part_checksums, decode_part_sizes};
use margay_rows::record::{Data, FileEntry};
use margay_segment::{InQuarantine, SegmentError, SegmentPin};

use crate::api::{Error, Headers, ObjectInfo, ObjectName, ReadCondition, VersionId};
use crate::cache::split;
use crate::draft::{Seen, at_hand};
use crate::driver::{Purpose, RequestRows, View};
use crate::encryption::Protection;
use crate::entry::{Located, Walk, needed_lock};
use crate::open::Volume;
use crate::reader::{Content, Reader};

/// The kind of a file that only POSIX can create: symlink, fifo, socket, char or block.
const KIND_HEADER: &str = "x-amz-meta-margay-kind";
/// The numbers of a device, `MAJOR:MINOR`.
const DEVICE_HEADER: &str = "x-amz-meta-margay-device";

impl View<'_> {
    pub async fn head_object(self, bucket: &str, key: &str, condition: &ReadCondition) -> Result<ObjectInfo, Error> {
        self.head_version(bucket, key, None, condition).await
    }

    /// Without a version, the current one.
    pub async fn head_version(
        self,
        bucket: &str,
        key: &str,
        version: Option<VersionId>,
        condition: &ReadCondition,
    ) -> Result<ObjectInfo, Error> {
        self.read(|volume, seen| volume.head_now((bucket, key, version), condition, seen)).await
    }

    /// Without a version, the current one.
    pub async fn get_version(
        self,
        bucket: &str,
        key: &str,
        version: Option<VersionId>,
        condition: &ReadCondition,
    ) -> Result<Reader, Error> {
        let check = |file: &margay_rows::record::FileEntry| condition.check(file.etag, file.modified);
        self.read(|volume, seen| volume.open_now((bucket, key, version), seen, check)).await
    }

    /// Checksums of a multipart object's parts, in order, in the form of stored headers; empty if no part has one.
    pub async fn part_checksums(self, name: ObjectName<'_>) -> Result<Vec<Headers>, Error> {
        self.read(|volume, seen| volume.part_checksums_now(name, seen)).await
    }
}

impl Volume {
    pub async fn head_object(&self, bucket: &str, key: &str, condition: &ReadCondition) -> Result<ObjectInfo, Error> {
        self.head_version(bucket, key, None, condition).await
    }

    /// Without a version, the current one.
    pub async fn head_version(
        &self,
        bucket: &str,
        key: &str,
        version: Option<VersionId>,
        condition: &ReadCondition,
    ) -> Result<ObjectInfo, Error> {
        let rows = self.look(bucket, Purpose::HeadObject(key, version)).await?;
        self.view(&rows).head_version(bucket, key, version, condition).await
    }

    pub(crate) fn head_now(
        &self,
        (bucket, key, version): ObjectName<'_>,
        wanted: &ReadCondition,
        seen: &mut Seen,
    ) -> Result<ObjectInfo, Error> {
        let found = self.find_once(bucket, key, version, seen)?;
        wanted.check(found.file.etag, found.file.modified)?;
        let mut info = self.info(&found, seen)?;
        self.tell_headers(&found.file, &mut info.headers);
        tell_kind(&found.file, &mut info.headers);
        Ok(info)
    }

    pub async fn get_object(&self, bucket: &str, key: &str, condition: &ReadCondition) -> Result<Reader, Error> {
        self.get_version(bucket, key, None, condition).await
    }

    /// Without a version, the current one.
    pub async fn get_version(
        &self,
        bucket: &str,
        key: &str,
        version: Option<VersionId>,
        condition: &ReadCondition,
    ) -> Result<Reader, Error> {
        let rows = self.look(bucket, Purpose::GetObject(key, version)).await?;
        self.view(&rows).get_version(bucket, key, version, condition).await
    }

    pub(crate) fn open_now(
        &self,
        (bucket, key, version): ObjectName<'_>,
        seen: &mut Seen,
        check: impl Fn(&FileEntry) -> Result<(), Error>,
    ) -> Result<Reader, Error> {
        let found = self.find_once(bucket, key, version, seen)?;
        check(&found.file)?;
        let mut info = self.info(&found, seen)?;
        self.tell_headers(&found.file, &mut info.headers);
        tell_kind(&found.file, &mut info.headers);
        let lock = needed_lock(&found.file, self.lock_of(&found.file, seen)?)?;
        let content = self.hold(&found.file, seen)?;
        let (store, blocking) = (Arc::clone(&self.store), Arc::clone(&self.options.blocking));
        let mut reader = Reader { info, content, lock, store, blocking };
        if matches!(reader.info.protection(), Some(Protection::Master | Protection::Named(_))) {
            reader.unlock(None, &self.options.master_keys)?;
        }
        Ok(reader)
    }

    /// Checksums of a multipart object's parts, in order, in the form of stored headers; empty if no part has one.
    pub async fn part_checksums(&self, name: ObjectName<'_>) -> Result<Vec<Headers>, Error> {
        self.view(&RequestRows::default()).part_checksums(name).await
    }

    pub(crate) fn part_checksums_now(&self, name: ObjectName<'_>, seen: &mut Seen) -> Result<Vec<Headers>, Error> {
        let found = self.find_once(name.0, name.1, name.2, seen)?;
        let mut parts = Vec::new();
        let range = (key::part_checksums(found.file.ino, 0), key::part_rows(found.file.ino).1);
        self.scan(&range, seen, |row| {
            parts.extend(decode_part_checksums(row.value)?);
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(parts)
    }

    /// The file at a key, the empty object of an explicit directory, or a version, of one moment: from prefetched rows,
    /// or looked for until it is.
    pub(crate) fn find(
        &self,
        bucket: &str,
        key: &str,
        version: Option<VersionId>,
        seen: &mut Seen,
    ) -> Result<Located, Error> {
        if seen.is_ahead() {
            let found = self.find_once(bucket, key, version, seen);
            if seen.is_of_one_moment() {
                return found;
            }
            // They may be older than what is found now.
            seen.forget_ahead();
        }
        let mut now = Seen::default();
        let found = self.consistent(&mut now, |seen| self.find_once(bucket, key, version, seen));
        seen.absorb(now);
        found
    }

    fn find_once(
        &self,
        bucket: &str,
        key: &str,
        version: Option<VersionId>,
        seen: &mut Seen,
    ) -> Result<Located, Error> {
        let (directories, name) = split(key);
        let walk = self.walk(bucket, directories, seen)?;
        let object = walk.path.versioned(key);
        let current = if walk.complete() { self.find_current(&walk, name, seen)? } else { None };
        let mut found = match (version, current) {
            (None, Some(current)) => current,
            (None, None) => return Err(self.why_absent(&object, walk.path.directory(), seen)),
            (Some(version), current) => self.find_version(&object, current, version, seen)?,
        };
        found.version_id = object.keeps().then(|| found.file.version.id());
        Ok(found)
    }

    fn find_current(&self, walk: &Walk<'_>, name: &str, seen: &mut Seen) -> Result<Option<Located>, Error> {
        let parent = walk.path.directory();
        if let Some(located) = self.file_at(parent, name.as_bytes(), seen)? {
            return Ok(Some(located));
        }
        match walk.path.steps.last() {
            Some(step) if name.is_empty() && step.entry.explicit => {
                let file = explicit_object(step.entry.ino, self.modified(step.entry.ino, seen)?);
                Ok(Some(Located::direct(parent, step.key.clone(), step.version, seen.cursor, file)))
            }
            _ => Ok(None),
        }
    }

    /// A file's facts for S3.
    pub(crate) fn info(&self, found: &Located, seen: &mut Seen) -> Result<ObjectInfo, Error> {
        let file = &found.file;
        let mut info = ObjectInfo {
            size: file.size,
            etag: file.etag,
            modified: file.modified,
            headers: file.headers.clone(),
            part_sizes: Vec::new(),
            documents: self.documents_of(file, seen)?,
            version: found.version_id,
        };
        if !file.header_rows && !file.part_rows && file.documents.is_empty() {
            return Ok(info);
        }
        let sizes = if file.part_rows { self.get(&key::part_sizes(file.ino), seen)? } else { None };
        if file.header_rows {
            self.scan(&key::headers(file.ino), seen, |row| {
                let name = str_of(key::parse_ino(row.key)?.1)?;
                info.headers.insert(name.to_owned(), str_of(row.value)?.to_owned());
                Ok(ControlFlow::Continue(()))
            })?;
        }
        if let Some(row) = sizes {
            info.part_sizes = decode_part_sizes(&row.value, file.etag.parts)?;
        }
        Ok(info)
    }

    /// Calls `read` for a located file; `None` if the file was replaced meanwhile.
    pub(crate) fn while_unchanged<T>(
        &self,
        located: &Located,
        read: impl FnOnce(&mut Seen) -> Result<T, Error>,
    ) -> Result<Option<T>, Error> {
        let mut seen = Seen::default();
        seen.remembered(&located.row_key, located.version);
        let found = read(&mut seen);
        if self.still(&seen)? { found.map(Some) } else { Ok(None) }
    }

    /// Pins a file's data. If bytes may have been removed since its row was read, the row counts as read at another
    /// moment, so that it is read again (G1).
    pub(crate) fn hold(&self, file: &FileEntry, seen: &mut Seen) -> Result<Content, Error> {
        let stored_len = self.stored_len(file, seen)?;
        let rows = match &file.data {
            Data::Inline(bytes) => return Ok(Content::Inline(Bytes::copy_from_slice(bytes))),
            Data::Rows => self.extent_rows(file.ino, 0, OBJECT_EXTENTS_MAX + 1, seen)?,
            Data::Extents(extents) => {
                let mut offset = 0;
                let place = |extent: &margay_segment::Extent| {
                    offset += extent.len;
                    (offset - extent.len, *extent)
                };
                extents.iter().map(place).collect()
            }
        };
        let stored = rows.iter().filter(|(_, extent)| !is_hole(extent));
        let mut segments: Vec<_> = stored.map(|(_, extent)| extent.run.segment).collect();
        segments.sort_unstable();
        segments.dedup();
        let pins: Result<Vec<SegmentPin>, _> =
            segments.iter().map(|segment| self.store.pin(*segment, InQuarantine::Leave)).collect();
        if seen.may_have_lost_bytes(self.store.removals()) {
            seen.moment_passed();
        }
        let pins = match pins {
            // If the file still refers to it and it is in quarantine, that must raise an alarm.
            Err(SegmentError::Missing(_)) if !at_hand::is_running() && self.still(seen)? => {
                segments.into_iter().map(|segment| self.store.pin(segment, InQuarantine::TakeBack)).collect()
            }
            Err(SegmentError::Missing(_)) => {
                seen.moment_passed();
                pins
            }
            pins => pins,
        };
        let covered: u64 = rows.iter().map(|(_, extent)| extent.len).sum();
        if covered != stored_len {
            return Err(Error::Corrupt("extents do not cover the object".to_owned()));
        }
        Ok(Content::Extents { extents: rows, pins: pins? })
    }
}

fn str_of(bytes: &[u8]) -> Result<&str, Error> {
    std::str::from_utf8(bytes).map_err(|_| Error::Corrupt("a header is not UTF-8".to_owned()))
}

/// A file that only POSIX can create is an object too; computed headers tell its kind.
pub(super) fn tell_kind(file: &FileEntry, headers: &mut Headers) {
    let Some(kind) = file.special() else { return };
    headers.insert(KIND_HEADER.to_owned(), kind.to_owned());
    if file.device != 0 {
        let (major, minor) = file.device_numbers();
        headers.insert(DEVICE_HEADER.to_owned(), format!("{major}:{minor}"));
    }
}

/// An explicit directory as S3 sees it.
pub(crate) fn explicit_object(ino: Ino, modified: Timestamp) -> FileEntry {
    FileEntry::new(ino, 0, EMPTY_ETAG, modified, Data::Inline(Vec::new()), Headers::new())
}
