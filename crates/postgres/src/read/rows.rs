//! Reads of single rows, no counters and no ranges: look-ups, and what a request for an object asks.
//!
//! Why:        one argument and one part in place of eight and three: binding them costs the server as much as finding the rows.
//! Invariants: S1 each question has one row in the answer, also if nothing has that key; each of them has the moment.
//! Not here:   everything else (plain).

use bytes::Bytes;
use futures_util::StreamExt as _;
use margay_meta::{Ask, EngineError, ReadAnswer, Row, RowKind, RowVersion};
use tokio_postgres::{Client, Error, Row as Column, Statement};

use crate::connection::{nonsense, unavailable};

/// The limit leaves the planner no way but the index, as in `READ_PLAIN`.
pub(super) const READ_ROWS: &str = "select one.ask, found.version, found.value, \
    (select pg_snapshot_xmax(pg_current_snapshot())::text::bigint) \
    from unnest($1::bytea[]) with ordinality as one(key, ask) \
    left join lateral (select version, value from rows where rows.key = one.key limit 1) as found on true";

/// The keys, if nothing else is asked for.
fn keys(asks: &[Ask]) -> Option<Vec<&[u8]>> {
    let all = asks.iter().map(|ask| match ask {
        Ask::Get { key } if RowKind::of(key) == RowKind::Plain => Some(key.as_slice()),
        Ask::Get { .. } | Ask::Scan { .. } => None,
    });
    all.collect::<Option<Vec<_>>>().filter(|keys| !keys.is_empty())
}

/// The answers, with the number of the next transaction; none if anything but rows is asked for.
pub(super) async fn read(
    (client, statement): (&Client, &Statement),
    asks: &[Ask],
) -> Result<Option<(Vec<ReadAnswer>, u64)>, EngineError> {
    let Some(keys) = keys(asks) else { return Ok(None) };
    let mut told = std::pin::pin!(client.query_raw(statement, [&keys]).await.map_err(|error| unavailable(&error))?);
    let (mut answers, mut next, mut count) = (vec![ReadAnswer::Row(None); asks.len()], 0, 0);
    while let Some(row) = told.next().await {
        let row = row.map_err(|error| unavailable(&error))?;
        let Told { ask, row, moment } = Told::of(&row).map_err(|error| nonsense(&error.to_string()))?;
        let index = usize::try_from(ask - 1).unwrap_or(usize::MAX);
        *answers.get_mut(index).ok_or_else(|| nonsense("an answer without a question"))? = ReadAnswer::Row(row);
        (next, count) = (moment, count + 1);
    }
    if count != asks.len() {
        return Err(nonsense("a question without an answer"));
    }
    Ok(Some((answers, next.cast_unsigned())))
}

struct Told {
    /// Of the question, from 1 on.
    ask: i64,
    row: Option<Row>,
    /// The number of the next transaction.
    moment: i64,
}

impl Told {
    fn of(row: &Column) -> Result<Told, Error> {
        let (version, value): (Option<i64>, Option<&[u8]>) = (row.try_get(1)?, row.try_get(2)?);
        let found = version.zip(value).map(|(version, value)| Row {
            value: Bytes::copy_from_slice(value),
            version: RowVersion::from_bits(version.cast_unsigned()),
        });
        Ok(Told { ask: row.try_get(0)?, row: found, moment: row.try_get(3)? })
    }
}
