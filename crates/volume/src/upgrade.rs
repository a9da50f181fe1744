//! Formats of volumes: which ones this program knows, and how an upgrade creates the rows that earlier formats lack.
//!
//! Why:        the open volume relies on all rows of this format, so they are created before anything else reads them.
//! Layout:     docs/format/keys.md, "Formats".
//! Invariants: F1 the first batch raises the format row and puts a progress row: an earlier program then refuses the
//!                volume, and this one continues after an interruption.
//!             F2 each batch asserts the progress row and puts the next one, so only one process can continue.
//!             F3 created rows depend only on rows that the upgrade does not change, so repeating a step is harmless.
//! Durability: `check_format` returns when the whole upgrade is durable.
//! Not here:   which rows an operation writes (back_rows).

use std::collections::HashMap;
use std::ops::ControlFlow;

use margay_meta::{Cursor, Engine, RowRef};
use margay_rows::Ino;
use margay_rows::key::{self, Live};
use margay_rows::record::{BackRow, Damaged, DirectoryRecord};
use margay_segment::SegmentId;

use crate::api::Error;
use crate::draft::{Draft, backs_of_row};
use crate::error::Refused;

/// The format that this program writes; it reads all earlier ones.
pub const FORMAT_VERSION: u32 = 4;
/// The earliest format, which had no counters of subdirectories.
const FORMAT_WITHOUT_SUBDIRECTORIES: u32 = 1;
/// Rows that one batch reads; it writes about as many.
const ROWS_PER_BATCH: usize = 4096;
/// Segments whose counters one batch writes.
const SEGMENTS_PER_BATCH: usize = 1024;
/// Batches between two log messages.
const BATCHES_PER_LINE: u64 = 64;

#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("the volume has format {found}, this program knows formats up to {FORMAT_VERSION}: use a newer margay")]
    Newer { found: u32 },
    #[error("the segment folder is store {number} of the volume, which another process uses now")]
    StoreInUse { number: u16 },
    #[error(
        "the segment folder is store {number}, which was detached from the volume: start with an empty directory, or undo that with \
         `margay cluster detach {number} --undo`"
    )]
    StoreDetached { number: u16 },
    #[error(transparent)]
    Failed(#[from] Error),
}

/// Steps of an upgrade, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Counters of subdirectories, which format 1 lacks.
    Subdirectories,
    /// Removes rows that will be rebuilt, and rows that only earlier formats have.
    Clear,
    /// Back rows and locations.
    Name,
    /// Counters of segments.
    Count,
}

/// Progress of an upgrade.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Progress {
    step: Step,
    /// Rows before this key are done in this step.
    next: Vec<u8>,
}

const LAYOUT: u8 = 1;

impl Progress {
    fn begin(step: Step) -> Progress {
        Progress { step, next: Vec::new() }
    }

    fn encode(&self) -> Vec<u8> {
        let step = match self.step {
            Step::Subdirectories => 0,
            Step::Clear => 1,
            Step::Name => 2,
            Step::Count => 3,
        };
        [&[LAYOUT, step], self.next.as_slice()].concat()
    }

    pub(crate) fn decode(value: &[u8]) -> Result<Progress, Damaged> {
        let [LAYOUT, step, next @ ..] = value else { return Err(Damaged("the progress of an upgrade has no layout")) };
        let step = match step {
            0 => Step::Subdirectories,
            1 => Step::Clear,
            2 => Step::Name,
            3 => Step::Count,
            _ => return Err(Damaged("an unknown step of an upgrade")),
        };
        Ok(Progress { step, next: next.to_vec() })
    }
}

/// An engine without a volume, or with one of a format that this program knows.
pub(crate) fn check_not_newer(engine: &dyn Engine) -> Result<(), OpenError> {
    let row = engine.get(&key::format()).map_err(Error::from)?.value;
    match row.and_then(|row| row.value.as_ref().try_into().map(u32::from_be_bytes).ok()) {
        Some(found) if found > FORMAT_VERSION => Err(OpenError::Newer { found }),
        _ => Ok(()),
    }
}

/// Upgrades a volume of an earlier format, or creates the rows of a new volume.
pub(crate) fn check_format(engine: &dyn Engine) -> Result<(), OpenError> {
    loop {
        match try_format(engine) {
            Ok(Some(seq)) => return Ok(engine.wait_durable(seq).map_err(Error::from)?),
            Ok(None) | Err(Begun::Failed(Refused::Conflict)) => {}
            Err(Begun::Newer(found)) => return Err(OpenError::Newer { found }),
            Err(Begun::Failed(Refused::Error(error))) => return Err(error.into()),
        }
    }
}

