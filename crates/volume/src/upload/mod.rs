//! Receives the bytes of an object or a part.
//!
//! Why:        data is stored and durable before metadata refers to it; small bodies travel with the commit instead.
//! Invariants: U1 a staged body is durable, or small and in memory.
//!             U2 its segments are pinned until it is dropped, so reclaim cannot treat them as dead before the commit.
//!             U3 a dropped body was never counted as live: it is dead space, found by reclaim.
//!             U4 an encrypted body exists unencrypted only in the chunk that is being encrypted.
//! Not here:   the commit (put_object, multipart).

pub(crate) mod place;

mod growing;

use std::sync::Arc;

use bytes::Bytes;
use margay_rows::Ino;
use margay_rows::record::data::INLINE_BYTES_MAX;
use margay_rows::record::data::OBJECT_EXTENTS_MAX;
use margay_segment::{CHUNK_BYTES, Run, RunLength, RunWriter, SegmentId, SegmentPin, Segments};

use self::growing::{Growing, Grown};
use crate::api::{Error, OBJECT_BYTES_MAX};
use crate::draft::Seen;
use crate::driver::{RequestRows, View};
use crate::encryption::{DataKey, Encryptor, SALT_BYTES, encrypted_len};
use crate::open::Volume;

/// A large body is synced whenever this many bytes were written, while more arrive.
const SYNC_AHEAD_BYTES: u64 = 8 << 20;

/// A body that is being received; dropping it discards the bytes.
#[derive(Debug)]
pub struct Upload {
    store: Arc<dyn Segments>,
    owner: [u8; 8],
    run_bytes_max: u64,
    /// Bytes to store; for a growing body the maximum.
    expected: u64,
    /// Bytes passed to the store.
    received: u64,
    encryptor: Option<Box<Encryptor>>,
    state: State,
}

#[derive(Debug)]
enum State {
    Small(Vec<u8>),
    Growing {
        growing: Growing,
        small_bytes_max: u64,
    },
    Runs {
        current: Option<Box<dyn RunWriter>>,
        current_left: u64,
        /// Bytes written since the last sync was started.
        unsynced: u64,
        done: Vec<Run>,
        pins: Vec<SegmentPin>,
    },
}

/// Bytes that are durable or small enough to travel with the commit; passed to `put_object` or `put_part`.
#[derive(Debug)]
pub struct Staged {
    pub(crate) len: u64,
    pub(crate) encrypted: bool,
    pub(crate) body: Body,
    /// Pins for U2.
    #[allow(dead_code, reason = "holding them is what they are for")]
    pins: Vec<SegmentPin>,
}

#[derive(Clone, Debug)]
pub(crate) enum Body {
    Small(Bytes),
    Runs(Vec<Run>),
}

impl Staged {
    pub fn len(&self) -> u64 {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl View<'_> {
    /// Starts to receive exactly `len` bytes for a key of this bucket (checks that the bucket exists). They are
    /// encrypted with the key, if any, before they are stored; the object or upload must then have the key's document.
    pub async fn begin_upload(self, bucket: &str, len: u64, key: Option<&DataKey>) -> Result<Upload, Error> {
        let owner = self.read(|volume, seen| volume.owner_of_upload(bucket, len, seen)).await?;
        self.volume.stage(owner, len, key)
    }

    /// As `begin_upload`, for at most `len_max` bytes; the length is known at the end.
    pub async fn begin_growing_upload(
        self,
        bucket: &str,
        len_max: u64,
        key: Option<&DataKey>,
    ) -> Result<Upload, Error> {
        let owner = self.read(|volume, seen| volume.owner_of_upload(bucket, 0, seen)).await?;
        Ok(self.volume.stage_growing(owner, len_max, key))
    }
}

impl Volume {
    /// Starts to receive exactly `len` bytes for a key of this bucket (checks that the bucket exists).
    pub async fn begin_upload(&self, bucket: &str, len: u64) -> Result<Upload, Error> {
        self.view(&RequestRows::default()).begin_upload(bucket, len, None).await
    }

