//! Keeps the cache within its size: bytes that the bucket has too are let go.
//!
//! Why:        what is written here would stay here for ever, and what is written faster than it is sent would fill the disk.
//! Invariants: E1 a file loses its bytes here only when the rows say that the bucket has this state of it, it is not dirty, and
//!                nobody has it open.
//!             E2 its bytes get a new number: blocks that were fetched under an older one are of an older content.
//! Locking:    as refresh: the turns of the files, then the table of dirty files, until the rows are committed.
//! Not here:   fetched blocks (bytes), removing dead segments (reclaim of the volume).

use std::ops::ControlFlow;
use std::sync::{Arc, Weak};
use std::time::Duration;

use margay_env::Clock;
use margay_meta::Engine;
use margay_rows::record::{FileEntry, UpstreamObject};
use margay_rows::{Ino, key};
use margay_volume::{Evict, NamedFile, Volume};
use parking_lot::Mutex;

use crate::bytes::segment_of;
use crate::tracked::{State, Tracked, entering, object_row};

/// Rows of objects that are looked at together.
const OBJECTS_PER_READ: usize = 256;
/// Between two looks at the size of the cache.
const CHECKED_EVERY: Duration = Duration::from_secs(2);
/// After an eviction; its bytes count until reclaim has removed their segments.
const RECLAIMED_AFTER: Duration = Duration::from_secs(10);
/// Of the disk.
const FREE_PERCENT_MIN: u64 = 5;
/// A write that finds no room waits so long for the bucket to take something.
const SENT_TIME_MAX: Duration = Duration::from_secs(60);
/// How often it is looked meanwhile.
const LOOK_EVERY: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(crate) struct Evictor {
    tracked: Arc<Tracked>,
    clock: Arc<dyn Clock>,
    /// Of the volume; it has the evictor.
    volume: Mutex<Weak<Volume>>,
    /// The last file that was looked at: the next round begins behind it.
    hand: Mutex<Ino>,
}

impl Evictor {
    pub(crate) fn new(tracked: Arc<Tracked>, clock: Arc<dyn Clock>) -> Evictor {
        Evictor { tracked, clock, volume: Mutex::default(), hand: Mutex::new(Ino(0)) }
    }

    pub(crate) fn begin(&self, volume: &Arc<Volume>) {
        *self.volume.lock() = Arc::downgrade(volume);
    }

    fn keep_within(&self, bytes_max: u64) -> Result<u64, String> {
        let Some(volume) = self.volume.lock().upgrade() else { return Ok(0) };
        let own = volume.own_bytes().map_err(|error| error.to_string())?;
        let space = volume.store().space().map_err(|error| error.to_string())?;
        let free = space.free_bytes.saturating_sub(space.reserve_bytes) + space.quarantined_bytes;
        let short = (space.total_bytes / 100 * FREE_PERCENT_MIN).saturating_sub(free);
        match own.saturating_sub(bytes_max).max(short.min(own)) {
            0 => Ok(0),
            wanted => self.evict_sent(wanted),
        }
    }

    /// Goes round the objects until so many bytes went, or none is left; returns how many.
    pub(crate) fn evict_sent(&self, wanted: u64) -> Result<u64, String> {
        let Some(volume) = self.volume.lock().upgrade() else { return Ok(0) };
        let mut hand = self.hand.lock();
        let (first, mut evicted, mut is_round) = (*hand, 0, false);
        while evicted < wanted {
            let some = objects_after(&*self.tracked.below, *hand)?;
            for (ino, object) in &some {
                if is_round && *ino > first {
                    return Ok(evicted);
                }
                if evicted < wanted {
                    evicted += self.evict_one(&volume, *ino, object)?;
                    *hand = *ino;
                }
            }
            if some.len() < OBJECTS_PER_READ && evicted < wanted {
                if std::mem::replace(&mut is_round, true) {
                    break;
                }
                *hand = Ino(0);
            }
        }
        Ok(evicted)
    }

