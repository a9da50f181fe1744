//! Rows of another engine that go into a schema without any, all of them or none.
//!
//! Why:        a volume that moves here has millions of rows. Batches of the contract would lock each key, tell the feed of each, and
//!             could end half-way.
//! Invariants: F1 one transaction has all rows. It locks the tables before it looks whether they are empty, so it waits for an earlier
//!                one whose process was killed, and nobody begins a volume beside it.
//!             F2 the version of all of them is the number of the transaction, as with a commit (P2).
//! Durability: what `commit` has answered is as durable as any commit. Without an answer it may be there or not: a second filling
//!             waits for the first one and finds out.
//! Not here:   which rows there are (the caller).

use std::sync::Arc;

use margay_meta::{EngineError, KEY_BYTES_MAX, RowKind, VALUE_BYTES_MAX};

use crate::batch::stored;
use crate::connection::{Connection, Server, nonsense, said, unavailable};
use crate::tasks::Tasks;

/// Rows that are sent at once, and their bytes as far as one row allows.
const ROWS_SENT: usize = 4096;
const BYTES_SENT: usize = 1 << 20;

const BEGIN: &str = "begin; lock table rows, counters in exclusive mode";
const IS_EMPTY: &str = "select (select version from rows limit 1) is null and (select value from counters limit 1) is null, \
                        pg_current_xact_id()::text::bigint";
const PUT: &str = "insert into rows(key, version, value) select key, $3, value from unnest($1::bytea[], $2::bytea[]) as put(key, value)";
const COUNT: &str = "insert into counters(key, shard, value) select key, 0, value from unnest($1::bytea[], $2::bigint[]) as put(key, value)";

/// Why rows do not go into a schema.
#[derive(Debug, thiserror::Error)]
pub enum FillError {
    #[error("it has rows already")]
    NotEmpty,
    #[error(
        "a row of the table {1:?} has a key of {0} bytes, and PostgreSQL indexes at most {KEY_BYTES_MAX}: rename what has so long a name"
    )]
    TooLong(usize, char),
    #[error(transparent)]
    Failed(#[from] EngineError),
    /// It may be done: a second filling finds out.
    #[error("what became of the rows is not known: {0}")]
    Unknown(String),
}

/// A transaction that is under way; dropped, nothing was done.
#[derive(Debug)]
pub struct Filling {
    tasks: Arc<Tasks>,
    connection: Arc<Connection>,
    version: i64,
    rows: Vec<(Vec<u8>, Vec<u8>)>,
    counters: Vec<(Vec<u8>, i64)>,
    /// Of those that wait to be sent.
    bytes: usize,
    put: u64,
}

impl Filling {
    pub(crate) fn begin(tasks: &Arc<Tasks>, server: &Server) -> Result<Filling, FillError> {
        let server = server.clone();
        let (connection, version) = tasks.block(async move {
            let connection = server.connect().await?;
            let failed = |error: tokio_postgres::Error| FillError::Failed(unavailable(&error));
            connection.client.batch_execute(BEGIN).await.map_err(failed)?;
            let row = connection.client.query_one(IS_EMPTY, &[]).await.map_err(failed)?;
            let is_empty: bool = row.try_get(0).map_err(failed)?;
            let version: i64 = row.try_get(1).map_err(failed)?;
            if is_empty { Ok((connection, version)) } else { Err(FillError::NotEmpty) }
        })?;
        let (tasks, connection) = (Arc::clone(tasks), Arc::new(connection));
        Ok(Filling { tasks, connection, version, rows: Vec::new(), counters: Vec::new(), bytes: 0, put: 0 })
    }

    /// Rows put so far.
    pub fn put_so_far(&self) -> u64 {
        self.put
    }

    /// Puts a row, of any kind; no key may come twice.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), FillError> {
        // An embedded engine may have rows from before this limit.
        if key.len() > KEY_BYTES_MAX || value.len() > VALUE_BYTES_MAX {
            return Err(FillError::TooLong(key.len(), key.first().map_or('?', |table| char::from(*table))));
        }
        match RowKind::of(key) {
            RowKind::Plain => self.rows.push((key.to_vec(), value.to_vec())),
            kind => {
                let value =
                    value.try_into().map_err(|_| EngineError::Corrupt("a counter has no 8 bytes".to_owned()))?;
                self.counters.push((key.to_vec(), stored(kind, value)));
            }
        }
        self.put += 1;
        self.bytes += key.len() + value.len();
        if self.rows.len() + self.counters.len() >= ROWS_SENT || self.bytes >= BYTES_SENT {
            self.send()?;
        }
        Ok(())
    }

    fn send(&mut self) -> Result<(), FillError> {
        self.bytes = 0;
        let (keys, values): (Vec<_>, Vec<_>) = std::mem::take(&mut self.rows).into_iter().unzip();
        let (counter_keys, counts): (Vec<_>, Vec<_>) = std::mem::take(&mut self.counters).into_iter().unzip();
        let (connection, version) = (Arc::clone(&self.connection), self.version);
        self.tasks.block(async move {
            let failed = |error: tokio_postgres::Error| FillError::Failed(unavailable(&error));
            let (mut done, wanted) = (0, (keys.len() + counter_keys.len()) as u64);
            if !keys.is_empty() {
                done += connection.client.execute(PUT, &[&keys, &values, &version]).await.map_err(failed)?;
            }
            if !counter_keys.is_empty() {
                done += connection.client.execute(COUNT, &[&counter_keys, &counts]).await.map_err(failed)?;
            }
            if done == wanted { Ok(()) } else { Err(FillError::Failed(nonsense("it has put fewer rows"))) }
        })
    }

    /// All rows were put: sends what waits and says that they are whole. `before` runs as the last thing before the commit.
    pub fn commit(mut self, before: impl FnOnce() -> Result<(), EngineError>) -> Result<u64, FillError> {
        self.send()?;
        before()?;
        let (connection, put) = (Arc::clone(&self.connection), self.put);
        self.tasks.block(async move {
            let done = connection.client.batch_execute("commit").await;
            done.map_err(|error| FillError::Unknown(said(&error)))?;
            if connection.has_warned() {
                return Err(FillError::Unknown("PostgreSQL has answered with a warning".to_owned()));
            }
            // Without it the first plans are those of empty tables.
            if let Err(error) = connection.client.batch_execute("analyze rows; analyze counters").await {
                tracing::warn!(error = said(&error), "the tables are not analyzed; PostgreSQL does it later");
            }
            Ok(put)
        })
    }
}
