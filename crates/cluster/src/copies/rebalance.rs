//! Copies are moved from full stores to empty ones, while an operator wants that.
//!
//! Why:        a server that was added has nothing of what was there before; new segments alone would fill it in months.
//! Invariants: B1 a move adds a copy; the one that is too many then goes as any other (`trim`), so there are never too few.
//!             B2 each move makes the fuller of two stores emptier than it was, and does not turn their order round.
//!             B3 what a server wrote stays at its own store.
//!             B4 what a gateway has of others moves away, however full it is.
//! Locking:    used by the thread of upkeep.
//! Not here:   who says so, and how far it is (`margay node rebalance`).

use std::collections::HashMap;
use std::ops::ControlFlow;

use margay_segment::{SegmentId, StoreNumber};
use margay_volume::{CopiesRecord, Error, SegmentState, known_stores, visit_segments_made_by};

use super::Inner;

/// Bytes that each store has of segments that are written no more, by the rows.
type Fill = HashMap<StoreNumber, u64>;

/// A segment that has exactly its copies.
struct Movable {
    id: SegmentId,
    len: u64,
    /// The own store apart.
    have: Vec<StoreNumber>,
}

/// The own segments that are to get a copy elsewhere, and where. Until these have moved it is not asked again.
pub(super) fn moves(inner: &Inner) -> Result<Vec<(SegmentId, StoreNumber)>, Error> {
    let numbers = inner.targets.numbers();
    let fill = fill(inner, &numbers)?;
    inner.targets.filled(fill.clone());
    let settled = |id| !inner.segments.lock().contains_key(&id) && !inner.unsure.lock().contains(&id);
    let mut movable = Vec::new();
    for info in inner.own.segments() {
        if inner.own.is_written(info.id) || info.id.made_by() != inner.own_number() || !settled(info.id) {
            continue;
        }
        let mut have: Vec<StoreNumber> = inner.stores.lock().get(&info.id).into_iter().flatten().copied().collect();
        let count = numbers.count(have.iter().copied()) + 1;
        have.retain(|store| !numbers.is_pool(*store));
        if count == usize::from(numbers.copies) && have.iter().all(|store| inner.targets.is_usable(*store)) {
            movable.push(Movable { id: info.id, len: info.len, have });
        }
    }
    let mut targets = inner.targets.usable(&[]);
    targets.sort_unstable();
    Ok(plan(&movable, fill, (inner.own_number(), &targets), &numbers))
}

