//! Parses, validates and writes a client's notification document.
//!
//! Invariants: V1 an accepted document passed every check; writing and reading it again gives the same rules.

use std::collections::HashSet;

use bytes::BytesMut;

use super::kind::Pattern;
use super::{Notifications, RULES_MAX, Rule, Service};
use crate::error::{Code, S3Error};
use crate::xml::read::{Malformed, walk};
use crate::xml::write::Writer;

const ROOT: &str = "NotificationConfiguration";
/// Maximum length of a rule's id, in characters.
const ID_CHARS_MAX: usize = 255;
/// Maximum size of a prefix or suffix, in bytes.
const FILTER_BYTES_MAX: usize = 1024;

impl Service {
    const ALL: [Service; 3] = [Service::Queue, Service::Topic, Service::Function];

    /// The element of a rule.
    fn element(self) -> &'static str {
        match self {
            Service::Queue => "QueueConfiguration",
            Service::Topic => "TopicConfiguration",
            Service::Function => "CloudFunctionConfiguration",
        }
    }

    /// The element of the ARN, and the ARN's prefix.
    fn destination(self) -> (&'static str, &'static str) {
        match self {
            Service::Queue => ("Queue", "arn:aws:sqs:"),
            Service::Topic => ("Topic", "arn:aws:sns:"),
            Service::Function => ("CloudFunction", "arn:aws:lambda:"),
        }
    }
}

/// A partly parsed rule.
#[derive(Debug, Default)]
struct Draft {
    id: String,
    arn: String,
    events: Vec<String>,
    name: String,
    value: String,
    filters: Vec<(String, String)>,
}

/// Parses and checks a document; rules without an id get one.
pub fn read(document: &[u8]) -> Result<Notifications, S3Error> {
    let mut drafts = Vec::new();
    let mut draft = Draft::default();
    let mut event_bridge = false;
    walk(document, &mut |path, text| {
        let inside =
            if path == ROOT { Some("") } else { path.strip_prefix(ROOT).and_then(|rest| rest.strip_prefix('/')) };
        let inside = inside.ok_or_else(|| Malformed::because("another document"))?;
        let (element, rest) = inside.split_once('/').unwrap_or((inside, ""));
        if element == "EventBridgeConfiguration" {
            event_bridge = true;
            return Ok(());
        }
        let Some(service) = Service::ALL.into_iter().find(|service| service.element() == element) else {
            return if inside.is_empty() { Ok(()) } else { Err(Malformed::because("an unknown element")) };
        };
        if !rest.is_empty() {
            return draft.element(service, rest, text);
        }
        drafts.push((service, std::mem::take(&mut draft)));
        if drafts.len() > RULES_MAX { Err(Malformed::because("more than 100 rules")) } else { Ok(()) }
    })?;
    if event_bridge {
        return Err(S3Error::not_implemented("element EventBridgeConfiguration"));
    }
    let mut taken: HashSet<String> = HashSet::new();
    for (_, draft) in drafts.iter().filter(|(_, draft)| !draft.id.is_empty()) {
        if !taken.insert(draft.id.clone()) {
            return Err(invalid("Configurations have the same id"));
        }
    }
    let mut rules = Vec::with_capacity(drafts.len());
    for (service, draft) in drafts {
        rules.push(draft.finish(service, &mut taken)?);
    }
    check_overlap(&rules)?;
    Ok(Notifications { rules })
}

fn invalid(message: impl Into<std::borrow::Cow<'static, str>>) -> S3Error {
    S3Error::new(Code::InvalidArgument, message)
}

impl Draft {
    fn element(&mut self, service: Service, path: &str, text: &str) -> Result<(), Malformed> {
        match path {
            "Id" => text.clone_into(&mut self.id),
            "Event" => self.events.push(text.trim().to_owned()),
            "Filter/S3Key/FilterRule/Name" => text.trim().clone_into(&mut self.name),
            "Filter/S3Key/FilterRule/Value" => text.clone_into(&mut self.value),
            "Filter/S3Key/FilterRule" => {
                self.filters.push((std::mem::take(&mut self.name), std::mem::take(&mut self.value)));
            }
            "Filter" | "Filter/S3Key" => {}
            other if other == service.destination().0 => text.trim().clone_into(&mut self.arn),
            _ => return Err(Malformed::because("an unknown element")),
        }
        Ok(())
    }

