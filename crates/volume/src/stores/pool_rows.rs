//! Rows of pools: a pool is a store of the volume that no process has open.
//!
//! Invariants: L1 a pool has a number that no other store has or gets: it has the row of a store, and the commit asserts that it was absent.
//! Not here:   what is in a pool (margay-cluster).

use std::io;

use margay_meta::Engine;
use margay_rows::key;
use margay_rows::record::{CopiesRecord, POOLS_MAX, Pool, StoreRecord};
use margay_segment::{StoreIdentity, StoreNumber};

use super::attach::free_number;
use crate::api::Error;
use crate::draft::Draft;
use crate::error::Refused;

/// Attempts while others change the same rows.
const TRIES_MAX: usize = 100;

/// Gives a pool its number; durable when it returns. `identity`: random bytes, which no folder has. `make` sees what there is and may be
/// called again; `None` from it: no pool is added.
pub fn add_pool(
    engine: &dyn Engine,
    identity: StoreIdentity,
    make: &dyn Fn(&CopiesRecord) -> Option<Pool>,
) -> Result<Option<StoreNumber>, Error> {
    for _ in 0..TRIES_MAX {
        let number = free_number(engine)?;
        let row = engine.get(&key::copies())?.value;
        let mut copies = row.as_ref().map(|row| CopiesRecord::decode(&row.value)).transpose()?.unwrap_or_default();
        let Some(pool) = make(&copies) else { return Ok(None) };
        if copies.pools.len() >= POOLS_MAX {
            return Err(
                io::Error::other(format!("a volume has {POOLS_MAX} pools at most, removed ones among them")).into()
            );
        }
        assert!(pool.is_valid(), "the texts of a pool are short, and not empty");
        copies.pools.insert(number, pool);
        let mut draft = Draft::default();
        // L1.
        draft.assert_absent(key::store(number));
        draft.assert_unchanged(key::copies(), row.map(|row| row.version));
        draft.put(key::store(number), StoreRecord { identity, generation: 1, session: 0 }.encode());
        draft.put(key::copies(), copies.encode());
        match draft.commit(engine) {
            Ok(done) => {
                engine.wait_durable(done.cursor)?;
                return Ok(Some(number));
            }
            Err(Refused::Conflict) => {}
            Err(Refused::Error(error)) => return Err(error),
        }
    }
    Err(Error::Busy)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use margay_meta::memory::Memory;

    use super::super::copy_rows::{change_copies, known_stores, read_copies};
    use super::*;

    const IDENTITY: StoreIdentity = StoreIdentity([7; 16]);

    fn pool(name: &str) -> Pool {
        Pool {
            name: name.to_owned(),
            bucket: "bucket".to_owned(),
            prefix: String::new(),
            endpoint: "http://h:1".to_owned(),
            region: String::new(),
            folder: name.to_owned(),
            is_virtual: false,
            copies: 2,
        }
    }

    #[test]
    fn one_pool_too_many_is_refused_and_those_that_are_there_stay() {
        let engine = Memory::default();
        for _ in 0..POOLS_MAX {
            add_pool(&engine, IDENTITY, &|_| Some(pool("one"))).unwrap().unwrap();
        }
        let refused = add_pool(&engine, IDENTITY, &|_| Some(pool("one"))).unwrap_err();
        assert!(refused.to_string().contains("64 pools at most"));
        assert_eq!(read_copies(&engine).unwrap().pools.len(), POOLS_MAX);
    }

    #[test]
    fn a_number_that_another_store_takes_meanwhile_is_not_taken_and_other_changes_stay() {
        let engine = Memory::default();
        let is_first = Cell::new(true);
        let number = add_pool(&engine, IDENTITY, &|_| {
            if is_first.take() {
                // A folder is attached.
                let number = free_number(&engine).unwrap();
                let mut draft = Draft::default();
                let record = StoreRecord { identity: StoreIdentity([1; 16]), generation: 1, session: 0 };
                draft.put(key::store(number), record.encode());
                draft.commit(&engine).unwrap();
            }
            Some(pool("one"))
        });
        let number = number.unwrap().unwrap();
        assert_eq!(known_stores(&engine).unwrap().len(), 2);
        assert_ne!(Some(number), known_stores(&engine).unwrap().first().map(|store| store.number));
        let is_first = Cell::new(true);
        let other = add_pool(&engine, IDENTITY, &|copies| {
            if is_first.take() {
                change_copies(&engine, &|copies| copies.copies = 3).unwrap();
            }
            copies.pools.values().all(|pool| pool.name != "two").then(|| pool("two"))
        });
        assert!(other.unwrap().is_some());
        assert_eq!(read_copies(&engine).unwrap().copies, 3);
        assert!(add_pool(&engine, IDENTITY, &|_| None).unwrap().is_none());
    }

    #[test]
    fn pools_have_numbers_of_their_own() {
        let engine = Memory::default();
        let add = |name: &str| add_pool(&engine, IDENTITY, &|_| Some(pool(name))).unwrap().unwrap();
        let numbers = ["one", "two"].map(add);
        assert_ne!(numbers[0], numbers[1]);
        let copies = read_copies(&engine).unwrap();
        assert_eq!(copies.pools[&numbers[1]], pool("two"));
        let stores = known_stores(&engine).unwrap();
        assert!(
            stores.iter().map(|store| store.number).eq(numbers) && stores.iter().all(|store| store.address.is_none())
        );
        assert!(!numbers.contains(&free_number(&engine).unwrap()));
    }
}
