//! Keeps the cache within its size: bytes that the bucket has too are let go.
//!
//! Why:        what is written here would stay here for ever, and what is written faster than it is sent would fill the disk.
//! Invariants: E1 a file loses its bytes here only when the rows say that the bucket has this state of it, it is not dirty, and
//!                nobody has it open.
//!             E2 a write waits only for what can be sent, and fails at once when the one before waited in vain and nothing was
//!                sent since.
//!             E3 its bytes get a new number: blocks that were fetched under an older one are of an older content.
//! Locking:    as refresh: the turns of the files, then the table of dirty files, until the rows are committed.
//! Not here:   fetched blocks (bytes), removing dead segments (reclaim of the volume).

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use margay_client::upstream::Upstream;
use margay_env::Clock;
use margay_meta::Engine;
use margay_rows::record::{FileEntry, UpstreamObject};
use margay_rows::{Ino, key};
use margay_volume::{Evict, NamedFile, Volume};
use parking_lot::Mutex;

use crate::bytes::segment_of;
use crate::tracked::{Files, State, Tracked, entering, object_row};

/// Rows of objects that are looked at together.
const OBJECTS_PER_READ: usize = 256;
/// Between two looks at the size of the cache.
const CHECKED_EVERY: Duration = Duration::from_millis(500);
/// After an eviction for a disk that is nearly full: its bytes count there until reclaim has removed their segments.
const RECLAIMED_AFTER: Duration = Duration::from_secs(10);
/// Of the disk.
const FREE_PERCENT_MIN: u64 = 5;
/// A large disk of which 5 % is left has room for hours, and a cache that is emptied is of no use without a network.
const FREE_BYTES_MIN: u64 = 2 << 30;
/// A write that finds no room fails when the bucket has not taken a byte for so long.
const SENT_TIME_MAX: Duration = Duration::from_secs(60);
/// How much goes for one write that finds no room, however small the cache is.
const EVICTED_BYTES_MIN: u64 = 32 << 20;
/// How often it is looked meanwhile.
const LOOK_EVERY: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(crate) struct Evictor {
    tracked: Arc<Tracked>,
    clock: Arc<dyn Clock>,
    /// Counts what it takes.
    upstream: Upstream,
    /// Of written files, in bytes.
    bytes_max: u64,
    /// Bytes that are not sent, as they were last known.
    unsent: AtomicU64,
    /// What had been sent when a wait was in vain.
    in_vain: Mutex<Option<u64>>,
    /// Of the volume; it has the evictor.
    volume: Mutex<Weak<Volume>>,
    /// The last file that was looked at: the next round begins behind it.
    hand: Mutex<Ino>,
}

impl Evictor {
    pub(crate) fn new(tracked: Arc<Tracked>, clock: Arc<dyn Clock>, upstream: Upstream, bytes_max: u64) -> Evictor {
        let (unsent, in_vain, volume, hand) = Default::default();
        Evictor { tracked, clock, upstream, bytes_max, unsent, in_vain, volume, hand }
    }

    pub(crate) fn begin(&self, volume: &Arc<Volume>) {
        *self.volume.lock() = Arc::downgrade(volume);
    }

    /// Bytes that went, and whether they went because the disk is nearly full.
    fn keep_within(&self) -> Result<(u64, bool), String> {
        let Some(volume) = self.volume.lock().upgrade() else { return Ok((0, false)) };
        let own = volume.own_bytes().map_err(|error| error.to_string())?;
        let space = volume.store().space().map_err(|error| error.to_string())?;
        let free = space.free_bytes.saturating_sub(space.reserve_bytes) + space.quarantined_bytes;
        let short = free_bytes_min(space.total_bytes).saturating_sub(free);
        let (over, short) = (own.saturating_sub(self.bytes_max), short.min(own));
        match over.max(short) {
            0 => Ok((0, false)),
            wanted => Ok((self.evict_sent(wanted)?, short > over)),
        }
    }

    /// Waits until the bucket has taken something, or all of it where that is too much; false if it takes nothing.
    fn wait_until_sent(&self) -> bool {
        let sent = || self.upstream.meter().read().sent_bytes;
        let (mut last, mut since) = (sent(), self.clock.monotonic());
        if *self.in_vain.lock() == Some(last) {
            return false;
        }
        let mut files = self.tracked.files.lock();
        let before = files.table.totals().0;
        files.send_now(None);
        self.tracked.wake.notify_one();
        while files.table.totals().0 > 0
            && self.tracked.broken.get().is_none()
            && (files.table.totals().0 >= before || self.is_too_much(&files))
        {
            self.tracked.settled.of(None).wait_for(&mut files, LOOK_EVERY);
            let (now, taken) = (self.clock.monotonic(), sent());
            if taken != last {
                (last, since) = (taken, now);
            } else if now.saturating_sub(since) > SENT_TIME_MAX {
                *self.in_vain.lock() = Some(last);
                return false;
            }
        }
        *self.in_vain.lock() = None;
        self.tracked.broken.get().is_none()
    }

    fn is_too_much(&self, files: &Files) -> bool {
        let unsent = files.table.totals().0;
        self.unsent.store(unsent, Ordering::Relaxed);
        unsent >= self.bytes_max
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
pub(crate) async fn keep_within(evictor: Arc<Evictor>) {
    loop {
        tokio::time::sleep(CHECKED_EVERY).await;
        let own = Arc::clone(&evictor);
        let checked = tokio::task::spawn_blocking(move || own.keep_within()).await;
        match checked {
            Ok(Ok((0, _))) => {}
            Ok(Ok((evicted, is_short))) => {
                tracing::info!(evicted, "bytes that the bucket has are let go");
                if is_short {
                    // Reclaim gives them back now.
                    tokio::time::sleep(RECLAIMED_AFTER).await;
                }
            }
            Ok(Err(error)) => tracing::warn!(error, "the cache is not within its size"),
            Err(error) => return tracing::error!(%error, "the cache is not kept within its size any more"),
        }
    }
}

impl Evict for Evictor {
    fn is_full(&self) -> bool {
        // Somebody holds the table over each commit, and writes should not wait for that.
        match self.tracked.files.try_lock() {
            Some(files) => self.is_too_much(&files),
            None => self.unsent.load(Ordering::Relaxed) >= self.bytes_max,
        }
    }

    /// For a write that finds no room. If too much is not in the bucket, or too little here is, something is waited for.
    fn evict(&self, bytes: u64) -> bool {
        let bytes = bytes.min((self.bytes_max / 4).max(EVICTED_BYTES_MIN));
        if self.is_full() && !self.wait_until_sent() {
            return false;
        }
        let mut evicted = 0;
        loop {
            match self.evict_sent(bytes - evicted) {
                Ok(some) => evicted += some,
                Err(error) => {
                    tracing::error!(error, "bytes that the bucket has could not be let go");
                    break;
                }
            }
            let is_any = self.tracked.files.lock().table.totals().0 > 0;
            if evicted >= EVICTED_BYTES_MIN || !is_any || !self.wait_until_sent() {
                break;
            }
        }
        if evicted > 0 {
            tracing::info!(evicted, "no room: bytes that the bucket has are let go");
        }
        evicted > 0
    }
}

/// Of a disk of so many bytes: with less, bytes that the bucket has go.
fn free_bytes_min(total: u64) -> u64 {
    (total / 100 * FREE_PERCENT_MIN).min(FREE_BYTES_MIN)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_disk_keeps_no_more_free_than_two_gibibytes() {
        assert_eq!(free_bytes_min(10_000_000_000), 500_000_000);
        assert_eq!(free_bytes_min(252 << 30), 2 << 30);
    }
}
