//! Lists versions and delete markers, by key, the newest of a key first.
//!
//! Why:        current objects are in the tree, other versions are rows beside it, both in key order. So a listing
//!             merges two scans, one window at a time, and a common prefix is a seek in both.
//! Invariants: L1 a window is of one moment: entries are read, then version rows, then the entries again unless nothing
//!                was committed meanwhile; every move of a version between the two changes them.
//! Not here:   XML (the S3 door), walking the tree (tree).

use std::ops::ControlFlow;

use margay_env::Timestamp;
use margay_rows::record::version::decode_sequence;
use margay_rows::record::{Entry, Summary, Version, VersionRow};
use margay_rows::{Ino, key};

use crate::api::{
    ETag, Error, ListVersionsOutcome, ListVersionsRequest, VersionId, VersionItem, Versioning, VersionsAfter,
};
use crate::draft::Seen;
use crate::entry::{Next, Shown, Tree, end_of, text};
use crate::open::Volume;

/// Rows of the first window where common prefixes are skipped, and of the largest one.
const WINDOW_FIRST: usize = 16;
const WINDOW_MAX: usize = 1024;
/// Attempts to read a window whose versions change meanwhile.
const TRIES_MAX: usize = 16;

/// The start of a window.
#[derive(Clone, Debug)]
enum Position {
    /// At the first key not less than this.
    Key(Vec<u8>),
    /// At the rows of this key with a smaller sequence; something of the key was already returned.
    Within(String, u64),
}

/// An object or a delete marker.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Line {
    key: String,
    version: Version,
    is_latest: bool,
    modified: Timestamp,
    /// `None`: a delete marker.
    content: Option<(u64, ETag)>,
}

#[derive(Debug)]
struct Window {
    lines: Vec<Line>,
    next: Option<Position>,
}

