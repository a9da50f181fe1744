//! Times as HTTP and S3 write them.
//!
//! Why:      a list page writes 1000 of them, so the digits are computed here without allocation.
//! Not here: the time of a signature (auth).

use bytes::{BufMut, BytesMut};
use margay_env::Timestamp;

const SECONDS_PER_DAY: i64 = 86_400;
const WEEKDAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// A moment in the Gregorian calendar, UTC.
#[derive(Clone, Copy, Debug)]
struct Civil {
    year: i64,
    /// 1 to 12.
    month: u32,
    day: u32,
    /// Seconds since midnight.
    of_day: u32,
}

impl Civil {
    fn of(seconds: i64) -> Civil {
        // Days counted from 1 March of year 0, in eras of 400 years (Hinnant, "chrono-compatible date algorithms").
        let days = seconds.div_euclid(SECONDS_PER_DAY) + 719_468;
        let era = days.div_euclid(146_097);
        let of_era = days.rem_euclid(146_097);
        let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let shifted = (5 * of_year + 2) / 153;
        let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
        Civil {
            year: year_of_era + era * 400 + i64::from(month <= 2),
            month: month as u32,
            day: (of_year - (153 * shifted + 2) / 5 + 1) as u32,
            of_day: seconds.rem_euclid(SECONDS_PER_DAY) as u32,
        }
    }
}

fn put_digits(out: &mut BytesMut, number: i64, count: u32) {
    for place in (0..count).rev() {
        out.put_u8(b'0' + (number / 10i64.pow(place) % 10) as u8);
    }
}

/// Appends `2026-11-21T07:39:24.123Z`.
pub(crate) fn put_iso(out: &mut BytesMut, at: Timestamp) {
    IsoTimes::default().put(out, at);
}

/// Writes times, most of them of the same second as the one before: a listing has a thousand of them.
pub(crate) struct IsoTimes {
    /// The second that `text` shows.
    second: Option<i64>,
    text: [u8; 24],
}

impl Default for IsoTimes {
    fn default() -> IsoTimes {
        IsoTimes { second: None, text: *b"0000-00-00T00:00:00.000Z" }
    }
}

impl IsoTimes {
    /// Appends `2026-11-21T07:39:24.123Z`.
    pub(crate) fn put(&mut self, out: &mut BytesMut, at: Timestamp) {
        if self.second != Some(at.seconds()) {
            self.set_second(at.seconds());
        }
        set_digits(&mut self.text[20..23], at.subsecond_nanos() / 1_000_000);
        out.put_slice(&self.text);
    }

    fn set_second(&mut self, seconds: i64) {
        let civil = Civil::of(seconds);
        let text = &mut self.text;
        set_digits(&mut text[0..4], civil.year.rem_euclid(10_000) as u32);
        set_digits(&mut text[5..7], civil.month);
        set_digits(&mut text[8..10], civil.day);
        set_digits(&mut text[11..13], civil.of_day / 3600);
        set_digits(&mut text[14..16], civil.of_day / 60 % 60);
        set_digits(&mut text[17..19], civil.of_day % 60);
        self.second = Some(seconds);
    }
}

