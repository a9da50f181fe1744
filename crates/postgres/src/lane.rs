//! A lane: one call at a time, each with a number, so that what became of one can be asked later.
//!
//! Invariants: L1 a call is sent only when the outcome of the one before it is known. From before it is sent until its answer is there it
//!                is not, also when its future is dropped or panics.
//!             L2 a call that changed nothing for conflicts has used no number.
//!             L3 the row says which batches of its call are not part of it: they met a conflict, and are void.
//! Source:     the lane's row in `lanes` (schema.sql).

use std::collections::BTreeMap;
use std::sync::Arc;

use margay_meta::{CommitError, CommitOutcome, CommitToken, Committed, Cursor, EngineError, RowVersion};
use tokio_postgres::error::{DbError, Severity, SqlState};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Error, Row, Statement};

use crate::batch::Prepared;
use crate::connection::{Connection, Server, nonsense, said, unavailable};
use crate::group::{Arguments, GROUP_MAX};
use crate::single::Single;

/// Additions to counters of one lane meet those of others in as many places.
const SHARDS: i64 = 16;
/// Outcomes that are kept for who asks.
const OUTCOMES_MAX: usize = 1024;
/// The error of the functions when the lane has made the call already, or was taken away.
const TAKEN: &str = "MG001";
const COMMIT: &str = "select version, failed_batches, failed_numbers from commit_v3($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, \
                      $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25, $26, $27)";
const COMMIT_ONE: &str = "select version, failed from commit_one_v1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, \
                          $15, $16, $17)";
/// Of a token, which say the batch of the call.
const INDEX_BITS: u32 = GROUP_MAX.ilog2();

/// What a caller is told.
pub(crate) type Done = Result<Committed, CommitError>;

/// The version of a call, unless it is void, and its batches that are not part of it, counted from 1.
type Outcome = (Option<i64>, Vec<i32>);

#[derive(Debug)]
pub(crate) struct Lane {
    server: Server,
    id: i64,
    /// The last call that used its number.
    call: i64,
    open: Option<Open>,
    /// The call whose answer was lost.
    unknown: Option<i64>,
    /// Outcomes that became known again, for who asks.
    outcomes: BTreeMap<i64, Outcome>,
}

#[derive(Debug)]
struct Open {
    connection: Connection,
    commit: Statement,
    commit_one: Statement,
}

/// Why a call has no outcome for each of its batches.
enum Failure {
    /// The server has refused it whole.
    Undone(CommitError),
    /// The token of the first batch.
    Unknown(CommitToken),
    /// Nothing was sent, or the answer makes no sense.
    Failed { is_unavailable: bool, why: String },
}

impl From<EngineError> for Failure {
    fn from(error: EngineError) -> Failure {
        match error {
            EngineError::Unavailable(why) => Failure::Failed { is_unavailable: true, why },
            other => Failure::Failed { is_unavailable: false, why: other.to_string() },
        }
    }
}

/// The call, and which of its batches.
pub(crate) fn token_parts(token: CommitToken) -> (i64, usize) {
    ((token.call >> INDEX_BITS).cast_signed(), (token.call % (1 << INDEX_BITS)) as usize)
}

/// The answer to a call.
struct Told {
    version: Option<i64>,
    failed_batches: Vec<i32>,
    failed_numbers: Vec<i32>,
}

impl Told {
    fn of_one(row: &Row) -> Result<Told, Error> {
        let failed: Option<i32> = row.try_get(1)?;
        let failed_batches = if failed.is_some() { vec![1] } else { Vec::new() };
        Ok(Told { version: row.try_get(0)?, failed_batches, failed_numbers: failed.into_iter().collect() })
    }

    fn of(row: &Row) -> Result<Told, Error> {
        let numbers = |at| row.try_get::<_, Option<Vec<i32>>>(at).map(Option::unwrap_or_default);
        Ok(Told { version: row.try_get(0)?, failed_batches: numbers(1)?, failed_numbers: numbers(2)? })
    }

