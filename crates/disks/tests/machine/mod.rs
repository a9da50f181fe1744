//! A machine with several simulated disks, which lose their power together.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

use margay_env::real::RealClock;
use margay_env::sim::{SimDisk, SimRandom};
use margay_env::{DirEntry, Disk, Env, File, LockHandle, OpenMode, Random, Space};
use parking_lot::RwLock;

/// One simulated disk below each first folder.
#[derive(Clone, Debug, Default)]
pub(crate) struct Machine(Arc<RwLock<BTreeMap<String, SimDisk>>>);

impl Machine {
    pub(crate) fn of(names: &[&str], seed: u64) -> Machine {
        let disks = names.iter().zip(seed..).map(|(name, seed)| ((*name).to_owned(), SimDisk::new(seed)));
        Machine(Arc::new(RwLock::new(disks.collect())))
    }

    fn disk(&self, path: &Path) -> io::Result<SimDisk> {
        let first = path.iter().nth(1).unwrap_or_default().to_string_lossy().into_owned();
        self.0.read().get(&first).cloned().ok_or(io::ErrorKind::NotFound.into())
    }

    pub(crate) fn set(&self, name: &str, disk: SimDisk) {
        self.0.write().insert(name.to_owned(), disk);
    }

    pub(crate) fn get(&self, name: &str) -> SimDisk {
        self.0.read()[name].clone()
    }

    /// What each disk has after the power was lost at this moment.
    pub(crate) fn power_cut(&self, random: &SimRandom) -> Machine {
        let disks = self.0.read();
        let after = disks.iter().map(|(name, disk)| (name.clone(), disk.crash(random.next_u64())));
        Machine(Arc::new(RwLock::new(after.collect())))
    }

    pub(crate) fn env(&self, random: &SimRandom) -> Env {
        Env {
            disk: Arc::new(self.clone()),
            clock: Arc::new(RealClock::new()),
            random: Arc::new(SimRandom::new(random.next_u64())),
        }
    }
}

impl Disk for Machine {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        self.disk(path)?.open(path, mode)
    }
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.disk(path)?.create_dir_all(path)
    }
    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.disk(path)?.exists(path)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.disk(path)?.remove(path)
    }
    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.disk(path)?.remove_dir(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk(from)?.rename(from, to)
    }
    fn list(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        self.disk(path)?.list(path)
    }
    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.disk(path)?.sync_dir(path)
    }
    fn lock(&self, path: &Path) -> io::Result<Box<dyn LockHandle>> {
        self.disk(path)?.lock(path)
    }
    fn space(&self, path: &Path) -> io::Result<Space> {
        self.disk(path)?.space(path)
    }
}
