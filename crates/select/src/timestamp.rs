//! A moment with its offset from UTC: parsed, shifted, compared and decomposed.
//!
//! Source:   the date functions of the SQL reference for S3 Select. Besides AWS's form (`2010-01-01T23:00Z`) this
//!           accepts the one without hyphens (`20100101T230000Z`), and a space for the `T`.
//! Not here: patterns (`timestamp_pattern`).

use std::fmt;

use jiff::civil::DateTime;
use jiff::tz::Offset;
use jiff::{Span, ToSpan as _};

/// A component of a date.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Year,
    Quarter,
    Month,
    Week,
    Day,
    Hour,
    Minute,
    Second,
    TimezoneHour,
    TimezoneMinute,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Timestamp {
    /// In UTC.
    at: DateTime,
    offset: Offset,
}

impl Timestamp {
    /// Seconds since 1970.
    pub(crate) fn from_seconds(seconds: i64) -> Option<Timestamp> {
        let at = jiff::Timestamp::from_second(seconds).ok()?;
        Some(Timestamp { at: Offset::UTC.to_datetime(at), offset: Offset::UTC })
    }

    /// `None` if the text is not a timestamp.
    pub(crate) fn parse(text: &str) -> Option<Timestamp> {
        let text = text.trim();
        if !text.is_ascii() || text.len() > 64 {
            return None;
        }
        let mut digits = Digits(text);
        let year = digits.take(4)?;
        let hyphens = digits.skip('-');
        let (mut month, mut day) = (1, 1);
        if hyphens || digits.is_digit() {
            month = digits.take(2)?;
            if digits.skip('-') || (!hyphens && digits.is_digit()) {
                day = digits.take(2)?;
            }
        }
        let has_time = digits.skip('T') || digits.skip('t') || digits.skip(' ');
        let (mut hour, mut minute, mut second, mut nanosecond) = (0, 0, 0, 0);
        if has_time && digits.is_digit() {
            hour = digits.take(2)?;
            let colons = digits.skip(':');
            minute = digits.take(2)?;
            if (colons && digits.skip(':')) || (!colons && digits.is_digit()) {
                second = digits.take(2)?;
                if digits.skip('.') {
                    nanosecond = digits.fraction()?;
                }
            }
        }
        let offset = digits.offset()?;
        let (month, day) = (i8::try_from(month).ok()?, i8::try_from(day).ok()?);
        let (hour, minute, second) = (i8::try_from(hour).ok()?, i8::try_from(minute).ok()?, i8::try_from(second).ok()?);
        let local = DateTime::new(i16::try_from(year).ok()?, month, day, hour, minute, second, nanosecond).ok()?;
        let at = local.checked_sub(i64::from(offset.seconds()).seconds()).ok()?;
        Some(Timestamp { at, offset })
    }

    /// The local time at its own offset.
    pub(crate) fn local(&self) -> DateTime {
        self.at.checked_add(i64::from(self.offset.seconds()).seconds()).unwrap_or(self.at)
    }

    pub(crate) fn offset_seconds(&self) -> i32 {
        self.offset.seconds()
    }

    pub(crate) fn part(&self, part: Part) -> i64 {
        let (local, offset) = (self.local(), i64::from(self.offset.seconds()));
        match part {
            Part::Year => i64::from(local.year()),
            Part::Quarter => i64::from((local.month() - 1) / 3 + 1),
            Part::Month => i64::from(local.month()),
            Part::Week => i64::from(local.date().iso_week_date().week()),
            Part::Day => i64::from(local.day()),
            Part::Hour => i64::from(local.hour()),
            Part::Minute => i64::from(local.minute()),
            Part::Second => i64::from(local.second()),
            Part::TimezoneHour => offset / 3600,
            Part::TimezoneMinute => offset % 3600 / 60,
        }
    }

    /// `None`: out of range, or a component that cannot be added.
    pub(crate) fn add(&self, part: Part, count: i64) -> Option<Timestamp> {
        let span = Span::new();
        let span = match part {
            Part::Year => span.try_years(count),
            Part::Quarter => span.try_months(count.checked_mul(3)?),
            Part::Month => span.try_months(count),
            Part::Week => span.try_weeks(count),
            Part::Day => span.try_days(count),
            Part::Hour => span.try_hours(count),
            Part::Minute => span.try_minutes(count),
            Part::Second => span.try_seconds(count),
            Part::TimezoneHour | Part::TimezoneMinute => return None,
        };
        let local = self.local().checked_add(span.ok()?).ok()?;
        let at = local.checked_sub(i64::from(self.offset.seconds()).seconds()).ok()?;
        Some(Timestamp { at, offset: self.offset })
    }

    /// The number of whole units between two moments; negative if `later` is the earlier one.
    pub(crate) fn until(&self, later: &Timestamp, part: Part) -> Option<i64> {
        let seconds = later.at.duration_since(self.at).as_secs();
        Some(match part {
            Part::Year => self.months_until(later) / 12,
            Part::Quarter => self.months_until(later) / 3,
            Part::Month => self.months_until(later),
            Part::Week => seconds / (7 * 86_400),
            Part::Day => seconds / 86_400,
            Part::Hour => seconds / 3600,
            Part::Minute => seconds / 60,
            Part::Second => seconds,
            Part::TimezoneHour | Part::TimezoneMinute => return None,
        })
    }

