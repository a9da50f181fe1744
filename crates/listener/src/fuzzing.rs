//! What fuzz targets call; the decoders themselves are private.
//!
//! Not here:   the targets (fuzz).

use crate::validity::not_after;

/// The year 10000, in seconds since 1970: no certificate can name it.
const SECONDS_END: i64 = 253_402_300_800;
/// The year 0.
const SECONDS_BEGIN: i64 = -62_167_219_200;

/// Any bytes give nothing, or a date that a certificate can name.
pub fn certificate(bytes: &[u8]) {
    if let Some(end) = not_after(bytes) {
        assert!((SECONDS_BEGIN..=SECONDS_END).contains(&end), "{end}");
    }
}
