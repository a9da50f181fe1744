//! Copies that are too many are removed: a store has come back, fewer are wanted, or a copy was moved.
//!
//! Invariants: X1 a copy goes only while as many others as the volume says are at stores that answer and say that they have all of it,
//!                in as many racks as before or as are wanted.
//!             X2 the row goes first: a copy is removed once the row that is stored does not name its store, and for `UNNAMED_FOR`
//!                after that was decided, since a commit under way may name it once more.
//!             X3 X1 is asked again right before a copy is removed, and the row names all that count: a row may be late, and what counts
//!                in memory alone may have been swept meanwhile. If that is no longer so, the copy counts again.
//! Locking:    used by the thread of upkeep, which also begins repairs: no segment is copied to a store while its copy there goes.
//! Not here:   copies of segments that are gone, and those that no row names (upkeep).

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use margay_segment::{SegmentError, SegmentId, SegmentInfo, StoreNumber};
use margay_volume::{Error, SegmentRecord, SegmentState, read_segment};
use tokio::time::Instant;

use super::targets::weight;
use super::{Inner, elsewhere, send};

const UNNAMED_FOR: Duration = Duration::from_secs(5);
/// The thread looks after other things when it has asked for so long.
const TIME_MAX: Duration = Duration::from_millis(500);

#[derive(Default)]
pub(super) struct Trims {
    /// Segments with too many copies.
    waiting: VecDeque<SegmentId>,
    /// Copies that are not counted any more.
    going: HashMap<(SegmentId, StoreNumber), Going>,
}

#[derive(Clone, Copy)]
struct Going {
    since: Instant,
    /// Its store was told to remove it and did not answer, so it may do that at any time.
    is_ordered: bool,
}

/// What is known of the copies that stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kept {
    Enough,
    /// The row does not say so yet.
    NotNow,
    TooFew,
}

impl Trims {
    pub(super) fn find(&mut self, inner: &Inner) {
        let has_too_many = |info: &SegmentInfo| !surplus(inner, info).is_empty();
        self.waiting = inner.own.segments().into_iter().filter(has_too_many).map(|info| info.id).collect();
    }

    pub(super) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.going.is_empty()
    }

    /// Gives up some copies, and removes those that were given up before.
    pub(super) fn go_on(&mut self, inner: &Arc<Inner>) -> Result<(), Error> {
        let begun = Instant::now();
        while begun.elapsed() < TIME_MAX
            && !inner.is_over()
            && let Some(id) = self.waiting.pop_front()
        {
            if let Some(store) = give_up_one(inner, id) {
                self.going.insert((id, store), Going { since: begun, is_ordered: false });
            }
        }
        let due = self.going.iter().filter(|(_, going)| going.since.elapsed() >= UNNAMED_FOR);
        for (id, store) in due.map(|(copy, _)| *copy).collect::<Vec<_>>() {
            if begun.elapsed() >= 2 * TIME_MAX || inner.is_over() {
                break;
            }
            let Some(going) = self.going.get_mut(&(id, store)) else { continue };
            if is_done_with(inner, (id, store), &mut going.is_ordered)? {
                self.going.remove(&(id, store));
            }
        }
        Ok(())
    }
}

/// The stores that have a segment of which one has a copy too many.
fn surplus(inner: &Inner, info: &SegmentInfo) -> Vec<StoreNumber> {
    let is_settled = !inner.own.is_written(info.id)
        && info.id.made_by() == inner.own_number()
        && !inner.segments.lock().contains_key(&info.id)
        && !inner.unsure.lock().contains(&info.id);
    if !is_settled {
        return Vec::new();
    }
    let numbers = inner.targets.numbers();
    let stores = inner.stores.lock();
    let have = stores.get(&info.id).into_iter().flatten().copied().filter(|store| !numbers.detached.contains(store));
    let have: Vec<StoreNumber> = have.collect();
    let may_go = have.iter().any(|store| !numbers.is_pool(*store));
    let is_too_many = numbers.count(have.iter().copied()) >= usize::from(numbers.copies);
    if may_go && is_too_many { have } else { Vec::new() }
}

/// X1; the store whose copy is not counted from now on.
fn give_up_one(inner: &Inner, id: SegmentId) -> Option<StoreNumber> {
    let info = inner.own.listed(id).ok()?;
    let have = surplus(inner, &info);
    let store = choose(inner, id, &have)?;
    if !have_all(inner, &info, have.into_iter().filter(|kept| *kept != store)) {
        return None;
    }
    tracing::info!(segment = ?id, store = store.0, "a copy is one too many, and goes");
    inner.forget_copy(id, store);
    Some(store)
}

