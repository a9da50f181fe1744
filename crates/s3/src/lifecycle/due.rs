//! Evaluates lifecycle rules: when an object, version or upload expires.
//!
//! Invariants: D1 the earliest rule wins, and the first of equal ones.
//!             D2 a day ends at midnight UTC: something old enough in the afternoon expires at the end of that day.

use margay_env::Timestamp;

use super::{Expiration, Filter, Lifecycle, Noncurrent, Rule};

/// The length of a day; tests shorten it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Days {
    nanos: i64,
}

impl Days {
    /// Days of 86,400 seconds, from midnight to midnight UTC.
    pub const REAL: Days = Days { nanos: 86_400 * 1_000_000_000 };

    /// Days of this many seconds, counted from 1970; at least one second.
    pub fn of_seconds(seconds: u32) -> Days {
        Days { nanos: i64::from(seconds.max(1)) * 1_000_000_000 }
    }

    /// The midnight at the end of the day on which `from` is `count` days old.
    pub fn after(self, from: Timestamp, count: u32) -> Timestamp {
        let old = from.0.saturating_add(self.nanos.saturating_mul(count.into()));
        let into = old.rem_euclid(self.nanos);
        Timestamp(if into == 0 { old } else { old.saturating_add(self.nanos - into) })
    }

    /// The number of the day that contains `at`.
    pub fn number(self, at: Timestamp) -> i64 {
        at.0.div_euclid(self.nanos)
    }

    pub fn seconds(self) -> u32 {
        u32::try_from(self.nanos / 1_000_000_000).unwrap_or(u32::MAX)
    }
}

/// An object or version as a rule sees it.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    pub key: &'a str,
    /// In bytes.
    pub size: u64,
    pub modified: Timestamp,
    /// `None`: not loaded yet. Every tag filter then matches, so that most objects never need their tags.
    pub tags: Option<&'a [(String, String)]>,
}

/// An expiry time, and its rule.
#[derive(Clone, Copy, Debug)]
pub struct Due<'r> {
    pub at: Timestamp,
    pub rule: &'r Rule,
}

impl Lifecycle {
    /// The expiry of a current version.
    pub fn current(&self, subject: &Subject<'_>, days: Days) -> Option<Due<'_>> {
        self.earliest(|rule| match rule.expiration? {
            Expiration::Days(count) => rule.filter.fits(subject).then(|| days.after(subject.modified, count)),
            Expiration::Date(at) => rule.filter.fits(subject).then_some(at),
            Expiration::DeleteMarker(_) => None,
        })
    }

    /// The expiry of a version that became noncurrent at `replaced`, with `newer` noncurrent versions newer than it.
    pub fn noncurrent(&self, subject: &Subject<'_>, replaced: Timestamp, newer: usize, days: Days) -> Option<Due<'_>> {
        self.earliest(|rule| {
            let Noncurrent { days: count, keep } = rule.noncurrent?;
            let is_kept = keep.is_some_and(|keep| newer < keep as usize);
            (!is_kept && rule.filter.fits(subject)).then(|| days.after(replaced, count))
        })
    }

    /// The expiry of a delete marker with no version below it. A marker has no size and no tags.
    pub fn lone_marker(&self, key: &str, made: Timestamp, days: Days) -> Option<Due<'_>> {
        let fits = |filter: &Filter| filter.fits_key(key) && !filter.looks_inside();
        self.earliest(|rule| match rule.expiration? {
            Expiration::DeleteMarker(true) => fits(&rule.filter).then_some(made),
            Expiration::Days(count) => fits(&rule.filter).then(|| days.after(made, count)),
            Expiration::Date(at) => fits(&rule.filter).then_some(at),
            Expiration::DeleteMarker(false) => None,
        })
    }

    /// The expiry of an unfinished upload.
    pub fn upload(&self, key: &str, initiated: Timestamp, days: Days) -> Option<Due<'_>> {
        self.earliest(|rule| {
            let count = rule.abort_days?;
            rule.filter.fits_key(key).then(|| days.after(initiated, count))
        })
    }

    /// Whether any rule can expire current versions.
    pub fn ends_current(&self) -> bool {
        self.any(|rule| matches!(rule.expiration, Some(Expiration::Days(_) | Expiration::Date(_))))
    }

    /// Whether any rule can expire noncurrent versions or delete markers.
    pub fn ends_versions(&self) -> bool {
        self.any(|rule| rule.noncurrent.is_some() || rule.expiration.is_some())
    }

    /// Whether any rule can abort uploads.
    pub fn ends_uploads(&self) -> bool {
        self.any(|rule| rule.abort_days.is_some())
    }

    fn any(&self, holds: impl Fn(&Rule) -> bool) -> bool {
        self.rules.iter().any(|rule| rule.enabled && holds(rule))
    }

    fn earliest(&self, end: impl Fn(&Rule) -> Option<Timestamp>) -> Option<Due<'_>> {
        let enabled = self.rules.iter().filter(|rule| rule.enabled);
        let ends = enabled.filter_map(|rule| Some(Due { at: end(rule)?, rule }));
        ends.min_by_key(|due| due.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lifecycle::read;

    const HOUR: i64 = 3600 * 1_000_000_000;
    const DAY: i64 = 24 * HOUR;

    fn rules(inside: &str) -> Lifecycle {
        let document = format!("<LifecycleConfiguration>{inside}</LifecycleConfiguration>");
        read(document.as_bytes()).unwrap()
    }

    fn rule(id: &str, filter: &str, action: &str) -> String {
        format!("<Rule><ID>{id}</ID><Filter>{filter}</Filter><Status>Enabled</Status>{action}</Rule>")
    }

    fn object(key: &str, size: u64) -> Subject<'_> {
        Subject { key, size, modified: Timestamp(10 * DAY + HOUR), tags: None }
    }

