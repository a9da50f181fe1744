//! The key that all processes of a volume have.
//!
//! Invariants: K1 the key is never printed, and is of no other use than this.

use ring::hmac;

/// Bytes of a signature.
pub(crate) const SIGNATURE_BYTES: usize = 32;
/// Keeps the key apart from other uses of the secret that it is made of.
const PURPOSE: &[u8] = b"margay processes of one volume 1";

/// No question begins so.
const BYTES_PURPOSE: &[u8] = b"bytes of ";
/// Nor so.
const TLS_PURPOSE: &[u8] = b"TLS key pair of processes 1";

/// Signs what one process asks another one.
#[derive(Clone)]
pub struct ClusterKey(hmac::Key);

impl std::fmt::Debug for ClusterKey {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("ClusterKey(..)")
    }
}

impl ClusterKey {
    /// From a secret that all processes of the volume have.
    pub fn derive(secret: &[u8]) -> ClusterKey {
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), PURPOSE);
        ClusterKey(hmac::Key::new(hmac::HMAC_SHA256, tag.as_ref()))
    }

    /// Signs the bytes that are sent with this question, and with no other one.
    pub(crate) fn of_bytes(&self, question: &[u8]) -> ClusterKey {
        let tag = hmac::sign(&self.0, &[BYTES_PURPOSE, question].concat());
        ClusterKey(hmac::Key::new(hmac::HMAC_SHA256, tag.as_ref()))
    }

    /// What the key pair of TLS is made of.
    pub(crate) fn tls_seed(&self) -> [u8; SIGNATURE_BYTES] {
        self.sign(TLS_PURPOSE)
    }

    pub(crate) fn sign(&self, text: &[u8]) -> [u8; SIGNATURE_BYTES] {
        let mut signature = [0; SIGNATURE_BYTES];
        signature.copy_from_slice(hmac::sign(&self.0, text).as_ref());
        signature
    }

    pub(crate) fn is_of(&self, signature: &[u8], text: &[u8]) -> bool {
        hmac::verify(&self.0, text, signature).is_ok()
    }
}
