//! Reading rows of the far volume.
//!
//! Invariants: R1 a damaged row is an error, never an absence.
//! Not here:   what the rows mean (margay-rows), rows of one batch (changes).

use std::ops::ControlFlow;

use margay_meta::{Engine, EngineError};
use margay_rows::key::Range;
use margay_rows::record::Damaged;

/// Visits the keys and values of a range in their order; ends at the first one that is damaged.
pub(crate) fn visit_rows(
    engine: &dyn Engine,
    (start, end): &Range,
    mut visit: impl FnMut(&[u8], &[u8]) -> Result<(), Damaged>,
) -> Result<(), EngineError> {
    let mut failed = None;
    engine.scan(start, end, &mut |row| match visit(row.key, row.value) {
        Ok(()) => ControlFlow::Continue(()),
        Err(error) => {
            failed = Some(damaged(error));
            ControlFlow::Break(())
        }
    })?;
    failed.map_or(Ok(()), Err)
}

pub(super) fn damaged(error: Damaged) -> EngineError {
    EngineError::Corrupt(error.to_string())
}
