//! Lists objects in byte order, with prefix, delimiter and start.
//!
//! Why:        skipped keys (before the start, below a common prefix) cost one seek, so a listing costs what it
//!             returns.
//! Invariants: L1 items ascend, at most `max` of them; `next` is set if and only if more follow.
//!             L2 items are visited during the scan; they are valid, and durable, when the call returns Ok.
//!             L3 nothing is listed where another store may have something that is not known here: that is an error.
//! Not here:   the walk (tree), encoding of keys and continuation tokens (the S3 door).

use margay_meta::Ask;
use margay_rows::key;
use margay_rows::record::Summary;

use crate::api::{Error, ListItem, ListOutcome, ListRequest, ListedRow};
use crate::cache::{PathCache, split};
use crate::draft::Seen;
use crate::entry::tree::{Next, Shown, Tree};
use crate::entry::tree_ahead::wanted_range;
use crate::file_headers::FileHeaders;
use crate::open::Volume;

impl Volume {
    /// Calls `visit` for each item in order; `visit` must not call the volume.
    pub async fn list(
        &self,
        request: &ListRequest<'_>,
        visit: &mut (dyn FnMut(ListItem<'_>) + Send),
    ) -> Result<ListOutcome, Error> {
        let mut seen = Seen::default();
        let outcome = self.list_now(request, visit, &mut seen).await;
        self.settle(seen.cursor).await?;
        outcome
    }

    /// Prefetches the path to the start of a listing, and the first rows there.
    async fn look_ahead_of_list(
        &self,
        bucket: &str,
        (start, end): (&[u8], Option<&[u8]>),
        rows: usize,
        seen: &mut Seen,
    ) -> Result<(), Error> {
        let (directories, name) = start.split_at(start.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1));
        let Ok(directories) = std::str::from_utf8(directories) else { return Ok(()) };
        let path = match self.paths.get(&PathCache::name(bucket, directories)) {
            Some(path) => path,
            None => {
                let walk = self.read_now(&mut Seen::default(), |seen| self.walk(bucket, directories, seen)).await?;
                if !walk.complete() {
                    return Ok(());
                }
                walk.path
            }
        };
        let mut asks = vec![Ask::Get { key: key::bucket(bucket) }];
        asks.extend(path.steps.iter().map(|step| Ask::Get { key: step.key.clone() }));
        let (start, end) = wanted_range(path.directory(), directories.as_bytes(), name, end);
        asks.push(Ask::Scan { start, end, rows_max: rows.saturating_add(1), keys_only: false });
        self.fetch(asks, seen).await
    }

    async fn list_now(
        &self,
        request: &ListRequest<'_>,
        visit: &mut (dyn FnMut(ListItem<'_>) + Send),
        seen: &mut Seen,
    ) -> Result<ListOutcome, Error> {
        let Some(start) = start_of(request).filter(|_| request.max > 0) else {
            self.read_now(seen, |seen| self.bucket_row(request.bucket, seen)).await?;
            return Ok(ListOutcome::default());
        };
        let end = key::successor(request.prefix.as_bytes());
        self.look_ahead_of_list(request.bucket, (&start, end.as_deref()), request.max, seen).await?;
        let (bucket, _) = self.with_rows(seen, |seen| self.bucket_row(request.bucket, seen)).await??;
        let mut lister = Lister {
            prefix: request.prefix,
            delimiter: request.delimiter.filter(|delimiter| !delimiter.is_empty()),
            max: request.max,
            items: 0,
            last: None,
            more: false,
            file_headers: self.options.file_headers.as_deref(),
            visit,
        };
        let mut tree = Tree::new(self, bucket.root, (end, request.max), std::mem::take(seen));
        let done = tree.run(&start, &mut |shown| lister.row(&shown)).await;
        seen.rises_to(tree.seen.cursor);
        done?;
        assert!(!lister.more || lister.last.is_some(), "a page that more follow names its last item (L1)");
        let is_empty = lister.items == 0 && request.after.is_none();
        let next = lister.last.filter(|_| lister.more);
        if is_empty {
            self.check_nothing_below(request.bucket, request.prefix).await?;
        }
        Ok(ListOutcome { next })
    }

    /// Fails if what has this prefix may be in another store.
    async fn check_nothing_below(&self, bucket: &str, prefix: &str) -> Result<(), Error> {
        if !self.asks_for_absences() {
            return Ok(());
        }
        let directories = split(prefix).0;
        let walk = self.read_now(&mut Seen::default(), |seen| self.walk(bucket, directories, seen)).await?;
        self.check_absent(walk.path.directory())
    }
}

/// The first key that may be listed; `None` when there is none.
fn start_of(request: &ListRequest<'_>) -> Option<Vec<u8>> {
    let prefix = request.prefix.as_bytes().to_vec();
    match request.after {
        None => Some(prefix),
        Some(after) if request.after_is_prefix => Some(prefix.max(key::successor(after.as_bytes())?)),
        Some("") => Some(prefix),
        Some(after) => Some(prefix.max(key::after(after.as_bytes().to_vec()))),
    }
}

struct Lister<'a> {
    prefix: &'a str,
    delimiter: Option<&'a str>,
    max: usize,
    items: usize,
    /// The last item, once the page is full: its key or prefix, and whether it was a prefix.
    last: Option<(String, bool)>,
    more: bool,
    file_headers: Option<&'a dyn FileHeaders>,
    visit: &'a mut (dyn FnMut(ListItem<'_>) + Send),
}

