//! A simulated store: objects with metadata, conditions, copies, listings and multi-object deletes, in memory.
//!
//! It loses requests and answers, and refuses some, by a seed. At each change it asserts that no file is missing (W1 of the
//! planner): an object has the number of its file in its write id.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{HeaderMap, Method, Request};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use margay_client::Target;

use crate::chance::Chance;
use crate::documents::{Upload, etag_of, removals, removed_but, with_field};
use crate::encoded::decoded;
use crate::headers::{holds, metadata};
use crate::listen::{Answer, Lost, answer, listen, refusal, text};
use crate::told::{read, told};

#[derive(Clone, Debug)]
pub(crate) struct Object {
    pub(crate) body: Bytes,
    pub(crate) headers: BTreeMap<String, String>,
    /// When it was made, in milliseconds.
    pub(crate) modified: i64,
    /// Of one that was made of parts.
    pub(crate) parts_etag: Option<String>,
}

/// What the store says of metadata in listings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Lists {
    #[default]
    Nothing,
    /// As MinIO.
    Metadata,
    /// The parameter is refused.
    Refusal,
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) objects: BTreeMap<String, Object>,
    pub(crate) uploads: BTreeMap<String, Upload>,
    /// Bytes of parts that were sent, and parts that were copied.
    pub(crate) part_bytes: u64,
    pub(crate) copied_parts: u64,
    /// Files that were here, and those of them that need not be any more.
    seen: BTreeSet<String>,
    removed: BTreeSet<String>,
    chance: Chance,
    /// One request of so many fails; 0: none does.
    fails_one_in: u64,
    /// A third of the requests wait up to so long.
    slowest_ms: u64,
    pub(crate) requests: u64,
    violations: Vec<String>,
    /// The newest process; nothing of an older one arrives any more.
    process: u64,
    /// A key that no listing shows.
    hidden: Option<String>,
    /// A directory at the top that is listed as MinIO does, and has nothing.
    left: Option<&'static str>,
    pub(crate) ignores_conditions: bool,
    /// Only those of completions of uploads.
    pub(crate) completes_always: bool,
    lists: Lists,
    /// Small pages, unless a test says how many keys, so that their seams are tested.
    page_keys: Option<usize>,
    /// The time, in milliseconds; it goes on with each request.
    now: i64,
    heads: u64,
    listings: u64,
    /// Listings of temporary keys: what a process does at last before it sends.
    tidied: u64,
    script: Option<Script>,
    /// Contents after each change, if somebody asked for them.
    states: Option<Vec<Contents>>,
}

/// Keys and bodies.
pub(crate) type Contents = BTreeMap<String, Bytes>;

/// What happens to a request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    Lost,
    /// It is done, and the answer is lost.
    Unanswered,
    /// It is done, and an answer 200 says in its body that it failed.
    FailedInBody,
    Refused(u16, &'static str),
    /// It arrives twice, and the second answer arrives.
    Twice,
}

/// Decides by the method, the key and the headers of a request.
type Script = Box<dyn FnMut(&Method, &str, &HeaderMap) -> Option<Fault> + Send>;

#[derive(Default)]
pub(crate) struct Store(Mutex<State>);

/// What one process reaches it by.
struct Door {
    store: Arc<Store>,
    process: u64,
}

impl Object {
    pub(crate) fn new(body: Bytes, headers: BTreeMap<String, String>, modified: i64) -> Object {
        Object { body, headers, modified, parts_etag: None }
    }

    pub(crate) fn etag(&self) -> String {
        self.parts_etag.clone().unwrap_or_else(|| etag_of(&self.body))
    }

    pub(crate) fn time(&self, form: &str) -> String {
        jiff::Timestamp::from_millisecond(self.modified).unwrap().strftime(form).to_string()
    }

    /// What HEAD says of it besides its size, time and ETag.
    pub(crate) fn said(&self) -> BTreeMap<String, String> {
        let mut said = self.headers.clone();
        said.entry("content-type".to_owned()).or_insert("binary/octet-stream".to_owned());
        said
    }

    /// The file that it belongs to, if this program wrote it.
    fn file(&self) -> Option<String> {
        let id = self.headers.get("x-amz-meta-margay-w")?;
        id.match_indices('-').nth(1).map(|(end, _)| id[..end].to_owned())
    }
}

impl Store {
    pub(crate) async fn start() -> (Arc<Store>, Arc<Target>) {
        let store = Arc::new(Store::default());
        let target = store.door().await;
        (store, target)
    }

    /// For the next process: what the last one sent and was not done is lost.
    pub(crate) async fn door(self: &Arc<Store>) -> Arc<Target> {
        let process = {
            let mut state = self.0.lock().unwrap();
            state.process += 1;
            state.process
        };
        let door = Arc::new(Door { store: Arc::clone(self), process });
        listen(door, |door, request| async move { door.store.serve(request, door.process).await }).await
    }

