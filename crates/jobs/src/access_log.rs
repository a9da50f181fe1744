//! Access logs: a line per request, in a local file and in objects for the buckets that ask for it.
//!
//! Why:        requests must not wait for a log, so lines are buffered in memory and written in batches.
//! Invariants: A1 at most `WAITING_BYTES_MAX` of lines are buffered; further lines are counted and dropped, as AWS too
//!                delivers logs on a best-effort basis.
//!             A2 a stop delivers the buffered lines; a crash loses them.
//! Durability: none is promised; log objects are written like every PUT.
//! Locking:    one lock over the buffered lines, held for an append.
//! Not here:   the format of a line, the bucket's setting (margay-s3).

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use margay_env::{Env, OpenMode};
use margay_metrics::{Exposition, Kind};
use margay_s3::{BucketLogging, RequestDone, access_line};
use margay_volume::{Document, Documents, ETag, Error, Headers, NewKey, PutRequest, Setting, Volume};
use md5::{Digest, Md5};
use parking_lot::Mutex;
use tokio::task::JoinHandle;

/// Buffered lines of all buckets and of the file, in bytes.
const WAITING_BYTES_MAX: usize = 16 << 20;
/// Lines of one bucket that are delivered early, in bytes.
const OBJECT_BYTES_MAX: usize = 1 << 20;
/// How often the file is written.
const FILE_EVERY: Duration = Duration::from_secs(1);
/// How often the buckets' logging settings are read.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// Buckets read at a time.
const PAGE_BUCKETS: usize = 1000;

#[derive(Clone, Debug)]
pub struct AccessLogOptions {
    /// Every request is also logged to this file.
    pub file: Option<PathBuf>,
    /// How long lines are collected before they become an object.
    pub deliver_every: Duration,
    /// The owner of the buckets, as lines name it.
    pub owner: String,
}

/// A bucket's logging setting, and the generation of the bucket at which it was read.
type Wishes = HashMap<String, (u64, Option<BucketLogging>)>;

#[derive(Debug, Default)]
struct Waiting {
    bytes: usize,
    buckets: HashMap<String, Vec<u8>>,
    file: Vec<u8>,
}

#[derive(Debug)]
pub struct AccessLog {
    env: Env,
    volume: Arc<Volume>,
    options: AccessLogOptions,
    wishes: ArcSwap<Wishes>,
    waiting: Mutex<Waiting>,
    lines: AtomicU64,
    dropped: AtomicU64,
    objects: AtomicU64,
    failed: AtomicU64,
}

impl AccessLog {
    pub fn new(env: &Env, volume: &Arc<Volume>, options: AccessLogOptions) -> Arc<AccessLog> {
        Arc::new(AccessLog {
            env: env.clone(),
            volume: Arc::clone(volume),
            options,
            wishes: ArcSwap::default(),
            waiting: Mutex::default(),
            lines: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            objects: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        })
    }

    /// Writes the file and delivers objects until it is aborted.
    pub fn run(self: &Arc<Self>) -> JoinHandle<()> {
        tokio::spawn(Arc::clone(self).run_on())
    }

    async fn run_on(self: Arc<Self>) {
        let (mut looked, mut delivered) = (None::<Duration>, self.env.clock.monotonic());
        loop {
            let now = self.env.clock.monotonic();
            if looked.is_none_or(|looked| now >= looked + LOOK_EVERY) {
                looked = Some(now);
                self.look().await;
            }
            let due = now >= delivered + self.options.deliver_every;
            if due {
                delivered = now;
            }
            self.deliver(if due { 0 } else { OBJECT_BYTES_MAX }).await;
            self.write_file();
            tokio::time::sleep(FILE_EVERY).await;
        }
    }

    /// Delivers the buffered lines.
    pub async fn close(&self) {
        self.deliver(0).await;
        self.write_file();
    }

    /// Whether any request is to be logged.
    pub fn wants_lines(&self) -> bool {
        self.options.file.is_some() || !self.wishes.load().is_empty()
    }

