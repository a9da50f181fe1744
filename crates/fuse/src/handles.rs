//! A table of open handles, indexed by number.
//!
//! Why:        the kernel sends a handle's number with each request. Indexing a table finds the file in a few
//!             nanoseconds and does not trust the number as an address.
//! Invariants: H1 a number is reused only after its handle was removed.
//! Locking:    one shard's lock, held for one table operation.
//! Not here:   open files themselves (volume).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

const SHARDS: usize = 16;

#[derive(Debug)]
struct Shard<T> {
    places: Vec<Option<Arc<T>>>,
    free: Vec<usize>,
}

#[derive(Debug)]
pub(crate) struct Handles<T> {
    shards: [Mutex<Shard<T>>; SHARDS],
    next: AtomicUsize,
}

impl<T> Default for Handles<T> {
    fn default() -> Handles<T> {
        Handles {
            shards: std::array::from_fn(|_| Mutex::new(Shard { places: Vec::new(), free: Vec::new() })),
            next: AtomicUsize::new(0),
        }
    }
}

impl<T> Handles<T> {
    pub(crate) fn insert(&self, value: T) -> u64 {
        let index = self.next.fetch_add(1, Ordering::Relaxed) % SHARDS;
        let mut shard = self.shards[index].lock();
        let value = Some(Arc::new(value));
        let place = match shard.free.pop() {
            Some(place) => {
                assert!(shard.places[place].is_none(), "a free number has no handle (H1)");
                shard.places[place] = value;
                place
            }
            None => {
                shard.places.push(value);
                shard.places.len() - 1
            }
        };
        (place * SHARDS + index) as u64
    }

    pub(crate) fn get(&self, number: u64) -> Option<Arc<T>> {
        let (place, index) = place(number)?;
        self.shards[index].lock().places.get(place)?.clone()
    }

    pub(crate) fn remove(&self, number: u64) -> Option<Arc<T>> {
        let (place, index) = place(number)?;
        let mut shard = self.shards[index].lock();
        let value = shard.places.get_mut(place)?.take()?;
        shard.free.push(place);
        assert!(shard.free.len() <= shard.places.len(), "a number is free once (H1)");
        Some(value)
    }

    /// Removes all handles, after the kernel has unmounted.
    pub(crate) fn clear(&self) {
        for shard in &self.shards {
            // Dropped after the lock is released: dropping an open file may wait for the disk.
            let _gone = std::mem::replace(&mut *shard.lock(), Shard { places: Vec::new(), free: Vec::new() });
        }
    }

    /// How many are open.
    pub(crate) fn len(&self) -> usize {
        let open = |shard: &Mutex<Shard<T>>| {
            let shard = shard.lock();
            shard.places.len() - shard.free.len()
        };
        self.shards.iter().map(open).sum()
    }
}

fn place(number: u64) -> Option<(usize, usize)> {
    let number = usize::try_from(number).ok()?;
    Some((number / SHARDS, number % SHARDS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_finds_what_it_was_given_for() {
        let handles = Handles::default();
        let numbers: Vec<u64> = (0..100).map(|value| handles.insert(value)).collect();
        for (value, number) in numbers.iter().enumerate() {
            assert_eq!(handles.get(*number).as_deref(), Some(&value));
        }
        assert_eq!(handles.len(), 100);
        assert_eq!(handles.remove(numbers[7]).as_deref(), Some(&7));
        assert_eq!(handles.remove(numbers[7]), None);
        assert_eq!(handles.get(numbers[7]), None);
        assert_eq!(handles.get(u64::MAX), None);
        assert_eq!(handles.len(), 99);
        handles.clear();
        assert_eq!((handles.len(), handles.get(numbers[8])), (0, None));
    }
}