    pub(crate) fn slow(&self, slowest_ms: u64) {
        self.0.lock().unwrap().slowest_ms = slowest_ms;
    }

    pub(crate) fn fail(&self, one_in: u64, seed: u64) {
        let mut state = self.0.lock().unwrap();
        (state.fails_one_in, state.chance) = (one_in, Chance(seed | 1));
    }

    pub(crate) fn objects(&self) -> BTreeMap<String, Object> {
        self.0.lock().unwrap().objects.clone()
    }

    pub(crate) fn requests(&self) -> u64 {
        self.0.lock().unwrap().requests
    }

    pub(crate) fn heads(&self) -> u64 {
        self.0.lock().unwrap().heads
    }

    pub(crate) fn listings(&self) -> u64 {
        self.0.lock().unwrap().listings
    }

    pub(crate) fn set_lists(&self, lists: Lists) {
        self.0.lock().unwrap().lists = lists;
    }

    pub(crate) fn set_page_keys(&self, keys: usize) {
        self.0.lock().unwrap().page_keys = Some(keys);
    }

    /// From now on each state of the bucket is kept.
    pub(crate) fn record(&self) {
        self.0.lock().unwrap().states = Some(Vec::new());
    }

    pub(crate) fn recorded(&self) -> Vec<Contents> {
        self.0.lock().unwrap().states.clone().unwrap_or_default()
    }

    /// From now on this decides what happens to each request.
    pub(crate) fn script(&self, script: impl FnMut(&Method, &str, &HeaderMap) -> Option<Fault> + Send + 'static) {
        self.0.lock().unwrap().script = Some(Box::new(script));
    }

    /// Nothing arrives any more, or everything again.
    pub(crate) fn set_reachable(&self, reachable: bool) {
        self.0.lock().unwrap().script =
            (!reachable).then(|| Box::new(|_: &Method, _: &str, _: &HeaderMap| Some(Fault::Lost)) as Script);
    }

    /// Like Garage: every PUT and DELETE succeeds.
    pub(crate) fn ignore_conditions(&self) {
        self.0.lock().unwrap().ignores_conditions = true;
    }

    /// As `ignore_conditions`, of completions of uploads alone.
    pub(crate) fn complete_always(&self) {
        self.0.lock().unwrap().completes_always = true;
    }