    fn finish(self, service: Service, taken: &mut HashSet<String>) -> Result<Rule, S3Error> {
        if self.arn.is_empty() || self.events.is_empty() {
            return Err(Malformed::because("a rule has a destination and an event").into());
        }
        let (element, start) = service.destination();
        // arn:aws:sqs:REGION:ACCOUNT:NAME, and for functions arn:aws:lambda:REGION:ACCOUNT:function:NAME.
        let parts = if service == Service::Function { 7 } else { 6 };
        let named = self.arn.starts_with(start) && self.arn.split(':').count() == parts && !self.arn.ends_with(':');
        if !named {
            return Err(S3Error::argument(element, &self.arn, "The ARN is not well formed"));
        }
        if self.id.chars().count() > ID_CHARS_MAX {
            return Err(invalid("The id of a configuration is longer than 255 characters"));
        }
        let mut events = Vec::with_capacity(self.events.len());
        for text in &self.events {
            let unknown = || S3Error::argument("Event", text, "The event is not supported for notifications");
            events.push(Pattern::parse(text).ok_or_else(unknown)?);
        }
        let (mut prefix, mut suffix) = (None, None);
        for (name, value) in self.filters {
            if value.len() > FILTER_BYTES_MAX {
                return Err(invalid("Size of filter rule value cannot exceed 1024 bytes in UTF-8 representation"));
            }
            let place = match name.to_ascii_lowercase().as_str() {
                "prefix" => &mut prefix,
                "suffix" => &mut suffix,
                _ => return Err(invalid("filter rule name must be either prefix or suffix")),
            };
            if place.replace(value).is_some() {
                return Err(invalid(format!("Cannot specify more than one {name} rule in a filter.")));
            }
        }
        let id = if self.id.is_empty() { new_id(taken) } else { self.id };
        Ok(Rule { id, service, arn: self.arn, events, prefix, suffix })
    }
}

/// An id that no other rule has.
fn new_id(taken: &mut HashSet<String>) -> String {
    let free = (1..).map(|number| format!("notification-{number}")).find(|id| !taken.contains(id));
    let id = free.expect("there are more numbers than rules");
    taken.insert(id.clone());
    id
}

/// As at AWS, two rules may not match the same event.
fn check_overlap(rules: &[Rule]) -> Result<(), S3Error> {
    let text = |filter: &Option<String>| filter.clone().unwrap_or_default();
    for (index, one) in rules.iter().enumerate() {
        for other in &rules[..index] {
            let events = one.events.iter().any(|event| other.events.iter().any(|pattern| pattern.meets(event)));
            let (prefixes, suffixes) =
                ((text(&one.prefix), text(&other.prefix)), (text(&one.suffix), text(&other.suffix)));
            let starts = prefixes.0.starts_with(&prefixes.1) || prefixes.1.starts_with(&prefixes.0);
            let ends = suffixes.0.ends_with(&suffixes.1) || suffixes.1.ends_with(&suffixes.0);
            if events && starts && ends {
                return Err(invalid(
                    "Configurations overlap. Configurations on the same bucket cannot share a common event type.",
                ));
            }
        }
    }
    Ok(())
}

impl Notifications {
    /// XML that parses to the same rules.
    pub fn write(&self) -> BytesMut {
        let mut out = BytesMut::with_capacity(256 * (1 + self.rules.len()));
        let mut writer = Writer::new(&mut out);
        writer.root(ROOT);
        for rule in &self.rules {
            writer.open(rule.service.element());
            writer.text("Id", &rule.id);
            writer.text(rule.service.destination().0, &rule.arn);
            rule.events.iter().for_each(|event| writer.text("Event", event.text()));
            write_filter(&mut writer, rule);
            writer.close(rule.service.element());
        }
        writer.close(ROOT);
        out
    }
}

fn write_filter(writer: &mut Writer<'_>, rule: &Rule) {
    if rule.prefix.is_none() && rule.suffix.is_none() {
        return;
    }
    ["Filter", "S3Key"].iter().for_each(|name| writer.open(name));
    for (name, value) in [("prefix", &rule.prefix), ("suffix", &rule.suffix)] {
        let Some(value) = value else { continue };
        writer.open("FilterRule");
        writer.text("Name", name);
        writer.text("Value", value);
        writer.close("FilterRule");
    }
    ["S3Key", "Filter"].iter().for_each(|name| writer.close(name));
}

#[cfg(test)]
mod tests {
    use margay_volume::{EventKind, EventRules};

    use super::*;

    const ARN: &str = "arn:aws:sqs:us-east-1:000000000000:orders";

