//! A bounded cache that evicts what was not used since the last sweep (the clock algorithm).
//!
//! Why:        open files and checksum tables are worth caching, within a bound.
//! Locking:    a hit takes only the read lock.
//! Not here:   what is cached (reader, folder).

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::RwLock;

/// Keys of removed values that the order may hold beyond its share.
const STALE_KEYS_MAX: usize = 64;

#[derive(Debug)]
pub(crate) struct Cache<K, V> {
    /// Maximum sum of the weights.
    weight_max: usize,
    state: RwLock<State<K, V>>,
}

#[derive(Debug)]
struct State<K, V> {
    slots: HashMap<K, Slot<V>>,
    /// Every key of `slots`, and some removed ones, in sweep order.
    order: VecDeque<K>,
    weight: usize,
}

#[derive(Debug)]
struct Slot<V> {
    value: V,
    weight: usize,
    used: AtomicBool,
}

impl<K: Copy + Eq + Hash, V: Clone> Cache<K, V> {
    pub(crate) fn new(weight_max: usize) -> Cache<K, V> {
        let state = State { slots: HashMap::new(), order: VecDeque::new(), weight: 0 };
        Cache { weight_max, state: RwLock::new(state) }
    }

    pub(crate) fn get(&self, key: &K) -> Option<V> {
        let state = self.state.read();
        let slot = state.slots.get(key)?;
        slot.used.store(true, Ordering::Relaxed);
        Some(slot.value.clone())
    }

    /// Inserts a value; an existing one stays and is returned.
    pub(crate) fn insert(&self, key: K, value: V, weight: usize) -> V {
        let mut state = self.state.write();
        if let Some(slot) = state.slots.get(&key) {
            return slot.value.clone();
        }
        if weight > self.weight_max {
            return value;
        }
        while state.weight + weight > self.weight_max {
            state.sweep_one();
        }
        state.slots.insert(key, Slot { value: value.clone(), weight, used: AtomicBool::new(false) });
        state.order.push_back(key);
        state.weight += weight;
        value
    }

    pub(crate) fn remove(&self, key: &K) {
        let mut state = self.state.write();
        let State { slots, order, weight } = &mut *state;
        if let Some(slot) = slots.remove(key) {
            *weight -= slot.weight;
        }
        // Removed keys leave the order late; their number is bounded.
        if order.len() > 2 * slots.len() + STALE_KEYS_MAX {
            order.retain(|key| slots.contains_key(key));
        }
    }

    #[cfg(test)]
    pub(crate) fn weight(&self) -> usize {
        self.state.read().weight
    }
}

impl<K: Copy + Eq + Hash, V> State<K, V> {
    /// Examines one key: keeps a used one for another round, evicts an unused one.
    fn sweep_one(&mut self) {
        let key = self.order.pop_front().expect("weight above zero means that a slot exists");
        let Some(slot) = self.slots.get(&key) else { return };
        if slot.used.swap(false, Ordering::Relaxed) {
            self.order.push_back(key);
        } else {
            self.weight -= slot.weight;
            self.slots.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_holds_and_used_values_stay() {
        let cache = Cache::new(10);
        for key in 0..10u32 {
            cache.insert(key, key * 2, 1);
        }
        assert_eq!(cache.get(&0), Some(0));
        cache.insert(10, 20, 1);
        assert_eq!(cache.weight(), 10);
        assert_eq!((cache.get(&0), cache.get(&1), cache.get(&10)), (Some(0), None, Some(20)));
        assert_eq!(cache.insert(99, 1, 11), 1, "too heavy to keep");
        assert_eq!(cache.get(&99), None);
        cache.insert(50, 1, 10);
        assert_eq!(cache.weight(), 10);
        cache.remove(&50);
        assert_eq!(cache.weight(), 0);
    }
}
