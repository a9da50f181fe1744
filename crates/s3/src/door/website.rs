//! A website request: an unsigned GET or HEAD, answered with an object of the bucket or a redirect.
//!
//! Why:        browsers want a folder's index, error pages and redirects, which no S3 operation provides.
//! Invariants: W1 a visitor is anonymous: objects are read with the rights of an unsigned request, even if it was
//!                signed.
//!             W2 the existence of a folder's index is revealed only to those who may read it.
//! Not here:   redirect rules (`website`), reading an object (`op`).

use std::net::SocketAddr;

use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use margay_volume::{Error, Purpose, ReadCondition, Setting};

use super::{Came, S3Door};
use crate::access::Asker;
use crate::auth::Host;
use crate::auth::Sender;
use crate::error::{Code, S3Error};
use crate::op::{self, Call};
use crate::reply::Reply;
use crate::route::policy::Op;
use crate::route::query::Query;
use crate::route::target::{Target, check_bucket_name};
use crate::stream::S3Body;
use crate::website::{ErrorPage, Location, Origin, Website, name_error};

/// Header of an object that redirects its visitors.
const REDIRECT: &str = "x-amz-website-redirect-location";
/// Headers of the visitor that apply to the requested page.
const TAKEN: [HeaderName; 6] = [
    header::IF_MATCH,
    header::IF_MODIFIED_SINCE,
    header::IF_NONE_MATCH,
    header::IF_RANGE,
    header::IF_UNMODIFIED_SINCE,
    header::RANGE,
];

/// One request, whose host names the bucket.
struct Visit<'r> {
    door: &'r S3Door,
    target: Target,
    host: &'r Host,
    origin: Origin<'r>,
    is_head: bool,
    peer: SocketAddr,
}

/// Why no page is shown, and why no error page is.
struct Refusal {
    error: S3Error,
    document: Option<(String, S3Error)>,
}

impl From<S3Error> for Refusal {
    fn from(error: S3Error) -> Refusal {
        Refusal { error, document: None }
    }
}

impl S3Door {
    /// Answers a request whose host names a bucket's website.
    pub(super) async fn serve_website(&self, came: Came<'_>) -> Reply {
        let Came { parts, id, .. } = came;
        match self.visit(came).await {
            Ok(reply) => reply,
            // The visitor's cached copy is still valid.
            Err(Refusal { error, .. }) if error.code == Code::NotModified => self.refusal(error, parts, id),
            Err(Refusal { error, document }) => {
                tracing::debug!(%error, request_id = id, path = parts.uri.path(), "a website refused");
                let document = document.as_ref().map(|(key, error)| (key.as_str(), error));
                let page = ErrorPage { error: &error, document, request_id: id, host_id: &self.host_id };
                let mut reply = Reply::with_body(error.code.status(), S3Body::full(page.html()));
                reply.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
                name_error(&error, &mut reply.headers);
                reply
            }
        }
    }

    async fn visit(&self, came: Came<'_>) -> Result<Reply, Refusal> {
        let Came { parts, peer, .. } = came;
        let is_head = parts.method == Method::HEAD;
        if !is_head && parts.method != Method::GET {
            return Err(S3Error::from(Code::MethodNotAllowed).with("Method", parts.method.as_str()).into());
        }
        let host = came.host.as_written();
        let target = Target::parse(host, parts.uri.path(), &self.options.website_domains)?;
        check_bucket_name(&target.bucket)?;
        let scheme = if self.options.secure { "https" } else { "http" };
        Visit { door: self, target, host: came.host, origin: Origin { scheme, host }, is_head, peer }
            .answer(parts)
            .await
    }
}

