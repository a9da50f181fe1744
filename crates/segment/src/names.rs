//! Names of the files in a segment folder.
//!
//! Why:        the folder's listing is the only table of segments; the mark keeps ids unique after removals.
//! Layout:     `<id>.log`, `<id>.pack`, `<id>.raw`; with the suffix `.quarantine-<seconds>`: in quarantine since then;
//!             `<id>.next`: an empty file, ids below `id` may have been used; `.fetching` behind a segment's name: it is being made from
//!             that of another store.
//! Not here:   the content of the files (format).

use crate::{Kind, SegmentId};

/// Between a segment's own name and the time of its move to quarantine.
const QUARANTINE: &str = ".quarantine-";
/// Follows the name of a file that is not whole yet.
const FETCHING: &str = ".fetching";

/// The meaning of a file name in the folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Name {
    Segment(SegmentId, Kind),
    /// In quarantine since this time, in seconds since 1970.
    Quarantined(SegmentId, Kind, i64),
    /// No id below this one may be allocated.
    Mark(SegmentId),
}

/// The file name of a segment.
pub fn segment_name(id: SegmentId, kind: Kind) -> String {
    let ending = match kind {
        Kind::Log => "log",
        Kind::Pack => "pack",
        Kind::Raw => "raw",
    };
    format!("{:016x}.{ending}", id.0)
}

pub(crate) fn quarantined_name(id: SegmentId, kind: Kind, seconds: i64) -> String {
    format!("{}{QUARANTINE}{:016x}", segment_name(id, kind), seconds.max(0))
}

/// A file that is being made from that of another store.
pub(crate) fn fetching_name(id: SegmentId, kind: Kind) -> String {
    format!("{}{FETCHING}", segment_name(id, kind))
}

/// Whether a file was being made when its process ended.
pub(crate) fn is_left_over(name: &str) -> bool {
    name.strip_suffix(FETCHING).is_some_and(|name| matches!(parse(name), Some(Name::Segment(..))))
}

/// An empty file of this name prevents that ids below `id` are allocated.
pub fn mark_name(id: SegmentId) -> String {
    format!("{:016x}.next", id.0)
}

/// The segment with this file name, original or copy.
pub fn segment_of_name(name: &str) -> Option<(SegmentId, Kind)> {
    match parse(name) {
        Some(Name::Segment(id, kind)) => Some((id, kind)),
        Some(Name::Quarantined(..) | Name::Mark(_)) | None => None,
    }
}

/// `None` for a name that this store never creates; such files are left alone.
pub(crate) fn parse(name: &str) -> Option<Name> {
    let (digits, ending) = name.split_once('.')?;
    let lower_hex = digits.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
    if digits.len() != 16 || !lower_hex {
        return None;
    }
    let id = SegmentId(u64::from_str_radix(digits, 16).ok()?);
    if id.0 == 0 {
        return None;
    }
    let kind_of = |ending: &str| match ending {
        "log" => Some(Kind::Log),
        "pack" => Some(Kind::Pack),
        "raw" => Some(Kind::Raw),
        _ => None,
    };
    if ending == "next" {
        return Some(Name::Mark(id));
    }
    match ending.split_once(QUARANTINE) {
        None => kind_of(ending).map(|kind| Name::Segment(id, kind)),
        Some((kind, seconds)) if seconds.len() == 16 => {
            Some(Name::Quarantined(id, kind_of(kind)?, i64::from_str_radix(seconds, 16).ok()?))
        }
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_survive_a_round_trip_and_strangers_are_ignored() {
        for kind in [Kind::Log, Kind::Pack, Kind::Raw] {
            let id = SegmentId(0xabc);
            assert_eq!(parse(&segment_name(id, kind)), Some(Name::Segment(id, kind)));
            let fetching = fetching_name(id, kind);
            assert!(parse(&fetching).is_none() && is_left_over(&fetching) && !is_left_over(&segment_name(id, kind)));
            assert_eq!(parse(&quarantined_name(id, kind, 99)), Some(Name::Quarantined(id, kind, 99)));
        }
        assert_eq!(parse(&mark_name(SegmentId(9))), Some(Name::Mark(SegmentId(9))));
        for stranger in ["", ".", "lost+found", "0000000000000000.log", "000000000000000A.log", "0000000000000001.tmp"]
        {
            assert_eq!(parse(stranger), None, "{stranger}");
        }
        assert_eq!(parse("+00000000000001.pack"), None);
    }
}
