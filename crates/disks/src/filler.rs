//! The thread that looks at disks and fills them.
//!
//! Invariants: H1 a disk whose directory vanished and came back, with its mark, is filled without being asked; one that has met
//!                errors only when told so, and an empty directory too: it may be a mount point without its disk.
//! Not here:   what filling is (fill).

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use margay_env::{OpenMode, files};

use crate::catalogue::Catalogue;
use crate::class::{Class, IDENTITY_FILE};
use crate::member::Member;
use crate::record::{BYTES_MAX, Identity, State};

/// How often disks are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The name of a file that is written to see whether a disk takes it; removed with incomplete copies.
const PROBE: &str = "probe.filling";

/// Ends with the value.
#[derive(Debug)]
pub(crate) struct Filler {
    catalogue: Arc<Catalogue>,
    thread: Option<JoinHandle<()>>,
}

impl Filler {
    pub(crate) fn start(catalogue: &Arc<Catalogue>) -> io::Result<Filler> {
        let run = Arc::clone(catalogue);
        let thread = std::thread::Builder::new().name("disk-fill".to_owned()).spawn(move || run.run())?;
        Ok(Filler { catalogue: Arc::clone(catalogue), thread: Some(thread) })
    }
}

impl Drop for Filler {
    fn drop(&mut self) {
        self.catalogue.stopping.store(true, Ordering::SeqCst);
        self.catalogue.wake();
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has reported it.
            let _ = thread.join();
        }
    }
}

impl Catalogue {
    fn run(&self) {
        while !self.stopping.load(Ordering::SeqCst) {
            self.look();
            self.fill_once(None);
            let mut woken = self.wake.0.lock();
            if !std::mem::take(&mut *woken) {
                self.wake.1.wait_for(&mut woken, LOOK_EVERY);
                *woken = false;
            }
        }
    }

    /// Looks whether each disk is what it was.
    pub(crate) fn look(&self) {
        for member in self.members() {
            let found = self.probe(&member);
            match (member.is_living(), found) {
                (true, Ok(())) => member.suspect.store(false, Ordering::Relaxed),
                (true, Err(error)) => {
                    // The last one stays, and its errors are those of each call.
                    let _ = self.take_out(&member, &error);
                }
                (false, Ok(())) if member.lost().is_some_and(|lost| lost.is_absent) => {
                    if let Err(error) = self.take_back(&member) {
                        tracing::warn!(disk = %member.root.display(), %error, "this disk is there again and cannot be filled");
                    }
                }
                (false, _) => {}
            }
        }
    }

    /// Writes only where a read has failed before.
    fn probe(&self, member: &Member) -> io::Result<()> {
        let bytes = files::read(&self.env, &member.path(Path::new(IDENTITY_FILE)), BYTES_MAX)?;
        let wanted = Identity { volume: self.volume, member: member.id };
        if Identity::decode(&bytes) != Ok(wanted) {
            return Err(io::Error::new(io::ErrorKind::NotFound, "another disk is in its place"));
        }
        let is_suspect = member.suspect.load(Ordering::Relaxed) && member.state(Class::Data) != State::Out;
        if is_suspect {
            let path = member.path(Path::new(PROBE));
            let file = self.env.disk.open(&path, OpenMode::OpenOrCreate)?;
            file.write_all_at(b"probe\n", 0)?;
            file.sync_data()?;
            self.env.disk.remove(&path)?;
        }
        Ok(())
    }
}
