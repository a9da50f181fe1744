//! Compares a directory with the bucket again, and enters what others changed there.
//!
//! Why:        a directory that was listed once would never show what other programs do.
//! Examples:   an object that somebody put is a new file; one that somebody replaced is a new file under the same name, and
//!             who has the old one open keeps it; one that somebody removed is gone.
//! Invariants: E1 nothing that is only here is touched: no name that is dirty, that this process has just written, or that is
//!                open.
//!             E2 a difference counts only if a HEAD after the listing shows it too: listings may be late.
//!             E3 one whole listing, or nothing: a name that a page did not reach is not gone.
//! Locking:    the turns of the files that go, without waiting for them: who has one may wait for this directory. Then the table
//!             of dirty files, from the last look at what is dirty until the entries are committed. Kernels are told later.
//! Not here:   directories that are gone (they stay, empty); attributes that somebody changed without the content.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::mpsc::{self, SyncSender};
use std::time::Duration;

use margay_rows::record::Entry;
use margay_rows::{Ino, key};

use crate::list::{Found, Gone, Listing, Rows};
use crate::pages::{Line, Listed};
use crate::tracked::{entry_at, object_row, rows_of_object};

/// Who needs the directory waits so long; then it uses what is here.
const WAIT: Duration = Duration::from_secs(1);
/// What somebody was working on is tried again after these times.
const AGAIN_AFTER: [Duration; 3] = [Duration::from_millis(50), Duration::from_millis(200), Duration::from_secs(1)];
/// Names of one batch.
const NAMES_PER_BATCH: usize = 200;

/// What differs under a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Difference {
    /// Not here.
    New,
    /// This file is another one there.
    Replaced(Ino),
    Gone(Ino),
}

impl Difference {
    /// The file that goes.
    fn file(self) -> Option<Ino> {
        match self {
            Difference::New => None,
            Difference::Replaced(ino) | Difference::Gone(ino) => Some(ino),
        }
    }
}

/// A directory under comparison.
struct Compared {
    directory: Ino,
    /// Its key.
    path: String,
    /// When the listing began.
    began: Duration,
    there: BTreeMap<String, Listed>,
    /// Names that somebody here is working on.
    left: Vec<String>,
    differed: bool,
}

impl Listing {
    /// Compares the directory on another thread, and returns when that is done or takes long.
    pub(crate) fn refresh_for_a_while(self: Arc<Self>, directory: Ino) {
        let (done, wait) = mpsc::sync_channel(2);
        let own = Arc::clone(&self);
        self.requests.spawn_blocking(move || {
            let differed = own.compare(directory, &done).map_err(|error| {
                let now = own.tracked.files.lock().now();
                if let Some(left_out) = own.tracked.told.is_news(now, "compare", &error) {
                    let directory = directory.0;
                    tracing::info!(error, directory, left_out, "a directory could not be compared with the bucket");
                }
            });
            own.tracked.ages.ended(directory, differed.ok());
            let _ = done.send(());
        });
        let _ = wait.recv_timeout(WAIT);
    }

    /// Whether something differed. What somebody was working on, often the one who waits, is tried again after telling `done`.
    fn compare(&self, directory: Ino, done: &SyncSender<()>) -> Result<bool, String> {
        let Some(mut compared) = self.refresh_now(directory)? else { return Ok(false) };
        if !compared.left.is_empty() {
            let _ = done.send(());
        }
        for pause in AGAIN_AFTER {
            if compared.left.is_empty() {
                break;
            }
            std::thread::sleep(pause);
            let left = std::mem::take(&mut compared.left);
            self.take_over_all(&mut compared, &left)?;
        }
        Ok(compared.differed)
    }

    /// `None`: the directory is gone.
    fn refresh_now(&self, directory: Ino) -> Result<Option<Compared>, String> {
        let (mut compared, hidden) = {
            let mut files = self.tracked.files.lock();
            let path = files.paths.of(&*self.tracked.below, directory).map_err(|error| error.to_string())?;
            let Some(path) = path else { return Ok(None) };
            let (there, left) = (BTreeMap::new(), Vec::new());
            let compared = Compared { directory, path, began: files.now(), there, left, differed: false };
            (compared, files.paths.temporary_directory())
        };
        let mut there = BTreeMap::new();
        let mut token = None;
        loop {
            let (listed, next) = self.page(&compared.path, &hidden, token.take())?;
            let names = listed
                .into_iter()
                .filter_map(|(key, listed)| Some((key.strip_prefix(compared.path.as_str())?.to_owned(), listed)));
            there.extend(names);
            match next {
                Some(next) => token = Some(next),
                None => break,
            }
        }
        compared.there = there;
        let names = self.differing(&compared)?;
        compared.differed = !names.is_empty();
        self.take_over_all(&mut compared, &names)?;
        Ok(Some(compared))
    }

    fn take_over_all(&self, compared: &mut Compared, names: &[String]) -> Result<(), String> {
        for some in names.chunks(NAMES_PER_BATCH) {
            let left = self.take_over(compared, some)?;
            compared.left.extend(left);
        }
        Ok(())
    }

