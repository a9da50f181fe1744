//! Delivery of events to a target that fails, answers badly, and comes back.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::HashMap;

use margay_env::Env;
use margay_meta::memory::Memory;
use margay_s3::notification::Router;
use margay_segment::Store;
use margay_volume::{ETag, Options, PutRequest, Setting};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;

use super::*;

/// A target that records the messages it accepts, after answering 500 a given number of times.
struct Receiver {
    url: String,
    taken: Arc<Mutex<Vec<(String, String)>>>,
}

impl Receiver {
    async fn start(failures: usize) -> Receiver {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://user:pass@{}/hook?a=b", listener.local_addr().unwrap());
        let taken = Arc::new(Mutex::new(Vec::new()));
        let (notes, left) = (Arc::clone(&taken), Arc::new(Mutex::new(failures)));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (notes, left) = (Arc::clone(&notes), Arc::clone(&left));
                tokio::spawn(async move {
                    let mut stream = BufReader::new(stream);
                    while let Some(body) = message_on(&mut stream).await {
                        let fails = std::mem::replace(&mut *left.lock(), 0);
                        if fails > 0 {
                            *left.lock() = fails - 1;
                        } else {
                            let object = &body["Records"][0]["s3"]["object"];
                            let text = |name: &str| object[name].as_str().unwrap().to_owned();
                            notes.lock().push((text("key"), text("sequencer")));
                        }
                        let status = if fails > 0 { "500 Sorry" } else { "204 Fine" };
                        let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n");
                        if stream.write_all(answer.as_bytes()).await.is_err() {
                            return;
                        }
                    }
                });
            }
        });
        Receiver { url, taken }
    }

    fn target(&self) -> Target {
        Target::parse(&format!("orders={}", self.url)).unwrap()
    }

    /// Waits until this many messages were accepted.
    async fn has(&self, count: usize) -> Vec<(String, String)> {
        loop {
            let taken = self.taken.lock().clone();
            if taken.len() >= count {
                return taken;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

async fn message_on(stream: &mut BufReader<tokio::net::TcpStream>) -> Option<Value> {
    let (mut len, mut authorized, mut line) = (0, false, String::new());
    loop {
        line.clear();
        if stream.read_line(&mut line).await.ok()? == 0 {
            return None;
        }
        let lower = line.trim().to_ascii_lowercase();
        if lower.is_empty() {
            break;
        }
        if let Some(text) = lower.strip_prefix("content-length: ") {
            len = text.parse().unwrap();
        }
        authorized |= line.trim() == "authorization: Basic dXNlcjpwYXNz";
    }
    assert!(authorized, "the user of the URL is sent");
    let mut body = vec![0; len];
    stream.read_exact(&mut body).await.ok()?;
    serde_json::from_slice(&body).ok()
}

struct World {
    volume: Arc<Volume>,
    _folder: tempfile::TempDir,
}

impl World {
    async fn new() -> World {
        let folder = tempfile::tempdir().unwrap();
        let env = Env::real();
        let mut options = margay_segment::Options::new(folder.path().join("segments"));
        options.reserve_bytes = 0;
        let store = Store::open(env.clone(), options).unwrap();
        let options = Options { events: Some(Arc::new(Router)), ..Options::default() };
        let volume = Volume::open(env, Arc::new(Memory::new()), store, options).unwrap();
        volume.create_bucket("bucket").await.unwrap();
        let document = "<NotificationConfiguration><QueueConfiguration><Queue>arn:aws:sqs:r:a:orders</Queue>\
                        <Event>s3:ObjectCreated:*</Event></QueueConfiguration></NotificationConfiguration>";
        volume.set_bucket_setting("bucket", Setting::Notification, document.as_bytes()).await.unwrap();
        World { volume, _folder: folder }
    }

    async fn put(&self, key: &str) {
        let staged = self.volume.begin_upload("bucket", 0).await.unwrap().finish().await.unwrap();
        let etag = ETag { digest: [1; 16], parts: 0 };
        self.volume
            .put_object(PutRequest { bucket: "bucket", key, etag, ..PutRequest::default() }, staged)
            .await
            .unwrap();
    }

    fn start(&self, target: Target) -> Notifier {
        let sender = Sender { region: "r".to_owned(), owner: "o".to_owned() };
        Notifier::start(&self.volume, vec![target], &sender)
    }
}

/// The accepted events of each key, in order.
fn by_key(taken: &[(String, String)]) -> HashMap<String, Vec<String>> {
    let mut keys: HashMap<String, Vec<String>> = HashMap::new();
    taken.iter().for_each(|(key, sequencer)| keys.entry(key.clone()).or_default().push(sequencer.clone()));
    keys
}

#[tokio::test]
async fn every_event_arrives_in_the_order_of_its_key() {
    let world = World::new().await;
    let receiver = Receiver::start(0).await;
    for number in 0..300 {
        world.put(&format!("k{}", number % 7)).await;
    }
    let notifier = world.start(receiver.target());
    receiver.has(300).await;
    world.put("late").await;
    let taken = by_key(&receiver.has(301).await);
    assert_eq!((taken.len(), taken.values().map(Vec::len).sum::<usize>()), (8, 301));
    assert!(taken.values().all(|numbers| numbers.is_sorted_by(|before, after| before < after)));
    while world.volume.events_waiting() > 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    drop(notifier);
}

#[tokio::test]
async fn a_target_that_fails_gets_the_event_again_before_later_ones_of_its_key() {
    let world = World::new().await;
    let receiver = Receiver::start(1).await;
    world.put("k").await;
    world.put("k").await;
    let _notifier = world.start(receiver.target());
    let taken = receiver.has(2).await;
    assert!(taken[0].1 < taken[1].1);
}

#[test]
fn targets_are_read() {
    let target = Target::parse("a-b=http://h/x").unwrap();
    assert_eq!((target.name.as_str(), format!("{:?}", target.endpoint)), ("a-b", "h:80/x".to_owned()));
    assert!(Target::parse("a=https://user:secret@h").is_ok_and(|target| target.endpoint.is_secure()));
    assert!(!format!("{:?}", Target::parse("a=https://user:secret@h").unwrap()).contains("secret"));
    for wrong in ["a", "=http://h", "a b=http://h", "a=ftp://h", "a=/path", "a=http://"] {
        assert!(Target::parse(wrong).is_err(), "{wrong}");
    }
}
