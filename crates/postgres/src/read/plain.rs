//! Reads of rows, counters and ranges without counters: nearly all reads.
//!
//! Why:        the function for everything (`read_v1`) goes through the rows of a page one by one and stores them twice: a page of
//!             1000 rows takes it 2.4 times as long.
//! Invariants: P1 limits are kept here and not by PostgreSQL, which only counts the rows of each range: sums over a window make a page
//!                twice as slow. A row behind the limit is dropped as it comes, and never kept.
//!             P2 rows come in the order of the questions, and those of a range in the order of their keys; anything else is an error.
//! Not here:   ranges with counters (`read_v1`).

use bytes::Bytes;
use futures_util::{Stream, StreamExt as _};
use margay_meta::{Ask, EngineError, ReadAnswer, ReadLimit, Row, RowKind, RowRef, RowVersion, has_counters};
use tokio_postgres::{Client, Error, Row as Column, Statement};

use super::{Told, counter, empty, limited};
use crate::connection::{nonsense, unavailable};

/// First the number that the next transaction of that moment would get. A lateral subquery with a limit leaves the planner no way
/// but the index, also with a plan that was made when the table was empty.
pub(super) const READ_PLAIN: &str = "select 0, null::bytea, pg_snapshot_xmax(pg_current_snapshot())::text::bigint, null::bytea \
    union all select one.ask, found.key, found.version, found.value \
    from unnest($1::int[], $2::bytea[], $3::bytea[], $4::bigint[], $5::bool[]) as one(ask, first, behind, most, only_keys) \
    cross join lateral ( \
        select key, version, case when one.only_keys then null else value end as value \
        from rows where rows.key >= one.first and rows.key < one.behind order by key limit one.most \
    ) as found \
    union all select one.ask, one.key, 0::bigint, int8send(found.value) \
    from unnest($6::int[], $7::bytea[], $8::bool[]) as one(ask, key, is_sum) \
    cross join lateral ( \
        select case when one.is_sum then sum(counters.value)::bigint else max(counters.value) end as value \
        from counters where counters.key = one.key having count(*) > 0 \
    ) as found";

/// The questions as arrays.
#[derive(Debug, Default)]
struct Arrays<'a> {
    asks: Vec<i32>,
    firsts: Vec<&'a [u8]>,
    behinds: Vec<Vec<u8>>,
    most: Vec<i64>,
    keys_only: Vec<bool>,
    counters: Vec<i32>,
    counter_keys: Vec<&'a [u8]>,
    is_sum: Vec<bool>,
}

impl<'a> Arrays<'a> {
    /// None if a question needs more than this statement has.
    fn of(asks: &'a [Ask], limit: ReadLimit) -> Option<Arrays<'a>> {
        let mut arrays = Arrays::default();
        for (number, ask) in (1..).zip(asks) {
            match ask {
                Ask::Scan { start, end, .. } if has_counters(start, end) => return None,
                Ask::Scan { start, end, rows_max, keys_only } => {
                    // One more tells whether there are more.
                    let most = (*rows_max).min(limit.rows.max(1)).saturating_add(1);
                    arrays.push(number, start, end.clone(), limited(most), *keys_only);
                }
                Ask::Get { key } => match RowKind::of(key) {
                    RowKind::Plain => arrays.push(number, key, [key.as_slice(), &[0]].concat(), 1, false),
                    kind => {
                        arrays.counters.push(number);
                        arrays.counter_keys.push(key);
                        arrays.is_sum.push(kind == RowKind::Sum);
                    }
                },
            }
        }
        Some(arrays)
    }

    fn push(&mut self, number: i32, first: &'a [u8], behind: Vec<u8>, most: i64, keys_only: bool) {
        self.asks.push(number);
        self.firsts.push(first);
        self.behinds.push(behind);
        self.most.push(most);
        self.keys_only.push(keys_only);
    }
}

/// The answers, with the number of the next transaction; none if a question needs more than this statement has.
pub(super) async fn read(
    (client, statement): (&Client, &Statement),
    asks: &[Ask],
    limit: ReadLimit,
) -> Result<Option<(Vec<ReadAnswer>, u64)>, EngineError> {
    let Some(arrays) = Arrays::of(asks, limit) else { return Ok(None) };
    let Arrays { asks: numbers, firsts, behinds, most, keys_only, counters, counter_keys, is_sum } = &arrays;
    let arguments: [&(dyn tokio_postgres::types::ToSql + Sync); 8] =
        [numbers, firsts, behinds, most, keys_only, counters, counter_keys, is_sum];
    let told = client.query_raw(statement, arguments).await.map_err(|error| unavailable(&error))?;
    let mut taking = Taking {
        asks,
        answers: asks.iter().map(empty).collect(),
        at: 0,
        has_any: false,
        rows_left: limit.rows,
        bytes_left: limit.bytes,
    };
    let next = taking.take(std::pin::pin!(told)).await?;
    Ok(Some((taking.answers, next.ok_or_else(|| nonsense("answers without their moment"))?)))
}

/// Answers while their rows come.
#[derive(Debug)]
struct Taking<'a> {
    asks: &'a [Ask],
    answers: Vec<ReadAnswer>,
    /// The number of the last question that rows came for.
    at: usize,
    /// A row of a range was taken; the first one is, however large.
    has_any: bool,
    rows_left: usize,
    bytes_left: usize,
}

impl Taking<'_> {
    /// The number of the next transaction, if it came.
    async fn take(
        &mut self,
        mut told: std::pin::Pin<&mut impl Stream<Item = Result<Column, Error>>>,
    ) -> Result<Option<u64>, EngineError> {
        let mut next = None;
        while let Some(row) = told.next().await {
            let row = row.map_err(|error| unavailable(&error))?;
            let Told { number, key, version, value } = Told::of(&row)?;
            match key {
                None => next = Some(version.cast_unsigned()),
                Some(key) => self.row(
                    number,
                    RowRef {
                        key,
                        value: value.unwrap_or_default(),
                        version: RowVersion::from_bits(version.cast_unsigned()),
                    },
                )?,
            }
        }
        Ok(next)
    }

    fn row(&mut self, number: i32, row: RowRef<'_>) -> Result<(), EngineError> {
        let index = usize::try_from(number - 1).unwrap_or(usize::MAX);
        let answer = self.answers.get_mut(index).ok_or_else(|| nonsense("an answer without a question"))?;
        match (answer, &self.asks[index]) {
            (ReadAnswer::Row(place), _) => {
                let bytes = counter(row.key, row.value)?;
                let value = Bytes::copy_from_slice(bytes.as_ref().map_or(row.value, |bytes| bytes));
                *place = Some(Row { value, version: row.version });
            }
            (ReadAnswer::Rows(rows), Ask::Scan { rows_max, .. }) => {
                if index < self.at || rows.last().is_some_and(|last| last.key >= row.key) {
                    return Err(nonsense("rows of a range that are not in the order of their keys"));
                }
                self.at = index;
                let size = row.key.len() + row.value.len();
                let is_full = self.has_any && (self.rows_left == 0 || self.bytes_left < size);
                rows.more |= rows.len() >= *rows_max || is_full;
                if !rows.more {
                    self.has_any = true;
                    self.rows_left = self.rows_left.saturating_sub(1);
                    self.bytes_left = self.bytes_left.saturating_sub(size);
                    rows.push(row);
                }
            }
            (ReadAnswer::Rows(_), Ask::Get { .. }) => return Err(nonsense("a range that nobody asked for")),
        }
        Ok(())
    }
}
