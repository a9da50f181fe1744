//! The signing time of a request.
//!
//! Why: a signature covers the text `20130524T000000Z`, while the check of clock skew needs seconds; both are stored
//!      together.

use jiff::civil::{Date, date};
use margay_env::Timestamp;

use crate::time::{civil, set_digits};

const EPOCH: Date = date(1970, 1, 1);

/// A time in whole seconds, with its ISO 8601 basic text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AmzDate {
    text: [u8; 16],
    seconds: i64,
}

impl AmzDate {
    /// Parses `YYYYMMDDTHHMMSSZ`.
    pub(crate) fn parse(text: &[u8]) -> Option<AmzDate> {
        let text: [u8; 16] = text.try_into().ok()?;
        if text[8] != b'T' || text[15] != b'Z' {
            return None;
        }
        let field = |digits: std::ops::Range<usize>| number(&text[digits]);
        let day = Date::new(field(0..4)?, field(4..6)? as i8, field(6..8)? as i8).ok()?;
        let (hour, minute, second) = (field(9..11)?, field(11..13)?, field(13..15)?);
        // A leap second is accepted: some clocks show it.
        if hour > 23 || minute > 59 || second > 60 {
            return None;
        }
        let of_day = i64::from(hour) * 3600 + i64::from(minute) * 60 + i64::from(second);
        Some(AmzDate { text, seconds: day.duration_since(EPOCH).as_secs() + of_day })
    }

    /// Parses a `Date` header: the form above, or the HTTP form (`Fri, 24 May 2013 00:00:00 GMT`).
    pub(crate) fn parse_http(text: &str) -> Option<AmzDate> {
        AmzDate::parse(text.as_bytes()).or_else(|| {
            // The weekday is redundant, and some clients send a wrong one.
            let parser = jiff::fmt::rfc2822::DateTimeParser::new().relaxed_weekday(true);
            let moment = parser.parse_timestamp(text).ok()?;
            AmzDate::from_seconds(moment.as_second())
        })
    }

    /// The text of a time; `None` outside the years 0 to 9999 (the calendar lacks the last day of 9999).
    pub(crate) fn from_seconds(seconds: i64) -> Option<AmzDate> {
        let civil = civil(seconds).filter(|civil| civil.year() >= 0)?;
        let mut text = *b"00000000T000000Z";
        set_digits(&mut text[0..4], civil.year());
        set_digits(&mut text[4..6], civil.month().into());
        set_digits(&mut text[6..8], civil.day().into());
        set_digits(&mut text[9..11], civil.hour().into());
        set_digits(&mut text[11..13], civil.minute().into());
        set_digits(&mut text[13..15], civil.second().into());
        Some(AmzDate { text, seconds })
    }

    /// Converts a timestamp, which is between 1678 and 2262.
    pub(crate) fn from_timestamp(now: Timestamp) -> AmzDate {
        AmzDate::from_seconds(now.seconds()).expect("a timestamp lies within the years 0 to 9999")
    }

    /// Seconds since 1970.
    pub(crate) fn seconds(&self) -> i64 {
        self.seconds
    }

    /// `YYYYMMDDTHHMMSSZ`.
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.text).expect("the text is ASCII by construction")
    }

    /// `YYYYMMDD`.
    pub(crate) fn day(&self) -> [u8; 8] {
        self.text[..8].try_into().expect("eight of sixteen bytes")
    }

    /// `Fri, 24 May 2013 00:00:00 GMT`.
    pub(crate) fn http(&self) -> String {
        crate::time::http_date(Timestamp(self.seconds.saturating_mul(1_000_000_000)))
    }

    /// `YYYY-MM-DDTHH:MM:SSZ`, the form that S3 shows to people.
    pub(crate) fn iso(&self) -> String {
        let t = self.text();
        format!("{}-{}-{}T{}:{}:{}Z", &t[0..4], &t[4..6], &t[6..8], &t[9..11], &t[11..13], &t[13..15])
    }
}

/// Parses at most four digits.
fn number(digits: &[u8]) -> Option<i16> {
    digits.iter().try_fold(0, |sum, digit| digit.is_ascii_digit().then(|| sum * 10 + i16::from(digit - b'0')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_seconds_agree() {
        let date = AmzDate::parse(b"20130524T000000Z").unwrap();
        assert_eq!(date.seconds(), 1_369_353_600);
        assert_eq!(date.iso(), "2013-05-24T00:00:00Z");
        assert_eq!(AmzDate::parse_http("Fri, 24 May 2013 00:00:00 GMT"), Some(date));
        assert_eq!(AmzDate::parse_http("Tue, 24 May 2013 00:00:00 GMT"), Some(date));
        assert_eq!(AmzDate::parse_http("Day, 24 May 2013 00:00:00 GMT"), None);
        for seconds in (-70_000_000_000..250_000_000_000).step_by(86_399_753) {
            let Some(date) = AmzDate::from_seconds(seconds) else { continue };
            assert_eq!(AmzDate::parse(date.text().as_bytes()), Some(date));
        }
    }

    #[test]
    fn days_that_do_not_exist_are_refused() {
        for text in [
            "20130230T000000Z",
            "20131301T000000Z",
            "20130024T000000Z",
            "20130500T000000Z",
            "20139924T000000Z",
            "20130524T240000Z",
            "20130524T006000Z",
            "20130524T000061Z",
            "20130524 000000Z",
            "2013-524T000000Z",
            "+0130524T000000Z",
            "",
        ] {
            assert_eq!(AmzDate::parse(text.as_bytes()), None, "{text}");
        }
        assert!(AmzDate::parse(b"20000229T000000Z").is_some());
        for (text, seconds) in [
            (b"19691231T235959Z", -1),
            (b"20161231T235960Z", 1_483_228_800),
            (b"99991231T235959Z", 253_402_300_799),
            (b"00000101T000000Z", -62_167_219_200),
        ] {
            assert_eq!(AmzDate::parse(text).map(|date| date.seconds()), Some(seconds));
        }
        assert_eq!(AmzDate::parse(b"19000229T000000Z"), None);
    }
}
