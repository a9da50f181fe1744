//! Parses and validates a client's lifecycle document.
//!
//! Why:        a misread rule deletes the wrong objects, so a document is accepted as a whole or refused; codes and
//!             messages are AWS's, since tools show them.
//! Invariants: V1 an accepted document passed every check; a transition is refused by name, because there is one
//!                storage class.

use std::collections::HashSet;

use margay_env::Timestamp;

use super::{Expiration, Filter, Form, ID_CHARS_MAX, Lifecycle, NEWER_VERSIONS_MAX, Noncurrent, RULES_MAX, Rule};
use crate::error::{Code, S3Error};
use crate::xml::read::{Malformed, walk};

const ROOT: &str = "LifecycleConfiguration";
/// Longest key and value of a tag, in characters.
const TAG_KEY_CHARS_MAX: usize = 128;
const TAG_VALUE_CHARS_MAX: usize = 256;
const SECONDS_PER_DAY: i64 = 86_400;

/// A partly parsed rule; only its structure is checked.
#[derive(Debug, Default)]
struct Draft {
    id: Option<String>,
    status: Option<String>,
    prefix: Option<String>,
    filter: Option<Conditions>,
    expiration: Option<Ends>,
    noncurrent: Option<Counts>,
    abort: Option<Option<i64>>,
    transition: bool,
    /// A transition's date is not at midnight.
    transition_date_is_off: bool,
    /// Containers that have ended; a second one of the same name is malformed.
    closed: Vec<String>,
}

#[derive(Debug, Default)]
struct Conditions {
    and: bool,
    prefix: Option<String>,
    tag_key: Option<String>,
    tag_value: Option<String>,
    tags: Vec<(String, String)>,
    larger_than: Option<i64>,
    smaller_than: Option<i64>,
    /// Conditions outside of `And`.
    direct: usize,
}

#[derive(Debug, Default)]
struct Ends {
    days: Option<i64>,
    date: Option<Timestamp>,
    marker: Option<bool>,
}

#[derive(Debug, Default)]
struct Counts {
    days: Option<i64>,
    keep: Option<i64>,
}

/// Parses and checks a document; rules without an id get one.
pub fn read(document: &[u8]) -> Result<Lifecycle, S3Error> {
    let mut drafts = Vec::new();
    let mut draft = Draft::default();
    walk(document, &mut |path, text| match path.split_once('/') {
        None if path == ROOT => Ok(()),
        Some((ROOT, "Rule")) if drafts.len() == RULES_MAX => Err(Malformed::because("more than 1000 rules")),
        Some((ROOT, "Rule")) => {
            drafts.push(std::mem::take(&mut draft));
            Ok(())
        }
        Some((ROOT, inside)) => match inside.strip_prefix("Rule/") {
            Some(element) => draft.element(element, text),
            None => Err(Malformed::because("an unknown element")),
        },
        _ => Err(Malformed::because("not a LifecycleConfiguration")),
    })?;
    if drafts.is_empty() {
        return Err(Malformed::because("no rules").into());
    }
    let mut taken: HashSet<String> = HashSet::new();
    for id in drafts.iter().filter_map(|draft| draft.id.as_ref()).filter(|id| !id.is_empty()) {
        if !taken.insert(id.clone()) {
            let message = "Rule ID must be unique. Found same ID for more than one rule";
            return Err(S3Error::new(Code::InvalidArgument, message));
        }
    }
    let mut rules = Vec::with_capacity(drafts.len());
    for draft in drafts {
        rules.push(draft.finish(&mut taken)?);
    }
    Ok(Lifecycle { rules })
}

/// Sets a value that may occur once.
fn once<T>(place: &mut Option<T>, value: T) -> Result<(), Malformed> {
    if place.replace(value).is_some() { Err(Malformed::because("an element stands twice")) } else { Ok(()) }
}

fn number(text: &str) -> Result<i64, Malformed> {
    text.trim().parse().map_err(|_| Malformed::because("not a number"))
}

