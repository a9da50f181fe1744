//! The number of engine calls of a request, by root and by a user whose rights are looked up, at any depth.

#![allow(clippy::unwrap_used, reason = "a failed test should stop here")]

mod server;

use server::Server;

const EVERYTHING: &str = r#"{"Version":"2012-10-17","Statement":{"Effect":"Allow","Action":"*","Resource":"*"}}"#;
const LIFECYCLE: &str = "<LifecycleConfiguration><Rule><ID>r</ID><Status>Enabled</Status><Filter><Prefix>d/</Prefix></Filter>\
    <Expiration><Days>30</Days></Expiration></Rule></LifecycleConfiguration>";

/// Sends a request as `who`, twice, and returns the reads and commits of the second one, whose caches are warm.
async fn calls(server: &Server, who: Option<&str>, method: &str, path: &str) -> (u64, u64) {
    let mut counted = (0, 0);
    for _ in 0..2 {
        let before = server.engine.calls();
        let request = server.request(method, path).body(if method == "PUT" { "body" } else { "" });
        let answer = match who {
            Some(who) => request.send_as(who).await,
            None => request.send().await,
        };
        assert!((200..300).contains(&answer.status), "{method} {path}: {}", answer.status);
        let after = server.engine.calls();
        counted = (after.0 - before.0, after.1 - before.1);
    }
    counted
}

#[tokio::test]
async fn a_request_asks_the_engine_once_whoever_sends_it() {
    let server = Server::with_users(&[("alice", None, &[]), ("bob", Some("alice"), &[EVERYTHING])]).await;
    server.request("PUT", "/bucket").send_as("alice").await.expect(200);
    server.request("PUT", "/bucket?lifecycle").body(LIFECYCLE).send_as("alice").await.expect(200);
    for directories in ["", "d/e/f/"] {
        for number in 0..9 {
            server
                .request("PUT", &format!("/bucket/{directories}k{number}"))
                .body("body")
                .send_as("alice")
                .await
                .expect(200);
        }
        for who in [None, Some("alice"), Some("bob")] {
            let path = format!("/bucket/{directories}k1");
            let list = format!("/bucket?list-type=2&delimiter=/&prefix={directories}");
            let told = format!("{who:?} below {directories:?}");
            assert_eq!(calls(&server, who, "PUT", &path).await, (1, 1), "PUT by {told}");
            assert_eq!(calls(&server, who, "GET", &path).await, (1, 0), "GET by {told}");
            assert_eq!(calls(&server, who, "HEAD", &path).await, (1, 0), "HEAD by {told}");
            assert!(calls(&server, who, "GET", &list).await.0 <= 2, "a page by {told}");
            let before = server.engine.calls();
            let gone = server.request("DELETE", &path);
            let gone = match who {
                Some(who) => gone.send_as(who).await,
                None => gone.send().await,
            };
            gone.expect(204);
            let after = server.engine.calls();
            assert_eq!((after.0 - before.0, after.1 - before.1), (1, 1), "DELETE by {told}");
        }
    }
}
