//! Condition keys of a request.
//!
//! Why:      a value is computed only when a policy uses its key.
//! Not here: which keys exist (margay-iam).

use std::borrow::Cow;
use std::net::IpAddr;

use http::HeaderMap;
use margay_env::Timestamp;
use margay_iam::registry::Identity;
use margay_iam::{Context, Lookup, is_known_key};

use crate::route::query::Query;
use crate::time::iso;

/// Facts about the connection and the signature.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Circumstances<'a> {
    pub peer: IpAddr,
    pub secure: bool,
    pub now: Timestamp,
    pub region: &'a str,
    /// `AWS4-HMAC-SHA256` or `AWS`; `None` for an unsigned request.
    pub signature_version: Option<&'static str>,
    /// `REST-HEADER`, `REST-QUERY-STRING` or `POST`.
    pub auth_type: Option<&'static str>,
}

pub(crate) struct RequestContext<'a> {
    pub circumstances: &'a Circumstances<'a>,
    pub headers: &'a HeaderMap,
    pub query: &'a Query,
    pub identity: Option<&'a Identity>,
    /// The account that owns the bucket.
    pub resource_account: Option<&'a str>,
    pub bucket_tags: &'a [(String, String)],
    /// Tags of the existing object, loaded when a policy uses them.
    pub existing_tags: &'a [(String, String)],
    /// A missing key: its absence is revealed only to callers who may list it, so this is the prefix of such a listing.
    pub looked_for: Option<&'a str>,
}

/// Prefixes of condition keys that are tags of the bucket: AWS's two, and Ceph's.
const BUCKET_TAGS: &[&str] = &["aws:resourcetag/", "s3:buckettag/", "s3:resourcetag/"];

/// Condition keys that are query parameters.
const PARAMETERS: &[(&str, &str)] = &[
    ("s3:delimiter", "delimiter"),
    ("s3:max-keys", "max-keys"),
    ("s3:prefix", "prefix"),
    ("s3:versionid", "versionId"),
];

/// Condition keys that are headers with another name.
const HEADERS: &[(&str, &str)] = &[
    ("aws:referer", "referer"),
    ("aws:useragent", "user-agent"),
    ("s3:if-match", "if-match"),
    ("s3:if-none-match", "if-none-match"),
    ("s3:object-lock-legal-hold", "x-amz-object-lock-legal-hold"),
    ("s3:object-lock-mode", "x-amz-object-lock-mode"),
    ("s3:object-lock-retain-until-date", "x-amz-object-lock-retain-until-date"),
    ("s3:x-amz-object-ownership", "x-amz-object-ownership"),
];

impl RequestContext<'_> {
    fn header(&self, name: &str) -> Lookup<'_> {
        let value = self.headers.get(name);
        Lookup::maybe(value.map(|value| String::from_utf8_lossy(value.as_bytes())))
    }

    fn request_tags(&self) -> Vec<(Cow<'_, str>, Cow<'_, str>)> {
        let text = self.headers.get("x-amz-tagging").and_then(|value| value.to_str().ok()).unwrap_or_default();
        // The operation refuses an invalid tag set.
        let tags = Query::parse(text).unwrap_or_default();
        tags.pairs().map(|(name, value)| (name.to_owned().into(), value.to_owned().into())).collect()
    }

    fn of_caller(&self, key: &str) -> Lookup<'_> {
        let Some(identity) = self.identity else {
            return match key {
                "aws:principaltype" | "aws:userid" => Lookup::one("Anonymous"),
                _ => Lookup::Absent,
            };
        };
        if let Some(values) = key.strip_prefix("aws:principaltag/").and_then(|name| identity.tags.get(name)) {
            return Lookup::Values(values.iter().map(|value| value.as_str().into()).collect());
        }
        let caller = identity.caller();
        match key {
            "aws:principalaccount" => Lookup::one(identity.account.id.as_str()),
            "aws:principalarn" => Lookup::one(identity.principal_arn()),
            "aws:principaltype" => Lookup::one(match caller.who {
                margay_iam::Who::User { .. } => "User",
                margay_iam::Who::Role { .. } => "AssumedRole",
                _ => "Account",
            }),
            "aws:userid" => Lookup::one(identity.user_id()),
            "aws:username" => Lookup::maybe(identity.user_name()),
            "sts:authentication" => Lookup::one(if identity.is_temporary { "true" } else { "false" }),
            _ => Lookup::Absent,
        }
    }
}

impl Context for RequestContext<'_> {
    fn lookup(&self, key: &str) -> Lookup<'_> {
        if !is_known_key(key) {
            return Lookup::Unknown;
        }
        if let Some(key_of_listing) = self.looked_for.filter(|_| key == "s3:prefix") {
            return Lookup::one(key_of_listing);
        }
        if let Some((_, name)) = PARAMETERS.iter().find(|(own, _)| *own == key) {
            return Lookup::maybe(self.query.get(name));
        }
        if let Some((_, name)) = HEADERS.iter().find(|(own, _)| *own == key) {
            return self.header(name);
        }
        if let Some(name) = BUCKET_TAGS.iter().find_map(|beginning| key.strip_prefix(beginning)) {
            let tag = self.bucket_tags.iter().find(|(own, _)| own == name);
            return Lookup::maybe(tag.map(|(_, value)| value.as_str()));
        }
        if let Some(name) = key.strip_prefix("s3:existingobjecttag/") {
            let tag = self.existing_tags.iter().find(|(own, _)| own == name);
            return Lookup::maybe(tag.map(|(_, value)| value.as_str()));
        }
        if let Some(name) = key.strip_prefix("s3:requestobjecttag/") {
            let tag = self.request_tags().into_iter().find(|(own, _)| own == name);
            return Lookup::maybe(tag.map(|(_, value)| value));
        }
        if key.starts_with("s3:x-amz-") {
            return self.header(&key["s3:".len()..]);
        }
        let circumstances = self.circumstances;
        match key {
            "aws:currenttime" => Lookup::one(iso(circumstances.now)),
            "aws:epochtime" => Lookup::one((circumstances.now.0 / 1_000_000_000).to_string()),
            "aws:requestedregion" => Lookup::one(circumstances.region),
            "aws:securetransport" => Lookup::one(if circumstances.secure { "true" } else { "false" }),
            "aws:sourceip" => Lookup::one(circumstances.peer.to_canonical().to_string()),
            "s3:authtype" => Lookup::maybe(circumstances.auth_type),
            "s3:signatureversion" => Lookup::maybe(circumstances.signature_version),
            "s3:resourceaccount" => Lookup::maybe(self.resource_account),
            "s3:requestobjecttagkeys" => {
                let names: Vec<_> = self.request_tags().into_iter().map(|(name, _)| name).collect();
                if names.is_empty() { Lookup::Absent } else { Lookup::Values(names) }
            }
            // Valid in policies, but not supported here: it must not look like an absent value.
            "s3:signatureage"
            | "s3:tlsversion"
            | "s3:locationconstraint"
            | "aws:tokenissuetime"
            | "s3:object-lock-remaining-retention-days" => Lookup::Unknown,
            _ => self.of_caller(key),
        }
    }
}
