//! The end of a seed: nothing is in progress, nothing fails, and what one client has written is shown by `open` of another one when
//! its mount promises that.
//!
//! What:       the other client replaces an object or makes one, and mount 0 opens it; then mount 0 writes a file and sends it, and
//!             mount 1 opens that. With `open=always` at once, with `open=3s` after three seconds, else when every listing is old.
//! Not here:   opens while requests fail and time jumps (opening).

use std::sync::{Arc, Mutex};
use std::time::Duration;

use margay_env::Env;
use margay_upstream::Opens;

use super::{Run, object};
use crate::ops::{Op, PLACES};

/// A name that the other mount wrote less than this time ago is not looked at.
const UNTOUCHED_AFTER: Duration = Duration::from_secs(3);

/// Who looks at a directory waits so long for its comparison with the bucket, in real time.
const REFRESH_WAIT: Duration = Duration::from_secs(1);

/// Since when what others wrote is shown.
fn shown_after(opens: Opens) -> Duration {
    match opens {
        Opens::Always => Duration::ZERO,
        Opens::Recent => Duration::from_secs(3),
        Opens::Listed => Duration::from_secs(61),
    }
}

impl Run {
    pub(super) fn check_opens(&mut self) -> Result<(), String> {
        for reader in 0..2 {
            let key = self.chance.of(&PLACES[..2]).to_owned();
            self.sim.advance(UNTOUCHED_AFTER);
            // Its listings, and what it knows of the file, are new.
            self.read(reader, &key)?;
            let name = self.name(["cl", "m0"][reader]);
            let wanted = if reader == 0 { self.put_by_client(&key, name) } else { self.write_by_mount(&key, name)? };
            self.sim.advance(shown_after(self.opens[reader]));
            self.machines.iter().for_each(crate::machine::Machine::look);
            let clock = Env::real().clock;
            let began = clock.monotonic();
            let mut shown = self.read(reader, &key)?;
            if clock.monotonic() - began >= REFRESH_WAIT {
                // This machine was so busy that what was known before was used.
                shown = self.read(reader, &key)?;
            }
            if shown.as_ref() != Some(&wanted) {
                let opens = self.opens[reader];
                return Err(format!("m{reader} with open={} shows {shown:?} at {key}, not {wanted}", opens.name()));
            }
        }
        Ok(())
    }

    /// Returns the content.
    fn put_by_client(&mut self, key: &str, name: String) -> String {
        let object = object(self.habits, name, &mut self.chance);
        let content = object.name.clone();
        {
            let mut world = self.sim.world();
            let there = world.store.objects.get(key).map(|there| there.name.clone());
            there.iter().for_each(|there| world.oracle.supersedes(there));
            world.oracle.writes(&content);
        }
        self.sim.change(format!("client: {key} is {content}"), |objects| drop(objects.insert(key.to_owned(), object)));
        content
    }

    /// Returns the content that the bucket has then.
    fn write_by_mount(&mut self, key: &str, name: String) -> Result<String, String> {
        let draft = self.habits.draft(name, &mut self.chance);
        for op in [Op::Write { path: key.to_owned(), draft, syncs: true }, Op::Drain] {
            self.machines[0].start(move |user| user.run(op));
            self.quiesce()?;
        }
        let there = self.in_bucket().remove(key);
        there.ok_or_else(|| format!("{key} was written and sent, and is not there"))
    }

    /// What a mount reads there.
    fn read(&mut self, at: usize, key: &str) -> Result<Option<String>, String> {
        let (found, key) = (Arc::new(Mutex::new(None)), key.to_owned());
        let into = Arc::clone(&found);
        self.machines[at].start(move |user| *into.lock().unwrap() = user.read(&key).ok());
        self.quiesce()?;
        Ok(found.lock().unwrap().take())
    }
}
