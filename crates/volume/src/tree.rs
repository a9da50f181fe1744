//! A walk over the keys of a bucket in byte order, which can seek.
//!
//! Why:        directories are contiguous ranges whose order is that of the keys, so a depth-first walk is a
//!             sorted listing, and whatever a listing skips costs one seek.
//! Invariants: T1 the frames are directories from the root down; `name` is the path of the last one.
//!             T2 rows are shown with ascending keys, each at most once.
//! Not here:   what is shown (list).

use std::ops::ControlFlow;

use margay_rows::record::{DirectoryEntry, Entry, FileEntry, Summary};
use margay_rows::{Ino, key};

use crate::api::Error;
use crate::open::Volume;
use crate::seen::Seen;

#[derive(Debug)]
struct Frame {
    ino: Ino,
    /// Length of the directory's path, with its last `/`.
    path_len: usize,
}

/// What the visitor wants next.
#[derive(Debug)]
pub(crate) enum Next {
    /// The next row of this directory.
    Row,
    /// The rows of the directory that was shown.
    Descend,
    /// The first key that is not less than this.
    Seek(Vec<u8>),
    Stop,
}

/// A directory is shown before what is in it, with its path; a file with its key, also one with several names.
#[derive(Debug)]
pub(crate) struct Shown<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) row: Summary,
    /// The entry, or the inode record of a file with several names; empty for an object that has neither.
    pub(crate) value: &'a [u8],
}

#[derive(Debug)]
pub(crate) struct Tree<'v> {
    volume: &'v Volume,
    frames: Vec<Frame>,
    path: Vec<u8>,
    /// Where in the last frame the next scan starts.
    from: Vec<u8>,
    pub(crate) seen: Seen,
}

impl<'v> Tree<'v> {
    pub(crate) fn new(volume: &'v Volume, root: Ino) -> Tree<'v> {
        Tree {
            volume,
            frames: vec![Frame { ino: root, path_len: 0 }],
            path: Vec::new(),
            from: Vec::new(),
            seen: Seen::default(),
        }
    }

    /// Shows rows from the first key that is not less than `start`, until the visitor stops.
    pub(crate) fn run(
        &mut self,
        start: &[u8],
        visit: &mut dyn FnMut(Shown<'_>) -> Result<Next, Error>,
    ) -> Result<(), Error> {
        let mut next = self.seek(start, visit)?;
        loop {
            self.seen.forget_rows();
            next = match next {
                Next::Stop => return Ok(()),
                Next::Seek(target) => self.seek(&target, visit)?,
                Next::Row | Next::Descend => match self.scan_frame(visit)? {
                    Some(next) => next,
                    None if self.frames.len() == 1 => return Ok(()),
                    None => {
                        self.leave();
                        Next::Row
                    }
                },
            };
        }
    }

    /// Shows rows of the last frame; `None` at its end. Descends when asked to.
    fn scan_frame(&mut self, visit: &mut dyn FnMut(Shown<'_>) -> Result<Next, Error>) -> Result<Option<Next>, Error> {
        let Some(frame) = self.frames.last() else { return Ok(None) };
        let (ino, path_len) = (frame.ino, frame.path_len);
        let range = (key::entry(ino, &self.from), key::entries(ino).1);
        let (path, seen) = (&mut self.path, &mut self.seen);
        let mut stopped = None;
        self.volume.scan(&range, seen, |row| {
            path.truncate(path_len);
            path.extend_from_slice(key::parse_ino(row.key)?.1);
            let summary = Summary::decode(row.value)?;
            if matches!(summary, Summary::Link(_)) {
                stopped = Some((Next::Row, summary));
                return Ok(ControlFlow::Break(()));
            }
            let next = visit(Shown { key: path, row: summary, value: row.value })?;
            if matches!(next, Next::Row) {
                return Ok(ControlFlow::Continue(()));
            }
            stopped = Some((next, summary));
            Ok(ControlFlow::Break(()))
        })?;
        match stopped {
            None => Ok(None),
            Some((_, Summary::Link(_))) => self.follow(ino, path_len, visit).map(Some),
            Some((Next::Descend, Summary::Directory(entry))) => Ok(Some(self.enter(entry, Vec::new(), visit)?)),
            Some((next, _)) => Ok(Some(next)),
        }
    }

    /// Shows the file that the last row, one of its several names, leads to; the next scan begins behind it.
    fn follow(
        &mut self,
        directory: Ino,
        path_len: usize,
        visit: &mut dyn FnMut(Shown<'_>) -> Result<Next, Error>,
    ) -> Result<Next, Error> {
        let name = &self.path[path_len..];
        let located = self.volume.file_at(directory, name, &mut self.seen)?;
        self.from = key::after(name.to_vec());
        // Removed since the scan saw it.
        let Some(located) = located else { return Ok(Next::Row) };
        let FileEntry { size, modified, etag, .. } = located.file;
        let value = &located.file.encode().value;
        visit(Shown { key: &self.path, row: Summary::File { size, modified, etag }, value })
    }

    /// Goes into the directory whose path is `path`. Shows its object first when that has no row of its own.
    fn enter(
        &mut self,
        entry: DirectoryEntry,
        from: Vec<u8>,
        visit: &mut dyn FnMut(Shown<'_>) -> Result<Next, Error>,
    ) -> Result<Next, Error> {
        self.frames.push(Frame { ino: entry.ino, path_len: self.path.len() });
        self.from = from;
        if !entry.explicit || !self.from.is_empty() {
            return Ok(Next::Row);
        }
        if self.volume.get(&key::entry(entry.ino, b""), &mut self.seen)?.is_some() {
            return Ok(Next::Row);
        }
        let modified = self.volume.modified(entry.ino, &mut self.seen)?;
        let row = Summary::File { size: 0, modified, etag: margay_rows::record::entry::EMPTY_ETAG };
        visit(Shown { key: &self.path, row, value: &[] })
    }

    /// Back to the parent, behind the directory that was left.
    fn leave(&mut self) {
        let left = self.frames.pop().map_or(0, |frame| frame.path_len);
        let parent = self.frames.last().map_or(0, |frame| frame.path_len);
        self.path.truncate(left);
        self.from = key::after(self.path.split_off(parent));
    }

    /// Goes to where keys from `target` on begin: up as far as needed, then down.
    fn seek(&mut self, target: &[u8], visit: &mut dyn FnMut(Shown<'_>) -> Result<Next, Error>) -> Result<Next, Error> {
        while let [.., _, last] = self.frames.as_slice()
            && !target.starts_with(&self.path[..last.path_len])
        {
            self.frames.pop();
        }
        loop {
            let Some(frame) = self.frames.last() else { return Ok(Next::Stop) };
            self.path.truncate(frame.path_len);
            let rest = &target[frame.path_len..];
            let Some(slash) = rest.iter().position(|byte| *byte == b'/') else {
                self.from = rest.to_vec();
                return Ok(Next::Row);
            };
            let (name, below) = rest.split_at(slash + 1);
            let row = self.volume.get(&key::entry(frame.ino, name), &mut self.seen)?;
            let Some(row) = row else {
                self.from = name.to_vec();
                return Ok(Next::Row);
            };
            let Entry::Directory(entry) = Entry::decode(&row.value)? else {
                return Err(Error::Corrupt("a file has the name of a directory".to_owned()));
            };
            self.path.extend_from_slice(name);
            if below.is_empty() {
                return self.enter(entry, Vec::new(), visit);
            }
            self.frames.push(Frame { ino: entry.ino, path_len: self.path.len() });
        }
    }
}