    /// As `begin_upload`; the bytes are encrypted with this key before they are stored. The object or upload must have
    /// the key's document.
    pub async fn begin_encrypted_upload(&self, bucket: &str, len: u64, key: &DataKey) -> Result<Upload, Error> {
        self.view(&RequestRows::default()).begin_upload(bucket, len, Some(key)).await
    }

    /// Starts to receive at most `len_max` bytes, encrypted if there is a key; the length is known at the end.
    pub async fn begin_growing_upload(
        &self,
        bucket: &str,
        len_max: u64,
        key: Option<&DataKey>,
    ) -> Result<Upload, Error> {
        self.view(&RequestRows::default()).begin_growing_upload(bucket, len_max, key).await
    }

    pub(crate) fn stage_growing(&self, owner: Ino, len_max: u64, key: Option<&DataKey>) -> Upload {
        let stored_max = stored_len(len_max.min(OBJECT_BYTES_MAX), key);
        let growing = Growing::new(stored_max, self.options.run_bytes_max.max(1));
        let state = State::Growing { growing, small_bytes_max: self.small_bytes_max() };
        self.new_upload(owner, stored_max, self.encryptor(key), state)
    }

    /// Refuses early what exceeds a limit.
    pub(crate) fn owner_of_upload(&self, bucket: &str, len: u64, seen: &mut Seen) -> Result<Ino, Error> {
        let (row, version) = self.bucket_row(bucket, seen)?;
        self.check_room()?;
        // Whatever the bucket has now.
        let most = self.state_under(bucket, &row, version, seen)?.quota.bytes;
        if most.is_some_and(|most| len > most) { Err(Error::QuotaExceeded) } else { Ok(row.root) }
    }

    /// `owner` is written into the headers of the runs.
    pub(crate) fn stage(&self, owner: Ino, len: u64, key: Option<&DataKey>) -> Result<Upload, Error> {
        let stored = stored_len(len, key);
        let runs = stored.div_ceil(self.options.run_bytes_max.max(1));
        if len > OBJECT_BYTES_MAX || runs > OBJECT_EXTENTS_MAX as u64 {
            return Err(Error::TooLarge);
        }
        let mut upload = match stored > self.small_bytes_max() {
            true => self.stage_in_runs(owner, stored),
            false => self.new_upload(owner, stored, None, State::Small(Vec::with_capacity(stored as usize))),
        };
        upload.encryptor = self.encryptor(key);
        Ok(upload)
    }

    /// Starts to store bytes as they are, never in memory.
    pub(crate) fn stage_in_runs(&self, owner: Ino, len: u64) -> Upload {
        let state = State::Runs { current: None, current_left: 0, unsynced: 0, done: Vec::new(), pins: Vec::new() };
        self.new_upload(owner, len, None, state)
    }

    fn encryptor(&self, key: Option<&DataKey>) -> Option<Box<Encryptor>> {
        key.map(|key| {
            let mut salt = [0; SALT_BYTES as usize];
            self.env.random.fill(&mut salt);
            Box::new(Encryptor::new(key, salt))
        })
    }

    fn new_upload(&self, owner: Ino, expected: u64, encryptor: Option<Box<Encryptor>>, state: State) -> Upload {
        Upload {
            store: Arc::clone(&self.store),
            owner: owner.0.to_be_bytes(),
            run_bytes_max: self.options.run_bytes_max.max(1),
            expected,
            received: 0,
            encryptor,
            state,
        }
    }

    /// Bodies up to this size are kept in memory until their commit.
    pub(crate) fn small_bytes_max(&self) -> u64 {
        // A longer run would need checksums after it.
        let payload = self.engine.payload_bytes_max().min(self.options.payload_bytes_max).min(CHUNK_BYTES as usize);
        payload.max(INLINE_BYTES_MAX) as u64
    }
}

/// Stored size of a body.
fn stored_len(len: u64, key: Option<&DataKey>) -> u64 {
    if key.is_some() { encrypted_len(len) } else { len }
}

impl Upload {
    /// Appends; must be called from one task. Copies into a bounded buffer; large pieces reach the disk before it
    /// returns.
    pub async fn write(&mut self, bytes: Bytes) -> Result<(), Error> {
        let Some(mut encryptor) = self.encryptor.take() else { return self.append(&bytes) };
        let taken = encryptor.push(&bytes, &mut |stored| self.append(stored));
        // Also after an error: later bytes must not be stored unencrypted.
        self.encryptor = Some(encryptor);
        taken
    }