impl Draft {
    /// An element inside the rule ends.
    fn element(&mut self, path: &str, text: &str) -> Result<(), Malformed> {
        let (container, rest) = path.split_once('/').unwrap_or((path, ""));
        match (container, rest) {
            ("ID", "") => once(&mut self.id, text.to_owned()),
            ("Status", "") => once(&mut self.status, text.trim().to_owned()),
            ("Prefix", "") => once(&mut self.prefix, text.to_owned()),
            ("Transition", "Date") => {
                self.transition_date_is_off |= !is_midnight(date(text)?);
                Ok(())
            }
            ("Transition" | "NoncurrentVersionTransition", _) => {
                self.transition = true;
                Ok(())
            }
            _ if self.closed.iter().any(|closed| closed == container) => {
                Err(Malformed::because("an element stands twice"))
            }
            ("Filter", _) => {
                self.close(container, rest);
                self.filter.get_or_insert_default().element(rest, text)
            }
            ("Expiration", _) => {
                self.close(container, rest);
                self.expiration.get_or_insert_default().element(rest, text)
            }
            ("NoncurrentVersionExpiration", _) => {
                self.close(container, rest);
                self.noncurrent.get_or_insert_default().element(rest, text)
            }
            ("AbortIncompleteMultipartUpload", "DaysAfterInitiation") => {
                once(self.abort.get_or_insert_default(), number(text)?)
            }
            ("AbortIncompleteMultipartUpload", "") => {
                self.close(container, rest);
                self.abort.get_or_insert_default();
                Ok(())
            }
            _ => Err(Malformed::because("an unknown element")),
        }
    }

    fn close(&mut self, container: &str, rest: &str) {
        if rest.is_empty() {
            self.closed.push(container.to_owned());
        }
    }

    fn finish(self, taken: &mut HashSet<String>) -> Result<Rule, S3Error> {
        if self.transition_date_is_off {
            return Err(off_midnight());
        }
        if self.transition {
            return Err(S3Error::not_implemented("Transition of PutBucketLifecycleConfiguration"));
        }
        let enabled = match self.status.as_deref() {
            Some("Enabled") => true,
            Some("Disabled") => false,
            _ => return Err(Malformed::because("Status is Enabled or Disabled").into()),
        };
        let id = match self.id.filter(|id| !id.is_empty()) {
            Some(id) if id.chars().count() > ID_CHARS_MAX => {
                let message = "ID length should not exceed allowed limit of 255";
                return Err(S3Error::new(Code::InvalidArgument, message));
            }
            Some(id) => id,
            None => new_id(taken),
        };
        let filter = match (self.prefix, self.filter) {
            (Some(prefix), None) => Filter { prefix: Some(prefix), ..Filter::empty(Form::Prefix) },
            (None, Some(conditions)) => conditions.finish()?,
            _ => return Err(Malformed::because("a rule has a Filter or a Prefix").into()),
        };
        let expiration = self.expiration.map(Ends::finish).transpose()?;
        let noncurrent = self.noncurrent.map(Counts::finish).transpose()?;
        let abort_days = match self.abort {
            None => None,
            Some(None) => return Err(Malformed::because("no DaysAfterInitiation").into()),
            Some(Some(days)) => Some(positive(days, "DaysAfterInitiation", "AbortIncompleteMultipartUpload")?),
        };
        let rule = Rule { id, enabled, filter, expiration, noncurrent, abort_days };
        check_together(&rule)?;
        Ok(rule)
    }
}

/// An id that no other rule has.
fn new_id(taken: &mut HashSet<String>) -> String {
    let free = (1..).map(|number| format!("rule-{number}")).find(|id| !taken.contains(id));
    let id = free.expect("there are more numbers than rules");
    taken.insert(id.clone());
    id
}

