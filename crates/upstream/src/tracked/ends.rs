//! Rows of epochs: where they end, and the states that are kept.
//!
//! Invariants: N1 memory has what the rows say, between two calls.
//! Locking:    the table of files.
//! Not here:   when an epoch ends, and what is kept then (epochs).

use std::collections::{BTreeSet, HashMap};

use margay_meta::{Engine, EngineError};
use margay_rows::record::UpstreamKept;
use margay_rows::{Ino, key};

use super::rows::visit_rows;

/// The ends of epochs of which something is left, each the number of its last change.
#[derive(Debug, Default)]
pub(crate) struct Epochs(pub(super) BTreeSet<u64>);

impl Epochs {
    pub(super) fn read(engine: &dyn Engine) -> Result<Epochs, EngineError> {
        let mut ends = BTreeSet::new();
        visit_rows(engine, &key::all_upstream_epochs(), |key, _| {
            ends.insert(key::parse_upstream(key)?.0);
            Ok(())
        })?;
        Ok(Epochs(ends))
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn last(&self) -> Option<u64> {
        self.0.last().copied()
    }

    /// Whether the epoch of this change has ended.
    pub(super) fn has_ended(&self, changed: u64) -> bool {
        self.last().is_some_and(|last| changed <= last)
    }
}

/// Kept states by their files, oldest first.
pub(super) fn read_kept(engine: &dyn Engine) -> Result<HashMap<Ino, Vec<UpstreamKept>>, EngineError> {
    let mut kept: HashMap<Ino, Vec<UpstreamKept>> = HashMap::new();
    visit_rows(engine, &key::all_upstream_kept(), |key, value| {
        kept.entry(key::parse_upstream_kept(key)?).or_default().push(UpstreamKept::decode(value)?);
        Ok(())
    })?;
    Ok(kept)
}

/// The name of the bytes of a kept state.
pub(crate) fn kept_name(ino: Ino, kept: &UpstreamKept) -> String {
    format!("{}-{}", ino.0, kept.changed)
}
