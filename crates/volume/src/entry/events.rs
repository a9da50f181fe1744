//! Events: changes that a bucket's notifications request, queued until they are delivered.
//!
//! Why:        in a batch of its own an event could be lost, or report a change that never happened: it joins the change's.
//! Layout:     rows `q` (docs/format/keys.md): target, then an order and a unique number; row `Q`: the first order.
//! Invariants: Q1 the applied rules are those of the bucket's row that the batch asserts.
//!             Q2 an order is taken after the change read what it replaces: a key's later change has the larger one.
//!             Q3 only durable events are returned, and an event stays until it is removed: at-least-once delivery.
//!             Q4 at most `Options::events_max` are queued; a change that would queue one more is refused. Where processes
//!                share the volume, that is as of what the follower has read: each may exceed it by what others queue
//!                within `FOLLOW_EVERY_MAX`.
//!             Q5 no event overwrites another: its row was absent, because its number is unique in the volume.
//! Not here:   the meaning of rules (the S3 door), sending (margay-jobs).

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use margay_rows::event::Event;
use margay_rows::key::{self, EventNumber};
use margay_rows::kinds::Setting;
use margay_rows::record::event;

use crate::api::Error;
use crate::cache::{BucketState, Path};
use crate::draft::{Draft, Seen};
use crate::driver::RequestRows;
use crate::error::Refused;
use crate::event::{EventRouter, EventRules, QueuedEvent, Told};
use crate::open::Volume;
use crate::sessions::Lease;

/// Events that one commit removes.
const FORGET_MAX: usize = 1024;

/// A bucket's rules as a cached fact.
#[derive(Debug)]
struct KnownRules(Arc<dyn EventRules>);

impl Volume {
    /// Drafts an event for every target that the bucket's rules select. The draft asserts the path.
    pub(crate) fn draft_event(&self, draft: &mut Draft, path: &Path, told: &Told<'_>) -> Result<(), Error> {
        let Some(router) = self.options.events.as_ref().filter(|_| path.bucket.notifies) else { return Ok(()) };
        let rules = self.event_rules(&path.bucket, &**router)?;
        let Told { kind, key, size, etag, version } = *told;
        let version = version.map(|version| version.to_string()).unwrap_or_default();
        let bucket = key::parse_bucket(&path.bucket.row_key)?.to_owned();
        let event = Event { kind, at: self.now(), bucket, key: key.to_owned(), size, etag, version };
        for route in rules.routes(event.kind, &event.key) {
            if self.events.waiting() >= self.options.events_max {
                tracing::warn!(bucket = event.bucket, "a change is refused: too many events wait for their targets");
                return Err(Error::Busy);
            }
            let order = self.events.order(self.engine.seen_cursor(), draft.events());
            let unique = self.new_ino()?.0;
            assert!(unique > 0, "an event has a number of its own (Q5)");
            let row = key::event(&route.target, key::event_number(order, unique));
            draft.assert_absent(row.clone());
            draft.put(row, event::encode(&event, &route.rule));
            draft.count_event();
        }
        Ok(())
    }

    fn event_rules(&self, bucket: &BucketState, router: &dyn EventRouter) -> Result<Arc<dyn EventRules>, Error> {
        if let Some(known) = self.bucket_facts.fact::<KnownRules>(bucket.root, bucket.version) {
            return Ok(Arc::clone(&known.0));
        }
        // Read after the row: if the setting has changed since, the batch conflicts, and this version of the row is
        // never looked up again.
        let document = self.setting_document(bucket.root, Setting::Notification, &mut Seen::default())?;
        let rules = router.read(&document);
        let known = Arc::new(KnownRules(Arc::clone(&rules)));
        self.bucket_facts.keep_fact(bucket.root, bucket.version, known, document.len());
        Ok(rules)
    }

    /// The oldest queued events of a target, at most `max`; all of them are durable.
    pub async fn queued_events(&self, target: &str, max: usize) -> Result<Vec<QueuedEvent>, Error> {
        let rows = RequestRows::default();
        self.view(&rows).read(|volume, seen| volume.queued_events_now(target, max, seen)).await
    }

    fn queued_events_now(&self, target: &str, max: usize, seen: &mut Seen) -> Result<Vec<QueuedEvent>, Error> {
        let mut found = Vec::new();
        if max > 0 {
            self.scan(&key::events(target), seen, |row| {
                let (event, rule) = event::decode(row.value)?;
                found.push(QueuedEvent { number: key::parse_event(row.key)?.1, event, rule });
                Ok(if found.len() < max { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
            })?;
        }
        Ok(found)
    }

    /// Removes delivered events. After a crash before the commit is durable they are returned again.
    pub async fn forget_events(&self, target: &str, numbers: &[EventNumber], lease: &Lease) -> Result<(), Error> {
        for some in numbers.chunks(FORGET_MAX) {
            let forget = |_: &mut Seen| {
                let mut draft = Draft::default();
                lease.assert_in(&mut draft);
                some.iter().for_each(|number| draft.delete(key::event(target, *number)));
                self.finish(draft, ())
            };
            let ((), cursor) = self.decide(Seen::default(), forget).await?;
            self.events.changed(-i64::try_from(some.len()).unwrap_or(0), Some(cursor));
        }
        Ok(())
    }

    /// Counts the queued events, and makes new orders begin above theirs; called when the volume is opened.
    pub(crate) fn count_events(&self) -> Result<(), Error> {
        let (base, waiting, at) = self.retry(|seen| {
            let row = self.get(&key::event_base(), seen)?;
            let (mut count, mut last) = (0, None);
            self.scan(&key::all_events(), seen, |row| {
                count += 1;
                last = last.max(Some(key::event_order(key::parse_event(row.key)?.1)));
                Ok(ControlFlow::Continue(()))
            })?;
            let base = row.as_ref().map_or(Ok(0), |row| decode_base(&row.value))?;
            // Events of counted commits are below that, unless commits were counted from the start again meanwhile.
            let end = base.saturating_add(self.events.order(self.engine.seen_cursor(), 0));
            match last.filter(|last| *last >= end) {
                // Another process may have raised the base, and sent what it queued, between these reads.
                None if !self.still(seen)? => Err(Refused::Conflict),
                None => Ok((base, count, seen.cursor)),
                Some(last) => {
                    let base = last.saturating_add(1);
                    let mut draft = Draft::default();
                    draft.assert_unchanged(key::event_base(), row.map(|row| row.version));
                    draft.put(key::event_base(), base.to_be_bytes().to_vec());
                    self.commit(draft)?;
                    Ok((base, count, seen.cursor))
                }
            }
        })?;
        self.events.counted(waiting, at, self.engine.is_shared());
        self.events.base.store(base, Ordering::Release);
        Ok(())
    }

    /// Number of queued events of all targets, of all processes as far as the follower has read.
    pub fn events_waiting(&self) -> u64 {
        self.events.waiting()
    }

    /// Resolves when an event was queued after this call.
    pub fn event_queued(&self) -> impl Future<Output = ()> + Send + use<> {
        self.events.queued.listen()
    }
}

fn decode_base(value: &[u8]) -> Result<u64, Error> {
    let bytes = value.try_into().map_err(|_| Error::Corrupt("where events begin is not eight bytes".to_owned()))?;
    Ok(u64::from_be_bytes(bytes))
}
