//! Reads through the layers: active overlay, sealed overlays, B-tree.
//!
//! Why:        a row is in the newest layer that has its key; a scan skips what newer layers have deleted by seeking
//!             over whole intervals, so that deletions cost a listing nothing.
//! Invariants: L1 every layer but the active one is immutable, so a `Lower` can be read for any length of time.
//!             L2 a key masked by an interval is not looked up in older layers.
//! Locking:    the active overlay is copied in windows of at most [`WINDOW_ROWS_MAX`] under its read lock; no lock is
//!             held while the tree is read.
//! Not here:   sealing and folding (checkpoint), what rows mean.

use std::iter::Peekable;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use super::overlay::{Found, Live, LiveRange, Overlay};
use super::tree::{Around, Snapshot, TreeKey, TreeRange, TreeRow};
use crate::{Cursor, EngineError, RowRef, RowVersion};

/// Rows, and as many intervals, copied from the active overlay for the first window of a scan: most scans for a single
/// row end there.
pub(super) const FIRST_WINDOW_ROWS: usize = 4;
/// Later windows grow by [`WINDOW_GROWTH`] up to this.
pub(super) const WINDOW_ROWS_MAX: usize = 512;
const WINDOW_GROWTH: usize = 4;

/// The size of the window after one of `rows`.
pub(super) fn grown(rows: usize) -> usize {
    (rows * WINDOW_GROWTH).min(WINDOW_ROWS_MAX)
}

/// Every layer below the active overlay.
#[derive(Debug)]
pub(super) struct Lower {
    /// Newest first.
    pub(super) sealed: Vec<Arc<Overlay>>,
    pub(super) tree: Arc<Snapshot>,
    /// Increases when an overlay is sealed; folding does not change it, since the merged rows stay the same.
    pub(super) epoch: u64,
}

/// A row found in some layer.
#[derive(Debug)]
pub(super) enum Stored {
    Overlay(Live),
    Tree(TreeRow),
}

impl Stored {
    pub(super) fn value(&self) -> &[u8] {
        match self {
            Stored::Overlay(live) => &live.value,
            Stored::Tree(row) => row.value(),
        }
    }
    pub(super) fn version(&self) -> RowVersion {
        match self {
            Stored::Overlay(live) => live.version,
            Stored::Tree(row) => row.version(),
        }
    }
    /// The commit that last changed the row; 0 if it is in the tree, which is durable.
    pub(super) fn touched(&self) -> Cursor {
        match self {
            Stored::Overlay(live) => live.touched,
            Stored::Tree(_) => Cursor(0),
        }
    }
}

impl Lower {
    pub(super) fn get(&self, key: &[u8]) -> Result<Option<Stored>, EngineError> {
        for overlay in &self.sealed {
            match overlay.find(key) {
                Found::Live(live) => return Ok(Some(Stored::Overlay(live.clone()))),
                Found::Dead => return Ok(None),
                Found::Unknown => {}
            }
        }
        Ok(self.tree.get(key)?.map(Stored::Tree))
    }

    /// A live row and the gaps around it; `None`: there is no such row, or other layers than the tree have to be asked.
    pub(super) fn around(
        &self,
        key: &[u8],
        from: Option<&[u8]>,
        to: Option<&[u8]>,
    ) -> Result<Option<Around>, EngineError> {
        if (from.is_none() && to.is_none()) || self.sealed.iter().any(|overlay| !overlay.is_empty()) {
            return Ok(None);
        }
        self.tree.around(key, from, to)
    }

    /// The first live key in a range.
    pub(super) fn first_live(&self, start: Bound<&[u8]>, end: Bound<&[u8]>) -> Result<Option<Vec<u8>>, EngineError> {
        let mut first = None;
        let window = Window::default();
        let mut merge = Merge::new(&window, self, start, end)?;
        merge.run(&mut |row| {
            first = Some(row.key.to_vec());
            ControlFlow::Break(())
        })?;
        Ok(first)
    }

    /// The first live key in a range that no interval of `mask` covers.
    pub(super) fn first_live_unmasked(
        &self,
        start: &[u8],
        end: &[u8],
        mask: &Overlay,
    ) -> Result<Option<Vec<u8>>, EngineError> {
        let mut from = Bound::Included(start.to_vec());
        loop {
            let Some(key) = self.first_live(as_slice(&from), Bound::Excluded(end))? else {
                return Ok(None);
            };
            match mask.covering(&key) {
                None => return Ok(Some(key)),
                Some((_, end)) => from = Bound::Excluded(end.to_vec()),
            }
        }
    }
}

