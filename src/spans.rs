//! Spans of requests and of administration for OpenTelemetry, sent to a collector by OTLP over HTTP.
//!
//! Why:        who traces a program wants its calls of S3 in the same picture. Off unless `otlp_endpoint` names a collector; design/0047.
//! Layout:     `context` reads what the client says of its trace and makes ids, `otlp` is the form of the protocol, `export` sends.
//! Invariants: S1 a request never waits for this: its span is put into a queue of `QUEUE_SPANS_MAX` places or dropped and counted.
//!             S2 while tracing is off, a request costs one look at an `Option`.
//!             S3 a span holds no secret: of a query nothing, of headers those that this file names.
//!             S4 the client decides where it says whether its trace is sampled; else the ratio does.
//! Not here:   the live requests of `margay trace` (`trace`), metrics.

mod context;
mod export;
mod otlp;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::HeaderMap;
use margay_env::{Clock, Env};
use margay_metrics::{Exposition, Kind};
use margay_s3::{AccessSubject, RequestDone, SpanPlace as Place};
use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use self::context::{Ids, Parent};
use self::export::{CLOSE_TIME_MAX, Exporter};
use crate::exit::Failure;
use crate::settings::OtlpSettings;
use crate::wiring::host_name;

/// Spans that wait for the collector; each has at most about 4 KiB.
const QUEUE_SPANS_MAX: usize = 4096;
/// Bytes of one text of a span.
const TEXT_BYTES_MAX: usize = 1024;
/// About what a span without attributes has in a message, and what each of these adds, in bytes.
const SPAN_BYTES: usize = 256;
const ATTRIBUTE_BYTES: usize = 48;

/// A value of a span.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Attribute {
    Text(String),
    Number(i64),
    Flag(bool),
}

impl Attribute {
    fn text(text: &str) -> Attribute {
        Attribute::Text(text[..text.floor_char_boundary(TEXT_BYTES_MAX)].to_owned())
    }