/// The copy that is missed least, never that in a pool: one that is not reached, one at a gateway, one in the rack with the most copies, at the fullest store while copies are
/// moved, then by the segment's own order of stores.
fn choose(inner: &Inner, id: SegmentId, have: &[StoreNumber]) -> Option<StoreNumber> {
    let numbers = inner.targets.numbers();
    let with_own = |except: Option<StoreNumber>| -> Vec<StoreNumber> {
        let kept = have.iter().copied().filter(|store| Some(*store) != except);
        kept.chain([inner.own_number()]).collect()
    };
    let racks = numbers.racks_of(with_own(None)).min(inner.racks_wanted());
    let may_go = |store: &StoreNumber| {
        let is_reached = |kept: &StoreNumber| kept == store || inner.targets.is_usable(*kept);
        have.iter().all(is_reached) && numbers.racks_of(with_own(Some(*store))) >= racks
    };
    let in_rack =
        |store: StoreNumber| with_own(None).iter().filter(|one| numbers.rack(**one) == numbers.rack(store)).count();
    let fill = |store: StoreNumber| if numbers.rebalances { inner.targets.fill(store) } else { 0 };
    have.iter().copied().filter(|store| may_go(store) && !numbers.is_pool(*store)).max_by_key(|store| {
        let is_reached = inner.targets.is_usable(*store);
        (
            !is_reached,
            !numbers.takes_copies(*store),
            in_rack(*store),
            fill(*store),
            std::cmp::Reverse(weight(id, *store)),
        )
    })
}

/// X3.
fn kept(inner: &Inner, (id, store): (SegmentId, StoreNumber), row: Option<&SegmentRecord>) -> Kept {
    let Ok(info) = inner.own.listed(id) else { return Kept::NotNow };
    let numbers = inner.targets.numbers();
    let mut have: Vec<StoreNumber> = inner.stores.lock().get(&id).into_iter().flatten().copied().collect();
    have.retain(|kept| *kept != store && !numbers.detached.contains(kept));
    let with_own = || have.iter().copied().chain([inner.own_number()]);
    let racks = numbers.racks_of(with_own().chain([store])).min(inner.racks_wanted());
    // More may be wanted than when it was given up; of a file that is not whole it may have what nobody else has.
    if numbers.count(with_own()) < usize::from(numbers.copies)
        || numbers.racks_of(with_own()) < racks
        || inner.unsure.lock().contains(&id)
    {
        return Kept::TooFew;
    }
    if !row.is_some_and(|row| !row.stores.contains(&store) && have.iter().all(|kept| row.stores.contains(kept))) {
        return Kept::NotNow;
    }
    if have_all(inner, &info, have.into_iter()) { Kept::Enough } else { Kept::TooFew }
}

/// Whether each of these stores answers and says that it has all of a segment. One that says otherwise counts no more.
fn have_all(inner: &Inner, info: &SegmentInfo, mut stores: impl Iterator<Item = StoreNumber>) -> bool {
    stores.all(|store| match elsewhere::state_at(inner, store, info.id) {
        Ok(there) if there.len >= info.len => true,
        Ok(_) | Err(SegmentError::Missing(_)) => {
            tracing::warn!(segment = ?info.id, store = store.0, "a copy is missing, or not whole: none goes as one too many");
            inner.forget_copy(info.id, store);
            false
        }
        Err(_) => false,
    })
}

/// It is needed after all, and counts if it is there still; else another one is made.
fn count_again(inner: &Inner, (id, store): (SegmentId, StoreNumber)) {
    let len = inner.own.listed(id).map(|info| info.len);
    let there = elsewhere::state_at(inner, store, id).map(|there| there.len);
    if matches!((len, there), (Ok(len), Ok(there)) if there >= len) {
        inner.note_copy(id, store);
    }
}