pub(super) fn as_slice(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    match bound {
        Bound::Included(key) => Bound::Included(key),
        Bound::Excluded(key) => Bound::Excluded(key),
        Bound::Unbounded => Bound::Unbounded,
    }
}

/// First and last key of a dead interval.
type Interval = (Box<[u8]>, Box<[u8]>);

/// A copy of a part of the active overlay.
#[derive(Debug, Default)]
pub(super) struct Window {
    /// The keys of the rows, concatenated: one allocation instead of one per row.
    keys: Vec<u8>,
    /// Where each row's key ends in `keys`.
    rows: Vec<(usize, Live)>,
    dead: Vec<Interval>,
    /// The copy is complete up to here; `None`: to the end of the requested range.
    until: Option<Vec<u8>>,
}

impl Window {
    pub(super) fn copy(active: &Overlay, start: Bound<&[u8]>, end: &[u8], rows_max: usize) -> Window {
        let mut window = Window::default();
        let upper = Bound::Excluded(end);
        for (key, live) in active.live_range(start, upper) {
            if window.rows.len() == rows_max {
                window.until = Some(key.to_vec());
                break;
            }
            if window.rows.len() == window.rows.capacity() {
                // Long windows are reallocated rarely.
                let more = (window.rows.len() * WINDOW_GROWTH).clamp(FIRST_WINDOW_ROWS, WINDOW_ROWS_MAX);
                window.rows.reserve(more);
                window.keys.reserve(key.len() * more);
            }
            window.keys.extend_from_slice(key);
            window.rows.push((window.keys.len(), live.clone()));
        }
        if let Bound::Included(first) | Bound::Excluded(first) = start
            && let Some((from, to)) = active.covering(first)
        {
            window.dead.push((from.into(), to.into()));
        }
        let after = match start {
            Bound::Included(first) | Bound::Excluded(first) => Bound::Excluded(first),
            Bound::Unbounded => Bound::Unbounded,
        };
        let upper = window.until.clone();
        let upper = Bound::Excluded(upper.as_deref().unwrap_or(end));
        for (from, to) in active.dead_range(after, upper) {
            if window.dead.len() > rows_max {
                window.until = Some(from.to_vec());
                while window.rows.len().checked_sub(1).and_then(|last| window.key(last)) >= Some(&**from) {
                    window.rows.pop();
                }
                break;
            }
            window.dead.push((from.clone(), to.clone()));
        }
        window
    }

    /// A copy of nothing, which ends where it begins.
    pub(super) fn unread(start: &[u8]) -> Window {
        Window { until: Some(start.to_vec()), ..Window::default() }
    }

    pub(super) fn rows(&self) -> usize {
        self.rows.len()
    }

    /// The key of a row.
    fn key(&self, index: usize) -> Option<&[u8]> {
        let (end, _) = self.rows.get(index)?;
        let begin = index.checked_sub(1).map_or(0, |before| self.rows[before].0);
        Some(&self.keys[begin..*end])
    }

    /// Where the next window begins.
    pub(super) fn until(&self) -> Option<&[u8]> {
        self.until.as_deref()
    }

    /// Last key of the interval that holds `key`.
    fn covering(&self, key: &[u8]) -> Option<&[u8]> {
        let index = self.dead.partition_point(|(start, _)| start.as_ref() <= key).checked_sub(1)?;
        let (_, end) = &self.dead[index];
        (end.as_ref() >= key).then_some(end)
    }
}

struct SealedCursor<'a> {
    overlay: &'a Overlay,
    rows: Peekable<LiveRange<'a>>,
}

/// One pass over all layers in key order, limited to one window of the active overlay.
pub(super) struct Merge<'a> {
    window: &'a Window,
    window_at: usize,
    sealed: Vec<SealedCursor<'a>>,
    tree: &'a Snapshot,
    tree_range: Option<TreeRange>,
    tree_head: Option<(TreeKey, TreeRow)>,
    end: Bound<&'a [u8]>,
    /// Newest commit that touched a row seen.
    pub(super) observed: Cursor,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    Window,
    Sealed(usize),
    Tree,
}

