//! A response before it becomes an HTTP response.
//!
//! Not here: headers of every response (door).

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use crate::error::S3Error;
use crate::stream::S3Body;

#[derive(Debug)]
pub(crate) struct Reply {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: S3Body,
}

impl Reply {
    pub(crate) fn empty(status: StatusCode) -> Reply {
        Reply { status, headers: HeaderMap::new(), body: S3Body::empty() }
    }

    pub(crate) fn with_body(status: StatusCode, body: S3Body) -> Reply {
        Reply { status, headers: HeaderMap::new(), body }
    }

    /// 200 with a document.
    pub(crate) fn xml(document: BytesMut) -> Reply {
        Reply::xml_buffers(VecDeque::from([document.freeze()]))
    }

    /// 200 with a document in several buffers.
    pub(crate) fn xml_buffers(buffers: VecDeque<Bytes>) -> Reply {
        let mut reply = Reply::with_body(StatusCode::OK, S3Body::buffers(buffers));
        reply.headers.insert(http::header::CONTENT_TYPE, HeaderValue::from_static("application/xml"));
        reply
    }

    /// Sets a header; a value other than visible ASCII is an internal error.
    pub(crate) fn header(mut self, name: HeaderName, value: &str) -> Result<Reply, S3Error> {
        let value = HeaderValue::from_str(value).map_err(|error| S3Error::internal(&error))?;
        self.headers.insert(name, value);
        Ok(self)
    }
}
