//! Copies that other processes put here, and their orders to remove them.
//!
//! Why:        a process that stood still sends, when it wakes up, what it had decided before: meanwhile somebody else may have put the same
//!             copy here again, and a row may name it. So does a request that waited in a socket while this process stood still.
//! Invariants: P1 a copy that its row names is not removed by an order. The row is read after the count of writes, and the copy goes only if
//!                nothing was written to it since.
//!             P2 what was put here a moment ago stays too: the commit that names it may be under way.
//! Locking:    `Inner::put` is a leaf.
//! Not here:   copies that no row names for an hour (upkeep).

use std::io;
use std::time::Duration;

use margay_segment::{SegmentError, SegmentId};
use margay_volume::read_segment;
use tokio::time::Instant;

use super::Inner;

/// A row follows the bytes that it names within this time; else they are swept later, or the order is repeated.
pub(super) const RECENT: Duration = Duration::from_secs(10);
/// Old entries are dropped when there are so many.
const PUT_MAX: usize = 1024;

pub(super) fn note(inner: &Inner, id: SegmentId) {
    let (mut put, now) = (inner.put.lock(), Instant::now());
    if put.len() >= PUT_MAX {
        put.retain(|_, at| now.duration_since(*at) < RECENT);
    }
    put.insert(id, now);
}

/// Refused while the copy is needed, or may be.
pub(super) fn remove_unnamed(inner: &Inner, id: SegmentId) -> Result<(), SegmentError> {
    let writes = match inner.own.copy_writes(id) {
        Err(SegmentError::Missing(_)) => return Ok(()),
        writes => writes?,
    };
    // P2, first: what is put here after that counts as a write.
    let is_recent = inner.put.lock().get(&id).is_some_and(|at| at.elapsed() < RECENT);
    let row = read_segment(&*inner.peers.engine, id).map_err(|error| refused(&error.to_string()))?;
    // P1.
    if row.is_some_and(|record| record.stores.contains(&inner.own_number())) {
        tracing::warn!(segment = ?id, "an order to remove a copy came that its row names: it stays");
        return Err(refused("its row names this store"));
    }
    if is_recent || !inner.own.remove_copy_not_written(id, writes)? {
        return Err(refused("it was written a moment ago"));
    }
    inner.put.lock().remove(&id);
    Ok(())
}

fn refused(why: &str) -> SegmentError {
    SegmentError::Io(io::Error::other(format!("the copy stays: {why}")))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use margay_env::Env;
    use margay_meta::memory::Memory;
    use margay_meta::{Batch, Engine, Write};
    use margay_rows::key;
    use margay_rows::record::{SegmentRecord, SegmentState};
    use margay_segment::{Kind, Options, Store, StoreName, StoreNumber};

    use super::*;
    use crate::{ClusterKey, HttpCopies, HttpPeers, StoreTls};

    #[test]
    fn an_order_that_comes_late_removes_nothing_that_is_needed_again() {
        let folder = tempfile::tempdir().unwrap();
        let (own, maker) = (StoreNumber(1), StoreNumber(3));
        let store = Store::open(Env::real(), Options::new(folder.path())).unwrap();
        store.attach(StoreName { number: own, generation: 1, ..store.name() }).unwrap();
        let engine = Arc::new(Memory::new());
        let peers = HttpPeers::start(Arc::<Memory>::clone(&engine), ClusterKey::derive(b"volume"), StoreTls::Off, None)
            .unwrap();
        let copies = HttpCopies::start(&peers, Arc::clone(&store)).unwrap();
        let (id, recent) = (SegmentId(maker.ids().0.0 + 5), SegmentId(maker.ids().0.0 + 6));
        let row = |stores: &[StoreNumber]| {
            let (state, stores) = (SegmentState::Sealed { len: 9 }, stores.to_vec());
            let value = SegmentRecord { state, kind: Kind::Raw, writer: 1, stores }.encode();
            let writes = vec![Write::Put { key: key::segment(id), value }];
            engine.commit(Batch { writes, ..Batch::default() }).unwrap();
        };
        [id, recent].into_iter().for_each(|id| store.write_copy(id, Kind::Raw, 0, b"copy").unwrap());
        // Put here by whoever has taken the segment over, whose row names it.
        row(&[own, maker]);
        assert!(copies.remove_unnamed(id).unwrap_err().to_string().contains("its row names this store"));
        // Its row is not written yet.
        copies.note_put(recent);
        assert!(copies.remove_unnamed(recent).unwrap_err().to_string().contains("a moment ago"));
        assert!(store.listed(id).is_ok() && store.listed(recent).is_ok());
        row(&[maker]);
        copies.remove_unnamed(id).unwrap();
        copies.remove_unnamed(id).unwrap();
        assert!(store.listed(id).is_err());
    }
}
