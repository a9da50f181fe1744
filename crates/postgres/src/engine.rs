//! The engine: the contract of margay_meta over lanes, readers and the feed.
//!
//! Invariants: N1 commits go on when nobody waits for them any more (M6): they are tasks of the engine's threads, or block their caller.
//!             N2 reads, and commits of threads that block, run on the threads of their callers, over connections that were opened there
//!                (`near`, `blocking`, `Lanes::commit_here`): the way to another thread and back is longer than the one to PostgreSQL.
//! Locking:    none here.
//! Not here:   what a commit is (lane), what a read is (read).

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use event_listener::Event;
use margay_env::Env;
use margay_meta::{
    Answers, Ask, Batch, CommitError, CommitOutcome, CommitToken, CommitTold, Committed, Cursor, DurableFuture, Engine,
    EngineError, EngineFuture, FeedError, FeedPage, Observed, ReadLimit, Row, RowRef,
};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::batch::LockSpace;
use crate::blocking::BlockingReaders;
use crate::check::{self, ServerSetting};
use crate::commit::Lanes;
use crate::connection::{Server, said};
use crate::feed::{CHANGES_HELD_MAX, FORGET_EVERY, changes, feed_start, wait_feed};
use crate::filling::{FillError, Filling};
use crate::primary;
use crate::read::Readers;
use crate::scan::{get_row, scan_pages};
use crate::snapshot::Snapshot;
use crate::tasks::{Tasks, ended};
use crate::timeline::Timeline;
use crate::tls;

const TABLES: &str = include_str!("schema.sql");
const FUNCTIONS: &str = include_str!("functions.sql");
/// All functions are made in one transaction, so all are there with this one, which an earlier program had not.
const NEWEST_FUNCTION: &str = "commit_one_v1";
/// The tables are those of this program if this column of theirs is there, which was added last.
const NEWEST_COLUMN: (&str, &str) = ("lanes", "failed");
/// Longest name that PostgreSQL keeps, in bytes.
const SCHEMA_BYTES_MAX: usize = 63;
/// How often who waits for changes of other processes asks.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Is not shown.
#[derive(Clone)]
pub struct Password(pub String);

impl std::fmt::Debug for Password {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Password(..)")
    }
}

#[derive(Clone, Debug)]
pub struct PostgresOptions {
    /// As libpq takes it: `host=a,b port=5432 user=margay dbname=margay` or `postgres://margay@a,b/margay`; without a password,
    /// since this is shown.
    pub config: String,
    pub password: Option<Password>,
    /// Of the volume: lower-case letters, digits and `_`, and no digit first.
    pub schema: String,
    /// Connections that commit, and one more for threads that block. Commits that wait share them.
    pub lanes: usize,
    /// Connections that read for callers on a runtime; about as many more for threads that block and for jobs.
    pub readers: usize,
}

impl PostgresOptions {
    /// What a server uses.
    pub const LANES: usize = 4;
    pub const READERS: usize = 8;
}