    fn months_until(&self, later: &Timestamp) -> i64 {
        let count = |at: DateTime| i64::from(at.year()) * 12 + i64::from(at.month());
        let months = count(later.at) - count(self.at);
        let rest = |at: DateTime| (at.day(), at.time());
        if months > 0 && rest(later.at) < rest(self.at) {
            months - 1
        } else if months < 0 && rest(later.at) > rest(self.at) {
            months + 1
        } else {
            months
        }
    }

    pub(crate) fn is_before(&self, other: &Timestamp) -> bool {
        self.at < other.at
    }

    pub(crate) fn same_moment(&self, other: &Timestamp) -> bool {
        self.at == other.at
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let local = self.local();
        let (date, time) = (local.date(), local.time());
        write!(formatter, "{date}T{time}")?;
        match self.offset.seconds() {
            0 => formatter.write_str("Z"),
            seconds => {
                let sign = if seconds < 0 { '-' } else { '+' };
                let minutes = seconds.abs() / 60;
                write!(formatter, "{sign}{:02}:{:02}", minutes / 60, minutes % 60)
            }
        }
    }
}

/// The rest of the text.
struct Digits<'a>(&'a str);

impl Digits<'_> {
    fn is_digit(&self) -> bool {
        self.0.starts_with(|next: char| next.is_ascii_digit())
    }

    fn skip(&mut self, character: char) -> bool {
        let rest = self.0.strip_prefix(character);
        self.0 = rest.unwrap_or(self.0);
        rest.is_some()
    }

    fn take(&mut self, count: usize) -> Option<u16> {
        let digits = self.0.get(..count).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))?;
        self.0 = &self.0[count..];
        digits.parse().ok()
    }

    /// Digits after the decimal point as nanoseconds; finer digits are dropped.
    fn fraction(&mut self) -> Option<i32> {
        let count = self.0.bytes().take_while(u8::is_ascii_digit).count();
        let digits = &self.0[..count];
        self.0 = &self.0[count..];
        let mut padded = digits.get(..9).unwrap_or(digits).to_owned();
        while padded.len() < 9 {
            padded.push('0');
        }
        if count == 0 { None } else { padded.parse().ok() }
    }

    /// `Z`, `+01:00`, `+0100`, `+01`, or nothing for UTC, at the end of the text.
    fn offset(&mut self) -> Option<Offset> {
        if self.0.is_empty() || self.0 == "Z" || self.0 == "z" {
            return Some(Offset::UTC);
        }
        let sign = if self.skip('-') { -1 } else { 1 };
        if sign == 1 && !self.skip('+') {
            return None;
        }
        let hours = i32::from(self.take(2)?);
        let has_minutes = self.skip(':') || self.is_digit();
        let minutes = if has_minutes { i32::from(self.take(2)?) } else { 0 };
        if !self.0.is_empty() || minutes > 59 {
            return None;
        }
        Offset::from_seconds(sign * (hours * 3600 + minutes * 60)).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        Timestamp::parse(text).map_or("none".to_owned(), |moment| moment.to_string())
    }

    #[test]
    fn timestamps_are_read_in_both_forms() {
        for (text, expected) in [
            ("2010T", "2010-01-01T00:00:00Z"),
            ("2010-02T", "2010-02-01T00:00:00Z"),
            ("2010-02-03", "2010-02-03T00:00:00Z"),
            ("2010-02-03T04:05Z", "2010-02-03T04:05:00Z"),
            ("2010-02-03 04:05:06", "2010-02-03T04:05:06Z"),
            ("2010-02-03T04:05:06.25+01:30", "2010-02-03T04:05:06.25+01:30"),
            ("20100203T040506Z", "2010-02-03T04:05:06Z"),
            ("20100203T040506-0800", "2010-02-03T04:05:06-08:00"),
        ] {
            assert_eq!(shown(text), expected, "{text}");
        }
        for text in ["", "10", "2010-13-01", "2010-02-30T", "2010-02-03T25:00Z", "2010-02-03T04:05:06.Z", "2010-02-03X"]
        {
            assert_eq!(shown(text), "none", "{text}");
        }
    }

    #[test]
    fn differences_count_whole_parts() {
        let at = |text| Timestamp::parse(text).unwrap();
        let between = |from, to, part| at(from).until(&at(to), part).unwrap();
        assert_eq!(between("2010T", "2011T", Part::Year), 1);
        assert_eq!(between("2010-05T", "2011-04T", Part::Year), 0);
        assert_eq!(between("2010-01-31T", "2010-02-28T", Part::Month), 0);
        assert_eq!(between("2010-02-28T", "2010-01-31T", Part::Month), 0);
        assert_eq!(between("2010-01-01T23:00Z", "2010-01-02T01:00Z", Part::Day), 0);
        assert_eq!(between("2010-01-01T23:00Z", "2010-01-02T01:00Z", Part::Hour), 2);
        assert_eq!(at("2012-02-29T").add(Part::Year, 1).unwrap().to_string(), "2013-02-28T00:00:00Z");
        assert_eq!(at("2012-02-29T").add(Part::Month, i64::MAX), None);
    }
}
