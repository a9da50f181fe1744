//! A lane: one commit at a time, each with a number, so that what became of one can be asked later.
//!
//! Invariants: L1 a call is sent only when the outcome of the one before it is known.
//!             L2 a call that changed nothing for a conflict has used no number.
//! Source:     the lane's row in `lanes` (schema.sql).

use std::collections::BTreeMap;

use margay_meta::{CommitError, CommitOutcome, CommitToken, Committed, Cursor, EngineError, RowVersion};
use tokio_postgres::error::{DbError, SqlState};
use tokio_postgres::{Error, Statement};

use crate::batch::Arguments;
use crate::connection::{Connection, Server, said, unavailable};

/// Additions to counters of one lane meet those of others in as many places.
const SHARDS: i64 = 16;
/// Outcomes that are kept for who asks.
const OUTCOMES_MAX: usize = 1024;
/// The error of the functions when the lane has made the call already, or was taken away.
const TAKEN: &str = "MG001";
const COMMIT: &str = "select version, failed from commit_v1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, \
                      $16, $17, $18, $19)";

#[derive(Debug)]
pub(crate) struct Lane {
    server: Server,
    id: i64,
    /// The last call that used its number.
    call: i64,
    open: Option<(Connection, Statement)>,
    /// The call whose answer was lost.
    unknown: Option<i64>,
    /// Outcomes that became known again, for who asks.
    outcomes: BTreeMap<i64, CommitOutcome>,
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

    pub(crate) async fn commit(&mut self, arguments: &Arguments) -> Result<Committed, CommitError> {
        self.settle().await?;
        let call = self.call + 1;
        let (connection, statement) = self.opened().await?;
        let (id, shard) = (connection.1, connection.2);
        let client = &connection.0.client;
        let one = arguments;
        let done = client
            .query_one(
                &statement,
                &[
                    &id,
                    &call,
                    &shard,
                    &one.lock_ids,
                    &one.lock_alone,
                    &one.pre_kinds,
                    &one.pre_keys,
                    &one.pre_ends,
                    &one.pre_versions,
                    &one.put_keys,
                    &one.put_values,
                    &one.deleted_keys,
                    &one.set_keys,
                    &one.set_values,
                    &one.add_keys,
                    &one.add_values,
                    &one.max_keys,
                    &one.max_values,
                    &one.changed,
                ],
            )
            .await;
        let has_warned = connection.0.has_warned();
        let answer = done.and_then(|row| Ok((row.try_get::<_, Option<i64>>(0)?, row.try_get::<_, Option<i64>>(1)?)));
        match answer {
            Ok((_, Some(failed))) if !has_warned => {
                let precondition =
                    usize::try_from(failed - 1).map_err(|_| nonsense("a precondition before the first"))?;
                Err(CommitError::Conflict { precondition })
            }
            Ok((Some(version), None)) if !has_warned => {
                self.call = call;
                Ok(committed(version))
            }
            Err(error) if error.as_db_error().is_some_and(is_undone) && !has_warned => Err(refused(&error)),
            other => {
                if let Err(error) = other {
                    tracing::warn!(error = said(&error), lane = id, call, "the answer to a commit was lost");
                }
                (self.open, self.unknown) = (None, Some(call));
                Err(CommitError::Unknown(CommitToken { lane: self.id(), call: call.cast_unsigned() }))
            }
        }
    }

    /// What became of a call whose answer was lost.
    pub(crate) async fn outcome(&mut self, call: u64) -> Result<CommitOutcome, EngineError> {
        self.settle().await?;
        let outcome = self.outcomes.get(&call.cast_signed()).copied();
        outcome.ok_or_else(|| nonsense(&format!("the answer to call {call} of lane {} was not lost", self.id)))
    }

    /// Asks what became of the call before, if that is not known.
    async fn settle(&mut self) -> Result<(), EngineError> {
        let Some(call) = self.unknown else { return Ok(()) };
        // Not through a connection that may have warned: it may be of a server that is none any more.
        let connection = self.server.connect().await?;
        let row = connection.client.query_one("select resolve_v1($1, $2)", &[&self.id, &call]).await;
        let version = row.and_then(|row| row.try_get::<_, Option<i64>>(0)).map_err(|error| unavailable(&error))?;
        if connection.has_warned() {
            return Err(EngineError::Unavailable("what became of a commit is not on all copies yet".to_owned()));
        }
        let outcome = version.map_or(CommitOutcome::Void, |version| CommitOutcome::Committed(committed(version)));
        self.outcomes.insert(call, outcome);
        if self.outcomes.len() > OUTCOMES_MAX {
            self.outcomes.pop_first();
        }
        (self.call, self.unknown) = (call, None);
        Ok(())
    }

    async fn opened(&mut self) -> Result<((&Connection, i64, i32), Statement), EngineError> {
        if self.open.as_ref().is_none_or(|(connection, _)| connection.client.is_closed()) {
            let connection = self.server.connect().await?;
            let statement = connection.client.prepare(COMMIT).await.map_err(|error| unavailable(&error))?;
            self.open = Some((connection, statement));
        }
        let Some((connection, statement)) = &self.open else { unreachable!("it was opened") };
        let shard = (self.id % SHARDS) as i32;
        Ok(((connection, self.id, shard), statement.clone()))
    }
}

/// Whether the server says that the statement has failed, and goes on. One that ends may have committed before.
fn is_undone(told: &DbError) -> bool {
    told.severity() == "ERROR" && !told.code().code().starts_with("57") && !told.code().code().starts_with("08")
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

pub(crate) fn nonsense(why: &str) -> EngineError {
    EngineError::Corrupt(format!("PostgreSQL answers what it should not: {why}"))
}
