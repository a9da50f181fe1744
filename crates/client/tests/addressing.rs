//! Where requests name their bucket.

#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that it does not expect")]

#[path = "upstream/listen.rs"]
mod listen;

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::Request;
use hyper::body::Incoming;
use listen::{Answer, Lost, answer, listen, text};
use margay_client::client::ListQuery;
use margay_client::target::Addressing;
use margay_client::upstream::{Limits, StateOf, Upstream};
use margay_client::{Condition, Target};

/// Each request: host, path, and the source of a copy.
#[derive(Default)]
struct Seen(Mutex<Vec<(String, String, String)>>);

async fn serve(seen: Arc<Seen>, request: Request<Incoming>) -> Result<Answer, Lost> {
    let header = |name: &str| text(request.headers(), name).unwrap_or_default().to_owned();
    assert!(header("authorization").contains("SignedHeaders=host;") || header("authorization").contains(";host;"));
    let one = (header("host"), request.uri().path().to_owned(), header("x-amz-copy-source"));
    let is_copy = !one.2.is_empty();
    seen.0.lock().unwrap().push(one);
    let body = match (request.uri().query(), is_copy) {
        (Some(_), _) => "<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>",
        (None, true) => "<CopyObjectResult><ETag>\"e\"</ETag></CopyObjectResult>",
        (None, false) => "",
    };
    Ok(answer(200, body))
}

#[test]
fn the_bucket_is_in_the_path_or_in_the_host() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let seen = Arc::new(Seen::default());
        let target = listen(Arc::clone(&seen), serve).await;
        let (host, authority) = ("far.localhost".to_owned(), format!("far.localhost:{}", target.port));
        let address = format!("{}:{}", target.host, target.port).parse().unwrap();
        let within =
            Target { host, authority: authority.clone(), addressing: Addressing::Virtual, ..target.at(address) };
        for (target, host, before) in
            [(Arc::clone(&target), target.authority.clone(), "/far"), (Arc::new(within), authority, "")]
        {
            let upstream = Upstream::new(target, "far", Limits::default());
            upstream.put("a b/c", Bytes::new(), Condition::Always).await.unwrap();
            upstream.copy_object(StateOf { key: "a b/c", etag: "\"e\"" }, "d", Condition::Always, None).await.unwrap();
            upstream.list(&ListQuery::default()).await.unwrap();
            let root = if before.is_empty() { "/" } else { before };
            // A copy's source is named the same way in both.
            let expected =
                [(format!("{before}/a%20b/c"), ""), (format!("{before}/d"), "/far/a%20b/c"), (root.to_owned(), "")];
            let expected = expected.map(|(path, source)| (host.clone(), path, source.to_owned()));
            assert_eq!(std::mem::take(&mut *seen.0.lock().unwrap()), expected);
        }
    });
}
