//! Several volumes over one engine that says that it is shared.

use std::sync::Arc;

use margay_env::Env;
use margay_meta::Engine;
use margay_meta::memory::Memory;
use margay_segment::Store;
use margay_volume::*;

use super::{segment_options, wait};

/// An engine that says that it is shared, and holds so many commits of its feed; and a store.
pub fn engine(folder: &std::path::Path, changes_held_max: usize) -> (Arc<Memory>, Arc<Store>) {
    let store = Store::open(Env::real(), segment_options(folder)).unwrap();
    (Arc::new(Memory::with_payloads(Arc::clone(&store), 4096).shared(changes_held_max)), store)
}

pub fn open(engine: Arc<dyn Engine>, store: &Arc<Store>, options: Options) -> Arc<Volume> {
    Volume::open(Env::real(), engine, Arc::clone(store), options).unwrap()
}

/// Two of them, with a bucket `b`.
pub fn pair(folder: &std::path::Path, changes_held_max: usize, options: &Options) -> [Arc<Volume>; 2] {
    let (engine, store) = engine(folder, changes_held_max);
    let pair = [(); 2].map(|()| open(Arc::clone(&engine) as Arc<dyn Engine>, &store, options.clone()));
    wait(pair[0].create_bucket("b")).unwrap();
    pair
}

/// Beats until the other session is taken for dead.
pub fn fence(by: &Volume, dead: &Volume) {
    let number = dead.session().unwrap();
    for _ in 0..=STILL_BEATS_MAX {
        if by.beat().unwrap().fenced == [number] {
            return;
        }
    }
    panic!("session {number} lives");
}
