//! A minimal S3 client: one connection, signed requests, no retries.
//!
//! Why:      a benchmark must time exactly what it requested; and a fresh machine needs some client.
//! Not here: where keys come from (`credentials`), retries (`retry`), multipart uploads (`upstream`).

use std::pin::Pin;
use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, ETAG, HeaderName, HeaderValue};
use http::{HeaderMap, Method, Request, Response};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use md5::{Digest, Md5};

use crate::connection::Connection;
use crate::credentials::Keys;
pub use crate::encode::encode_into;
use crate::encode::encoded_path;
use crate::error::{ClientError, Refusal, advice};
pub use crate::list_query::ListQuery;
use crate::payload::Payload;
use crate::sign::{PayloadHash, Scheme, Signer};
use crate::target::Addressing;
use crate::xml::{self, BucketEntry, Page};

/// Maximum number of keys in one DeleteObjects request.
pub const DELETE_KEYS_MAX: usize = 1000;
/// Maximum number of keys in a page.
pub const PAGE_KEYS_MAX: u32 = 1000;
const COPY_SOURCE: HeaderName = HeaderName::from_static("x-amz-copy-source");
/// Bytes of an error document that are read at most.
const ERROR_BYTES_MAX: usize = 64 << 10;
/// Maximum size of a response that is read whole, in bytes: a piece of a backup, a page of a listing.
const ANSWER_BYTES_MAX: usize = 32 << 20;

/// Facts about an object from a HEAD or GET.
#[derive(Clone, Debug, Default)]
pub struct ObjectInfo {
    pub size: u64,
    pub etag: String,
    pub content_type: String,
}

#[derive(Debug)]
pub struct Client {
    connection: Connection,
    scheme: Scheme,
    /// For the keys of the last request.
    signer: Option<(Arc<Keys>, Signer)>,
}

/// A request whose whole response is returned.
#[derive(Clone, Debug)]
pub struct Ask {
    pub method: Method,
    pub bucket: String,
    pub key: String,
    /// Encoded, sorted by name.
    pub query: String,
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// Covered by the signature.
    pub body: Bytes,
    /// Maximum size of the response, in bytes.
    pub answer_bytes_max: usize,
}

/// A successful response.
#[derive(Clone, Debug)]
pub struct Answer {
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Answer {
    /// Empty if the response has none.
    pub fn etag(&self) -> String {
        self.headers.get(ETAG).and_then(|etag| etag.to_str().ok()).unwrap_or_default().to_owned()
    }

    /// A long copy or completion is answered 200 before its result is known; the body says whether it failed. `request`
    /// names it in the error.
    pub(crate) fn check_body(&self, request: &str) -> Result<(), ClientError> {
        let (code, message) = xml::parse_error(&self.body);
        if code.is_empty() {
            return Ok(());
        }
        let (request, region) = (request.to_owned(), String::new());
        Err(ClientError::Refused(Box::new(Refusal { request, status: 200, code, message, region })))
    }
}

impl Ask {
    /// A request with a method and a target only.
    pub fn new(method: Method, bucket: &str, key: &str) -> Ask {
        let (bucket, key) = (bucket.to_owned(), key.to_owned());
        let (query, headers, body) = (String::new(), Vec::new(), Bytes::new());
        Ask { method, bucket, key, query, headers, body, answer_bytes_max: ANSWER_BYTES_MAX }
    }

    /// A copy of an object of the bucket to `key`.
    pub(crate) fn copy(bucket: &str, from: &str, key: &str) -> Ask {
        let mut source = format!("/{bucket}/");
        encode_into(&mut source, from, true);
        let source = HeaderValue::from_str(&source).expect("an encoded path is plain ASCII");
        Ask { headers: vec![(COPY_SOURCE, source)], ..Ask::new(Method::PUT, bucket, key) }
    }

    /// Deletes up to [`DELETE_KEYS_MAX`] keys.
    pub fn delete_many<'a>(bucket: &str, keys: impl IntoIterator<Item = &'a str>) -> Ask {
        Ask::delete_documents(bucket, xml::delete_request(keys))
    }

    /// DeleteObjects with this body.
    pub(crate) fn delete_documents(bucket: &str, body: String) -> Ask {
        let digest = BASE64_STANDARD.encode(Md5::digest(body.as_bytes()));
        let digest = HeaderValue::from_str(&digest).expect("base64 is plain ASCII");
        let headers = vec![(HeaderName::from_static("content-md5"), digest)];
        Ask { query: "delete=".to_owned(), headers, body: body.into(), ..Ask::new(Method::POST, bucket, "") }
    }
}

