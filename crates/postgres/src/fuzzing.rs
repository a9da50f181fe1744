//! Entry points of the fuzz targets: rows of the database as arbitrary bytes.

use crate::feed;

/// The keys that a change names: each comes back as it is, or all are refused.
pub fn feed_keys(bytes: &[u8]) {
    let Ok(batches) = feed::batches(bytes) else { return };
    let encoded = |keys: &Vec<Vec<u8>>| -> Vec<u8> {
        keys.iter().flat_map(|key| (key.len() as u16).to_be_bytes().into_iter().chain(key.iter().copied())).collect()
    };
    let again = batches.iter().map(encoded).collect::<Vec<_>>().join(&[0, 0][..]);
    assert_eq!(again, bytes, "nothing is overlooked");
}
