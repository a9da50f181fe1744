//! Encrypts secrets under a key file. The form is in docs/format/identities.md.
//!
//! Why:        a copy of the volume, or of a backup, must not reveal the users' secrets.
//! Invariants: S1 a nonce is random and used once.  S2 a secret sealed for one access key opens for no other.
//!             S3 the key is never printed.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use margay_env::{Env, checksum_line, files};
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};

use margay_volume::{KeyFile, KnownFingerprints};

use crate::AccountsError;
use crate::fingerprint::{self, CheckedKeys, Secret};

/// Name of the key file in the data directory.
pub const FILE: &str = "identity-key";
/// Maximum size of the key file, in bytes.
const FILE_BYTES_MAX: u64 = 4096;
const KEY_BYTES: usize = 32;
const SECRET_CONTEXT: &str = "margay key ";
const SESSION_CONTEXT: &str = "margay session";

/// The sealing key.
pub struct SealKey {
    key: LessSafeKey,
}

impl std::fmt::Debug for SealKey {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("SealKey(..)")
    }
}

impl SealKey {
    /// Loads the file in the data directory, or creates it on the first start of its volume; refuses a key that the
    /// volume was not used with.
    pub fn load(env: &Env, data: &Path, known: &KnownFingerprints) -> Result<CheckedKeys<SealKey>, AccountsError> {
        let CheckedKeys { keys, keep } = SealKey::checked(env, data, known)?;
        Ok(CheckedKeys { keys: SealKey::new(&keys), keep })
    }

    /// The secret in the file, which all servers of a volume have; as `load`.
    pub fn secret(env: &Env, data: &Path, known: &KnownFingerprints) -> Result<[u8; KEY_BYTES], AccountsError> {
        SealKey::checked(env, data, known).map(|checked| checked.keys)
    }

    fn checked(
        env: &Env,
        data: &Path,
        known: &KnownFingerprints,
    ) -> Result<CheckedKeys<[u8; KEY_BYTES]>, AccountsError> {
        let path = data.join(FILE);
        let key = match SealKey::from_file(env, &path)? {
            Some(key) => key,
            None if known.fingerprints.is_some() => return Err(fingerprint::absent(KeyFile::Identity, &path, data)),
            None => SealKey::make(env, &path)?,
        };
        let compared = fingerprint::compare(env, KeyFile::Identity, &[Secret { name: "", secret: &key }], known);
        let refused = || fingerprint::others(KeyFile::Identity, &path.display().to_string(), data);
        fingerprint::checked(key, compared, refused)
    }

    /// `None` if the file does not exist.
    pub(crate) fn from_file(env: &Env, path: &Path) -> Result<Option<[u8; KEY_BYTES]>, AccountsError> {
        let fail = |error: &dyn std::fmt::Display, remedy: &str| {
            AccountsError::File(format!("the key file {} cannot be used: {error}; {remedy}", path.display()))
        };
        match files::read(env, path, FILE_BYTES_MAX) {
            Ok(bytes) => {
                let remedy = "put the right one back; without it the secrets of users are lost, the root keys work";
                let checked = checksum_line::check(&bytes).map_err(|error| fail(&error, remedy))?;
                let key =
                    decode(checked.text).ok_or_else(|| fail(&"it does not hold 64 hexadecimal digits", remedy))?;
                if !checked.has_checksum {
                    checksum_line::add(env, path, checked.text);
                }
                Ok(Some(key))
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(fail(&error, files::remedy(&error))),
        }
    }

    fn make(env: &Env, path: &Path) -> Result<[u8; KEY_BYTES], AccountsError> {
        let mut key = [0; KEY_BYTES];
        env.random.fill(&mut key);
        let digits = base16ct::lower::encode_string(&key);
        checksum_line::write(env, path, digits.into_bytes()).map_err(|error| {
            let (path, remedy) = (path.display(), files::remedy(&error));
            AccountsError::File(format!("the key file {path} cannot be made: {error}; {remedy}"))
        })?;
        Ok(key)
    }

    pub(super) fn new(key: &[u8; KEY_BYTES]) -> SealKey {
        let key = UnboundKey::new(&AES_256_GCM, key).expect("the key has the length of the algorithm");
        SealKey { key: LessSafeKey::new(key) }
    }

    fn seal(&self, env: &Env, context: &str, clear: &[u8]) -> Vec<u8> {
        let mut nonce = [0; NONCE_LEN];
        env.random.fill(&mut nonce);
        let mut sealed = clear.to_vec();
        let aad = Aad::from(context.as_bytes());
        self.key
            .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), aad, &mut sealed)
            .expect("only texts of many gigabytes cannot be sealed");
        [&nonce[..], &sealed].concat()
    }

    fn open(&self, context: &str, sealed: &[u8]) -> Option<Vec<u8>> {
        let (nonce, sealed) = sealed.split_first_chunk::<NONCE_LEN>()?;
        let mut text = sealed.to_vec();
        let aad = Aad::from(context.as_bytes());
        let clear = self.key.open_in_place(Nonce::assume_unique_for_key(*nonce), aad, &mut text).ok()?;
        Some(clear.to_vec())
    }

    /// Base64 of the sealed secret of an access key.
    pub(super) fn seal_secret(&self, env: &Env, access_key: &str, secret: &str) -> String {
        STANDARD.encode(self.seal(env, &format!("{SECRET_CONTEXT}{access_key}"), secret.as_bytes()))
    }

    pub(super) fn open_secret(&self, access_key: &str, sealed: &str) -> Option<String> {
        let clear = self.open(&format!("{SECRET_CONTEXT}{access_key}"), &STANDARD.decode(sealed).ok()?)?;
        String::from_utf8(clear).ok()
    }

    pub(super) fn seal_session(&self, env: &Env, content: &[u8]) -> String {
        URL_SAFE_NO_PAD.encode(self.seal(env, SESSION_CONTEXT, content))
    }

    pub(super) fn open_session(&self, token: &str) -> Option<Vec<u8>> {
        self.open(SESSION_CONTEXT, &URL_SAFE_NO_PAD.decode(token).ok()?)
    }
}