/// The response of a request, whatever its status.
type Exchange<'a> = Pin<Box<dyn Future<Output = Result<Response<Incoming>, ClientError>> + Send + 'a>>;

struct Call<'a> {
    method: Method,
    bucket: &'a str,
    key: &'a str,
    /// Already encoded and sorted by name.
    query: String,
    headers: Vec<(HeaderName, HeaderValue)>,
    body: Payload,
    hash: PayloadHash,
}

impl<'a> Call<'a> {
    fn new(method: Method, bucket: &'a str, key: &'a str) -> Call<'a> {
        Call {
            method,
            bucket,
            key,
            query: String::new(),
            headers: Vec::new(),
            body: Payload::Empty,
            hash: PayloadHash::Unsigned,
        }
    }

    /// Bucket and key as in the request line.
    fn path(&self) -> String {
        let mut path = String::with_capacity(2 + self.bucket.len() + self.key.len());
        path.push('/');
        if !self.bucket.is_empty() {
            encode_into(&mut path, self.bucket, false);
            if !self.key.is_empty() {
                path.push('/');
                encode_into(&mut path, self.key, true);
            }
        }
        path
    }

    fn name(&self) -> String {
        format!("{} {}", self.method, self.path())
    }
}

impl Client {
    /// A client that signs every request with V4.
    pub fn new(connection: Connection) -> Client {
        Client::with_scheme(connection, Scheme::V4)
    }

    /// A client with this authentication scheme, or none.
    pub fn with_scheme(connection: Connection, scheme: Scheme) -> Client {
        Client { connection, scheme, signer: None }
    }

    /// The keys of the last request.
    pub(crate) fn keys(&self) -> Option<&Arc<Keys>> {
        self.signer.as_ref().map(|(keys, _)| keys)
    }

    /// Signs a request with the keys of the moment.
    async fn sign(&mut self, request: &mut Request<Payload>, hash: PayloadHash) -> Result<(), ClientError> {
        if self.scheme == Scheme::Anonymous {
            return Ok(());
        }
        let target = self.connection.target();
        let keys = target.credentials.keys().await?;
        if self.keys().is_none_or(|last| !Arc::ptr_eq(last, &keys)) {
            let signer = Signer::new(&keys, &target.region, self.scheme);
            self.signer = Some((keys, signer));
        }
        match &self.signer {
            Some((_, signer)) => signer.sign(request, hash),
            None => Ok(()),
        }
    }

    async fn call(&mut self, call: Call<'_>) -> Result<Response<Incoming>, ClientError> {
        let (method, path) = (call.method.clone(), self.path(&call));
        let response = self.exchange(call, &path).await?;
        if response.status().is_success() {
            Ok(response)
        } else {
            Err(refused(format!("{method} {path}"), response).await)
        }
    }

    fn path(&self, call: &Call<'_>) -> String {
        match self.connection.target().addressing {
            Addressing::Path => call.path(),
            // The host names the bucket.
            Addressing::Virtual => encoded_path(call.key),
        }
    }

