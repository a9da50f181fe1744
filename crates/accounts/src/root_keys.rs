//! The root keys: from the environment, or created once per volume in a file that only its owner can read.
//!
//! Why:        even a server without configuration has no password that others know.
//! Layout:     the format of an AWS credentials file, so that tools can use it.
//! Invariants: K1 keys are printed only on a terminal.  K2 the keys of an existing file are never changed.
//!             K3 `Debug` does not show the secret.
//! Not here:   checking signatures (the S3 door).

use std::fmt;
use std::path::{Path, PathBuf};

use margay_env::{Env, checksum_line, files};
use margay_s3::auth::{Credential, Secret};
use margay_volume::{KeyFile, KnownFingerprints, Volume};

use crate::AccountsError;
use crate::fingerprint::{self, CheckedKeys};

/// An access key id and its secret.
#[derive(Clone, PartialEq, Eq)]
pub struct RootKeys {
    pub access_key: String,
    pub secret_key: String,
    /// Their file; `None` when they came from the environment.
    pub file: Option<PathBuf>,
}

impl fmt::Debug for RootKeys {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "RootKeys({}, secret hidden)", self.access_key)
    }
}

impl margay_s3::auth::Credentials for RootKeys {
    fn find(&self, access_key: &str) -> Option<Credential> {
        (access_key == self.access_key)
            .then(|| Credential { secret: Secret::new(&self.secret_key), session_token: None })
    }
}

/// The file's name in the data directory.
pub const FILE: &str = "keys";
/// Maximum size of the file, in bytes.
const FILE_BYTES_MAX: u64 = 4096;
/// Characters of a generated access key, and its length.
const ACCESS_ALPHABET: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
const ACCESS_LEN: usize = 20;
/// Characters of a generated secret (no `/` or `+`: both break careless URL code), and its length.
const SECRET_ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
const SECRET_LEN: usize = 40;
/// Accepted lengths of keys, in characters.
const ACCESS_RANGE: std::ops::RangeInclusive<usize> = 3..=128;
const SECRET_RANGE: std::ops::RangeInclusive<usize> = 8..=128;

/// Reads `MARGAY_ACCESS_KEY` and `MARGAY_SECRET_KEY`, if they are set.
pub fn given(variable: impl Fn(&str) -> Option<String>) -> Result<Option<RootKeys>, AccountsError> {
    let given = |name: &str| variable(name).filter(|text| !text.is_empty());
    match (given("MARGAY_ACCESS_KEY"), given("MARGAY_SECRET_KEY")) {
        (Some(access_key), Some(secret_key)) => {
            check(&access_key, &secret_key).map_err(|error| {
                AccountsError::Environment(format!("MARGAY_ACCESS_KEY or MARGAY_SECRET_KEY: {error}"))
            })?;
            Ok(Some(RootKeys { access_key, secret_key, file: None }))
        }
        (None, None) => Ok(None),
        (Some(_), None) => Err(AccountsError::Environment(
            "MARGAY_ACCESS_KEY is set but MARGAY_SECRET_KEY is not; set both or none".to_owned(),
        )),
        (None, Some(_)) => Err(AccountsError::Environment(
            "MARGAY_SECRET_KEY is set but MARGAY_ACCESS_KEY is not; set both or none".to_owned(),
        )),
    }
}

/// Returns the given keys, else those in `<data>/keys`, else creates them there; refuses keys that the volume was not
/// used with.
pub fn load(env: &Env, data: &Path, given: Option<RootKeys>, volume: &Volume) -> Result<RootKeys, AccountsError> {
    fingerprint::settle(volume, KeyFile::Root, |known| checked(env, data, given, known))
}

