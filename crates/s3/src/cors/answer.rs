//! Answers CORS preflights, and adds CORS headers to every other response.
//!
//! Invariants: C1 a preflight needs no signature and reads no body.
//!             C2 every response to a request with `Origin`, errors included, gets CORS headers if a rule matches, else
//!                none.

use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use margay_volume::{BucketFact, BucketInfo, RequestRows, Setting, View, Volume};

use super::rules::{Rule, Rules};
use crate::error::{Code, S3Error};
use crate::headers::text;
use crate::reply::Reply;
use crate::route::target::Target;

/// Misspelt as at AWS: clients compare it.
const NOT_ALLOWED: &str = "CORSResponse: This CORS request is not allowed. This is usually because the evalution of \
                           Origin, request method / Access-Control-Request-Method or Access-Control-Request-Headers \
                           are not whitelisted by the resource's CORS spec.";

/// Answers a preflight request.
pub(crate) async fn preflight(volume: &Volume, target: &Target, headers: &HeaderMap) -> Result<Reply, S3Error> {
    let origin = text(headers, "origin")?
        .ok_or_else(|| S3Error::new(Code::BadRequest, "Insufficient information. Origin request header needed."))?;
    let method = text(headers, "access-control-request-method")?.unwrap_or("null");
    if !["GET", "PUT", "HEAD", "POST", "DELETE"].contains(&method) {
        return Err(S3Error::new(Code::BadRequest, format!("Invalid Access-Control-Request-Method: {method}")));
    }
    let asked = text(headers, "access-control-request-headers")?.unwrap_or("");
    let asked: Vec<&str> = asked.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
    let forbidden = |message: &'static str| {
        let resource = if target.key.is_empty() { "BUCKET" } else { "OBJECT" };
        S3Error::new(Code::AccessForbidden, message).with("Method", method).with("ResourceType", resource)
    };
    let known = match rules_of(volume.view(&RequestRows::default()), &target.bucket).await {
        Ok(known) => known,
        Err(margay_volume::Error::NoSuchBucket) => return Err(forbidden("CORSResponse: Bucket not found")),
        Err(error) => return Err(error.into()),
    };
    let rules = known.0.as_ref();
    let rules = rules.ok_or_else(|| forbidden("CORSResponse: CORS is not enabled for this bucket."))?;
    let rule = rules.find(origin, method, &asked).ok_or_else(|| forbidden(NOT_ALLOWED))?;
    let mut reply = Reply::empty(StatusCode::OK);
    tell(rule, origin, &mut reply.headers);
    if !asked.is_empty() {
        set(&mut reply.headers, header::ACCESS_CONTROL_ALLOW_HEADERS, &asked.join(", ").to_ascii_lowercase());
    }
    Ok(reply)
}

/// Adds the headers that allow a browser to pass the response to the page. The rules are those that the request has
/// read, unless it may have changed them.
pub(crate) async fn decorate(
    (volume, rows): (&Volume, &RequestRows),
    domains: &[String],
    host: &str,
    parts: &Parts,
    answer: &mut HeaderMap,
) {
    let Ok(Some(origin)) = text(&parts.headers, "origin") else { return };
    let Ok(target) = Target::parse(host, parts.uri.path(), domains) else { return };
    if target.bucket.is_empty() {
        return;
    }
    let (fresh, changes) = (RequestRows::default(), !matches!(parts.method, Method::GET | Method::HEAD));
    let view = volume.view(if changes && target.key.is_empty() { &fresh } else { rows });
    // A client that names a method asks about that one, whatever method it uses itself.
    let asked = text(&parts.headers, "access-control-request-method").ok().flatten();
    let method = asked.unwrap_or(parts.method.as_str());
    if let Ok(known) = rules_of(view, &target.bucket).await
        && let Some(rules) = &known.0
        && let Some(rule) = rules.find(origin, method, &[])
    {
        tell(rule, origin, answer);
    }
}

/// A bucket's rules; `None`: it has none.
struct KnownRules(Option<Rules>);

impl BucketFact for KnownRules {
    const SETTINGS: &'static [Setting] = &[Setting::Cors];

    fn parse(_: &BucketInfo, documents: &[(Setting, Bytes)]) -> KnownRules {
        // A stored document was valid when it was set. If it cannot be parsed, it counts as none, and fsck reports it.
        KnownRules(documents.first().and_then(|(_, document)| Rules::from_xml(document).ok()))
    }
}

async fn rules_of(view: View<'_>, bucket: &str) -> Result<Arc<KnownRules>, margay_volume::Error> {
    view.bucket_fact(bucket).await
}

fn tell(rule: &Rule, origin: &str, headers: &mut HeaderMap) {
    if rule.allows_any_origin() {
        set(headers, header::ACCESS_CONTROL_ALLOW_ORIGIN, "*");
    } else {
        set(headers, header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        set(headers, header::ACCESS_CONTROL_ALLOW_CREDENTIALS, "true");
    }
    set(headers, header::ACCESS_CONTROL_ALLOW_METHODS, &rule.methods.join(", "));
    if !rule.exposed.is_empty() {
        set(headers, header::ACCESS_CONTROL_EXPOSE_HEADERS, &rule.exposed.join(", "));
    }
    if let Some(seconds) = rule.max_age_seconds {
        set(headers, header::ACCESS_CONTROL_MAX_AGE, &seconds.to_string());
    }
    set(headers, header::VARY, "Origin, Access-Control-Request-Headers, Access-Control-Request-Method");
}

/// Skips a stored value that is not valid in a header.
fn set(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}