    /// Names under which something differs.
    fn differing(&self, compared: &Compared) -> Result<Vec<String>, String> {
        let there = &compared.there;
        let mut here = BTreeMap::new();
        let ((start, end), mut damaged) = (key::entries(compared.directory), None);
        let read = self.tracked.below.scan(&start, &end, &mut |row| {
            match key::parse_entry(row.key).and_then(|(_, name)| Ok((name.to_owned(), Entry::decode(row.value)?))) {
                Ok((name, entry)) => drop(here.insert(name, entry)),
                Err(error) => damaged = Some(error.to_string()),
            }
            ControlFlow::Continue(())
        });
        read.map_err(|error| error.to_string())?;
        if let Some(damaged) = damaged {
            return Err(damaged);
        }
        let touched = self.tracked.files.lock().touched(&compared.path, compared.began);
        let names: BTreeSet<&String> = here.keys().chain(there.keys()).collect();
        let mut differing = Vec::new();
        for name in names {
            let difference = self.difference(compared, &touched, name, here.get(name), there.get(name))?;
            if difference.is_some_and(|one| one.file().is_none_or(|ino| !self.volume.is_open(ino))) {
                differing.push(name.clone());
            }
        }
        Ok(differing)
    }

    /// What differs under one name that is not dirty.
    fn difference(
        &self,
        compared: &Compared,
        touched: &BTreeSet<String>,
        name: &str,
        here: Option<&Entry>,
        there: Option<&Listed>,
    ) -> Result<Option<Difference>, String> {
        let object_key = format!("{}{name}", compared.path);
        let is_touched = match name.ends_with('/') {
            true => touched.range(object_key.clone()..).next().is_some_and(|key| key.starts_with(&object_key)),
            false => touched.contains(&object_key),
        };
        if is_touched {
            return Ok(None);
        }
        let file = match here {
            None => return Ok(there.map(|_| Difference::New)),
            Some(Entry::File(file)) => file,
            Some(_) => return Ok(None),
        };
        let object = object_row(&*self.tracked.below, file.ino).map_err(|error| error.to_string())?;
        let Some(object) = object.filter(|object| object.key == object_key) else { return Ok(None) };
        let difference = match there {
            Some(Listed::Object(line)) if is_same_etag(&line.etag, &object.etag) && line.size == object.size => {
                return Ok(None);
            }
            // Something else is below it than an object.
            Some(Listed::Directory) => return Ok(None),
            Some(Listed::Object(_)) => Difference::Replaced(file.ino),
            None => Difference::Gone(file.ino),
        };
        Ok(Some(difference))
    }

    /// Looks at these names once more (E2), and enters what is there; returns those that somebody here is working on.
    fn take_over(&self, compared: &Compared, names: &[String]) -> Result<Vec<String>, String> {
        let asked = names.iter().map(|name| {
            let listed = match compared.there.get(name) {
                Some(Listed::Directory) => Listed::Directory,
                Some(Listed::Object(line)) => Listed::Object(Line { described: None, ..line.clone() }),
                // Those that are not listed are asked for as objects.
                None => Listed::Object(Line::default()),
            };
            (format!("{}{name}", compared.path), listed)
        });
        let found = self.described(&compared.path, asked.collect())?;
        if found.iter().any(|one| one.there.as_ref().is_some_and(|there| there.etag.is_empty())) {
            return Err("an object that was not listed may not be asked for".to_owned());
        }
        let found: BTreeMap<String, Found> = found.into_iter().map(|one| (one.sort_name.clone(), one)).collect();
        let entry = |name: &String| {
            let row_key = key::entry(compared.directory, name.as_bytes());
            entry_at(&*self.tracked.below, &row_key).map_err(|error| error.to_string())
        };
        let mut inos = Vec::with_capacity(names.len());
        for name in names {
            inos.extend(entry(name)?.and_then(|entry| entry.file()).map(|file| file.ino));
        }
        let (_held, closed) = self.volume.hold_closed(&inos);
        let files = self.tracked.files.lock();
        let touched = files.touched(&compared.path, compared.began);
        let (mut gone, mut rows, mut come, mut left) = (Gone::new(), Rows::new(), Vec::new(), Vec::new());
        for name in names {
            let here = entry(name)?;
            let there = found.get(name).map(|one| match one.there.as_ref().filter(|_| !name.ends_with('/')) {
                None => Listed::Directory,
                Some(there) => Listed::Object(Line { size: there.size, etag: there.etag.clone(), described: None }),
            });
            let difference = self.difference(compared, &touched, name, here.as_ref(), there.as_ref())?;
            if difference.and_then(Difference::file).is_some_and(|ino| !closed.contains(&ino)) {
                left.push(name.clone());
                continue;
            }
            if let Some(ino) = difference.and_then(Difference::file) {
                let object = object_row(&*self.tracked.below, ino).map_err(|error| error.to_string())?;
                rows.extend(object.iter().flat_map(|one| rows_of_object(ino, one)).map(|row| (row, None)));
                gone.push((name.clone(), ino));
            }
            if matches!(difference, Some(Difference::New | Difference::Replaced(_))) {
                come.push(name);
            }
        }
        let come: Vec<Found> = come.into_iter().filter_map(|name| found.get(name)).map(Found::clone).collect();
        if !gone.is_empty() || !come.is_empty() {
            // Where somebody here was faster, the next comparison tells.
            self.enter_over(compared.directory, (&gone, rows), &come)?;
        }
        drop(files);
        Ok(left)
    }
}

/// Some stores quote ETags in headers alone.
fn is_same_etag(one: &str, other: &str) -> bool {
    one.trim_matches('"') == other.trim_matches('"')
}
