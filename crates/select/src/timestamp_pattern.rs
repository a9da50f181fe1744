//! `TO_STRING(timestamp, pattern)`.
//!
//! Source: the patterns in the SQL reference for S3 Select, which are Java's.

use std::fmt::Write as _;

use crate::timestamp::Timestamp;

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// `None` if a letter of the pattern is unknown. Other characters, and texts in single quotes, stand for themselves.
pub(crate) fn format(moment: &Timestamp, pattern: &str) -> Option<String> {
    let mut out = String::new();
    let mut rest = pattern;
    while let Some(letter) = rest.chars().next() {
        if letter == '\'' {
            let end = rest[1..].find('\'')? + 1;
            out.push_str(if end == 1 { "'" } else { &rest[1..end] });
            rest = &rest[end + 1..];
            continue;
        }
        if !letter.is_ascii_alphabetic() {
            out.push(letter);
            rest = &rest[letter.len_utf8()..];
            continue;
        }
        let count = rest.bytes().take_while(|byte| char::from(*byte) == letter).count();
        rest = &rest[count..];
        field(moment, letter, count, &mut out)?;
    }
    Some(out)
}

fn field(moment: &Timestamp, letter: char, count: usize, out: &mut String) -> Option<()> {
    let local = moment.local();
    let hour12 = (local.hour() + 11) % 12 + 1;
    let padded = |out: &mut String, number: i64, width: usize| write!(out, "{number:0width$}").ok();
    match (letter, count) {
        ('y', 1) => padded(out, local.year().into(), 1),
        ('y', 2) => padded(out, i64::from(local.year()) % 100, 2),
        ('y', 3..=4) => padded(out, local.year().into(), 4),
        ('M', 1..=2) => padded(out, local.month().into(), count),
        ('M', 3..=5) => {
            let name = MONTHS.get(usize::try_from(local.month() - 1).ok()?)?;
            out.push_str(match count {
                3 => &name[..3],
                4 => name,
                _ => &name[..1],
            });
            Some(())
        }
        ('d', 1..=2) => padded(out, local.day().into(), count),
        ('a', 1) => {
            out.push_str(if local.hour() < 12 { "AM" } else { "PM" });
            Some(())
        }
        ('h', 1..=2) => padded(out, hour12.into(), count),
        ('H', 1..=2) => padded(out, local.hour().into(), count),
        ('m', 1..=2) => padded(out, local.minute().into(), count),
        ('s', 1..=2) => padded(out, local.second().into(), count),
        ('S', 1..=9) => {
            let digits = format!("{:09}", local.subsec_nanosecond());
            out.push_str(&digits[..count]);
            Some(())
        }
        ('n', 1) => padded(out, local.subsec_nanosecond().into(), 1),
        ('X', 1..=5) if moment.offset_seconds() == 0 => {
            out.push('Z');
            Some(())
        }
        ('x' | 'X', 1..=5) => offset(moment.offset_seconds(), count, out),
        _ => None,
    }
}

/// `+07`, `+0700` or `+07:00`.
fn offset(seconds: i32, count: usize, out: &mut String) -> Option<()> {
    let sign = if seconds < 0 { '-' } else { '+' };
    let (hours, minutes) = (seconds.abs() / 3600, seconds.abs() / 60 % 60);
    match count {
        1 if minutes == 0 => write!(out, "{sign}{hours:02}"),
        1 | 2 | 4 => write!(out, "{sign}{hours:02}{minutes:02}"),
        _ => write!(out, "{sign}{hours:02}:{minutes:02}"),
    }
    .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_of_the_reference() {
        let moment = Timestamp::parse("1969-07-20T20:18:05.250+07:00").unwrap();
        for (pattern, expected) in [
            ("MMMM d, y", "July 20, 1969"),
            ("MMM d, yyyy", "Jul 20, 1969"),
            ("M-d-yy", "7-20-69"),
            ("MM-d-y", "07-20-1969"),
            ("MMMM d, y h:m a", "July 20, 1969 8:18 PM"),
            ("y-MM-dd''H:m:ssX", "1969-07-20'20:18:05+07"),
            ("y-MM-dd'T'H:m:ssXXXX", "1969-07-20T20:18:05+0700"),
            ("H:mm:ss.SSSXXXXX", "20:18:05.250+07:00"),
            ("xxx", "+07:00"),
        ] {
            assert_eq!(format(&moment, pattern).as_deref(), Some(expected), "{pattern}");
        }
        let utc = Timestamp::parse("1969-07-20T20:18Z").unwrap();
        assert_eq!(format(&utc, "X x xx").as_deref(), Some("Z +00 +0000"));
        assert_eq!(format(&utc, "Q"), None);
        assert_eq!(format(&utc, "y'"), None);
    }
}
