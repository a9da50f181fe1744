//! The target of a passed request, as the page names it in the query.
//!
//! Why:        a browser resolves `.` and `..` in a path, also escaped ones, before it sends it. A key may contain them, so a path
//!             would ask for another object, and a deletion would remove it. In a query nothing is resolved.
//! Invariants: P1 what is passed on is byte by byte what the page named, or nothing.
//! Not here:   what the target means (margay-s3).

use http::uri::PathAndQuery;
use margay_s3::percent;

/// Longest target, in bytes: a key of 1024 bytes, all escaped, and room for parameters.
const TARGET_BYTES_MAX: usize = 16 * 1024;

/// Why a query names no target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetError {
    Missing,
    Several,
    Malformed,
}

/// The path and query that `t` names, for example `t=%2Fbucket%2Fa%2520b%3Ftagging`, and the value of `as`.
pub fn of_query(query: &str) -> Result<(PathAndQuery, Option<String>), TargetError> {
    let (mut target, mut form) = (None, None);
    for pair in query.split('&') {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let slot = match name {
            "t" => &mut target,
            "as" => &mut form,
            _ => return Err(TargetError::Malformed),
        };
        if slot.replace(percent::decode(value, false).map_err(|_| TargetError::Malformed)?).is_some() {
            return Err(TargetError::Several);
        }
    }
    let target = target.ok_or(TargetError::Missing)?;
    if !is_clean(&target) || target.len() > TARGET_BYTES_MAX {
        return Err(TargetError::Malformed);
    }
    let parsed = PathAndQuery::try_from(target.as_str()).map_err(|_| TargetError::Malformed)?;
    // P1: the parser leaves nothing out.
    if parsed.as_str() != target { Err(TargetError::Malformed) } else { Ok((parsed, form)) }
}

/// Whether a target is a path, maybe with a query, in the characters that a request line may have.
pub(crate) fn is_clean(target: &str) -> bool {
    target.starts_with('/') && target.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#')
}
