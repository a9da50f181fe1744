//! Segments of detached stores that nothing refers to any more are given up.
//!
//! Why:        their store would have reclaimed them; without it they would stay for good.
//! Invariants: R1 a segment is given up when nothing has referred to it for `DEAD_FOR`, and no process reads what is older than the moment
//!                at which that was seen first. Its files go another `UNNAMED_FOR` later, as copies that no row names (upkeep).
//!             R2 the lowest of the servers that have it and run gives it up, the lowest of all if it is in a pool alone, as it makes its copies (repair).
//! Locking:    used by the thread of upkeep.
//! Not here:   segments of which a part is dead: nobody moves what is left.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::atomic::Ordering;
use std::time::Duration;

use margay_meta::Cursor;
use margay_segment::SegmentId;
use margay_volume::{
    Error, KnownSegment, forget_segment, is_named, is_referenced, oldest_read, visit_segments_made_by,
};
use tokio::time::Instant;

use super::Inner;
use super::adopt::servers_left;

const DEAD_FOR: Duration = Duration::from_secs(3600);

/// Segments without references, and since when.
#[derive(Default)]
pub(super) struct Orphaned(HashMap<SegmentId, (Instant, Cursor)>);

impl Orphaned {
    pub(super) fn look(&mut self, inner: &Inner, now: Instant) -> Result<(), Error> {
        let (engine, numbers) = (&*inner.peers.engine, inner.targets.numbers());
        let (oldest, newest) = (oldest_read(engine)?, engine.last_cursor());
        let before = std::mem::take(&mut self.0);
        for gone in numbers.detached.iter().copied() {
            visit_segments_made_by(engine, gone, &mut |known: KnownSegment| {
                let (own, servers) = (inner.own_number(), servers_left(&known, &numbers));
                let first = servers.iter().find(|store| **store == own || inner.targets.is_open(**store));
                // It may be in a pool alone.
                let is_lowest = || servers.is_empty() && inner.targets.is_lowest_of_live(own);
                let is_mine = first == Some(&own) || is_lowest();
                if is_mine && !is_referenced(engine, known.id)? && !is_named(engine, known.id)? {
                    let since = before.get(&known.id).copied().unwrap_or((now, newest));
                    if !is_due(since, now, oldest) {
                        self.0.insert(known.id, since);
                    } else if forget_segment(engine, &known)? {
                        tracing::info!(segment = ?known.id, "a segment of a detached store is given up: nothing refers to it");
                        inner.counters.given_up.fetch_add(1, Ordering::Relaxed);
                    }
                }
                Ok(if inner.is_over() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
            })?;
        }
        Ok(())
    }
}

/// R1.
fn is_due((since, seen): (Instant, Cursor), now: Instant, oldest: Cursor) -> bool {
    since + DEAD_FOR <= now && seen < oldest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_waits_for_an_hour_and_for_all_who_read_older_rows() {
        let begun = Instant::now();
        let since = (begun, Cursor(50));
        assert!(is_due(since, begun + DEAD_FOR, Cursor(51)));
        assert!(!is_due(since, begun + DEAD_FOR, Cursor(50)));
        assert!(!is_due(since, begun + DEAD_FOR - Duration::from_secs(1), Cursor(51)));
    }
}