impl Visit<'_> {
    async fn answer(&self, parts: &Parts) -> Result<Reply, Refusal> {
        let (website, key) = (self.website().await?, self.target.key.as_str());
        if let Some(location) = website.location(key, None, self.origin) {
            return Ok(sent_to(&location)?);
        }
        let taken = TAKEN.iter().filter_map(|name| Some((name.clone(), parts.headers.get(name)?.clone())));
        match self.page(&website.page(key), &taken.collect()).await {
            Ok(page) => Ok(followed(page)),
            Err(error) => self.without_page(&website, error).await,
        }
    }

    async fn website(&self) -> Result<Website, S3Error> {
        let bucket = &self.target.bucket;
        let none = || S3Error::from(Code::NoSuchWebsiteConfiguration).with("BucketName", bucket);
        match self.door.volume.bucket_setting(bucket, Setting::Website).await {
            Ok(stored) => Website::from_xml(&stored.ok_or_else(none)?).map_err(|error| S3Error::internal(&error)),
            Err(Error::NoSuchBucket) => Err(S3Error::from(Code::NoSuchBucket).with("BucketName", bucket)),
            Err(error) => Err(error.into()),
        }
    }

    /// The object at `key`, if a visitor may read it.
    async fn page(&self, key: &str, headers: &HeaderMap) -> Result<Reply, S3Error> {
        let target = Target { key: key.to_owned(), ..self.target.clone() };
        target.check_key()?;
        let door = self.door;
        let rows = door.volume.look(&target.bucket, Purpose::GetObject(&target.key, None)).await?;
        let call = Call {
            volume: &door.volume,
            rows: &rows,
            access: &door.access,
            asker: Asker { identity: None, circumstances: door.circumstances(self.peer, &Sender::Anonymous) },
            options: &door.options,
            renames: &door.renames,
            op: if self.is_head { Op::HeadObject } else { Op::GetObject },
            target: &target,
            query: &Query::default(),
            headers,
            host: self.host,
        };
        door.access.authorise(&call.ask()).await?;
        if self.is_head { op::head_object::run(&call).await } else { op::get_object::run(&call).await }
    }

    /// The error page for a page that cannot be shown.
    async fn without_page(&self, website: &Website, error: S3Error) -> Result<Reply, Refusal> {
        let (key, status) = (self.target.key.as_str(), error.code.status());
        if status == StatusCode::NOT_MODIFIED {
            return Err(error.into());
        }
        if self.is_folder(website).await {
            return Ok(sent_to(&Location::of_folder(key))?);
        }
        if let Some(location) = website.location(key, Some(status), self.origin) {
            return Ok(sent_to(&location)?);
        }
        let Some(document) = website.error_document().filter(|_| status.is_client_error()) else {
            return Err(error.into());
        };
        match self.page(document, &HeaderMap::new()).await {
            Ok(mut page) => {
                name_error(&error, &mut page.headers);
                Ok(Reply { status, ..page })
            }
            Err(no_document) => Err(Refusal { error, document: Some((document.to_owned(), no_document)) }),
        }
    }

    /// Whether the key, with a slash appended, is a folder with an index.
    async fn is_folder(&self, website: &Website) -> bool {
        let (bucket, key) = (&self.target.bucket, &self.target.key);
        if key.is_empty() || key.ends_with('/') {
            return false;
        }
        let absent = self.door.volume.head_version(bucket, key, None, &ReadCondition::default()).await;
        if !matches!(absent, Err(Error::NoSuchKey | Error::Deleted(_))) {
            return false;
        }
        let index = website.index_below(&format!("{key}/"));
        Visit { is_head: true, target: self.target.clone(), ..*self }.page(&index, &HeaderMap::new()).await.is_ok()
    }
}

/// The page, or its redirect if the object has one.
fn followed(page: Reply) -> Reply {
    let Some(url) = page.headers.get(REDIRECT) else { return page };
    let mut reply = Reply::empty(StatusCode::MOVED_PERMANENTLY);
    reply.headers.insert(header::LOCATION, url.clone());
    reply
}

fn sent_to(location: &Location) -> Result<Reply, S3Error> {
    Reply::empty(location.status).header(header::LOCATION, &location.url)
}
