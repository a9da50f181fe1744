//! A server that stores nothing and answers at once: what `margay bench load` itself can do at most.
//!
//! Why:      a load generator must be faster than what it measures. Run this on one processor and the load on another:
//!           `taskset -c 0 cargo run --release -p margay-bench --example bare_server -- 127.0.0.1:9999 1024`
//!           `taskset -c 1 margay bench load --endpoint http://127.0.0.1:9999 --mix get=100 --size 1k`
//! Not here: signatures, storage, errors.

use std::convert::Infallible;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;

const EMPTY_PAGE: &str = "<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>";

async fn answer(request: Request<Incoming>, object: Bytes) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    // A body that breaks off ends the connection anyway.
    let _ = body.collect().await;
    let (status, body) = match (head.method, head.uri.query()) {
        (Method::HEAD, _) if !head.uri.path()[1..].contains('/') => (StatusCode::NOT_FOUND, Bytes::new()),
        (Method::GET, Some(_)) => (StatusCode::OK, Bytes::from_static(EMPTY_PAGE.as_bytes())),
        (Method::GET, None) => (StatusCode::OK, object),
        (Method::DELETE, _) => (StatusCode::NO_CONTENT, Bytes::new()),
        _ => (StatusCode::OK, Bytes::new()),
    };
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    Ok(response)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:9999".to_owned());
    let object_bytes: usize = std::env::args().nth(2).unwrap_or_else(|| "1024".to_owned()).parse()?;
    let object = Bytes::from(vec![b'x'; object_bytes]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind(&address).await?;
        println!("answering on {address}");
        loop {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            let object = object.clone();
            tokio::spawn(async move {
                let service = service_fn(move |request| answer(request, object.clone()));
                // A client that goes away is none of our business.
                let _ =
                    hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
            });
        }
    })
}
