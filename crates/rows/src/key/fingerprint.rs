//! Keys of fingerprints of the server's secret files: table byte, kind.

use super::{FINGERPRINT, table};
use crate::record::fingerprint::KeyFile;

/// What the volume knows of a secret file of its servers.
pub fn fingerprint(of: KeyFile) -> Vec<u8> {
    table(FINGERPRINT, &[&[of as u8]])
}
