//! Enough of a store to be a client's other end, in memory; it fails when it is told to.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use margay_client::Target;
use margay_client::upstream::WRITE_ID;
use md5::{Digest, Md5};

use crate::listen::{Answer, Lost, answer, listen, refusal, text};

/// What happens to one request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Fault {
    None,
    Refuse(u16),
    /// The connection breaks, and nothing was done.
    LostBefore,
    /// The connection breaks, and it was done.
    LostAfter,
    WholeObject,
    OtherRange,
    OtherEtag,
    MoreBytes,
    /// An answer of 200 that says that it failed.
    ErrorInside,
}

#[derive(Default)]
pub(crate) struct Store {
    objects: Mutex<BTreeMap<String, (Bytes, String)>>,
    uploads: Mutex<HashMap<String, BTreeMap<u32, Bytes>>>,
    /// By upload, then by key.
    write_ids: Mutex<HashMap<String, HeaderValue>>,
    faults: Mutex<VecDeque<Fault>>,
    pause: Mutex<Duration>,
    /// With more requests at once it is too busy; 0: never.
    busy_above: AtomicUsize,
    pub(crate) refused: AtomicUsize,
    pub(crate) requests: AtomicUsize,
    at_once: AtomicUsize,
    pub(crate) at_once_max: AtomicUsize,
    bytes_at_once: AtomicUsize,
    pub(crate) bytes_at_once_max: AtomicUsize,
}

fn with_etag(mut answer: Answer, etag: &str) -> Answer {
    answer.headers_mut().insert("etag", etag.parse().unwrap());
    answer
}

impl Store {
    pub(crate) async fn start() -> (Arc<Store>, Arc<Target>) {
        let store = Arc::new(Store::default());
        let target = listen(Arc::clone(&store), |store, request| async move { store.serve(request).await }).await;
        (store, target)
    }

    /// What happens to the next requests, one by one.
    pub(crate) fn fail(&self, faults: impl IntoIterator<Item = Fault>) {
        *self.faults.lock().unwrap() = faults.into_iter().collect();
    }

    pub(crate) fn slow(&self, pause: Duration) {
        *self.pause.lock().unwrap() = pause;
    }

    pub(crate) fn busy_above(&self, requests: usize) {
        self.busy_above.store(requests, Ordering::SeqCst);
    }

    pub(crate) fn content(&self, key: &str) -> Bytes {
        self.objects.lock().unwrap()[&format!("/far/{key}")].0.clone()
    }

    /// Uploads that did not end.
    pub(crate) fn uploads(&self) -> usize {
        self.uploads.lock().unwrap().len()
    }

    async fn serve(&self, request: Request<Incoming>) -> Result<Answer, Lost> {
        self.requests.fetch_add(1, Ordering::SeqCst);
        let now = self.at_once.fetch_add(1, Ordering::SeqCst) + 1;
        self.at_once_max.fetch_max(now, Ordering::SeqCst);
        let pause = *self.pause.lock().unwrap();
        tokio::time::sleep(pause).await;
        let (head, body) = request.into_parts();
        let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
        let most = self.busy_above.load(Ordering::SeqCst);
        if most > 0 && now > most {
            self.at_once.fetch_sub(1, Ordering::SeqCst);
            self.refused.fetch_add(1, Ordering::SeqCst);
            return Ok(refusal(503, "SlowDown"));
        }
        let bytes = self.bytes_at_once.fetch_add(body.len(), Ordering::SeqCst) + body.len();
        self.bytes_at_once_max.fetch_max(bytes, Ordering::SeqCst);
        let fault = self.faults.lock().unwrap().pop_front().unwrap_or(Fault::None);
        let done = match fault {
            Fault::LostBefore => Err(Lost),
            Fault::Refuse(status) => Ok(refusal(status, "Refused")),
            Fault::ErrorInside => Ok(refusal(200, "InternalError")),
            fault => {
                let Ok(answer) = self.answer(&head, body.clone(), fault);
                if fault == Fault::LostAfter { Err(Lost) } else { Ok(answer) }
            }
        };
        self.bytes_at_once.fetch_sub(body.len(), Ordering::SeqCst);
        self.at_once.fetch_sub(1, Ordering::SeqCst);
        done
    }

    fn answer(&self, head: &http::request::Parts, body: Bytes, fault: Fault) -> Result<Answer, Infallible> {
        let key = head.uri.path().to_owned();
        let query: HashMap<&str, &str> =
            head.uri.query().unwrap_or_default().split('&').filter_map(|pair| pair.split_once('=')).collect();
        if query.contains_key("uploads") || query.contains_key("uploadId") {
            return Ok(self.multipart(head, &key, &query, body));
        }
        let mut objects = self.objects.lock().unwrap();
        let there = objects.get(&key).cloned();
        Ok(match head.method {
            Method::PUT => {
                if !holds(&head.headers, there.as_ref()) {
                    return Ok(refusal(412, "PreconditionFailed"));
                }
                let etag = format!("\"{:x}\"", Md5::digest(&body));
                objects.insert(key, (body, etag.clone()));
                with_etag(answer(200, ""), &etag)
            }
            Method::DELETE => {
                objects.remove(&key);
                answer(204, "")
            }
            _ => match there {
                None => refusal(404, "NoSuchKey"),
                Some((content, etag)) => {
                    let mut answer = read(head, &content, &etag, fault);
                    let id = self.write_ids.lock().unwrap().get(&key).cloned();
                    answer.headers_mut().extend(id.map(|id| (WRITE_ID, id)));
                    answer
                }
            },
        })
    }

