//! Fingerprints of the key files of this volume's servers.
//!
//! Why:        a second set of keys, or a lost file that was created again, would write data that other servers cannot
//!             read.
//! Layout:     rows `F` (docs/format/keys.md).
//! Invariants: N1 the commit that writes a row asserts the version that was read, and is durable before requests are
//!                served.
//! Locking:    none; calls of the engine on the caller's thread, at the start only.
//! Not here:   making and comparing fingerprints, the files (margay-accounts).

use margay_meta::{Engine, RowVersion};
use margay_rows::key;
use margay_rows::record::{Fingerprints, KeyFile};

use crate::api::Error;
use crate::draft::Draft;
use crate::error::Refused;
use crate::open::Volume;
use crate::upgrade::{OpenError, check_not_newer};

/// What the volume knows of one key file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnownFingerprints {
    /// `None`: no server has used the volume since there are fingerprints.
    pub fingerprints: Option<Fingerprints>,
    version: Option<RowVersion>,
}

/// As `Volume::key_fingerprints`, before the volume is opened: the keys for encryption are needed for that.
pub fn stored_key_fingerprints(engine: &dyn Engine, of: KeyFile) -> Result<KnownFingerprints, OpenError> {
    check_not_newer(engine)?;
    Ok(read(engine, of)?)
}

fn read(engine: &dyn Engine, of: KeyFile) -> Result<KnownFingerprints, Error> {
    let Some(row) = engine.get(&key::fingerprint(of))?.value else { return Ok(KnownFingerprints::default()) };
    let fingerprints = Some(Fingerprints::decode(&row.value)?);
    Ok(KnownFingerprints { fingerprints, version: Some(row.version) })
}

impl Volume {
    /// Blocks for the engine.
    pub fn key_fingerprints(&self, of: KeyFile) -> Result<KnownFingerprints, Error> {
        read(&*self.engine, of)
    }

    /// Keeps them in the place of the known ones; `PreconditionFailed` when another server was faster. Blocks until
    /// that is durable.
    pub fn keep_key_fingerprints(
        &self,
        of: KeyFile,
        known: &KnownFingerprints,
        now: &Fingerprints,
    ) -> Result<(), Error> {
        let mut draft = Draft::default();
        draft.assert_unchanged(key::fingerprint(of), known.version);
        draft.put(key::fingerprint(of), now.encode());
        self.commit_here(draft)
    }

    /// The next server that starts has the right keys, whatever they are. Gives whether there were any. Blocks until
    /// that is durable.
    pub fn forget_key_fingerprints(&self, of: KeyFile) -> Result<bool, Error> {
        let known = read(&*self.engine, of)?;
        if known.version.is_none() {
            return Ok(false);
        }
        let mut draft = Draft::default();
        draft.assert_unchanged(key::fingerprint(of), known.version);
        draft.delete(key::fingerprint(of));
        self.commit_here(draft)?;
        Ok(true)
    }

    fn commit_here(&self, draft: Draft) -> Result<(), Error> {
        match draft.commit(&*self.engine) {
            Ok(done) => Ok(self.engine.wait_durable(done.cursor)?),
            Err(Refused::Conflict) => Err(Error::PreconditionFailed),
            Err(Refused::Error(error)) => Err(error),
        }
    }
}
