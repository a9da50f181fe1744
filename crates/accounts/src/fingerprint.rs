//! Fingerprints of key files: whether the secrets of this server are those that its volume was used with.
//!
//! Why:        a server with other secrets writes what nobody else can read, and refuses clients that others know. A lost
//!             file must be noticed: it is never made anew where the volume was used with one.
//! Layout:     docs/format/keys.md, *fingerprints*; the rows are the volume's.
//! Invariants: P1 a fingerprint tells nothing of a random secret, and of one that people chose no more than a slow guess.
//!             P2 secrets are added to a file, none is taken away: what they encrypted is there still.
//! Not here:   the files (root_keys, encryption_keys, identities/seal).

use std::num::NonZeroU32;
use std::path::Path;

use margay_env::Env;
use margay_volume::{Error, Fingerprints, KeyFile, KnownFingerprints, Volume};
use ring::{hmac, pbkdf2};

use crate::AccountsError;

/// Rounds that a guess of a secret costs which people chose; about 20 ms.
const ROUNDS: NonZeroU32 = NonZeroU32::new(100_000).expect("not zero");
/// Says what the codes are for.
const PURPOSE: &[u8] = b"margay key fingerprint 1 ";

/// One secret of a key file.
#[derive(Clone, Copy)]
pub(crate) struct Secret<'a> {
    /// What it goes with: an access key, the name of a key.
    pub name: &'a str,
    pub secret: &'a [u8],
}

/// What came of a comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Compared {
    Same,
    /// The volume knows of no secrets, or of fewer: these are to be kept.
    Keep(Fingerprints),
    /// So many that the volume was used with are not among them.
    Lacks(usize),
}

/// Compares secrets with what the volume knows.
pub(crate) fn compare(env: &Env, of: KeyFile, secrets: &[Secret<'_>], known: &KnownFingerprints) -> Compared {
    let Some(known) = &known.fingerprints else {
        let mut salt = [0; 16];
        env.random.fill(&mut salt);
        let of_secrets = secrets.iter().map(|one| fingerprint(of, one, &salt)).collect();
        return Compared::Keep(Fingerprints { salt, of_secrets });
    };
    let here: Vec<_> = secrets.iter().map(|one| fingerprint(of, one, &known.salt)).collect();
    let lacking = known.of_secrets.iter().filter(|one| !here.contains(one)).count();
    match (lacking, here.iter().all(|one| known.of_secrets.contains(one))) {
        (0, true) => Compared::Same,
        (0, false) => Compared::Keep(Fingerprints { salt: known.salt, of_secrets: here }),
        (lacking, _) => Compared::Lacks(lacking),
    }
}

fn fingerprint(of: KeyFile, secret: &Secret<'_>, salt: &[u8; 16]) -> [u8; 16] {
    let said = [PURPOSE, &[of as u8], salt, secret.name.as_bytes()].concat();
    let mut code = [0; 16];
    match of {
        KeyFile::Root => pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA256, ROUNDS, &said, secret.secret, &mut code),
        KeyFile::Identity | KeyFile::Encryption => {
            let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret.secret), &said);
            code.copy_from_slice(&tag.as_ref()[..16]);
        }
    }
    code
}

/// What a file of keys is for people: its secrets, what is lost without them, its word in `margay secrets forget`.
struct Words {
    secrets: &'static str,
    loss: &'static str,
    word: &'static str,
}

fn words(of: KeyFile) -> Words {
    match of {
        KeyFile::Root => {
            Words { secrets: "root keys", loss: "clients that have the former ones are refused", word: "root" }
        }
        KeyFile::Identity => {
            Words { secrets: "key of users' secrets", loss: "users need new access keys", word: "identity" }
        }
        KeyFile::Encryption => Words {
            secrets: "encryption keys",
            loss: "objects that are encrypted at rest cannot be read",
            word: "encryption",
        },
    }
}

/// The file is absent, and the volume was used with one.
pub(crate) fn absent(of: KeyFile, path: &Path, data: &Path) -> AccountsError {
    let Words { secrets, loss, word } = words(of);
    let (path, data) = (path.display(), data.display());
    let or =
        if of == KeyFile::Root { ", or set MARGAY_ACCESS_KEY and MARGAY_SECRET_KEY to the former ones" } else { "" };
    AccountsError::Refused(format!(
        "{path} is missing, and the volume in {data} was used with {secrets}: put the file back, from a copy or from a \
         backup made with --with-keys{or}. Without it {loss}; to go on like that: margay secrets forget {word} --data {data}"
    ))
}

