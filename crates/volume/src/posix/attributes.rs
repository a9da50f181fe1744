//! The attributes that `stat` shows.
//!
//! Why:        all operations that return attributes build them here.
//! Invariants: A1 a directory's times are the later ones of its entry (set by chmod and utimens) and its times row
//!                (raised by every change in it).  A2 an open, written file shows what its reader would read.
//! Not here:   setting them (set_attributes).

use margay_env::Timestamp;
use margay_meta::Ask;
use margay_rows::record::entry::{MODE_KIND, MODE_RIGHTS};
use margay_rows::record::{Data, DirectoryEntry, FileEntry};
use margay_rows::{Ino, key};

use crate::draft::Seen;
use crate::posix::api::{Attributes, FileKind, PosixError};
use crate::posix::locate::Located;
use crate::posix::mount::Mount;
use crate::posix::opened::Opened;

const SYMLINK: u32 = 0o120_000;
const FIFO: u32 = 0o010_000;
const SOCKET: u32 = 0o140_000;
const CHAR_DEVICE: u32 = 0o020_000;
const BLOCK_DEVICE: u32 = 0o060_000;
const DIRECTORY: u32 = 0o040_000;

/// `st_size` of every directory.
const DIRECTORY_SIZE: u64 = 4096;
/// Link count of a directory without subdirectories: its own name, and its `.`. Each subdirectory adds one, its `..`.
const DIRECTORY_LINKS: u32 = 2;

impl FileKind {
    /// The file type bits in the row of a file of this kind; a regular file has none.
    pub(crate) fn stored_bits(self) -> u32 {
        match self {
            FileKind::Regular => 0,
            FileKind::Directory => DIRECTORY,
            FileKind::Symlink => SYMLINK,
            FileKind::Fifo => FIFO,
            FileKind::Socket => SOCKET,
            FileKind::CharDevice => CHAR_DEVICE,
            FileKind::BlockDevice => BLOCK_DEVICE,
        }
    }

    /// The kind in a file's row; an unknown one is shown as a regular file.
    pub(crate) fn of(mode: u32) -> FileKind {
        match mode & MODE_KIND {
            SYMLINK => FileKind::Symlink,
            FIFO => FileKind::Fifo,
            SOCKET => FileKind::Socket,
            CHAR_DEVICE => FileKind::CharDevice,
            BLOCK_DEVICE => FileKind::BlockDevice,
            DIRECTORY => FileKind::Directory,
            _ => FileKind::Regular,
        }
    }
}

/// As stored, for a file without pending changes.
pub(crate) fn stored_attributes(file: &FileEntry) -> Attributes {
    Attributes {
        ino: file.ino,
        kind: FileKind::of(file.mode),
        rights: file.mode & MODE_RIGHTS,
        links: file.links,
        uid: file.uid,
        gid: file.gid,
        device: file.device,
        size: file.size,
        stored: stored_bytes(file),
        accessed: file.accessed.unwrap_or(file.modified),
        modified: file.modified,
        changed: file.changed,
    }
}

/// Bytes outside holes. A file with extent rows counts as one without holes.
fn stored_bytes(file: &FileEntry) -> u64 {
    match &file.data {
        Data::Inline(bytes) => bytes.len() as u64,
        Data::Extents(extents) => {
            extents.iter().filter(|extent| extent.run.segment.0 != 0).map(|extent| extent.len).sum()
        }
        Data::Rows => file.size,
    }
}

/// The attributes as a reader sees them: unpublished data is included. The row was read before the open file was asked,
/// so it may be older than a publish.
fn as_seen(stored: Attributes, opened: Option<Opened>) -> Attributes {
    match opened {
        Some(opened) if opened.differs || opened.file.changed > stored.changed => {
            Attributes { links: stored.links, stored: opened.stored, ..stored_attributes(&opened.file) }
        }
        _ => stored,
    }
}

impl Mount {
    pub fn attributes(&self, ino: Ino) -> Result<Attributes, PosixError> {
        if self.is_directory(ino)? {
            return self.attributes_of_directory(ino);
        }
        let closes = self.volume.open_files.closes();
        match (self.locate_file(ino)?, self.opened(ino)) {
            (Some(located), None) => {
                let again = || self.locate_file(ino);
                self.seen_since(closes, stored_attributes(&located.file), again)
            }
            (Some(located), opened) => Ok(self.as_seen_now(stored_attributes(&located.file), opened)),
            (None, Some(opened)) => {
                Ok(Attributes { links: 0, stored: opened.stored, ..stored_attributes(&opened.file) })
            }
            (None, None) => Err(PosixError::Stale),
        }
    }