    fn evict_one(&self, volume: &Volume, ino: Ino, object: &UpstreamObject) -> Result<u64, String> {
        // Refused keys and markers have no bytes here.
        if object.size == 0 || object.key.ends_with('/') {
            return Ok(0);
        }
        let named = self.tracked.name_of(&object.key).map_err(|error| error.to_string())?;
        let Some((directory, name)) = named else { return Ok(0) };
        let (_held, closed) = volume.hold_closed(&[ino]);
        if !closed.contains(&ino) {
            return Ok(0);
        }
        let files = self.tracked.files.lock();
        if files.table.get(ino).is_some() {
            return Ok(0);
        }
        let now = object_row(&*self.tracked.below, ino).map_err(|error| error.to_string())?;
        if now.as_ref() != Some(object) {
            return Ok(0);
        }
        let number = volume.new_number().map_err(|error| error.to_string())?.0;
        let moved = UpstreamObject { number, ..object.clone() };
        let mut rows = vec![
            (key::upstream_object(ino), Some(moved.encode())),
            (key::upstream_bytes(number), Some(ino.0.to_be_bytes().to_vec())),
        ];
        if object.number != 0 {
            rows.push((key::upstream_bytes(object.number), None));
        }
        let named = NamedFile { directory, sort_name: &name, ino };
        let is_there = |file: &FileEntry| {
            let state = State::of_file(file);
            (state.content, state.size) == (object.content, object.size)
        };
        entering(|| volume.evict(named, segment_of(number), is_there, &rows)).map_err(|error| error.to_string())
    }
}

/// Lets go of what is too much, and of some when the disk is nearly full, until the task is dropped.
pub(crate) async fn keep_within(evictor: Arc<Evictor>, bytes_max: u64) {
    loop {
        tokio::time::sleep(CHECKED_EVERY).await;
        let own = Arc::clone(&evictor);
        let checked = tokio::task::spawn_blocking(move || own.keep_within(bytes_max)).await;
        match checked {
            Ok(Ok(0)) => {}
            Ok(Ok(evicted)) => {
                tracing::info!(evicted, "bytes that the bucket has are let go");
                // Reclaim gives them back now.
                tokio::time::sleep(RECLAIMED_AFTER).await;
            }
            Ok(Err(error)) => tracing::warn!(error, "the cache is not within its size"),
            Err(error) => return tracing::error!(%error, "the cache is not kept within its size any more"),
        }
    }
}

impl Evict for Evictor {
    /// For a write that finds no room. If nothing here is in the bucket, something is waited for.
    fn evict(&self, bytes: u64) {
        let began = self.clock.monotonic();
        loop {
            match self.evict_sent(bytes) {
                Ok(0) => {}
                Ok(evicted) => return tracing::info!(evicted, "no room: bytes that the bucket has are let go"),
                Err(error) => return tracing::error!(error, "bytes that the bucket has could not be let go"),
            }
            let mut files = self.tracked.files.lock();
            if files.table.totals().0 == 0 || self.clock.monotonic() - began > SENT_TIME_MAX {
                return;
            }
            let before = files.table.len();
            files.send_now(None);
            self.tracked.wake.notify_one();
            while files.table.len() >= before && self.clock.monotonic() - began <= SENT_TIME_MAX {
                self.tracked.settled.of(None).wait_for(&mut files, LOOK_EVERY);
            }
        }
    }
}

/// The next objects in the order of their files.
fn objects_after(engine: &dyn Engine, after: Ino) -> Result<Vec<(Ino, UpstreamObject)>, String> {
    let (start, end) = (key::upstream_object(Ino(after.0 + 1)), key::all_upstream_objects().1);
    let (mut found, mut damaged) = (Vec::new(), None);
    let read = engine.scan(&start, &end, &mut |row| {
        match key::parse_upstream(row.key).and_then(|ino| Ok((ino, UpstreamObject::decode(row.value)?))) {
            Ok(object) => found.push(object),
            Err(error) => damaged = Some(error.to_string()),
        }
        if found.len() < OBJECTS_PER_READ { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    read.map_err(|error| error.to_string())?;
    damaged.map_or(Ok(found), Err)
}
