//! Compares a directory with the bucket again, and enters what others changed there.
//!
//! Why:        a directory that was listed once would never show what other programs do.
//! Examples:   an object that somebody put is a new file; one that somebody replaced, or gave other attributes, is a new file under
//!             the same name, and who has the old one open keeps it; one that somebody removed is gone, and so is a directory in which nothing is left.
//! Invariants: E1 nothing that is only here is touched: no name that is dirty, that this process has just written, or that is
//!                open.
//!             E2 a difference counts only if a HEAD after the listing shows it too, or another listing where much differs or
//!                listings have metadata: they may be late.
//!             E3 one whole listing, or nothing: a name that a page did not reach is not gone.
//! Locking:    the turns of the files that go, without waiting for them: who has one may wait for this directory. Then the table
//!             of dirty files, from the last look at what is dirty until the entries are committed. Kernels are told later.
//! Not here:   what differs under one name (compare), one file alone (opened), a name that is not here (missed).

mod compare;
mod missed;
mod opened;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use margay_meta::Write;
use margay_meta::unready::Wait;
use margay_rows::record::{Entry, UpstreamObject};
use margay_rows::{Ino, key};
use tokio::sync::{Notify, oneshot};

use self::compare::Difference;
use crate::heads::Found;
use crate::list::{Gone, Listing, Rows};
use crate::pages::{Line, Listed};
use crate::tracked::{commit, entry_at, object_row, rows_of_object, visit_rows};

/// Who needs the directory waits so long; then it uses what is here.
const WAIT: Duration = Duration::from_secs(1);
/// Who needs one name waits so long for an answer.
const ASK_TIME_MAX: Duration = Duration::from_secs(2);
/// A bucket that is silent for longer is not asked for one name.
const SILENT_MAX: Duration = Duration::from_secs(1);
/// What somebody was working on is tried again after these times.
const AGAIN_AFTER: [Duration; 3] = [Duration::from_millis(50), Duration::from_millis(200), Duration::from_secs(1)];
/// Names of one batch.
const NAMES_PER_BATCH: usize = 200;
/// More differing names are confirmed by another listing.
const NAMES_PER_LISTING: usize = 16;
/// Rows of one batch.
const ROWS_PER_BATCH: usize = 1000;

/// A file, what its row says of its object, and what it is to say.
type Seen = (Ino, UpstreamObject, UpstreamObject);

/// A directory under comparison.
struct Compared {
    directory: Ino,
    /// Its key.
    path: String,
    /// When the listing began.
    began: Duration,
    there: BTreeMap<String, Listed>,
    /// There is an object of the directory itself.
    has_marker: bool,
    /// What differs was seen twice.
    is_confirmed: bool,
    /// Directories in it that have nothing there.
    empty: Vec<(String, Ino)>,
    /// Names that somebody here is working on.
    left: Vec<String>,
    differed: bool,
    /// A file that is open here is another one there.
    holds_old: bool,
}

impl Compared {
    fn begin(directory: Ino, path: String, began: Duration) -> Compared {
        let (there, empty, left) = (BTreeMap::new(), Vec::new(), Vec::new());
        let (has_marker, is_confirmed, differed, holds_old) = (false, false, false, false);
        Compared { directory, path, began, there, has_marker, is_confirmed, empty, left, differed, holds_old }
    }
}

impl Listing {
    /// Compares the directory on another thread, and returns when that is done or takes long.
    pub(crate) fn refresh_for_a_while(self: Arc<Self>, directory: Ino) {
        let (done, wait) = mpsc::sync_channel(2);
        self.compare_apart(directory, move || {
            let _ = done.try_send(());
        });
        let _ = wait.recv_timeout(WAIT);
    }

    /// As `refresh_for_a_while`, without a thread of the caller.
    pub(crate) fn begin_refresh_for_a_while(self: Arc<Self>, directory: Ino) -> Wait {
        let (compared, (tell, told)) = (Arc::new(Notify::new()), oneshot::channel());
        let done = Arc::clone(&compared);
        Arc::clone(&self).compare_apart(directory, move || done.notify_one());
        self.requests.spawn(async move {
            let _ = tokio::time::timeout(WAIT, compared.notified()).await;
            let _ = tell.send(());
        });
        // If the mount ends, it uses what is here.
        Box::pin(async move {
            let _ = told.await;
            Ok(())
        })
    }

    /// `done` is told when somebody may use the directory.
    fn compare_apart(self: Arc<Self>, directory: Ino, done: impl Fn() + Send + 'static) {
        let own = Arc::clone(&self);
        self.requests.spawn_blocking(move || {
            let differed = own.compare(directory, &done).map_err(|error| {
                let now = own.tracked.files.lock().now();
                if let Some(left_out) = own.tracked.told.is_news(now, "compare", &error) {
                    let directory = directory.0;
                    tracing::info!(error, directory, left_out, "a directory could not be compared with the bucket");
                }
            });
            let has_no_answer = own.upstream.meter().contact().silent.is_some() || own.tracked.refusal.why().is_some();
            let is_unanswered = differed.is_err() && has_no_answer;
            own.tracked.ages.ended(directory, differed.ok());
            if is_unanswered {
                own.tracked.ages.unanswered(directory);
            }
            done();
        });
    }