    /// Sends a request; the response has any status. Boxed, so that its code is made once and not by each crate that sends
    /// (docs/design/0044).
    fn exchange<'a>(&'a mut self, call: Call<'a>, path: &'a str) -> Exchange<'a> {
        Box::pin(self.exchange_now(call, path))
    }

    async fn exchange_now(&mut self, call: Call<'_>, path: &str) -> Result<Response<Incoming>, ClientError> {
        let mut uri = String::with_capacity(path.len() + 1 + call.query.len());
        uri.push_str(path);
        if !call.query.is_empty() {
            uri.push('?');
            uri.push_str(&call.query);
        }
        let mut request = Request::new(call.body);
        *request.method_mut() = call.method.clone();
        *request.uri_mut() =
            uri.parse().map_err(|_| ClientError::Usage(format!("{uri} is longer than a request line may be")))?;
        let target = self.connection.target();
        let host = HeaderValue::from_str(&target.authority)
            .map_err(|_| ClientError::Usage(format!("{} cannot be sent as a host name", target.authority)))?;
        request.headers_mut().insert(http::header::HOST, host);
        if call.method == Method::PUT && request.body().is_empty() {
            // hyper omits the length of an empty body, but stores require it.
            request.headers_mut().insert(http::header::CONTENT_LENGTH, HeaderValue::from_static("0"));
        }
        request.headers_mut().extend(call.headers);
        self.sign(&mut request, call.hash).await?;
        self.connection.send(request).await
    }

    /// Sends a request with its body in memory, which the signature covers; the response has any status, and its body is not read.
    pub async fn send(&mut self, ask: &Ask) -> Result<Response<Incoming>, ClientError> {
        let mut call = Call::new(ask.method.clone(), &ask.bucket, &ask.key);
        call.query.clone_from(&ask.query);
        call.headers.clone_from(&ask.headers);
        call.hash = PayloadHash::of(&ask.body);
        call.body = Payload::Whole(ask.body.clone());
        let path = self.path(&call);
        self.exchange(call, &path).await
    }

    /// Sends a request with its body in memory and reads the whole response.
    pub async fn ask(&mut self, ask: &Ask) -> Result<Answer, ClientError> {
        let mut call = Call::new(ask.method.clone(), &ask.bucket, &ask.key);
        call.query.clone_from(&ask.query);
        call.headers.clone_from(&ask.headers);
        // Hashing a gigabyte takes half a second, on both sides.
        let is_protected = ask.method == Method::PUT && self.connection.target().is_protected();
        call.hash = if is_protected { PayloadHash::Unsigned } else { PayloadHash::of(&ask.body) };
        call.body = Payload::Whole(ask.body.clone());
        let response = self.call(call).await?;
        let headers = response.headers().clone();
        Ok(Answer { headers, body: self.read(response, ask.answer_bytes_max).await? })
    }

    async fn call_for_bytes(&mut self, call: Call<'_>) -> Result<Bytes, ClientError> {
        let response = self.call(call).await?;
        self.read(response, ANSWER_BYTES_MAX).await
    }

    async fn read(&self, response: Response<Incoming>, bytes_max: usize) -> Result<Bytes, ClientError> {
        let len = response.headers().get(CONTENT_LENGTH).and_then(|len| len.to_str().ok()?.parse::<usize>().ok());
        let mut body = response.into_body();
        let mut first = Bytes::new();
        let mut rest = BytesMut::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|source| self.broken(source))?;
            if let Ok(data) = frame.into_data() {
                if first.len().max(rest.len()) + data.len() > bytes_max {
                    let request = format!("a request to {}", self.connection.target().authority);
                    return Err(ClientError::Nonsense { request, reason: format!("more than {bytes_max} bytes") });
                }
                // A small response arrives in one frame and is not copied.
                if first.is_empty() && rest.is_empty() {
                    first = data;
                } else {
                    if rest.is_empty() {
                        // It does not move while it grows.
                        rest.reserve(len.unwrap_or_default().min(bytes_max));
                        rest.extend_from_slice(&first);
                    }
                    rest.extend_from_slice(&data);
                }
            }
        }
        Ok(if rest.is_empty() { first } else { rest.freeze() })
    }

    fn broken(&self, source: hyper::Error) -> ClientError {
        ClientError::Transport { address: self.connection.target().authority.clone(), source }
    }

    pub async fn make_bucket(&mut self, bucket: &str) -> Result<(), ClientError> {
        self.call_for_bytes(Call::new(Method::PUT, bucket, "")).await.map(drop)
    }

    pub async fn head_bucket(&mut self, bucket: &str) -> Result<(), ClientError> {
        self.call_for_bytes(Call::new(Method::HEAD, bucket, "")).await.map(drop)
    }

    /// Allows everybody to read and write the bucket's objects, through a bucket policy.
    pub async fn open_bucket(&mut self, bucket: &str) -> Result<(), ClientError> {
        let policy = format!(
            r#"{{"Version":"2012-10-17","Statement":[{{"Effect":"Allow","Principal":"*","Action":["s3:GetObject","s3:PutObject"],"Resource":["arn:aws:s3:::{bucket}/*"]}}]}}"#
        );
        let mut call = Call::new(Method::PUT, bucket, "");
        "policy=".clone_into(&mut call.query);
        call.hash = PayloadHash::of(policy.as_bytes());
        call.body = Payload::Whole(Bytes::from(policy));
        self.call_for_bytes(call).await.map(drop)
    }

    pub async fn remove_bucket(&mut self, bucket: &str) -> Result<(), ClientError> {
        self.call_for_bytes(Call::new(Method::DELETE, bucket, "")).await.map(drop)
    }

    pub async fn list_buckets(&mut self) -> Result<Vec<BucketEntry>, ClientError> {
        let call = Call::new(Method::GET, "", "");
        let request = call.name();
        let document = self.call_for_bytes(call).await?;
        xml::parse_buckets(&document).map_err(|reason| ClientError::Nonsense { request, reason })
    }

    /// Puts an object; `hash` says what the signature covers.
    pub async fn put(
        &mut self,
        bucket: &str,
        key: &str,
        body: Payload,
        hash: PayloadHash,
        content_type: Option<&str>,
    ) -> Result<(), ClientError> {
        let mut call = Call::new(Method::PUT, bucket, key);
        call.body = body;
        call.hash = hash;
        if let Some(content_type) = content_type {
            let value = HeaderValue::from_str(content_type)
                .map_err(|_| ClientError::Usage(format!("{content_type:?} is no content type")))?;
            call.headers.push((CONTENT_TYPE, value));
        }
        self.call_for_bytes(call).await.map(drop)
    }

    /// Starts a GET; the caller must read the body with [`Client::next_chunk`] to its end. `hash` says how the
    /// signature covers the empty body.
    pub async fn get(
        &mut self,
        bucket: &str,
        key: &str,
        hash: PayloadHash,
    ) -> Result<(ObjectInfo, Incoming), ClientError> {
        let mut call = Call::new(Method::GET, bucket, key);
        call.hash = hash;
        let response = self.call(call).await?;
        Ok((info(&response), response.into_body()))
    }

    /// The next bytes of a body; None at its end.
    pub async fn next_chunk(&self, body: &mut Incoming) -> Result<Option<Bytes>, ClientError> {
        while let Some(frame) = body.frame().await {
            if let Ok(data) = frame.map_err(|source| self.broken(source))?.into_data() {
                return Ok(Some(data));
            }
        }
        Ok(None)
    }

    pub async fn head(&mut self, bucket: &str, key: &str) -> Result<ObjectInfo, ClientError> {
        let response = self.call(Call::new(Method::HEAD, bucket, key)).await?;
        let info = info(&response);
        self.read(response, ANSWER_BYTES_MAX).await?;
        Ok(info)
    }

    pub async fn delete(&mut self, bucket: &str, key: &str) -> Result<(), ClientError> {
        self.call_for_bytes(Call::new(Method::DELETE, bucket, key)).await.map(drop)
    }

    /// Deletes up to [`DELETE_KEYS_MAX`] keys in one request; fails when the server kept any of them.
    pub async fn delete_many(&mut self, bucket: &str, keys: &[&str]) -> Result<(), ClientError> {
        assert!(keys.len() <= DELETE_KEYS_MAX, "one request names at most {DELETE_KEYS_MAX} keys");
        let request = format!("POST /{bucket}?delete");
        let answer = self.ask(&Ask::delete_many(bucket, keys.iter().copied())).await?.body;
        match xml::parse_delete_failure(&answer) {
            Ok(None) => Ok(()),
            Ok(Some((key, code))) => {
                Err(ClientError::Nonsense { request, reason: format!("{key} was not deleted: {code}") })
            }
            Err(reason) => Err(ClientError::Nonsense { request, reason }),
        }
    }

    /// One page of a listing as the server sent it, for [`xml::parse_page`].
    pub async fn list_document(&mut self, bucket: &str, query: &ListQuery<'_>) -> Result<Bytes, ClientError> {
        let mut call = Call::new(Method::GET, bucket, "");
        call.query = query.encode();
        self.call_for_bytes(call).await
    }

    /// One page of a listing.
    pub async fn list(&mut self, bucket: &str, query: &ListQuery<'_>) -> Result<Page, ClientError> {
        let document = self.list_document(bucket, query).await?;
        xml::parse_page(&document)
            .map_err(|reason| ClientError::Nonsense { request: format!("GET /{bucket}?{}", query.encode()), reason })
    }
}