/// Refuses combinations that a rule may not have.
fn check_together(rule: &Rule) -> Result<(), S3Error> {
    if rule.expiration.is_none() && rule.noncurrent.is_none() && rule.abort_days.is_none() {
        return Err(S3Error::invalid_request("At least one action needs to be specified in a rule"));
    }
    let inside = match (rule.filter.tags.is_empty(), rule.filter.looks_inside()) {
        (false, _) => "Tags",
        (true, true) => "Object Size",
        (true, false) => return Ok(()),
    };
    if rule.abort_days.is_some() {
        let message = format!("AbortIncompleteMultipartUpload cannot be specified with {inside}.");
        return Err(S3Error::invalid_request(message));
    }
    if matches!(rule.expiration, Some(Expiration::DeleteMarker(_))) {
        return Err(S3Error::invalid_request(format!("ExpiredObjectDeleteMarker cannot be specified with {inside}.")));
    }
    Ok(())
}

impl Conditions {
    fn element(&mut self, path: &str, text: &str) -> Result<(), Malformed> {
        let inside = if path == "And" { Some("") } else { path.strip_prefix("And/") };
        self.direct += usize::from(inside.is_none() && !path.is_empty() && !path.contains('/'));
        match (inside.unwrap_or(path), inside) {
            ("", None) => Ok(()),
            ("", Some(_)) if self.and => Err(Malformed::because("an element stands twice")),
            ("", Some(_)) => {
                self.and = true;
                Ok(())
            }
            ("Prefix", _) => once(&mut self.prefix, text.to_owned()),
            ("ObjectSizeGreaterThan", _) => once(&mut self.larger_than, number(text)?),
            ("ObjectSizeLessThan", _) => once(&mut self.smaller_than, number(text)?),
            ("Tag/Key", _) => once(&mut self.tag_key, text.to_owned()),
            ("Tag/Value", _) => once(&mut self.tag_value, text.to_owned()),
            ("Tag", _) => match (self.tag_key.take(), self.tag_value.take()) {
                (Some(key), Some(value)) => {
                    self.tags.push((key, value));
                    Ok(())
                }
                _ => Err(Malformed::because("a tag has a key and a value")),
            },
            _ => Err(Malformed::because("an unknown element")),
        }
    }

    fn finish(self) -> Result<Filter, S3Error> {
        let count = usize::from(self.prefix.is_some())
            + self.tags.len()
            + usize::from(self.larger_than.is_some())
            + usize::from(self.smaller_than.is_some());
        if self.and && (self.direct > 0 || count == 0) || !self.and && count > 1 {
            return Err(Malformed::because("several conditions stand in one And").into());
        }
        for (index, (key, value)) in self.tags.iter().enumerate() {
            if key.is_empty() || key.chars().count() > TAG_KEY_CHARS_MAX {
                return Err(S3Error::new(Code::InvalidArgument, "The TagKey you have provided is invalid"));
            }
            if value.chars().count() > TAG_VALUE_CHARS_MAX {
                return Err(S3Error::new(Code::InvalidArgument, "The TagValue you have provided is invalid"));
            }
            if self.tags[..index].iter().any(|(other, _)| other == key) {
                return Err(S3Error::invalid_request("Duplicate Tag Keys are not allowed."));
            }
        }
        let size = |bytes: Option<i64>, name: &str| match bytes.map(u64::try_from) {
            None => Ok(None),
            Some(Ok(bytes)) => Ok(Some(bytes)),
            Some(Err(_)) => {
                Err(S3Error::new(Code::InvalidArgument, format!("'{name}' should be a non-negative integer")))
            }
        };
        let larger_than = size(self.larger_than, "ObjectSizeGreaterThan")?;
        let smaller_than = size(self.smaller_than, "ObjectSizeLessThan")?;
        if smaller_than.is_some_and(|below| below <= larger_than.unwrap_or(0)) {
            let message = "'ObjectSizeLessThan' has to be a value greater than 'ObjectSizeGreaterThan'.";
            return Err(S3Error::invalid_request(message));
        }
        let form = if self.and { Form::And } else { Form::One };
        Ok(Filter { form, prefix: self.prefix, tags: self.tags, larger_than, smaller_than })
    }
}

