//! Reads a directory, entry by entry and page by page.
//!
//! Why:        a directory is one ordered range of rows, so a page is one scan from the end of the last one.
//! Invariants: E1 a cookie is the number of entries returned before. The handle records the names of the last
//!                `RECENT_MAX` entries, and of every `MARK_STEP`-th one before, so memory is bounded. Continuing where
//!                a reader stopped, or up to `RECENT_MAX` entries before, is exact whatever changes meanwhile; further
//!                back, entries are counted from the preceding mark.
//!             E2 no attributes are kept between calls: they are read when they are returned. A reader that wants names alone gets the
//!                rest of a page first, as long as it goes on where it stopped: rows of PostgreSQL cost less by the thousand.
//! Locking:    the handle's reader, over a page: two threads that read one handle are serialized.
//! Not here:   `.` and `..`, the kernel's buffers (the door).

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::ControlFlow;

use margay_env::Timestamp;
use margay_meta::{Ask, ReadAnswer, ReadLimit};
use margay_rows::record::{Damaged, DirectoryEntry, Entry, Line};
use margay_rows::{Ino, key};
use parking_lot::Mutex;

use crate::api::Error;
use crate::draft::Seen;
use crate::driver::counters::{count_of, time_of};
use crate::posix::api::{Attributes, DirectoryItem, FileKind, PosixError};
use crate::posix::attributes::{directory_attributes, stored_attributes};
use crate::posix::mount::Mount;

/// Entries whose names are recorded exactly.
const RECENT_MAX: usize = 4096;
/// Before those, one in this many is recorded.
const MARK_STEP: u64 = 1024;
/// Minimum and maximum rows of a page.
const PAGE_ROWS_MIN: usize = 16;
const PAGE_ROWS_MAX: usize = 512;
/// Most rows of a page without attributes, of which the handle keeps what the visitor did not take.
const NAMES_ROWS_MAX: usize = 2048;
/// Rows of a handle's first page.
const FIRST_PAGE_ROWS: usize = 64;
/// Least rows of a page without attributes where each page is a round trip: most directories are one page then.
const NAMES_ROWS_MIN_WAITING: usize = 1024;
/// Rows read beyond those that the last page's visitor took: they show whether a file is beside a directory.
const ROWS_AHEAD: usize = 4;

/// An open directory, with its reader's position.
#[derive(Debug)]
pub struct DirectoryHandle {
    ino: Ino,
    reader: Mutex<Reader>,
}

#[derive(Debug)]
struct Reader {
    /// Sort names of the entries up to `newest`.
    recent: VecDeque<String>,
    newest: u64,
    marks: BTreeMap<u64, String>,
    /// Rows that the next page reads.
    page_rows: usize,
    /// Of names alone (E2).
    ahead: Option<Ahead>,
}

/// The rest of a page.
#[derive(Debug)]
struct Ahead {
    page: Page,
    /// Of the first row that was not returned.
    index: usize,
    /// Of the entry before it.
    cookie: u64,
}

/// Where to continue: after this name (`None`: at the start), after this many more entries.
struct From {
    after: Option<String>,
    skip: u64,
}

#[derive(Debug, Default)]
struct Page {
    /// The rows' sort names, concatenated: one allocation instead of one per row.
    names: String,
    rows: Vec<Row>,
    /// Count of closes before the rows were read.
    closes: u64,
    /// Count of moves before that.
    moves: u64,
    /// Modification time and number of subdirectories of each directory in the page.
    insides: HashMap<Ino, (Timestamp, u64)>,
    /// The directory has no more rows after these.
    ended: bool,
}

#[derive(Debug)]
struct Row {
    /// The end of its name in `names`.
    name_end: usize,
    found: Found,
}

/// The facts of a row that an entry needs.
#[derive(Debug)]
enum Found {
    /// `stored`: if attributes are wanted.
    File {
        ino: Ino,
        kind: FileKind,
        size: u64,
        stored: Option<Attributes>,
    },
    Directory(DirectoryEntry),
    Link,
}

