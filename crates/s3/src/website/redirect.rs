//! Redirects of a website, and the object that represents a folder.
//!
//! Why:        a rule replaces parts of the address; the rest comes from the visitor's request.
//! Layout:     rules without an error code are evaluated before the object is read, rules with one afterwards; the
//!             first match counts.
//! Invariants: R1 a location is one line of visible ASCII.
//!             R2 text from the visitor is percent-encoded in it and never becomes the host.

use bytes::{BufMut, BytesMut};
use http::StatusCode;

use super::configuration::{Redirect, Rule, Website};
use crate::xml::write::percent_encode;

/// Scheme and host by which the visitor reached the website.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin<'r> {
    /// `http` or `https`.
    pub scheme: &'r str,
    /// With the port, if given.
    pub host: &'r str,
}

/// A redirect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Location {
    pub status: StatusCode,
    pub url: String,
}

impl Location {
    /// From `key` to the folder of this name; the URL is relative, since a proxy may use another scheme.
    pub(crate) fn of_folder(key: &str) -> Location {
        let mut url = BytesMut::from(&b"/"[..]);
        // A second leading slash would turn the key into a host name.
        let rest = key.trim_start_matches('/');
        (rest.len()..key.len()).for_each(|_| url.put_slice(b"%2F"));
        percent_encode(&mut url, rest);
        url.put_u8(b'/');
        Location { status: StatusCode::FOUND, url: text(url) }
    }
}

impl Website {
    /// The redirect for `key`, before the object is read (`error` is `None`) or after it gave this error.
    pub(crate) fn location(&self, key: &str, error: Option<StatusCode>, origin: Origin<'_>) -> Option<Location> {
        if let Some(redirect) = &self.redirect_all {
            return Some(redirect.location("", key, origin));
        }
        let rule = self.rules.iter().find(|rule| rule.fits(key, error))?;
        Some(rule.redirect.location(rule.prefix.as_deref().unwrap_or_default(), key, origin))
    }

    /// The object that a request for `key` shows.
    pub(crate) fn page(&self, key: &str) -> String {
        if key.is_empty() || key.ends_with('/') { self.index_below(key) } else { key.to_owned() }
    }

    /// The index of the folder `key`, which ends in a slash or is the whole bucket.
    pub(crate) fn index_below(&self, key: &str) -> String {
        format!("{key}{}", self.index.as_deref().unwrap_or_default())
    }

    /// The error document.
    pub(crate) fn error_document(&self) -> Option<&str> {
        self.error.as_deref()
    }
}

impl Rule {
    fn fits(&self, key: &str, error: Option<StatusCode>) -> bool {
        let prefix = self.prefix.as_deref().unwrap_or_default();
        key.starts_with(prefix) && self.status == error.map(|status| status.as_u16())
    }
}

impl Redirect {
    /// `prefix` is the key prefix of the rule's condition.
    fn location(&self, prefix: &str, key: &str, origin: Origin<'_>) -> Location {
        let mut url = BytesMut::with_capacity(64 + key.len());
        write_as_configured(&mut url, self.protocol.as_deref().unwrap_or(origin.scheme));
        url.put_slice(b"://");
        write_as_configured(&mut url, self.host.as_deref().unwrap_or(origin.host));
        url.put_u8(b'/');
        match (&self.replace_key, &self.replace_prefix) {
            (Some(replacement), _) => write_as_configured(&mut url, replacement),
            (None, Some(replacement)) => {
                write_as_configured(&mut url, replacement);
                percent_encode(&mut url, key.strip_prefix(prefix).unwrap_or(key));
            }
            (None, None) => percent_encode(&mut url, key),
        }
        let status = self.status.and_then(|status| StatusCode::from_u16(status).ok());
        Location { status: status.unwrap_or(StatusCode::MOVED_PERMANENTLY), url: text(url) }
    }
}

/// A configured replacement may contain a query or a fragment, so it is kept; only characters that are invalid in a URL
/// are encoded.
fn write_as_configured(out: &mut BytesMut, text: &str) {
    for character in text.chars() {
        match character {
            '!'..='~' => out.put_u8(character as u8),
            other => percent_encode(out, other.encode_utf8(&mut [0; 4])),
        }
    }
}