    fn of(rules: &str) -> Result<Notifications, S3Error> {
        read(format!("<{ROOT}>{rules}</{ROOT}>").as_bytes())
    }

    fn queue(events: &[&str], filter: &str) -> String {
        let events: String = events.iter().map(|event| format!("<Event>{event}</Event>")).collect();
        format!("<QueueConfiguration><Queue>{ARN}</Queue>{events}{filter}</QueueConfiguration>")
    }

    fn filter(name: &str, value: &str) -> String {
        format!("<Filter><S3Key><FilterRule><Name>{name}</Name><Value>{value}</Value></FilterRule></S3Key></Filter>")
    }

    #[test]
    fn what_is_read_is_written_back_and_decides() {
        let rules = [
            queue(&["s3:ObjectCreated:*"], &filter("Prefix", "a&amp;/")),
            queue(&["s3:ObjectRemoved:Delete"], &filter("suffix", ".jpg")),
            "<TopicConfiguration><Id>mine</Id><Topic>arn:aws:sns:x:1:two</Topic><Event>s3:ObjectTagging:*</Event>\
             </TopicConfiguration>"
                .to_owned(),
            "<CloudFunctionConfiguration><CloudFunction>arn:aws:lambda:x:1:function:three</CloudFunction>\
             <Event>s3:LifecycleExpiration:*</Event></CloudFunctionConfiguration>"
                .to_owned(),
        ];
        let all = of(&rules.concat()).unwrap();
        assert_eq!(read(&all.write()).unwrap(), all);
        let routes = |kind, key: &str| -> Vec<(String, String)> {
            all.routes(kind, key).into_iter().map(|route| (route.target, route.rule)).collect()
        };
        let one = |target: &str, rule: &str| vec![(target.to_owned(), rule.to_owned())];
        assert_eq!(routes(EventKind::Put, "a&/x"), one("orders", "notification-1"));
        assert_eq!(routes(EventKind::Put, "b"), []);
        assert_eq!(routes(EventKind::Delete, "b.jpg"), one("orders", "notification-2"));
        assert_eq!(routes(EventKind::TaggingPut, "b"), one("two", "mine"));
        assert_eq!(routes(EventKind::Expired, "b"), one("three", "notification-3"));
        assert_eq!(all.unknown_target(&["orders".to_owned(), "two".to_owned()]), Some(all.rules[3].arn.as_str()));
        assert_eq!(of("").unwrap(), Notifications::default());
    }

    #[test]
    fn what_is_wrong_is_refused() {
        let put = ["s3:ObjectCreated:Put"];
        let both = format!("{}{}", queue(&put, &filter("prefix", "a")), queue(&put, &filter("prefix", "ab")));
        let ids = "<QueueConfiguration><Id>i</Id><Queue>arn:aws:sqs:r:a:n</Queue><Event>s3:ObjectCreated:Put</Event>\
                   </QueueConfiguration><QueueConfiguration><Id>i</Id><Queue>arn:aws:sqs:r:a:n</Queue>\
                   <Event>s3:ObjectCreated:Copy</Event></QueueConfiguration>";
        for (rules, code) in [
            (queue(&[], ""), Code::MalformedXML),
            (queue(&["s3:Nothing"], ""), Code::InvalidArgument),
            (queue(&put, &filter("middle", "x")), Code::InvalidArgument),
            (queue(&put, &filter("prefix", &"x".repeat(1025))), Code::InvalidArgument),
            (queue(&put, "<Other/>"), Code::MalformedXML),
            (queue(&put, "").replace(ARN, "orders"), Code::InvalidArgument),
            (queue(&put, "").replace(ARN, "arn:aws:sqs:::"), Code::InvalidArgument),
            (queue(&put, "").replace(ARN, "arn:aws:sns:r:a:orders"), Code::InvalidArgument),
            (both, Code::InvalidArgument),
            (ids.to_owned(), Code::InvalidArgument),
            ("<EventBridgeConfiguration/>".to_owned(), Code::NotImplemented),
            ("<Other/>".to_owned(), Code::MalformedXML),
        ] {
            assert_eq!(of(&rules).unwrap_err().code, code, "{rules}");
        }
        let apart = format!("{}{}", queue(&put, &filter("prefix", "a")), queue(&put, &filter("prefix", "b")));
        assert!(of(&apart).is_ok());
        assert_eq!(read(b"<Other/>").unwrap_err().code, Code::MalformedXML);
    }
}