enum Begun {
    Newer(u32),
    Failed(Refused),
}

impl<E: Into<Refused>> From<E> for Begun {
    fn from(error: E) -> Begun {
        Begun::Failed(error.into())
    }
}

/// The format that the rows have; `None` if there is no volume.
pub fn stored_format(engine: &dyn Engine) -> Result<Option<u32>, Error> {
    let Some(row) = engine.get(&key::format())?.value else { return Ok(None) };
    let format = row.value.as_ref().try_into().map(u32::from_be_bytes);
    format.map(Some).map_err(|_| Error::Corrupt("the format row holds no format".to_owned()))
}

/// `None`: try again.
fn try_format(engine: &dyn Engine) -> Result<Option<Cursor>, Begun> {
    let row = engine.get(&key::format()).map_err(Error::from)?.value;
    let mut draft = Draft::default();
    let first = match &row {
        None => {
            draft.assert_absent(key::format());
            None
        }
        Some(row) => match row.value.as_ref().try_into().map(u32::from_be_bytes) {
            Ok(FORMAT_VERSION) => return Ok(Some(go_on(engine)?)),
            Ok(found) if found > FORMAT_VERSION => return Err(Begun::Newer(found)),
            Ok(found) if found >= FORMAT_WITHOUT_SUBDIRECTORIES => {
                draft.assert_version(key::format(), row.version);
                tracing::info!(from = found, to = FORMAT_VERSION, "the volume is upgraded");
                let is_first = found == FORMAT_WITHOUT_SUBDIRECTORIES;
                Some(if is_first { Step::Subdirectories } else { Step::Clear })
            }
            _ => return Err(Error::Corrupt("the format row holds no format".to_owned()).into()),
        },
    };
    draft.put(key::format(), FORMAT_VERSION.to_be_bytes().to_vec());
    if let Some(step) = first {
        draft.put(key::upgrade(), Progress::begin(step).encode());
    }
    let done = draft.commit(engine)?;
    // If an upgrade has begun, the format row is read again.
    Ok(first.is_none().then_some(done.cursor))
}

/// Rebuilds all back rows and counters of segments from the rows that refer to runs. Nothing else may change rows
/// meanwhile.
pub(crate) fn rebuild(engine: &dyn Engine) -> Result<(), Error> {
    let mut draft = Draft::default();
    draft.put(key::upgrade(), progress_of_rebuild());
    let done = draft.commit(engine).and_then(|_| go_on(engine));
    match done {
        Ok(seq) => Ok(engine.wait_durable(seq)?),
        Err(Refused::Conflict) => Err(Error::Busy),
        Err(Refused::Error(error)) => Err(error),
    }
}

/// The progress row ([`key::upgrade`]) that makes the next opening rebuild the back rows.
pub(crate) fn progress_of_rebuild() -> Vec<u8> {
    Progress::begin(Step::Clear).encode()
}

/// Continues an upgrade to its end; returns its last commit.
fn go_on(engine: &dyn Engine) -> Result<Cursor, Refused> {
    for batches in 1.. {
        let found = engine.get(&key::upgrade()).map_err(Error::from)?;
        let Some(row) = found.value else { return Ok(found.observed) };
        let progress = Progress::decode(&row.value).map_err(Error::from)?;
        let mut draft = Draft::rebuilding();
        draft.assert_version(key::upgrade(), row.version);
        let next = match progress.step {
            Step::Subdirectories => count_subdirectories(engine, &mut draft, &progress.next)?,
            Step::Clear => clear(engine, &mut draft)?,
            Step::Name => name_runs(engine, &mut draft, &progress.next)?,
            Step::Count => count_segments(engine, &mut draft, &progress.next)?,
        };
        let next = match (next, progress.step) {
            (Some(next), step) => Some(Progress { step, next }),
            (None, Step::Subdirectories) => Some(Progress::begin(Step::Clear)),
            (None, Step::Clear) => Some(Progress::begin(Step::Name)),
            (None, Step::Name) => Some(Progress::begin(Step::Count)),
            (None, Step::Count) => None,
        };
        if batches % BATCHES_PER_LINE == 0 {
            tracing::info!(step = ?progress.step, batches, "the volume is being upgraded");
        }
        match next {
            Some(next) => drop(draft.put(key::upgrade(), next.encode())),
            None => {
                tracing::info!(batches, "the volume is upgraded");
                draft.delete(key::upgrade());
            }
        }
        draft.commit(engine)?;
    }
    unreachable!("batches are counted without end")
}

