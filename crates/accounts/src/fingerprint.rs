//! Fingerprints of key files: whether this server has the secrets that its volume was used with.
//!
//! Why:        a server with other secrets would write data that other servers cannot decrypt, and would refuse their
//!             clients. A lost file must be noticed, so it is never created again where the volume was used with one.
//! Layout:     docs/format/keys.md, *fingerprints*; the volume stores the rows.
//! Invariants: P1 a fingerprint reveals nothing about a random secret; for a chosen secret it allows only slow guesses.
//!             P2 secrets may be added to a file, none may be removed: data encrypted with them still exists.
//! Not here:   the files (root_keys, encryption_keys, identities/seal).

use std::num::NonZeroU32;
use std::path::Path;

use margay_env::Env;
use margay_volume::{Error, Fingerprints, KeyFile, KnownFingerprints, Volume};
use ring::{hmac, pbkdf2};

use crate::AccountsError;

/// Rounds of key derivation, the cost of one guess of a chosen secret; about 20 ms.
const ROUNDS: NonZeroU32 = NonZeroU32::new(100_000).expect("not zero");
/// Domain separation: binds the fingerprints to this purpose.
const PURPOSE: &[u8] = b"margay key fingerprint 1 ";

/// One secret of a key file.
#[derive(Clone, Copy)]
pub(crate) struct Secret<'a> {
    /// Its public name: an access key, the name of an encryption key.
    pub name: &'a str,
    pub secret: &'a [u8],
}

/// Result of a comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Compared {
    Same,
    /// The volume knows no secrets, or fewer: these fingerprints must be stored.
    Keep(Fingerprints),
    /// Number of secrets that the volume was used with and that the file lacks.
    Lacks(usize),
}

/// Compares secrets with the fingerprints in the volume.
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

/// Words for messages about a key file: its secrets, what is lost without them, its name in `margay secrets forget`.
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

/// Error: the file is absent, and the volume was used with one.
pub(crate) fn absent(of: KeyFile, path: &Path, data: &Path) -> AccountsError {
    let Words { secrets, loss, word } = words(of);
    let (path, data) = (path.display(), data.display());
    let or =
        if of == KeyFile::Root { ", or set MARGAY_ACCESS_KEY and MARGAY_SECRET_KEY to the former ones" } else { "" };
    AccountsError::Refused(format!(
        "{path} is missing, and the volume in {data} was used with {secrets}: put the file back, from a copy (the \
         other servers of a cluster have the same file) or from a backup made with --with-keys{or}. Without it {loss}; to \
         go on like that: margay secrets forget {word} --data {data}"
    ))
}

/// Error: the keys at `place` lack secrets that the volume was used with.
pub(crate) fn others(of: KeyFile, place: &str, data: &Path) -> AccountsError {
    let Words { secrets, loss, word } = words(of);
    let data = data.display();
    let lines = if of == KeyFile::Encryption { " (new ones are added as lines, the former ones stay)" } else { "" };
    AccountsError::Refused(format!(
        "{place} has other {secrets} than the volume in {data} was used with{lines}: put the former ones back. Without \
         them {loss}; if the change is meant: margay secrets forget {word} --data {data}"
    ))
}

/// Keys, and their fingerprints if the volume must still store them.
#[derive(Debug)]
pub struct CheckedKeys<T> {
    pub keys: T,
    pub keep: Option<Fingerprints>,
}

/// Accepts or refuses keys by the result of their comparison.
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

/// Stores new fingerprints in the volume, and returns the keys.
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

/// Reads the volume's fingerprints, loads and compares the keys, and stores new fingerprints.
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
        // The name of a key is part of its fingerprint.
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