    fn number(number: u64) -> Attribute {
        Attribute::Number(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

/// The two parts of a Host header, as OpenTelemetry wants them; an IPv6 address without its brackets.
fn host_and_port(host: &str) -> (&str, Option<u16>) {
    let parted = host.rsplit_once(':').and_then(|(name, port)| Some((name, Some(port.parse().ok()?))));
    let (name, port) = parted.filter(|(name, _)| !name.contains(':') || name.ends_with(']')).unwrap_or((host, None));
    (name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name), port)
}

/// A span that ended.
#[derive(Clone, Debug)]
struct Ended {
    place: Place,
    name: String,
    /// Nanoseconds since 1970.
    begun: u64,
    ended: u64,
    is_error: bool,
    attributes: Vec<(&'static str, Attribute)>,
}

impl Ended {
    /// About its size in a message.
    fn bytes(&self) -> usize {
        let value = |value: &Attribute| if let Attribute::Text(text) = value { text.len() } else { 8 };
        let attributes = self.attributes.iter().map(|(key, text)| ATTRIBUTE_BYTES + key.len() + value(text));
        SPAN_BYTES + self.name.len() + attributes.sum::<usize>()
    }
}

/// A work of administration that ended.
#[derive(Clone, Copy, Debug)]
pub struct WorkDone<'a> {
    /// `admin:Status`.
    pub action: &'a str,
    pub resource: &'a str,
    pub who: &'a str,
    /// The address, or `socket`.
    pub from: &'a str,
    pub method: &'a str,
    pub path: &'a str,
    pub status: u16,
    pub took: Duration,
}

#[derive(Debug, Default)]
struct Counts {
    waiting: AtomicU64,
    sent: AtomicU64,
    /// The queue was full.
    dropped: AtomicU64,
    not_taken: AtomicU64,
    rejected: AtomicU64,
}

/// Tracing that is on.
#[derive(Debug)]
struct On {
    clock: Arc<dyn Clock>,
    ids: Ids,
    /// Of 2^56.
    sampled: u64,
    queue: mpsc::Sender<Ended>,
    counts: Arc<Counts>,
    end: watch::Sender<bool>,
    exporter: Mutex<Option<JoinHandle<()>>>,
}

/// Makes spans, or nothing.
#[derive(Debug, Default)]
pub struct Spans(Option<On>);

impl Spans {
    /// Begins to send, if the settings name a collector. Needs a tokio runtime.
    pub fn start(env: &Env, settings: Option<&OtlpSettings>) -> Result<Arc<Spans>, Failure> {
        let Some(settings) = settings else { return Ok(Arc::default()) };
        let mut endpoint = settings.endpoint.clone();
        if endpoint.is_secure() {
            let trusted = endpoint.trust_authorities(settings.ca.as_deref());
            trusted.map_err(|error| Failure::usage(format!("otlp_ca: {error}")))?;
        }
        let ids = Ids::new(env);
        let resource = vec![
            ("service.name", settings.service.clone()),
            ("service.version", env!("CARGO_PKG_VERSION").to_owned()),
            ("service.instance.id", context::hex(&ids.trace())),
            ("host.name", host_name()),
        ];
        let (queue, waiting) = mpsc::channel(QUEUE_SPANS_MAX);
        let (counts, end) = (Arc::<Counts>::default(), watch::Sender::new(false));
        let exporter = Exporter::new(endpoint, resource, Arc::clone(&counts));
        let exporter = tokio::spawn(exporter.run(waiting, end.subscribe()));
        Ok(Arc::new(Spans(Some(On {
            clock: Arc::clone(&env.clock),
            ids,
            sampled: (settings.ratio.clamp(0.0, 1.0) * (1_u64 << 56) as f64) as u64,
            queue,
            counts,
            end,
            exporter: Mutex::new(Some(exporter)),
        }))))
    }

    /// Where the span of a request with these headers stands; none if it gets none (S4).
    pub fn place(&self, headers: &HeaderMap) -> Option<Place> {
        let on = self.0.as_ref()?;
        let Some(parent) = Parent::of(headers) else {
            let trace_id = on.ids.trace();
            let random = u128::from_be_bytes(trace_id) as u64 & ((1 << 56) - 1);
            let is_sampled = random < on.sampled;
            return is_sampled.then(|| Place {
                trace_id,
                span_id: on.ids.span(),
                parent_id: None,
                state: String::new(),
            });
        };
        let Parent { trace_id, span_id, is_sampled, state } = parent;
        is_sampled.then(|| Place { trace_id, span_id: on.ids.span(), parent_id: Some(span_id), state })
    }

    /// Puts the span of an answered request into the queue; never waits.
    pub fn note_request(&self, done: &RequestDone<'_>) {
        let (Some(on), Some(place)) = (&self.0, done.span) else { return };
        let shown = done.subject.map(AccessSubject::shown).unwrap_or_default();
        let (host, port) = host_and_port(shown.host);
        let mut attributes = vec![
            ("http.request.method", Attribute::text(shown.method)),
            ("url.path", Attribute::text(shown.path)),
            ("url.scheme", Attribute::text(if shown.is_secure { "https" } else { "http" })),
            ("http.response.status_code", Attribute::number(u64::from(done.status.as_u16()))),
            ("server.address", Attribute::text(host)),
            ("client.address", Attribute::Text(done.peer.ip().to_canonical().to_string())),
            ("http.request.body.size", Attribute::number(done.bytes_in)),
            ("http.response.body.size", Attribute::number(done.bytes_out)),
            ("rpc.system", Attribute::text("aws-api")),
            ("rpc.service", Attribute::text("S3")),
            ("rpc.method", Attribute::text(done.operation)),
            ("aws.request_id", Attribute::text(done.request_id)),
            ("margay.first_byte_us", Attribute::number(micros(done.first_byte))),
        ];
        let texts = [
            ("user_agent.original", shown.user_agent),
            ("aws.s3.bucket", shown.bucket),
            ("aws.s3.key", shown.key),
            ("enduser.id", shown.requester),
            ("error.type", done.code.unwrap_or_default()),
        ];
        let texts = texts.into_iter().filter(|(_, text)| !text.is_empty());
        attributes.extend(texts.map(|(key, text)| (key, Attribute::text(text))));
        attributes.extend(port.map(|port| ("server.port", Attribute::number(u64::from(port)))));
        if !done.complete {
            attributes.push(("margay.client_gave_up", Attribute::Flag(true)));
        }
        let name = format!("S3/{}", done.operation);
        on.put(place.clone(), name, done.total, (done.status.is_server_error(), attributes));
    }

    /// As `note_request`, for a work of administration.
    pub fn note_work(&self, place: Option<Place>, done: &WorkDone<'_>) {
        let (Some(on), Some(place)) = (&self.0, place) else { return };
        let mut attributes = vec![
            ("http.request.method", Attribute::text(done.method)),
            ("url.path", Attribute::text(done.path)),
            ("http.response.status_code", Attribute::number(u64::from(done.status))),
            ("client.address", Attribute::text(done.from)),
            ("margay.admin.action", Attribute::text(done.action)),
            ("margay.admin.resource", Attribute::text(done.resource)),
        ];
        if !done.who.is_empty() {
            attributes.push(("enduser.id", Attribute::text(done.who)));
        }
        if done.status >= 400 {
            attributes.push(("error.type", Attribute::Text(done.status.to_string())));
        }
        let name = if done.action.is_empty() { "admin" } else { done.action };
        on.put(place, name.to_owned(), done.took, (done.status >= 500, attributes));
    }

    /// Sends what waits, for a short time (`export`, P3).
    pub async fn close(&self) {
        let Some(on) = &self.0 else { return };
        on.end.send_replace(true);
        let Some(mut exporter) = on.exporter.lock().take() else { return };
        if tokio::time::timeout(CLOSE_TIME_MAX, &mut exporter).await.is_err() {
            exporter.abort();
            tracing::warn!("spans that wait for the collector are lost");
        }
    }

    pub fn write_metrics(&self, out: &mut Exposition) {
        let Some(on) = &self.0 else { return };
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let waiting = read(&on.counts.waiting);
        out.value("margay_spans_waiting", Kind::Gauge, "Spans that wait for the collector.", waiting);
        out.value("margay_spans_sent_total", Kind::Counter, "Spans that the collector took.", read(&on.counts.sent));
        let name = "margay_spans_dropped_total";
        out.family(name, Kind::Counter, "Spans that are lost, by why.");
        for (reason, counter) in
            [("queue_full", &on.counts.dropped), ("not_taken", &on.counts.not_taken), ("rejected", &on.counts.rejected)]
        {
            out.sample(name, &[("reason", reason)], read(counter));
        }
    }
}

impl On {
    fn put(
        &self,
        place: Place,
        name: String,
        took: Duration,
        (is_error, attributes): (bool, Vec<(&'static str, Attribute)>),
    ) {
        let ended = u64::try_from(self.clock.now().0).unwrap_or_default();
        let begun = ended.saturating_sub(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
        // Before it can be taken out.
        self.counts.waiting.fetch_add(1, Ordering::Relaxed);
        // S1.
        if self.queue.try_send(Ended { place, name, begun, ended, is_error, attributes }).is_err() {
            self.counts.waiting.fetch_sub(1, Ordering::Relaxed);
            self.counts.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(ratio: &str) -> OtlpSettings {
        let text = |name: &str| match name {
            "otlp_endpoint" => Some("http://127.0.0.1:9/".to_owned()),
            "otlp_sample_ratio" => Some(ratio.to_owned()),
            _ => None,
        };
        OtlpSettings::build(&text).unwrap().unwrap()
    }

    fn headers(flags: &str) -> HeaderMap {
        let text = format!("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-{flags}");
        HeaderMap::from_iter([(http::HeaderName::from_static("traceparent"), text.parse().unwrap())])
    }

    #[tokio::test]
    async fn the_client_decides_and_else_the_ratio() {
        for (ratio, about) in [("0", 0), ("1", 2000), ("0.25", 500)] {
            let spans = Spans::start(&Env::real(), Some(&settings(ratio))).unwrap();
            let count = (0..2000).filter(|_| spans.place(&HeaderMap::new()).is_some()).count();
            assert!(count.abs_diff(about) < 150 && (about != 0 || count == 0), "{ratio}: {count}");
            let place = spans.place(&headers("01")).unwrap();
            assert_eq!(context::hex(&place.trace_id), "0af7651916cd43dd8448eb211c80319c");
            assert_eq!(place.parent_id.map(|id| context::hex(&id)).as_deref(), Some("b7ad6b7169203331"));
            assert!(spans.place(&headers("00")).is_none(), "it said that it is not sampled");
        }
        assert!(Spans::default().place(&headers("01")).is_none());
    }

    #[tokio::test]
    async fn a_full_queue_drops_and_counts() {
        let spans = Spans::start(&Env::real(), Some(&settings("1"))).unwrap();
        let done = WorkDone {
            action: "admin:Status",
            resource: "",
            who: "",
            from: "socket",
            method: "GET",
            path: "/status",
            status: 200,
            took: Duration::ZERO,
        };
        // The exporter has no turn meanwhile.
        for _ in 0..QUEUE_SPANS_MAX + 7 {
            spans.note_work(spans.place(&HeaderMap::new()), &done);
        }
        let mut out = Exposition::default();
        spans.write_metrics(&mut out);
        let page = out.finish();
        assert!(page.contains("margay_spans_dropped_total{reason=\"queue_full\"} 7\n"), "{page}");
        assert!(page.contains(&format!("margay_spans_waiting {QUEUE_SPANS_MAX}\n")), "{page}");
    }

    #[test]
    fn a_host_has_two_parts() {
        for (host, parts) in [
            ("127.0.0.1:9000", ("127.0.0.1", Some(9000))),
            ("store.example", ("store.example", None)),
            ("[::1]:9000", ("::1", Some(9000))),
            ("[::1]", ("::1", None)),
            ("::1", ("::1", None)),
            ("a:b", ("a:b", None)),
            ("", ("", None)),
        ] {
            assert_eq!(host_and_port(host), parts, "{host}");
        }
    }
}
