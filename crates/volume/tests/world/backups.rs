//! Backups made of a world, and volumes made from them.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use margay_env::{Env, OpenMode};
use margay_meta::Engine;
use margay_meta::embedded::EmbeddedEngine;
use margay_segment::{SegmentId, Store, segment_of_name};
use margay_volume::*;

use super::*;

pub fn backup(world: &World, to: &Path) -> BackupReport {
    world.volume.backup(&Env::real(), to, |_| ControlFlow::Continue(())).unwrap()
}

/// An empty engine over copies of these segments, as the program makes it.
fn begin(backup: &Path, named: impl Fn(SegmentId) -> bool, to: &Path) -> (Arc<Store>, Arc<dyn Engine>) {
    let env = Env::real();
    let segments = to.join("segments");
    env.disk.create_dir_all(&segments).unwrap();
    for entry in env.disk.list(&segments_of(backup)).unwrap() {
        if segment_of_name(&entry.name).is_none_or(|(segment, _)| !named(segment)) {
            continue;
        }
        let from = env.disk.open(&segments_of(backup).join(&entry.name), OpenMode::Read).unwrap();
        let mut bytes = vec![0; entry.len as usize];
        from.read_exact_at(&mut bytes, 0).unwrap();
        env.disk.open(&segments.join(&entry.name), OpenMode::CreateNew).unwrap().write_all_at(&bytes, 0).unwrap();
    }
    let store = Store::open(env.clone(), segment_options(&segments)).unwrap();
    let mut options = margay_meta::embedded::Options::new(to.join("tree"));
    (options.log_file_bytes, options.tree_cache_bytes) = (512 << 10, 1 << 20);
    options.first_log_min = store.next_id().0;
    let engine: Arc<dyn Engine> = Arc::new(EmbeddedEngine::open(env, Arc::clone(&store), options).unwrap());
    (store, engine)
}

fn end((store, engine): (Arc<Store>, Arc<dyn Engine>)) -> Arc<Volume> {
    engine.checkpoint().unwrap();
    Volume::open(Env::real(), engine, store, Options::default()).unwrap()
}

/// Everything, beside what only other moments name.
pub fn restore(backup: &Path, moment: &str, to: &Path) -> Arc<Volume> {
    let begun = begin(backup, |_| true, to);
    restore_rows(&Env::real(), backup, moment, &*begun.1, |_| ()).unwrap();
    end(begun)
}

/// A part, with only the segments that it names.
pub fn restore_part(backup: &Path, moment: &str, name: PartName, to: &Path) -> Result<Arc<Volume>, BackupError> {
    let env = Env::real();
    let part = Part::find(&env, backup, moment, name)?;
    let begun = begin(backup, |segment| part.segments().contains_key(&segment), to);
    part.restore(&env, backup, moment, &*begun.1, |_| ())?;
    Ok(end(begun))
}

/// Ends what runs beside a test, also when the test fails.
pub struct StopAtEnd<'a>(pub &'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

pub fn all_objects(volume: &Volume, bucket: &str, keys: impl Iterator<Item = String>) -> BTreeMap<String, Vec<u8>> {
    keys.filter_map(|key| {
        let reader = wait(volume.get_object(bucket, &key, &ReadCondition::default())).ok()?;
        Some((key, read_all(&reader)))
    })
    .collect()
}