/// X2, X3. False: it is not removed yet.
fn is_done_with(
    inner: &Arc<Inner>,
    (id, store): (SegmentId, StoreNumber),
    is_ordered: &mut bool,
) -> Result<bool, Error> {
    let counts_again = inner.stores.lock().get(&id).is_some_and(|stores| stores.contains(&store));
    if counts_again || inner.segments.lock().contains_key(&id) {
        return Ok(true);
    }
    // One that has just failed is asked later.
    if inner.targets.is_open(store) && !inner.targets.is_usable(store) {
        return Ok(false);
    }
    let row = read_segment(&*inner.peers.engine, id)?.filter(|row| row.state != SegmentState::Removed);
    let is_gone = row.is_none() && matches!(inner.own.listed(id), Err(SegmentError::Missing(_)));
    let kept = if is_gone { Kept::Enough } else { kept(inner, (id, store), row.as_ref()) };
    match kept {
        Kept::NotNow => return Ok(false),
        Kept::TooFew => {
            if !*is_ordered {
                count_again(inner, (id, store));
            }
            return Ok(true);
        }
        // A store that is not reached removes its copy later, by the rows.
        Kept::Enough if !inner.targets.is_open(store) => return Ok(true),
        Kept::Enough => {}
    }
    match inner.peers.block(send::remove(Arc::clone(inner), id, store)) {
        Some(Ok(())) => {}
        Some(Err(SegmentError::Unreachable(..))) => {
            // It may be removed at any time yet, so nothing is copied there meanwhile, and it is asked again.
            *is_ordered = true;
            inner.targets.failed(store);
            return Ok(false);
        }
        // It stays for a moment, as one that was put there just now does.
        Some(Err(_)) | None => return Ok(false),
    }
    inner.counters.trimmed.fetch_add(1, Ordering::Relaxed);
    Ok(true)
}

#[cfg(test)]
mod tests {
    use margay_env::Env;
    use margay_meta::memory::Memory;
    use margay_meta::{Batch, Engine, Write};
    use margay_rows::key;
    use margay_segment::{Kind, Options, RunLength, Store, StoreName};
    use margay_volume::{CopiesRecord, Pool};

    use super::*;
    use crate::pools::tests::{Simulated, write};
    use crate::{ClusterKey, HttpCopies, HttpPeers, StoreTls};

    const OWN: StoreNumber = StoreNumber(1);
    const GOING: StoreNumber = StoreNumber(3);
    const POOL: StoreNumber = StoreNumber(9);

    fn numbers(copies: u8) -> Batch {
        let pool = Pool {
            name: "cold".to_owned(),
            bucket: "bucket".to_owned(),
            prefix: String::new(),
            endpoint: "http://h".to_owned(),
            region: String::new(),
            folder: "f".to_owned(),
            is_virtual: false,
            copies: 2,
        };
        let record = CopiesRecord { copies, pools: [(POOL, pool)].into(), ..CopiesRecord::default() };
        Batch { writes: vec![Write::Put { key: key::copies(), value: record.encode() }], ..Batch::default() }
    }

    #[test]
    fn a_copy_goes_only_while_those_that_stay_are_there_and_are_named_and_are_enough() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(Env::real(), Options::new(folder.path())).unwrap();
        store.attach(StoreName { number: OWN, generation: 1, ..store.name() }).unwrap();
        let (engine, simulated) = (Arc::new(Memory::new()), Simulated::default());
        engine.commit(numbers(3)).unwrap();
        let (rows, buckets) = (Arc::<Memory>::clone(&engine), Arc::new(simulated.clone()));
        let peers = HttpPeers::start(rows, ClusterKey::derive(b"volume"), StoreTls::Off, Some(buckets)).unwrap();
        let copies = HttpCopies::start(&peers, Arc::clone(&store)).unwrap();
        let inner = &*copies.inner;
        let id = write(&store, RunLength::Exact(5000), 1, 5000).segment;
        store.seal(id).unwrap();
        inner.note_copy(id, POOL);
        let len = store.listed(id).unwrap().len;
        let with_row = |stores: &[StoreNumber]| {
            let (state, stores) = (SegmentState::Sealed { len }, stores.to_vec());
            kept(inner, (id, GOING), Some(&SegmentRecord { state, kind: Kind::Pack, writer: 1, stores }))
        };
        simulated.keep("f", id, vec![0; len as usize]);
        assert_eq!(with_row(&[OWN, POOL]), Kept::Enough);
        assert_eq!(with_row(&[OWN, GOING, POOL]), Kept::NotNow);
        assert_eq!(with_row(&[OWN]), Kept::NotNow);
        // More are wanted meanwhile.
        engine.commit(numbers(4)).unwrap();
        inner.targets.look(inner).unwrap();
        assert_eq!(with_row(&[OWN, POOL]), Kept::TooFew);
        engine.commit(numbers(3)).unwrap();
        inner.targets.look(inner).unwrap();
        assert_eq!(with_row(&[OWN, POOL]), Kept::Enough);
        // What counted in memory was swept, or cut off.
        simulated.keep("f", id, vec![0; len as usize - 1]);
        assert_eq!(with_row(&[OWN, POOL]), Kept::TooFew);
        assert!(inner.stores.lock()[&id].is_empty(), "it counts no more");
    }
}