fn checked(
    env: &Env,
    data: &Path,
    given: Option<RootKeys>,
    known: &KnownFingerprints,
) -> Result<CheckedKeys<RootKeys>, AccountsError> {
    let path = data.join(FILE);
    let keys = match given {
        Some(keys) => keys,
        None => match from_file(env, &path)? {
            Some(keys) => keys,
            None if known.fingerprints.is_some() => return Err(fingerprint::absent(KeyFile::Root, &path, data)),
            None => make(env, &path)?,
        },
    };
    let secret = fingerprint::Secret { name: &keys.access_key, secret: keys.secret_key.as_bytes() };
    let compared = fingerprint::compare(env, KeyFile::Root, &[secret], known);
    let place = match &keys.file {
        Some(path) => path.display().to_string(),
        None => "the environment (MARGAY_ACCESS_KEY, MARGAY_SECRET_KEY)".to_owned(),
    };
    fingerprint::checked(keys, compared, || fingerprint::others(KeyFile::Root, &place, data))
}

/// Reads the keys in `<data>/keys`, if the file exists and is readable; creates nothing.
pub fn read(env: &Env, data: &Path) -> Option<RootKeys> {
    let path = data.join(FILE);
    let bytes = files::read(env, &path, FILE_BYTES_MAX).ok()?;
    let (access_key, secret_key) = parse(&String::from_utf8_lossy(checksum_line::check(&bytes).ok()?.text))?;
    Some(RootKeys { access_key, secret_key, file: Some(path) })
}

/// `None` if the file does not exist.
pub(crate) fn from_file(env: &Env, path: &Path) -> Result<Option<RootKeys>, AccountsError> {
    let complain = |error: &dyn fmt::Display, remedy: &str| {
        AccountsError::File(format!("the root keys in {} cannot be read: {error}; {remedy}", path.display()))
    };
    match files::read(env, path, FILE_BYTES_MAX) {
        Ok(bytes) => {
            let lost = "with none, remove the file and run `margay secrets forget root` to get new keys";
            let checked = checksum_line::check(&bytes).map_err(|error| complain(&error, lost))?;
            let text = String::from_utf8_lossy(checked.text);
            let wrong = "it must hold the lines aws_access_key_id = ... and aws_secret_access_key = ...; correct it, or remove it and run `margay secrets forget root` to get new keys";
            let (access_key, secret_key) = parse(&text).ok_or_else(|| complain(&"wrong content", wrong))?;
            check(&access_key, &secret_key).map_err(|error| complain(&error, wrong))?;
            if !checked.has_checksum {
                checksum_line::add(env, path, checked.text);
            }
            Ok(Some(RootKeys { access_key, secret_key, file: Some(path.to_owned()) }))
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(complain(&error, files::remedy(&error))),
    }
}

fn make(env: &Env, path: &Path) -> Result<RootKeys, AccountsError> {
    let access_key = new_access_key(env, "");
    let secret_key = new_secret(env);
    let text = format!(
        "# The root keys of this margay, made on its first start. Who reads this file owns all its data.\n\
         # AWS tools read it with AWS_SHARED_CREDENTIALS_FILE set to its name.\n\
         [default]\naws_access_key_id = {access_key}\naws_secret_access_key = {secret_key}\n"
    );
    checksum_line::write(env, path, text.into_bytes()).map_err(|error| {
        let (path, remedy) = (path.display(), files::remedy(&error));
        AccountsError::File(format!("the root keys in {path} cannot be made: {error}; {remedy}"))
    })?;
    Ok(RootKeys { access_key, secret_key, file: Some(path.to_owned()) })
}

/// Parses the two keys; ignores comments and unknown lines.
fn parse(text: &str) -> Option<(String, String)> {
    let value = |name: &str| {
        text.lines().find_map(|line| {
            let (key, value) = line.split_once('=')?;
            (key.trim() == name).then(|| value.trim().to_owned())
        })
    };
    Some((value("aws_access_key_id")?, value("aws_secret_access_key")?))
}

/// Checks the form of a pair of keys; the error says what is required.
pub fn check(access_key: &str, secret_key: &str) -> Result<(), String> {
    let plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
    if !ACCESS_RANGE.contains(&access_key.len()) || !plain(access_key) || access_key.contains(['/', ',', '=', '"']) {
        return Err(format!("an access key has {ACCESS_RANGE:?} visible ASCII characters without / , = \""));
    }
    if !SECRET_RANGE.contains(&secret_key.len()) || !plain(secret_key) || secret_key.contains('"') {
        return Err(format!("a secret key has {SECRET_RANGE:?} visible ASCII characters without \""));
    }
    Ok(())
}

/// Generates a random access key with the prefix `kind`.
pub fn new_access_key(env: &Env, kind: &str) -> String {
    format!("{kind}{}", random_text(env, ACCESS_ALPHABET, ACCESS_LEN - kind.len()))
}

/// Generates a random secret.
pub fn new_secret(env: &Env) -> String {
    random_text(env, SECRET_ALPHABET, SECRET_LEN)
}

/// Each character is equally likely, because the size of both alphabets is a power of two.
fn random_text(env: &Env, alphabet: &[u8], len: usize) -> String {
    assert!(alphabet.len().is_power_of_two() && alphabet.len() <= 256);
    let mut bytes = vec![0; len];
    env.random.fill(&mut bytes);
    bytes.iter().map(|byte| char::from(alphabet[usize::from(*byte) % alphabet.len()])).collect()
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "a test lays out the disk as a user would")]
mod tests {
    use super::*;