impl Volume {
    /// Calls `visit` for each item in order; `visit` must not call the volume.
    pub async fn list_versions(
        &self,
        request: &ListVersionsRequest<'_>,
        visit: &mut (dyn FnMut(VersionItem<'_>) + Send),
    ) -> Result<ListVersionsOutcome, Error> {
        let mut seen = Seen::default();
        let outcome = self.list_versions_now(request, visit, &mut seen).await;
        self.settle(seen.cursor).await?;
        outcome
    }

    async fn list_versions_now(
        &self,
        request: &ListVersionsRequest<'_>,
        visit: &mut (dyn FnMut(VersionItem<'_>) + Send),
        seen: &mut Seen,
    ) -> Result<ListVersionsOutcome, Error> {
        let (bucket, _) = self.read_now(seen, |seen| self.bucket_row(request.bucket, seen)).await?;
        let mut page = Page { request, items: 0, last: None, visit };
        let mut position = match request.max {
            0 => None,
            _ => self.read_now(seen, |seen| self.start_of(bucket.root, request, seen)).await?,
        };
        let mut rows = if request.delimiter.is_some() { WINDOW_FIRST } else { request.max.saturating_add(1) };
        while let Some(from) = position {
            rows = rows.min(WINDOW_MAX);
            let window = self.window(bucket.root, bucket.versioning, &from, rows, seen).await?;
            position = window.next;
            rows *= 2;
            for line in &window.lines {
                match page.line(line)? {
                    Next::Stop => {
                        return Ok(ListVersionsOutcome { next: page.last.filter(|_| page.items > request.max) });
                    }
                    Next::Seek(target) => {
                        let behind = window.lines.last().is_none_or(|last| last.key.as_bytes() < target.as_slice());
                        if behind {
                            position = Some(Position::Key(target));
                            rows = WINDOW_FIRST;
                            break;
                        }
                    }
                    Next::Row | Next::Descend => {}
                }
            }
        }
        Ok(ListVersionsOutcome::default())
    }

    fn start_of(
        &self,
        root: Ino,
        request: &ListVersionsRequest<'_>,
        seen: &mut Seen,
    ) -> Result<Option<Position>, Error> {
        let prefix = request.prefix.as_bytes();
        let from = |key: Vec<u8>| Some(Position::Key(key.max(prefix.to_vec())));
        Ok(match request.after {
            None => from(Vec::new()),
            Some(VersionsAfter::Prefix(after)) => key::successor(after.as_bytes()).and_then(from),
            Some(VersionsAfter::Key(after)) => from(key::after(after.as_bytes().to_vec())),
            Some(VersionsAfter::Version(after, _)) if after.as_bytes() < prefix => from(Vec::new()),
            Some(VersionsAfter::Version(after, id)) => match id {
                VersionId::Numbered(sequence) => Some(Position::Within(after.to_owned(), sequence)),
                VersionId::Null => match self.get(&key::null_version(root, after), seen)? {
                    Some(row) => Some(Position::Within(after.to_owned(), decode_sequence(&row.value)?)),
                    // The named version is current or gone: continue with the key's rows from the newest on.
                    None => Some(Position::Within(after.to_owned(), u64::MAX)),
                },
            },
        })
    }

    /// Some items from a position on, at least one unless there are none.
    async fn window(
        &self,
        root: Ino,
        versioning: Versioning,
        from: &Position,
        rows: usize,
        seen: &mut Seen,
    ) -> Result<Window, Error> {
        let mut tries = 0;
        loop {
            tries += 1;
            let before = self.engine.last_cursor();
            let current = self.current_lines(root, from, rows, seen).await?;
            if versioning == Versioning::Never {
                return Ok(merge(current, Vec::new(), false, from));
            }
            let found = self.with_rows(seen, |seen| self.version_lines(root, from, rows, seen)).await?;
            let (others, more) = found?;
            let same =
                self.engine.unchanged_since(before) || self.current_lines(root, from, rows, seen).await? == current;
            if same || tries == TRIES_MAX {
                return Ok(merge(current, others, more, from));
            }
        }
    }

    /// Current objects from a position on; their number tells whether more follow.
    async fn current_lines(
        &self,
        root: Ino,
        from: &Position,
        rows: usize,
        seen: &mut Seen,
    ) -> Result<(Vec<Line>, bool), Error> {
        let start = match from {
            Position::Key(key) => key.clone(),
            Position::Within(key, _) => key::after(key.as_bytes().to_vec()),
        };
        let (mut lines, mut more) = (Vec::new(), false);
        let mut tree = Tree::new(self, root, (None, rows), Seen::default());
        let done = tree
            .run(&start, &mut |shown: Shown<'_>| {
                let Summary::File { size, modified, etag } = shown.row else { return Ok(Next::Descend) };
                if lines.len() == rows {
                    more = true;
                    return Ok(Next::Stop);
                }
                let version = match Entry::decode(shown.value) {
                    Ok(Entry::File(file)) => file.version,
                    // An explicit directory has no entry of its own.
                    _ => Version::OLD,
                };
                let key = text(shown.key)?.to_owned();
                lines.push(Line { key, version, is_latest: true, modified, content: Some((size, etag)) });
                Ok(Next::Row)
            })
            .await;
        seen.rises_to(tree.seen.cursor);
        done?;
        Ok((lines, more))
    }

    /// Version rows from a position on, and whether more follow.
    fn version_lines(
        &self,
        root: Ino,
        from: &Position,
        rows: usize,
        seen: &mut Seen,
    ) -> Result<(Vec<Line>, bool), Error> {
        let range = match from {
            Position::Key(key) => key::versions_from_key(root, key),
            Position::Within(key, sequence) => (key::versions_below(root, key, *sequence).0, key::versions(root).1),
        };
        let (mut lines, mut more) = (Vec::new(), false);
        self.scan(&range, seen, |row| {
            if lines.len() == rows {
                more = true;
                return Ok(ControlFlow::Break(()));
            }
            let (_, key, sequence) = key::parse_version(row.key)?;
            let (is_null, modified, content) = match VersionRow::decode(row.value)? {
                VersionRow::File(file) => (file.version.is_null, file.modified, Some((file.size, file.etag))),
                VersionRow::Marker(marker) => (marker.is_null, marker.modified, None),
            };
            let version = Version { sequence, is_null };
            lines.push(Line { key, version, is_latest: false, modified, content });
            Ok(ControlFlow::Continue(()))
        })?;
        Ok((lines, more))
    }
}

/// Merges current objects and version rows, as far as both are known.
fn merge((current, more_current): (Vec<Line>, bool), others: Vec<Line>, more_others: bool, from: &Position) -> Window {
    let known_current = more_current.then(|| current.last().map(|line| line.key.clone())).flatten();
    let known_others = more_others.then(|| others.last().map(|line| line.key.clone())).flatten();
    let mut lines: Vec<Line> = Vec::with_capacity(current.len() + others.len());
    let mut cut = false;
    let (mut current, mut others) = (current.into_iter().peekable(), others.into_iter().peekable());
    loop {
        let takes_current = match (current.peek(), others.peek()) {
            (None, None) => break,
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (Some(one), Some(other)) => one.key <= other.key,
        };
        let known = if takes_current { &known_others } else { &known_current };
        let next = if takes_current { current.next() } else { others.next() };
        let Some(mut next) = next else { break };
        if known.as_ref().is_some_and(|known| next.key > *known) {
            cut = true;
            break;
        }
        let of_same_key = match lines.last() {
            Some(last) => last.key == next.key,
            None => matches!(from, Position::Within(key, _) if *key == next.key),
        };
        next.is_latest = !of_same_key;
        lines.push(next);
    }
    let more = cut || more_current || more_others;
    let behind = |last: &Line| match last.version {
        // A current object is followed by the rows of its key.
        _ if last.is_latest && last.content.is_some() => Position::Within(last.key.clone(), u64::MAX),
        version => Position::Within(last.key.clone(), version.sequence),
    };
    let next = lines.last().filter(|_| more).map(behind);
    Window { lines, next }
}

/// A page under construction.
struct Page<'a> {
    request: &'a ListVersionsRequest<'a>,
    items: usize,
    last: Option<(String, Option<VersionId>)>,
    visit: &'a mut (dyn FnMut(VersionItem<'_>) + Send),
}

