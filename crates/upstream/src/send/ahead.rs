//! Parts of large files that are sent while the files are open.
//!
//! Why:        who writes a large file and waits for it should wait for its last parts only.
//! Invariants: A1 nobody sees a part before its file is due: it belongs to an upload at a temporary key.
//!             A2 a part is sent when its bytes are stored and have not changed for `SETTLED_AFTER`; one that is written again is
//!                sent again.
//!             A3 who writes never waits for this: its state is only tried, and read a MiB at a time.
//! Not here:   what becomes of the parts (parts).

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use margay_client::ClientError;
use margay_client::upstream::{Metadata, Source};
use margay_rows::Ino;
use margay_volume::posix::{OpenParts, Place};
use margay_volume::{READ_BYTES_MAX, Volume};
use tokio::task::JoinSet;

use super::Sender;
use super::uploads::{Begun, SentPart, Stop};

/// A part that did not change for so long is sent.
const SETTLED_AFTER: Duration = Duration::from_millis(50);
/// A failed part is sent again after this time.
const AGAIN_AFTER: Duration = Duration::from_secs(5);
/// All parts are looked at again after this time: some may have been written again.
const ALL_EVERY: Duration = Duration::from_secs(2);
/// Parts of one file that are looked at together.
const PARTS_PER_LOOK: u64 = 1024;
/// Parts of one file in progress.
const PARTS_AT_ONCE: usize = 8;

/// A part of an open file, at these places.
struct OpenPart {
    volume: Arc<Volume>,
    ino: Ino,
    start: u64,
    places: Vec<Place>,
}

impl Source for OpenPart {
    async fn read(&self, range: Range<u64>) -> io::Result<Bytes> {
        let (volume, ino, start, places) = (Arc::clone(&self.volume), self.ino, self.start, self.places.clone());
        let read = move || {
            let mut body = BytesMut::with_capacity((range.end - range.start) as usize);
            let mut offset = range.start;
            while offset < range.end {
                let len = READ_BYTES_MAX.min(range.end - offset) as usize;
                let bytes = volume.read_placed(ino, (start, &places), offset, len).map_err(io::Error::other)?;
                let bytes = bytes.filter(|bytes| bytes.len() == len);
                body.extend_from_slice(&bytes.ok_or_else(|| io::Error::other("it was written again, or closed"))?);
                offset += len as u64;
            }
            Ok(body.freeze())
        };
        tokio::task::spawn_blocking(read).await.map_err(io::Error::other)?
    }
}

/// A part that is not sent yet, and since when it is there.
type Seen = BTreeMap<u32, (Vec<Place>, Duration)>;

/// One file that is being sent.
struct Ahead {
    sender: Arc<Sender>,
    ino: Ino,
    begun: Begun,
    seen: Seen,
    sending: HashSet<u32>,
    tasks: JoinSet<(u32, Vec<Place>, Result<String, ClientError>)>,
    /// All parts before this one have been sent, as far as is known (counted from 0).
    first: u64,
    all_at: Duration,
    rests_until: Duration,
}

impl Sender {
    /// Looks for large open files, until the task is dropped.
    pub(super) async fn send_ahead(self: Arc<Self>) {
        loop {
            self.next_look().await;
            for ino in self.volume.large_written() {
                if !self.uploads.has(ino) && self.may_go_ahead(ino).await {
                    let (stop, own) = (Arc::<Stop>::default(), Arc::clone(&self));
                    let task = tokio::spawn(own.ahead(ino, Arc::clone(&stop)));
                    self.uploads.runs(ino, stop, task);
                }
            }
            for ino in self.uploads.files() {
                let is_gone = self.tracked.files.lock().table.get(ino).is_none_or(|file| file.dirty.name.is_none());
                let own = Arc::clone(&self);
                if is_gone {
                    // Its parts in progress end first.
                    tokio::spawn(async move {
                        if let Some(begun) = own.uploads.take(ino).await {
                            own.abandon(begun).await;
                        }
                    });
                }
            }
        }
    }

    /// Waits until open files are to be looked at.
    async fn next_look(&self) {
        tokio::select! {
            () = self.uploads.looks.notified() => {}
            () = tokio::time::sleep(self.sizes.look_every) => {}
        }
    }

    async fn may_go_ahead(&self, ino: Ino) -> bool {
        if !self.honoured.lock().copies() {
            return false;
        }
        let is_sent = |file: &crate::tracked::File| file.in_progress || file.is_refused || file.dirty.name.is_none();
        if self.tracked.files.lock().table.get(ino).is_none_or(is_sent) {
            return false;
        }
        let (volume, part_bytes) = (Arc::clone(&self.volume), self.sizes.part_bytes);
        let open = tokio::task::spawn_blocking(move || volume.open_parts(ino, part_bytes, 0, 0)).await;
        matches!(open, Ok(Some(open)) if open.size >= 2 * self.sizes.one_put_bytes_max)
    }

