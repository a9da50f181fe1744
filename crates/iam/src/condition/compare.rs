//! Compares one value of a request with one value of a condition.
//!
//! Invariants: a value that the operator's type cannot represent evaluates to `Unknown`.

use std::net::IpAddr;

use super::operator::Comparison;
use crate::pattern::{Case, Pattern};
use crate::request::Context;
use crate::truth::Truth;

/// A value of a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    Text(Pattern),
    /// Parsed once, since an address has no variables.
    Network(Network),
}

/// An address prefix (CIDR).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Network {
    address: IpAddr,
    bits: u32,
}

impl Wanted {
    pub(crate) fn of(comparison: Comparison, pattern: Pattern) -> Wanted {
        match (comparison, pattern.is_fixed()) {
            (Comparison::Address, true) => {
                Network::parse(pattern.fixed_part()).map_or(Wanted::Text(pattern), Wanted::Network)
            }
            _ => Wanted::Text(pattern),
        }
    }

    /// Whether the value has the comparison's type; a value with variables is checked when it is evaluated.
    pub(crate) fn is_well_formed(&self, comparison: Comparison) -> bool {
        let Wanted::Text(pattern) = self else { return true };
        if !pattern.is_fixed() {
            return comparison != Comparison::Address;
        }
        let text = pattern.fixed_part();
        match comparison {
            Comparison::Numeric(_) => number(text).is_some(),
            Comparison::Date(_) => seconds(text).is_some(),
            Comparison::Bool | Comparison::Null => boolean(text).is_some(),
            Comparison::Address => false,
            Comparison::Arn => arn(text).is_some() || text == "*",
            _ => true,
        }
    }

    pub(crate) fn is_fixed(&self) -> bool {
        match self {
            Wanted::Text(pattern) => pattern.is_fixed(),
            Wanted::Network(_) => true,
        }
    }

    /// Whether it is a network that contains every address.
    pub(crate) fn is_every_address(&self) -> bool {
        matches!(self, Wanted::Network(Network { bits: 0, .. }))
    }

    pub(crate) fn asks_for(&self, fits: &dyn Fn(&str) -> bool) -> bool {
        matches!(self, Wanted::Text(pattern) if pattern.asks_for(fits))
    }

    pub(crate) fn matches(&self, comparison: Comparison, value: &str, context: &dyn Context) -> Truth {
        let pattern = match self {
            Wanted::Network(network) => return network.holds(value),
            Wanted::Text(pattern) => pattern,
        };
        match comparison {
            Comparison::String | Comparison::Binary | Comparison::StringLike => {
                pattern.matches(value, Case::Exact, context)
            }
            Comparison::StringIgnoreCase => pattern.matches(value, Case::Ignored, context),
            Comparison::Arn => match arn(value) {
                Some(_) => pattern.matches(value, Case::Exact, context),
                None => Truth::Unknown,
            },
            Comparison::Numeric(relation) => both(pattern, value, context, number, |a, b| relation.holds(a, b)),
            Comparison::Date(relation) => both(pattern, value, context, seconds, |a, b| relation.holds(a, b)),
            Comparison::Bool | Comparison::Null => both(pattern, value, context, boolean, |a, b| a == b),
            Comparison::Address => match pattern.text(context).and_then(|text| Network::parse(&text)) {
                Some(network) => network.holds(value),
                None => Truth::Unknown,
            },
        }
    }
}

/// Parses both sides and compares them.
fn both<T>(
    pattern: &Pattern,
    value: &str,
    context: &dyn Context,
    read: impl Fn(&str) -> Option<T>,
    holds: impl Fn(&T, &T) -> bool,
) -> Truth {
    match (read(value), pattern.text(context).and_then(|text| read(&text))) {
        (Some(value), Some(wanted)) => holds(&value, &wanted).into(),
        _ => Truth::Unknown,
    }
}