impl Found {
    fn decode(value: &[u8], with_attributes: bool) -> Result<Found, Damaged> {
        if !with_attributes {
            return Ok(match Line::decode(value)? {
                Line::File { ino, size, mode } => Found::File { ino, kind: FileKind::of(mode), size, stored: None },
                Line::Directory(entry) => Found::Directory(entry),
                Line::Link(_) => Found::Link,
            });
        }
        Ok(match Entry::decode(value)? {
            Entry::File(file) => {
                let stored = stored_attributes(&file);
                Found::File { ino: file.ino, kind: stored.kind, size: file.size, stored: Some(stored) }
            }
            Entry::Directory(entry) => Found::Directory(entry),
            Entry::Link(_) => Found::Link,
        })
    }
}

impl Reader {
    fn new() -> Reader {
        Reader { recent: VecDeque::new(), newest: 0, marks: BTreeMap::new(), page_rows: FIRST_PAGE_ROWS, ahead: None }
    }

    fn note(&mut self, sort_name: &str) {
        self.newest += 1;
        if self.newest.is_multiple_of(MARK_STEP) {
            self.marks.insert(self.newest, sort_name.to_owned());
        }
        let mut name = if self.recent.len() == RECENT_MAX { self.recent.pop_front() } else { None }.unwrap_or_default();
        name.clear();
        name.push_str(sort_name);
        self.recent.push_back(name);
        let recent = self.recent.len() as u64;
        assert!(recent <= self.newest.min(RECENT_MAX as u64), "recent names are those of the last cookies (E1)");
    }

    /// Seeks back or forward to the entry with this number.
    fn seek(&mut self, cookie: u64) -> From {
        if cookie == 0 {
            *self = Reader { page_rows: self.page_rows, ..Reader::new() };
            return From { after: None, skip: 0 };
        }
        let oldest = self.newest - self.recent.len() as u64;
        if cookie > oldest && cookie <= self.newest {
            self.recent.truncate((cookie - oldest) as usize);
            self.newest = cookie;
            self.marks.split_off(&(cookie + 1));
            return From { after: self.recent.back().cloned(), skip: 0 };
        }
        if cookie > self.newest {
            return From { after: self.recent.back().cloned(), skip: cookie - self.newest };
        }
        self.marks.split_off(&(cookie + 1));
        self.recent.clear();
        let (at, after) = self.marks.last_key_value().map_or((0, None), |(at, name)| (*at, Some(name.clone())));
        self.newest = at;
        From { after, skip: cookie - at }
    }

    /// The visitor took this many entries of pages with attributes.
    fn adapt(&mut self, taken: usize) {
        self.page_rows = (taken + ROWS_AHEAD).clamp(PAGE_ROWS_MIN, PAGE_ROWS_MAX);
    }

    /// The rest of the last page, for a reader that goes on there.
    fn take_ahead(&mut self, cookie: u64, with_attributes: bool) -> Option<Ahead> {
        let ahead = self.ahead.take()?;
        (!with_attributes && cookie > 0 && cookie == ahead.cookie && cookie == self.newest).then_some(ahead)
    }
}

impl Page {
    fn push(&mut self, sort_name: &str, found: Found) {
        self.names.push_str(sort_name);
        self.rows.push(Row { name_end: self.names.len(), found });
    }

    fn name(&self, index: usize) -> &str {
        let begin = index.checked_sub(1).map_or(0, |before| self.rows[before].name_end);
        &self.names[begin..self.rows[index].name_end]
    }

    /// Whether the directory of this file's name exists; `None` if the page ends before it.
    fn has_directory(&self, index: usize) -> Option<bool> {
        let name = self.name(index);
        let before = |other: usize| match self.name(other).strip_prefix(name) {
            Some(rest) => rest < "/",
            None => self.name(other) < name,
        };
        let (mut low, mut high) = (index + 1, self.rows.len());
        if low < high && !self.name(low).starts_with(name) {
            return Some(false);
        }
        while low < high {
            let middle = low.midpoint(high);
            if before(middle) { low = middle + 1 } else { high = middle }
        }
        if low < self.rows.len() {
            Some(self.name(low).strip_prefix(name) == Some("/"))
        } else {
            self.ended.then_some(false)
        }
    }
}

impl Mount {
    pub fn open_directory(&self, ino: Ino) -> Result<DirectoryHandle, PosixError> {
        Ok(DirectoryHandle { ino, reader: Mutex::new(Reader::new()) })
    }

