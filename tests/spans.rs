//! Spans for OpenTelemetry: a collector that reads what a real server posts, and ones that are slow, full or gone.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test stops at the first thing that it does not expect"
)]

mod server;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::{HeaderName, HeaderValue, Method};
use http_body_util::BodyExt as _;
use margay_client::client::{Ask, Client};
use margay_client::connection::Connection;
use parking_lot::Mutex;
use rustix::process::Signal;
use serde_json::Value;
use server::{Server, ends, metric, until};
use tokio::runtime::Runtime;

/// How long spans may be on their way.
const ARRIVE_TIME_MAX: Duration = Duration::from_secs(60);
const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";

/// How a collector answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answers {
    Takes,
    /// 503 to the first message, then as `Takes`.
    LaterOnce,
    /// Takes all but two of each message.
    RejectsTwo,
    /// Never.
    Nothing,
}

/// One span, its attributes by name.
#[derive(Clone, Debug)]
struct Span {
    json: Value,
    attributes: BTreeMap<String, Value>,
}

impl Span {
    fn of(json: &Value) -> Span {
        let value = |value: &Value| value.as_object().unwrap().values().next().unwrap().clone();
        let attributes = json["attributes"].as_array().unwrap().iter();
        let attributes = attributes.map(|pair| (pair["key"].as_str().unwrap().to_owned(), value(&pair["value"])));
        Span { attributes: attributes.collect(), json: json.clone() }
    }

    fn name(&self) -> &str {
        self.json["name"].as_str().unwrap()
    }

    fn text(&self, key: &str) -> &str {
        self.attributes.get(key).and_then(Value::as_str).unwrap_or_default()
    }
}

/// A collector of OTLP over HTTP, as far as a client sees it.
struct Collector {
    url: String,
    spans: Arc<Mutex<Vec<Span>>>,
    resources: Arc<Mutex<Vec<Value>>>,
}