    /// Whether something differed. What somebody was working on, often the one who waits, is tried again after telling `done`.
    fn compare(&self, directory: Ino, done: &impl Fn()) -> Result<bool, String> {
        let Some(mut compared) = self.refresh_now(directory)? else { return Ok(false) };
        if !compared.left.is_empty() {
            done();
        }
        for pause in AGAIN_AFTER {
            if compared.left.is_empty() {
                break;
            }
            self.clock.sleep(pause);
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
            (Compared::begin(directory, path, files.now()), files.paths.temporary_directory())
        };
        self.look(&mut compared, &hidden, false)?;
        let mut names = self.differing(&mut compared)?;
        if names.len() > NAMES_PER_LISTING || !names.is_empty() && self.tells_metadata() {
            // One more listing confirms them for less than a HEAD each.
            self.look(&mut compared, &hidden, true)?;
            compared.is_confirmed = true;
            names = self.differing(&mut compared)?;
        }
        compared.differed = !names.is_empty() || compared.holds_old;
        self.take_over_all(&mut compared, &names)?;
        for (name, ino) in std::mem::take(&mut compared.empty) {
            compared.differed |= self.remove_empty(&compared, name, ino)?;
        }
        Ok(Some(compared))
    }

    /// Whether the bucket is known not to answer.
    fn is_silent(&self) -> bool {
        self.upstream.meter().contact().silent.is_some_and(|silence| silence.since > SILENT_MAX)
    }

    fn tells_metadata(&self) -> bool {
        self.pages.tells_metadata() == Some(true)
    }

    /// Lists the directory. Most listings find nothing, so the first one is without metadata.
    fn look(&self, compared: &mut Compared, hidden: &str, metadata: bool) -> Result<(), String> {
        (compared.there, compared.has_marker) = (BTreeMap::new(), false);
        let (mut token, mut pages) = (None, 0);
        loop {
            pages += 1;
            let page = self.page((&compared.path, hidden), token.take(), metadata)?;
            compared.has_marker |= page.has_marker;
            let names = page.listed.into_iter();
            let names = names.filter_map(|(key, listed)| Some((key.strip_prefix(&compared.path)?.to_owned(), listed)));
            compared.there.extend(names);
            match page.next {
                Some(next) => token = Some(next),
                None => break,
            }
        }
        self.tracked.ages.has_pages(compared.directory, pages);
        Ok(())
    }

    /// Removes a directory that has nothing there, and what was listed below it, unless something is only here (E1). Its own
    /// listing is the second look at it (E2).
    fn remove_empty(&self, compared: &Compared, name: String, ino: Ino) -> Result<bool, String> {
        if self.tracked.unlisted.read().contains(&ino) {
            let hidden = self.tracked.files.lock().paths.temporary_directory();
            let page = self.page((&format!("{}{name}", compared.path), &hidden), None, false)?;
            if page.has_marker || !page.listed.is_empty() {
                return Ok(false);
            }
        } else {
            let Some(below) = self.refresh_now(ino)? else { return Ok(false) };
            if below.has_marker || !below.there.is_empty() {
                return Ok(false);
            }
        }
        let files = self.tracked.files.lock();
        let object_key = format!("{}{name}", compared.path);
        if !files.touched(&object_key, compared.began).is_empty() {
            return Ok(false);
        }
        let object = object_row(&*self.tracked.below, ino).map_err(|error| error.to_string())?;
        let mut rows: Rows = object.iter().flat_map(|one| rows_of_object(ino, one)).map(|row| (row, None)).collect();
        rows.push((key::upstream_unlisted(ino), None));
        // It is asserted to be empty.
        let is_removed = self.enter_over(compared.directory, (&[(name, ino)], rows), &[])?;
        drop(files);
        if is_removed {
            self.tracked.unlisted.write().remove(&ino);
        }
        Ok(is_removed)
    }

    fn take_over_all(&self, compared: &mut Compared, names: &[String]) -> Result<(), String> {
        for some in names.chunks(NAMES_PER_BATCH) {
            let left = self.take_over(compared, some)?;
            compared.left.extend(left);
        }
        Ok(())
    }

