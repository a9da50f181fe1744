//! A bucket's CORS rules: parsing, writing, matching.
//!
//! Layout:     stored as the document that GetBucketCors returns.
//! Invariants: R2 an accepted document is valid: each rule has an origin and a method, each pattern at most one `*`.

use bytes::BytesMut;

use crate::error::{Code, S3Error};
use crate::xml::read::{Malformed, walk};
use crate::xml::write::Writer;

/// Most rules of a bucket.
pub(crate) const RULES_MAX: usize = 100;
/// Longest id of a rule, in characters.
const ID_CHARS_MAX: usize = 255;
const METHODS: [&str; 5] = ["GET", "PUT", "HEAD", "POST", "DELETE"];

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rule {
    id: Option<String>,
    pub(super) origins: Vec<String>,
    pub(super) methods: Vec<String>,
    headers: Vec<String>,
    pub(super) exposed: Vec<String>,
    pub(super) max_age_seconds: Option<u32>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rules(Vec<Rule>);

impl Rules {
    pub(crate) fn from_xml(document: &[u8]) -> Result<Rules, S3Error> {
        let (mut rules, mut rule) = (Vec::new(), Rule::default());
        walk(document, &mut |path, text| {
            let text = text.trim();
            match path {
                "CORSConfiguration/CORSRule/ID" if rule.id.is_none() => rule.id = Some(text.to_owned()),
                "CORSConfiguration/CORSRule/AllowedOrigin" => rule.origins.push(text.to_owned()),
                "CORSConfiguration/CORSRule/AllowedMethod" => rule.methods.push(text.to_owned()),
                "CORSConfiguration/CORSRule/AllowedHeader" => rule.headers.push(text.to_owned()),
                "CORSConfiguration/CORSRule/ExposeHeader" => rule.exposed.push(text.to_owned()),
                "CORSConfiguration/CORSRule/MaxAgeSeconds" if rule.max_age_seconds.is_none() => {
                    let seconds = text.parse::<u32>().map_err(|_| Malformed::because("MaxAgeSeconds is no number"))?;
                    rule.max_age_seconds = Some(seconds);
                }
                "CORSConfiguration/CORSRule" => rules.push(std::mem::take(&mut rule)),
                "CORSConfiguration" => {}
                _ => return Err(Malformed::because("an unknown element")),
            }
            Ok(())
        })?;
        let rules = Rules(rules);
        rules.check()?;
        Ok(rules)
    }

    fn check(&self) -> Result<(), S3Error> {
        if self.0.is_empty() || self.0.iter().any(|rule| rule.origins.is_empty() || rule.methods.is_empty()) {
            return Err(Code::MalformedXML.into());
        }
        if self.0.len() > RULES_MAX {
            return Err(S3Error::invalid_request(format!(
                "The number of CORS rules should not exceed allowed limit of {RULES_MAX} rules."
            )));
        }
        self.0.iter().try_for_each(Rule::check)
    }

    pub(crate) fn write(&self, out: &mut BytesMut) {
        let mut writer = Writer::new(out);
        writer.root("CORSConfiguration");
        for rule in &self.0 {
            writer.open("CORSRule");
            writer.optional("ID", rule.id.as_deref());
            let lists = [
                ("AllowedOrigin", &rule.origins),
                ("AllowedMethod", &rule.methods),
                ("AllowedHeader", &rule.headers),
                ("ExposeHeader", &rule.exposed),
            ];
            for (name, values) in lists {
                values.iter().for_each(|value| writer.text(name, value));
            }
            if let Some(seconds) = rule.max_age_seconds {
                writer.number("MaxAgeSeconds", seconds.into());
            }
            writer.close("CORSRule");
        }
        writer.close("CORSConfiguration");
    }

    /// The first rule that allows such a request from this origin.
    pub(super) fn find(&self, origin: &str, method: &str, headers: &[&str]) -> Option<&Rule> {
        self.0.iter().find(|rule| {
            rule.origins.iter().any(|pattern| fits(pattern, origin))
                && rule.methods.iter().any(|own| own == method)
                && headers.iter().all(|header| rule.allows_header(header))
        })
    }
}

impl Rule {
    fn check(&self) -> Result<(), S3Error> {
        if let Some(method) = self.methods.iter().find(|method| !METHODS.contains(&method.as_str())) {
            return Err(S3Error::invalid_request(format!(
                "Found unsupported HTTP method in CORS config. Unsupported method is {method}"
            )));
        }
        for (name, values) in [("AllowedOrigin", &self.origins), ("AllowedHeader", &self.headers)] {
            if let Some(value) = values.iter().find(|value| value.matches('*').count() > 1) {
                return Err(S3Error::invalid_request(format!(
                    "{name} \"{value}\" can not have more than one wildcard."
                )));
            }
        }
        if let Some(value) = self.exposed.iter().find(|value| value.contains('*')) {
            return Err(S3Error::invalid_request(format!(
                "ExposeHeader \"{value}\" contains wildcard. We currently do not support wildcard for ExposeHeader."
            )));
        }
        if self.id.as_ref().is_some_and(|id| id.chars().count() > ID_CHARS_MAX) {
            return Err(S3Error::invalid_request(format!(
                "The ID of a rule is longer than {ID_CHARS_MAX} characters."
            )));
        }
        Ok(())
    }

    fn allows_header(&self, header: &str) -> bool {
        let header = header.to_ascii_lowercase();
        self.headers.iter().any(|pattern| fits(&pattern.to_ascii_lowercase(), &header))
    }

    /// Every origin is allowed, so the response does not depend on it.
    pub(super) fn allows_any_origin(&self) -> bool {
        self.origins.iter().any(|origin| origin == "*")
    }
}

/// Whether a text fits a pattern with at most one `*`.
fn fits(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((start, end)) => text.len() >= start.len() + end.len() && text.starts_with(start) && text.ends_with(end),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Rules, S3Error> {
        Rules::from_xml(format!("<CORSConfiguration>{text}</CORSConfiguration>").as_bytes())
    }

    fn rule(text: &str) -> String {
        format!("<CORSRule>{text}</CORSRule>")
    }

    const MINIMAL: &str = "<AllowedOrigin>*</AllowedOrigin><AllowedMethod>GET</AllowedMethod>";

    #[test]
    fn rules_come_back_as_they_were_read() {
        let text = rule(
            "<ID>one</ID><AllowedOrigin>http://*.example.com</AllowedOrigin><AllowedMethod>PUT</AllowedMethod>\
             <AllowedMethod>GET</AllowedMethod><AllowedHeader>x-amz-*</AllowedHeader><ExposeHeader>ETag</ExposeHeader>\
             <MaxAgeSeconds>30</MaxAgeSeconds>",
        );
        let rules = read(&(text + &rule(MINIMAL))).unwrap();
        let mut out = BytesMut::new();
        rules.write(&mut out);
        assert_eq!(Rules::from_xml(&out).unwrap(), rules);
    }

    #[test]
    fn bad_rules_are_refused() {
        let code = |text: &str| read(text).unwrap_err().code;
        let origin = "<AllowedOrigin>*</AllowedOrigin>";
        for text in ["", "<CORSRule/>", "<Nonsense/>", &rule(origin), &rule("<AllowedMethod>GET</AllowedMethod>")] {
            assert_eq!(code(text), Code::MalformedXML, "{text}");
        }
        assert_eq!(code(&rule(&format!("{MINIMAL}<MaxAgeSeconds>x</MaxAgeSeconds>"))), Code::MalformedXML);
        for extra in [
            "<AllowedMethod>PATCH</AllowedMethod>",
            "<AllowedOrigin>*.*</AllowedOrigin>",
            "<AllowedHeader>**</AllowedHeader>",
            "<ExposeHeader>x-*</ExposeHeader>",
            &format!("<ID>{}</ID>", "i".repeat(256)),
        ] {
            assert_eq!(code(&rule(&format!("{MINIMAL}{extra}"))), Code::InvalidRequest, "{extra}");
        }
        assert!(read(&rule(MINIMAL).repeat(RULES_MAX)).is_ok());
        assert_eq!(code(&rule(MINIMAL).repeat(RULES_MAX + 1)), Code::InvalidRequest);
    }

    #[test]
    fn the_first_rule_that_fits_is_found() {
        let with = |origin: &str, method: &str, header: &str| {
            rule(&format!(
                "<AllowedOrigin>{origin}</AllowedOrigin><AllowedMethod>{method}</AllowedMethod>\
                 <AllowedHeader>{header}</AllowedHeader>"
            ))
        };
        let rules = read(&(with("start*end", "GET", "X-Amz-*") + &with("*.put", "PUT", "*") + &with("*", "GET", "a")));
        let rules = rules.unwrap();
        let found = |origin, method, headers: &[&str]| {
            let rule = rules.find(origin, method, headers)?;
            rules.0.iter().position(|own| own == rule)
        };
        assert_eq!(found("start-end", "GET", &["x-amz-date"]), Some(0));
        assert_eq!(found("startend", "GET", &[]), Some(0));
        assert_eq!(found("staend", "GET", &[]), Some(2));
        assert_eq!(found("start-end", "GET", &["A"]), Some(2));
        assert_eq!(found("start-end", "GET", &["b"]), None);
        assert_eq!(found("foo.put", "PUT", &["anything"]), Some(1));
        assert_eq!(found("foo.put", "DELETE", &[]), None);
        // Too short for both ends of the pattern.
        assert!(!fits("aa*aa", "aaa"));
    }
}