    /// Records a request; never waits.
    pub fn note(&self, done: &RequestDone<'_>) {
        let Some(subject) = done.subject else { return };
        let wishes = self.wishes.load();
        let wanted = wishes.get(&subject.bucket).is_some_and(|(_, logging)| logging.is_some());
        if !wanted && self.options.file.is_none() {
            return;
        }
        let line = access_line(subject, done, self.env.clock.now(), &self.options.owner);
        self.lines.fetch_add(1, Ordering::Relaxed);
        let mut waiting = self.waiting.lock();
        let copies = usize::from(wanted) + usize::from(self.options.file.is_some());
        if waiting.bytes + copies * line.len() > WAITING_BYTES_MAX {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        waiting.bytes += copies * line.len();
        if wanted {
            waiting.buckets.entry(subject.bucket.clone()).or_default().extend_from_slice(line.as_bytes());
        }
        if self.options.file.is_some() {
            waiting.file.extend_from_slice(line.as_bytes());
        }
    }

    /// Reads the logging settings of all buckets.
    async fn look(&self) {
        let old = self.wishes.load_full();
        let (mut wishes, mut after) = (Wishes::new(), None::<String>);
        loop {
            let page = match self.volume.list_buckets("", after.as_deref(), PAGE_BUCKETS).await {
                Ok(page) => page,
                Err(error) => return tracing::warn!(%error, "buckets cannot be asked for their access logs"),
            };
            for bucket in page.iter().filter(|bucket| bucket.settings.contains(Setting::Logging)) {
                let wish = match old.get(&bucket.name).filter(|(generation, _)| *generation == bucket.generation) {
                    Some((_, known)) => known.clone(),
                    None => self.wish(&bucket.name).await,
                };
                wishes.insert(bucket.name.clone(), (bucket.generation, wish));
            }
            match page.last() {
                Some(last) if page.len() == PAGE_BUCKETS => after = Some(last.name.clone()),
                _ => break,
            }
        }
        self.wishes.store(Arc::new(wishes));
    }

    async fn wish(&self, bucket: &str) -> Option<BucketLogging> {
        let document = self.volume.bucket_setting(bucket, Setting::Logging).await.ok().flatten()?;
        BucketLogging::read(&document).ok().flatten()
    }

    /// Writes an object of log lines for each bucket that has more than `least` bytes.
    async fn deliver(&self, least: usize) {
        let due: Vec<(String, Vec<u8>)> = {
            let mut waiting = self.waiting.lock();
            let due: Vec<_> = waiting.buckets.extract_if(|_, lines| lines.len() > least).collect();
            waiting.bytes -= due.iter().map(|(_, lines)| lines.len()).sum::<usize>();
            due
        };
        for (bucket, lines) in due {
            let wish = self.wishes.load().get(&bucket).and_then(|(_, wish)| wish.clone());
            let Some(wish) = wish else { continue };
            match self.put(&wish, lines).await {
                Ok(()) => self.objects.fetch_add(1, Ordering::Relaxed),
                Err(error) => {
                    tracing::warn!(bucket, target_bucket = wish.target, %error, "an access log is not delivered");
                    self.failed.fetch_add(1, Ordering::Relaxed)
                }
            };
        }
    }

    async fn put(&self, wish: &BucketLogging, lines: Vec<u8>) -> Result<(), Error> {
        let key =
            format!("{}{}", wish.prefix, margay_s3::log_object_name(self.env.clock.now(), self.env.random.next_u64()));
        let etag = ETag { digest: Md5::digest(&lines).into(), parts: 0 };
        let (len, mut documents) = (lines.len() as u64, Documents::new());
        let mut upload = match self.volume.bucket_setting(&wish.target, Setting::Encryption).await? {
            None => self.volume.begin_upload(&wish.target, len).await?,
            Some(default) => {
                let by = margay_s3::default_key(&default).map_err(|error| Error::Corrupt(error.to_string()))?;
                let NewKey { key, document } = self.volume.new_data_key(&by)?;
                documents.insert(Document::Encryption, document);
                self.volume.begin_encrypted_upload(&wish.target, len, &key).await?
            }
        };
        upload.write(Bytes::from(lines)).await?;
        let staged = upload.finish().await?;
        let headers = Headers::from([("content-type".to_owned(), "text/plain".to_owned())]);
        let request = PutRequest { bucket: &wish.target, key: &key, etag, headers, documents, ..PutRequest::default() };
        self.volume.put_object(request, staged).await?;
        Ok(())
    }

    /// Appends to the file, which is opened each time: after a rename (log rotation) a new file is created.
    fn write_file(&self) {
        let Some(path) = &self.options.file else { return };
        let lines = {
            let mut waiting = self.waiting.lock();
            waiting.bytes -= waiting.file.len();
            std::mem::take(&mut waiting.file)
        };
        if lines.is_empty() {
            return;
        }
        let append = || -> io::Result<()> {
            let file = self.env.disk.open(path, OpenMode::OpenOrCreate)?;
            file.write_all_at(&lines, file.len()?)
        };
        if let Err(error) = append() {
            tracing::warn!(%error, path = %path.display(), "the access log cannot be written");
            self.failed.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub fn write_metrics(&self, out: &mut Exposition) {
        for (name, help, counter) in [
            ("margay_access_log_lines_total", "Requests noted in an access log.", &self.lines),
            ("margay_access_log_dropped_total", "Lines dropped because too many waited.", &self.dropped),
            ("margay_access_log_objects_total", "Log objects delivered.", &self.objects),
            ("margay_access_log_failed_total", "Deliveries that failed; their lines are lost.", &self.failed),
        ] {
            out.value(name, Kind::Counter, help, counter.load(Ordering::Relaxed));
        }
    }
}
