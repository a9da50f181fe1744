//! The bucket: objects with conditions, copies, listings and removals by many, answered from a request without a connection.
//!
//! What:       it knows no faults but habits of stores: it may ignore conditions, its listings may be old, and the error of a copy may
//!             come in the body of an answer 200, though it was done or not.
//! Not here:   uploads in parts (uploads), what is lost or comes twice (sim).

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use margay_client::client::{Answer, Ask};
use margay_client::{ClientError, Refusal};

use crate::documents::{Upload, etag_of, removals, removed_but, with_field};
use crate::encoded::decoded;
use crate::text::named;
use crate::uploads::{Completes, ERROR};

pub(crate) type Outcome = Result<Answer, ClientError>;

/// Keys and prefixes of a page: small, so that seams are met.
const PAGE: usize = 3;
/// Older states that a listing may show.
const OLDER_MAX: usize = 6;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Object {
    pub(crate) body: Bytes,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) etag: String,
    /// Its content, as the oracle knows it.
    pub(crate) name: String,
}

impl Object {
    pub(crate) fn new(body: Bytes, headers: BTreeMap<String, String>) -> Object {
        let etag = etag_of(&body);
        Object::of_parts(body, headers, etag)
    }

    pub(crate) fn of_parts(body: Bytes, headers: BTreeMap<String, String>, etag: String) -> Object {
        let name = named(&body);
        Object { body, headers, etag, name }
    }
}

pub(crate) type Objects = BTreeMap<String, Object>;

#[derive(Default)]
pub(crate) struct Store {
    pub(crate) objects: Objects,
    /// Newest last.
    pub(crate) older: VecDeque<Objects>,
    pub(crate) ignores_conditions: bool,
    /// Errors of copies and completions come with an answer 200.
    pub(crate) errors_in_bodies: bool,
    pub(crate) completes: Completes,
    pub(crate) uploads: BTreeMap<String, Upload>,
    /// Uploads of all times.
    pub(crate) begun: u64,
    /// Answers that may tell of an error in the body.
    pub(crate) may_fail: u64,
}

pub(crate) fn header<'a>(ask: &'a Ask, name: &str) -> Option<&'a str> {
    let found = ask.headers.iter().find(|(own, _)| own.as_str() == name);
    found.map(|(_, value)| value.to_str().unwrap())
}

pub(crate) fn refused(ask: &Ask, status: u16, code: &str) -> ClientError {
    let request = format!("{} {}", ask.method, ask.key);
    let (code, message) = (code.to_owned(), String::new());
    ClientError::Refused(Box::new(Refusal { request, status, code, message, region: String::new() }))
}

pub(crate) fn answer(headers: HeaderMap, body: impl Into<Bytes>) -> Outcome {
    Ok(Answer { headers, body: body.into() })
}

pub(crate) fn plain(body: impl Into<Bytes>) -> Outcome {
    answer(HeaderMap::new(), body)
}

pub(crate) fn etag_header(etag: &str) -> HeaderMap {
    HeaderMap::from_iter([(http::header::ETAG, HeaderValue::from_str(etag).unwrap())])
}

fn parameters(query: &str) -> BTreeMap<&str, String> {
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs.map(|(name, value)| (name, decoded(value))).collect()
}

/// What the names begin with that a listing asks for.
pub(crate) fn listed_prefix(ask: &Ask) -> Option<String> {
    let is_listing = ask.method == Method::GET && ask.key.is_empty() && !ask.query.contains("upload");
    if is_listing { parameters(&ask.query).remove("prefix") } else { None }
}

/// The key that a request copies from.
pub(crate) fn source_of(ask: &Ask) -> Option<String> {
    let source = header(ask, "x-amz-copy-source").map(decoded);
    source.map(|source| source.strip_prefix("/far/").unwrap().to_owned())
}

pub(crate) fn metadata(ask: &Ask) -> BTreeMap<String, String> {
    let kept =
        ask.headers.iter().filter(|(name, _)| name.as_str().starts_with("x-amz-meta-") || *name == "content-type");
    kept.map(|(name, value)| (name.as_str().to_owned(), value.to_str().unwrap().to_owned())).collect()
}

fn headers_of(object: &Object) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in &object.headers {
        headers.insert(HeaderName::from_bytes(name.as_bytes()).unwrap(), HeaderValue::from_str(value).unwrap());
    }
    headers.insert("etag", HeaderValue::from_str(&object.etag).unwrap());
    headers.insert("content-length", object.body.len().into());
    headers
}

impl Store {
    /// Executes a request; `age`: how many changes ago the state was that a listing shows.
    pub(crate) fn execute(&mut self, ask: &Ask, age: usize) -> Outcome {
        if ask.query.contains("upload") {
            return self.multipart(ask);
        }
        match ask.method {
            Method::GET if ask.key.is_empty() => self.list(&ask.query, age),
            Method::POST => {
                let document = std::str::from_utf8(&ask.body).unwrap();
                self.note();
                self.remove_many(document)
            }
            Method::PUT => {
                self.note();
                self.put(ask)
            }
            Method::DELETE => {
                self.note();
                self.objects.remove(&ask.key);
                plain("")
            }
            _ => self.read(ask),
        }
    }

    /// Another client's change.
    pub(crate) fn change(&mut self, change: impl FnOnce(&mut Objects)) {
        self.note();
        change(&mut self.objects);
    }

    pub(crate) fn note(&mut self) {
        if self.older.len() == OLDER_MAX {
            self.older.pop_front();
        }
        self.older.push_back(self.objects.clone());
    }

