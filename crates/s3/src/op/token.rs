//! Continuation tokens: opaque to clients, verified when they come back.
//!
//! Why:        a truncated or forged token must be an error, not a listing from a wrong position.
//! Layout:     base64url of: version (1), kind (0 key, 1 prefix), text, CRC-32C of everything before (4 bytes, big
//!             endian).

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use crc_fast::CrcAlgorithm::Crc32Iscsi;

use crate::error::S3Error;

const VERSION: u8 = 1;

/// A token to continue after `text`; `is_prefix` when the last item was a common prefix.
pub(crate) fn encode(text: &str, is_prefix: bool) -> String {
    let mut bytes = Vec::with_capacity(text.len() + 6);
    bytes.push(VERSION);
    bytes.push(u8::from(is_prefix));
    bytes.extend_from_slice(text.as_bytes());
    let sum = crc_fast::checksum(Crc32Iscsi, &bytes) as u32;
    bytes.extend_from_slice(&sum.to_be_bytes());
    URL_SAFE_NO_PAD.encode(bytes)
}

pub(crate) fn decode(token: &str) -> Result<(String, bool), S3Error> {
    let refuse = || S3Error::argument("continuation-token", token, "The continuation token provided is incorrect");
    let bytes = URL_SAFE_NO_PAD.decode(token).map_err(|_| refuse())?;
    let (body, sum) = bytes.split_last_chunk::<4>().ok_or_else(refuse)?;
    if crc_fast::checksum(Crc32Iscsi, body) as u32 != u32::from_be_bytes(*sum) {
        return Err(refuse());
    }
    match body {
        [VERSION, kind @ (0 | 1), text @ ..] => {
            let text = std::str::from_utf8(text).map_err(|_| refuse())?;
            Ok((text.to_owned(), *kind == 1))
        }
        _ => Err(refuse()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_come_back_or_are_refused() {
        for (text, is_prefix) in [("", false), ("a/b", true), ("ключ", false)] {
            let token = encode(text, is_prefix);
            assert_eq!(decode(&token).unwrap(), (text.to_owned(), is_prefix));
            assert!(decode(&token[1..]).is_err());
            assert!(decode(&format!("{token}A")).is_err());
        }
        for bad in ["", "AAAA", "a/b", "%", "AQAAAAAA"] {
            assert!(decode(bad).is_err(), "{bad}");
        }
    }
}