fn boolean(text: &str) -> Option<bool> {
    match text {
        _ if text.eq_ignore_ascii_case("true") => Some(true),
        _ if text.eq_ignore_ascii_case("false") => Some(false),
        _ => None,
    }
}

/// A finite number.
fn number(text: &str) -> Option<f64> {
    text.parse::<f64>().ok().filter(|number| number.is_finite())
}

/// A time in seconds: ISO 8601 with a zone, a day, or seconds since 1970.
fn seconds(text: &str) -> Option<f64> {
    if let Ok(seconds) = text.parse::<f64>() {
        return seconds.is_finite().then_some(seconds);
    }
    if let Ok(time) = text.parse::<jiff::Timestamp>() {
        return Some(time.as_second() as f64 + f64::from(time.subsec_nanosecond()) / 1e9);
    }
    let day: jiff::civil::Date = text.parse().ok()?;
    Some(day.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp().as_second() as f64)
}

/// An ARN has six parts separated by colons; the last may contain further colons.
fn arn(text: &str) -> Option<()> {
    (text.starts_with("arn:") && text.split(':').count() >= 6).then_some(())
}

impl Network {
    /// `ADDRESS` or `ADDRESS/BITS`.
    fn parse(text: &str) -> Option<Network> {
        let (address, bits) = text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
        let address: IpAddr = address.parse().ok()?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            None => most,
            Some(bits) if bits.bytes().all(|byte| byte.is_ascii_digit()) => {
                bits.parse().ok().filter(|bits| *bits <= most)?
            }
            Some(_) => return None,
        };
        Some(Network { address, bits })
    }

    fn holds(self, value: &str) -> Truth {
        let Ok(value) = value.parse::<IpAddr>() else { return Truth::Unknown };
        let same = match (self.address, value.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(value)) => {
                let differ = u32::from(own) ^ u32::from(value);
                differ.checked_shr(32 - self.bits).unwrap_or(0) == 0
            }
            (IpAddr::V6(own), IpAddr::V6(value)) => {
                let differ = u128::from(own) ^ u128::from(value);
                differ.checked_shr(128 - self.bits).unwrap_or(0) == 0
            }
            _ => false,
        };
        same.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks() {
        let holds = |network: &str, address: &str| Network::parse(network).unwrap().holds(address);
        for (network, address, inside) in [
            ("10.0.0.0/8", "10.255.1.2", Truth::Yes),
            ("10.0.0.0/8", "11.0.0.0", Truth::No),
            ("0.0.0.0/0", "1.2.3.4", Truth::Yes),
            ("0.0.0.0/0", "::1", Truth::No),
            ("1.2.3.4", "1.2.3.4", Truth::Yes),
            ("1.2.3.4/32", "1.2.3.5", Truth::No),
            ("10.0.0.0/8", "::ffff:10.1.1.1", Truth::Yes),
            ("2001:db8::/32", "2001:db8:1::1", Truth::Yes),
            ("2001:db8::/32", "2001:db9::1", Truth::No),
            ("::/0", "fe80::1", Truth::Yes),
            ("::/0", "nonsense", Truth::Unknown),
        ] {
            assert_eq!(holds(network, address), inside, "{network} {address}");
        }
        for bad in ["", "10.0.0.0/33", "10.0.0.0/", "10.0.0.0/+8", "10.0.0/8", "::/129", "10.0.0.0/8/8"] {
            assert_eq!(Network::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn times() {
        assert_eq!(seconds("1970-01-02"), Some(86400.0));
        assert_eq!(seconds("1970-01-01T01:00:00+01:00"), Some(0.0));
        assert_eq!(seconds("1970-01-01T00:00:01.5Z"), Some(1.5));
        assert_eq!(seconds("1700000000"), Some(1.7e9));
        for bad in ["", "yesterday", "NaN", "inf", "1970-13-01"] {
            assert_eq!(seconds(bad), None, "{bad}");
        }
    }
}
