//! The moment that a request says it was signed at.
//!
//! Why: a signature covers the text `20130524T000000Z`, while the skew check needs seconds; both are kept together.

use margay_env::Timestamp;

const SECONDS_PER_DAY: i64 = 86_400;

/// A moment in whole seconds, with its ISO 8601 basic text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AmzDate {
    text: [u8; 16],
    seconds: i64,
}

impl AmzDate {
    /// Reads `YYYYMMDDTHHMMSSZ`.
    pub(crate) fn parse(text: &[u8]) -> Option<AmzDate> {
        let text: [u8; 16] = text.try_into().ok()?;
        if text[8] != b'T' || text[15] != b'Z' {
            return None;
        }
        let year = i64::from(number(&text[0..4])?);
        let (month, day) = (number(&text[4..6])?, number(&text[6..8])?);
        let (hour, minute, second) = (number(&text[9..11])?, number(&text[11..13])?, number(&text[13..15])?);
        let month_is_real = (1..=12).contains(&month) && (1..=days_in_month(year, month)).contains(&day);
        if !month_is_real || hour > 23 || minute > 59 || second > 60 {
            return None;
        }
        let of_day = i64::from(hour * 3600 + minute * 60 + second);
        Some(AmzDate { text, seconds: days_from_civil(year, month, day) * SECONDS_PER_DAY + of_day })
    }

    /// Reads a `Date` header: the form above or the one of HTTP (`Fri, 24 May 2013 00:00:00 GMT`).
    pub(crate) fn parse_http(text: &str) -> Option<AmzDate> {
        AmzDate::parse(text.as_bytes()).or_else(|| {
            // The name of the day says nothing that the date does not, and clients get it wrong.
            let parser = jiff::fmt::rfc2822::DateTimeParser::new().relaxed_weekday(true);
            let moment = parser.parse_timestamp(text).ok()?;
            AmzDate::from_seconds(moment.as_second())
        })
    }

    /// The text of a moment; `None` outside the years 0 to 9999.
    pub(crate) fn from_seconds(seconds: i64) -> Option<AmzDate> {
        let (year, month, day) = civil_from_days(seconds.div_euclid(SECONDS_PER_DAY));
        let of_day = seconds.rem_euclid(SECONDS_PER_DAY) as u32;
        let year = u32::try_from(year).ok().filter(|year| *year <= 9999)?;
        let mut text = *b"00000000T000000Z";
        write_number(&mut text[0..4], year);
        write_number(&mut text[4..6], month);
        write_number(&mut text[6..8], day);
        write_number(&mut text[9..11], of_day / 3600);
        write_number(&mut text[11..13], of_day / 60 % 60);
        write_number(&mut text[13..15], of_day % 60);
        Some(AmzDate { text, seconds })
    }

    /// The moment of a timestamp, which lies between 1678 and 2262.
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

    /// `YYYY-MM-DDTHH:MM:SSZ`, as S3 shows times to people.
    pub(crate) fn iso(&self) -> String {
        let t = self.text();
        format!("{}-{}-{}T{}:{}:{}Z", &t[0..4], &t[4..6], &t[6..8], &t[9..11], &t[11..13], &t[13..15])
    }
}

fn number(digits: &[u8]) -> Option<u32> {
    digits.iter().try_fold(0, |sum, digit| digit.is_ascii_digit().then(|| sum * 10 + u32::from(digit - b'0')))
}

fn write_number(out: &mut [u8], mut value: u32) {
    for digit in out.iter_mut().rev() {
        *digit = b'0' + (value % 10) as u8;
        value /= 10;
    }
    debug_assert_eq!(value, 0, "the number fits its field");
}

fn days_in_month(year: i64, month: u32) -> u32 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days since 1970-01-01 in the Gregorian calendar; years start in March so that the leap day comes last.
fn days_from_civil(year: i64, month: u32, day: u32) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = i64::from((153 * ((month + 9) % 12) + 2) / 5 + day - 1);
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

fn civil_from_days(days: i64) -> (i64, u32, u32) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = (day_of_year - (153 * from_march + 2) / 5 + 1) as u32;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 } as u32;
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
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
        for text in
            ["20130230T000000Z", "20131301T000000Z", "20130524T240000Z", "20130524 000000Z", "2013-524T000000Z", ""]
        {
            assert_eq!(AmzDate::parse(text.as_bytes()), None, "{text}");
        }
        assert!(AmzDate::parse(b"20000229T000000Z").is_some());
        assert_eq!(AmzDate::parse(b"19000229T000000Z"), None);
    }
}
