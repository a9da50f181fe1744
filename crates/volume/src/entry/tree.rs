//! Walks the keys of a bucket in byte order, with seeks.
//!
//! Why:        directories are contiguous ranges in key order, so a depth-first walk is a sorted listing, and skipping
//!             costs one seek.
//! Invariants: T1 the frames are directories from the root down; `name` is the path of the last one.
//!             T2 rows are visited in ascending key order, each at most once.
//!             T3 as many rows are read as the visitor is expected to take; directories that follow are read in the
//!                same call.
//! Not here:   what is listed (list), which directories follow (tree_ahead).

use std::collections::HashMap;

use margay_env::Timestamp;
use margay_meta::RowRef;
use margay_rows::record::{DirectoryEntry, Entry, FileEntry, Summary};
use margay_rows::{Ino, key};

use crate::api::Error;
use crate::draft::Seen;
use crate::entry::tree_ahead::{Batch, Upcoming, wanted_range};
use crate::open::Volume;

/// Rows read after the visitor has left those read before.
const ROWS_AFTER_SEEK: usize = 4;
/// Growth of the batch each time that the visitor takes all of it.
const ROWS_GROWTH: usize = 4;
/// Levels above the last directory in which following directories are searched.
const LEVELS_AHEAD_MAX: usize = 32;

#[derive(Debug)]
struct Frame {
    ino: Ino,
    /// Length of the directory's path, with its last `/`.
    path_len: usize,
}

/// The visitor's next step.
#[derive(Debug)]
pub(crate) enum Next {
    /// The next row of this directory.
    Row,
    /// The rows of the directory that was shown.
    Descend,
    /// Continue at the first key that is not less than this.
    Seek(Vec<u8>),
    Stop,
}

/// A directory is visited before its content, with its path; a file with its key, also a hard-linked one.
#[derive(Debug)]
pub(crate) struct Shown<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) row: Summary,
    /// The entry, or the inode record of a hard-linked file; empty for an object without either.
    pub(crate) value: &'a [u8],
}

/// Visits a row and returns the next step.
pub(crate) type Visit<'v> = dyn FnMut(Shown<'_>) -> Result<Next, Error> + Send + 'v;

#[derive(Debug)]
pub(crate) struct Tree<'v> {
    volume: &'v Volume,
    frames: Vec<Frame>,
    path: Vec<u8>,
    /// Position of the next row in the last frame.
    from: Vec<u8>,
    /// Keys from here on are not needed.
    end: Option<Vec<u8>>,
    /// Rows of directories on the path, and of those that follow.
    batches: HashMap<Ino, Batch>,
    /// Rows that the visitor is expected to take.
    wanted: usize,
    /// Rows of the next batch.
    window: usize,
    /// The visitor descends into directories.
    descends: bool,
    pub(crate) seen: Seen,
}