    fn of_batches(&self, count: usize) -> Result<Vec<Done>, EngineError> {
        let mut all: Vec<Option<Done>> = (0..count).map(|_| None).collect();
        for (batch, number) in self.failed_batches.iter().zip(&self.failed_numbers) {
            let from_one = |number: &i32| usize::try_from(*number).ok()?.checked_sub(1);
            let (Some(batch), Some(precondition)) = (from_one(batch), from_one(number)) else {
                return Err(nonsense("a number before 1"));
            };
            let place = all.get_mut(batch).ok_or_else(|| nonsense("a batch that was not sent"))?;
            *place = Some(Err(CommitError::Conflict { precondition }));
        }
        let done = self.version.map(committed);
        let all = all.into_iter().map(|one| one.or_else(|| done.map(Ok)));
        all.collect::<Option<Vec<Done>>>().ok_or_else(|| nonsense("a batch without an outcome"))
    }
}

pub(crate) fn committed(version: i64) -> Committed {
    let bits = version.cast_unsigned();
    Committed { cursor: Cursor(bits), version: RowVersion::from_bits(bits), payload: None }
}

impl Lane {
    /// A new one, with its row.
    pub(crate) async fn begin(server: Server) -> Result<Lane, EngineError> {
        let connection = server.connect().await?;
        let row = connection.client.query_one("insert into lanes default values returning lane", &[]).await;
        let id = row.and_then(|row| row.try_get(0)).map_err(|error| unavailable(&error))?;
        Ok(Lane { server, id, call: 0, open: None, unknown: None, outcomes: BTreeMap::new() })
    }

    pub(crate) fn id(&self) -> u64 {
        self.id.cast_unsigned()
    }

    /// A group, in one call. An error of one batch, such as a counter that would wrap or a lock that is held for long, undoes all of
    /// them, so each is then done alone.
    pub(crate) async fn commit(&mut self, batches: &[Prepared]) -> Vec<Done> {
        let numbers = 0..batches.len() as u64;
        match self.call(batches).await {
            Ok(done) => done,
            Err(Failure::Undone(error)) if batches.len() == 1 => vec![Err(error)],
            Err(Failure::Undone(_)) => {
                let mut all = Vec::with_capacity(batches.len());
                for batch in batches {
                    all.extend(Box::pin(self.commit(std::slice::from_ref(batch))).await);
                }
                all
            }
            Err(Failure::Unknown(token)) => {
                let tokens = numbers.map(|at| CommitToken { call: token.call | at, ..token });
                tokens.map(|token| Err(CommitError::Unknown(token))).collect()
            }
            Err(Failure::Failed { is_unavailable: true, why }) => {
                numbers.map(|_| Err(EngineError::Unavailable(why.clone()).into())).collect()
            }
            Err(Failure::Failed { why, .. }) => {
                numbers.map(|_| Err(EngineError::Poisoned(why.clone()).into())).collect()
            }
        }
    }

    async fn call(&mut self, batches: &[Prepared]) -> Result<Vec<Done>, Failure> {
        self.settle().await?;
        let call = self.call + 1;
        let timeline = Arc::clone(&self.server.timeline);
        self.open().await?;
        // The connection may be the first one that has found another timeline.
        timeline.check_commit()?;
        let id = self.id;
        let Some(open) = &self.open else { unreachable!("it was opened") };
        // L1.
        self.unknown = Some(call);
        let done = open.call(id, call, batches).await;
        let has_warned = open.connection.has_warned();
        match done {
            Ok(told) if !has_warned => {
                self.unknown = None;
                if told.version.is_some() {
                    self.call = call;
                }
                told.of_batches(batches.len()).map_err(Failure::from)
            }
            Err(error) if error.as_db_error().is_some_and(is_undone) && !has_warned => {
                self.unknown = None;
                Err(Failure::Undone(refused(&error)))
            }
            other => {
                if let Err(error) = other {
                    tracing::warn!(error = said(&error), lane = id, call, "the answer to a commit was lost");
                }
                self.open = None;
                Err(Failure::Unknown(CommitToken { lane: self.id(), call: call.cast_unsigned() << INDEX_BITS }))
            }
        }
    }

