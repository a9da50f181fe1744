//! One data directory kept in several directories: metadata in two, each payload file on as many disks as are wanted.
//!
//! Why:        a disk that dies must stop nothing and take nothing with it.
//! Layout:     docs/format/disks.md; docs/design/0037-several-disks.md says how.
//! Invariants: of the modules: members (who is trusted), entry (what is written where), fill (how a copy comes to be).
//! Locking:    names, an entry's `inner`, record; see members.
//! Not here:   what the files contain (segment, meta); copies on other machines (cluster).

mod admit;
mod catalogue;
mod class;
mod doubt;
mod entry;
mod error;
mod file;
mod fill;
mod filler;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod layer;
mod member;
mod members;
mod open;
mod place;
mod record;
mod scan;
mod status;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use margay_env::Env;

pub use error::DisksError;
pub use record::{MEMBERS_MAX, State};
pub use status::{DiskStatus, Filling, Status};

use crate::catalogue::Catalogue;
use crate::filler::Filler;
use crate::layer::Layer;

/// Names that a data directory has because of its disks.
pub const FILES: [&str; 4] = [class::IDENTITY_FILE, class::RECORD_FILE, "disk-id.new", "disks.new"];

/// What the caller asks for; a volume that has disks keeps those it has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiskWish {
    /// A second directory for metadata.
    pub mirror: Option<PathBuf>,
    /// Directories for payload.
    pub disks: Vec<PathBuf>,
    /// Copies of each payload file.
    pub copies: Option<u32>,
    /// Go on without directories that are not there and not known to be out.
    pub accept_missing: bool,
}

impl DiskWish {
    fn is_nothing(&self) -> bool {
        self.mirror.is_none() && self.disks.is_empty() && self.copies.unwrap_or(1) <= 1
    }
}

/// The open directories of a volume. When the last files are closed before this value is dropped, the next start need not
/// compare copies.
#[derive(Debug)]
pub struct Disks {
    catalogue: Arc<Catalogue>,
    filler: parking_lot::Mutex<Option<Filler>>,
}

impl Disks {
    /// Opens the data directory with the others that it has or gets; `None` if it has none and nothing is wanted. The data
    /// directory is locked by the caller.
    pub fn open(env: &Env, data: &Path, wanted: &DiskWish) -> Result<Option<Disks>, DisksError> {
        let catalogue = open::open(env, data, wanted)?;
        Ok(catalogue.map(|catalogue| Disks { catalogue, filler: parking_lot::Mutex::new(None) }))
    }

    /// Whether a data directory has others.
    pub fn has(env: &Env, data: &Path) -> io::Result<bool> {
        env.disk.exists(&data.join(class::RECORD_FILE))
    }

    /// The ports, with a disk that keeps copies.
    pub fn env(&self, env: &Env) -> Env {
        Env { disk: Arc::new(Layer(Arc::clone(&self.catalogue))), ..env.clone() }
    }

    /// From now on disks are looked at, and filled, until the value is dropped.
    pub fn start(&self) -> io::Result<()> {
        *self.filler.lock() = Some(Filler::start(&self.catalogue)?);
        Ok(())
    }

    /// One round of what the started thread does; for tests. Returns whether all copies are made.
    pub fn fill(&self) -> bool {
        self.catalogue.look();
        !self.catalogue.fill_once(None) && self.catalogue.status().short_files == 0
    }

    /// A new directory for payload, or one in the place of a disk that is out; it is filled in the background.
    pub fn add(&self, root: &Path) -> Result<(), DisksError> {
        self.catalogue.add(root)
    }

    /// Moves all payload away from a disk, in the background; then it is no member any more.
    pub fn remove(&self, root: &Path) -> Result<(), DisksError> {
        self.catalogue.empty(root)
    }

    pub fn status(&self) -> Status {
        self.catalogue.status()
    }
}

impl Drop for Disks {
    fn drop(&mut self) {
        drop(self.filler.lock().take());
        let is_open = self.catalogue.names.lock().entries.values().any(|entry| entry.inner.read().handles > 0);
        if is_open || self.catalogue.differ.load(Ordering::Relaxed) {
            return;
        }
        let mut record = self.catalogue.record.lock();
        record.clean = true;
        if let Err(error) = self.catalogue.store_record(&mut record) {
            tracing::debug!(%error, "the next start compares copies");
        }
    }
}
