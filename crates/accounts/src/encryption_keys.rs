//! The server's keys for encryption at rest: the file `encryption-keys` in the data directory.
//!
//! Layout:     docs/format/directory.md. One key per line, with an optional name before it; the first key of each name
//!             encrypts new data, all decrypt.
//! Invariants: F1 the keys of an existing file are never changed: data encrypted with a lost key is lost.
//! Not here:   the encryption itself (margay-volume).

use std::fmt::Display;
use std::path::Path;

use margay_env::{Env, checksum_line, files};
use margay_volume::{KEY_NAME_BYTES_MAX, KeyFile, KnownFingerprints, MASTER_KEY_BYTES, MasterKeys};

use crate::AccountsError;
use crate::fingerprint::{self, CheckedKeys, Secret};

/// The file's name in the data directory.
pub const FILE: &str = "encryption-keys";
/// Maximum size of the file, in bytes.
const FILE_BYTES_MAX: u64 = 16 << 10;

/// The keys of a file.
pub(crate) struct Lines {
    keys: Vec<[u8; MASTER_KEY_BYTES]>,
    named: Vec<(String, [u8; MASTER_KEY_BYTES])>,
}

impl Lines {
    fn master_keys(&self) -> MasterKeys {
        MasterKeys::new(&self.keys).with_named(&self.named)
    }

    pub(crate) fn secrets(&self) -> Vec<Secret<'_>> {
        let keys = self.keys.iter().map(|key| Secret { name: "", secret: key });
        keys.chain(self.named.iter().map(|(name, key)| Secret { name, secret: key })).collect()
    }
}

/// Loads the keys of the data directory, or creates them on the first start of its volume; refuses a file that lacks
/// keys which the volume was used with.
pub fn load(env: &Env, data: &Path, known: &KnownFingerprints) -> Result<CheckedKeys<MasterKeys>, AccountsError> {
    let path = data.join(FILE);
    let lines = match from_file(env, &path)? {
        Some(lines) => lines,
        None if known.fingerprints.is_some() => return Err(fingerprint::absent(KeyFile::Encryption, &path, data)),
        None => make(env, &path)?,
    };
    let compared = fingerprint::compare(env, KeyFile::Encryption, &lines.secrets(), known);
    let refused = || fingerprint::others(KeyFile::Encryption, &path.display().to_string(), data);
    fingerprint::checked(lines.master_keys(), compared, refused)
}

/// `None` if the file does not exist.
pub(crate) fn from_file(env: &Env, path: &Path) -> Result<Option<Lines>, AccountsError> {
    let complain = |error: &dyn Display, remedy: &str| {
        AccountsError::File(format!("the encryption keys in {} cannot be read: {error}; {remedy}", path.display()))
    };
    match files::read(env, path, FILE_BYTES_MAX) {
        Ok(bytes) => {
            let checked = checksum_line::check(&bytes)
                .map_err(|error| complain(&error, "without its keys what they encrypted cannot be read"))?;
            let keys = parse(&String::from_utf8_lossy(checked.text)).ok_or_else(|| {
                complain(&"a line is not [NAME] and 64 hexadecimal digits", "put the right file back")
            })?;
            if !checked.has_checksum {
                checksum_line::add(env, path, checked.text);
            }
            Ok(Some(keys))
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(complain(&error, files::remedy(&error))),
    }
}

fn make(env: &Env, path: &Path) -> Result<Lines, AccountsError> {
    let mut key = [0; MASTER_KEY_BYTES];
    env.random.fill(&mut key);
    let mut text = String::from(
        "# Keys of this margay for objects encrypted at rest (SSE-S3). Keep a copy elsewhere: without them these\n\
         # objects are lost, and who has them and the data directory can read them. A new first line is used\n\
         # for new objects from the next start on; the old lines must stay. A name and a key make a key for aws:kms.\n",
    );
    text.push_str(&base16ct::lower::encode_string(&key));
    text.push('\n');
    checksum_line::write(env, path, text.into_bytes()).map_err(|error| {
        let (path, remedy) = (path.display(), files::remedy(&error));
        AccountsError::File(format!("the encryption keys in {path} cannot be made: {error}; {remedy}"))
    })?;
    Ok(Lines { keys: vec![key], named: Vec::new() })
}

fn parse(text: &str) -> Option<Lines> {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let (mut keys, mut named) = (Vec::new(), Vec::new());
    for line in lines {
        match line.split_once(|at: char| at.is_ascii_whitespace()) {
            None => keys.push(digits(line)?),
            Some((name, key)) if is_name(name) => named.push((name.to_owned(), digits(key.trim_start())?)),
            Some(_) => return None,
        }
    }
    (!keys.is_empty()).then_some(Lines { keys, named })
}

fn is_name(name: &str) -> bool {
    name.len() <= KEY_NAME_BYTES_MAX && name.bytes().all(|byte| byte.is_ascii_graphic())
}

fn digits(line: &str) -> Option<[u8; MASTER_KEY_BYTES]> {
    let mut key = [0; MASTER_KEY_BYTES];
    let decoded = base16ct::mixed::decode(line, &mut key).ok()?;
    (decoded.len() == MASTER_KEY_BYTES).then_some(key)
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "a test lays out the disk as a user would")]
mod tests {
    use super::*;

    fn load(env: &Env, data: &Path) -> Result<MasterKeys, AccountsError> {
        Ok(super::load(env, data, &KnownFingerprints::default())?.keys)
    }

    #[test]
    fn keys_are_made_once_and_a_damaged_file_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let (env, path) = (Env::real(), folder.path().join(FILE));
        load(&env, folder.path()).unwrap();
        let made = std::fs::read_to_string(&path).unwrap();
        load(&env, folder.path()).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), made);
        assert_eq!(made.lines().rev().nth(1).unwrap().len(), 64);
        let key_at = made.len() - made.lines().last().unwrap().len() - 3;
        let mut other = made.clone().into_bytes();
        other[key_at] ^= 1;
        std::fs::write(&path, &other).unwrap();
        assert!(load(&env, folder.path()).unwrap_err().to_string().contains("damaged or was changed"));
        assert_eq!(std::fs::read(&path).unwrap(), other);
        // The form of an earlier version, and the form after a change by hand.
        let bare = &made[..made.rfind("# checksum").unwrap()];
        std::fs::write(&path, bare).unwrap();
        load(&env, folder.path()).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), made);
        for wrong in ["", "# nothing\n", "12ab\n", &format!("{bare}xyz\n"), &"é".repeat(32)] {
            std::fs::write(&path, wrong).unwrap();
            assert!(load(&env, folder.path()).unwrap_err().to_string().contains("put the right file back"), "{wrong}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), wrong);
        }
    }

    #[test]
    fn several_keys_are_taken() {
        let (one, other) = ("01".repeat(32), "FE".repeat(32));
        let text = format!("# new\n{one}\n\n{other}\nkey-1 {one}\naws/s3\t {other}\n");
        assert!(format!("{:?}", parse(&text).unwrap().master_keys()).contains("2 keys and 2 named"));
        for wrong in
            [format!("key-1 {one}\n"), format!("{one}\nkey 1 {one}"), format!("{one}\n{} {one}", "k".repeat(129))]
        {
            assert!(parse(&wrong).is_none(), "{wrong}");
        }
    }
}