impl<'v> Tree<'v> {
    /// `end`: keys from there on are not needed. `wanted`: rows that the visitor will take, as far as known. `seen`:
    /// prefetched rows.
    pub(crate) fn new(volume: &'v Volume, root: Ino, (end, wanted): (Option<Vec<u8>>, usize), seen: Seen) -> Tree<'v> {
        Tree {
            volume,
            frames: vec![Frame { ino: root, path_len: 0 }],
            path: Vec::new(),
            from: Vec::new(),
            end,
            batches: HashMap::new(),
            wanted,
            // One more shows whether more follow.
            window: wanted.saturating_add(1),
            descends: false,
            seen,
        }
    }

    /// Visits rows from the first key that is not less than `start`, until the visitor stops.
    pub(crate) async fn run(&mut self, start: &[u8], visit: &mut Visit<'_>) -> Result<(), Error> {
        let mut next = self.seek(start, visit).await?;
        loop {
            self.seen.forget_rows();
            next = match next {
                Next::Stop => return Ok(()),
                Next::Seek(target) => self.seek(&target, visit).await?,
                Next::Row | Next::Descend => match self.show_frame(visit).await? {
                    Some(next) => next,
                    None if self.frames.len() == 1 || self.is_last() => return Ok(()),
                    None => {
                        self.leave();
                        Next::Row
                    }
                },
            };
        }
    }

    /// Nothing after the last frame is needed.
    fn is_last(&self) -> bool {
        let path_len = self.frames.last().map_or(0, |frame| frame.path_len);
        match (&self.end, key::successor(&self.path[..path_len])) {
            (Some(end), Some(next)) => next >= *end,
            (None, _) | (_, None) => false,
        }
    }

    /// Visits rows of the last frame; `None` at its end. Descends on request.
    async fn show_frame(&mut self, visit: &mut Visit<'_>) -> Result<Option<Next>, Error> {
        let Some(frame) = self.frames.last() else { return Ok(None) };
        let (ino, path_len) = (frame.ino, frame.path_len);
        loop {
            self.fetch(ino).await?;
            // Put back before anything else is read.
            let Some(batch) = self.batches.remove(&ino) else { return Ok(None) };
            let stopped = self.show_batch(&batch, path_len, visit);
            let ended = !batch.rows.more;
            self.batches.insert(ino, batch);
            match stopped? {
                None if ended => return Ok(None),
                None => self.window = self.window.saturating_mul(ROWS_GROWTH),
                Some((_, Summary::Link(_))) => return self.follow(ino, path_len, visit).await.map(Some),
                Some((Next::Descend, Summary::Directory(entry))) => {
                    self.descends = true;
                    return self.enter(entry, Vec::new(), visit).await.map(Some);
                }
                Some((next, _)) => return Ok(Some(next)),
            }
        }
    }

    /// Visits rows of a batch from `from` on, until the visitor wants another step.
    fn show_batch(
        &mut self,
        batch: &Batch,
        path_len: usize,
        visit: &mut Visit<'_>,
    ) -> Result<Option<(Next, Summary)>, Error> {
        for index in batch.position(&self.from)..batch.rows.len() {
            let Some(RowRef { key, value, .. }) = batch.rows.get(index) else { break };
            self.path.truncate(path_len);
            self.path.extend_from_slice(key::parse_ino(key)?.1);
            let summary = Summary::decode(value)?;
            if matches!(summary, Summary::Link(_)) {
                return Ok(Some((Next::Row, summary)));
            }
            self.wanted = self.wanted.saturating_sub(1);
            let next = visit(Shown { key: &self.path, row: summary, value })?;
            if !matches!(next, Next::Row) {
                return Ok(Some((next, summary)));
            }
        }
        if let Some(last) = batch.rows.last() {
            self.from = key::after(key::parse_ino(last.key)?.1.to_vec());
        }
        Ok(None)
    }

    /// Loads the rows of a directory from `from` on, and those of directories that follow.
    async fn fetch(&mut self, ino: Ino) -> Result<(), Error> {
        if self.batches.get(&ino).is_some_and(|batch| batch.covers(&self.from)) {
            return Ok(());
        }
        let path_len = self.frames.last().map_or(0, |frame| frame.path_len);
        let range = wanted_range(ino, &self.path[..path_len], &self.from, self.end.as_deref());
        if let Some(rows) = self.seen.take_rows_ahead(&range) {
            self.batches.insert(ino, Batch::new(self.from.clone(), rows));
            return Ok(());
        }
        let rows_max = self.window.min(self.wanted.saturating_add(1)).max(ROWS_AFTER_SEEK);
        let mut upcoming = Upcoming::new(ino, range, rows_max);
        if self.descends {
            for pair in self.frames.windows(2).rev().take(LEVELS_AHEAD_MAX) {
                let child = &self.path[pair[0].path_len..pair[1].path_len];
                if !upcoming.add_behind(&self.batches, pair[0].ino, child) {
                    break;
                }
            }
        }
        upcoming.read(self.volume, &mut self.batches, self.from.clone(), &mut self.seen).await
    }

    /// Visits the file that the last row, one of its hard links, leads to; the next scan begins after it.
    async fn follow(&mut self, directory: Ino, path_len: usize, visit: &mut Visit<'_>) -> Result<Next, Error> {
        let name = &self.path[path_len..];
        let volume = self.volume;
        let located = volume.with_rows(&mut self.seen, |seen| volume.file_at(directory, name, seen)).await??;
        self.from = key::after(name.to_vec());
        // Removed since the scan.
        let Some(located) = located else { return Ok(Next::Row) };
        let FileEntry { size, modified, etag, .. } = located.file;
        let value = &located.file.encode().value;
        visit(Shown { key: &self.path, row: Summary::File { size, modified, etag }, value })
    }

    /// Enters the directory at `path`. Visits its object first if that has no row of its own.
    async fn enter(&mut self, entry: DirectoryEntry, from: Vec<u8>, visit: &mut Visit<'_>) -> Result<Next, Error> {
        self.frames.push(Frame { ino: entry.ino, path_len: self.path.len() });
        self.from = from;
        if !entry.explicit || !self.from.is_empty() {
            return Ok(Next::Row);
        }
        self.fetch(entry.ino).await?;
        let Some(batch) = self.batches.get(&entry.ino) else { return Ok(Next::Row) };
        if batch.has_object()? {
            return Ok(Next::Row);
        }
        let modified = match batch.modified {
            Some(modified) => modified,
            None => self.modified(entry.ino).await?,
        };
        self.wanted = self.wanted.saturating_sub(1);
        let row = Summary::File { size: 0, modified, etag: margay_rows::record::entry::EMPTY_ETAG };
        visit(Shown { key: &self.path, row, value: &[] })
    }

    /// Returns to the parent, after the directory that was left.
    fn leave(&mut self) {
        let left = self.frames.pop();
        if let Some(frame) = &left {
            self.batches.remove(&frame.ino);
        }
        let left = left.map_or(0, |frame| frame.path_len);
        let parent = self.frames.last().map_or(0, |frame| frame.path_len);
        self.path.truncate(left);
        self.from = key::after(self.path.split_off(parent));
    }

    /// Moves to the first key not less than `target`: up as far as needed, then down.
    async fn seek(&mut self, target: &[u8], visit: &mut Visit<'_>) -> Result<Next, Error> {
        while let [.., _, last] = self.frames.as_slice()
            && !target.starts_with(&self.path[..last.path_len])
        {
            self.batches.remove(&last.ino);
            self.frames.pop();
        }
        if !self.batches.is_empty() {
            self.window = ROWS_AFTER_SEEK;
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
            let Some(entry) = self.entry(frame.ino, name).await? else {
                self.from = name.to_vec();
                return Ok(Next::Row);
            };
            let Entry::Directory(entry) = entry else {
                return Err(Error::Corrupt("a file has the name of a directory".to_owned()));
            };
            self.path.extend_from_slice(name);
            if below.is_empty() {
                return self.enter(entry, Vec::new(), visit).await;
            }
            self.frames.push(Frame { ino: entry.ino, path_len: self.path.len() });
        }
    }

    async fn modified(&mut self, directory: Ino) -> Result<Timestamp, Error> {
        let volume = self.volume;
        volume.with_rows(&mut self.seen, |seen| volume.modified(directory, seen)).await?
    }

    /// An entry of a directory, from its batch if possible.
    async fn entry(&mut self, directory: Ino, name: &[u8]) -> Result<Option<Entry>, Error> {
        if let Some(batch) = self.batches.get(&directory).filter(|batch| batch.covers(name)) {
            let row = batch.rows.get(batch.position(name));
            let row = row.filter(|row| key::parse_ino(row.key).is_ok_and(|(_, found)| found == name));
            return row.map(|row| Ok(Entry::decode(row.value)?)).transpose();
        }
        let (volume, key) = (self.volume, key::entry(directory, name));
        let row = volume.with_rows(&mut self.seen, |seen| volume.get(&key, seen)).await??;
        row.map(|row| Ok(Entry::decode(&row.value)?)).transpose()
    }
}