fn decode(file: &[u8]) -> Option<[u8; KEY_BYTES]> {
    let digits = file.trim_ascii();
    let mut key = [0; KEY_BYTES];
    let decoded = base16ct::mixed::decode(digits, &mut key).ok()?;
    (decoded.len() == KEY_BYTES).then_some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(env: &Env, data: &Path) -> Result<SealKey, AccountsError> {
        Ok(SealKey::load(env, data, &KnownFingerprints::default())?.keys)
    }

    #[test]
    fn what_is_sealed_opens_in_its_place_only() {
        let folder = tempfile::tempdir().unwrap();
        let env = Env::real();
        let key = load(&env, folder.path()).unwrap();
        let sealed = key.seal_secret(&env, "AKIA1", "secret");
        assert!(!sealed.contains("secret"));
        assert_ne!(sealed, key.seal_secret(&env, "AKIA1", "secret"));
        assert_eq!(key.open_secret("AKIA1", &sealed).as_deref(), Some("secret"));
        assert_eq!(key.open_secret("AKIA2", &sealed), None);
        // The existing file is read.
        let again = load(&env, folder.path()).unwrap();
        assert_eq!(again.open_secret("AKIA1", &sealed).as_deref(), Some("secret"));
        assert_eq!(SealKey::new(&[7; 32]).open_secret("AKIA1", &sealed), None);
        for index in 0..sealed.len() {
            let mut broken = sealed.clone().into_bytes();
            broken[index] = if broken[index] == b'A' { b'B' } else { b'A' };
            assert_eq!(key.open_secret("AKIA1", std::str::from_utf8(&broken).unwrap()), None, "{index}");
        }
        let token = key.seal_session(&env, b"content");
        assert_eq!(key.open_session(&token).as_deref(), Some(&b"content"[..]));
        assert_eq!(key.open_session(&sealed), None);
    }

    #[test]
    fn a_wrong_key_file_is_named() {
        let folder = tempfile::tempdir().unwrap();
        files::write_new(&Env::real(), &folder.path().join(FILE), b"nonsense").unwrap();
        let error = load(&Env::real(), folder.path()).unwrap_err();
        assert!(error.to_string().contains("64 hexadecimal digits"), "{error}");
    }

    #[test]
    fn a_damaged_key_is_refused_and_one_without_checksum_gets_it() {
        let folder = tempfile::tempdir().unwrap();
        let (env, path) = (Env::real(), folder.path().join(FILE));
        files::write_new(&env, &path, "07".repeat(KEY_BYTES).as_bytes()).unwrap();
        let old = load(&env, folder.path()).unwrap();
        let sealed = old.seal_secret(&env, "AKIA1", "secret");
        let mut bytes = files::read(&env, &path, FILE_BYTES_MAX).unwrap();
        assert!(checksum_line::check(&bytes).unwrap().has_checksum);
        assert!(load(&env, folder.path()).unwrap().open_secret("AKIA1", &sealed).is_some());
        bytes[5] ^= 1;
        files::write_new(&env, &path, &bytes).unwrap();
        let error = load(&env, folder.path()).unwrap_err();
        assert!(error.to_string().contains("damaged or was changed"), "{error}");
        assert_eq!(files::read(&env, &path, FILE_BYTES_MAX).unwrap(), bytes, "it is not made anew");
    }
}
