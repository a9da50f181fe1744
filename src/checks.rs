//! Results of the last scrub and of the last fsck, kept in a file of the data directory.
//!
//! Why:        damage that was found must be on the page of metrics and in `status` until a later check finds none, also after a
//!             restart, and also when the check ran while no server did.
//! Layout:     DIR/checks.json (docs/format/directory.md).
//! Invariants: K1 what is in the file is never believed unchecked: a file that cannot be read is an error that names why, and the
//!                server goes on without results.
//!             K2 the file has the results of one moment: it is replaced whole.
//! Locking:    `file` before `kept`; `kept` is held for a copy only.
//! Not here:   the checks (margay-volume), the daily check (margay-jobs), which this process repeats within an hour of its start.

use std::io;
use std::path::{Path, PathBuf};

use margay_env::checksum_line::{self, Mismatch};
use margay_env::{Env, files};
use margay_metrics::{Exposition, Kind};
use parking_lot::Mutex;
use serde_json::{Value, json};

/// The file's name in the data directory.
const NAME: &str = "checks.json";
/// Maximum size of the file, in bytes: two results of a few numbers each.
const BYTES_MAX: u64 = 4096;

/// A check that ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ran {
    /// Seconds since 1970.
    at: i64,
    found: u64,
    is_complete: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Kept {
    scrub: Option<Ran>,
    fsck: Option<Ran>,
}

