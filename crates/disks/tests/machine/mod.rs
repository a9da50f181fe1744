//! A machine with several simulated disks, which lose their power together.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use margay_env::real::RealClock;
use margay_env::sim::{SimDisk, SimRandom};
use margay_env::{DirEntry, Disk, Env, File, LockHandle, OpenMode, Random, Space};
use parking_lot::{Mutex, RwLock};

/// One simulated disk below each first folder.
#[derive(Clone, Debug, Default)]
pub(crate) struct Machine {
    disks: Arc<RwLock<BTreeMap<String, SimDisk>>>,
    faults: Faults,
}

/// Errors of single calls.
#[derive(Clone, Debug, Default)]
struct Faults(Arc<Mutex<Vec<Fault>>>);

type Act = Arc<dyn Fn() -> io::Result<()> + Send + Sync>;

struct Fault {
    call: &'static str,
    part: String,
    act: Act,
    left: u32,
}

impl std::fmt::Debug for Fault {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} {} {}", self.call, self.part, self.left)
    }
}

impl Faults {
    fn check(&self, call: &str, path: &Path) -> io::Result<()> {
        let path = path.to_string_lossy();
        let act = {
            let mut faults = self.0.lock();
            let hit =
                faults.iter_mut().find(|fault| fault.call == call && fault.left > 0 && path.contains(&fault.part));
            hit.map(|fault| {
                fault.left -= 1;
                Arc::clone(&fault.act)
            })
        };
        act.map_or(Ok(()), |act| act())
    }
}

impl Machine {
    pub(crate) fn of(names: &[&str], seed: u64) -> Machine {
        let disks = names.iter().zip(seed..).map(|(name, seed)| ((*name).to_owned(), SimDisk::new(seed)));
        Machine { disks: Arc::new(RwLock::new(disks.collect())), faults: Faults::default() }
    }

    fn disk(&self, path: &Path) -> io::Result<SimDisk> {
        let first = path.iter().nth(1).unwrap_or_default().to_string_lossy().into_owned();
        self.disks.read().get(&first).cloned().ok_or(io::ErrorKind::NotFound.into())
    }

    pub(crate) fn set(&self, name: &str, disk: SimDisk) {
        self.disks.write().insert(name.to_owned(), disk);
    }

    pub(crate) fn get(&self, name: &str) -> SimDisk {
        self.disks.read()[name].clone()
    }

    /// The next `times` of these calls whose path has this part end with the error of this number, and do nothing.
    #[allow(dead_code, reason = "not each test needs it")]
    pub(crate) fn fail(&self, call: &'static str, part: &str, number: i32, times: u32) {
        self.on(call, part, times, move || Err(io::Error::from_raw_os_error(number)));
    }

    /// This is done first in the next `times` of these calls whose path has this part.
    pub(crate) fn on(
        &self,
        call: &'static str,
        part: &str,
        times: u32,
        act: impl Fn() -> io::Result<()> + Send + Sync + 'static,
    ) {
        self.faults.0.lock().push(Fault { call, part: part.to_owned(), act: Arc::new(act), left: times });
    }

    #[allow(dead_code, reason = "not each test needs it")]
    pub(crate) fn mend(&self) {
        self.faults.0.lock().clear();
    }

    #[allow(dead_code, reason = "not each test needs it")]
    /// What each disk has after the power was lost at this moment.
    pub(crate) fn power_cut(&self, random: &SimRandom) -> Machine {
        let disks = self.disks.read();
        let after = disks.iter().map(|(name, disk)| (name.clone(), disk.crash(random.next_u64())));
        Machine { disks: Arc::new(RwLock::new(after.collect())), faults: Faults::default() }
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
        self.faults.check("open", path)?;
        let file = self.disk(path)?.open(path, mode)?;
        Ok(Arc::new(FaultyFile { file, path: path.to_owned(), faults: self.faults.clone() }))
    }
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.faults.check("create_dir_all", path)?;
        self.disk(path)?.create_dir_all(path)
    }
    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.disk(path)?.exists(path)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.faults.check("remove", path)?;
        self.disk(path)?.remove(path)
    }
    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.disk(path)?.remove_dir(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.faults.check("rename", from)?;
        self.disk(from)?.rename(from, to)
    }
    fn list(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        self.faults.check("list", path)?;
        self.disk(path)?.list(path)
    }
    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.faults.check("sync_dir", path)?;
        self.disk(path)?.sync_dir(path)
    }
    fn lock(&self, path: &Path) -> io::Result<Box<dyn LockHandle>> {
        self.disk(path)?.lock(path)
    }
    fn space(&self, path: &Path) -> io::Result<Space> {
        self.disk(path)?.space(path)
    }
}

/// An open file with the path that it had.
#[derive(Debug)]
struct FaultyFile {
    file: Arc<dyn File>,
    path: PathBuf,
    faults: Faults,
}

impl File for FaultyFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.faults.check("read", &self.path)?;
        self.file.read_at(buffer, offset)
    }
    fn write_all_at(&self, buffer: &[u8], offset: u64) -> io::Result<()> {
        self.faults.check("write", &self.path)?;
        self.file.write_all_at(buffer, offset)
    }
    fn sync_data(&self) -> io::Result<()> {
        self.faults.check("sync", &self.path)?;
        self.file.sync_data()
    }
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }
    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        self.file.allocate(offset, len)
    }
    fn punch_hole(&self, offset: u64, len: u64) -> io::Result<()> {
        self.file.punch_hole(offset, len)
    }
    fn allocated_bytes(&self) -> io::Result<u64> {
        self.file.allocated_bytes()
    }
}
