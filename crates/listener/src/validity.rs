//! When a certificate ends: the only field of X.509 that is read here.
//!
//! Why:        an operator must be warned before clients refuse the server; a whole parser of X.509 is 20 packages for one date.
//! Source:     RFC 5280, section 4.1; X.690 for DER.
//! Invariants: A1 any bytes give a date or nothing, never a panic.
//! Not here:   whether the certificate is valid otherwise (rustls).

const SEQUENCE: u8 = 0x30;
const INTEGER: u8 = 0x02;
/// The version of a certificate.
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// The end of a certificate's validity, in seconds since 1970.
pub(crate) fn not_after(certificate: &[u8]) -> Option<i64> {
    let (certificate, _) = take(certificate, SEQUENCE)?;
    let (mut fields, _) = take(certificate, SEQUENCE)?;
    if fields.first() == Some(&VERSION) {
        fields = take(fields, VERSION)?.1;
    }
    let (_, fields) = take(fields, INTEGER)?;
    // The algorithm of the signature, and the issuer.
    let (_, fields) = take(fields, SEQUENCE)?;
    let (_, fields) = take(fields, SEQUENCE)?;
    let (validity, _) = take(fields, SEQUENCE)?;
    let (_, _, validity) = value(validity)?;
    let (kind, end, _) = value(validity)?;
    seconds(kind, end)
}

/// The content of a value with this tag, and what follows it.
fn take(bytes: &[u8], wanted: u8) -> Option<(&[u8], &[u8])> {
    let (tag, content, rest) = value(bytes)?;
    (tag == wanted).then_some((content, rest))
}

/// The first value: its tag, its content, and what follows.
fn value(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = bytes.split_first()?;
    let (&short, mut rest) = rest.split_first()?;
    let mut length = usize::from(short);
    if short & 0x80 != 0 {
        let count = usize::from(short & 0x7f);
        // DER has no indefinite length, and no certificate has 16 MiB.
        if !(1..=3).contains(&count) {
            return None;
        }
        let digits = rest.get(..count)?;
        length = digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit));
        rest = &rest[count..];
    }
    Some((tag, rest.get(..length)?, &rest[length..]))
}

/// A time as certificates write it: `YYMMDDHHMMSSZ`, or with four digits of the year.
fn seconds(kind: u8, text: &[u8]) -> Option<i64> {
    let digits = text.strip_suffix(b"Z")?;
    let (year, rest) = match kind {
        UTC_TIME if digits.len() == 12 => {
            let year = number(&digits[..2])?;
            (if year < 50 { 2000 + year } else { 1900 + year }, &digits[2..])
        }
        GENERALIZED_TIME if digits.len() == 14 => (number(&digits[..4])?, &digits[4..]),
        _ => return None,
    };
    let part = |at: usize| number(&rest[at..at + 2]);
    let (month, day, hour, minute, second) = (part(0)?, part(2)?, part(4)?, part(6)?, part(8)?);
    let fits = (1..=12).contains(&month) && (1..=31).contains(&day) && hour < 24 && minute < 60 && second < 61;
    fits.then(|| days(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second)
}

fn number(digits: &[u8]) -> Option<i64> {
    digits.iter().try_fold(0, |number, digit| digit.is_ascii_digit().then(|| number * 10 + i64::from(digit - b'0')))
}

/// Days since 1970-01-01 of a day of the Gregorian calendar. March begins the year, so that the leap day is its last.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * month + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

#[cfg(test)]
mod tests {
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject;

    use super::*;

    #[test]
    fn times_are_seconds() {
        for (kind, text, at) in [
            (UTC_TIME, "700101000000Z", Some(0)),
            (UTC_TIME, "491231235959Z", Some(2_524_607_999)),
            (GENERALIZED_TIME, "20500101000000Z", Some(2_524_608_000)),
            (GENERALIZED_TIME, "20240229120000Z", Some(1_709_208_000)),
            (GENERALIZED_TIME, "99991231235959Z", Some(253_402_300_799)),
            (UTC_TIME, "701301000000Z", None),
            (UTC_TIME, "7001010000Z", None),
            (UTC_TIME, "70010100000xZ", None),
            (UTC_TIME, "700101000000", None),
            (INTEGER, "700101000000Z", None),
        ] {
            assert_eq!(seconds(kind, text.as_bytes()), at, "{text}");
        }
    }

    #[test]
    fn the_end_of_a_real_certificate_is_found_and_broken_ones_give_nothing_or_a_date() {
        let pem = include_bytes!("../../../tests/fixtures/tls/first.pem");
        let certificate = CertificateDer::from_pem_slice(pem).unwrap();
        assert_eq!(not_after(&certificate), Some(4_948_848_907));
        for end in 0..certificate.len() {
            not_after(&certificate[..end]);
            let mut changed = certificate.to_vec();
            for bit in [1, 0x80, 0xff] {
                changed[end] ^= bit;
                not_after(&changed);
            }
        }
        assert_eq!(not_after(&[SEQUENCE, 0x84, 0xff, 0xff, 0xff, 0xff]), None);
        assert_eq!(not_after(&[SEQUENCE, 0x80]), None);
    }
}
