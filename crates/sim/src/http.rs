//! The workload's operations as signed S3 requests over a socket.
//!
//! Invariants: W1 one connection, one request at a time; after an error a new one is opened.
//!             W2 an answer of 500 or 503, or none, is `Unknown`; any other refusal is a definite no.

use std::cell::RefCell;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{ETAG, HOST, HeaderName, HeaderValue};
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::BodyExt;
use margay_client::client::encode_into;
use margay_client::connection::Connection;
use margay_client::payload::Payload;
use margay_client::target::Addressing;
use margay_client::{Credentials, Target as Server, xml};
use margay_env::Env;
use margay_s3::auth::sign::{Signer, Target as Signed};
use margay_s3::auth::{PayloadForm, Secret};

use crate::blob::Blob;
use crate::target::{BUCKET, Part, Target, Trouble};

/// The keys of the servers that are tried.
pub const ACCESS_KEY: &str = "simulated";
pub const SECRET_KEY: &str = "simulated-secret";
const REGION: &str = "us-east-1";
/// Keys on a page, so few that a listing has several.
const PAGE_KEYS: u32 = 9;

#[derive(Debug)]
pub struct Http {
    server: Arc<Server>,
    bucket: &'static str,
    signer: Signer,
    idle: RefCell<Option<Connection>>,
}

struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

impl Http {
    /// A client of the server at `127.0.0.1:port`, for the bucket that everything happens in.
    pub fn new(port: u16) -> Http {
        Http::of_bucket(port, BUCKET)
    }

    /// For another bucket; what it copies comes from that one.
    pub(crate) fn of_bucket(port: u16, bucket: &'static str) -> Http {
        let host = "127.0.0.1".to_owned();
        let credentials = Credentials { access_key: ACCESS_KEY.to_owned(), secret_key: SECRET_KEY.to_owned() };
        let authority = format!("{host}:{port}");
        let server = Server {
            authority,
            host,
            port,
            region: REGION.to_owned(),
            credentials: credentials.into(),
            tls: None,
            addressing: Addressing::Path,
        };
        let signer = Signer::new(ACCESS_KEY, Secret::new(SECRET_KEY), REGION);
        Http { server: Arc::new(server), bucket, signer, idle: RefCell::new(None) }
    }