    /// Visits entries after `cookie` (0: from the start) until the visitor returns false, which means that it did not
    /// take the entry. Entries that are created or removed meanwhile may or may not appear; no other entry appears
    /// twice or is missing.
    pub fn read_directory(
        &self,
        handle: &DirectoryHandle,
        cookie: u64,
        with_attributes: bool,
        visit: &mut dyn FnMut(&DirectoryItem<'_>) -> bool,
    ) -> Result<(), PosixError> {
        let mut reader = handle.reader.lock();
        let mut ahead = reader.take_ahead(cookie, with_attributes);
        let From { mut after, mut skip } = reader.seek(cookie);
        let (rows_min, rows_max) = match with_attributes {
            true => (0, PAGE_ROWS_MAX),
            false if self.volume.engine.waits() => (NAMES_ROWS_MIN_WAITING, NAMES_ROWS_MAX),
            false => (0, NAMES_ROWS_MAX),
        };
        let mut taken = 0;
        loop {
            let (page, first) = match ahead.take() {
                Some(ahead) => (ahead.page, ahead.index),
                None => {
                    (self.read_page(handle.ino, after.as_deref(), reader.page_rows.max(rows_min), with_attributes)?, 0)
                }
            };
            for index in first..page.rows.len() {
                let sort_name = page.name(index);
                let Some(mut item) = self.item(handle.ino, &page, index, with_attributes)? else { continue };
                if skip > 0 {
                    skip -= 1;
                    reader.note(sort_name);
                    continue;
                }
                item.cookie = reader.newest + 1;
                if !visit(&item) {
                    if with_attributes {
                        reader.adapt(taken);
                    } else {
                        reader.ahead = Some(Ahead { page, index, cookie: reader.newest });
                    }
                    return Ok(());
                }
                taken += 1;
                reader.note(sort_name);
                if with_attributes {
                    self.count_line((handle.ino, sort_name), item.kind, item.ino, page.moves)?;
                }
            }
            match page.rows.len().checked_sub(1) {
                Some(last) if !page.ended => after = Some(page.name(last).to_owned()),
                _ => {
                    if with_attributes {
                        reader.adapt(taken);
                    }
                    return Ok(());
                }
            }
            reader.page_rows = (reader.page_rows.max(rows_min) * 2).min(rows_max);
        }
    }

    fn read_page(
        &self,
        directory: Ino,
        after: Option<&str>,
        limit: usize,
        with_attributes: bool,
    ) -> Result<Page, PosixError> {
        let (mut start, end) = key::entries(directory);
        if let Some(after) = after {
            start = key::after(key::entry(directory, after.as_bytes()));
        }
        let (closes, moves) = (self.volume.open_files.closes(), self.volume.known.moves());
        let mut page = Page { rows: Vec::with_capacity(limit), closes, moves, ended: true, ..Page::default() };
        self.volume.scan(&(start, end), &mut Seen::default(), |row| {
            if page.rows.len() == limit {
                page.ended = false;
                return Ok(ControlFlow::Break(()));
            }
            page.push(key::parse_entry(row.key)?.1, Found::decode(row.value, with_attributes)?);
            Ok(ControlFlow::Continue(()))
        })?;
        if with_attributes {
            page.insides = self.insides_of(&page)?;
        }
        Ok(page)
    }

    /// The directories' own rows, for all directories of a page.
    fn insides_of(&self, page: &Page) -> Result<HashMap<Ino, (Timestamp, u64)>, PosixError> {
        let directories = page.rows.iter().filter_map(|row| match row.found {
            Found::Directory(entry) => Some(entry.ino),
            Found::File { .. } | Found::Link => None,
        });
        let directories: Vec<Ino> = directories.collect();
        let keys = directories.iter().flat_map(|ino| [key::times(*ino), key::subdirectories(*ino)]);
        let asks: Vec<Ask> = keys.map(|key| Ask::Get { key }).collect();
        if asks.is_empty() {
            return Ok(HashMap::new());
        }
        let rows = self.volume.read_here(&asks, ReadLimit::default(), &mut Seen::default())?;
        let mut rows = rows.into_iter().map(ReadAnswer::row);
        let mut insides = HashMap::new();
        for ino in directories {
            let (times, subdirectories) = (rows.next().flatten(), rows.next().flatten());
            insides.insert(ino, (time_of(times.as_ref())?, count_of(subdirectories.as_ref())?));
        }
        Ok(insides)
    }

    /// The entry of a row; `None` if it is not shown.
    fn item<'a>(
        &self,
        directory: Ino,
        page: &'a Page,
        index: usize,
        with_attributes: bool,
    ) -> Result<Option<DirectoryItem<'a>>, PosixError> {
        let sort_name = page.name(index);
        let (ino, kind, attributes) = match &page.rows[index].found {
            // The empty object `a/` represents the directory itself in S3.
            Found::File { size: 0, .. } if sort_name.is_empty() => return Ok(None),
            Found::File { ino, kind, stored, .. } => {
                let again = || self.read_file(directory, sort_name.as_bytes(), &mut Seen::default());
                let seen = stored.map(|stored| self.seen_since(page.closes, stored, again)).transpose()?;
                (*ino, *kind, seen)
            }
            Found::Directory(entry) => {
                let inside = page.insides.get(&entry.ino);
                let attributes = inside.map(|(modified, count)| directory_attributes(entry, *modified, *count));
                (entry.ino, FileKind::Directory, attributes)
            }
            Found::Link => match self.read_file(directory, sort_name.as_bytes(), &mut Seen::default())? {
                Some(located) => {
                    let again = || self.read_file(directory, sort_name.as_bytes(), &mut Seen::default());
                    let seen = || self.seen_since(page.closes, stored_attributes(&located.file), again);
                    let attributes = with_attributes.then(seen).transpose()?;
                    (located.file.ino, FileKind::of(located.file.mode), attributes)
                }
                None => return Ok(None),
            },
        };
        let name = sort_name.strip_suffix('/').unwrap_or(sort_name);
        let beside = kind != FileKind::Directory
            && match page.has_directory(index) {
                Some(has) => has,
                None => self.has_directory(directory, name)?,
            };
        Ok(Some(DirectoryItem { ino, kind, name, beside, cookie: 0, attributes }))
    }

    fn has_directory(&self, directory: Ino, name: &str) -> Result<bool, PosixError> {
        let key = key::entry(directory, [name, "/"].concat().as_bytes());
        Ok(self.volume.engine.get(&key).map_err(Error::from)?.value.is_some())
    }

    /// Counts the lookup of a returned entry that was read at this count of moves.
    fn count_line(
        &self,
        (directory, sort_name): (Ino, &str),
        kind: FileKind,
        ino: Ino,
        moves: u64,
    ) -> Result<(), PosixError> {
        let known = &self.known;
        if known.remember_again(ino, directory, sort_name) {
            return Ok(());
        }
        let _turn = self.volume.known.turn(ino);
        if kind != FileKind::Directory && self.volume.known.moves() != moves {
            let found = self.read_file(directory, sort_name.as_bytes(), &mut Seen::default())?;
            // Moved since the page was read: the rename has recorded its new location, if any table has it.
            if found.is_none_or(|found| found.file.ino != ino) && known.count(ino) {
                return Ok(());
            }
        }
        known.remember(ino, directory, sort_name);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(reader: &mut Reader, count: u64) {
        (0..count).for_each(|_| {
            let name = format!("{:06}", reader.newest + 1);
            reader.note(&name);
        });
    }

    #[test]
    fn recent_lines_are_exact_and_older_ones_counted_from_a_mark() {
        let mut reader = Reader::new();
        names(&mut reader, 10_000);
        assert_eq!(reader.recent.len(), RECENT_MAX);
        let from = reader.seek(9_000);
        assert_eq!((from.after.as_deref(), from.skip), (Some("009000"), 0));
        names(&mut reader, 1000);
        let from = reader.seek(3000);
        assert_eq!((from.after.as_deref(), from.skip), (Some("002048"), 952));
        let from = reader.seek(20);
        assert_eq!((from.after.as_deref(), from.skip), (None, 20));
        let from = reader.seek(0);
        assert_eq!((from.after.as_deref(), from.skip), (None, 0));
    }

    #[test]
    fn a_page_knows_what_is_beside() {
        let mut page = Page::default();
        ["a", "a-", "a/", "b", "b!"].iter().for_each(|name| page.push(name, Found::Link));
        assert_eq!(page.has_directory(0), Some(true));
        assert_eq!(page.has_directory(1), Some(false));
        assert_eq!(page.has_directory(3), None);
        assert_eq!(Page { ended: true, ..page }.has_directory(3), Some(false));
    }
}
