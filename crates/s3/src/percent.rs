//! Percent escapes of bytes, as URLs and signatures write them.
//!
//! Not here: which bytes are escaped (`xml::write` for listings, `auth` for signatures), decoding (`route::query`).

use base16ct::upper;

/// `%XX` of a byte.
pub fn escape(byte: u8) -> [u8; 3] {
    let mut escape = *b"%00";
    upper::encode(&[byte], &mut escape[1..]).expect("two digits fit");
    escape
}