    fn request(
        &self,
        method: &Method,
        key: &str,
        query: &str,
        header: Option<(&'static str, String)>,
        body: Bytes,
    ) -> Request<Payload> {
        let mut path = format!("/{}", self.bucket);
        if !key.is_empty() {
            path.push('/');
            encode_into(&mut path, key, true);
        }
        let whole = if query.is_empty() { path.clone() } else { format!("{path}?{query}") };
        let text = |text: &str| HeaderValue::from_str(text).expect("keys and names of a workload are ASCII");
        let mut request = Request::new(Payload::Whole(body.clone()));
        *request.method_mut() = method.clone();
        *request.uri_mut() = whole.parse().expect("an encoded path is one");
        request.headers_mut().insert(HOST, text(&self.server.authority));
        if body.is_empty() && matches!(*method, Method::PUT | Method::POST) {
            request.headers_mut().insert(http::header::CONTENT_LENGTH, HeaderValue::from_static("0"));
        }
        if let Some((name, value)) = header {
            request.headers_mut().insert(HeaderName::from_static(name), text(&value));
        }
        let signed = Signed { method, path: &path, query };
        let now = Env::real().clock.now();
        let done = self.signer.sign(signed, request.headers_mut(), PayloadForm::Unsigned, now);
        done.expect("such a request can be signed");
        request
    }

    async fn send(&self, request: Request<Payload>) -> Result<Answer, Trouble> {
        let lost = |error: &dyn std::fmt::Display| Trouble::Unknown(format!("no answer: {error}"));
        let idle = self.idle.borrow_mut().take();
        let mut connection = idle.unwrap_or_else(|| Connection::new(Arc::clone(&self.server)));
        let response = connection.send(request).await.map_err(|error| lost(&error))?;
        let (head, body) = response.into_parts();
        let body = body.collect().await.map_err(|error| lost(&error))?.to_bytes();
        *self.idle.borrow_mut() = Some(connection);
        Ok(Answer { status: head.status, headers: head.headers, body })
    }

    async fn call(
        &self,
        method: Method,
        key: &str,
        query: &str,
        header: Option<(&'static str, String)>,
        body: Bytes,
    ) -> Result<Answer, Trouble> {
        let request = self.request(&method, key, query, header, body);
        let answer = self.send(request).await?;
        if answer.status.is_success() || answer.status == StatusCode::NOT_FOUND {
            return Ok(answer);
        }
        let (code, message) = xml::parse_error(&answer.body);
        let text = format!("{} {code}: {message}", answer.status.as_u16());
        match answer.status {
            StatusCode::PRECONDITION_FAILED => Ok(answer),
            StatusCode::INTERNAL_SERVER_ERROR | StatusCode::SERVICE_UNAVAILABLE => Err(Trouble::Unknown(text)),
            _ => Err(Trouble::Refused(text)),
        }
    }

    /// As `call`, for what must be there.
    async fn must(&self, method: Method, key: &str, query: &str, body: Bytes) -> Result<Answer, Trouble> {
        let answer = self.call(method, key, query, None, body).await?;
        if answer.status.is_success() {
            return Ok(answer);
        }
        let (code, message) = xml::parse_error(&answer.body);
        Err(Trouble::Refused(format!("{} {code}: {message}", answer.status.as_u16())))
    }

    /// Sets what `query` names to this document.
    pub(crate) async fn set(&self, query: &str, document: String) -> Result<(), Trouble> {
        self.must(Method::PUT, "", query, document.into()).await.map(drop)
    }

    /// Ids of all versions and delete markers, as far as one page holds them.
    pub(crate) async fn version_ids(&self) -> Result<Vec<String>, Trouble> {
        Ok(texts(&self.must(Method::GET, "", "versions=", Bytes::new()).await?.body, "VersionId"))
    }

    pub(crate) async fn remove_bucket(&self) -> Result<(), Trouble> {
        self.must(Method::DELETE, "", "", Bytes::new()).await.map(drop)
    }

    /// Keys with sizes, and prefixes with size 0, in one order.
    async fn page(&self, prefix: &str, delimiter: Option<&str>) -> Result<Vec<(String, u64)>, Trouble> {
        let mut items = Vec::new();
        let mut token: Option<String> = None;
        loop {
            let mut query = String::new();
            if let Some(token) = &token {
                query.push_str("continuation-token=");
                encode_into(&mut query, token, false);
                query.push('&');
            }
            if let Some(delimiter) = delimiter {
                query.push_str("delimiter=");
                encode_into(&mut query, delimiter, false);
                query.push('&');
            }
            query.push_str(&format!("list-type=2&max-keys={PAGE_KEYS}&prefix="));
            encode_into(&mut query, prefix, false);
            let answer = self.must(Method::GET, "", &query, Bytes::new()).await?;
            let page = xml::parse_page(&answer.body).map_err(Trouble::Unknown)?;
            items.extend(page.entries.into_iter().map(|entry| (entry.key, entry.size)));
            items.extend(page.prefixes.into_iter().map(|prefix| (prefix, 0)));
            token = page.next_token;
            if token.is_none() {
                // A page gives its keys first and then its prefixes.
                items.sort();
                return Ok(items);
            }
        }
    }
}

fn done(answer: &Answer) -> bool {
    answer.status.is_success()
}

/// The texts of all elements of this name, in order. Names of the workload need no escapes.
fn texts(document: &Bytes, name: &str) -> Vec<String> {
    let document = String::from_utf8_lossy(document);
    let open = format!("<{name}>");
    let pieces = document.split(open.as_str()).skip(1);
    pieces.map(|piece| piece.split('<').next().unwrap_or_default().to_owned()).collect()
}

impl Target for Http {
    async fn make_bucket(&self) -> Result<(), Trouble> {
        match self.must(Method::PUT, "", "", Bytes::new()).await {
            Ok(_) => Ok(()),
            Err(Trouble::Refused(text)) if text.starts_with("409") => Ok(()),
            Err(trouble) => Err(trouble),
        }
    }

    async fn put(&self, key: &str, blob: Blob) -> Result<(), Trouble> {
        self.must(Method::PUT, key, "", blob.bytes().into()).await.map(drop)
    }

    async fn get(&self, key: &str) -> Result<Option<Vec<u8>>, Trouble> {
        let answer = self.call(Method::GET, key, "", None, Bytes::new()).await?;
        Ok(done(&answer).then(|| answer.body.to_vec()))
    }

    async fn delete(&self, key: &str) -> Result<(), Trouble> {
        self.must(Method::DELETE, key, "", Bytes::new()).await.map(drop)
    }

    async fn copy(&self, from: &str, to: &str) -> Result<bool, Trouble> {
        let source = Some(("x-amz-copy-source", format!("/{BUCKET}/{from}")));
        let answer = self.call(Method::PUT, to, "", source, Bytes::new()).await?;
        if done(&answer) && texts(&answer.body, "ETag").is_empty() {
            return Err(Trouble::Unknown(format!("a copy without an ETag: {:?}", answer.body)));
        }
        Ok(done(&answer))
    }

    async fn rename(&self, from: &str, to: &str) -> Result<bool, Trouble> {
        let source = Some(("x-amz-rename-source", format!("/{BUCKET}/{from}")));
        let answer = self.call(Method::PUT, to, "renameObject=", source, Bytes::new()).await?;
        Ok(done(&answer))
    }

    async fn create_upload(&self, key: &str) -> Result<String, Trouble> {
        let answer = self.must(Method::POST, key, "uploads=", Bytes::new()).await?;
        texts(&answer.body, "UploadId").pop().ok_or_else(|| Trouble::Unknown("an upload without an id".to_owned()))
    }

    async fn put_part(&self, key: &str, upload: &str, number: u16, blob: Blob) -> Result<String, Trouble> {
        let query = format!("partNumber={number}&uploadId={upload}");
        let answer = self.must(Method::PUT, key, &query, blob.bytes().into()).await?;
        let etag = answer.headers.get(ETAG).and_then(|value| value.to_str().ok());
        etag.map(str::to_owned).ok_or_else(|| Trouble::Unknown("a part without an ETag".to_owned()))
    }

    async fn complete(&self, key: &str, upload: &str, parts: &[(u16, Part)]) -> Result<(), Trouble> {
        let mut body = String::from("<CompleteMultipartUpload>");
        for (number, part) in parts {
            let etag = part.etag.trim_matches('"');
            body.push_str(&format!("<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag></Part>"));
        }
        body.push_str("</CompleteMultipartUpload>");
        let answer = self.must(Method::POST, key, &format!("uploadId={upload}"), body.into()).await?;
        if texts(&answer.body, "ETag").is_empty() {
            return Err(Trouble::Unknown(format!("a completion without an ETag: {:?}", answer.body)));
        }
        Ok(())
    }

    async fn abort(&self, key: &str, upload: &str) -> Result<(), Trouble> {
        self.must(Method::DELETE, key, &format!("uploadId={upload}"), Bytes::new()).await.map(drop)
    }

    async fn list(&self, prefix: &str) -> Result<Vec<(String, u64)>, Trouble> {
        self.page(prefix, None).await
    }

    async fn list_folder(&self, prefix: &str) -> Result<Vec<String>, Trouble> {
        Ok(self.page(prefix, Some("/")).await?.into_iter().map(|(name, _)| name).collect())
    }

    async fn uploads(&self) -> Result<Vec<(String, String)>, Trouble> {
        let answer = self.must(Method::GET, "", "uploads=", Bytes::new()).await?;
        Ok(texts(&answer.body, "Key").into_iter().zip(texts(&answer.body, "UploadId")).collect())
    }

    async fn parts(&self, key: &str, upload: &str) -> Result<Vec<(u16, u64)>, Trouble> {
        let answer = self.must(Method::GET, key, &format!("uploadId={upload}"), Bytes::new()).await?;
        let number = |text: String| text.parse().map_err(|_| Trouble::Unknown(format!("{text} is no number")));
        let numbers = texts(&answer.body, "PartNumber").into_iter();
        let sizes = texts(&answer.body, "Size").into_iter();
        numbers.zip(sizes).map(|(part, size)| Ok((number(part)? as u16, number(size)?))).collect()
    }
}
