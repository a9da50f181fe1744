//! Times in the formats of HTTP and S3.
//!
//! Why:      a page of a listing has 1000 times, so their digits are written in place, without a format string or
//!           allocation.
//! Not here: the time of a signature (auth).

use bytes::{BufMut, BytesMut};
use jiff::civil::DateTime;
use jiff::fmt::rfc2822::DateTimePrinter;
use jiff::tz::Offset;
use margay_env::Timestamp;

static HTTP: DateTimePrinter = DateTimePrinter::new();

fn moment(at: Timestamp) -> jiff::Timestamp {
    jiff::Timestamp::from_second(at.seconds()).expect("a timestamp lies between the years 1677 and 2262")
}

/// Date and time of day in UTC; `None` outside the years -9999 to 9999, which the calendar supports.
pub(crate) fn civil(seconds: i64) -> Option<DateTime> {
    jiff::Timestamp::from_second(seconds).ok().map(|moment| Offset::UTC.to_datetime(moment))
}

/// Appends `2026-11-21T07:39:24.123Z`.
pub(crate) fn put_iso(out: &mut BytesMut, at: Timestamp) {
    IsoTimes::default().put(out, at);
}

/// Writes times fast when most are in the same second as the one before, as in a listing.
pub(crate) struct IsoTimes {
    /// The second in `text`.
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
        set_digits(&mut self.text[20..23], (at.subsecond_nanos() / 1_000_000) as i16);
        out.put_slice(&self.text);
    }

    fn set_second(&mut self, seconds: i64) {
        let civil = civil(seconds).expect("a timestamp lies between the years 1677 and 2262");
        let text = &mut self.text;
        set_digits(&mut text[0..4], civil.year());
        set_digits(&mut text[5..7], civil.month().into());
        set_digits(&mut text[8..10], civil.day().into());
        set_digits(&mut text[11..13], civil.hour().into());
        set_digits(&mut text[14..16], civil.minute().into());
        set_digits(&mut text[17..19], civil.second().into());
        self.second = Some(seconds);
    }
}

/// Overwrites all digits of a text with a non-negative number.
pub(crate) fn set_digits(digits: &mut [u8], mut number: i16) {
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

/// `2026-11-21T07:39:24.123Z`.
pub fn iso(at: Timestamp) -> String {
    let mut out = BytesMut::with_capacity(24);
    put_iso(&mut out, at);
    String::from_utf8(out.into()).expect("digits and punctuation")
}

/// `Sat, 21 Nov 2026 07:39:24 GMT`.
pub(crate) fn http_date(at: Timestamp) -> String {
    HTTP.timestamp_to_rfc9110_string(&moment(at)).expect("the year has four digits")
}

/// `06/Nov/1994:08:49:37 +0000`, the format of access logs.
pub(crate) fn log_time(at: Timestamp) -> String {
    moment(at).strftime("%d/%b/%Y:%H:%M:%S +0000").to_string()
}

/// Parses an HTTP date in any of its three forms, or an ISO 8601 date; whole seconds.
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
    fn every_form_is_that_of_its_pattern() {
        for day in (-36_525..73_050).step_by(13) {
            let at = Timestamp(day * 86_400 * 1_000_000_000 + 86_399_999_000_000);
            let expected = jiff::Timestamp::from_nanosecond(at.0.into()).unwrap();
            assert_eq!(iso(at), expected.strftime("%Y-%m-%dT%H:%M:%S.%3fZ").to_string());
            assert_eq!(http_date(at), expected.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string());
        }
        for at in [Timestamp(i64::MIN), Timestamp(i64::MAX)] {
            assert_eq!((iso(at).len(), http_date(at).len(), log_time(at).len()), (24, 29, 26));
        }
    }
}