    /// Names under which something differs.
    fn differing(&self, compared: &mut Compared) -> Result<Vec<String>, String> {
        let there = &compared.there;
        let mut here = BTreeMap::new();
        let read = visit_rows(&*self.tracked.below, &key::entries(compared.directory), |key, value| {
            here.insert(key::parse_entry(key)?.1.to_owned(), Entry::decode(value)?);
            Ok(())
        });
        read.map_err(|error| error.to_string())?;
        let touched = self.tracked.files.lock().touched(&compared.path, compared.began);
        let names: BTreeSet<&String> = here.keys().chain(there.keys()).collect();
        let (mut differing, mut seen, mut empty) = (Vec::new(), Vec::new(), Vec::new());
        for name in names {
            let (here, there) = (here.get(name), there.get(name));
            let Some(difference) = self.difference(&touched, (&compared.path, name), here, there)? else { continue };
            if let Some(again) = self.seen(&difference, name, here, there)? {
                seen.push(again);
            } else if let Difference::Empty(ino) = difference {
                empty.push((name.clone(), ino));
            } else if difference.file().is_none_or(|ino| !self.volume.is_open(ino)) {
                differing.push(name.clone());
            } else {
                compared.holds_old = true;
            }
        }
        self.note_seen(compared, &seen)?;
        compared.empty = empty;
        Ok(differing)
    }

    /// The row of an object that was written again and has the attributes of its file.
    fn seen(
        &self,
        difference: &Difference,
        name: &str,
        here: Option<&Entry>,
        there: Option<&Listed>,
    ) -> Result<Option<Seen>, String> {
        let (Difference::Touched(ino, object), Some(Entry::File(file)), Some(Listed::Object(line))) =
            (difference, here, there)
        else {
            return Ok(None);
        };
        let is_same = match &line.described {
            Some(described) => self.has_attributes(file, object, name, described)?,
            // It was sent from here, so its time is seen for the first time.
            None => object.modified == 0 && !self.tells_metadata(),
        };
        let now = UpstreamObject { modified: line.modified, ..object.clone() };
        Ok(is_same.then(|| (*ino, object.clone(), now)))
    }

    /// Notes new times of objects, where nothing was done with them meanwhile.
    fn note_seen(&self, compared: &Compared, seen: &[Seen]) -> Result<(), String> {
        for some in seen.chunks(ROWS_PER_BATCH) {
            let files = self.tracked.files.lock();
            let touched = files.touched(&compared.path, compared.began);
            let mut writes = Vec::with_capacity(some.len());
            for (ino, then, now) in some.iter().filter(|(_, then, _)| !touched.contains(&then.key)) {
                let row = object_row(&*self.tracked.below, *ino).map_err(|error| error.to_string())?;
                if row.as_ref() == Some(then) {
                    writes.push(Write::Put { key: key::upstream_object(*ino), value: now.encode() });
                }
            }
            if !writes.is_empty() {
                commit(&*self.tracked.below, writes).map_err(|error| error.to_string())?;
            }
        }
        Ok(())
    }

    /// Looks at these names once more (E2), and enters what is there; returns those that somebody here is working on.
    fn take_over(&self, compared: &Compared, names: &[String]) -> Result<Vec<String>, String> {
        let asked = names.iter().filter_map(|name| {
            let listed = match compared.there.get(name) {
                Some(Listed::Directory) => Listed::Directory,
                Some(Listed::Object(line)) if compared.is_confirmed => Listed::Object(line.clone()),
                Some(Listed::Object(line)) => Listed::Object(Line { described: None, ..line.clone() }),
                None if compared.is_confirmed => return None,
                // Those that are not listed are asked for as objects.
                None => Listed::Object(Line::default()),
            };
            Some((format!("{}{name}", compared.path), listed))
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
        let (mut gone, mut rows, mut come) = (Gone::new(), Rows::new(), Vec::new());
        let (mut left, mut seen) = (Vec::new(), Vec::new());
        for name in names {
            let here = entry(name)?;
            let there = found.get(name).map(|one| match one.there.as_ref().filter(|_| !name.ends_with('/')) {
                None => Listed::Directory,
                Some(there) => {
                    let (size, etag) = (there.size, there.etag.clone());
                    Listed::Object(Line { size, etag, modified: one.modified, described: Some(there.clone()) })
                }
            });
            let difference = self.difference(&touched, (&compared.path, name), here.as_ref(), there.as_ref())?;
            let Some(difference) = difference else { continue };
            if let Some(again) = self.seen(&difference, name, here.as_ref(), there.as_ref())? {
                seen.push(again);
                continue;
            }
            if difference.file().is_some_and(|ino| !closed.contains(&ino)) {
                left.push(name.clone());
                continue;
            }
            if let Some(ino) = difference.file() {
                let object = object_row(&*self.tracked.below, ino).map_err(|error| error.to_string())?;
                rows.extend(object.iter().flat_map(|one| rows_of_object(ino, one)).map(|row| (row, None)));
                gone.push((name.clone(), ino));
            }
            if !matches!(difference, Difference::Gone(_)) {
                come.push(name);
            }
        }
        let come: Vec<Found> = come.into_iter().filter_map(|name| found.get(name)).map(Found::clone).collect();
        if !gone.is_empty() || !come.is_empty() {
            // Where somebody here was faster, the next comparison tells.
            self.enter_over(compared.directory, (&gone, rows), &come)?;
        }
        drop(files);
        self.note_seen(compared, &seen)?;
        Ok(left)
    }
}