    fn attributes_of_directory(&self, ino: Ino) -> Result<Attributes, PosixError> {
        let mut is_first = true;
        let found = self.consistent(|seen| {
            let rows = self.rows_of_directory(ino);
            // Cached rows that do not fit together would be found again.
            let is_kept = std::mem::take(&mut is_first) && self.volume.fetch_kept(&rows, seen);
            if !is_kept {
                self.volume.fetch_to_keep(rows, seen)?;
            }
            let found = self.locate_directory(ino, seen)?.ok_or(PosixError::Stale)?;
            self.attributes_inside(&found.entry, seen)
        });
        match found {
            Ok(attributes) => Ok(attributes),
            Err(PosixError::Stale) => self.removed_attributes(ino).ok_or(PosixError::Stale),
            Err(error) => Err(error),
        }
    }

    /// The rows of a directory; its entry at the last known location.
    fn rows_of_directory(&self, ino: Ino) -> Vec<Vec<u8>> {
        let entry = match self.known.location(ino) {
            Some(location) if location.parent != Ino(0) => key::entry(location.parent, location.sort_name.as_bytes()),
            _ => key::inode(ino),
        };
        vec![key::directory(ino), entry, key::times(ino), key::subdirectories(ino)]
    }

    /// Of a file whose row was read under its turn, which is still held.
    pub(crate) fn file_attributes(&self, file: &FileEntry) -> Attributes {
        as_seen(stored_attributes(file), self.opened(file.ino))
    }

    /// Of a file whose row was read after reading the count of closes; `again` reads it again. If a file was closed in
    /// between, it was published, perhaps after the first read, and the kernel would cache a stale size.
    pub(crate) fn seen_since(
        &self,
        closes: u64,
        stored: Attributes,
        again: impl FnOnce() -> Result<Option<Located>, PosixError>,
    ) -> Result<Attributes, PosixError> {
        let opened = self.opened(stored.ino);
        if opened.is_some() || self.volume.open_files.closes() == closes {
            return Ok(self.as_seen_now(stored, opened));
        }
        let now = again()?.filter(|now| now.file.ino == stored.ino);
        Ok(now.map_or(stored, |now| stored_attributes(&now.file)))
    }

    /// As `as_seen`; where other processes publish too, an open file without changes of its own adopts a newer row first, so
    /// that size and bytes are of one version.
    fn as_seen_now(&self, stored: Attributes, opened: Option<Opened>) -> Attributes {
        let is_other = |opened: &Opened| !opened.differs && opened.file.changed != stored.changed;
        if self.volume.engine.is_shared() && opened.as_ref().is_some_and(is_other) {
            self.volume.refresh_opened(stored.ino);
            return match self.opened(stored.ino) {
                Some(now) => Attributes { links: stored.links, stored: now.stored, ..stored_attributes(&now.file) },
                None => stored,
            };
        }
        as_seen(stored, opened)
    }

    pub(crate) fn directory_attributes(&self, entry: &DirectoryEntry) -> Result<Attributes, PosixError> {
        let mut seen = Seen::default();
        let asks = [key::times(entry.ino), key::subdirectories(entry.ino)];
        self.volume.fetch_here(asks.map(|key| Ask::Get { key }).into(), &mut seen)?;
        self.attributes_inside(entry, &mut seen)
    }

    fn attributes_inside(&self, entry: &DirectoryEntry, seen: &mut Seen) -> Result<Attributes, PosixError> {
        let inside = self.volume.modified(entry.ino, seen)?;
        let subdirectories = self.volume.counter(&key::subdirectories(entry.ino), seen)?;
        Ok(directory_attributes(entry, inside, subdirectories))
    }
}

/// `inside`: when its content last changed, or the time set by utimens. `subdirectories`: their number.
pub(crate) fn directory_attributes(entry: &DirectoryEntry, inside: Timestamp, subdirectories: u64) -> Attributes {
    Attributes {
        ino: entry.ino,
        kind: FileKind::Directory,
        rights: entry.mode & MODE_RIGHTS,
        links: u32::try_from(subdirectories).unwrap_or(u32::MAX).saturating_add(DIRECTORY_LINKS),
        uid: entry.uid,
        gid: entry.gid,
        device: 0,
        size: DIRECTORY_SIZE,
        stored: 0,
        accessed: entry.accessed.unwrap_or(inside),
        modified: inside,
        changed: entry.changed.map_or(inside, |changed| changed.max(inside)),
    }
}