    /// `None`: no upload could be begun.
    async fn ahead(self: Arc<Self>, ino: Ino, stop: Arc<Stop>) -> Option<Begun> {
        let number = self.uploads.ahead_number();
        let key = format!("{}{}-ahead-{number}", self.temporary(), ino.0);
        let begun = match self.begin_upload(&key, &Metadata::new(), self.sizes.part_bytes, None).await {
            Ok(begun) => begun,
            Err(error) => {
                tracing::debug!(%error, ino = ino.0, "an open file is sent when it is closed");
                return None;
            }
        };
        let (seen, sending, tasks) = (Seen::new(), HashSet::new(), JoinSet::new());
        let (all_at, rests_until) = (Duration::ZERO, Duration::ZERO);
        let mut ahead = Ahead { sender: self, ino, begun, seen, sending, tasks, first: 0, all_at, rests_until };
        while !stop.is_set() {
            ahead.look().await;
            tokio::select! {
                () = stop.told.notified() => {}
                () = ahead.sender.next_look() => {}
                Some(done) = ahead.tasks.join_next() => ahead.take(done.ok()),
            }
        }
        while let Some(done) = ahead.tasks.join_next().await {
            ahead.take(done.ok());
        }
        Some(ahead.begun)
    }
}

impl Ahead {
    /// Sends the parts that may go.
    async fn look(&mut self) {
        let now = self.sender.clock.monotonic();
        if now < self.rests_until || self.tasks.len() >= PARTS_AT_ONCE {
            return;
        }
        if now >= self.all_at + ALL_EVERY {
            (self.all_at, self.first) = (now, 0);
        }
        let (volume, ino, part_bytes, first) =
            (Arc::clone(&self.sender.volume), self.ino, self.begun.part_bytes, self.first);
        let open = move || volume.open_parts(ino, part_bytes, first, PARTS_PER_LOOK);
        let Ok(Some(open)) = tokio::task::spawn_blocking(open).await else { return };
        self.send_settled(open, now);
    }

    fn send_settled(&mut self, open: OpenParts, now: Duration) {
        let size_max = match self.sender.honoured.lock().copies_parts() {
            true => u64::MAX,
            false => self.sender.sizes.copy_bytes_max,
        };
        let (mut is_leading, first) = (true, self.first);
        for (part, places) in (first..).zip(open.parts) {
            let Ok(number) = u32::try_from(part + 1) else { return };
            let is_sent = self
                .begun
                .parts
                .get(&number)
                .is_some_and(|sent| places.as_ref().is_some_and(|now| sent.places == *now));
            is_leading &= is_sent;
            if is_leading {
                self.first = part + 1;
            }
            let Some(places) = places.filter(|_| !is_sent && !self.sending.contains(&number)) else { continue };
            if (part + 1) * self.begun.part_bytes > size_max {
                return;
            }
            match self.seen.get(&number) {
                Some((before, since)) if *before == places => {
                    if now >= *since + SETTLED_AFTER && self.tasks.len() < PARTS_AT_ONCE {
                        self.send(number, places);
                    }
                }
                _ => drop(self.seen.insert(number, (places, now))),
            }
        }
    }

    fn send(&mut self, number: u32, places: Vec<Place>) {
        let Ok(permit) = Arc::clone(&self.sender.uploads.ahead).try_acquire_owned() else { return };
        let (sender, upload, ino) = (Arc::clone(&self.sender), self.begun.upload.clone(), self.ino);
        let start = u64::from(number - 1) * self.begun.part_bytes;
        let end = start + self.begun.part_bytes;
        self.seen.remove(&number);
        self.sending.insert(number);
        self.tasks.spawn(async move {
            let part = OpenPart { volume: Arc::clone(&sender.volume), ino, start, places };
            let sent = sender.upstream.send_part(&upload, number, start..end, &part).await;
            sender.tracked.answered();
            drop(permit);
            (number, part.places, sent)
        });
    }

    fn take(&mut self, done: Option<(u32, Vec<Place>, Result<String, ClientError>)>) {
        let Some((number, places, sent)) = done else { return };
        self.sending.remove(&number);
        match sent {
            Ok(etag) => drop(self.begun.parts.insert(number, SentPart { places, etag })),
            // It was written again.
            Err(ClientError::Source(_)) => {}
            Err(error) => {
                tracing::debug!(%error, number, "a part of an open file was not taken");
                self.rests_until = self.sender.clock.monotonic() + AGAIN_AFTER;
            }
        }
    }
}