#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("{0:?} cannot name the schema of a volume: lower-case letters, digits and _, at most {SCHEMA_BYTES_MAX}")]
    Schema(String),
    #[error("cannot understand how to reach PostgreSQL: {0}")]
    Config(#[from] tokio_postgres::Error),
    #[error(transparent)]
    Failed(#[from] EngineError),
    #[error("{0}")]
    Setting(String),
}

/// See the crate's header.
#[derive(Debug)]
pub struct PostgresEngine {
    tasks: Arc<Tasks>,
    server: Server,
    shared: Arc<Shared>,
}

/// Calls of the server since the start.
#[derive(Debug, Default)]
struct Calls {
    reads: AtomicU64,
    changes: AtomicU64,
}

/// What the tasks of calls share.
#[derive(Debug)]
struct Shared {
    timeline: Arc<Timeline>,
    lanes: Lanes,
    /// Of the engine's own threads.
    readers: Readers,
    /// Of callers' runtimes.
    near: Readers,
    /// Of callers that block.
    blocking: BlockingReaders,
    /// The newest commit that this process knows.
    last: AtomicU64,
    /// Nothing that was read is behind it (`Engine::seen_cursor`).
    seen: AtomicU64,
    commits: AtomicU64,
    calls: Calls,
    news: Event,
}

fn is_schema(name: &str) -> bool {
    let is_first = |first: u8| first.is_ascii_lowercase() || first == b'_';
    let is_part = |byte: u8| is_first(byte) || byte.is_ascii_digit();
    name.len() <= SCHEMA_BYTES_MAX && name.bytes().next().is_some_and(is_first) && name.bytes().all(is_part)
}

impl PostgresEngine {
    /// Makes the schema of the volume if there is none. Waits for the server.
    pub fn open(options: &PostgresOptions) -> Result<PostgresEngine, OpenError> {
        let PostgresOptions { config, password, schema, lanes, readers } = options;
        if !is_schema(schema) {
            return Err(OpenError::Schema(schema.clone()));
        }
        let (place, wish) = tls::split(config).map_err(OpenError::Setting)?;
        let mut config: tokio_postgres::Config = place.parse()?;
        if config.get_password().is_some() {
            let advice = "the place of PostgreSQL is shown by commands and logs, so it has no password: set PGPASSWORD";
            return Err(OpenError::Setting(advice.to_owned()));
        }
        if let Some(Password(password)) = password {
            config.password(password);
        }
        let tls = tls::protect(&mut config, &wish).map_err(OpenError::Setting)?;
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            return Err(OpenError::Setting("the place of PostgreSQL names no host".to_owned()));
        }
        let tasks = Arc::new(Tasks::start()?);
        let server = Server::new(config, tls, schema, Env::real().clock, tasks.handle());
        let (space, count) = (LockSpace::of_schema(schema), (*lanes).max(1));
        let (own, name) = (server.clone(), schema.clone());
        let opened = tasks.block(async move {
            let found = primary::find(&own).await?;
            primary::begin(&own, &found).await?;
            // It ends with the threads.
            drop(tokio::spawn(primary::keep(own.clone(), found)));
            prepare(&own, &name).await?;
            Ok::<_, OpenError>(Lanes::open(&own, count, space).await?)
        })?;
        let shared = Arc::new(Shared {
            timeline: Arc::clone(&server.timeline),
            lanes: opened,
            readers: Readers::new(server.clone(), readers.div_ceil(4)),
            blocking: BlockingReaders::new(server.clone(), readers.div_ceil(2)),
            near: Readers::new(server.clone(), *readers),
            last: AtomicU64::new(0),
            seen: AtomicU64::new(0),
            commits: AtomicU64::new(0),
            calls: Calls::default(),
            news: Event::new(),
        });
        Ok(PostgresEngine { tasks, server, shared })
    }

    /// The server's settings on which it depends that nothing gets lost. Waits for it.
    pub fn settings(&self) -> Result<Vec<ServerSetting>, EngineError> {
        let server = self.server.clone();
        self.tasks.block(async move { check::settings(&server).await })
    }

    /// Begins to fill a schema without any rows.
    pub fn fill(&self) -> Result<Filling, FillError> {
        Filling::begin(&self.tasks, &self.server)
    }

    /// Calls of the server since the start, by operation. A row and a page of a scan are reads; commits that wait share calls.
    pub fn calls(&self) -> [(&'static str, u64); 3] {
        let Calls { reads, changes } = &self.shared.calls;
        let [reads, changes] = [reads, changes].map(|count| count.load(Ordering::Relaxed));
        [("read", reads), ("commit", self.shared.lanes.calls()), ("changes", changes)]
    }
}

async fn prepare(server: &Server, schema: &str) -> Result<(), OpenError> {
    let connection = server.connect().await?;
    let client = &connection.client;
    let failed = |error: tokio_postgres::Error| EngineError::Io(std::io::Error::other(said(&error)));
    let setting = client.query_one("show synchronous_commit", &[]).await.map_err(failed)?;
    let setting: String = setting.try_get(0).map_err(failed)?;
    // `local` loses commits at a fail-over, `off` at any crash.
    if !["on", "remote_apply"].contains(&setting.as_str()) {
        let advice = format!(
            "synchronous_commit is {setting} in PostgreSQL: set it to on, or commits that were answered get lost"
        );
        return Err(OpenError::Setting(advice));
    }
    let (table, column) = NEWEST_COLUMN;
    let (function, table) = (format!("{schema}.{NEWEST_FUNCTION}"), format!("{schema}.{table}"));
    let made = "select to_regproc($1) is not null, \
                exists (select from pg_attribute where attrelid = to_regclass($2) and attname = $3 and not attisdropped)";
    let made = client.query_one(made, &[&function, &table, &column]).await;
    let made = made.and_then(|row| Ok((row.try_get(0)?, row.try_get(1)?))).map_err(failed)?;
    // What changes a table waits for all that read, a backup too, and others would wait behind it.
    let missing = match made {
        (true, true) => return Ok(()),
        (false, true) => FUNCTIONS.to_owned(),
        (_, false) => format!("create schema if not exists {schema}; {TABLES}; {FUNCTIONS}"),
    };
    // Two processes may begin at once.
    let statement = format!("begin; select pg_advisory_xact_lock(0); {missing}; commit");
    Ok(client.batch_execute(&statement).await.map_err(failed)?)
}

impl Shared {
    async fn commit(&self, batch: Batch) -> Result<Committed, CommitError> {
        let done = self.lanes.commit(batch).await;
        if self.note(&done) {
            self.forget().await;
        }
        done
    }

    /// Whether it is time to forget old changes.
    fn note(&self, done: &Result<Committed, CommitError>) -> bool {
        let Ok(committed) = done else { return false };
        self.last.fetch_max(committed.cursor.0, Ordering::AcqRel);
        self.news.notify(usize::MAX);
        (self.commits.fetch_add(1, Ordering::Relaxed) + 1).is_multiple_of(FORGET_EVERY)
    }

    async fn forget(&self) {
        let forgotten = match self.readers.one().await {
            Ok(reading) => reading.query("select forget_v1($1)", &[&CHANGES_HELD_MAX]).await,
            Err(error) => Err(error),
        };
        if let Err(error) = forgotten {
            tracing::warn!(%error, "old changes are not forgotten");
        }
    }

    fn last(&self) -> Cursor {
        Cursor(self.last.load(Ordering::Acquire))
    }

    async fn read(&self, readers: &Readers, asks: &[Ask], limit: ReadLimit) -> Result<Answers, EngineError> {
        self.told(readers.one().await?.read(asks, limit, self.last()).await)
    }

    /// A read that was answered, or not.
    fn told(&self, read: Result<(Answers, Cursor), EngineError>) -> Result<Answers, EngineError> {
        self.calls.reads.fetch_add(1, Ordering::Relaxed);
        let (answers, seen) = read?;
        self.seen.fetch_max(seen.0, Ordering::AcqRel);
        Ok(answers)
    }

    async fn changes(&self, after: Cursor, limit: usize) -> Result<FeedPage, FeedError> {
        self.calls.changes.fetch_add(1, Ordering::Relaxed);
        changes(&*self.readers.one().await?, after, limit).await
    }
}

impl Engine for PostgresEngine {
    fn waits(&self) -> bool {
        true
    }

    fn begin_read(&self, asks: Vec<Ask>, limit: ReadLimit) -> EngineFuture<'_, Result<Answers, EngineError>> {
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            if Handle::try_current().is_ok() {
                return shared.read(&shared.near, &asks, limit).await;
            }
            self.tasks.begin(async move { shared.read(&shared.readers, &asks, limit).await }).await
        })
    }

    fn begin_commit(&self, batch: Batch, told: CommitTold) -> EngineFuture<'_, Result<Committed, CommitError>> {
        let shared = Arc::clone(&self.shared);
        self.tasks.begin(async move {
            let done = shared.commit(batch).await;
            told(&done);
            done
        })
    }

    fn get(&self, key: &[u8]) -> Result<Observed<Option<Row>>, EngineError> {
        get_row(self, key)
    }

    fn scan(
        &self,
        start: &[u8],
        end: &[u8],
        visit: &mut dyn FnMut(RowRef<'_>) -> ControlFlow<()>,
    ) -> Result<Observed<()>, EngineError> {
        scan_pages(self, start, end, visit)
    }

    fn read(&self, asks: &[Ask], limit: ReadLimit) -> Result<Answers, EngineError> {
        let shared = Arc::clone(&self.shared);
        if let Some(read) = shared.blocking.read(asks, limit, shared.last()) {
            return shared.told(read);
        }
        let asks = asks.to_vec();
        self.tasks.block(async move { shared.read(&shared.readers, &asks, limit).await })
    }

    fn commit(&self, batch: Batch) -> Result<Committed, CommitError> {
        let shared = Arc::clone(&self.shared);
        let here = if Handle::try_current().is_ok() { Err(batch) } else { shared.lanes.commit_here(batch) };
        match here {
            Ok(done) => {
                if shared.note(&done) {
                    drop(self.tasks.spawn(async move { shared.forget().await }));
                }
                done
            }
            Err(batch) => self.tasks.block(async move { shared.commit(batch).await }),
        }
    }

    fn outcome(&self, token: CommitToken) -> Result<CommitOutcome, EngineError> {
        let shared = Arc::clone(&self.shared);
        self.tasks.block(async move {
            let outcome = shared.lanes.outcome(token).await;
            if let Ok(CommitOutcome::Committed(committed)) = &outcome {
                shared.last.fetch_max(committed.cursor.0, Ordering::AcqRel);
            }
            outcome
        })
    }

    fn durable(&self, _cursor: Cursor) -> DurableFuture<'_> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn wait_durable(&self, _cursor: Cursor) -> Result<(), EngineError> {
        Ok(())
    }

    fn last_cursor(&self) -> Cursor {
        self.shared.last()
    }

    fn durable_cursor(&self) -> Cursor {
        self.shared.last()
    }

    fn seen_cursor(&self) -> Cursor {
        Cursor(self.shared.seen.load(Ordering::Acquire)).max(self.shared.last())
    }

    fn feed_start(&self) -> Result<Cursor, EngineError> {
        let shared = Arc::clone(&self.shared);
        self.tasks.block(async move { feed_start(&*shared.readers.one().await?).await })
    }

    fn unchanged_since(&self, _cursor: Cursor) -> bool {
        false
    }

    fn changes(&self, after: Cursor, limit: usize) -> Result<FeedPage, FeedError> {
        if self.shared.timeline.tells(after) {
            return Err(FeedError::TooOld { oldest: after });
        }
        let shared = Arc::clone(&self.shared);
        self.tasks.block(async move { shared.changes(after, limit).await })
    }

    fn wait_feed(&self) -> Result<(), EngineError> {
        let shared = Arc::clone(&self.shared);
        self.tasks.block(async move { wait_feed(&shared.readers).await })
    }

    fn wait_changes(&self, after: Cursor) -> EngineFuture<'_, Result<(), EngineError>> {
        let shared = Arc::clone(&self.shared);
        let (sender, receiver) = oneshot::channel();
        drop(self.tasks.spawn(async move {
            let mut sender = sender;
            let found = async {
                loop {
                    let committed = shared.news.listen();
                    if shared.timeline.is_doubted() {
                        return Ok(());
                    }
                    match shared.changes(after, 1).await {
                        Ok(page) if page.changes.is_empty() => {}
                        // Who asks is told that it is too old.
                        Ok(_) | Err(FeedError::TooOld { .. }) => return Ok(()),
                        Err(FeedError::Failed(error)) => return Err(error),
                    }
                    drop(tokio::time::timeout(LOOK_EVERY, committed).await);
                }
            };
            tokio::select! {
                found = found => drop(sender.send(found)),
                () = sender.closed() => {}
            }
        }));
        Box::pin(async move { receiver.await.unwrap_or_else(|_| Err(ended())) })
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn payload_bytes_max(&self) -> usize {
        0
    }

    fn snapshot(&self) -> Result<Arc<dyn Engine>, EngineError> {
        Ok(Arc::new(Snapshot::begin(Arc::clone(&self.tasks), self.server.clone(), self.shared.last())?))
    }

    fn checkpoint(&self) -> Result<(), EngineError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_needs_no_quotes() {
        for (name, is_right) in
            [("margay", true), ("_v2", true), ("2v", false), ("a-b", false), ("A", false), ("", false)]
        {
            assert_eq!(is_schema(name), is_right, "{name}");
        }
    }
}
