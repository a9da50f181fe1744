//! Compares the key files with the volume's fingerprints, for an operator who checks before a start.
//!
//! Invariants: L1 the check creates and changes nothing, except that it adds a missing checksum to a file.
//! Not here:   starting with the keys (root_keys, encryption_keys, identities/seal).

use std::path::Path;

use margay_env::Env;
use margay_volume::{KeyFile, KnownFingerprints};

use crate::fingerprint::{Compared, Secret, compare};
use crate::identities::SealKey;
use crate::root_keys::{self, RootKeys};
use crate::{AccountsError, encryption_keys, identities};

/// All key files.
pub const KEY_FILES: [KeyFile; 3] = [KeyFile::Root, KeyFile::Encryption, KeyFile::Identity];

/// The file's name in the data directory.
pub fn name(of: KeyFile) -> &'static str {
    match of {
        KeyFile::Root => root_keys::FILE,
        KeyFile::Identity => identities::KEY_FILE,
        KeyFile::Encryption => encryption_keys::FILE,
    }
}

/// What a start would find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyState {
    /// The volume was used with none yet, so these are accepted.
    New,
    /// There is no file, and the volume was used with none: one will be created.
    ToBeMade,
    Same,
    /// The file has more secrets than the volume was used with.
    Added,
    Others,
    Missing,
}

/// Checks one file, or the root keys given instead of it.
pub fn look(
    env: &Env,
    data: &Path,
    given: Option<&RootKeys>,
    of: KeyFile,
    known: &KnownFingerprints,
) -> Result<KeyState, AccountsError> {
    let path = data.join(name(of));
    let compared = match of {
        KeyFile::Root => {
            let found = root_keys::from_file(env, &path);
            let keys = given.cloned().map_or_else(|| found, |given| Ok(Some(given)))?;
            keys.map(|keys| {
                let secret = Secret { name: &keys.access_key, secret: keys.secret_key.as_bytes() };
                compare(env, of, &[secret], known)
            })
        }
        KeyFile::Identity => {
            let key = SealKey::from_file(env, &path)?;
            key.map(|key| compare(env, of, &[Secret { name: "", secret: &key }], known))
        }
        KeyFile::Encryption => {
            encryption_keys::from_file(env, &path)?.map(|lines| compare(env, of, &lines.secrets(), known))
        }
    };
    Ok(match (compared, known.fingerprints.is_some()) {
        (None, false) => KeyState::ToBeMade,
        (None, true) => KeyState::Missing,
        (Some(Compared::Same), _) => KeyState::Same,
        (Some(Compared::Keep(_)), false) => KeyState::New,
        (Some(Compared::Keep(_)), true) => KeyState::Added,
        (Some(Compared::Lacks(_)), _) => KeyState::Others,
    })
}
