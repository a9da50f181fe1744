//! `get` and `scan` of an engine that answers reads: one row, and a scan page by page, each of one moment.
//!
//! Not here:   how reads are answered (read).

use std::ops::ControlFlow;

use margay_meta::{Answers, Ask, Engine, EngineError, Observed, ReadAnswer, ReadLimit, Row, RowRef};

/// Rows that are fetched at once.
const SCAN_ROWS: usize = 1000;

/// The row with this key.
pub(crate) fn get_row(engine: &dyn Engine, key: &[u8]) -> Result<Observed<Option<Row>>, EngineError> {
    let Answers { answers, observed, .. } = engine.read(&[Ask::Get { key: key.to_vec() }], ReadLimit::default())?;
    Ok(Observed { value: answers.into_iter().next().and_then(ReadAnswer::row), observed })
}

/// A scan by reads of so many rows, each behind the last row of the one before.
pub(crate) fn scan_pages(
    engine: &dyn Engine,
    start: &[u8],
    end: &[u8],
    visit: &mut dyn FnMut(RowRef<'_>) -> ControlFlow<()>,
) -> Result<Observed<()>, EngineError> {
    let mut start = start.to_vec();
    loop {
        let ask = Ask::Scan { start: start.clone(), end: end.to_vec(), rows_max: SCAN_ROWS, keys_only: false };
        let Answers { answers, observed, .. } = engine.read(&[ask], ReadLimit::default())?;
        let rows = answers.into_iter().next().map(ReadAnswer::rows).unwrap_or_default();
        if rows.iter().any(|row| visit(row).is_break()) || !rows.more {
            return Ok(Observed { value: (), observed });
        }
        let Some(last) = rows.last() else { return Ok(Observed { value: (), observed }) };
        start = [last.key, &[0]].concat();
    }
}
