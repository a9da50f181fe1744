//! Objects, versions and uploads that live for a second: copies of what a test works with, and bytes of their own.
//!
//! Why:        a copy shares the bytes of its source, so its end, by whichever way, is one less owner of bytes that the test
//!             still compares.
//! Invariants: S1 only what lies in the place expires.  S2 a source that is gone is no failure.
//! Not here:   when expiry runs (the server, by its lifecycle rules).

use margay_env::Env;
use margay_env::sim::SimRandom;

use super::{Done, SETTLED_STEP, SETTLED_TIME_MAX, Shared};
use crate::blob::Blob;
use crate::http::Http;
use crate::target::{BUCKET, Target, Trouble};
use crate::{Failure, fail};

/// Names in the place, so few that they meet.
const NAMES: u64 = 40;
/// A listing of the test's keys serves so many steps.
const STEPS_PER_LISTING: u64 = 16;
const OWN_BYTES_MAX: u64 = 150_000;
const FIRST_PART: u16 = 1;

/// Where what expires lies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExpiryArea {
    pub(crate) bucket: &'static str,
    pub(crate) prefix: &'static str,
    /// Whether the bucket keeps versions.
    pub(crate) versions: bool,
}

impl ExpiryArea {
    /// A bucket of its own: the test's tree stays as it is.
    pub(crate) const APART: ExpiryArea = ExpiryArea { bucket: "short-lived", prefix: "", versions: true };
    /// A directory of the test's tree.
    pub(crate) const INSIDE: ExpiryArea = ExpiryArea { bucket: BUCKET, prefix: "short-lived/", versions: false };

    fn any_key(self, random: &SimRandom) -> String {
        format!("{}{}", self.prefix, random.below(NAMES))
    }

    fn rules(self) -> String {
        let prefix = self.prefix;
        format!(
            "<LifecycleConfiguration><Rule><ID>all</ID><Filter><Prefix>{prefix}</Prefix></Filter><Status>Enabled</Status>\
             <Expiration><Days>1</Days></Expiration>\
             <NoncurrentVersionExpiration><NoncurrentDays>1</NoncurrentDays></NoncurrentVersionExpiration>\
             <AbortIncompleteMultipartUpload><DaysAfterInitiation>1</DaysAfterInitiation></AbortIncompleteMultipartUpload>\
             </Rule></LifecycleConfiguration>"
        )
    }
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    let built = tokio::runtime::Builder::new_current_thread().enable_all().build();
    built.expect("the test machine has threads left").block_on(work)
}

/// Makes them until it is told to stop.
pub(super) fn make(shared: &Shared, port: u16, place: ExpiryArea, random: &SimRandom) -> Result<Done, Failure> {
    let outcome = block_on(async {
        let (target, tested) = (Http::of_bucket(port, place.bucket), Http::new(port));
        target.make_bucket().await?;
        if place.versions {
            let on = "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>";
            target.set("versioning=", on.to_owned()).await?;
        }
        target.set("lifecycle=", place.rules()).await?;
        let mut sources = Vec::new();
        for step in 0u64.. {
            if shared.stopped() {
                break;
            }
            if step.is_multiple_of(STEPS_PER_LISTING) {
                sources = keys_of(&tested, place).await?;
            }
            one(&target, place, &sources, random).await?;
            shared.pause(random);
        }
        Ok::<(), Trouble>(())
    });
    match outcome {
        Ok(()) => Ok(Done::default()),
        Err(_) if shared.excused() => Ok(Done::default()),
        Err(trouble) => fail!("short-lived objects: {trouble}"),
    }
}

/// What may be copied; nothing while the test has not made its bucket.
async fn keys_of(tested: &Http, place: ExpiryArea) -> Result<Vec<String>, Trouble> {
    match tested.list("").await {
        Ok(listed) => {
            let keys = listed.into_iter().map(|(key, _)| key);
            Ok(keys.filter(|key| place.bucket != BUCKET || !key.starts_with(place.prefix)).collect())
        }
        Err(Trouble::Refused(text)) if text.contains("NoSuchBucket") => Ok(Vec::new()),
        Err(trouble) => Err(trouble),
    }
}

async fn one(target: &Http, place: ExpiryArea, sources: &[String], random: &SimRandom) -> Result<(), Trouble> {
    let key = place.any_key(random);
    let blob = Blob { tag: random.below(u64::MAX), len: random.below(OWN_BYTES_MAX) as usize };
    match random.below(10) {
        0..6 if !sources.is_empty() => {
            let source = &sources[random.below(sources.len() as u64) as usize];
            target.copy(source, &key).await.map(drop)
        }
        0..8 => target.put(&key, blob).await,
        8 => target.delete(&key).await,
        _ => {
            let upload = target.create_upload(&key).await?;
            match target.put_part(&key, &upload, FIRST_PART, blob).await {
                Ok(_) => Ok(()),
                // A day is a second, so its end may come first.
                Err(Trouble::Refused(text)) if text.contains("NoSuchUpload") => Ok(()),
                Err(trouble) => Err(trouble),
            }
        }
    }
}

/// Waits until nothing is left in the place; a bucket of its own can be removed then.
pub(super) fn all_expires(port: u16, place: ExpiryArea) -> Result<(), Failure> {
    let target = Http::of_bucket(port, place.bucket);
    let clock = Env::real().clock;
    let began = clock.monotonic();
    let broken = |trouble: Trouble| Failure(format!("short-lived objects: {trouble}"));
    block_on(async {
        loop {
            let left = left_in(&target, place).await.map_err(broken)?;
            if left.is_empty() {
                break;
            }
            if clock.monotonic() - began > SETTLED_TIME_MAX {
                fail!("what is due does not expire: {left:?}");
            }
            tokio::time::sleep(SETTLED_STEP).await;
        }
        if place.bucket == BUCKET {
            return Ok(());
        }
        target.remove_bucket().await.map_err(|trouble| Failure(format!("the empty bucket stays: {trouble}")))
    })
}

async fn left_in(target: &Http, place: ExpiryArea) -> Result<Vec<String>, Trouble> {
    let mut left: Vec<String> = target.list(place.prefix).await?.into_iter().map(|(key, _)| key).collect();
    left.extend(target.uploads().await?.into_iter().map(|(key, _)| format!("upload of {key}")));
    if place.versions {
        left.extend(target.version_ids().await?.into_iter().map(|id| format!("version {id}")));
    }
    Ok(left)
}