impl<'a> Merge<'a> {
    pub(super) fn new(
        window: &'a Window,
        lower: &'a Lower,
        start: Bound<&[u8]>,
        end: Bound<&'a [u8]>,
    ) -> Result<Merge<'a>, EngineError> {
        let sealed = lower
            .sealed
            .iter()
            .map(|overlay| SealedCursor { overlay, rows: overlay.live_range(start, end).peekable() });
        let mut merge = Merge {
            window,
            window_at: 0,
            sealed: sealed.collect(),
            tree: &lower.tree,
            tree_range: lower.tree.range(start, end)?,
            tree_head: None,
            end,
            observed: Cursor(0),
        };
        merge.advance_tree()?;
        Ok(merge)
    }

    fn advance_tree(&mut self) -> Result<(), EngineError> {
        self.tree_head = match &mut self.tree_range {
            Some(range) => self.tree.next_row(range)?,
            None => None,
        };
        Ok(())
    }

    /// The smallest key of any layer; of equal keys the newest layer's.
    fn smallest(&mut self) -> Option<Source> {
        let mut best: Option<(&[u8], Source)> = self.window.key(self.window_at).map(|key| (key, Source::Window));
        for (index, cursor) in self.sealed.iter_mut().enumerate() {
            if let Some((key, _)) = cursor.rows.peek()
                && best.is_none_or(|(other, _)| key.as_ref() < other)
            {
                best = Some((key, Source::Sealed(index)));
            }
        }
        if let Some((key, _)) = &self.tree_head
            && best.is_none_or(|(other, _)| key.value() < other)
        {
            return Some(Source::Tree);
        }
        best.map(|(_, source)| source)
    }

    /// End of the interval of a newer layer that masks `key`, if one does, and that layer (window = 0).
    fn masked(&self, key: &[u8], source: Source) -> Option<(Vec<u8>, usize)> {
        let newer = match source {
            Source::Window => return None,
            Source::Sealed(index) => index,
            Source::Tree => self.sealed.len(),
        };
        if let Some(end) = self.window.covering(key) {
            return Some((end.to_vec(), 0));
        }
        for (index, cursor) in self.sealed[..newer].iter().enumerate() {
            if let Some((_, end)) = cursor.overlay.covering(key) {
                return Some((end.to_vec(), index + 1));
            }
        }
        None
    }

    /// Moves every layer older than `layer` (window = 0) beyond `key`.
    fn skip_older(&mut self, layer: usize, key: &[u8]) -> Result<(), EngineError> {
        let start = Bound::Excluded(key);
        for cursor in &mut self.sealed[layer..] {
            if cursor.rows.peek().is_some_and(|(head, _)| head.as_ref() <= key) {
                cursor.rows = cursor.overlay.live_range(start, self.end).peekable();
            }
        }
        if self.tree_head.as_ref().is_some_and(|(head, _)| head.value() <= key) {
            self.tree_range = self.tree.range(start, self.end)?;
            self.advance_tree()?;
        }
        Ok(())
    }

    /// Moves every layer past `key`, which was just returned or superseded.
    fn pass(&mut self, key: &[u8]) -> Result<(), EngineError> {
        if self.window.key(self.window_at).is_some_and(|head| head == key) {
            self.window_at += 1;
        }
        for cursor in &mut self.sealed {
            cursor.rows.next_if(|(head, _)| head.as_ref() == key);
        }
        if self.tree_head.as_ref().is_some_and(|(head, _)| head.value() == key) {
            self.advance_tree()?;
        }
        Ok(())
    }

    /// Visits the live rows. `true`: the visitor broke.
    pub(super) fn run(&mut self, visit: &mut dyn FnMut(RowRef<'_>) -> ControlFlow<()>) -> Result<bool, EngineError> {
        let plain = self.window.rows.is_empty()
            && self.window.dead.is_empty()
            && self.sealed.iter().all(|cursor| cursor.overlay.is_empty());
        while let Some(source) = self.smallest() {
            if source == Source::Tree {
                let (key, row) = self.tree_head.take().expect("the tree's head is the smallest");
                if !plain && let Some((end, layer)) = self.masked(key.value(), source) {
                    self.tree_head = Some((key, row));
                    self.skip_older(layer, &end)?;
                    continue;
                }
                let flow = visit(RowRef { key: key.value(), value: row.value(), version: row.version() });
                self.advance_tree()?;
                if flow.is_break() {
                    return Ok(true);
                }
                continue;
            }
            let (key, live): (&'a [u8], &'a Live) = match source {
                Source::Sealed(index) => {
                    let (key, live) = *self.sealed[index].rows.peek().expect("the smallest key was seen there");
                    (key, live)
                }
                _ => {
                    let window: &'a Window = self.window;
                    let key = window.key(self.window_at).expect("the smallest key was seen there");
                    (key, &window.rows[self.window_at].1)
                }
            };
            if let Some((end, layer)) = self.masked(key, source) {
                self.skip_older(layer, &end)?;
                continue;
            }
            self.observed = self.observed.max(live.touched);
            let flow = visit(RowRef { key, value: &live.value, version: live.version });
            self.pass(key)?;
            if flow.is_break() {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
