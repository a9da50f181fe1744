//! Parses conditional headers into the conditions that the volume evaluates.
//!
//! Not here: the evaluation, which must be atomic with the read or write (volume).

use http::HeaderMap;
use margay_env::Timestamp;
use margay_volume::{ETagMatch, ReadCondition, WriteCondition};

use super::{etag, text};
use crate::error::S3Error;
use crate::time::parse_http_date;

/// The condition of a GET, HEAD or copy source; `prefix` precedes `if-match` and the others.
pub(crate) fn read_condition(headers: &HeaderMap, prefix: &str) -> Result<ReadCondition, S3Error> {
    let etags = |name: &str| -> Result<Option<Vec<ETagMatch>>, S3Error> {
        let name = format!("{prefix}{name}");
        text(headers, &name)?.map(|value| etag::parse_list(&name, value)).transpose()
    };
    // RFC 9110 requires that an invalid date is ignored.
    let date = |name: &str| -> Result<Option<Timestamp>, S3Error> {
        Ok(text(headers, &format!("{prefix}{name}"))?.and_then(parse_http_date))
    };
    Ok(ReadCondition {
        if_match: etags("if-match")?,
        if_none_match: etags("if-none-match")?,
        if_modified_since: date("if-modified-since")?,
        if_unmodified_since: date("if-unmodified-since")?,
    })
}

/// The condition of a write.
pub(crate) fn write_condition(headers: &HeaderMap) -> Result<WriteCondition, S3Error> {
    let etags = |name: &str| text(headers, name)?.map(|value| etag::parse_list(name, value)).transpose();
    let exact = |list: &[ETagMatch]| {
        let exact = |item: &ETagMatch| if let ETagMatch::Exact(etag) = item { Some(*etag) } else { None };
        list.iter().filter_map(exact).collect()
    };
    match (etags("if-match")?, etags("if-none-match")?) {
        (None, None) => Ok(WriteCondition::None),
        (Some(_), Some(_)) => Err(S3Error::not_implemented("if-match together with if-none-match")),
        (Some(list), None) if list.contains(&ETagMatch::Any) => Ok(WriteCondition::Present),
        (Some(list), None) => Ok(WriteCondition::Matches(exact(&list))),
        (None, Some(list)) if list.contains(&ETagMatch::Any) => Ok(WriteCondition::Absent),
        (None, Some(list)) => Ok(WriteCondition::Differs(exact(&list))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEX: &str = "\"0123456789abcdef0123456789abcdef\"";

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (http::HeaderName::from_static(name), value.parse().unwrap())).collect()
    }

    #[test]
    fn reads() {
        let headers = headers(&[("if-none-match", HEX), ("if-modified-since", "Sun, 06 Nov 1994 08:49:37 GMT")]);
        let condition = read_condition(&headers, "").unwrap();
        assert_eq!(condition.if_none_match.unwrap(), [ETagMatch::Exact(etag::parse(HEX).unwrap())]);
        assert_eq!(condition.if_modified_since.unwrap().seconds(), 784_111_777);
        assert_eq!(read_condition(&headers, "x-amz-copy-source-").unwrap(), ReadCondition::default());
    }

    #[test]
    fn an_unreadable_date_is_no_condition() {
        let headers = headers(&[("if-modified-since", "tomorrow")]);
        assert_eq!(read_condition(&headers, "").unwrap(), ReadCondition::default());
    }

    #[test]
    fn writes() {
        let of = |pairs: &[(&'static str, &str)]| write_condition(&headers(pairs));
        assert_eq!(of(&[]).unwrap(), WriteCondition::None);
        assert_eq!(of(&[("if-none-match", "*")]).unwrap(), WriteCondition::Absent);
        assert_eq!(of(&[("if-match", "*")]).unwrap(), WriteCondition::Present);
        let differs = WriteCondition::Differs(vec![etag::parse(HEX).unwrap()]);
        assert_eq!(of(&[("if-none-match", &format!("{HEX}, \"x\""))]).unwrap(), differs);
        assert_eq!(of(&[("if-match", HEX)]).unwrap(), WriteCondition::Matches(vec![etag::parse(HEX).unwrap()]));
        // Well formed, but no object has it: the write must fail, not pass.
        assert_eq!(of(&[("if-match", "\"x\"")]).unwrap(), WriteCondition::Matches(vec![]));
        assert!(of(&[("if-match", "*"), ("if-none-match", "*")]).is_err());
    }
}
