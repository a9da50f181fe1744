//! Reads: all questions of one in one statement, so of one moment.
//!
//! Not here:   the limits of a read, which the function keeps (`read_v1`).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use margay_meta::{
    Answers, Ask, Cursor, EngineError, ReadAnswer, ReadLimit, Row, RowBatch, RowKind, RowRef, RowVersion, has_counters,
};
use tokio::sync::Mutex;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Row as Column, Statement};

use crate::batch::counted;
use crate::connection::{Connection, Server, nonsense, unavailable};
use crate::trust::Trust;

/// Behind the answers, the number that the next transaction of that moment would get.
const READ: &str = "select ask, key, version, value from read_v1($1, $2, $3, $4, $5, $6, $7) \
                    union all select 0, null, pg_snapshot_xmax(pg_current_snapshot())::text::bigint, null";

/// A connection that reads; requests of several callers go through it one behind the other, without waiting for answers.
#[derive(Debug)]
pub(crate) struct Reading {
    connection: Connection,
    statement: Statement,
    trust: Arc<Trust>,
}

impl Reading {
    pub(crate) async fn open(server: &Server) -> Result<Reading, EngineError> {
        let connection = server.connect().await?;
        let statement = connection.client.prepare(READ).await.map_err(|error| unavailable(&error))?;
        Ok(Reading { connection, statement, trust: Arc::clone(&server.trust) })
    }

    pub(crate) async fn run(&self, statement: &str) -> Result<(), EngineError> {
        self.connection.client.batch_execute(statement).await.map_err(|error| unavailable(&error))
    }

    pub(crate) async fn query(
        &self,
        statement: &str,
        arguments: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Column>, EngineError> {
        let told = self.connection.client.query(statement, arguments).await.map_err(|error| unavailable(&error))?;
        self.trust.check_read(self.connection.losses)?;
        Ok(told)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.connection.client.is_closed()
    }

    /// `observed`: what the caller knows already, since all that is visible is durable. With the cursor that nothing is behind that the
    /// answers show.
    pub(crate) async fn read(
        &self,
        asks: &[Ask],
        limit: ReadLimit,
        observed: Cursor,
    ) -> Result<(Answers, Cursor), EngineError> {
        let (mut kinds, mut firsts, mut behinds, mut rows_max, mut keys_only) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for ask in asks {
            let (kind, first, behind, max, only): (i32, &[u8], &[u8], _, _) = match ask {
                Ask::Get { key } => (kind_of(key), key, &[], 1, false),
                Ask::Scan { start, end, rows_max, keys_only } => {
                    (3 + i32::from(has_counters(start, end)), start, end, *rows_max, *keys_only)
                }
            };
            kinds.push(kind);
            firsts.push(first);
            behinds.push(behind);
            rows_max.push(limited(max));
            keys_only.push(only);
        }
        let (rows, bytes) = (limited(limit.rows), limited(limit.bytes));
        let arguments: [&(dyn ToSql + Sync); 7] = [&kinds, &firsts, &behinds, &rows_max, &keys_only, &rows, &bytes];
        let told = self.connection.client.query(&self.statement, &arguments).await;
        let told = told.map_err(|error| unavailable(&error))?;
        self.trust.check_read(self.connection.losses)?;
        answers(asks, &told, observed)
    }
}

fn kind_of(key: &[u8]) -> i32 {
    match RowKind::of(key) {
        RowKind::Plain => 0,
        RowKind::Sum => 1,
        RowKind::Highest => 2,
    }
}

/// No answer has as many.
fn limited(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX).min(i64::from(i32::MAX))
}

fn answers(asks: &[Ask], told: &[Column], observed: Cursor) -> Result<(Answers, Cursor), EngineError> {
    let empty = |ask: &Ask| match ask {
        Ask::Get { .. } => ReadAnswer::Row(None),
        Ask::Scan { .. } => ReadAnswer::Rows(RowBatch::default()),
    };
    let mut answers: Vec<ReadAnswer> = asks.iter().map(empty).collect();
    let mut next = None;
    for row in told {
        let column = || -> Result<_, tokio_postgres::Error> {
            Ok((
                row.try_get::<_, i32>(0)?,
                row.try_get::<_, Option<&[u8]>>(1)?,
                row.try_get::<_, i64>(2)?,
                row.try_get(3)?,
            ))
        };
        let (number, key, version, value): (i32, _, i64, Option<&[u8]>) =
            column().map_err(|error| nonsense(&error.to_string()))?;
        if number == 0 {
            next = Some(version.cast_unsigned());
            continue;
        }
        let index = usize::try_from(number - 1).unwrap_or(usize::MAX);
        let answer = answers.get_mut(index).ok_or_else(|| nonsense("an answer without a question"))?;
        let Some(key) = key else {
            let ReadAnswer::Rows(batch) = answer else { return Err(nonsense("more than one row of a key")) };
            batch.more = true;
            continue;
        };
        let version = RowVersion::from_bits(version.cast_unsigned());
        let counter;
        let value = match (RowKind::of(key), value.unwrap_or_default()) {
            (RowKind::Plain, value) => value,
            (_, []) => &[],
            (kind, column) => {
                let column = column.try_into().map_err(|_| nonsense("a counter without eight bytes"))?;
                counter = counted(kind, column);
                &counter
            }
        };
        match answer {
            ReadAnswer::Row(row) => *row = Some(Row { value: Bytes::copy_from_slice(value), version }),
            ReadAnswer::Rows(batch) => batch.push(RowRef { key, value, version }),
        }
    }
    let next = next.ok_or_else(|| nonsense("answers without their moment"))?;
    Ok((Answers { answers, observed, one_moment: true }, Cursor(next.saturating_sub(1))))
}

/// The connections of a process that read, in turns.
#[derive(Debug)]
pub(crate) struct Readers {
    server: Server,
    places: Vec<Mutex<Option<Arc<Reading>>>>,
    next: AtomicUsize,
}

impl Readers {
    pub(crate) fn new(server: Server, count: usize) -> Readers {
        Readers { server, places: (0..count.max(1)).map(|_| Mutex::default()).collect(), next: AtomicUsize::new(0) }
    }

    pub(crate) async fn one(&self) -> Result<Arc<Reading>, EngineError> {
        let place = &self.places[self.next.fetch_add(1, Ordering::Relaxed) % self.places.len()];
        let mut open = place.lock().await;
        match &*open {
            Some(reading) if !reading.is_closed() => Ok(Arc::clone(reading)),
            _ => {
                let reading = Arc::new(Reading::open(&self.server).await?);
                *open = Some(Arc::clone(&reading));
                Ok(reading)
            }
        }
    }
}
