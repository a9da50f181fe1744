//! The configuration of a website: parsing and writing.
//!
//! Layout:     stored as the document that GetBucketWebsite returns.
//! Invariants: W1 an accepted document is valid: either everything is redirected, or there is an index.

use bytes::BytesMut;

use crate::error::{Code, S3Error};
use crate::xml::read::{Malformed, walk};
use crate::xml::write::Writer;

/// Maximum number of routing rules.
pub(crate) const ROUTING_RULES_MAX: usize = 50;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Website {
    /// Redirects everything to another host.
    pub(super) redirect_all: Option<Redirect>,
    /// The index document, which stands for a directory.
    pub(super) index: Option<String>,
    /// The error document.
    pub(super) error: Option<String>,
    pub(super) rules: Vec<Rule>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Rule {
    pub(super) prefix: Option<String>,
    pub(super) status: Option<u16>,
    pub(super) redirect: Redirect,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Redirect {
    pub(super) host: Option<String>,
    pub(super) protocol: Option<String>,
    pub(super) replace_prefix: Option<String>,
    pub(super) replace_key: Option<String>,
    pub(super) status: Option<u16>,
}

const ROOT: &str = "WebsiteConfiguration";

impl Website {
    pub(crate) fn from_xml(document: &[u8]) -> Result<Website, S3Error> {
        let mut reading = Reading::default();
        walk(document, &mut |path, text| match path.strip_prefix(ROOT) {
            Some(inside) => reading.leave(inside, text),
            None => Err(Malformed::because("the root is not WebsiteConfiguration")),
        })?;
        reading.website.check()?;
        Ok(reading.website)
    }

    fn check(&self) -> Result<(), S3Error> {
        if let Some(redirect) = &self.redirect_all {
            let others = self.index.is_some() || self.error.is_some() || !self.rules.is_empty();
            let plain = Redirect { host: None, protocol: None, ..redirect.clone() } == Redirect::default();
            if others || !plain {
                let message = "RedirectAllRequestsTo cannot be provided in conjunction with other Routing Rules.";
                return Err(S3Error::invalid_request(message));
            }
            return redirect.check();
        }
        let Some(index) = &self.index else {
            let message = "A value for IndexDocument Suffix must be provided if RedirectAllRequestsTo is empty";
            return Err(S3Error::argument("IndexDocument", "null", message));
        };
        if index.is_empty() || index.contains('/') {
            let message = "The IndexDocument Suffix is not well formed";
            return Err(S3Error::argument("IndexDocument", index, message));
        }
        if self.error.as_ref().is_some_and(String::is_empty) {
            return Err(S3Error::argument("ErrorDocument", "", "The ErrorDocument Key is not well formed"));
        }
        if self.rules.len() > ROUTING_RULES_MAX {
            return Err(S3Error::invalid_request(format!(
                "{} routing rules provided, the number of routing rules in a website configuration is limited to \
                 {ROUTING_RULES_MAX}.",
                self.rules.len()
            )));
        }
        self.rules.iter().try_for_each(|rule| {
            if rule.status.is_some_and(|status| !(400..600).contains(&status)) {
                let message = "The provided HTTP error code is not valid. Valid codes are 4XX or 5XX.";
                return Err(S3Error::invalid_request(message));
            }
            rule.redirect.check()
        })
    }

    pub(crate) fn write(&self, out: &mut BytesMut) {
        let mut writer = Writer::new(out);
        writer.root(ROOT);
        if let Some(redirect) = &self.redirect_all {
            redirect.write("RedirectAllRequestsTo", &mut writer);
        }
        if let Some(index) = &self.index {
            writer.open("IndexDocument");
            writer.text("Suffix", index);
            writer.close("IndexDocument");
        }
        if let Some(error) = &self.error {
            writer.open("ErrorDocument");
            writer.text("Key", error);
            writer.close("ErrorDocument");
        }
        if !self.rules.is_empty() {
            writer.open("RoutingRules");
            self.rules.iter().for_each(|rule| rule.write(&mut writer));
            writer.close("RoutingRules");
        }
        writer.close(ROOT);
    }
}

/// State while a document is parsed.
#[derive(Default)]
struct Reading {
    website: Website,
    rule: Rule,
    has_condition: bool,
    has_redirect: bool,
}

impl Reading {
    /// The end of an element; `inside` is its path below the root.
    fn leave(&mut self, inside: &str, text: &str) -> Result<(), Malformed> {
        let website = &mut self.website;
        match inside {
            "" | "/RoutingRules" => {}
            "/IndexDocument" if website.index.is_none() => return Err(Malformed::because("no Suffix")),
            "/ErrorDocument" if website.error.is_none() => return Err(Malformed::because("no Key")),
            "/IndexDocument" | "/ErrorDocument" => {}
            "/IndexDocument/Suffix" => website.index = Some(text.to_owned()),
            "/ErrorDocument/Key" => website.error = Some(text.to_owned()),
            "/RedirectAllRequestsTo" => {
                if website.redirect_all.get_or_insert_default().host.is_none() {
                    return Err(Malformed::because("no HostName"));
                }
            }
            "/RoutingRules/RoutingRule" => {
                if !std::mem::take(&mut self.has_redirect) {
                    return Err(Malformed::because("a routing rule without a Redirect"));
                }
                website.rules.push(std::mem::take(&mut self.rule));
            }
            _ => match inside.strip_prefix("/RedirectAllRequestsTo/") {
                Some(field) => website.redirect_all.get_or_insert_default().set(field, text)?,
                None => {
                    let inside = inside.strip_prefix("/RoutingRules/RoutingRule/");
                    self.leave_rule(inside.ok_or_else(|| Malformed::because("an unknown element"))?, text)?;
                }
            },
        }
        Ok(())
    }

    /// The end of an element in a routing rule.
    fn leave_rule(&mut self, inside: &str, text: &str) -> Result<(), Malformed> {
        match inside {
            "Condition" if !std::mem::take(&mut self.has_condition) => Err(Malformed::because("an empty Condition")),
            "Condition" => Ok(()),
            "Condition/KeyPrefixEquals" => {
                self.rule.prefix = Some(text.to_owned());
                self.has_condition = true;
                Ok(())
            }
            "Condition/HttpErrorCodeReturnedEquals" => {
                self.rule.status = Some(status(text)?);
                self.has_condition = true;
                Ok(())
            }
            "Redirect" if self.rule.redirect == Redirect::default() => Err(Malformed::because("an empty Redirect")),
            "Redirect" => {
                self.has_redirect = true;
                Ok(())
            }
            other => match other.strip_prefix("Redirect/") {
                Some(field) => self.rule.redirect.set(field, text),
                None => Err(Malformed::because("an unknown element")),
            },
        }
    }
}

impl Rule {
    fn write(&self, writer: &mut Writer<'_>) {
        writer.open("RoutingRule");
        if self.prefix.is_some() || self.status.is_some() {
            writer.open("Condition");
            writer.optional("KeyPrefixEquals", self.prefix.as_deref());
            if let Some(status) = self.status {
                writer.number("HttpErrorCodeReturnedEquals", status.into());
            }
            writer.close("Condition");
        }
        self.redirect.write("Redirect", writer);
        writer.close("RoutingRule");
    }
}

impl Redirect {
    fn set(&mut self, field: &str, text: &str) -> Result<(), Malformed> {
        let slot = match field {
            "HostName" => &mut self.host,
            "Protocol" => &mut self.protocol,
            "ReplaceKeyPrefixWith" => &mut self.replace_prefix,
            "ReplaceKeyWith" => &mut self.replace_key,
            "HttpRedirectCode" => {
                self.status = Some(status(text)?);
                return Ok(());
            }
            _ => return Err(Malformed::because("an unknown element")),
        };
        if slot.replace(text.to_owned()).is_some() { Err(Malformed::because("an element twice")) } else { Ok(()) }
    }

    fn check(&self) -> Result<(), S3Error> {
        if self.protocol.as_deref().is_some_and(|protocol| protocol != "http" && protocol != "https") {
            let message = "Invalid protocol, protocol can be http or https. If not defined the protocol will be \
                           selected automatically.";
            return Err(S3Error::invalid_request(message));
        }
        if self.replace_prefix.is_some() && self.replace_key.is_some() {
            let message = "You can only define ReplaceKeyPrefix or ReplaceKey but not both.";
            return Err(S3Error::invalid_request(message));
        }
        if self.status.is_some_and(|status| !(301..400).contains(&status)) {
            let message = "The provided HTTP redirect code is not valid. Valid codes are 3XX except 300.";
            return Err(S3Error::invalid_request(message));
        }
        // It becomes part of a header.
        let texts = [&self.host, &self.replace_prefix, &self.replace_key];
        if texts.into_iter().flatten().any(|text| text.chars().any(char::is_control)) {
            return Err(Code::MalformedXML.into());
        }
        Ok(())
    }

    fn write(&self, name: &str, writer: &mut Writer<'_>) {
        writer.open(name);
        let texts = [
            ("HostName", &self.host),
            ("Protocol", &self.protocol),
            ("ReplaceKeyPrefixWith", &self.replace_prefix),
            ("ReplaceKeyWith", &self.replace_key),
        ];
        texts.into_iter().for_each(|(name, text)| writer.optional(name, text.as_deref()));
        if let Some(status) = self.status {
            writer.number("HttpRedirectCode", status.into());
        }
        writer.close(name);
    }
}

fn status(text: &str) -> Result<u16, Malformed> {
    text.trim().parse().map_err(|_| Malformed::because("a code that is no number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Website, S3Error> {
        Website::from_xml(format!("<WebsiteConfiguration>{text}</WebsiteConfiguration>").as_bytes())
    }

    const INDEX: &str = "<IndexDocument><Suffix>index.html</Suffix></IndexDocument>";

    fn rules(inside: &str) -> String {
        format!("{INDEX}<RoutingRules><RoutingRule>{inside}</RoutingRule></RoutingRules>")
    }

    #[test]
    fn configurations_come_back_as_they_were_read() {
        let full = rules(
            "<Condition><KeyPrefixEquals>docs/</KeyPrefixEquals><HttpErrorCodeReturnedEquals>404\
             </HttpErrorCodeReturnedEquals></Condition><Redirect><HostName>h</HostName><Protocol>https</Protocol>\
             <ReplaceKeyPrefixWith>d/</ReplaceKeyPrefixWith><HttpRedirectCode>302</HttpRedirectCode></Redirect>",
        ) + "<ErrorDocument><Key>e &amp; o</Key></ErrorDocument>";
        let all = "<RedirectAllRequestsTo><HostName>example.com</HostName></RedirectAllRequestsTo>";
        for text in [&full, INDEX, all] {
            let website = read(text).unwrap();
            let mut out = BytesMut::new();
            website.write(&mut out);
            assert_eq!(Website::from_xml(&out).unwrap(), website, "{text}");
        }
    }

    #[test]
    fn bad_configurations_are_refused() {
        let code = |text: &str| read(text).unwrap_err().code;
        for text in [
            "<IndexDocument/>",
            "<ErrorDocument/>",
            "<RedirectAllRequestsTo/>",
            "<Nonsense/>",
            &rules(""),
            &rules("<Redirect/>"),
            &rules("<Condition/><Redirect><HostName>h</HostName></Redirect>"),
            &rules("<Redirect><HttpRedirectCode>x</HttpRedirectCode></Redirect>"),
        ] {
            assert_eq!(code(text), Code::MalformedXML, "{text}");
        }
        for text in [
            "",
            "<IndexDocument><Suffix/></IndexDocument>",
            "<IndexDocument><Suffix>a/b</Suffix></IndexDocument>",
            &format!("{INDEX}<ErrorDocument><Key/></ErrorDocument>"),
        ] {
            assert_eq!(code(text), Code::InvalidArgument, "{text}");
        }
        let all = "<RedirectAllRequestsTo><HostName>h</HostName></RedirectAllRequestsTo>";
        for text in [
            &format!("{INDEX}{all}"),
            &all.replace("</HostName>", "</HostName><Protocol>ftp</Protocol>"),
            &rules(
                "<Redirect><ReplaceKeyWith>a</ReplaceKeyWith><ReplaceKeyPrefixWith>b</ReplaceKeyPrefixWith></Redirect>",
            ),
            &rules("<Redirect><HttpRedirectCode>300</HttpRedirectCode></Redirect>"),
            &rules(
                "<Condition><HttpErrorCodeReturnedEquals>200</HttpErrorCodeReturnedEquals></Condition><Redirect><HostName>h</HostName></Redirect>",
            ),
        ] {
            assert_eq!(code(text), Code::InvalidRequest, "{text}");
        }
    }
}
