//! The bucket: objects with conditions, copies, listings and removals by many, answered from a request without a connection.
//!
//! Without uploads in parts. It knows no faults but three, which are habits of stores: it may ignore conditions, its listings may be old, and the error of a
//! copy may come in the body of an answer 200. What is lost or comes twice is decided by whoever calls it (sim).

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use margay_client::client::{Answer, Ask};
use margay_client::{ClientError, Refusal};
use md5::{Digest, Md5};

use crate::encoded::decoded;

pub(crate) type Outcome = Result<Answer, ClientError>;

/// Keys and prefixes of a page: small, so that seams are met.
const PAGE: usize = 3;
/// Older states that a listing may show.
const OLDER_MAX: usize = 6;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Object {
    pub(crate) body: Bytes,
    pub(crate) headers: BTreeMap<String, String>,
}

impl Object {
    pub(crate) fn etag(&self) -> String {
        format!("\"{:x}\"", Md5::digest(&self.body))
    }
}

pub(crate) type Objects = BTreeMap<String, Object>;

#[derive(Default)]
pub(crate) struct Store {
    pub(crate) objects: Objects,
    /// Newest last.
    pub(crate) older: VecDeque<Objects>,
    pub(crate) ignores_conditions: bool,
    /// Errors of copies come with an answer 200.
    pub(crate) errors_in_bodies: bool,
    pub(crate) puts: u64,
}

fn header<'a>(ask: &'a Ask, name: &str) -> Option<&'a str> {
    let found = ask.headers.iter().find(|(own, _)| own.as_str() == name);
    found.map(|(_, value)| value.to_str().unwrap())
}

pub(crate) fn refused(ask: &Ask, status: u16, code: &str) -> ClientError {
    let request = format!("{} {}", ask.method, ask.key);
    let (code, message) = (code.to_owned(), String::new());
    ClientError::Refused(Box::new(Refusal { request, status, code, message, region: String::new() }))
}

fn answer(headers: HeaderMap, body: impl Into<Bytes>) -> Outcome {
    Ok(Answer { headers, body: body.into() })
}

fn plain(body: impl Into<Bytes>) -> Outcome {
    answer(HeaderMap::new(), body)
}

fn headers_of(object: &Object) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in &object.headers {
        headers.insert(HeaderName::from_bytes(name.as_bytes()).unwrap(), HeaderValue::from_str(value).unwrap());
    }
    headers.insert("etag", HeaderValue::from_str(&object.etag()).unwrap());
    headers.insert("content-length", object.body.len().into());
    headers
}

impl Store {
    /// Executes a request; `age`: how many changes ago the state was that a listing shows.
    pub(crate) fn execute(&mut self, ask: &Ask, age: usize) -> Outcome {
        if ask.query.contains("upload") {
            return Err(refused(ask, 501, "NotImplemented"));
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

    fn note(&mut self) {
        if self.older.len() == OLDER_MAX {
            self.older.pop_front();
        }
        self.older.push_back(self.objects.clone());
    }

    fn holds(&self, ask: &Ask) -> bool {
        let etag = self.objects.get(&ask.key).map(Object::etag);
        self.ignores_conditions
            || header(ask, "if-match").is_none_or(|wanted| etag.as_deref() == Some(wanted))
                && header(ask, "if-none-match").is_none_or(|_| etag.is_none())
    }

    fn put(&mut self, ask: &Ask) -> Outcome {
        if !self.holds(ask) {
            // As AWS: nothing there is not another state.
            let is_missing = header(ask, "if-match").is_some() && !self.objects.contains_key(&ask.key);
            let (status, code) = if is_missing { (404, "NoSuchKey") } else { (412, "PreconditionFailed") };
            return Err(refused(ask, status, code));
        }
        let kept =
            ask.headers.iter().filter(|(name, _)| name.as_str().starts_with("x-amz-meta-") || *name == "content-type");
        let headers =
            kept.map(|(name, value)| (name.as_str().to_owned(), value.to_str().unwrap().to_owned())).collect();
        let mut object = Object { body: ask.body.clone(), headers };
        let source = header(ask, "x-amz-copy-source").map(decoded);
        if let Some(source) = &source {
            let Some(from) = self.objects.get(source.strip_prefix("/far/").unwrap()) else {
                return Err(refused(ask, 404, "NoSuchKey"));
            };
            if header(ask, "x-amz-copy-source-if-match").is_some_and(|wanted| wanted != from.etag()) {
                return Err(refused(ask, 412, "PreconditionFailed"));
            }
            if self.errors_in_bodies {
                self.puts += 1;
                if self.puts.is_multiple_of(4) {
                    return plain("<Error><Code>InternalError</Code><Message>-</Message></Error>");
                }
            }
            object.body = from.body.clone();
            if header(ask, "x-amz-metadata-directive") != Some("REPLACE") {
                object.headers = from.headers.clone();
            }
        }
        let etag = object.etag();
        self.objects.insert(ask.key.clone(), object);
        let quoted = etag.replace('"', "&quot;");
        let document = source.map(|_| format!("<CopyObjectResult><ETag>{quoted}</ETag></CopyObjectResult>"));
        let headers = HeaderMap::from_iter([(http::header::ETAG, HeaderValue::from_str(&etag).unwrap())]);
        answer(headers, document.unwrap_or_default())
    }

    fn remove_many(&mut self, document: &str) -> Outcome {
        let mut out = String::from("<DeleteResult>");
        for object in document.split("<Object>").skip(1) {
            let between = |start: &str, end: &str| {
                object.split_once(start).and_then(|(_, rest)| rest.split_once(end)).map(|(text, _)| text)
            };
            let key = between("<Key>", "</Key>").unwrap();
            let wanted = between("<ETag>", "</ETag>").map(|etag| etag.replace("&quot;", "\""));
            let there = self.objects.get(key).map(Object::etag);
            if there.is_some_and(|there| !self.ignores_conditions && wanted.is_some_and(|wanted| wanted != there)) {
                out += &format!("<Error><Key>{key}</Key><Code>PreconditionFailed</Code></Error>");
            } else {
                self.objects.remove(key);
            }
        }
        plain(out + "</DeleteResult>")
    }

    fn read(&self, ask: &Ask) -> Outcome {
        let object = self.objects.get(&ask.key).ok_or_else(|| refused(ask, 404, "NoSuchKey"))?;
        if header(ask, "if-match").is_some_and(|wanted| wanted != object.etag()) {
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
        let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        let query: BTreeMap<&str, String> = pairs.map(|(name, value)| (name, decoded(value))).collect();
        let shown_state = match age {
            0 => &self.objects,
            age => self.older.iter().rev().nth(age - 1).unwrap_or(&self.objects),
        };
        let (prefix, empty) = (&query["prefix"], String::new());
        let after = query.get("continuation-token").unwrap_or(&empty);
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
            let etag = object.etag().replace('"', "&quot;");
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