    /// Waits until a process has found out what the store honours.
    pub(crate) fn wait_probed(&self) {
        while self.0.lock().unwrap().tidied == 0 {
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
    }

    pub(crate) fn hide(&self, key: &str) {
        self.0.lock().unwrap().hidden = Some(key.to_owned());
    }

    pub(crate) fn leave(&self, directory: &'static str) {
        self.0.lock().unwrap().left = Some(directory);
    }

    /// Somebody else gives an object a header; an empty one is made if there is none.
    pub(crate) fn set_header(&self, key: &str, name: &str, value: &str) {
        let mut state = self.0.lock().unwrap();
        let now = state.tick();
        let object = state.objects.entry(key.to_owned()).or_insert(Object::new(Bytes::new(), BTreeMap::new(), now));
        object.modified = now;
        object.headers.insert(name.to_owned(), value.to_owned());
    }

    /// Somebody else puts an object and keeps the metadata that it had.
    pub(crate) fn replace_body(&self, key: &str, body: &'static [u8]) {
        let mut state = self.0.lock().unwrap();
        let now = state.tick();
        let object = state.objects.get_mut(key).unwrap();
        (object.body, object.modified, object.parts_etag) = (Bytes::from_static(body), now, None);
    }

    /// Somebody else puts an object.
    pub(crate) fn put(&self, key: &str, body: &'static [u8]) {
        let mut state = self.0.lock().unwrap();
        if let Some(file) = state.objects.get(key).and_then(Object::file) {
            state.removed.insert(file);
        }
        let made = Object::new(Bytes::from_static(body), BTreeMap::new(), state.tick());
        state.objects.insert(key.to_owned(), made);
    }

    /// Uploads that have parts and have not ended, except those of processes that ended while they looked what the store can.
    pub(crate) fn uploads(&self) -> Vec<String> {
        let state = self.0.lock().unwrap();
        let open = state.uploads.values().filter(|upload| !upload.parts.is_empty() && !upload.key.contains("probe"));
        open.map(|upload| upload.key.clone()).collect()
    }

    /// Bytes of parts that were sent, and parts that were copied.
    pub(crate) fn parts(&self) -> (u64, u64) {
        let state = self.0.lock().unwrap();
        (state.part_bytes, state.copied_parts)
    }

    /// Somebody else removes one.
    pub(crate) fn remove(&self, key: &str) {
        let mut state = self.0.lock().unwrap();
        if let Some(file) = state.objects.remove(key).as_ref().and_then(Object::file) {
            state.removed.insert(file);
        }
    }

    /// The volume with this write id is about to remove a file.
    pub(crate) fn may_lose(&self, id: &str, file: u64) {
        self.0.lock().unwrap().removed.insert(format!("{id}-{file}"));
    }

    pub(crate) fn assert_nothing_was_missing(&self) {
        let violations = &self.0.lock().unwrap().violations;
        assert!(violations.is_empty(), "{violations:#?}");
    }

    /// Some requests arrive later than ones that were sent after them.
    async fn wait_a_little(&self) {
        let wait = {
            let mut state = self.0.lock().unwrap();
            let slowest = state.slowest_ms;
            (slowest > 0 && state.chance.below(3) == 0).then(|| state.chance.below(slowest))
        };
        if let Some(wait) = wait {
            tokio::time::sleep(std::time::Duration::from_millis(wait)).await;
        }
    }

    async fn serve(&self, request: Request<Incoming>, process: u64) -> Result<Answer, Lost> {
        let (head, body) = request.into_parts();
        let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
        self.wait_a_little().await;
        let mut state = self.0.lock().unwrap();
        if process < state.process {
            return Err(Lost);
        }
        state.requests += 1;
        state.heads += u64::from(head.method == Method::HEAD);
        let fault = state.fault(&head);
        match fault {
            Some(Fault::Lost) => return Err(Lost),
            Some(Fault::Refused(status, _)) if head.method == Method::HEAD => return Ok(answer(status, "")),
            Some(Fault::Refused(status, code)) => return Ok(refusal(status, code)),
            _ => {}
        }
        if matches!(fault, Some(Fault::Twice)) {
            state.answer(&head, body.clone());
        }
        let mut answered = state.answer(&head, body);
        if state.left.is_some() {
            answered.headers_mut().insert("server", "MinIO".parse().unwrap());
        }
        state.look();
        match fault {
            Some(Fault::Unanswered) => Err(Lost),
            Some(Fault::FailedInBody) => Ok(answer(200, "<Error><Code>InternalError</Code></Error>")),
            _ => Ok(answered),
        }
    }
}

impl State {
    fn fault(&mut self, head: &http::request::Parts) -> Option<Fault> {
        if let Some(script) = &mut self.script {
            let path = decoded(head.uri.path());
            return script(&head.method, path.trim_start_matches("/far").trim_start_matches('/'), &head.headers);
        }
        match self.fails_one_in {
            0 => None,
            one_in => match self.chance.below(3 * one_in) {
                0 => Some(Fault::Lost),
                1 => Some(Fault::Refused(503, "SlowDown")),
                2 => Some(Fault::Unanswered),
                _ => None,
            },
        }
    }

    /// Some changes are in one second, and none in one millisecond.
    pub(crate) fn tick(&mut self) -> i64 {
        self.now += 301;
        1_500_000_000_000 + self.now
    }

    /// W1 of the planner.
    fn look(&mut self) {
        let now: BTreeSet<String> = self.objects.values().filter_map(Object::file).collect();
        let missing = self.seen.iter().filter(|file| !now.contains(*file) && !self.removed.contains(*file));
        let missing: Vec<String> =
            missing.map(|file| format!("{file} is missing: {:?}", self.objects.keys())).collect();
        self.violations.extend(missing);
        self.seen.extend(now);
        if let Some(states) = &mut self.states {
            let shown = self.objects.iter().filter(|(key, _)| !key.contains(".margay-tmp/"));
            let now: Contents = shown.map(|(key, object)| (key.clone(), object.body.clone())).collect();
            if states.last() != Some(&now) {
                states.push(now);
            }
        }
    }

    fn answer(&mut self, head: &http::request::Parts, body: Bytes) -> Answer {
        let path = decoded(head.uri.path());
        let key = path.strip_prefix("/far").unwrap().trim_start_matches('/').to_owned();
        let query = head.uri.query().unwrap_or_default();
        let query: HashMap<&str, String> = query
            .split('&')
            .filter_map(|pair| pair.split_once('='))
            .map(|(name, value)| (name, decoded(value)))
            .collect();
        if head.uri.query().is_some_and(|query| query == "uploads=") || query.contains_key("uploadId") {
            return self.multipart(head, key, &query, body);
        }
        match head.method {
            Method::GET if key.is_empty() => {
                self.tidied +=
                    u64::from(query["prefix"].contains(".margay-tmp/") && !query["prefix"].ends_with("probe"));
                self.listings += 1;
                self.list(&query)
            }
            Method::POST => self.delete(std::str::from_utf8(&body).unwrap()),
            Method::PUT => self.put(head, key, body),
            Method::DELETE if !self.ignores_conditions && !holds(&head.headers, self.objects.get(&key)) => {
                refusal(412, "PreconditionFailed")
            }
            Method::DELETE => {
                self.objects.remove(&key);
                answer(204, "")
            }
            _ => match self.objects.get(&key) {
                None => refusal(404, "NoSuchKey"),
                Some(object) => read(head, object),
            },
        }
    }

