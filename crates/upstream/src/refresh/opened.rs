//! Looks at a file in the bucket before it is opened.
//!
//! Why:        who opens a file after another client has closed it expects that one's bytes, however long listings count.
//! Invariants: O1 what is seen is entered as by a comparison of the directory, and under the same conditions (E1).
//!             O2 a HEAD that finds no object takes nothing away: it says the same of a bucket that is gone. The directory is
//!                compared then.
//!             O3 a bucket that does not answer holds up nobody for long: what is here is opened.
//!             O4 strict close-to-open asks for each file alone, however lately it was seen.
//!             O5 what a reader found to be another object is asked for, with each kind of `open`.
//! Locking:    none is held by the caller, since the turn of the file is needed here.
//! Not here:   when it is looked (tracked/ages).

use std::sync::Arc;

use margay_rows::Ino;

use super::{AGAIN_AFTER, ASK_TIME_MAX, Compared};
use crate::attributes::written_ms;
use crate::list::Listing;
use crate::opens::Opens;
use crate::pages::{Line, Listed};
use crate::tracked::object_row;

impl Listing {
    /// Sees that what is known of a file is not old; the file may be gone afterwards. Blocks.
    pub(crate) fn look_before_open(self: &Arc<Self>, directory: Ino, file: Ino) {
        let (tracked, ages) = (&self.tracked, &self.tracked.ages);
        let is_replaced = ages.was_replaced(file);
        let is_always = self.opens == Opens::Always || is_replaced;
        if self.opens == Opens::Listed && !is_replaced
            || !is_always && ages.was_seen(directory, file)
            || tracked.files.lock().table.get(file).is_some()
            // It is listed when the file's row is read.
            || tracked.unlisted.read().contains(&directory)
        {
            return;
        }
        if !is_always && ages.begin_for_open(directory) {
            Arc::clone(self).refresh_for_a_while(directory);
            // It may take long, or have left the file to somebody.
            if ages.was_seen(directory, file) {
                return;
            }
        }
        if self.is_silent() {
            return;
        }
        if let Err(error) = self.look_at(directory, file) {
            let now = self.tracked.files.lock().now();
            if let Some(left_out) = self.tracked.told.is_news(now, "open", &error) {
                tracing::info!(error, file = file.0, left_out, "a file is opened as it was listed");
            }
        }
    }

    /// Asks for one object, and enters it if it is another one.
    fn look_at(self: &Arc<Self>, directory: Ino, file: Ino) -> Result<(), String> {
        let object = object_row(&*self.tracked.below, file).map_err(|error| error.to_string())?;
        let (path, began) = {
            let mut files = self.tracked.files.lock();
            (files.paths.of(&*self.tracked.below, directory), files.now())
        };
        let path = path.map_err(|error| error.to_string())?;
        let (Some(object), Some(path)) = (object, path) else { return Ok(()) };
        let Some(name) = object.key.strip_prefix(&path).map(str::to_owned) else { return Ok(()) };
        let (upstream, key) = (self.upstream.clone(), object.key);
        let asked = async move { tokio::time::timeout(ASK_TIME_MAX, upstream.describe(&key)).await };
        let answer = self.requests.wait(asked).ok_or("the mount ends")?;
        let answer = answer.map_err(|_| format!("no answer within {} s", ASK_TIME_MAX.as_secs()))?;
        let Some(there) = answer.map_err(|error| error.to_string())? else {
            if self.tracked.ages.begin_now(directory) {
                Arc::clone(self).refresh_for_a_while(directory);
            }
            return Ok(());
        };
        if self.opens == Opens::Recent {
            self.tracked.ages.asked(directory, file);
        }
        let (size, etag, modified) = (there.size, there.etag.clone(), written_ms(&there.headers));
        let line = Line { size, etag, modified, described: Some(there) };
        let mut compared = Compared::begin(directory, path, began);
        compared.there.insert(name.clone(), Listed::Object(line));
        compared.is_confirmed = true;
        let mut left = self.take_over(&compared, std::slice::from_ref(&name))?;
        for pause in AGAIN_AFTER {
            // Who has it open keeps it.
            if left.is_empty() || self.volume.is_open(file) {
                break;
            }
            self.clock.sleep(pause);
            left = self.take_over(&compared, &left)?;
        }
        Ok(())
    }
}
