//! Reads: all questions of one in one statement, so of one moment.
//!
//! Invariants: R1 the statements keep the same limits and give the same answers (`tests/contract.rs` asks each of them).
//!             R2 each finds its rows by the index, also with a plan that was made when the table was empty.
//!             R3 a connection that has not answered for `ANSWER_TIME_MAX` is not used again, nor one whose caller gave up after
//!                `GIVEN_UP_AFTER`: it would be the one with the fewest calls.
//! Layout:     `rows` answers questions for rows, `plain` all others but ranges with counters, which the function `read_v1` answers.

mod plain;
mod rows;

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use margay_meta::{
    Answers, Ask, Cursor, EngineError, ReadAnswer, ReadLimit, Row, RowBatch, RowKind, RowRef, RowVersion, has_counters,
};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Row as Column, Statement};

use crate::batch::counted;
use crate::connection::{Connection, Server, nonsense, unavailable};
use crate::trust::Trust;

/// Behind the answers of each, the number that the next transaction of that moment would get.
const READ: &str = "select ask, key, version, value from read_v1($1, $2, $3, $4, $5, $6, $7) \
                    union all select 0, null, pg_snapshot_xmax(pg_current_snapshot())::text::bigint, null";

/// One process of PostgreSQL may stand still while the others answer, and so while the server is not taken for lost.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(15);

/// A caller that goes away earlier has its own reasons.
const GIVEN_UP_AFTER: Duration = Duration::from_millis(500);

/// A connection that reads; requests of several callers go through it one behind the other, without waiting for answers.
#[derive(Debug)]
pub(crate) struct Reading {
    connection: Connection,
    rows: Statement,
    plain: Statement,
    anything: Statement,
    /// Others, prepared when they are first asked.
    others: parking_lot::Mutex<Vec<(&'static str, Statement)>>,
    trust: Arc<Trust>,
    /// It has not answered in time.
    is_stuck: AtomicBool,
}

impl Reading {
    pub(crate) async fn open(server: &Server) -> Result<Reading, EngineError> {
        let connection = server.connect().await?;
        let client = &connection.client;
        let (rows, plain) = (client.prepare(rows::READ_ROWS), client.prepare(plain::READ_PLAIN));
        let prepared = tokio::try_join!(rows, plain, client.prepare(READ));
        let (rows, plain, anything) = prepared.map_err(|error| unavailable(&error))?;
        Ok(Reading {
            connection,
            rows,
            plain,
            anything,
            others: parking_lot::Mutex::default(),
            trust: Arc::clone(&server.trust),
            is_stuck: AtomicBool::new(false),
        })
    }

    pub(crate) async fn run(&self, statement: &str) -> Result<(), EngineError> {
        self.connection.client.batch_execute(statement).await.map_err(|error| unavailable(&error))
    }

    pub(crate) async fn query(
        &self,
        statement: &'static str,
        arguments: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Column>, EngineError> {
        let client = &self.connection.client;
        let known = self.others.lock().iter().find(|(text, _)| *text == statement).map(|(_, known)| known.clone());
        let prepared = match known {
            Some(known) => known,
            None => {
                let prepared = client.prepare(statement).await.map_err(|error| unavailable(&error))?;
                self.others.lock().push((statement, prepared.clone()));
                prepared
            }
        };
        let told = async { client.query(&prepared, arguments).await.map_err(|error| unavailable(&error)) };
        let told = self.in_time(told).await?;
        self.trust.check_read(self.connection.losses)?;
        Ok(told)
    }

    /// R3.
    async fn in_time<T>(&self, told: impl Future<Output = Result<T, EngineError>>) -> Result<T, EngineError> {
        let mut waiting = Waiting { is_stuck: &self.is_stuck, since: Instant::now(), is_over: false };
        let answer = timeout(ANSWER_TIME_MAX, told).await;
        waiting.is_over = answer.is_ok();
        answer.unwrap_or_else(|_| {
            let seconds = ANSWER_TIME_MAX.as_secs();
            Err(EngineError::Unavailable(format!("a connection of PostgreSQL has not answered for {seconds} s")))
        })
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_stuck.load(Ordering::Acquire) || self.connection.client.is_closed()
    }

    /// `observed`: what the caller knows already, since all that is visible is durable. With the cursor that nothing is behind that the
    /// answers show.
    pub(crate) async fn read(
        &self,
        asks: &[Ask],
        limit: ReadLimit,
        observed: Cursor,
    ) -> Result<(Answers, Cursor), EngineError> {
        let told = async {
            let client = &self.connection.client;
            if let Some(told) = rows::read((client, &self.rows), asks).await? {
                return Ok(told);
            }
            match plain::read((client, &self.plain), asks, limit).await? {
                Some(told) => Ok(told),
                None => answers(asks, &self.ask_anything(asks, limit).await.map_err(|error| unavailable(&error))?),
            }
        };
        let (answers, next) = self.in_time(told).await?;
        self.trust.check_read(self.connection.losses)?;
        Ok((Answers { answers, observed, one_moment: true }, Cursor(next.saturating_sub(1))))
    }

    async fn ask_anything(&self, asks: &[Ask], limit: ReadLimit) -> Result<Vec<Column>, tokio_postgres::Error> {
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
        self.connection.client.query(&self.anything, &arguments).await
    }
}

/// R3: dropped before the answer, it was waited for too long.
struct Waiting<'r> {
    is_stuck: &'r AtomicBool,
    since: Instant,
    is_over: bool,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if !self.is_over && self.since.elapsed() >= GIVEN_UP_AFTER {
            self.is_stuck.store(true, Ordering::Release);
        }
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

/// A row of `READ` and of `READ_PLAIN`.
struct Told<'r> {
    /// Of the question, from 1 on; 0 with the moment.
    number: i32,
    /// None where there is no row: the moment, and that a range has more.
    key: Option<&'r [u8]>,
    /// Bits of the row's version, or the number of the next transaction.
    version: i64,
    value: Option<&'r [u8]>,
}

impl Told<'_> {
    fn of(row: &Column) -> Result<Told<'_>, EngineError> {
        let columns = || -> Result<_, tokio_postgres::Error> {
            Ok(Told { number: row.try_get(0)?, key: row.try_get(1)?, version: row.try_get(2)?, value: row.try_get(3)? })
        };
        columns().map_err(|error| nonsense(&error.to_string()))
    }
}

