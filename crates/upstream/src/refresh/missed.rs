//! Looks in the bucket for a name that is not here.
//!
//! Why:        a file that another client has just made is there, however long the listing counts that did not show it.
//! Invariants: M1 what is seen is entered as by a comparison of the directory, and under the same conditions (E1).
//!             M2 a kernel asks for each name before it makes the file. A directory of one page is listed for all names of three
//!                seconds, so a tree that is copied here costs a listing per directory and three seconds at most; in a larger one
//!                names cost requests while few files are made in it, and then one listing for a hundred files per page, for
//!                which nobody waits.
//!             M3 a bucket that does not answer holds up nobody for long: a name that was not listed is absent then.
//!             M4 strict close-to-open asks for each name alone, also for those of files that are made here.
//! Locking:    none is held by the caller.
//! Not here:   when it is looked (tracked/ages).

use std::sync::Arc;

use margay_rows::Ino;

use super::{ASK_TIME_MAX, Compared};
use crate::attributes::written_ms;
use crate::list::Listing;
use crate::opens::Opens;
use crate::pages::{Line, Listed};
use crate::tracked::Miss;

impl Listing {
    /// Sees that the absence of a name is not old; whether the name may be here now. Blocks.
    pub(crate) fn look_for(self: &Arc<Self>, directory: Ino, name: &str) -> bool {
        let is_known = match self.opens {
            Opens::Listed => true,
            Opens::Recent => self.tracked.ages.is_absent(directory, name),
            Opens::Always => false,
        };
        if is_known || self.tracked.unlisted.read().contains(&directory) || self.is_silent() {
            return false;
        }
        self.look_for_now(directory, name).unwrap_or_else(|error| {
            let now = self.tracked.files.lock().now();
            if let Some(left_out) = self.tracked.told.is_news(now, "look-up", &error) {
                tracing::info!(error, directory = directory.0, left_out, "a name is absent as it was listed");
            }
            false
        })
    }

    fn look_for_now(self: &Arc<Self>, directory: Ino, name: &str) -> Result<bool, String> {
        let (path, hidden, began, is_touched) = {
            let mut files = self.tracked.files.lock();
            let path = files.paths.of(&*self.tracked.below, directory).map_err(|error| error.to_string())?;
            let Some(path) = path else { return Ok(false) };
            let (began, hidden) = (files.now(), files.paths.temporary_directory());
            // It was just removed here, or moved away.
            let is_touched = files.touched(&format!("{path}{name}"), began).contains(&format!("{path}{name}"));
            (path, hidden, began, is_touched)
        };
        if is_touched || format!("{path}{name}/") == hidden {
            return Ok(false);
        }
        let miss = match self.opens {
            Opens::Always => Miss::Ask,
            Opens::Recent | Opens::Listed => self.tracked.ages.begin_for_missed(directory),
        };
        match miss {
            Miss::Absent => Ok(false),
            Miss::Compare => {
                Arc::clone(self).refresh_for_a_while(directory);
                Ok(true)
            }
            Miss::CompareApart => {
                Arc::clone(self).compare_apart(directory, || {});
                Ok(false)
            }
            Miss::Ask => self.ask_for(Compared::begin(directory, path, began), &hidden, name),
        }
    }

    /// Asks for the object of this name, and for something below it, and enters what is there.
    fn ask_for(&self, mut compared: Compared, hidden: &str, name: &str) -> Result<bool, String> {
        let (key, below) = (format!("{}{name}", compared.path), format!("{}{name}/", compared.path));
        let (upstream, pages, hidden) = (self.upstream.clone(), Arc::clone(&self.pages), hidden.to_owned());
        let asked = async move {
            let both = async { tokio::try_join!(upstream.describe(&key), pages.page((&below, &hidden), None, false)) };
            tokio::time::timeout(ASK_TIME_MAX, both).await
        };
        let answer = self.requests.wait(asked).ok_or("the mount ends")?;
        let answer = answer.map_err(|_| format!("no answer within {} s", ASK_TIME_MAX.as_secs()))?;
        let (there, page) = answer.map_err(|error| error.to_string())?;
        if self.opens == Opens::Recent {
            self.tracked.ages.missed(compared.directory, name);
        }
        if let Some(there) = there {
            let (size, etag, modified) = (there.size, there.etag.clone(), written_ms(&there.headers));
            let line = Line { size, etag, modified, described: Some(there) };
            compared.there.insert(name.to_owned(), Listed::Object(line));
        }
        if page.has_marker || !page.listed.is_empty() {
            compared.there.insert(format!("{name}/"), Listed::Directory);
        }
        compared.is_confirmed = true;
        let names: Vec<String> = compared.there.keys().cloned().collect();
        self.take_over_all(&mut compared, &names)?;
        Ok(!names.is_empty())
    }
}
