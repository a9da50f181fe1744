//! Several volumes over one engine that says that it is shared.

use std::sync::Arc;

use margay_env::Env;
use margay_meta::Engine;
use margay_meta::memory::Memory;
use margay_segment::Store;
use margay_volume::*;

use super::interposed::Interposed;
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

/// Two processes with a bucket `b`; the first one's calls can be interrupted, on both sides.
#[derive(Debug)]
pub struct Two {
    pub one: Arc<Volume>,
    pub other: Arc<Volume>,
    pub interposed: Arc<Interposed>,
    pub memory: Arc<Memory>,
    pub store: Arc<Store>,
    pub folder: tempfile::TempDir,
}

/// `shared`: the engine says that it is shared.
pub fn two(shared: bool, options: &Options) -> Two {
    let folder = tempfile::tempdir().unwrap();
    let (memory, store) = if shared {
        engine(folder.path(), 1000)
    } else {
        let store = Store::open(Env::real(), segment_options(folder.path())).unwrap();
        (Arc::new(Memory::with_payloads(Arc::clone(&store), 4096)), store)
    };
    let interposed = Arc::new(Interposed::on_both_sides(Arc::<Memory>::clone(&memory)));
    let one = open(Arc::clone(&interposed) as Arc<dyn Engine>, &store, options.clone());
    let other = open(Arc::clone(&memory) as Arc<dyn Engine>, &store, options.clone());
    wait(one.create_bucket("b")).unwrap();
    Two { one, other, interposed, memory, store, folder }
}

/// Until it has read what others did.
pub fn follow(volume: &Volume) {
    while !volume.follow_once().unwrap().is_newest {}
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

/// Rules of events that give each key its targets.
#[derive(Clone, Copy, Debug)]
pub struct Routed(pub fn(&str) -> Vec<&'static str>);

impl EventRules for Routed {
    fn routes(&self, _: EventKind, key: &str) -> Vec<Route> {
        let route = |target: &str| Route { target: target.to_owned(), rule: "r".to_owned() };
        (self.0)(key).into_iter().map(route).collect()
    }
}

impl EventRouter for Routed {
    fn read(&self, document: &[u8]) -> Arc<dyn EventRules> {
        assert_eq!(document, b"rules");
        Arc::new(*self)
    }
}
