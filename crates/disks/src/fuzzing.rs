//! What fuzz targets call; the decoders themselves are private.
//!
//! Not here:   the targets (fuzz).

use crate::record::{Identity, Record};

/// What is read is written again as it was, whatever bytes were given.
pub fn record(bytes: &[u8]) {
    if let Ok(record) = Record::decode(bytes) {
        assert_eq!(Record::decode(&record.encode()), Ok(record));
    }
    if let Ok(identity) = Identity::decode(bytes) {
        assert_eq!(Identity::decode(&identity.encode()), Ok(identity));
    }
}