fn empty(ask: &Ask) -> ReadAnswer {
    match ask {
        Ask::Get { .. } => ReadAnswer::Row(None),
        Ask::Scan { .. } => ReadAnswer::Rows(RowBatch::default()),
    }
}

/// The value of a counter, from its column; none for another row, and for one that came without its value.
fn counter(key: &[u8], column: &[u8]) -> Result<Option<[u8; 8]>, EngineError> {
    let kind = RowKind::of(key);
    if kind == RowKind::Plain || column.is_empty() {
        return Ok(None);
    }
    let column = column.try_into().map_err(|_| nonsense("a counter without eight bytes"))?;
    Ok(Some(counted(kind, column)))
}

/// The answers of the function, with the number of the next transaction.
fn answers(asks: &[Ask], told: &[Column]) -> Result<(Vec<ReadAnswer>, u64), EngineError> {
    let mut answers: Vec<ReadAnswer> = asks.iter().map(empty).collect();
    let mut next = None;
    for row in told {
        let Told { number, key, version, value: column } = Told::of(row)?;
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
        let column = column.unwrap_or_default();
        let counted = counter(key, column)?;
        let value = counted.as_ref().map_or(column, |bytes| bytes);
        match answer {
            ReadAnswer::Row(row) => *row = Some(Row { value: Bytes::copy_from_slice(value), version }),
            ReadAnswer::Rows(batch) => batch.push(RowRef { key, value, version }),
        }
    }
    Ok((answers, next.ok_or_else(|| nonsense("answers without their moment"))?))
}

/// The connections of a process that read. Each belongs to the threads on which it was opened.
#[derive(Debug)]
pub(crate) struct Readers {
    server: Server,
    places: Vec<Place>,
}

#[derive(Debug, Default)]
struct Place {
    /// Calls that have it.
    calls: AtomicUsize,
    open: Mutex<Option<Arc<Reading>>>,
}

/// A connection for one call.
#[derive(Debug)]
pub(crate) struct Turn<'r> {
    _counted: Counted<'r>,
    reading: Arc<Reading>,
}

impl Readers {
    pub(crate) fn new(server: Server, count: usize) -> Readers {
        Readers { server, places: (0..count.max(1)).map(|_| Place::default()).collect() }
    }

    /// The one with the fewest calls, and of several the first: a process of PostgreSQL that has just answered answers sooner than one
    /// that has slept for a while.
    pub(crate) async fn one(&self) -> Result<Turn<'_>, EngineError> {
        let place = self.places.iter().min_by_key(|place| place.calls.load(Ordering::Relaxed)).expect("at least one");
        let counted = Counted::of(place);
        let mut open = place.open.lock().await;
        let reading = match &*open {
            Some(reading) if !reading.is_closed() => Arc::clone(reading),
            _ => {
                let reading = Arc::new(Reading::open(&self.server).await?);
                *open = Some(Arc::clone(&reading));
                reading
            }
        };
        Ok(Turn { _counted: counted, reading })
    }
}

/// A call, as long as it has a connection.
#[derive(Debug)]
struct Counted<'r>(&'r AtomicUsize);

impl Counted<'_> {
    fn of(place: &Place) -> Counted<'_> {
        place.calls.fetch_add(1, Ordering::Relaxed);
        Counted(&place.calls)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Deref for Turn<'_> {
    type Target = Reading;

    fn deref(&self) -> &Reading {
        &self.reading
    }
}