    /// Whether the conditions of a write hold.
    pub(crate) fn check(&self, ask: &Ask) -> Result<(), ClientError> {
        let etag = self.objects.get(&ask.key).map(|object| &object.etag);
        let holds = self.ignores_conditions
            || header(ask, "if-match").is_none_or(|wanted| etag.is_some_and(|etag| etag == wanted))
                && header(ask, "if-none-match").is_none_or(|_| etag.is_none());
        // As AWS: nothing there is not another state.
        let is_missing = header(ask, "if-match").is_some() && etag.is_none();
        match (holds, is_missing) {
            (true, _) => Ok(()),
            (false, true) => Err(refused(ask, 404, "NoSuchKey")),
            (false, false) => Err(refused(ask, 412, "PreconditionFailed")),
        }
    }

    /// What a request copies.
    pub(crate) fn source(&self, ask: &Ask, source: &str) -> Result<&Object, ClientError> {
        let from = self.objects.get(source).ok_or_else(|| refused(ask, 404, "NoSuchKey"))?;
        match header(ask, "x-amz-copy-source-if-match").is_some_and(|wanted| wanted != from.etag) {
            true => Err(refused(ask, 412, "PreconditionFailed")),
            false => Ok(from),
        }
    }

    /// Whether this answer tells of an error in its body, and what it is about was done.
    pub(crate) fn fails_in_body(&mut self) -> Option<bool> {
        self.may_fail += u64::from(self.errors_in_bodies);
        match self.may_fail % 6 {
            2 => Some(false),
            5 => Some(true),
            _ => None,
        }
        .filter(|_| self.errors_in_bodies)
    }

    fn put(&mut self, ask: &Ask) -> Outcome {
        self.check(ask)?;
        let Some(source) = source_of(ask) else {
            let object = Object::new(ask.body.clone(), metadata(ask));
            let headers = etag_header(&object.etag);
            self.objects.insert(ask.key.clone(), object);
            return answer(headers, "");
        };
        let from = self.source(ask, &source)?;
        let replaces = header(ask, "x-amz-metadata-directive") == Some("REPLACE");
        let headers = if replaces { metadata(ask) } else { from.headers.clone() };
        let object = Object::new(from.body.clone(), headers);
        let failed = self.fails_in_body();
        if failed == Some(false) {
            return plain(ERROR);
        }
        let etag = object.etag.clone();
        self.objects.insert(ask.key.clone(), object);
        match failed {
            Some(_) => plain(ERROR),
            None => answer(etag_header(&etag), with_field("CopyObjectResult", "ETag", &etag)),
        }
    }

    fn remove_many(&mut self, document: &str) -> Outcome {
        let mut kept = Vec::new();
        for (key, wanted) in removals(document) {
            match self.objects.get(key) {
                Some(there) if !self.ignores_conditions && wanted.is_some_and(|wanted| wanted != there.etag) => {
                    kept.push(key);
                }
                _ => drop(self.objects.remove(key)),
            }
        }
        plain(removed_but(&kept))
    }

    fn read(&self, ask: &Ask) -> Outcome {
        let object = self.objects.get(&ask.key).ok_or_else(|| refused(ask, 404, "NoSuchKey"))?;
        if header(ask, "if-match").is_some_and(|wanted| wanted != object.etag) {
            return Err(refused(ask, 412, "PreconditionFailed"));
        }
        let mut headers = headers_of(object);
        let range = header(ask, "range").and_then(|range| range.strip_prefix("bytes=")?.split_once('-'));
        let Some((first, last)) = range.filter(|_| ask.method == Method::GET) else { return answer(headers, "") };
        let (first, last): (usize, usize) = (first.parse().unwrap(), last.parse().unwrap());
        let size = object.body.len();
        if first >= size {
            return Err(refused(ask, 416, "InvalidRange"));
        }
        let end = size.min(last + 1);
        let range = format!("bytes {first}-{}/{size}", end - 1);
        headers.insert("content-range", HeaderValue::from_str(&range).unwrap());
        answer(headers, object.body.slice(first..end))
    }

    fn list(&self, query: &str, age: usize) -> Outcome {
        let query = parameters(query);
        let shown_state = match age {
            0 => &self.objects,
            age => self.older.iter().rev().nth(age - 1).unwrap_or(&self.objects),
        };
        let (prefix, empty) = (&query["prefix"], String::new());
        let after = query.get("continuation-token").or(query.get("start-after")).unwrap_or(&empty);
        let mut out = String::from("<ListBucketResult>");
        let (mut count, mut last) = (0, String::new());
        for (key, object) in shown_state.iter().filter(|(key, _)| key.starts_with(prefix.as_str())) {
            let slash = key[prefix.len()..].find('/').filter(|_| query.contains_key("delimiter"));
            let shown = slash.map_or(key.as_str(), |slash| &key[..=prefix.len() + slash]);
            if shown <= after.as_str() || shown == last {
                continue;
            }
            if count == PAGE {
                out += &format!("<IsTruncated>true</IsTruncated><NextContinuationToken>{last}</NextContinuationToken>");
                break;
            }
            (count, last) = (count + 1, shown.to_owned());
            let etag = object.etag.replace('"', "&quot;");
            out += &match shown == key {
                true => format!(
                    "<Contents><Key>{key}</Key><Size>{}</Size><ETag>{etag}</ETag></Contents>",
                    object.body.len()
                ),
                false => format!("<CommonPrefixes><Prefix>{shown}</Prefix></CommonPrefixes>"),
            };
        }
        plain(out + "</ListBucketResult>")
    }
}
