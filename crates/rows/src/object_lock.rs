//! Values of object lock: retention, legal hold, and a bucket's default retention.
//!
//! Why:        they are documents of an object and a setting of a bucket; both doors evaluate them.
//! Layout:     retention: 1, mode (1 governance, 2 compliance), until as signed 8 bytes big-endian, nanoseconds since
//!             1970; legal hold: 1, 0 off or 1 on; default of a bucket: 1, then nothing, or mode, unit (1 days, 2
//!             years), count as 4 bytes big-endian
//! Not here:   evaluating them (lock), XML and headers (the S3 door).

use bytes::Bytes;
use margay_env::Timestamp;

use crate::record::Damaged;

const LAYOUT: u8 = 1;
const DAY_NANOSECONDS: i64 = 24 * 3600 * 1_000_000_000;
/// A year of retention, as AWS counts it.
const YEAR_DAYS: i64 = 365;
/// Maximum default retention, in days and in years.
pub const RETENTION_DAYS_MAX: u32 = 36_500;
pub const RETENTION_YEARS_MAX: u32 = 100;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetentionMode {
    /// A caller with permission may shorten it or delete what it protects.
    Governance,
    /// Nobody can, until its time is over.
    Compliance,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    pub mode: RetentionMode,
    pub until: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetentionPeriod {
    Days(u32),
    Years(u32),
}

/// The retention of a bucket's new versions without one of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DefaultRetention {
    pub mode: RetentionMode,
    pub period: RetentionPeriod,
}

impl RetentionMode {
    fn number(self) -> u8 {
        match self {
            RetentionMode::Governance => 1,
            RetentionMode::Compliance => 2,
        }
    }

    fn of(number: u8) -> Result<RetentionMode, Damaged> {
        match number {
            1 => Ok(RetentionMode::Governance),
            2 => Ok(RetentionMode::Compliance),
            _ => Err(Damaged("unknown mode of retention")),
        }
    }
}

impl Retention {
    pub fn encode(&self) -> Bytes {
        [&[LAYOUT, self.mode.number()][..], &self.until.0.to_be_bytes()].concat().into()
    }

    pub fn decode(bytes: &[u8]) -> Result<Retention, Damaged> {
        let [LAYOUT, mode, until @ ..] = bytes else { return Err(Damaged("a retention does not decode")) };
        let until = until.try_into().map_err(|_| Damaged("a retention has a wrong length"))?;
        Ok(Retention { mode: RetentionMode::of(*mode)?, until: Timestamp(i64::from_be_bytes(until)) })
    }

    /// From a stored document; `None` if it does not decode.
    pub fn of_document(bytes: &[u8]) -> Option<Retention> {
        Retention::decode(bytes).ok()
    }
}

/// The document of a legal hold.
pub fn encode_legal_hold(on: bool) -> Bytes {
    vec![LAYOUT, on.into()].into()
}

/// Whether a stored legal hold is on; an undecodable one counts as on.
pub fn legal_hold_is_on(bytes: &[u8]) -> bool {
    bytes != [LAYOUT, 0]
}

impl DefaultRetention {
    /// The setting of a bucket with this default, or with none.
    pub fn encode(default: Option<DefaultRetention>) -> Vec<u8> {
        let mut bytes = vec![LAYOUT];
        if let Some(DefaultRetention { mode, period }) = default {
            let (unit, count) = match period {
                RetentionPeriod::Days(days) => (1, days),
                RetentionPeriod::Years(years) => (2, years),
            };
            bytes.extend_from_slice(&[mode.number(), unit]);
            bytes.extend_from_slice(&count.to_be_bytes());
        }
        bytes
    }

    pub fn decode(bytes: &[u8]) -> Result<Option<DefaultRetention>, Damaged> {
        match bytes {
            [LAYOUT] => Ok(None),
            [LAYOUT, mode, unit, count @ ..] => {
                let count = count.try_into().map_err(|_| Damaged("a default retention has a wrong length"))?;
                let count = u32::from_be_bytes(count);
                let period = match unit {
                    1 => RetentionPeriod::Days(count),
                    2 => RetentionPeriod::Years(count),
                    _ => return Err(Damaged("unknown unit of retention")),
                };
                Ok(Some(DefaultRetention { mode: RetentionMode::of(*mode)?, period }))
            }
            _ => Err(Damaged("a default retention does not decode")),
        }
    }

    pub fn from(self, now: Timestamp) -> Retention {
        let days = match self.period {
            RetentionPeriod::Days(days) => i64::from(days),
            RetentionPeriod::Years(years) => i64::from(years).saturating_mul(YEAR_DAYS),
        };
        let until = Timestamp(now.0.saturating_add(days.saturating_mul(DAY_NANOSECONDS)));
        Retention { mode: self.mode, until }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_come_back() {
        for mode in [RetentionMode::Governance, RetentionMode::Compliance] {
            let retention = Retention { mode, until: Timestamp(-5) };
            assert_eq!(Retention::decode(&retention.encode()), Ok(retention));
            for period in [RetentionPeriod::Days(1), RetentionPeriod::Years(RETENTION_YEARS_MAX)] {
                let default = Some(DefaultRetention { mode, period });
                assert_eq!(DefaultRetention::decode(&DefaultRetention::encode(default)), Ok(default));
            }
        }
        assert_eq!(DefaultRetention::decode(&DefaultRetention::encode(None)), Ok(None));
        assert!(legal_hold_is_on(&encode_legal_hold(true)) && !legal_hold_is_on(&encode_legal_hold(false)));
    }

    #[test]
    fn a_default_counts_from_now() {
        let default = |period| DefaultRetention { mode: RetentionMode::Governance, period }.from(Timestamp(7)).until.0;
        assert_eq!(default(RetentionPeriod::Days(2)), 7 + 2 * DAY_NANOSECONDS);
        assert_eq!(default(RetentionPeriod::Years(1)), 7 + 365 * DAY_NANOSECONDS);
    }

    proptest::proptest! {
        #[test]
        fn decoders_are_total(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..20)) {
            let _ = Retention::decode(&bytes);
            let _ = DefaultRetention::decode(&bytes);
        }
    }
}