fn info(response: &Response<Incoming>) -> ObjectInfo {
    let text = |name: HeaderName| {
        response.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
    };
    ObjectInfo {
        size: text(http::header::CONTENT_LENGTH).parse().unwrap_or(0),
        etag: text(http::header::ETAG),
        content_type: text(CONTENT_TYPE),
    }
}

async fn refused(request: String, response: Response<Incoming>) -> ClientError {
    let status = response.status();
    let region = response.headers().get("x-amz-bucket-region").and_then(|region| region.to_str().ok());
    let region = region.unwrap_or_default().to_owned();
    let document = http_body_util::Limited::new(response.into_body(), ERROR_BYTES_MAX).collect().await;
    let (mut code, mut message) = match document {
        Ok(document) => xml::parse_error(&document.to_bytes()),
        Err(_) => (String::new(), String::new()),
    };
    if code.is_empty() {
        code = status.canonical_reason().unwrap_or("unknown status").replace(' ', "");
    }
    if message.is_empty() {
        message = advice(status).to_owned();
    }
    ClientError::Refused(Box::new(Refusal { request, status: status.as_u16(), code, message, region }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_encoded() {
        let call = Call::new(Method::GET, "b", "a//b +%\u{e9}/~");
        assert_eq!(call.path(), "/b/a//b%20%2B%25%C3%A9/~");
        assert_eq!(Call::new(Method::GET, "", "").path(), "/");
    }
}