/// Writes a number over the digits of a text, as many as there are.
fn set_digits(digits: &mut [u8], mut number: u32) {
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

/// Day, month by its name, year and time of the day: `06/Nov/1994:08:49:37` of `//:`.
fn put_named_month(out: &mut BytesMut, civil: &Civil, between: [u8; 3]) {
    let [behind_day, behind_month, behind_year] = between;
    put_digits(out, i64::from(civil.day), 2);
    out.put_u8(behind_day);
    out.put_slice(MONTHS[civil.month as usize - 1].as_bytes());
    out.put_u8(behind_month);
    put_digits(out, civil.year, 4);
    out.put_u8(behind_year);
    put_clock(out, civil.of_day);
}

fn put_clock(out: &mut BytesMut, of_day: u32) {
    put_digits(out, i64::from(of_day / 3600), 2);
    out.put_u8(b':');
    put_digits(out, i64::from(of_day / 60 % 60), 2);
    out.put_u8(b':');
    put_digits(out, i64::from(of_day % 60), 2);
}

/// `2026-11-21T07:39:24.123Z`.
pub fn iso(at: Timestamp) -> String {
    let mut out = BytesMut::with_capacity(24);
    put_iso(&mut out, at);
    String::from_utf8(out.into()).expect("digits and punctuation")
}

/// `Sat, 21 Nov 2026 07:39:24 GMT`.
pub(crate) fn http_date(at: Timestamp) -> String {
    let civil = Civil::of(at.seconds());
    let mut out = BytesMut::with_capacity(29);
    let weekday = at.seconds().div_euclid(SECONDS_PER_DAY).rem_euclid(7);
    out.put_slice(WEEKDAYS[weekday as usize].as_bytes());
    out.put_slice(b", ");
    put_named_month(&mut out, &civil, *b"   ");
    out.put_slice(b" GMT");
    String::from_utf8(out.into()).expect("digits, letters and punctuation")
}

/// `06/Nov/1994:08:49:37 +0000`, as access logs have it.
pub(crate) fn log_time(at: Timestamp) -> String {
    let mut out = BytesMut::with_capacity(26);
    put_named_month(&mut out, &Civil::of(at.seconds()), *b"//:");
    out.put_slice(b" +0000");
    String::from_utf8(out.into()).expect("digits, letters and punctuation")
}

/// Reads a date of HTTP in its three forms, or one of ISO 8601; whole seconds.
pub(crate) fn parse_http_date(text: &str) -> Option<Timestamp> {
    let text = text.trim();
    // The preferred form is RFC 2822's; the two obsolete ones are RFC 850's and C's asctime.
    let seconds = jiff::fmt::rfc2822::DateTimeParser::new()
        .parse_timestamp(text)
        .map(jiff::Timestamp::as_second)
        .or_else(|_| text.parse::<jiff::Timestamp>().map(jiff::Timestamp::as_second))
        .or_else(|_| obsolete(text, "%A, %d-%b-%y %H:%M:%S GMT"))
        .or_else(|_| obsolete(text, "%a %b %e %H:%M:%S %Y"))
        .ok()?;
    Some(Timestamp(seconds.checked_mul(1_000_000_000)?))
}

fn obsolete(text: &str, format: &str) -> Result<i64, jiff::Error> {
    let moment = jiff::fmt::strtime::parse(format, text)?.to_datetime()?;
    Ok(moment.to_zoned(jiff::tz::TimeZone::UTC)?.timestamp().as_second())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOMENT: Timestamp = Timestamp(784_111_777_120_000_000);

    #[test]
    fn the_forms_of_rfc_9110() {
        assert_eq!(http_date(MOMENT), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(iso(MOMENT), "1994-11-06T08:49:37.120Z");
        assert_eq!(log_time(MOMENT), "06/Nov/1994:08:49:37 +0000");
        let whole = Some(Timestamp(784_111_777_000_000_000));
        assert_eq!(parse_http_date("Sun, 06 Nov 1994 08:49:37 GMT"), whole);
        assert_eq!(parse_http_date("Sunday, 06-Nov-94 08:49:37 GMT"), whole);
        assert_eq!(parse_http_date("Sun Nov  6 08:49:37 1994"), whole);
        assert_eq!(parse_http_date("1994-11-06T08:49:37Z"), whole);
        assert_eq!(parse_http_date("yesterday"), None);
        assert_eq!(parse_http_date("Sun, 06 Nov 99999 08:49:37 GMT"), None);
    }

    #[test]
    fn times_behind_each_other_are_as_alone() {
        let mut times = IsoTimes::default();
        for nanos in [0, 999, 1_000_000, 999_999_999, 1_000_000_000, 86_399_999_000_000, 86_400_000_000_000, -1, 0] {
            let mut out = BytesMut::new();
            times.put(&mut out, Timestamp(nanos));
            assert_eq!(std::str::from_utf8(&out).unwrap(), iso(Timestamp(nanos)));
        }
    }

    #[test]
    fn days_agree_with_the_calendar_library() {
        for day in (-36_525..73_050).step_by(13) {
            let at = Timestamp(day * SECONDS_PER_DAY * 1_000_000_000 + 86_399_999_000_000);
            let expected = jiff::Timestamp::from_nanosecond(at.0.into()).unwrap();
            assert_eq!(iso(at), expected.strftime("%Y-%m-%dT%H:%M:%S.%3fZ").to_string());
            assert_eq!(http_date(at), expected.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string());
        }
    }
}
