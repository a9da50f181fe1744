//! Providers that change their keys, answer invalid documents, or never answer.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use margay_client::endpoint::Endpoint;
use margay_env::Timestamp;
use margay_env::sim::SimClock;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;

use super::*;

/// A point of P-256; its private key is gone.
const KEYS: &str = r#"{"keys":[{"kty":"EC","crv":"P-256","kid":"e","x":"Th3IGiSGD7IbEtkd2NFBqGL9M-LpoCGm-H1WO_SH4UM","y":"jhwHB4cJGVVnV8tPBNe52eWnTDLXITgdoepTJBzBOdM"}]}"#;
/// Longer than a loopback connection needs on the slowest machine.
const PATIENT: Duration = Duration::from_secs(60);

/// A test server that answers by path from `answer` and records the paths; an empty answer means none.
struct World {
    origin: String,
    asked: Arc<Mutex<Vec<String>>>,
    answers: Arc<Mutex<Vec<(&'static str, String)>>>,
    clock: Arc<SimClock>,
}

fn ok(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

impl World {
    async fn new() -> World {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let origin = format!("http://{}", listener.local_addr().unwrap());
        let (asked, answers) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(Vec::new())));
        let clock = Arc::new(SimClock::new(Timestamp(1_000_000_000_000_000_000)));
        let world = World { origin, asked: Arc::clone(&asked), answers: Arc::clone(&answers), clock };
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (asked, answers) = (Arc::clone(&asked), Arc::clone(&answers));
                tokio::spawn(async move {
                    let mut stream = BufReader::new(stream);
                    let mut line = String::new();
                    stream.read_line(&mut line).await.unwrap();
                    let path = line.split(' ').nth(1).unwrap().to_owned();
                    let answer = answers.lock().iter().find(|(own, _)| *own == path).map(|(_, text)| text.clone());
                    asked.lock().push(path);
                    match answer.unwrap_or_else(|| "HTTP/1.1 404 No\r\ncontent-length: 0\r\n\r\n".to_owned()) {
                        silence if silence.is_empty() => std::future::pending().await,
                        answer => stream.write_all(answer.as_bytes()).await.unwrap(),
                    }
                });
            }
        });
        world
    }

    fn answer(&self, path: &'static str, answer: String) {
        let mut answers = self.answers.lock();
        answers.retain(|(own, _)| *own != path);
        answers.push((path, answer));
    }

    fn describe(&self, issuer: &str, keys: &str) {
        let origin = &self.origin;
        let text = format!(r#"{{"issuer":"{origin}{issuer}","jwks_uri":"{keys}"}}"#);
        self.answer("/realm/.well-known/openid-configuration", ok(&text));
    }

    fn keys(&self, time_max: Duration) -> ProviderKeys {
        let place = KeyLocation::of_issuer(&format!("{}/realm", self.origin)).unwrap();
        ProviderKeys::with_time(place, Arc::clone(&self.clock) as Arc<dyn Clock>, time_max)
    }

    fn asked(&self) -> usize {
        self.asked.lock().len()
    }
}

#[tokio::test]
async fn keys_are_fetched_once_and_again_when_they_are_old() {
    let world = World::new().await;
    world.describe("/realm", &format!("{}/certs", world.origin));
    world.answer("/certs", ok(KEYS));
    let keys = world.keys(PATIENT);
    assert!(keys.current().await.is_some());
    assert!(keys.current().await.is_some());
    assert_eq!(*world.asked.lock(), ["/realm/.well-known/openid-configuration", "/certs"]);

    // An unknown key does not cause a fetch at once; later it causes one.
    assert!(keys.newer().await.is_none());
    world.clock.advance(Duration::from_secs(61));
    assert!(keys.newer().await.is_some() && keys.newer().await.is_none());
    assert_eq!(world.asked(), 4);

    world.clock.advance(Duration::from_secs(3600));
    assert!(keys.current().await.is_some());
    assert_eq!(world.asked(), 6);

    // From here on fetches fail: the old keys are valid for a day, and the provider is asked once in a while.
    world.answer("/certs", ok("{}"));
    world.clock.advance(Duration::from_secs(3601));
    assert!(keys.current().await.is_some() && keys.current().await.is_some());
    assert_eq!(world.asked(), 8);
    world.clock.advance(Duration::from_secs(24 * 3600));
    assert!(keys.current().await.is_none() && keys.current().await.is_none());
    assert_eq!(world.asked(), 10);

    world.answer("/certs", ok(KEYS));
    world.clock.advance(Duration::from_secs(11));
    assert!(keys.current().await.is_some());
}

#[tokio::test]
async fn rubbish_gives_no_keys() {
    let world = World::new().await;
    let long = format!("{KEYS}{}", " ".repeat(300_000));
    let elsewhere = "HTTP/1.1 302 There\r\nlocation: /certs\r\ncontent-length: 0\r\n\r\n".to_owned();
    let certs = format!("{}/certs", world.origin);
    world.answer("/certs", ok(KEYS));
    let description = "/realm/.well-known/openid-configuration";
    for wrong in [ok("rubbish"), ok("{}"), ok("[]"), "rubbish\r\n\r\n".to_owned(), elsewhere.clone(), ok(&long)] {
        world.answer(description, wrong);
        assert!(world.keys(PATIENT).current().await.is_none());
    }
    // A foreign issuer, a foreign origin, an invalid URL.
    world.describe("/other", &certs);
    assert!(world.keys(PATIENT).current().await.is_none());
    for url in ["http://127.0.0.1:1/certs", "/certs", "file:///etc/passwd", &certs.replace("http:", "https:")] {
        world.describe("/realm", url);
        assert!(world.keys(PATIENT).current().await.is_none(), "{url}");
    }
    assert!(!world.asked.lock().iter().any(|path| path == "/certs"));
    world.describe("/realm", &certs);
    assert!(world.keys(PATIENT).current().await.is_some());
    for wrong in [ok("rubbish"), ok(r#"{"keys":[]}"#), elsewhere, ok(&long)] {
        world.answer("/certs", wrong);
        assert!(world.keys(PATIENT).current().await.is_none());
    }
}

#[tokio::test]
async fn a_provider_that_never_answers_is_not_waited_for() {
    let world = World::new().await;
    world.answer("/realm/.well-known/openid-configuration", String::new());
    let keys = world.keys(Duration::from_millis(20));
    assert!(keys.current().await.is_none());
    assert!(keys.current().await.is_none());
    assert!(world.asked() <= 1);
    // A provider that does not exist.
    let place = KeyLocation::Keys(Endpoint::parse("http://127.0.0.1:1/certs").unwrap());
    assert!(ProviderKeys::new(place, Arc::clone(&world.clock) as Arc<dyn Clock>).current().await.is_none());
}

#[tokio::test]
async fn who_hangs_up_does_not_keep_the_keys_from_others() {
    let world = World::new().await;
    world.describe("/realm", &format!("{}/certs", world.origin));
    world.answer("/certs", ok(KEYS));
    let keys = world.keys(PATIENT);
    {
        let mut first = keys.current();
        let polled = std::future::poll_fn(|context| std::task::Poll::Ready(first.as_mut().poll(context))).await;
        assert!(polled.is_pending());
    }
    assert!(keys.current().await.is_some());
    assert_eq!(world.asked(), 2);
}
