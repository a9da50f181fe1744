//! Objects of pools that no row names are found by listings, and go.
//!
//! Invariants: W1 an object goes when no row has named its pool during `UNNAMED_FOR`, in which it was not put again, and nobody counts it:
//!                the first row that names it may be late, for longer than that while a process is busy, so
//!             W2 only the maker of a segment, which knows what counts, removes its object; for a maker that does not run, the lowest server
//!                that does. What counts in memory alone is asked for before another copy goes for it (X3 of trim).
//!             W3 while an object is removed, none is put in its place.
//! Locking:    used by the thread of upkeep; listings are tasks, which share nothing.
//! Not here:   objects of segments that were removed (copies), putting (pooled).

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use margay_segment::{SegmentId, StoreNumber};
use margay_volume::{Error, read_segment};
use tokio::sync::oneshot::{self, Receiver, error::TryRecvError};
use tokio::time::Instant;

use super::Inner;
use super::elsewhere::{Copy, Tried, named_at, pools, remove_object};
use crate::pools::{Listed, PoolObjects};

/// What is in a pool is compared with the rows so often.
const SWEEP_EVERY: Duration = Duration::from_secs(600);
/// An object that no row names is kept for so long.
const UNNAMED_FOR: Duration = Duration::from_secs(3600);

type Listing = Vec<(Arc<PoolObjects>, Vec<Listed>)>;

#[derive(Default)]
pub(super) struct PoolSweep {
    begun_at: Option<Instant>,
    listing: Option<Receiver<Listing>>,
    unnamed: Unnamed,
}

/// Objects that no row names, when they were put as their store says, and since when that is so.
#[derive(Default)]
struct Unnamed(HashMap<Copy, (String, Instant)>);

impl PoolSweep {
    /// Begins a listing, or compares one that is done.
    pub(super) fn go_on(&mut self, inner: &Arc<Inner>, tried: &Tried, now: Instant) -> Result<(), Error> {
        if let Some(listing) = &mut self.listing {
            let listed = match listing.try_recv() {
                Err(TryRecvError::Empty) => return Ok(()),
                Err(TryRecvError::Closed) => Vec::new(),
                Ok(listed) => listed,
            };
            self.listing = None;
            for (pool, there) in listed {
                self.compare(inner, (&pool, there), tried, now)?;
            }
        } else if self.begun_at.is_none_or(|at| at + SWEEP_EVERY <= now) {
            self.begun_at = Some(now);
            let (sender, listing) = oneshot::channel();
            self.listing = Some(listing);
            inner.peers.spawn(list(Arc::clone(inner), pools(inner), sender));
        }
        Ok(())
    }

    fn compare(
        &mut self,
        inner: &Arc<Inner>,
        (pool, there): (&Arc<PoolObjects>, Vec<Listed>),
        tried: &Tried,
        now: Instant,
    ) -> Result<(), Error> {
        let (own, live) = (inner.own_number(), inner.targets.live());
        let is_lowest = inner.targets.is_lowest_of_live(own);
        // W2.
        let is_mine = |maker: StoreNumber| maker == own || is_lowest && !live.contains_key(&maker);
        let mine: Vec<Listed> = there.into_iter().filter(|object| is_mine(object.id.made_by())).collect();
        let named = named_at(inner, mine.iter().map(|object| object.id), pool.number)?;
        let unnamed = mine.into_iter().filter(|object| !named.contains(&object.id));
        for id in self.unnamed.due(pool.number, unnamed, now) {
            let copy = (id, pool.number);
            // In this order: what was put is counted before it is tried no more.
            let is_put = || tried.lock().contains_key(&copy);
            let is_counted = || inner.stores.lock().get(&id).is_some_and(|stores| stores.contains(&pool.number));
            // The rows were read a while ago.
            let is_named = || -> Result<bool, Error> {
                let row = read_segment(&*inner.peers.engine, id)?;
                Ok(row.is_some_and(|row| row.stores.contains(&pool.number)))
            };
            if is_put() || is_counted() || is_named()? {
                continue;
            }
            // W3.
            tried.lock().insert(copy, None);
            let (inner, pool, tried) = (Arc::clone(inner), Arc::clone(pool), Arc::clone(tried));
            inner.clone().peers.spawn(async move {
                remove_object(inner, pool, id).await;
                tried.lock().remove(&copy);
            });
        }
        Ok(())
    }
}

impl Unnamed {
    /// Those of these objects, all of a pool that no row names, that are so for long enough (W1). What is not among them is forgotten.
    fn due(&mut self, pool: StoreNumber, objects: impl Iterator<Item = Listed>, now: Instant) -> Vec<SegmentId> {
        let before = std::mem::take(&mut self.0);
        let mut due = Vec::new();
        for Listed { id, modified } in objects {
            let known = before.get(&(id, pool)).filter(|(then, _)| *then == modified);
            let since = known.map_or(now, |(_, since)| *since);
            due.extend((since + UNNAMED_FOR <= now).then_some(id));
            self.0.insert((id, pool), (modified, since));
        }
        self.0.extend(before.into_iter().filter(|((_, of), _)| *of != pool));
        due
    }
}

/// A pool that does not answer is left out.
async fn list(inner: Arc<Inner>, pools: Vec<Arc<PoolObjects>>, done: oneshot::Sender<Listing>) {
    let mut all = Listing::new();
    for pool in pools {
        match pool.list_all(&|| inner.is_over()).await {
            Ok(there) => all.push((pool, there)),
            Err(error) => {
                tracing::warn!(pool = pool.name, %error, "what is in a pool is compared with the rows later")
            }
        }
    }
    // The thread of upkeep may have ended.
    drop(done.send(all));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_waits_for_an_hour_from_when_it_was_put_last() {
        let (mut unnamed, begun) = (Unnamed::default(), Instant::now());
        let objects = |modified: &'static str| {
            [1, 2].into_iter().map(move |id| Listed { id: SegmentId(id), modified: modified.to_owned() })
        };
        let (one, other) = (StoreNumber(8), StoreNumber(9));
        assert_eq!(unnamed.due(one, objects("noon"), begun), []);
        assert_eq!(unnamed.due(other, objects("noon"), begun), []);
        // Put again.
        let later = begun + UNNAMED_FOR;
        assert_eq!(unnamed.due(one, objects("one"), later), []);
        // One of them was named meanwhile.
        assert_eq!(unnamed.due(other, objects("noon").take(1), later), [SegmentId(1)]);
        assert_eq!(unnamed.due(other, objects("noon"), later), [SegmentId(1)]);
        assert_eq!(unnamed.due(one, objects("one"), later + UNNAMED_FOR), [SegmentId(1), SegmentId(2)]);
    }
}
