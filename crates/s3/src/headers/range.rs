//! `Range` as S3 treats it: a single range; anything else returns the whole object.

use std::ops::Range;

/// The range of a GET or HEAD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ByteRange {
    /// From the first byte to the end.
    From(u64),
    /// Both inclusive.
    Closed(u64, u64),
    /// The last bytes.
    Suffix(u64),
}

impl ByteRange {
    /// `None` when the header is not a single byte range: S3 then ignores it, as RFC 9110 allows.
    pub(crate) fn parse(text: &str) -> Option<ByteRange> {
        let (first, last) = text.trim().strip_prefix("bytes=")?.trim().split_once('-')?;
        match (number(first), number(last)) {
            (Some(first), Some(last)) if first <= last => Some(ByteRange::Closed(first, last)),
            (Some(first), None) if last.is_empty() => Some(ByteRange::From(first)),
            (None, Some(count)) if first.is_empty() => Some(ByteRange::Suffix(count)),
            _ => None,
        }
    }

    /// The range in an object of this size, never empty; `None` when nothing is in it.
    pub(crate) fn within(self, size: u64) -> Option<Range<u64>> {
        let range = match self {
            ByteRange::From(first) => first..size,
            ByteRange::Closed(first, last) => first..last.saturating_add(1).min(size),
            ByteRange::Suffix(count) => size.saturating_sub(count)..size,
        };
        (range.start < range.end).then_some(range)
    }
}

/// Parses digits; a number beyond all sizes becomes the largest one, which has the same effect.
pub(crate) fn number(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms() {
        assert_eq!(ByteRange::parse("bytes=0-0"), Some(ByteRange::Closed(0, 0)));
        assert_eq!(ByteRange::parse("bytes=5-"), Some(ByteRange::From(5)));
        assert_eq!(ByteRange::parse("bytes=-3"), Some(ByteRange::Suffix(3)));
        let huge = "9".repeat(30);
        assert_eq!(ByteRange::parse(&format!("bytes=2-{huge}")).unwrap().within(10), Some(2..10));
        assert_eq!(ByteRange::parse(&format!("bytes=-{huge}")).unwrap().within(10), Some(0..10));
        assert_eq!(ByteRange::parse(&format!("bytes={huge}-")).unwrap().within(10), None);
        assert_eq!(ByteRange::parse(&format!("bytes={huge}-{huge}")).unwrap().within(10), None);
        for ignored in ["bytes=5-4", "bytes=", "bytes=-", "bytes=a-b", "bytes=0-1,3-4", "items=0-1", "bytes=+1-2"] {
            assert_eq!(ByteRange::parse(ignored), None, "{ignored}");
        }
    }

    #[test]
    fn bounds() {
        assert_eq!(ByteRange::Closed(2, 100).within(10), Some(2..10));
        assert_eq!(ByteRange::Closed(9, 9).within(10), Some(9..10));
        assert_eq!(ByteRange::Closed(10, 10).within(10), None);
        assert_eq!(ByteRange::From(10).within(10), None);
        assert_eq!(ByteRange::Suffix(3).within(10), Some(7..10));
        assert_eq!(ByteRange::Suffix(30).within(10), Some(0..10));
        assert_eq!(ByteRange::Suffix(0).within(10), None);
        assert_eq!(ByteRange::Suffix(1).within(0), None);
        assert_eq!(ByteRange::Closed(0, u64::MAX).within(1), Some(0..1));
    }
}