impl Ends {
    fn element(&mut self, path: &str, text: &str) -> Result<(), Malformed> {
        match path {
            "" => Ok(()),
            "Days" => once(&mut self.days, number(text)?),
            "Date" => once(&mut self.date, date(text)?),
            "ExpiredObjectDeleteMarker" => match text.trim() {
                "true" => once(&mut self.marker, true),
                "false" => once(&mut self.marker, false),
                _ => Err(Malformed::because("true or false")),
            },
            _ => Err(Malformed::because("an unknown element")),
        }
    }

    fn finish(self) -> Result<Expiration, S3Error> {
        match (self.days, self.date, self.marker) {
            (Some(days), None, None) => Ok(Expiration::Days(positive(days, "Days", "Expiration")?)),
            (None, Some(at), None) if is_midnight(at) => Ok(Expiration::Date(at)),
            (None, Some(_), None) => Err(off_midnight()),
            (None, None, Some(flag)) => Ok(Expiration::DeleteMarker(flag)),
            _ => Err(Malformed::because("an Expiration has one of Days, Date, ExpiredObjectDeleteMarker").into()),
        }
    }
}

impl Counts {
    fn element(&mut self, path: &str, text: &str) -> Result<(), Malformed> {
        match path {
            "" => Ok(()),
            "NoncurrentDays" => once(&mut self.days, number(text)?),
            "NewerNoncurrentVersions" => once(&mut self.keep, number(text)?),
            _ => Err(Malformed::because("an unknown element")),
        }
    }

    fn finish(self) -> Result<Noncurrent, S3Error> {
        const ACTION: &str = "NoncurrentVersionExpiration";
        let days = self.days.ok_or_else(|| Malformed::because("no NoncurrentDays"))?;
        let days = positive(days, "NoncurrentDays", ACTION)?;
        let keep = self.keep.map(|count| positive(count, "NewerNoncurrentVersions", ACTION)).transpose()?;
        if keep.is_some_and(|count| count > NEWER_VERSIONS_MAX) {
            let message = format!("'NewerNoncurrentVersions' for {ACTION} action must be at most {NEWER_VERSIONS_MAX}");
            return Err(S3Error::new(Code::InvalidArgument, message));
        }
        Ok(Noncurrent { days, keep })
    }
}

fn positive(count: i64, name: &str, action: &str) -> Result<u32, S3Error> {
    let fits = i32::try_from(count).ok().filter(|count| *count > 0);
    fits.map(i32::unsigned_abs).ok_or_else(|| {
        S3Error::new(Code::InvalidArgument, format!("'{name}' for {action} action must be a positive integer"))
    })
}

fn is_midnight(at: Timestamp) -> bool {
    at.seconds() % SECONDS_PER_DAY == 0 && at.subsecond_nanos() == 0
}

fn off_midnight() -> S3Error {
    S3Error::new(Code::InvalidArgument, "'Date' must be at midnight GMT")
}