impl Lister<'_> {
    fn row(&mut self, shown: &Shown<'_>) -> Result<Next, Error> {
        let Some(rest) = shown.key.strip_prefix(self.prefix.as_bytes()) else {
            // Above the prefix: a directory on the way down to it.
            let above = matches!(shown.row, Summary::Directory(_)) && self.prefix.as_bytes().starts_with(shown.key);
            return Ok(if above { Next::Descend } else { Next::Stop });
        };
        if let Some(len) = self.delimiter.and_then(|delimiter| end_of(rest, delimiter.as_bytes())) {
            let common = &shown.key[..self.prefix.len() + len];
            if !self.give(ListItem::Prefix(text(common)?)) {
                return Ok(Next::Stop);
            }
            let skipped_by_itself = len == rest.len() && matches!(shown.row, Summary::Directory(_));
            return Ok(match key::successor(common) {
                _ if skipped_by_itself => Next::Row,
                Some(target) => Next::Seek(target),
                None => Next::Stop,
            });
        }
        match shown.row {
            Summary::Directory(_) => Ok(Next::Descend),
            Summary::Link(_) => Err(Error::Corrupt("a name was shown without its file".to_owned())),
            Summary::File { size, modified, etag } => {
                let row = ListedRow { bytes: shown.value, file_headers: self.file_headers };
                let item = ListItem::Object { key: text(shown.key)?, size, etag, modified, row };
                Ok(if self.give(item) { Next::Row } else { Next::Stop })
            }
        }
    }

    /// False when the page was already full.
    fn give(&mut self, item: ListItem<'_>) -> bool {
        if self.items == self.max {
            self.more = true;
            return false;
        }
        self.items += 1;
        assert!(self.items <= self.max, "a page holds no more than was asked for (L1)");
        if self.items == self.max {
            self.last = Some(match item {
                ListItem::Object { key, .. } => (key.to_owned(), false),
                ListItem::Prefix(prefix) => (prefix.to_owned(), true),
            });
        }
        (self.visit)(item);
        true
    }
}

pub(crate) fn text(bytes: &[u8]) -> Result<&str, Error> {
    std::str::from_utf8(bytes).map_err(|_| Error::Corrupt("a key is not UTF-8".to_owned()))
}

/// Where the first occurrence of the delimiter ends.
pub(crate) fn end_of(bytes: &[u8], delimiter: &[u8]) -> Option<usize> {
    match delimiter {
        [byte] => bytes.iter().position(|one| one == byte).map(|at| at + 1),
        _ => bytes.windows(delimiter.len()).position(|window| window == delimiter).map(|at| at + delimiter.len()),
    }
}