impl Collector {
    fn start(answers: Answers) -> Collector {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (spans, resources) = (Arc::<Mutex<Vec<Span>>>::default(), Arc::<Mutex<Vec<Value>>>::default());
        let (all, of) = (Arc::clone(&spans), Arc::clone(&resources));
        let turn = Arc::new(Mutex::new(0_u32));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (all, of, turn) = (Arc::clone(&all), Arc::clone(&of), Arc::clone(&turn));
                std::thread::spawn(move || serve(stream.unwrap(), answers, &all, &of, &turn));
            }
        });
        Collector { url, spans, resources }
    }

    /// Waits for so many spans of which `is_wanted` is true.
    fn wait(&self, count: usize, is_wanted: impl Fn(&Span) -> bool) -> Vec<Span> {
        let begun = Instant::now();
        loop {
            let found: Vec<Span> = self.spans.lock().iter().filter(|span| is_wanted(span)).cloned().collect();
            if found.len() >= count {
                return found;
            }
            assert!(begun.elapsed() < ARRIVE_TIME_MAX, "{} of {count} spans: {:#?}", found.len(), self.spans.lock());
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// Requests of one connection.
fn serve(
    stream: TcpStream,
    answers: Answers,
    spans: &Mutex<Vec<Span>>,
    resources: &Mutex<Vec<Value>>,
    turn: &Mutex<u32>,
) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut writer = stream;
    loop {
        let (mut head, mut line) = (Vec::new(), String::new());
        while reader.read_line(&mut line).is_ok_and(|bytes| bytes > 2) {
            head.push(std::mem::take(&mut line).trim().to_owned());
        }
        if head.is_empty() {
            return;
        }
        assert_eq!(head[0], "POST /v1/traces HTTP/1.1");
        let header = |name: &str| {
            let found =
                head.iter().find_map(|line| line.split_once(": ").filter(|(key, _)| key.eq_ignore_ascii_case(name)));
            found.map(|(_, value)| value.to_owned()).unwrap_or_default()
        };
        assert_eq!(header("content-type"), "application/json");
        let mut body = vec![0; header("content-length").parse().unwrap()];
        reader.read_exact(&mut body).unwrap();
        let message: Value = serde_json::from_slice(&body).unwrap();
        let turn = {
            let mut turn = turn.lock();
            *turn += 1;
            *turn
        };
        let (status, answer) = match answers {
            Answers::Nothing => {
                std::thread::sleep(Duration::from_secs(3600));
                return;
            }
            Answers::LaterOnce if turn == 1 => ("503 Service Unavailable\r\nretry-after: 1", "{}"),
            Answers::RejectsTwo => ("200 OK", "{\"partialSuccess\":{\"rejectedSpans\":\"2\",\"errorMessage\":\"x\"}}"),
            _ => ("200 OK", "{\"partialSuccess\":{}}"),
        };
        if status.starts_with("200") {
            for resource in message["resourceSpans"].as_array().unwrap() {
                resources.lock().push(resource["resource"].clone());
                let scopes = resource["scopeSpans"].as_array().unwrap().iter();
                let all = scopes.flat_map(|scope| scope["spans"].as_array().unwrap());
                spans.lock().extend(all.map(Span::of));
            }
        }
        let length = answer.len();
        let head = format!("HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n");
        writer.write_all(format!("{head}{answer}").as_bytes()).unwrap();
    }
}

fn start(data: &Path, collector: &str, more: &[&str]) -> Server {
    let endpoint = format!("otlp_endpoint={collector}");
    Server::start_with(data, &[&["--set", &endpoint][..], more].concat())
}

/// Sends requests with headers of its own.
struct Sender {
    runtime: Runtime,
    client: Client,
}

impl Sender {
    fn of(server: &Server) -> Sender {
        let client = Client::new(Connection::new(Arc::new(server.target())));
        Sender { runtime: Runtime::new().unwrap(), client }
    }

    fn status(&mut self, method: Method, key: &str, headers: &[(&'static str, &str)]) -> u16 {
        let headers =
            headers.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap()));
        let body = if method == Method::PUT { "body" } else { "" };
        let ask = Ask { headers: headers.collect(), body: body.into(), ..Ask::new(method, "bucket", key) };
        self.runtime.block_on(async {
            let answer = self.client.send(&ask).await.unwrap();
            let status = answer.status().as_u16();
            answer.into_body().collect().await.unwrap();
            status
        })
    }
}

fn sampled(flags: &str) -> String {
    format!("00-{TRACE}-{PARENT}-{flags}")
}

#[test]
fn each_request_and_each_work_of_administration_is_a_span_with_its_parent() {
    let (folder, collector) = (tempfile::tempdir().unwrap(), Collector::start(Answers::LaterOnce));
    let data = folder.path().join("data");
    let server = start(&data, &collector.url, &["--set", "otlp_service=cats"]);
    server.client(&["mb", "s3://bucket"]);
    let mut sender = Sender::of(&server);
    let parent = [("traceparent", &*sampled("01")), ("tracestate", "a=1")];
    assert_eq!(sender.status(Method::PUT, "one", &parent), 200);
    assert_eq!(sender.status(Method::GET, "none", &[]), 404);
    ends(0, &["status", "--data", data.to_str().unwrap()]);

    let put = &collector.wait(1, |span| span.name() == "S3/PutObject")[0];
    assert_eq!((put.json["traceId"].as_str(), put.json["parentSpanId"].as_str()), (Some(TRACE), Some(PARENT)));
    assert_eq!((put.json["traceState"].as_str(), put.json["kind"].as_u64()), (Some("a=1"), Some(2)));
    let nanoseconds = |name: &str| put.json[name].as_str().unwrap().parse::<u64>().unwrap();
    let (begun, ended) = (nanoseconds("startTimeUnixNano"), nanoseconds("endTimeUnixNano"));
    let now = margay_env::Env::real().clock.now().0 as u64;
    assert!(begun < ended && ended - begun < 30_000_000_000 && now - ended < 120_000_000_000, "{begun} {ended} {now}");
    for (key, value) in [
        ("http.request.method", "PUT"),
        ("url.path", "/bucket/one"),
        ("url.scheme", "http"),
        ("http.response.status_code", "200"),
        ("client.address", "127.0.0.1"),
        ("http.request.body.size", "4"),
        ("rpc.system", "aws-api"),
        ("rpc.method", "PutObject"),
        ("aws.s3.bucket", "bucket"),
        ("aws.s3.key", "one"),
        ("enduser.id", &server.keys().access_key),
    ] {
        assert_eq!(put.text(key), value, "{key}: {put:#?}");
    }
    let (address, port) = (put.text("server.address"), put.text("server.port"));
    assert_eq!(server.endpoint, format!("http://{address}:{port}"), "{put:#?}");
    assert_eq!(put.text("aws.request_id").len(), 16, "{put:#?}");

    let get = &collector.wait(1, |span| span.name() == "S3/GetObject")[0];
    assert_eq!((get.text("http.response.status_code"), get.text("error.type")), ("404", "NoSuchKey"));
    assert!(get.json["parentSpanId"].is_null() && get.json["status"] == serde_json::json!({}), "{get:#?}");
    assert_ne!(get.json["traceId"], put.json["traceId"]);
    let status = &collector.wait(1, |span| span.name() == "admin:Status")[0];
    assert_eq!((status.text("client.address"), status.text("http.response.status_code")), ("socket", "200"));
    assert_eq!((status.text("margay.admin.action"), status.text("enduser.id")), ("admin:Status", "local"));

    let resource = &collector.resources.lock()[0];
    let has = |key: &str, value: &str| {
        let wanted = serde_json::json!({ "key": key, "value": { "stringValue": value } });
        resource["attributes"].as_array().unwrap().contains(&wanted)
    };
    assert!(has("service.name", "cats") && has("service.version", env!("CARGO_PKG_VERSION")), "{resource:#}");
    // No signature, no secret.
    let everything = format!("{:?}", collector.spans.lock());
    assert!(!everything.contains("AWS4-HMAC") && !everything.contains(&server.keys().secret_key), "{everything}");
    assert_eq!(metric(&data, "margay_spans_dropped_total"), 0);
    // The collector has them before the server has its answer.
    until("four spans are sent", || metric(&data, "margay_spans_sent_total") >= 4);
}

#[test]
fn the_ratio_is_for_those_who_do_not_say() {
    let (folder, collector) = (tempfile::tempdir().unwrap(), Collector::start(Answers::Takes));
    let data = folder.path().join("data");
    let server = start(&data, &collector.url, &["--set", "otlp_sample_ratio=0"]);
    server.client(&["mb", "s3://bucket"]);
    let mut sender = Sender::of(&server);
    for _ in 0..20 {
        sender.status(Method::PUT, "unsaid", &[]);
        sender.status(Method::PUT, "unsampled", &[("traceparent", &sampled("00"))]);
        sender.status(Method::PUT, "malformed", &[("traceparent", &sampled("1"))]);
    }
    sender.status(Method::PUT, "sampled", &[("traceparent", &sampled("01"))]);
    // The stop sends what waits.
    server.signal(Signal::TERM);
    assert_eq!(server.code(), Some(0));
    let spans = collector.spans.lock();
    assert_eq!(spans.iter().map(|span| span.text("aws.s3.key")).collect::<Vec<_>>(), ["sampled"], "{spans:#?}");
}

#[test]
fn a_collector_that_takes_nothing_costs_no_request_anything() {
    for answers in [Some(Answers::Nothing), None] {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        let collector = answers.map(Collector::start);
        let url = collector.as_ref().map_or("http://127.0.0.1:9", |collector| &collector.url);
        let server = start(&data, url, &[]);
        server.client(&["mb", "s3://bucket"]);
        let mut sender = Sender::of(&server);
        let begun = Instant::now();
        // More than a queue and a message.
        for _ in 0..5200 {
            assert_eq!(sender.status(Method::GET, "none", &[]), 404);
        }
        let took = begun.elapsed();
        assert!(metric(&data, "margay_spans_dropped_total") > 0);
        assert!(metric(&data, "margay_spans_waiting") <= 4096);
        // Waiting for a collector, each message would take ten seconds.
        assert!(took < Duration::from_secs(120), "{took:?}");
        let begun = Instant::now();
        server.signal(Signal::TERM);
        assert_eq!(server.code(), Some(0));
        assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    }
}

#[test]
fn what_a_collector_rejects_is_counted() {
    let (folder, collector) = (tempfile::tempdir().unwrap(), Collector::start(Answers::RejectsTwo));
    let data = folder.path().join("data");
    let server = start(&data, &collector.url, &[]);
    server.client(&["mb", "s3://bucket"]);
    let mut sender = Sender::of(&server);
    for _ in 0..5 {
        sender.status(Method::PUT, "key", &[]);
    }
    collector.wait(5, |span| span.name() == "S3/PutObject");
    until("two spans are dropped", || metric(&data, "margay_spans_dropped_total") >= 2);
}

#[test]
fn wrong_settings_are_refused_before_anything_is_made() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let data = data.to_str().unwrap();
    for (wrong, what) in [
        (&["otlp_endpoint=collector:4318"][..], "otlp_endpoint"),
        (&["otlp_endpoint=http://collector:4318", "otlp_sample_ratio=2"], "from 0 to 1"),
        (&["otlp_endpoint=https://collector:4318", "otlp_ca=/absent.pem"], "otlp_ca"),
    ] {
        let mut words = vec!["serve", "--address", "127.0.0.1:0", "--admin-address", "off", "--data", data];
        wrong.iter().for_each(|wrong| words.extend(["--set", wrong]));
        let line = ends(2, &words);
        assert!(line.contains(what) && line.trim().lines().count() == 1, "{line}");
    }
    assert!(!Path::new(data).exists());
}