    fn multipart(&self, head: &http::request::Parts, key: &str, query: &HashMap<&str, &str>, body: Bytes) -> Answer {
        let mut uploads = self.uploads.lock().unwrap();
        let Some(id) = query.get("uploadId") else {
            let id = format!("u{}", self.requests.load(Ordering::SeqCst));
            uploads.insert(id.clone(), BTreeMap::new());
            let written = head.headers.get(WRITE_ID).cloned();
            self.write_ids.lock().unwrap().extend(written.map(|written| (id.clone(), written)));
            let document =
                format!("<InitiateMultipartUploadResult><UploadId>{id}</UploadId></InitiateMultipartUploadResult>");
            return answer(200, document);
        };
        let Some(parts) = uploads.get_mut(*id) else { return refusal(404, "NoSuchUpload") };
        match head.method {
            Method::PUT => {
                let etag = format!("\"{:x}\"", Md5::digest(&body));
                parts.insert(query["partNumber"].parse().unwrap(), body);
                with_etag(answer(200, ""), &etag)
            }
            Method::DELETE => {
                uploads.remove(*id);
                answer(204, "")
            }
            _ => {
                let mut objects = self.objects.lock().unwrap();
                if !holds(&head.headers, objects.get(key)) {
                    return refusal(412, "PreconditionFailed");
                }
                let asked = String::from_utf8(body.to_vec()).unwrap();
                let digests: Vec<_> = parts.values().map(Md5::digest).collect();
                for (number, digest) in parts.keys().zip(&digests) {
                    let part = format!("<PartNumber>{number}</PartNumber><ETag>&quot;{digest:x}&quot;</ETag>");
                    assert!(asked.contains(&part), "{asked}");
                }
                let etag = format!("\"{:x}-{}\"", Md5::digest(digests.concat()), parts.len());
                let content: Vec<u8> = parts.values().flatten().copied().collect();
                objects.insert(key.to_owned(), (content.into(), etag.clone()));
                uploads.remove(*id);
                let mut ids = self.write_ids.lock().unwrap();
                let written = ids.remove(*id);
                ids.extend(written.map(|written| (key.to_owned(), written)));
                let etag = etag.replace('"', "&quot;");
                answer(
                    200,
                    format!("<CompleteMultipartUploadResult><ETag>{etag}</ETag></CompleteMultipartUploadResult>"),
                )
            }
        }
    }
}

fn holds(headers: &HeaderMap, there: Option<&(Bytes, String)>) -> bool {
    let etag = there.map(|(_, etag)| etag.as_str());
    text(headers, "if-match").is_none_or(|wanted| etag == Some(wanted))
        && text(headers, "if-none-match").is_none_or(|_| etag.is_none())
}

fn read(head: &http::request::Parts, content: &Bytes, etag: &str, fault: Fault) -> Answer {
    if text(&head.headers, "if-match").is_some_and(|wanted| wanted != etag) {
        return refusal(412, "PreconditionFailed");
    }
    if text(&head.headers, "if-none-match") == Some(etag) {
        return answer(304, "");
    }
    if head.method == Method::HEAD {
        let mut answer = with_etag(answer(200, ""), etag);
        answer.headers_mut().insert("content-length", content.len().into());
        return answer;
    }
    let range = text(&head.headers, "range").and_then(|range| range.strip_prefix("bytes=")?.split_once('-'));
    let (first, last) =
        range.map(|(first, last)| (first.parse().unwrap(), last.parse().unwrap())).unwrap_or((0, usize::MAX));
    if first >= content.len() {
        return refusal(416, "InvalidRange");
    }
    let end = content.len().min(last.saturating_add(1));
    let (first, end) = if fault == Fault::OtherRange { (first + 1, end + 1) } else { (first, end) };
    let body = if fault == Fault::MoreBytes { content.clone() } else { content.slice(first..end) };
    let etag = if fault == Fault::OtherEtag { "\"other\"" } else { etag };
    if fault == Fault::WholeObject {
        return with_etag(answer(200, content.slice(..3)), etag);
    }
    let mut answer = with_etag(answer(206, body), etag);
    assert_eq!(answer.status(), StatusCode::PARTIAL_CONTENT);
    let range = format!("bytes {first}-{}/{}", end - 1, content.len());
    answer.headers_mut().insert("content-range", range.parse().unwrap());
    answer
}