/// The first rows of `range`.
fn read(
    engine: &dyn Engine,
    range: &key::Range,
    mut visit: impl FnMut(RowRef<'_>) -> ControlFlow<()>,
) -> Result<(), Error> {
    engine.scan(&range.0, &range.1, &mut visit)?;
    Ok(())
}

/// From the records of directories. A damaged record must not prevent the opening; fsck reports it and counts again.
fn count_subdirectories(engine: &dyn Engine, draft: &mut Draft, from: &[u8]) -> Result<Option<Vec<u8>>, Error> {
    let mut counts: HashMap<Ino, i64> = HashMap::new();
    read(engine, &key::directories(), |row| {
        if let Ok(record) = DirectoryRecord::decode(row.value)
            && record.parent != Ino(0)
        {
            *counts.entry(record.parent).or_default() += 1;
        }
        ControlFlow::Continue(())
    })?;
    let mut rows: Vec<(Vec<u8>, i64)> =
        counts.into_iter().map(|(ino, count)| (key::subdirectories(ino), count)).collect();
    rows.retain(|(key, _)| key.as_slice() >= from);
    rows.sort_unstable();
    let next = rows.get(ROWS_PER_BATCH).map(|(key, _)| key.clone());
    for (key, count) in rows.into_iter().take(ROWS_PER_BATCH) {
        draft.set(key, count.to_le_bytes());
    }
    Ok(next)
}

fn clear(engine: &dyn Engine, draft: &mut Draft) -> Result<Option<Vec<u8>>, Error> {
    let mut rows = 0;
    for table in [key::all_shares(), key::all_backs(), key::all_locations(), key::all_live()] {
        read(engine, &table, |row| {
            draft.delete(row.key.to_vec());
            rows += 1;
            if rows < ROWS_PER_BATCH { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        if rows >= ROWS_PER_BATCH {
            // Deleted rows are not visited again.
            return Ok(Some(Vec::new()));
        }
    }
    Ok(None)
}

/// A row that does not decode must not prevent the opening: fsck reports it, and the walk that precedes any removal of
/// bytes stops at it.
fn name_runs(engine: &dyn Engine, draft: &mut Draft, from: &[u8]) -> Result<Option<Vec<u8>>, Error> {
    // In the order of their table bytes.
    let tables = [key::all_entries(), key::all_inodes(), key::all_parts(), key::all_versions(), key::all_extents()];
    let (mut rows, mut next) = (0, None);
    for (start, end) in tables {
        if next.is_some() || end.as_slice() <= from {
            continue;
        }
        read(engine, &(start.max(from.to_vec()), end), |row| {
            let made = backs_of_row(row.key, row.value, |key, value| {
                draft.put(key, value);
                rows += 1;
            });
            if let Err(damaged) = made {
                tracing::warn!(row = ?row.key, %damaged, "a row is passed over: run margay fsck");
            }
            rows += 1;
            if rows < ROWS_PER_BATCH {
                return ControlFlow::Continue(());
            }
            next = Some(key::after(row.key.to_vec()));
            ControlFlow::Break(())
        })?;
    }
    Ok(next)
}

/// Bytes of one segment, according to its back rows.
#[derive(Default)]
struct Bytes {
    /// Each run counted once per owner.
    owned: i64,
    /// Each run counted once.
    named: i64,
    last: Option<u64>,
}

fn count_segments(engine: &dyn Engine, draft: &mut Draft, from: &[u8]) -> Result<Option<Vec<u8>>, Error> {
    let (start, end) = key::all_backs();
    let mut counted: Vec<(SegmentId, Bytes)> = Vec::new();
    let mut next = None;
    read(engine, &(start.max(from.to_vec()), end), |row| {
        let (Ok((segment, offset, _)), Ok(back)) = (key::parse_back(row.key), BackRow::decode(row.value)) else {
            return ControlFlow::Continue(());
        };
        if counted.last().is_none_or(|(last, _)| *last != segment) {
            if counted.len() == SEGMENTS_PER_BATCH {
                next = Some(key::backs_of_segment(segment).0);
                return ControlFlow::Break(());
            }
            counted.push((segment, Bytes::default()));
        }
        if let Some((_, bytes)) = counted.last_mut() {
            let len = i64::try_from(back.run_len).unwrap_or(i64::MAX);
            bytes.owned = bytes.owned.saturating_add(len);
            if bytes.last.replace(offset) != Some(offset) {
                bytes.named = bytes.named.saturating_add(len);
            }
        }
        ControlFlow::Continue(())
    })?;
    for (segment, bytes) in counted {
        let shared = bytes.owned - bytes.named;
        draft.set(key::live(segment, Live::Gained), bytes.named.to_le_bytes());
        if shared > 0 {
            draft.set(key::live(segment, Live::Shared), shared.to_le_bytes());
        }
    }
    Ok(next)
}