/// What was found at `place` lacks secrets that the volume was used with.
pub(crate) fn others(of: KeyFile, place: &str, data: &Path) -> AccountsError {
    let Words { secrets, loss, word } = words(of);
    let data = data.display();
    let lines = if of == KeyFile::Encryption { " (new ones are added as lines, the former ones stay)" } else { "" };
    AccountsError::Refused(format!(
        "{place} has other {secrets} than the volume in {data} was used with{lines}: put the former ones back. Without \
         them {loss}; if the change is meant: margay secrets forget {word} --data {data}"
    ))
}

/// Keys, and their fingerprints if the volume does not have them yet.
#[derive(Debug)]
pub struct CheckedKeys<T> {
    pub keys: T,
    pub keep: Option<Fingerprints>,
}

/// Takes keys that were compared.
pub(crate) fn checked<T>(
    keys: T,
    compared: Compared,
    refused: impl FnOnce() -> AccountsError,
) -> Result<CheckedKeys<T>, AccountsError> {
    match compared {
        Compared::Same => Ok(CheckedKeys { keys, keep: None }),
        Compared::Keep(fingerprints) => Ok(CheckedKeys { keys, keep: Some(fingerprints) }),
        Compared::Lacks(_) => Err(refused()),
    }
}

/// Keeps the fingerprints of keys that the volume did not have yet, and gives the keys.
pub fn keep<T>(
    volume: &Volume,
    of: KeyFile,
    known: &KnownFingerprints,
    checked: CheckedKeys<T>,
) -> Result<T, AccountsError> {
    let Some(fingerprints) = &checked.keep else { return Ok(checked.keys) };
    match volume.keep_key_fingerprints(of, known, fingerprints) {
        Ok(()) => Ok(checked.keys),
        Err(Error::PreconditionFailed) => Err(AccountsError::Refused(format!(
            "another server began to use the volume at the same moment with its {}; start this one again",
            words(of).secrets
        ))),
        Err(error) => Err(AccountsError::Fingerprint(error)),
    }
}

/// Reads what the volume knows, loads the keys against it, and keeps what is new.
pub(crate) fn settle<T>(
    volume: &Volume,
    of: KeyFile,
    load: impl FnOnce(&KnownFingerprints) -> Result<CheckedKeys<T>, AccountsError>,
) -> Result<T, AccountsError> {
    let known = volume.key_fingerprints(of).map_err(AccountsError::Fingerprint)?;
    let loaded = load(&known)?;
    keep(volume, of, &known, loaded)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: [[u8; 32]; 3] = [[1; 32], [2; 32], [3; 32]];

    fn secrets(which: &[usize]) -> Vec<Secret<'static>> {
        which.iter().map(|at| Secret { name: "", secret: &KEYS[*at] }).collect()
    }

    fn known(compared: Compared) -> KnownFingerprints {
        let Compared::Keep(fingerprints) = compared else { panic!("{compared:?}") };
        let mut known = KnownFingerprints::default();
        known.fingerprints = Some(fingerprints);
        known
    }

    #[test]
    fn secrets_are_added_and_none_is_taken_away() {
        let env = Env::real();
        let of = KeyFile::Encryption;
        let first = known(compare(&env, of, &secrets(&[0]), &KnownFingerprints::default()));
        assert_eq!(compare(&env, of, &secrets(&[0]), &first), Compared::Same);
        assert_eq!(compare(&env, of, &secrets(&[1]), &first), Compared::Lacks(1));
        assert_eq!(compare(&env, of, &[], &first), Compared::Lacks(1));
        let both = known(compare(&env, of, &secrets(&[1, 0]), &first));
        assert_eq!(compare(&env, of, &secrets(&[0, 1]), &both), Compared::Same);
        assert_eq!(compare(&env, of, &secrets(&[0]), &both), Compared::Lacks(1));
        assert_eq!(compare(&env, of, &secrets(&[2]), &both), Compared::Lacks(2));
        // The name of a key belongs to it.
        assert_eq!(compare(&env, of, &[Secret { name: "a", secret: &KEYS[0] }], &first), Compared::Lacks(1));
    }

    #[test]
    fn a_fingerprint_is_of_one_volume_and_one_file() {
        let env = Env::real();
        for of in [KeyFile::Root, KeyFile::Identity, KeyFile::Encryption] {
            let first = known(compare(&env, of, &secrets(&[0]), &KnownFingerprints::default()));
            let other = known(compare(&env, of, &secrets(&[0]), &KnownFingerprints::default()));
            assert_ne!(first, other, "the salt is another one");
            assert_eq!(compare(&env, of, &secrets(&[0]), &first), Compared::Same);
            let other = if of == KeyFile::Root { KeyFile::Identity } else { KeyFile::Root };
            assert_eq!(compare(&env, other, &secrets(&[0]), &first), Compared::Lacks(1));
        }
    }
}
