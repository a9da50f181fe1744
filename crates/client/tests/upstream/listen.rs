//! An HTTP server for simulated stores of tests: one function answers, or breaks the connection.

#![allow(dead_code, reason = "each file of tests uses a part of it")]

use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use margay_client::{Credentials, Target};

/// Breaks the connection.
#[derive(Debug)]
pub(crate) struct Lost;

impl std::fmt::Display for Lost {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("lost")
    }
}

impl std::error::Error for Lost {}

pub(crate) type Answer = Response<Full<Bytes>>;

pub(crate) fn answer(status: u16, body: impl Into<Bytes>) -> Answer {
    Response::builder().status(status).body(Full::new(body.into())).unwrap()
}

pub(crate) fn refusal(status: u16, code: &str) -> Answer {
    answer(status, format!("<Error><Code>{code}</Code><Message>-</Message></Error>"))
}

pub(crate) fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).map(|value| value.to_str().unwrap())
}

/// Listens until the runtime ends.
pub(crate) async fn listen<S, F>(
    store: Arc<S>,
    serve: impl Fn(Arc<S>, Request<Incoming>) -> F + Copy + Send + 'static,
) -> Arc<Target>
where
    S: Send + Sync + 'static,
    F: Future<Output = Result<Answer, Lost>> + Send + 'static,
{
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let store = Arc::clone(&store);
            let service = service_fn(move |request| serve(Arc::clone(&store), request));
            let connection = hyper::server::conn::http1::Builder::new();
            tokio::spawn(connection.serve_connection(TokioIo::new(stream), service));
        }
    });
    let credentials = Credentials { access_key: "key".to_owned(), secret_key: "secret".to_owned() };
    Arc::new(Target::plain(address, credentials.into()))
}
