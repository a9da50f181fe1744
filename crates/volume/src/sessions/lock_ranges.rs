//! Which locks of a file there are after somebody has taken or given back one: a pure function.
//!
//! Why:        `fcntl` replaces whatever its owner had of the range before, so a lock may be split, cut and joined.
//! Invariants: R1 locks of one owner do not overlap, and those of one kind and open file do not touch.
//!             R2 exclusive locks overlap no lock of another owner, if each lock was asked for with `conflict` before `set`.
//! Not here:   the row (margay-rows), who counts as dead (file_locks).

use margay_rows::record::FileLock;

/// The first lock that keeps `wish` from being taken.
pub(super) fn conflict<'l>(locks: &'l [FileLock], wish: &FileLock) -> Option<&'l FileLock> {
    let hinders = |lock: &&FileLock| {
        !is_same_owner(lock, wish)
            && (lock.exclusive || wish.exclusive)
            && lock.first <= wish.last
            && wish.first <= lock.last
    };
    locks.iter().find(hinders)
}

/// Gives the range of `wish` back, and then takes it if `taken`.
pub(super) fn set(locks: &mut Vec<FileLock>, wish: &FileLock, taken: bool) {
    let mut left = Vec::with_capacity(locks.len() + 2);
    for lock in locks.drain(..) {
        if !is_same_owner(&lock, wish) || lock.last < wish.first || wish.last < lock.first {
            left.push(lock);
            continue;
        }
        if lock.first < wish.first {
            left.push(FileLock { last: wish.first - 1, ..lock });
        }
        if lock.last > wish.last {
            left.push(FileLock { first: wish.last + 1, ..lock });
        }
    }
    if taken {
        let mut new = *wish;
        // Neighbours of the same kind become one with it (R1).
        left.retain(|lock| {
            let touches = lock.last.checked_add(1) == Some(new.first) || new.last.checked_add(1) == Some(lock.first);
            let is_same = is_same_owner(lock, &new) && (lock.handle, lock.exclusive) == (new.handle, new.exclusive);
            let joins = is_same && touches;
            if joins {
                (new.first, new.last) = (new.first.min(lock.first), new.last.max(lock.last));
            }
            !joins
        });
        left.push(new);
    }
    *locks = left;
}

/// Whether there are locks of this owner.
pub(super) fn has_any(locks: &[FileLock], wish: &FileLock) -> bool {
    locks.iter().any(|lock| is_same_owner(lock, wish))
}

/// Gives back what this owner has taken through this open file.
pub(super) fn close(locks: &mut Vec<FileLock>, wish: &FileLock) {
    locks.retain(|lock| !is_same_owner(lock, wish) || lock.handle != wish.handle);
}

fn is_same_owner(one: &FileLock, other: &FileLock) -> bool {
    (one.lease, one.owner) == (other.lease, other.owner)
}

#[cfg(test)]
mod tests {
    use margay_rows::Ino;
    use proptest::prelude::*;

    use super::*;

    /// Bytes of the model.
    const BYTES: u64 = 12;
    const OWNERS: u64 = 3;

    fn lock(owner: u64, first: u64, last: u64, exclusive: bool) -> FileLock {
        // Two owners of one mount, and one of another mount that its kernel names as one of those.
        let (lease, owner) = [(1, 5), (1, 6), (2, 5)][owner as usize];
        FileLock { lease: Ino(lease), owner, handle: 1, process: 0, first, last, exclusive }
    }

    /// What each owner has of each byte.
    type Model = [[Option<bool>; BYTES as usize]; OWNERS as usize];

    fn may(model: &Model, owner: usize, range: std::ops::RangeInclusive<usize>, exclusive: bool) -> bool {
        let mut others = model.iter().enumerate().filter(|(other, _)| *other != owner);
        !others.any(|(_, bytes)| bytes[range.clone()].iter().any(|kind| kind.is_some_and(|kind| kind || exclusive)))
    }

    proptest! {
        #[test]
        fn bytes_are_locked_as_a_model_says(
            steps in prop::collection::vec((0..OWNERS, 0..BYTES, 0..BYTES, 0..3_u8), 1..60)
        ) {
            let (mut locks, mut model) = (Vec::new(), Model::default());
            for (owner, one, other, kind) in steps {
                let (first, last) = (one.min(other), one.max(other));
                let (wish, range) = (lock(owner, first, last, kind == 2), first as usize..=last as usize);
                if kind > 0 {
                    let free = conflict(&locks, &wish).is_none();
                    prop_assert_eq!(free, may(&model, owner as usize, range.clone(), kind == 2));
                    if !free {
                        continue;
                    }
                }
                set(&mut locks, &wish, kind > 0);
                model[owner as usize][range].fill((kind > 0).then_some(kind == 2));
                let mut shown = Model::default();
                for found in &locks {
                    let owner = (0..OWNERS).find(|owner| is_same_owner(&lock(*owner, 0, 0, false), found)).unwrap();
                    for byte in found.first..=found.last {
                        let place = &mut shown[owner as usize][byte as usize];
                        prop_assert!(place.replace(found.exclusive).is_none(), "locks of one owner overlap");
                    }
                }
                prop_assert_eq!(shown, model);
                let pieces: usize = model.iter().map(|bytes| bytes.chunk_by(|a, b| a == b).filter(|run| run[0].is_some()).count()).sum();
                prop_assert_eq!(locks.len(), pieces, "neighbours are one lock");
            }
        }
    }

    #[test]
    fn a_lock_to_the_end_can_be_split_and_given_back() {
        let mut locks = Vec::new();
        set(&mut locks, &lock(0, 0, u64::MAX, true), true);
        set(&mut locks, &lock(0, 10, 19, true), false);
        assert_eq!(locks, [lock(0, 0, 9, true), lock(0, 20, u64::MAX, true)]);
        assert_eq!(conflict(&locks, &lock(1, 5, 30, false)), Some(&lock(0, 0, 9, true)));
        assert_eq!(conflict(&locks, &lock(1, 10, 19, true)), None);
        set(&mut locks, &lock(0, 0, u64::MAX, true), false);
        assert_eq!(locks, []);
    }

    /// A kernel names the owner of a `flock` by the address of an open file: the next one may have the same before the end of the
    /// first one is told.
    #[test]
    fn a_close_gives_back_what_was_taken_through_it_alone() {
        let mut locks = Vec::new();
        let second = FileLock { handle: 2, ..lock(0, 0, 9, true) };
        set(&mut locks, &lock(0, 0, 9, true), true);
        assert_eq!(conflict(&locks, &second), None);
        set(&mut locks, &second, true);
        close(&mut locks, &lock(0, 0, 9, true));
        assert_eq!(locks, [second]);
        set(&mut locks, &lock(0, 10, 19, true), true);
        assert_eq!(locks.len(), 2, "each open file's end finds its own");
        close(&mut locks, &second);
        assert!(locks == [lock(0, 10, 19, true)] && has_any(&locks, &second) && !has_any(&locks, &lock(1, 0, 0, true)));
    }
}