impl Page<'_> {
    fn line(&mut self, line: &Line) -> Result<Next, Error> {
        let prefix = self.request.prefix;
        let Some(rest) = line.key.strip_prefix(prefix) else { return Ok(Next::Stop) };
        if let Some((last, None)) = &self.last
            && line.key.starts_with(last.as_str())
        {
            // Below the common prefix that was returned last.
            return Ok(Next::Row);
        }
        if let Some(len) = self.request.delimiter.and_then(|delimiter| end_of(rest.as_bytes(), delimiter.as_bytes())) {
            let common = &line.key[..prefix.len() + len];
            if !self.give(VersionItem::Prefix(common), common, None) {
                return Ok(Next::Stop);
            }
            return Ok(key::successor(common.as_bytes()).map_or(Next::Stop, Next::Seek));
        }
        let (key, version, is_latest, modified) = (line.key.as_str(), line.version.id(), line.is_latest, line.modified);
        let item = match line.content {
            Some((size, etag)) => VersionItem::Version { key, version, is_latest, size, etag, modified },
            None => VersionItem::DeleteMarker { key, version, is_latest, modified },
        };
        Ok(if self.give(item, key, Some(version)) { Next::Row } else { Next::Stop })
    }

    /// False if the page was already full.
    fn give(&mut self, item: VersionItem<'_>, name: &str, version: Option<VersionId>) -> bool {
        self.items += 1;
        if self.items > self.request.max {
            return false;
        }
        (self.visit)(item);
        self.last = Some((name.to_owned(), version));
        true
    }
}
