//! Percent-encoding of paths, queries and forms.
//!
//! Not here: decoding (`xml`).

pub use margay_s3::percent::encode_into;

/// A key as a whole path.
pub(crate) fn encoded_path(key: &str) -> String {
    let mut path = String::from("/");
    encode_into(&mut path, key, true);
    path
}