    fn load(env: &Env, data: &Path, variable: impl Fn(&str) -> Option<String>) -> Result<RootKeys, AccountsError> {
        Ok(checked(env, data, given(variable)?, &KnownFingerprints::default())?.keys)
    }

    #[test]
    fn keys_are_made_once_and_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let env = Env::real();
        let first = load(&env, folder.path(), |_| None).unwrap();
        assert_eq!((first.access_key.len(), first.secret_key.len()), (20, 40));
        assert_eq!(load(&env, folder.path(), |_| None).unwrap(), first);
        assert!(!format!("{first:?}").contains(&first.secret_key));
    }

    #[test]
    fn a_damaged_file_is_refused_and_one_without_checksum_gets_it() {
        let folder = tempfile::tempdir().unwrap();
        let (env, path) = (Env::real(), folder.path().join("keys"));
        std::fs::write(&path, "aws_access_key_id = OLDKEY\naws_secret_access_key = long-enough\n").unwrap();
        let old = load(&env, folder.path(), |_| None).unwrap();
        let mut bytes = std::fs::read(&path).unwrap();
        assert!(checksum_line::check(&bytes).unwrap().has_checksum);
        assert_eq!(load(&env, folder.path(), |_| None).unwrap(), old);
        bytes[50] ^= 1;
        std::fs::write(&path, &bytes).unwrap();
        let error = load(&env, folder.path(), |_| None).unwrap_err();
        assert!(error.to_string().contains("damaged or was changed"), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), bytes, "it is not made anew");
        assert_eq!(read(&env, folder.path()), None);
    }

    #[test]
    fn the_environment_wins_and_makes_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let keys = load(&Env::real(), folder.path(), |name| Some(format!("key-of-{name}"))).unwrap();
        assert_eq!((keys.access_key.as_str(), keys.file), ("key-of-MARGAY_ACCESS_KEY", None));
        assert!(!folder.path().join("keys").exists());
    }

    #[test]
    fn half_a_pair_and_bad_files_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let only = |name: &str| (name == "MARGAY_ACCESS_KEY").then(|| "abc".to_owned());
        assert!(load(&Env::real(), folder.path(), only).unwrap_err().to_string().contains("set both or none"));
        assert!(load(&Env::real(), folder.path(), |_| Some("ab".to_owned())).is_err());
        for text in ["", "aws_access_key_id = abc", "aws_access_key_id = a/c\naws_secret_access_key = long enough"] {
            std::fs::write(folder.path().join("keys"), text).unwrap();
            let error = load(&Env::real(), folder.path(), |_| None).unwrap_err();
            assert!(error.to_string().contains("remove it and run `margay secrets forget root`"), "{error}");
        }
    }
}
