//! Strings of arbitrary bytes inside a key.
//!
//! Why:        a string that is followed by another part needs an end mark, and keys must sort like their strings.
//! Invariants: E1 a 00 byte in a string becomes 00 ff and its end is 00 01, so no escaped string is a prefix of another
//!                (K3).
//! Not here:   which parts of a key are escaped (key).

use crate::record::Damaged;

pub(super) fn escape_open(bytes: &[u8], into: &mut Vec<u8>) {
    for byte in bytes {
        into.push(*byte);
        if *byte == 0 {
            into.push(0xff);
        }
    }
}

pub(super) fn escape(bytes: &[u8], into: &mut Vec<u8>) {
    escape_open(bytes, into);
    into.extend_from_slice(&[0, 1]);
}

pub(super) fn unescape(bytes: &[u8]) -> Result<(Vec<u8>, &[u8]), Damaged> {
    let mut plain = Vec::new();
    let mut rest = bytes;
    while let Some((byte, tail)) = rest.split_first() {
        match (byte, tail) {
            (0, [1, tail @ ..]) => return Ok((plain, tail)),
            (0, [0xff, tail @ ..]) => {
                plain.push(0);
                rest = tail;
            }
            (0, _) => return Err(Damaged("a key has a wrong escape")),
            (byte, tail) => {
                plain.push(*byte);
                rest = tail;
            }
        }
    }
    Err(Damaged("an escaped key has no end"))
}