fn text(url: BytesMut) -> String {
    String::from_utf8(url.into()).expect("visible ASCII was written")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ORIGIN: Origin<'_> = Origin { scheme: "http", host: "b.web.test:90" };

    fn website(inside: &str) -> Website {
        let index = "<IndexDocument><Suffix>index.html</Suffix></IndexDocument>";
        let rules =
            format!("<WebsiteConfiguration>{index}<RoutingRules>{inside}</RoutingRules></WebsiteConfiguration>");
        Website::from_xml(rules.as_bytes()).unwrap()
    }

    fn rule(condition: &str, redirect: &str) -> String {
        let condition =
            if condition.is_empty() { String::new() } else { format!("<Condition>{condition}</Condition>") };
        format!("<RoutingRule>{condition}<Redirect>{redirect}</Redirect></RoutingRule>")
    }

    fn sent(website: &Website, key: &str, error: u16) -> Option<(u16, String)> {
        let error = StatusCode::from_u16(error).ok();
        website.location(key, error, ORIGIN).map(|location| (location.status.as_u16(), location.url))
    }

    #[test]
    fn the_first_rule_that_fits_counts() {
        let both =
            "<KeyPrefixEquals>docs/</KeyPrefixEquals><HttpErrorCodeReturnedEquals>404</HttpErrorCodeReturnedEquals>";
        let site = website(
            &[
                rule(both, "<ReplaceKeyWith>lost docs.html</ReplaceKeyWith><HttpRedirectCode>302</HttpRedirectCode>"),
                rule("<KeyPrefixEquals>docs/</KeyPrefixEquals>", "<ReplaceKeyPrefixWith>d/</ReplaceKeyPrefixWith>"),
                rule("<KeyPrefixEquals>docs/a</KeyPrefixEquals>", "<HostName>never</HostName>"),
                rule(
                    "<HttpErrorCodeReturnedEquals>404</HttpErrorCodeReturnedEquals>",
                    "<Protocol>https</Protocol><HostName>other</HostName><ReplaceKeyPrefixWith>#!/</ReplaceKeyPrefixWith>",
                ),
            ]
            .concat(),
        );
        let moved = |url: &str| Some((301, url.to_owned()));
        assert_eq!(sent(&site, "docs/a b", 0), moved("http://b.web.test:90/d/a%20b"));
        assert_eq!(sent(&site, "docs/", 0), moved("http://b.web.test:90/d/"));
        assert_eq!(sent(&site, "other", 0), None);
        assert_eq!(sent(&site, "docs/a", 404), Some((302, "http://b.web.test:90/lost%20docs.html".to_owned())));
        assert_eq!(sent(&site, "ü/x?y", 404), moved("https://other/#!/%C3%BC/x%3Fy"));
        assert_eq!(sent(&site, "x", 403), None);
        let always = website(&rule("", "<HostName>h</HostName>"));
        assert_eq!(sent(&always, "", 0), moved("http://h/"));
    }

    #[test]
    fn everything_goes_elsewhere() {
        let all = "<WebsiteConfiguration><RedirectAllRequestsTo><HostName>example.com</HostName>\
                   <Protocol>https</Protocol></RedirectAllRequestsTo></WebsiteConfiguration>";
        let site = Website::from_xml(all.as_bytes()).unwrap();
        assert_eq!(sent(&site, "a/b", 0), Some((301, "https://example.com/a/b".to_owned())));
    }

    #[test]
    fn folders_have_an_index() {
        let site = website(&rule("", "<HostName>h</HostName>"));
        let pages = ["", "a/", "a", "a//"].map(|key| site.page(key));
        assert_eq!(pages, ["index.html", "a/index.html", "a", "a//index.html"]);
        assert_eq!(Location::of_folder("a b/c").url, "/a%20b/c/");
        // Must not become the host `evil`.
        assert_eq!(Location::of_folder("//evil/x").url, "/%2F%2Fevil/x/");
    }

    proptest! {
        #[test]
        fn a_location_is_one_line_of_the_configured_host(key in any::<String>(), replacement in any::<String>()) {
            let replaced = Redirect { replace_prefix: Some(replacement), ..Redirect::default() };
            for redirect in [Redirect::default(), replaced] {
                let url = redirect.location("", &key, ORIGIN).url;
                prop_assert!(url.starts_with("http://b.web.test:90/"));
                prop_assert!(url.bytes().all(|byte| byte.is_ascii_graphic()));
            }
            let folder = Location::of_folder(&format!("{key}f")).url;
            prop_assert!(folder.starts_with('/') && !folder.starts_with("//"));
            prop_assert!(folder.bytes().all(|byte| byte.is_ascii_graphic()));
        }
    }
}