    fn put(&mut self, head: &http::request::Parts, key: String, body: Bytes) -> Answer {
        if !self.ignores_conditions && !holds(&head.headers, self.objects.get(&key)) {
            // As AWS: nothing there is not another state.
            let is_missing = head.headers.contains_key("if-match") && !self.objects.contains_key(&key);
            let (status, code) = if is_missing { (404, "NoSuchKey") } else { (412, "PreconditionFailed") };
            return refusal(status, code);
        }
        let mut object = Object::new(body, metadata(&head.headers), self.tick());
        let source = text(&head.headers, "x-amz-copy-source").map(decoded);
        if let Some(source) = &source {
            let Some(from) = self.objects.get(source.strip_prefix("/far/").unwrap()) else {
                return refusal(404, "NoSuchKey");
            };
            if text(&head.headers, "x-amz-copy-source-if-match").is_some_and(|wanted| wanted != from.etag()) {
                return refusal(412, "PreconditionFailed");
            }
            object.body = from.body.clone();
            if text(&head.headers, "x-amz-metadata-directive") != Some("REPLACE") {
                object.headers = from.headers.clone();
            }
        }
        let etag = object.etag();
        self.objects.insert(key, object);
        let document = source.map(|_| with_field("CopyObjectResult", "ETag", &etag)).unwrap_or_default();
        let mut answer = answer(200, document);
        answer.headers_mut().insert("etag", etag.parse().unwrap());
        answer
    }

    fn delete(&mut self, document: &str) -> Answer {
        // As MinIO: XML has no control characters.
        if document.contains(|one: char| one.is_control() || one == '\u{fffe}') {
            return refusal(400, "MalformedXML");
        }
        let mut kept = Vec::new();
        for (key, wanted) in removals(document) {
            match self.objects.get(key) {
                Some(there) if !self.ignores_conditions && wanted.is_some_and(|wanted| wanted != there.etag()) => {
                    kept.push(key);
                }
                _ => drop(self.objects.remove(key)),
            }
        }
        answer(200, removed_but(&kept))
    }

    fn list(&self, query: &HashMap<&str, String>) -> Answer {
        let wants = query.get("metadata").is_some_and(|wants| wants == "true");
        if wants && self.lists == Lists::Refusal {
            return refusal(501, "NotImplemented");
        }
        let tells = wants && self.lists == Lists::Metadata;
        let (prefix, empty) = (&query["prefix"], String::new());
        let after = query.get("continuation-token").or(query.get("start-after")).unwrap_or(&empty);
        let mut out = String::from("<ListBucketResult>");
        let (mut count, mut last) = (0, String::new());
        for (key, object) in self.objects.iter().filter(|(key, _)| key.starts_with(prefix.as_str())) {
            let rest = &key[prefix.len()..];
            let shown = rest
                .find('/')
                .filter(|_| query.contains_key("delimiter"))
                .map_or(key.as_str(), |slash| &key[..=prefix.len() + slash]);
            if shown <= after.as_str() || shown == last || self.hidden.as_ref() == Some(key) {
                continue;
            }
            if count == self.page_keys.unwrap_or(3) {
                out += &format!("<IsTruncated>true</IsTruncated><NextContinuationToken>{last}</NextContinuationToken>");
                break;
            }
            (count, last) = (count + 1, shown.to_owned());
            out += &match shown == key {
                true => format!(
                    "<Contents><Key>{key}</Key><Size>{}</Size><ETag>{}</ETag><LastModified>{}</LastModified>{}</Contents>",
                    object.body.len(),
                    object.etag().replace('"', "&quot;"),
                    object.time("%Y-%m-%dT%H:%M:%S.%3fZ"),
                    if tells { told(object) } else { String::new() }
                ),
                false => format!("<CommonPrefixes><Prefix>{shown}</Prefix></CommonPrefixes>"),
            };
        }
        let left = self.left.filter(|_| prefix.is_empty() && query.contains_key("delimiter"));
        out.extend(left.map(|left| format!("<CommonPrefixes><Prefix>{left}</Prefix></CommonPrefixes>")));
        answer(200, out + "</ListBucketResult>")
    }
}
