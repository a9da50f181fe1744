//! Names of the files in a segment folder.
//!
//! Why:        the folder's listing is the only table of segments; the mark keeps ids unique after removals.
//! Layout:     `<id>.log`, `<id>.pack`, `<id>.raw`; `<id>.next`: an empty file, ids below `id` may have been used.
//! Not here:   what is in the files (format).

use crate::{Kind, SegmentId};

/// What a file name in the folder means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Name {
    Segment(SegmentId, Kind),
    /// No id below this one may be given out again.
    Mark(SegmentId),
}

pub(crate) fn segment_name(id: SegmentId, kind: Kind) -> String {
    let ending = match kind {
        Kind::Log => "log",
        Kind::Pack => "pack",
        Kind::Raw => "raw",
    };
    format!("{:016x}.{ending}", id.0)
}

pub(crate) fn mark_name(id: SegmentId) -> String {
    format!("{:016x}.next", id.0)
}

/// `None` for a name that this store never makes; such files are left alone.
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
    match ending {
        "log" => Some(Name::Segment(id, Kind::Log)),
        "pack" => Some(Name::Segment(id, Kind::Pack)),
        "raw" => Some(Name::Segment(id, Kind::Raw)),
        "next" => Some(Name::Mark(id)),
        _ => None,
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
        }
        assert_eq!(parse(&mark_name(SegmentId(9))), Some(Name::Mark(SegmentId(9))));
        for stranger in ["", ".", "lost+found", "0000000000000000.log", "000000000000000A.log", "0000000000000001.tmp"]
        {
            assert_eq!(parse(stranger), None, "{stranger}");
        }
        assert_eq!(parse("+00000000000001.pack"), None);
    }
}
