//! How long the keys of each table get.
//!
//! Why:        an engine takes keys of `KEY_BYTES_MAX`, so no row may need a longer one.
//! Invariants: each row of the table below is an upper bound, compared when this is compiled. Rows of versions are the
//!             exception: a mount may go deeper than a key of S3, so their keys are compared when a name is made
//!             (`VersionedKey::check_length` of the volume).
//! Not here:   the keys themselves.

use margay_meta::KEY_BYTES_MAX;

/// Longest key of an object in a request, in bytes of UTF-8.
pub const OBJECT_KEY_BYTES_MAX: usize = 1024;

/// The table byte and a number.
const HEAD: usize = 1 + 8;
/// A zero byte is written as two, and two more end the key.
const ESCAPED_KEY: usize = 2 * OBJECT_KEY_BYTES_MAX + 2;
/// An upload's id.
const UPLOAD_ID: usize = 32;
/// `x-amz-meta-`, and all user metadata in one name.
const HEADER_NAME: usize = 11 + 2048;
/// What a kernel takes.
const XATTR_NAME: usize = 255;
/// A target of notifications, escaped.
const TARGET: usize = 2 * 64 + 2;
/// The longest is the URL of an identity provider.
const IDENTITY_NAME: usize = 255;

/// Table byte, and the longest key.
pub(crate) const LONGEST: [(u8, usize); 11] = [
    (super::ENTRY, HEAD + OBJECT_KEY_BYTES_MAX + 1),
    (super::VERSION, HEAD + ESCAPED_KEY + 8),
    (super::NULL_VERSION, HEAD + ESCAPED_KEY),
    (super::UPLOAD, HEAD + ESCAPED_KEY + UPLOAD_ID),
    (super::HEADER, HEAD + HEADER_NAME),
    (super::XATTR, HEAD + XATTR_NAME),
    (super::EVENT, 1 + TARGET + 16),
    (super::IDENTITY, 2 + IDENTITY_NAME),
    (super::BUCKET, 1 + 63),
    // As every table that is not named here it has numbers only.
    (super::BACK, HEAD + 8 + 8),
    // A lease of a job, perhaps for a target.
    (super::SESSION, 2 + 128),
];

const _: () = {
    let mut index = 0;
    while index < LONGEST.len() {
        assert!(LONGEST[index].1 <= KEY_BYTES_MAX, "a table has keys that an engine does not take");
        index += 1;
    }
};

#[cfg(test)]
mod tests {
    use super::super::*;
    use super::*;

    #[test]
    fn keys_of_the_longest_names_are_within_the_bounds() {
        let (ino, key) = (Ino(u64::MAX), "\0".repeat(OBJECT_KEY_BYTES_MAX));
        let keys = [
            entry(ino, &[b'/'; OBJECT_KEY_BYTES_MAX + 1]),
            version(ino, &key, u64::MAX),
            null_version(ino, &key),
            upload(ino, &key, &"f".repeat(UPLOAD_ID)),
            header(ino, &"h".repeat(HEADER_NAME)),
            xattr(ino, &[b'x'; XATTR_NAME]),
            event(&"\0".repeat(64), u128::MAX),
            identity(b'o', &"u".repeat(IDENTITY_NAME)),
            bucket(&"b".repeat(63)),
            back(margay_segment::SegmentId(1), 1, ino),
        ];
        for (key, (_, longest)) in keys.iter().zip(LONGEST) {
            assert_eq!(key.len(), longest, "the bound of table {:?} is what its longest key has", key[0] as char);
        }
    }
}