    fn append(&mut self, mut bytes: &[u8]) -> Result<(), Error> {
        let received = self.received + bytes.len() as u64;
        if received > self.expected {
            let is_growing = matches!(self.state, State::Growing { .. });
            return Err(if is_growing { Error::TooLarge } else { Error::WrongLength });
        }
        match &mut self.state {
            State::Small(buffer) => buffer.extend_from_slice(bytes),
            State::Growing { growing, .. } => growing.append(&*self.store, &self.owner, bytes)?,
            State::Runs { current, current_left, unsynced, done, pins } => {
                let mut left = self.expected - self.received;
                while !bytes.is_empty() {
                    let writer = match current {
                        Some(writer) => writer,
                        None => {
                            *current_left = left.min(self.run_bytes_max);
                            current.insert(self.store.begin(RunLength::Exact(*current_left), &self.owner)?)
                        }
                    };
                    let (head, rest) =
                        bytes.split_at(bytes.len().min(usize::try_from(*current_left).unwrap_or(usize::MAX)));
                    writer.write(head)?;
                    *current_left -= head.len() as u64;
                    left -= head.len() as u64;
                    bytes = rest;
                    *unsynced += head.len() as u64;
                    if *unsynced >= SYNC_AHEAD_BYTES && left > 0 {
                        self.store.start_sync(writer.segment())?;
                        *unsynced = 0;
                    }
                    if *current_left == 0
                        && let Some(mut writer) = current.take()
                    {
                        pins.push(writer.pin());
                        done.push(writer.end()?);
                    }
                }
            }
        }
        self.received = received;
        Ok(())
    }

    /// All announced bytes must have arrived. Returns when they are durable, or small enough to travel with the commit.
    pub async fn finish(self) -> Result<Staged, Error> {
        let store = Arc::clone(&self.store);
        let staged = self.finish_unsynced()?;
        for segment in staged.segments() {
            store.sync(segment).await?;
        }
        Ok(staged)
    }

    fn finish_unsynced(mut self) -> Result<Staged, Error> {
        let plain_len = match self.encryptor.take() {
            None => None,
            Some(mut encryptor) => {
                encryptor.finish(&mut |stored| self.append(stored))?;
                Some(encryptor.taken())
            }
        };
        let is_growing = matches!(self.state, State::Growing { .. });
        if self.received != self.expected && !is_growing {
            return Err(Error::WrongLength);
        }
        let (body, pins) = match self.state {
            State::Small(buffer) => (Body::Small(Bytes::from(buffer)), Vec::new()),
            State::Growing { growing, small_bytes_max } => {
                match growing.end(&*self.store, &self.owner, small_bytes_max)? {
                    Grown::Gathered(bytes) => (Body::Small(Bytes::from(bytes)), Vec::new()),
                    Grown::Runs(runs, pins) => (Body::Runs(runs), pins),
                }
            }
            State::Runs { current, done, pins, .. } => {
                assert!(current.is_none(), "a run ends with its last byte");
                (Body::Runs(done), pins)
            }
        };
        if let Body::Runs(runs) = &body {
            assert_eq!(runs.iter().map(|run| run.len).sum::<u64>(), self.received, "every byte is in a run");
        }
        Ok(Staged { len: plain_len.unwrap_or(self.received), encrypted: plain_len.is_some(), body, pins })
    }
}

impl Staged {
    /// The segments that hold it, each once.
    fn segments(&self) -> Vec<SegmentId> {
        let Body::Runs(runs) = &self.body else { return Vec::new() };
        let mut segments: Vec<SegmentId> = runs.iter().map(|run| run.segment).collect();
        segments.sort_unstable();
        segments.dedup();
        segments
    }
}
