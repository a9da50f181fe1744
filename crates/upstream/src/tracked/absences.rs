//! Whether a name that is not here is known to be missing in the bucket.
//!
//! Why:        "no such key" and "removed" of what the bucket has lead a client to wrong decisions.
//! Invariants: B1 a name is said to be missing only if a listing that still counts says so, or the bucket answers and the
//!                comparison shows nothing.
//! Not here:   how long a listing counts (ages), mounts: they show what was listed last.

use margay_rows::Ino;
use margay_volume::Absences;

use super::Tracked;
use crate::silence::told;

impl Absences for Tracked {
    fn known(&self, directory: Ino) -> Result<(), String> {
        let Some(upstream) = self.upstream_of_listed(directory) else { return Ok(()) };
        match self.ages.doubts(directory, &upstream.meter().contact()) {
            false => Ok(()),
            true => {
                let name = upstream.name();
                let refused = || self.refusal.why().map(|why| format!("the bucket {name} refuses to be listed: {why}"));
                let why =
                    told(&upstream).or_else(refused).unwrap_or_else(|| format!("the bucket {name} does not answer"));
                Err(format!("{why}. Whether it is there is not known"))
            }
        }
    }
}
