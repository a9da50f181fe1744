//! Sending, and telling of, what is below one directory alone.
//!
//! Why:        who has copied one tree does not wait for what others have written.
//! Invariants: B1 below a directory is every file of which the bucket has, gets or loses an object there, and the directory
//!                itself. Its path may change while somebody waits.
//! Locking:    the table of files, for one look at what is below.
//! Not here:   waiting for one file or for everything (far).

use margay_rows::Ino;

use crate::backlog::{Backlog, backlog_below};
use crate::far::{Far, LOOK_EVERY};
use crate::patience::{NotSent, Patience};
use crate::tracked::Files;

impl Far {
    /// Sends what is below a directory by its number, and blocks until the bucket has what was there at the call; `progress`
    /// as for `flush`. What was refused is tried again at once.
    pub fn send_below(&self, directory: u64, progress: &mut dyn FnMut(&Backlog) -> bool) -> Result<(), NotSent> {
        let (sequence, directory, mut patience) = {
            let mut files = self.tracked.files.lock();
            for ino in self.below(&mut files, Ino(directory)) {
                files.send_again(ino);
            }
            (files.sequence, Ino(directory), Patience::begin(&self.tracked, &files))
        };
        self.tracked.wake.notify_one();
        loop {
            let mut files = self.tracked.files.lock();
            let mut left = self.below(&mut files, directory);
            left.retain(|ino| {
                files.table.get(*ino).is_some_and(|file| !file.is_read && file.lacking_since() <= sequence)
            });
            if left.is_empty() {
                return Ok(());
            }
            let failure =
                |ino: &Ino| files.table.get(*ino).and_then(|file| Some((file.is_refused, file.failure.clone()?)));
            let failures: Vec<(bool, String)> = left.iter().filter_map(failure).collect();
            if let Some((_, why)) = failures.iter().find(|(is_refused, _)| *is_refused) {
                return Err(NotSent::Refused(why.clone()));
            }
            patience.look(&self.tracked, &files, || failures.into_iter().next().map(|(_, why)| why))?;
            self.tracked.settled.of(None).wait_for(&mut files, LOOK_EVERY);
            let backlog = backlog_below(&files, &left);
            drop(files);
            if !progress(&backlog) {
                return Err(NotSent::Stopped);
            }
        }
    }

    /// What the bucket lacks below a directory.
    pub fn backlog_below(&self, directory: u64) -> Backlog {
        let mut files = self.tracked.files.lock();
        let inos = self.below(&mut files, Ino(directory));
        backlog_below(&files, &inos)
    }

    /// Whether it is the top directory, by its number here or in a mount.
    pub fn is_top(&self, directory: u64) -> bool {
        directory == MOUNT_TOP || Ino(directory) == self.tracked.files.lock().paths.root()
    }

    /// Dirty files below a directory; none, if it is not here any more.
    fn below(&self, files: &mut Files, directory: Ino) -> Vec<Ino> {
        let Ok(Some(path)) = files.paths.of(&*self.tracked.below, directory) else { return Vec::new() };
        let mut inos: Vec<Ino> = files.table.with_keys_below(&path).map(|(_, ino)| ino).collect();
        inos.sort_unstable();
        inos.dedup();
        inos
    }
}

/// The number of the top directory of each mount.
const MOUNT_TOP: u64 = 1;
