//! PostObject: a browser's form upload, executed as a PutObject of its file.
//!
//! Why:        what is stored, answered and refused equals a PutObject with the form's fields as headers; only
//!             authentication and the form of the response differ.
//! Invariants: P1 everything that the fields say is checked before a byte of the file is read.
//! Not here:   parsing the form (`form`), its policy's signature (`auth`).

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use bytes::BytesMut;
use http::header::{CONTENT_TYPE, ETAG, LOCATION};
use http::{HeaderMap, HeaderValue, StatusCode};
use margay_volume::PART_BYTES_MAX;

use super::{Came, S3Door, Signed};
use crate::auth::{Credentials, PayloadForm};
use crate::body::announced_bytes;
use crate::error::S3Error;
use crate::form::{self, Form, FormError, PolicyDocument};
use crate::identities;
use crate::payload::{Payload, Wire};
use crate::reply::Reply;
use crate::route;
use crate::route::query::Query;
use crate::route::target::Target;
use crate::tags::{Tagged, Tags};
use crate::xml::write::{Writer, percent_encode};

impl S3Door {
    /// Answers a form for the bucket of `address`.
    pub(super) async fn serve_form(&self, came: Came<'_>, wire: Wire, address: Target) -> Result<Reply, S3Error> {
        let boundary = form::boundary(came.parts.headers.get(CONTENT_TYPE))?;
        // The file is part of the body, so it is shorter.
        let body_bytes = announced_bytes(&came.parts.headers, &PayloadForm::Unsigned)?;
        let len_max = body_bytes.unwrap_or(PART_BYTES_MAX).min(PART_BYTES_MAX);
        let (form, file) = form::read(Box::new(wire), boundary).await?;
        let token = form.get("x-amz-security-token");
        let now = self.env.clock.now();
        let verify = |credentials: &dyn Credentials| self.verifier.verify_form(|name| form.get(name), credentials);
        let (sender, identity) = identities::identify_form(&*self.access.identities, token, now, verify).await?;
        let key = form.get("key").filter(|key| !key.is_empty()).ok_or(FormError::NoKey)?;
        let (mut size_min, mut size_max) = (0, PART_BYTES_MAX);
        if let Some(policy) = form.get("policy") {
            let policy = PolicyDocument::decode(policy)?;
            policy.check(&form, &address.bucket, now)?;
            (size_min, size_max) = (policy.size().0, policy.size().1.min(PART_BYTES_MAX));
        }
        let target = Target { key: key.to_owned(), ..address };
        target.check_key()?;
        let (mut headers, query) = (form.headers()?, Query::default());
        if let Some(document) = form.get("tagging") {
            let tags = Tags::from_xml(document.as_bytes(), Tagged::Object)?.to_stored();
            let tags = HeaderValue::from_bytes(&tags).map_err(|error| S3Error::internal(&error))?;
            headers.insert("x-amz-tagging", tags);
        }
        let payload = Payload {
            wire: Wire::new(Box::new(file.with_size(size_min, size_max)), &headers, Arc::new(AtomicU64::new(0))),
            form: PayloadForm::Unsigned,
            chain: None,
            options: self.options.decoder,
            len_max: Some(len_max),
        };
        let operation = route::named("PutObject");
        let signed = Signed { sender, identity, operation, target: &target, query: &query, headers: &headers, came };
        let stored = self.run(&signed, payload).await?;
        answer(stored, &form, &target, &came.host.origin())
    }
}

/// The success response that the form asks for.
fn answer(stored: Reply, form: &Form, target: &Target, origin: &str) -> Result<Reply, S3Error> {
    let mut location = BytesMut::from(origin.as_bytes());
    location.extend_from_slice(b"/");
    if !target.virtual_host {
        location.extend_from_slice(target.bucket.as_bytes());
        location.extend_from_slice(b"/");
    }
    percent_encode(&mut location, &target.key);
    let location = String::from_utf8(location.to_vec()).map_err(|error| S3Error::internal(&error))?;
    let etag = stored.headers.get(ETAG).and_then(|etag| etag.to_str().ok()).unwrap_or_default().to_owned();
    let redirect = form.get("success_action_redirect").or_else(|| form.get("redirect"));
    if let Some(url) = redirect.and_then(|url| redirection(url, target, &etag)) {
        let mut reply = Reply { status: StatusCode::SEE_OTHER, ..stored };
        reply.headers.insert(LOCATION, url);
        return Ok(reply);
    }
    let mut reply = match form.get("success_action_status") {
        Some("200") => Reply { status: StatusCode::OK, ..stored },
        Some("201") => created(stored.headers, target, &location, &etag),
        _ => Reply { status: StatusCode::NO_CONTENT, ..stored },
    };
    reply = reply.header(LOCATION, &location)?;
    Ok(reply)
}

/// `None` for an invalid URL; AWS then ignores it.
fn redirection(url: &str, target: &Target, etag: &str) -> Option<HeaderValue> {
    let parsed: http::Uri = url.parse().ok()?;
    parsed.authority().filter(|_| ["http", "https"].iter().any(|scheme| parsed.scheme_str() == Some(scheme)))?;
    let (url, fragment) = url.split_once('#').map_or((url, None), |(url, fragment)| (url, Some(fragment)));
    let mut out = BytesMut::from(url.as_bytes());
    for (name, value) in [("bucket", target.bucket.as_str()), ("key", &target.key), ("etag", etag)] {
        let separator: &[u8] = if out.contains(&b'?') { b"&" } else { b"?" };
        out.extend_from_slice(separator);
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(b"=");
        percent_encode(&mut out, value);
    }
    if let Some(fragment) = fragment {
        out.extend_from_slice(b"#");
        out.extend_from_slice(fragment.as_bytes());
    }
    HeaderValue::from_bytes(&out).ok()
}

fn created(headers: HeaderMap, target: &Target, location: &str, etag: &str) -> Reply {
    let mut document = BytesMut::with_capacity(512);
    let mut writer = Writer::new(&mut document);
    writer.document();
    writer.open("PostResponse");
    writer.text("Location", location);
    writer.text("Bucket", &target.bucket);
    writer.text("Key", &target.key);
    writer.text("ETag", etag);
    writer.close("PostResponse");
    let mut reply = Reply::xml(document);
    reply.status = StatusCode::CREATED;
    for (name, value) in &headers {
        reply.headers.entry(name).or_insert_with(|| value.clone());
    }
    reply
}