/// A date or time of ISO 8601.
fn date(text: &str) -> Result<Timestamp, Malformed> {
    let text = text.trim();
    let day = |text: &str| text.parse::<jiff::civil::Date>().ok()?.to_zoned(jiff::tz::TimeZone::UTC).ok();
    let moment = text.parse::<jiff::Timestamp>().ok().or_else(|| Some(day(text)?.timestamp()));
    let nanos = moment.and_then(|moment| i64::try_from(moment.as_nanosecond()).ok());
    nanos.map(Timestamp).ok_or_else(|| Malformed::because("not a date"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAYS: &str = "<Expiration><Days>3</Days></Expiration>";

    fn of(rules: &str) -> Result<Lifecycle, S3Error> {
        read(format!("<LifecycleConfiguration>{rules}</LifecycleConfiguration>").as_bytes())
    }

    fn rule(filter: &str, action: &str) -> Result<Rule, S3Error> {
        of(&format!("<Rule><Status>Enabled</Status>{filter}{action}</Rule>")).map(|mut all| all.rules.remove(0))
    }

    fn refused(filter: &str, action: &str) -> (Code, String) {
        let error = rule(filter, action).unwrap_err();
        (error.code, error.message.into_owned())
    }

    #[test]
    fn what_is_read_is_written_back() {
        for filter in [
            "<Prefix>logs/</Prefix>",
            "<Prefix/>",
            "<Filter/>",
            "<Filter><Prefix>a&amp;b</Prefix></Filter>",
            "<Filter><Tag><Key>k</Key><Value/></Tag></Filter>",
            "<Filter><ObjectSizeGreaterThan>0</ObjectSizeGreaterThan></Filter>",
            "<Filter><And><Prefix>p</Prefix><Tag><Key>a</Key><Value>1</Value></Tag>\
             <Tag><Key>b</Key><Value>2</Value></Tag><ObjectSizeLessThan>9</ObjectSizeLessThan></And></Filter>",
        ] {
            let all = of(&format!(
                "<Rule><ID>one</ID>{filter}<Status>Enabled</Status>{DAYS}</Rule>\
                <Rule>{filter}<Status>Disabled</Status><NoncurrentVersionExpiration><NoncurrentDays>1</NoncurrentDays>\
                </NoncurrentVersionExpiration></Rule>"
            ));
            let all = all.unwrap();
            assert_eq!(all.rules[1].id, "rule-1");
            let again = read(&all.write()).unwrap();
            assert_eq!(again, all);
        }
        let dated = rule("<Filter/>", "<Expiration><Date>2026-11-21</Date></Expiration>").unwrap();
        assert_eq!(dated.expiration, Some(Expiration::Date(Timestamp(1_795_219_200 * 1_000_000_000))));
    }

    #[test]
    fn counts_are_positive() {
        for (action, named) in [
            ("<Expiration><Days>0</Days></Expiration>", "'Days' for Expiration"),
            ("<Expiration><Days>-1</Days></Expiration>", "'Days' for Expiration"),
            ("<Expiration><Date>2026-11-21T01:00:00Z</Date></Expiration>", "'Date' must be at midnight GMT"),
            (
                "<NoncurrentVersionExpiration><NoncurrentDays>0</NoncurrentDays></NoncurrentVersionExpiration>",
                "'NoncurrentDays' for NoncurrentVersionExpiration",
            ),
            (
                "<NoncurrentVersionExpiration><NoncurrentDays>1</NoncurrentDays><NewerNoncurrentVersions>101\
                 </NewerNoncurrentVersions></NoncurrentVersionExpiration>",
                "'NewerNoncurrentVersions' for NoncurrentVersionExpiration",
            ),
            (
                "<AbortIncompleteMultipartUpload><DaysAfterInitiation>0</DaysAfterInitiation>\
                 </AbortIncompleteMultipartUpload>",
                "'DaysAfterInitiation' for AbortIncompleteMultipartUpload",
            ),
        ] {
            let (code, message) = refused("<Filter/>", action);
            assert_eq!(code, Code::InvalidArgument, "{action}");
            assert!(message.contains(named), "{message}");
        }
    }

    #[test]
    fn the_shape_is_checked() {
        for (filter, action) in [
            ("", DAYS),
            ("<Prefix/><Filter/>", DAYS),
            ("<Filter/><Filter/>", DAYS),
            ("<Filter/><ID>a</ID><ID>b</ID>", DAYS),
            ("<Filter><Prefix>a</Prefix><ObjectSizeLessThan>1</ObjectSizeLessThan></Filter>", DAYS),
            ("<Filter><And/></Filter>", DAYS),
            ("<Filter><Prefix>a</Prefix><And><Prefix>b</Prefix></And></Filter>", DAYS),
            ("<Filter><Tag><Key>a</Key></Tag></Filter>", DAYS),
            ("<Filter><Other/></Filter>", DAYS),
            ("<Filter/>", "<Expiration/>"),
            ("<Filter/>", "<Expiration><Days>x</Days></Expiration>"),
            ("<Filter/>", "<Expiration><Date>20200101</Date><Days>1</Days></Expiration>"),
            (
                "<Filter/>",
                "<Expiration><Days>1</Days><ExpiredObjectDeleteMarker>true</ExpiredObjectDeleteMarker></Expiration>",
            ),
            ("<Filter/>", "<Expiration><Days>1</Days></Expiration><Expiration><Days>2</Days></Expiration>"),
            ("<Filter/>", "<AbortIncompleteMultipartUpload/>"),
            ("<Filter/>", "<NoncurrentVersionExpiration/>"),
            ("<Filter/>", "<Other/>"),
        ] {
            assert_eq!(refused(filter, action).0, Code::MalformedXML, "{filter} {action}");
        }
        let malformed = |rules: &str| of(rules).unwrap_err().code == Code::MalformedXML;
        assert!(malformed(""));
        assert!(malformed(&format!("<Rule><Filter/><Status>enabled</Status>{DAYS}</Rule>")));
        assert!(malformed(&format!("<Rule><Filter/>{DAYS}</Rule>")));
        let one = format!("<Rule><Filter/><Status>Enabled</Status>{DAYS}</Rule>");
        assert!(of(&one.repeat(RULES_MAX)).is_ok());
        assert!(malformed(&one.repeat(RULES_MAX + 1)));
    }

    #[test]
    fn what_cannot_stand_together_is_refused() {
        let tag = "<Filter><Tag><Key>a</Key><Value>b</Value></Tag></Filter>";
        let sized = "<Filter><ObjectSizeLessThan>5</ObjectSizeLessThan></Filter>";
        let abort = "<AbortIncompleteMultipartUpload><DaysAfterInitiation>1</DaysAfterInitiation>\
                     </AbortIncompleteMultipartUpload>";
        let marker = "<Expiration><ExpiredObjectDeleteMarker>true</ExpiredObjectDeleteMarker></Expiration>";
        for (filter, action) in [(tag, abort), (sized, abort), (tag, marker), ("<Filter/>", "")] {
            assert_eq!(refused(filter, action).0, Code::InvalidRequest, "{filter} {action}");
        }
        let twice = "<Tag><Key>a</Key><Value>b</Value></Tag>".repeat(2);
        assert_eq!(refused(&format!("<Filter><And>{twice}</And></Filter>"), DAYS).0, Code::InvalidRequest);
        let sizes = "<Filter><And><ObjectSizeGreaterThan>5</ObjectSizeGreaterThan>\
                     <ObjectSizeLessThan>5</ObjectSizeLessThan></And></Filter>";
        assert_eq!(refused(sizes, DAYS).0, Code::InvalidRequest);
        let transition = "<Transition><Days>1</Days><StorageClass>GLACIER</StorageClass></Transition>";
        assert_eq!(refused("<Filter/>", transition).0, Code::NotImplemented);
        let noon = transition.replace("<Days>1</Days>", "<Date>2026-11-21T12:00:00Z</Date>");
        assert_eq!(refused("<Filter/>", &noon).0, Code::InvalidArgument);
        assert_eq!(refused("<Filter/>", &noon.replace("12:00", "00:00")).0, Code::NotImplemented);
    }

    #[test]
    fn ids_are_unique_and_short() {
        let with = |id: &str| format!("<Rule><ID>{id}</ID><Filter/><Status>Enabled</Status>{DAYS}</Rule>");
        assert_eq!(of(&with("a").repeat(2)).unwrap_err().code, Code::InvalidArgument);
        assert!(of(&with(&"ü".repeat(255))).is_ok());
        assert_eq!(of(&with(&"ü".repeat(256))).unwrap_err().code, Code::InvalidArgument);
        let all = of(&[with("rule-1"), with(""), with("")].concat()).unwrap();
        let ids: Vec<_> = all.rules.iter().map(|rule| rule.id.as_str()).collect();
        assert_eq!(ids, ["rule-1", "rule-2", "rule-3"]);
    }
}
