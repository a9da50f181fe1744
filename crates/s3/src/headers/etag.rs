//! Parses and formats ETags.

use std::fmt::Write as _;

use margay_volume::{ETag, ETagMatch, PART_NUMBER_MAX};

use crate::error::S3Error;

/// Parses an ETag with or without quotes; `None` when no object can have it.
pub(crate) fn parse(text: &str) -> Option<ETag> {
    let text = text.trim();
    let text = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text);
    let (hex, parts) = match text.split_once('-') {
        // As `ETag` formats it: no sign, no leading zero.
        Some((hex, parts)) if parts.starts_with(|first| matches!(first, '1'..='9')) => {
            (hex, parts.parse().ok().filter(|parts| *parts <= PART_NUMBER_MAX)?)
        }
        Some(_) => return None,
        None => (text, 0),
    };
    let mut digest = [0; 16];
    let decoded = base16ct::mixed::decode(hex, &mut digest).ok()?;
    (decoded.len() == 16).then_some(ETag { digest, parts })
}

/// Parses the list of `If-Match` or `If-None-Match`.
pub(crate) fn parse_list(header: &str, text: &str) -> Result<Vec<ETagMatch>, S3Error> {
    let mut list = Vec::new();
    for item in text.split(',').map(str::trim).filter(|item| !item.is_empty()) {
        list.push(match (item, item.strip_prefix("W/")) {
            ("*", _) => ETagMatch::Any,
            // Objects change byte by byte, so weak and strong comparison give the same result.
            (_, Some(weak)) => parse(weak).map_or(ETagMatch::Never, ETagMatch::Exact),
            (strong, None) => parse(strong).map_or(ETagMatch::Never, ETagMatch::Exact),
        });
    }
    if list.is_empty() { Err(S3Error::argument(header, text, "an ETag is expected")) } else { Ok(list) }
}

/// Size of a quoted ETag with a part count, in bytes.
const ETAG_BYTES: usize = 40;

/// A quoted ETag, as in headers and XML.
pub(crate) fn quoted(etag: &ETag) -> String {
    let mut text = String::with_capacity(ETAG_BYTES);
    write!(text, "\"{etag}\"").expect("a string takes everything");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEX: &str = "0123456789abcdef0123456789ABCDEF";

    #[test]
    fn etags_are_read_with_and_without_quotes() {
        let etag = parse(HEX).unwrap();
        assert_eq!(parse(&format!("\"{HEX}\"")), Some(etag));
        assert_eq!(etag.to_string(), HEX.to_lowercase());
        assert_eq!(parse(&format!("{HEX}-12")).unwrap().parts, 12);
        for bad in [
            "",
            "x",
            &HEX[1..],
            &format!("{HEX}-0"),
            &format!("{HEX}-"),
            &format!("{HEX}-99999"),
            &format!("{HEX}-+2"),
            &format!("{HEX}-02"),
            "+1+2+3+4+5+6+7+8+9+a+b+c+d+e+f+0",
            "ü123456789abcdef0123456789ABCDE",
        ] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn lists() {
        let etag = parse(HEX).unwrap();
        assert_eq!(parse_list("if-match", "*").unwrap(), [ETagMatch::Any]);
        assert_eq!(
            parse_list("if-match", &format!("\"{HEX}\", W/\"{HEX}\", \"other\"")).unwrap(),
            [ETagMatch::Exact(etag), ETagMatch::Exact(etag), ETagMatch::Never]
        );
        assert!(parse_list("if-match", " , ").is_err());
    }
}