    #[test]
    fn a_day_ends_at_midnight() {
        let at = |nanos, count| Days::REAL.after(Timestamp(nanos), count).0;
        assert_eq!(at(10 * DAY + 1, 1), 12 * DAY);
        assert_eq!(at(10 * DAY, 1), 11 * DAY);
        assert_eq!(at(10 * DAY - 1, 0), 10 * DAY);
        assert_eq!(at(i64::MAX - 1, u32::MAX), i64::MAX);
        let short = Days::of_seconds(10);
        assert_eq!(short.after(Timestamp(25_000_000_001), 2).seconds(), 50);
        assert_eq!((short.number(Timestamp(25_000_000_000)), short.seconds()), (2, 10));
    }

    #[test]
    fn the_earliest_rule_that_fits_wins() {
        let days = |count| format!("<Expiration><Days>{count}</Days></Expiration>");
        let all = rules(&[rule("a", "<Prefix>x/</Prefix>", &days(5)), rule("b", "", &days(7))].concat());
        let due = all.current(&object("x/1", 1), Days::REAL).unwrap();
        assert_eq!((due.rule.id.as_str(), due.at.0), ("a", 16 * DAY));
        let due = all.current(&object("y", 1), Days::REAL).unwrap();
        assert_eq!((due.rule.id.as_str(), due.at.0), ("b", 18 * DAY));
        assert!(all.noncurrent(&object("y", 1), Timestamp(0), 9, Days::REAL).is_none());
        assert!(all.upload("y", Timestamp(0), Days::REAL).is_none());
    }

    #[test]
    fn a_disabled_rule_decides_nothing() {
        let all = rules(
            "<Rule><ID>a</ID><Prefix/><Status>Disabled</Status><Expiration><Days>1</Days></Expiration>\
             <AbortIncompleteMultipartUpload><DaysAfterInitiation>1</DaysAfterInitiation>\
             </AbortIncompleteMultipartUpload></Rule>",
        );
        assert!(all.current(&object("k", 1), Days::REAL).is_none());
        assert!(!all.ends_current() && !all.ends_uploads() && !all.ends_versions());
    }

    #[test]
    fn sizes_and_tags_filter() {
        let filter = "<And><Tag><Key>k</Key><Value>v</Value></Tag><ObjectSizeGreaterThan>10</ObjectSizeGreaterThan>\
                      <ObjectSizeLessThan>20</ObjectSizeLessThan></And>";
        let all = rules(&rule("a", filter, "<Expiration><Days>1</Days></Expiration>"));
        let ends = |size, tags: Option<&[(&str, &str)]>| {
            let tags = tags.map(|tags| tags.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect());
            let tags: Option<Vec<(String, String)>> = tags;
            all.current(&Subject { tags: tags.as_deref(), ..object("k", size) }, Days::REAL).is_some()
        };
        assert!(!ends(10, None) && ends(11, None) && ends(19, None) && !ends(20, None));
        assert!(ends(11, Some(&[("k", "v"), ("o", "p")])));
        assert!(!ends(11, Some(&[("k", "w")])) && !ends(11, Some(&[])));
        assert!(all.lone_marker("k", Timestamp(0), Days::REAL).is_none());
    }

    #[test]
    fn some_replaced_versions_are_kept() {
        let action = "<NoncurrentVersionExpiration><NoncurrentDays>3</NoncurrentDays>\
                      <NewerNoncurrentVersions>2</NewerNoncurrentVersions></NoncurrentVersionExpiration>";
        let all = rules(&rule("a", "", action));
        let end = |newer| all.noncurrent(&object("k", 1), Timestamp(DAY), newer, Days::REAL).map(|due| due.at.0);
        assert_eq!([end(0), end(1), end(2), end(3)], [None, None, Some(4 * DAY), Some(4 * DAY)]);
        assert!(all.current(&object("k", 1), Days::REAL).is_none());
    }

    #[test]
    fn a_lone_marker_ends_at_once_or_with_its_age() {
        let marker = "<Expiration><ExpiredObjectDeleteMarker>true</ExpiredObjectDeleteMarker></Expiration>";
        let all = rules(&rule("a", "<Prefix>p</Prefix>", marker));
        assert_eq!(all.lone_marker("pq", Timestamp(5), Days::REAL).unwrap().at, Timestamp(5));
        assert!(all.lone_marker("q", Timestamp(5), Days::REAL).is_none());
        assert!(all.current(&object("pq", 1), Days::REAL).is_none());
        let aged = rules(&rule("a", "", "<Expiration><Days>2</Days></Expiration>"));
        assert_eq!(aged.lone_marker("q", Timestamp(5), Days::REAL).unwrap().at, Timestamp(3 * DAY));
    }

    #[test]
    fn a_date_ends_everything_from_then_on() {
        let action = "<Expiration><Date>2026-11-21T00:00:00.000Z</Date></Expiration>";
        let all = rules(&rule("a", "", action));
        assert_eq!(all.current(&object("k", 1), Days::REAL).unwrap().at.seconds(), 1_795_219_200);
    }
}