/// Why a file of results is not believed.
#[derive(Debug, thiserror::Error)]
pub enum ChecksError {
    #[error("it cannot be read: {0}")]
    Io(#[from] io::Error),
    #[error(transparent)]
    Checksum(#[from] Mismatch),
    #[error("it has no checksum in its last line")]
    Unsealed,
    #[error("it is no JSON: {0}")]
    Json(#[from] serde_json::Error),
    #[error("its field {0} is absent or no number that can be")]
    Field(&'static str),
}

/// The results, in memory and in the file.
#[derive(Debug)]
pub struct Checks {
    env: Env,
    path: PathBuf,
    file: Mutex<()>,
    kept: Mutex<Kept>,
}

impl Checks {
    /// With the results in the directory, if there are any.
    pub fn open(env: &Env, data: &Path) -> Checks {
        let path = data.join(NAME);
        let kept = match files::read(env, &path, BYTES_MAX).map_err(ChecksError::from).and_then(|bytes| parse(&bytes)) {
            Ok(kept) => kept,
            Err(ChecksError::Io(error)) if error.kind() == io::ErrorKind::NotFound => Kept::default(),
            Err(error) => {
                let path = path.display();
                tracing::warn!(%error, %path, "results of earlier checks are unknown until the next scrub and fsck");
                Kept::default()
            }
        };
        Checks { env: env.clone(), path, file: Mutex::default(), kept: Mutex::new(kept) }
    }

    /// A scrub ended with this answer; waits for the disk.
    pub fn scrubbed(&self, done: &Value) {
        let found = done["damaged"].as_u64().unwrap_or_default();
        let ran = Ran { at: self.env.clock.now().seconds(), found, is_complete: done["complete"] != false };
        self.note(|kept| kept.scrub = Some(ran));
    }

    /// An fsck ended with this report; waits for the disk.
    pub fn checked(&self, report: &Value) {
        let findings = report["findings"].as_object().into_iter().flatten();
        let found = match report["clean"] == true {
            // What a repair has repaired is gone.
            true => 0,
            false => findings.filter_map(|(_, count)| count.as_u64()).sum(),
        };
        let ran = Ran { at: self.env.clock.now().seconds(), found, is_complete: true };
        self.note(|kept| kept.fsck = Some(ran));
    }

    fn note(&self, change: impl FnOnce(&mut Kept)) {
        let _alone = self.file.lock();
        let kept = {
            let mut kept = self.kept.lock();
            change(&mut kept);
            *kept
        };
        if let Err(error) = files::write_new(&self.env, &self.path, &bytes_of(&kept)) {
            let path = self.path.display();
            tracing::warn!(%error, %path, "the result of the check cannot be kept: a restart forgets it");
        }
    }

    /// For `margay status`.
    pub fn status(&self) -> Value {
        let kept = *self.kept.lock();
        let ran = |ran: Option<Ran>, found: &str| match ran {
            None => json!({ "last": null }),
            Some(ran) => json!({ "last_seconds": ran.at, found: ran.found, "complete": ran.is_complete }),
        };
        json!({ "scrub": ran(kept.scrub, "damaged"), "fsck": ran(kept.fsck, "findings") })
    }

    pub fn write_metrics(&self, out: &mut Exposition) {
        let kept = *self.kept.lock();
        if let Some(ran) = kept.scrub {
            let at = ran.at.max(0);
            out.value("margay_scrub_timestamp_seconds", Kind::Gauge, "When the last scrub ended.", at);
            out.value("margay_scrub_damaged", Kind::Gauge, "Damaged rows and objects that it found.", ran.found);
            let help = "1 if it read everything, 0 if it was stopped.";
            out.value("margay_scrub_complete", Kind::Gauge, help, u8::from(ran.is_complete));
        }
        if let Some(ran) = kept.fsck {
            let (at, help) = (ran.at.max(0), "When the last fsck that somebody asked for ended.");
            out.value("margay_fsck_timestamp_seconds", Kind::Gauge, help, at);
            out.value("margay_fsck_findings", Kind::Gauge, "What it found wrong and did not repair.", ran.found);
        }
    }
}

fn bytes_of(kept: &Kept) -> Vec<u8> {
    let ran = |ran: Ran| json!({ "at": ran.at, "found": ran.found, "complete": ran.is_complete });
    let value = json!({ "scrub": kept.scrub.map(ran), "fsck": kept.fsck.map(ran) });
    checksum_line::with(value.to_string().into_bytes())
}

/// Reads the bytes of the file (K1).
fn parse(bytes: &[u8]) -> Result<Kept, ChecksError> {
    let checked = checksum_line::check(bytes)?;
    if !checked.has_checksum {
        return Err(ChecksError::Unsealed);
    }
    let value: Value = serde_json::from_slice(checked.text)?;
    let ran = |name: &'static str| -> Result<Option<Ran>, ChecksError> {
        let ran = &value[name];
        if ran.is_null() {
            return Ok(None);
        }
        Ok(Some(Ran {
            at: ran["at"].as_i64().ok_or(ChecksError::Field("at"))?,
            found: ran["found"].as_u64().ok_or(ChecksError::Field("found"))?,
            is_complete: ran["complete"].as_bool().ok_or(ChecksError::Field("complete"))?,
        }))
    };
    Ok(Kept { scrub: ran("scrub")?, fsck: ran("fsck")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(checks: &Checks) -> String {
        let mut out = Exposition::default();
        checks.write_metrics(&mut out);
        out.finish()
    }

    #[test]
    fn results_are_there_again_after_a_restart() {
        let (env, folder) = (Env::real(), tempfile::tempdir().unwrap());
        let checks = Checks::open(&env, folder.path());
        assert_eq!(page(&checks), "", "nothing ran yet");
        checks.scrubbed(&json!({ "damaged": 3, "complete": false }));
        checks.checked(&json!({ "clean": false, "findings": { "A": 1, "B": 4 } }));
        let again = Checks::open(&env, folder.path());
        assert_eq!((page(&again), again.status()), (page(&checks), checks.status()));
        for line in ["margay_scrub_damaged 3", "margay_scrub_complete 0", "margay_fsck_findings 5"] {
            assert!(page(&again).lines().any(|found| found == line), "{line} is missing in\n{}", page(&again));
        }
        again.checked(&json!({ "clean": true, "findings": { "A": 1 }, "repaired": 1 }));
        let last = Checks::open(&env, folder.path()).status();
        assert_eq!((&last["fsck"]["findings"], &last["scrub"]["damaged"]), (&json!(0), &json!(3)));
    }

    #[test]
    fn every_prefix_and_every_flipped_bit_is_an_error() {
        let ran = Ran { at: -7, found: u64::MAX, is_complete: true };
        let kept = Kept { scrub: Some(ran), fsck: None };
        let bytes = bytes_of(&kept);
        assert!(bytes.len() as u64 <= BYTES_MAX);
        assert_eq!(parse(&bytes).unwrap(), kept);
        for end in 0..bytes.len() {
            assert!(parse(&bytes[..end]).is_err(), "{end}");
        }
        for bit in 0..bytes.len() * 8 {
            let mut bytes = bytes.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(parse(&bytes).is_err(), "{bit}");
        }
        for text in ["[]", "7", "{\"scrub\":{}}", "{\"fsck\":{\"at\":1.5,\"found\":1,\"complete\":true}}"] {
            let sealed = checksum_line::with(text.as_bytes().to_vec());
            let read = parse(&sealed);
            let is_empty = read.as_ref().is_ok_and(|kept| *kept == Kept::default());
            assert!(read.is_err() || is_empty, "{text}");
        }
        let (env, folder) = (Env::real(), tempfile::tempdir().unwrap());
        env.disk.create_dir_all(folder.path()).unwrap();
        files::write_new(&env, &folder.path().join(NAME), &bytes[1..]).unwrap();
        assert_eq!(page(&Checks::open(&env, folder.path())), "");
    }
}