fn fill(inner: &Inner, numbers: &CopiesRecord) -> Result<Fill, Error> {
    let engine = &*inner.peers.engine;
    let known = known_stores(engine)?;
    let may_get = |store: StoreNumber| !numbers.detached.contains(&store) && numbers.takes_copies(store);
    let running = known.iter().filter(|store| store.address.is_some() && may_get(store.number));
    let mut fill: Fill = running.map(|store| (store.number, 0)).collect();
    for store in &known {
        visit_segments_made_by(engine, store.number, &mut |known| {
            if let SegmentState::Sealed { len } = known.record.state {
                for store in &known.record.stores {
                    fill.entry(*store).and_modify(|bytes| *bytes += len);
                }
            }
            Ok(if inner.is_over() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
    }
    Ok(fill)
}

fn plan(
    movable: &[Movable],
    mut fill: Fill,
    (own, targets): (StoreNumber, &[StoreNumber]),
    numbers: &CopiesRecord,
) -> Vec<(SegmentId, StoreNumber)> {
    let servers = fill.len().max(1) as u64;
    let mean = fill.values().sum::<u64>() / servers;
    // All servers move at the same time, and none knows of the others.
    let mut left = fill.values().map(|bytes| bytes.saturating_sub(mean)).sum::<u64>() / servers;
    let mut moves = Vec::new();
    for segment in movable {
        let of = |fill: &Fill, store: StoreNumber| match numbers.takes_copies(store) {
            true => fill.get(&store).copied().unwrap_or_default(),
            false => u64::MAX,
        };
        let Some(from) = segment.have.iter().copied().max_by_key(|store| of(&fill, *store)) else { continue };
        let kept: Vec<StoreNumber> = segment.have.iter().copied().filter(|store| *store != from).chain([own]).collect();
        let racks = numbers.racks_of(kept.iter().copied().chain([from]));
        let keeps_racks = |to: &StoreNumber| numbers.racks_of(kept.iter().copied().chain([*to])) >= racks;
        let open = targets.iter().copied().filter(|to| *to != from && !kept.contains(to) && fill.contains_key(to));
        let Some(to) = open.filter(keeps_racks).min_by_key(|to| of(&fill, *to)) else { continue };
        // B2.
        if of(&fill, to) + segment.len > of(&fill, from).saturating_sub(segment.len) {
            continue;
        }
        fill.entry(from).and_modify(|bytes| *bytes -= segment.len);
        fill.entry(to).and_modify(|bytes| *bytes += segment.len);
        moves.push((segment.id, to));
        match left.checked_sub(segment.len) {
            Some(rest) => left = rest,
            None => break,
        }
    }
    moves
}

#[cfg(test)]
mod tests {
    use margay_volume::Role;

    use super::*;

    const OWN: StoreNumber = StoreNumber(0);

    fn movable(count: u64, len: u64, have: &[u16]) -> Vec<Movable> {
        let have: Vec<StoreNumber> = have.iter().map(|store| StoreNumber(*store)).collect();
        (1..=count).map(|id| Movable { id: SegmentId(id), len, have: have.clone() }).collect()
    }

    #[test]
    fn copies_move_to_the_emptiest_store_until_it_is_no_emptier_and_the_rack_stays() {
        let (full, empty) = (StoreNumber(1), StoreNumber(2));
        let mut numbers = CopiesRecord { copies: 2, ..CopiesRecord::default() };
        let mut fill = Fill::from([(OWN, 1000), (full, 1000), (empty, 0)]);
        let all = movable(100, 10, &[1]);
        let (mut at_full, mut rounds) = (all, 0);
        loop {
            let moves = plan(&at_full, fill.clone(), (OWN, &[full, empty]), &numbers);
            if moves.is_empty() {
                break;
            }
            assert!(moves.iter().all(|(_, to)| *to == empty));
            let moved = moves.len() as u64 * 10;
            at_full.retain(|segment| moves.iter().all(|(id, _)| *id != segment.id));
            fill.entry(full).and_modify(|bytes| *bytes -= moved);
            fill.entry(empty).and_modify(|bytes| *bytes += moved);
            rounds += 1;
            assert!(rounds < 100);
        }
        assert_eq!((fill[&full], fill[&empty]), (500, 500));
        assert!(rounds > 1, "others move too");
        // The copy is the only one in its rack.
        numbers.rack_of = [(OWN, "a"), (full, "b"), (empty, "a")].map(|(store, rack)| (store, rack.to_owned())).into();
        let fill = Fill::from([(OWN, 1000), (full, 1000), (empty, 0)]);
        assert!(plan(&movable(100, 10, &[1]), fill.clone(), (OWN, &[full, empty]), &numbers).is_empty());
        // What a gateway has goes to any other one.
        let role_of = [(full, Role::Gateway)].into();
        let gateway = CopiesRecord { role_of, ..CopiesRecord::default() };
        let fill = Fill::from([(OWN, 10), (empty, 1000)]);
        assert_eq!(plan(&movable(1, 10, &[1]), fill, (OWN, &[empty]), &gateway), [(SegmentId(1), empty)]);
        let fill = Fill::from([(OWN, 1000), (full, 1000), (empty, 0)]);
        // A segment that is larger than the difference would only go to and fro.
        assert!(plan(&movable(3, 501, &[1]), fill, (OWN, &[full, empty]), &CopiesRecord::default()).is_empty());
    }
}
