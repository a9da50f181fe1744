//! The store of another process: what is read, verified and asked there.
//!
//! Invariants: O1 what is read is given on only if it has the length that was asked for.
//!             O2 the bytes of a file come as they are there; whoever takes them verifies them.
//! Not here:   connections and questions (peers), which store has a segment (margay-volume).

use std::io;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use margay_env::File;
use margay_segment::{
    Extent, OtherStore, ReadOnly, SegmentCopy, SegmentError, SegmentId, SegmentInfo, Segments, StoreIdentity,
    StoreName, StoreNumber, segment_name,
};
use margay_volume::Peers;

use crate::hedge::first_good;
use crate::peers::{HttpPeers, Shared};
use crate::pools::PoolStore;
use crate::question::{READ_BYTES_MAX, What, decode_mended, decode_state};

/// A whole answer takes so long at most; then its store counts as unreachable.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(3);
/// Another store is asked too when one has not answered a read for so long.
const HEDGED_AFTER: Duration = Duration::from_millis(100);
/// As before, of a run of gigabytes that the store reads.
const VERIFY_TIME_MAX: Duration = Duration::from_secs(60);
/// As before, of a file that the store fetches.
const MEND_TIME_MAX: Duration = Duration::from_secs(600);

/// One store.
#[derive(Clone, Debug)]
pub(crate) struct HttpStore {
    shared: Arc<Shared>,
    number: StoreNumber,
}

/// The file of a segment there.
#[derive(Debug)]
struct FarFile {
    store: HttpStore,
    id: SegmentId,
    len: u64,
}

impl Peers for HttpPeers {
    /// Whether it is reached shows when it is asked: nothing waits here.
    fn store(&self, number: StoreNumber) -> Option<Arc<dyn Segments>> {
        if self.0.pools.is_pool(number) {
            return Some(Arc::new(ReadOnly(PoolStore::new(&self.0.pools, number))));
        }
        Some(Arc::new(ReadOnly(HttpStore::new(&self.0, number))))
    }

    fn read_first(
        &self,
        first: StoreNumber,
        spare: &dyn Fn() -> Option<StoreNumber>,
        (extent, skip, len): (&Extent, u64, u64),
    ) -> Option<Result<Bytes, SegmentError>> {
        if len > READ_BYTES_MAX {
            return None;
        }
        let what = What::Read { extent: *extent, skip, len };
        let ask = |number: StoreNumber, sender: Sender<Result<Bytes, SegmentError>>| {
            let shared = Arc::clone(&self.0);
            self.0.spawn(async move {
                let answer = shared.ask(number, what, ANSWER_TIME_MAX).await;
                let is_whole = |bytes: &Bytes| bytes.len() as u64 == len;
                // Nobody listens if another one was faster.
                let _ = sender.send(answer.and_then(|bytes| if is_whole(&bytes) { Ok(bytes) } else { Err(fewer()) }));
            });
        };
        first_good(
            HEDGED_AFTER,
            |sender| ask(first, sender),
            |sender| {
                spare().into_iter().for_each(|other| ask(other, sender.clone()));
            },
        )
    }

    /// A pool is asked after all servers.
    fn is_doubted(&self, number: StoreNumber) -> bool {
        self.0.pools.is_pool(number) || self.0.is_doubted(number)
    }
}

impl HttpStore {
    pub(crate) fn new(shared: &Arc<Shared>, number: StoreNumber) -> HttpStore {
        HttpStore { shared: Arc::clone(shared), number }
    }

    fn ask(&self, what: What) -> Result<Bytes, SegmentError> {
        let (shared, number) = (Arc::clone(&self.shared), self.number);
        let time_max = match what {
            What::Verify(_) => VERIFY_TIME_MAX,
            What::Mend(_) => MEND_TIME_MAX,
            _ => ANSWER_TIME_MAX,
        };
        let asked = self.shared.block(async move { shared.ask(number, what, time_max).await });
        asked.unwrap_or_else(|| Err(SegmentError::Unreachable(what.segment(), number)))
    }

    fn told_state(&self, id: SegmentId, what: What) -> Result<SegmentInfo, SegmentError> {
        let bytes = self.ask(what)?;
        decode_state(id, &bytes).ok_or_else(|| SegmentError::Io(io::Error::other("another process told no state")))
    }

    /// Bytes of the file as they are there; fewer at its end.
    pub(crate) fn file_bytes(&self, id: SegmentId, offset: u64, len: u64) -> Result<Bytes, SegmentError> {
        let bytes = self.ask(What::File { id, offset, len: len.min(READ_BYTES_MAX) })?;
        if bytes.len() as u64 > len { Err(fewer()) } else { Ok(bytes) }
    }

    /// Lets the store make its file right: how many runs were bad, and how many are.
    pub(crate) fn mend(&self, id: SegmentId) -> Result<(u64, u64), SegmentError> {
        let bytes = self.ask(What::Mend(id))?;
        decode_mended(&bytes).ok_or_else(|| SegmentError::Io(io::Error::other("another process told no result")))
    }
}

fn fewer() -> SegmentError {
    SegmentError::Io(io::Error::other("another process gave fewer bytes than were asked for"))
}

impl OtherStore for HttpStore {
    fn name(&self) -> StoreName {
        StoreName { identity: StoreIdentity([0; 16]), number: self.number, generation: 0 }
    }

    fn read(&self, extent: &Extent, skip: u64, len: u64) -> Result<Bytes, SegmentError> {
        assert!(skip + len <= extent.len, "a read is within its extent");
        let piece = |at: u64| {
            let piece = (len - at).min(READ_BYTES_MAX);
            let bytes = self.ask(What::Read { extent: *extent, skip: skip + at, len: piece })?;
            if bytes.len() as u64 == piece {
                return Ok(bytes);
            }
            Err(fewer())
        };
        if len <= READ_BYTES_MAX {
            return piece(0);
        }
        let mut all = BytesMut::with_capacity(len as usize);
        while (all.len() as u64) < len {
            all.extend_from_slice(&piece(all.len() as u64)?);
        }
        Ok(all.freeze())
    }

    fn verify(&self, extent: &Extent) -> Result<(), SegmentError> {
        self.ask(What::Verify(*extent)).map(drop)
    }

    fn state(&self, id: SegmentId) -> Result<SegmentInfo, SegmentError> {
        self.told_state(id, What::State(id))
    }

    /// The file is read from there, piece by piece.
    fn source(&self, id: SegmentId) -> Result<SegmentCopy, SegmentError> {
        let SegmentInfo { kind, len, .. } = self.told_state(id, What::FileState(id))?;
        let file = FarFile { store: self.clone(), id, len };
        Ok(SegmentCopy { name: segment_name(id, kind), kind, file: Arc::new(file) })
    }
}

impl File for FarFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let bytes = self.store.file_bytes(self.id, offset, buffer.len() as u64).map_err(io::Error::other)?;
        buffer[..bytes.len()].copy_from_slice(&bytes);
        Ok(bytes.len())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.len)
    }

    fn write_all_at(&self, _buffer: &[u8], _offset: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn sync_data(&self) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn set_len(&self, _len: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn allocate(&self, _offset: u64, _len: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn punch_hole(&self, _offset: u64, _len: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn allocated_bytes(&self) -> io::Result<u64> {
        Err(io::ErrorKind::Unsupported.into())
    }
}
