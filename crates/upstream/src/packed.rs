//! Extended attributes that no header can hold, in one header.
//!
//! Layout:     `margay-x`: `name=value`, separated by commas; the name percent-encoded, the value in base64 without padding.
//! Source:     `xattr` of s3fs: a percent-encoded `{"name":"value in base64", ...}`.
//! Invariants: P1 what does not parse is as if it was not there.
//! Not here:   which attributes have to be packed (attributes).

use base64::Engine as _;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use http::HeaderMap;

/// Name and value.
pub(crate) type Xattr = (Vec<u8>, Vec<u8>);

/// The header of those that are not headers.
pub(crate) const PACKED: &str = "margay-x";
pub(crate) const PACKED_BY_S3FS: &str = "xattr";
/// Attributes in this space are headers where they can.
const USER_SPACE: &str = "user.";
/// What begins the names of user metadata.
pub(crate) const USER: &str = "x-amz-meta-";
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_encode_padding(false).with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Printable ASCII without what separates; the rest as `%` and two digits.
pub(crate) fn escaped(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for byte in bytes {
        match byte {
            b'!'..=b'~' if !matches!(byte, b'%' | b',' | b'=') => out.push(char::from(*byte)),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

pub(crate) fn decoded(text: &[u8]) -> Vec<u8> {
    let digit = |at: usize| text.get(at).and_then(|byte| char::from(*byte).to_digit(16)).map(|digit| digit as u8);
    let (mut out, mut at) = (Vec::with_capacity(text.len()), 0);
    while let Some(byte) = text.get(at) {
        match (byte, digit(at + 1), digit(at + 2)) {
            (b'%', Some(high), Some(low)) => {
                out.push(high << 4 | low);
                at += 3;
            }
            _ => {
                out.push(*byte);
                at += 1;
            }
        }
    }
    out
}

pub(crate) fn pack(xattrs: &[Xattr]) -> String {
    let one = |(name, value): &Xattr| format!("{}={}", escaped(name), BASE64.encode(value));
    xattrs.iter().map(one).collect::<Vec<_>>().join(",")
}

fn unpack(text: &str) -> Vec<Xattr> {
    let one = |pair: &str| {
        let (name, value) = pair.split_once('=')?;
        Some((decoded(name.as_bytes()), BASE64.decode(value).ok()?))
    };
    text.split(',').filter_map(one).collect()
}

/// s3fs escapes nothing inside of its quotes.
fn unpack_s3fs(text: &str) -> Vec<Xattr> {
    let plain = String::from_utf8_lossy(&decoded(text.as_bytes())).into_owned();
    let quoted: Vec<&str> = plain.split('"').skip(1).step_by(2).collect();
    let pairs = quoted.chunks_exact(2);
    pairs.filter_map(|pair| Some((pair[0].as_bytes().to_vec(), BASE64.decode(pair[1]).ok()?))).collect()
}

/// Those that an object has in one header.
pub(crate) fn of_headers(headers: &HeaderMap) -> Vec<Xattr> {
    let text = |name: &str| headers.get(format!("{USER}{name}"))?.to_str().ok();
    let own = text(PACKED).map(unpack);
    own.or_else(|| text(PACKED_BY_S3FS).map(unpack_s3fs)).unwrap_or_default()
}

/// Whether an attribute is in the space of user metadata.
pub(crate) fn is_of_users(name: &[u8]) -> bool {
    name.starts_with(USER_SPACE.as_bytes())
}

/// Metadata, named without its prefix, as an attribute.
pub(crate) fn of_header(name: &str, value: &str) -> Xattr {
    (format!("{USER_SPACE}{name}").into_bytes(), value.as_bytes().to_vec())
}

/// An attribute as metadata, named without its prefix, if the name can be one.
pub(crate) fn as_header((name, value): &Xattr) -> Option<(&str, &str)> {
    let name = std::str::from_utf8(name).ok()?.strip_prefix(USER_SPACE)?;
    let is_token = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.');
    let is_name = !name.is_empty() && name.bytes().all(is_token);
    Some((name, std::str::from_utf8(value).ok()?)).filter(|_| is_name)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn attribute(name: &str, value: &[u8]) -> Xattr {
        (name.as_bytes().to_vec(), value.to_vec())
    }

    #[test]
    fn any_attributes_are_one_header() {
        let all = [
            attribute("system.posix_acl_access", &[2, 0, 0, 0, 255]),
            attribute("user.A, = %\u{e9}", b""),
            attribute("trusted.x", "\u{e9}\n".as_bytes()),
        ];
        let packed = pack(&all);
        assert!(HeaderValue::from_str(&packed).is_ok(), "{packed}");
        let headers = HeaderMap::from_iter([("x-amz-meta-margay-x".parse().unwrap(), packed.parse().unwrap())]);
        assert_eq!(of_headers(&headers), all);
        assert_eq!(unpack("x,y=?,user.a=MQ"), [attribute("user.a", b"1")], "what does not parse is not there");
    }

    #[test]
    fn those_of_s3fs_are_read() {
        let theirs = "%7B%22user.one%22%3A%22MQ%3D%3D%22%2C%22user.two%22%3A%22MjI%3D%22%7D";
        let headers = HeaderMap::from_iter([("x-amz-meta-xattr".parse().unwrap(), theirs.parse().unwrap())]);
        assert_eq!(of_headers(&headers), [attribute("user.one", b"1"), attribute("user.two", b"22")]);
    }

    proptest::proptest! {
        #[test]
        fn decoding_is_total(bytes in proptest::collection::vec(32u8..127, 0..64)) {
            let value = HeaderValue::from_bytes(&bytes).unwrap();
            for name in ["x-amz-meta-margay-x", "x-amz-meta-xattr"] {
                let found = of_headers(&HeaderMap::from_iter([(name.parse().unwrap(), value.clone())]));
                proptest::prop_assert_eq!(unpack(&pack(&found)).len(), found.len());
            }
        }
    }
}