    /// What became of a batch of a call whose answer was lost.
    pub(crate) async fn outcome(&mut self, (call, at): (i64, usize)) -> Result<CommitOutcome, EngineError> {
        self.settle().await?;
        let Some((version, failed)) = self.outcomes.get(&call) else {
            return Err(nonsense(&format!("the answer to call {call} of lane {} was not lost", self.id)));
        };
        let is_done = !failed.iter().any(|number| usize::try_from(*number).is_ok_and(|number| number == at + 1));
        let version = version.filter(|_| is_done);
        Ok(version.map_or(CommitOutcome::Void, |version| CommitOutcome::Committed(committed(version))))
    }

    /// Asks what became of the call before, if that is not known.
    async fn settle(&mut self) -> Result<(), EngineError> {
        let Some(call) = self.unknown else { return Ok(()) };
        // Not through a connection that may have warned: it may be of a server that is none any more.
        // Who asks may be a thread on which others wait (margay_meta::patient), and the lane is held meanwhile.
        let connection = self.server.connect_now().await?;
        let row =
            connection.client.query_one("select version, failed from resolve_v2($1, $2)", &[&self.id, &call]).await;
        let outcome =
            row.and_then(|row| Ok((row.try_get(0)?, row.try_get(1)?))).map_err(|error| unavailable(&error))?;
        if connection.has_warned() {
            return Err(EngineError::Unavailable("what became of a commit is not on all copies yet".to_owned()));
        }
        self.outcomes.insert(call, outcome);
        if self.outcomes.len() > OUTCOMES_MAX {
            self.outcomes.pop_first();
        }
        (self.call, self.unknown) = (call, None);
        Ok(())
    }

    async fn open(&mut self) -> Result<(), EngineError> {
        let trust = &self.server.trust;
        let is_over = |connection: &Connection| connection.client.is_closed() || trust.is_over(connection.losses);
        if self.open.as_ref().is_none_or(|open| is_over(&open.connection)) {
            let connection = self.server.connect().await?;
            let client = &connection.client;
            let prepared = tokio::try_join!(client.prepare(COMMIT), client.prepare(COMMIT_ONE));
            let (commit, commit_one) = prepared.map_err(|error| unavailable(&error))?;
            self.open = Some(Open { connection, commit, commit_one });
        }
        Ok(())
    }
}

impl Open {
    /// One call of the lane.
    async fn call(&self, lane: i64, call: i64, batches: &[Prepared]) -> Result<Told, Error> {
        let (client, shard) = (&self.connection.client, (lane % SHARDS) as i32);
        let first: [&(dyn ToSql + Sync); 3] = [&lane, &call, &shard];
        if let [batch] = batches {
            let one = Single::of(batch);
            let all: Vec<_> = first.into_iter().chain(one.arguments()).collect();
            return client.query_one(&self.commit_one, &all).await.and_then(|row| Told::of_one(&row));
        }
        let group = Arguments::of(batches);
        let all: Vec<_> = first.into_iter().chain(group.arguments()).collect();
        client.query_one(&self.commit, &all).await.and_then(|row| Told::of(&row))
    }
}

/// Whether the server says that the statement has failed, and goes on. One that ends may have committed before.
fn is_undone(told: &DbError) -> bool {
    told.parsed_severity() == Some(Severity::Error)
        && !told.code().code().starts_with("57")
        && !told.code().code().starts_with("08")
}

fn refused(error: &Error) -> CommitError {
    let why = || said(error);
    match error.code() {
        Some(code) if *code == SqlState::NUMERIC_VALUE_OUT_OF_RANGE => CommitError::Invalid("a counter would wrap"),
        Some(code) if *code == SqlState::DISK_FULL => CommitError::Full,
        Some(code) if code.code() == TAKEN => EngineError::Poisoned(why()).into(),
        Some(code)
            if [
                SqlState::T_R_DEADLOCK_DETECTED,
                SqlState::T_R_SERIALIZATION_FAILURE,
                SqlState::LOCK_NOT_AVAILABLE,
                SqlState::READ_ONLY_SQL_TRANSACTION,
                SqlState::OUT_OF_MEMORY,
            ]
            .contains(code) =>
        {
            EngineError::Unavailable(why()).into()
        }
        _ => EngineError::Io(std::io::Error::other(why())).into(),
    }
}
