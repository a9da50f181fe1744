//! Rounds of expiry over a volume in memory and a clock that is moved by hand.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use margay_env::Timestamp;
use margay_env::sim::SimClock;
use margay_meta::memory::Memory;
use margay_segment::Store;
use margay_volume::{
    DefaultRetention, DeleteRequest, Document, ETag, Lease, ListRequest, ListVersionsRequest, Options, PutRequest,
    Retention, RetentionMode, RetentionPeriod, VersionId, VersionItem, Versioning,
};

use super::*;

const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(86_400);

struct World {
    env: Env,
    clock: Arc<SimClock>,
    volume: Arc<Volume>,
    folder: tempfile::TempDir,
}

impl World {
    /// It is one o'clock in the morning; there is a bucket named `bucket`.
    async fn new() -> World {
        let folder = tempfile::tempdir().unwrap();
        let clock = Arc::new(SimClock::new(Timestamp(20_000 * 86_400_000_000_000 + 3_600_000_000_000)));
        let env = Env { clock: Arc::clone(&clock) as Arc<dyn Clock>, ..Env::real() };
        let mut options = margay_segment::Options::new(folder.path().join("segments"));
        options.reserve_bytes = 0;
        let store = Store::open(env.clone(), options).unwrap();
        let volume = Volume::open(env.clone(), Arc::new(Memory::new()), store, Options::default()).unwrap();
        volume.create_bucket("bucket").await.unwrap();
        World { env, clock, volume, folder }
    }

    async fn put(&self, key: &str, size: usize, tags: Option<&'static str>) -> Option<VersionId> {
        let mut upload = self.volume.begin_upload("bucket", size as u64).await.unwrap();
        upload.write(vec![b'x'; size].into()).await.unwrap();
        let staged = upload.finish().await.unwrap();
        let documents = tags.map(|tags| (Document::Tags, tags.as_bytes().into())).into_iter().collect();
        let etag = ETag { digest: [1; 16], parts: 0 };
        let request = PutRequest { bucket: "bucket", key, etag, documents, ..PutRequest::default() };
        self.volume.put_object(request, staged).await.unwrap().version
    }

    async fn set(&self, rules: &str) {
        let document = format!("<LifecycleConfiguration>{rules}</LifecycleConfiguration>");
        self.volume.set_bucket_setting("bucket", Setting::Lifecycle, document.as_bytes()).await.unwrap();
    }

    async fn keys(&self) -> Vec<String> {
        let mut keys = Vec::new();
        let request = ListRequest {
            bucket: "bucket",
            prefix: "",
            delimiter: None,
            after: None,
            after_is_prefix: false,
            max: 10_000,
        };
        let mut note = |item: margay_volume::ListItem<'_>| {
            if let margay_volume::ListItem::Object { key, .. } = item {
                keys.push(key.to_owned());
            }
        };
        self.volume.list(&request, &mut note).await.unwrap();
        keys
    }

    async fn keeps_versions(&self) {
        self.volume.set_versioning("bucket", Versioning::Enabled).await.unwrap();
    }

    async fn delete(&self, key: &str) {
        self.volume.delete_object("bucket", &DeleteRequest::of(key)).await.unwrap();
    }

    /// Keys with the sizes of their versions, the newest first; `-` is a delete marker.
    async fn versions(&self) -> Vec<String> {
        let mut versions: Vec<String> = Vec::new();
        let request = ListVersionsRequest { bucket: "bucket", prefix: "", delimiter: None, after: None, max: 10_000 };
        let mut note = |item: VersionItem<'_>| match item {
            VersionItem::Version { key, size, .. } => versions.push(format!("{key} {size}")),
            VersionItem::DeleteMarker { key, .. } => versions.push(format!("{key} -")),
            VersionItem::Prefix(_) => {}
        };
        self.volume.list_versions(&request, &mut note).await.unwrap();
        versions
    }

    /// Of a process that trusted its clock all the time.
    fn rounds(&self) -> Rounds {
        let _ = self.env.disk.remove(&self.folder.path().join("clock.json"));
        self.rounds_after_restart(DAY * 7)
    }

    /// Of a process that starts with the record of an earlier one.
    fn rounds_after_restart(&self, clock_wait: Duration) -> Rounds {
        let limits = ExpiryLimits { day: 86_400, rate_max: 1_000_000, clock_wait };
        let clock = ClockGuard::open(&self.env, &self.volume, self.folder.path(), clock_wait);
        Rounds::new(&self.env, &self.volume, self.folder.path(), limits, (&Arc::default(), &clock))
    }

    /// Sets the clock forward or back while no time passes.
    fn set_clock(&self, days: i64) {
        self.clock.set_wall(Timestamp(self.env.clock.now().0 + days * 86_400_000_000_000));
    }
}

fn rule(filter: &str, action: &str) -> String {
    format!("<Rule><Filter>{filter}</Filter><Status>Enabled</Status>{action}</Rule>")
}

const ONE_DAY: &str = "<Expiration><Days>1</Days></Expiration>";

#[tokio::test]
async fn objects_go_at_the_midnight_after_their_days() {
    let world = World::new().await;
    world.set(&rule("<Prefix>old/</Prefix>", ONE_DAY)).await;
    world.put("old/a", 3, None).await;
    world.put("new/a", 3, None).await;
    let mut rounds = world.rounds();
    for hours in [0, 24, 22] {
        world.clock.advance(HOUR * hours);
        rounds.look().await;
        assert_eq!(world.keys().await, ["new/a", "old/a"], "{hours}");
    }
    world.clock.advance(HOUR);
    rounds.look().await;
    assert_eq!(world.keys().await, ["new/a"]);
    assert_eq!(rounds.counters.objects.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_bucket_is_looked_at_again_when_the_day_or_its_settings_change() {
    let world = World::new().await;
    world.set(&rule("<Prefix>a</Prefix>", ONE_DAY)).await;
    world.put("a", 3, None).await;
    world.put("b", 3, None).await;
    let mut rounds = world.rounds();
    world.clock.advance(DAY * 2);
    rounds.look().await;
    rounds.look().await;
    assert_eq!((world.keys().await, rounds.counters.rounds.load(Ordering::Relaxed)), (vec!["b".to_owned()], 1));
    world.set(&rule("", ONE_DAY)).await;
    rounds.look().await;
    assert!(world.keys().await.is_empty());
    world.put("c", 3, None).await;
    world.clock.advance(DAY * 2);
    rounds.look().await;
    assert!(world.keys().await.is_empty());
}

#[tokio::test]
async fn tags_and_sizes_decide() {
    let world = World::new().await;
    let tag = "<Tag><Key>keep</Key><Value>no &amp; never</Value></Tag>";
    let large = "<ObjectSizeGreaterThan>100</ObjectSizeGreaterThan>";
    world.set(&(rule(tag, ONE_DAY) + &rule(large, ONE_DAY))).await;
    world.put("tagged", 3, Some("a=b&keep=no%20%26%20never")).await;
    world.put("other", 3, Some("keep=yes")).await;
    world.put("plain", 3, None).await;
    world.put("large", 101, None).await;
    world.clock.advance(DAY * 3);
    world.rounds().look().await;
    assert_eq!(world.keys().await, ["other", "plain"]);
}

#[tokio::test]
async fn what_was_replaced_since_it_was_judged_stays() {
    let world = World::new().await;
    world.put("k", 3, None).await;
    let judged = world.volume.head_object("bucket", "k", &Default::default()).await.unwrap().modified;
    world.clock.advance(HOUR);
    world.put("k", 3, None).await;
    assert!(!world.volume.expire_object("bucket", "k", judged, &Lease::alone()).await.unwrap());
    assert_eq!(world.keys().await, ["k"]);
    let now = world.volume.head_object("bucket", "k", &Default::default()).await.unwrap().modified;
    assert!(world.volume.expire_object("bucket", "k", now, &Lease::alone()).await.unwrap());
    assert!(!world.volume.expire_object("bucket", "k", now, &Lease::alone()).await.unwrap());
    assert!(world.keys().await.is_empty());
}

#[tokio::test]
async fn uploads_are_aborted() {
    let world = World::new().await;
    let abort = "<AbortIncompleteMultipartUpload><DaysAfterInitiation>2</DaysAfterInitiation>\
                 </AbortIncompleteMultipartUpload>";
    world.set(&rule("<Prefix>a/</Prefix>", abort)).await;
    for key in ["a/1", "b/1"] {
        world.volume.create_multipart("bucket", key, Default::default(), Default::default()).await.unwrap();
    }
    let uploads = async || world.volume.list_multipart("bucket", "", None, 10).await.unwrap().0.len();
    world.clock.advance(DAY * 2);
    world.rounds().look().await;
    assert_eq!(uploads().await, 2);
    world.clock.advance(DAY);
    world.rounds().look().await;
    assert_eq!(uploads().await, 1);
}

#[tokio::test]
async fn a_restart_goes_on_where_the_round_was() {
    let world = World::new().await;
    world.set(&rule("", ONE_DAY)).await;
    for number in 0..6 {
        world.put(&format!("k{number}"), 3, None).await;
    }
    world.clock.advance(DAY * 3);
    let day = Days::REAL.number(world.clock.now());
    let file = ProgressFile::new(&world.env, world.folder.path());
    assert_eq!(file.read(), None);
    file.write(&Progress { day, complete: false, bucket: "bucket".to_owned(), key: Some("k3".to_owned()) });
    world.rounds().look().await;
    assert_eq!(world.keys().await, ["k0", "k1", "k2", "k3"]);
    assert!(file.read().unwrap().complete);
    // Today is done; tomorrow everything is examined again.
    world.rounds().look().await;
    assert_eq!(world.keys().await.len(), 4);
    world.clock.advance(DAY);
    world.rounds().look().await;
    assert!(world.keys().await.is_empty());
}

#[tokio::test]
async fn more_than_a_page_goes() {
    let world = World::new().await;
    world.set(&rule("", ONE_DAY)).await;
    for number in 0..1203 {
        world.put(&format!("d{}/k{number}", number % 7), 1, None).await;
    }
    world.clock.advance(DAY * 3);
    let mut rounds = world.rounds();
    rounds.look().await;
    assert_eq!((world.keys().await.len(), rounds.counters.objects.load(Ordering::Relaxed)), (0, 1203));
}

const REPLACED: &str = "<NoncurrentVersionExpiration><NoncurrentDays>1</NoncurrentDays></NoncurrentVersionExpiration>";

#[tokio::test]
async fn replaced_versions_go_by_when_they_were_replaced() {
    let world = World::new().await;
    world.keeps_versions().await;
    world.set(&rule("<Prefix>a</Prefix>", REPLACED)).await;
    for size in 1..=3 {
        world.put("a", size, None).await;
        world.put("b", size, None).await;
        world.clock.advance(DAY);
    }
    // The first was replaced two days ago, the second one day ago at one o'clock.
    let mut rounds = world.rounds();
    rounds.look().await;
    assert_eq!(world.versions().await, ["a 3", "a 2", "b 3", "b 2", "b 1"]);
    world.clock.advance(DAY * 9);
    rounds.look().await;
    assert_eq!(world.versions().await, ["a 3", "b 3", "b 2", "b 1"]);
    assert_eq!(rounds.counters.versions.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn the_newest_replaced_versions_may_stay() {
    let world = World::new().await;
    world.keeps_versions().await;
    let keep = "<NewerNoncurrentVersions>2</NewerNoncurrentVersions></NoncurrentVersionExpiration>";
    world.set(&rule("", &REPLACED.replace("</NoncurrentVersionExpiration>", keep))).await;
    for size in 1..=1203 {
        world.put("many", size, None).await;
    }
    world.clock.advance(DAY * 3);
    world.rounds().look().await;
    assert_eq!(world.versions().await, ["many 1203", "many 1202", "many 1201"]);
}

#[tokio::test]
async fn a_delete_marker_goes_with_the_last_version_below_it() {
    let world = World::new().await;
    world.keeps_versions().await;
    let marker = "<Expiration><ExpiredObjectDeleteMarker>true</ExpiredObjectDeleteMarker></Expiration>";
    let tagged = "<Tag><Key>keep</Key><Value>no</Value></Tag>";
    world.set(&(rule("", marker) + &rule(tagged, REPLACED))).await;
    world.put("gone/a", 1, Some("keep=no")).await;
    world.put("kept/a", 1, Some("keep=yes")).await;
    for key in ["gone/a", "kept/a", "kept/a", "never/a"] {
        world.delete(key).await;
    }
    world.put("current", 1, None).await;
    let mut rounds = world.rounds();
    rounds.look().await;
    let all = ["current 1", "gone/a -", "gone/a 1", "kept/a -", "kept/a -", "kept/a 1"];
    assert_eq!(world.versions().await, all);
    world.clock.advance(DAY * 3);
    rounds.look().await;
    assert_eq!(world.versions().await, ["current 1", "kept/a -", "kept/a -", "kept/a 1"]);
    assert_eq!(world.keys().await, ["current"]);
}

#[tokio::test]
async fn what_is_locked_stays() {
    let world = World::new().await;
    world.keeps_versions().await;
    world.volume.set_object_lock("bucket", None).await.unwrap();
    world.set(&rule("", REPLACED)).await;
    world.put("k", 1, None).await;
    world.volume.set_legal_hold(("bucket", "k", None), true).await.unwrap();
    world.put("k", 2, None).await;
    world.clock.advance(DAY * 3);
    let mut rounds = world.rounds();
    rounds.look().await;
    assert_eq!(world.versions().await, ["k 2", "k 1"]);
    assert_eq!(rounds.counters.skipped.load(Ordering::Relaxed), 1);
}

/// A clock that jumps expires nothing, neither while the server runs nor while it is off.
#[tokio::test]
async fn a_clock_that_jumped_ahead_ends_nothing() {
    for restarts in [false, true] {
        let world = World::new().await;
        world.set(&rule("", ONE_DAY)).await;
        world.put("a", 3, None).await;
        let mut rounds = world.rounds();
        rounds.look().await;
        world.set_clock(4000);
        if restarts {
            rounds = world.rounds_after_restart(DAY * 7);
        }
        for _ in 0..6 {
            rounds.look().await;
            world.clock.advance(DAY);
        }
        assert_eq!(world.keys().await, ["a"]);
        let status = rounds.clock.status();
        assert_eq!(status["expiry_waits"], true, "{status}");
        assert!(status["ahead_seconds"].as_u64().unwrap() > 3900 * 86_400, "{status}");
        // Set right again, expiry goes on as before: seven real days have passed.
        world.set_clock(-4000);
        rounds.look().await;
        assert!(world.keys().await.is_empty());
        assert_eq!(rounds.clock.status()["expiry_waits"], false);
    }
}

/// After weeks off, a server trusts the clock again after the wait, or at once when it is confirmed.
#[tokio::test]
async fn a_clock_is_believed_after_its_time_or_at_a_word() {
    for (wait, confirmed) in [(DAY * 7, false), (DAY * 7, true), (Duration::ZERO, true)] {
        let world = World::new().await;
        world.set(&rule("", ONE_DAY)).await;
        world.put("a", 3, None).await;
        world.rounds().look().await;
        // Off for two weeks.
        world.clock.advance(DAY * 14);
        let mut rounds = world.rounds_after_restart(wait);
        rounds.look().await;
        assert_eq!(world.keys().await, ["a"]);
        if confirmed {
            rounds.clock.confirm();
        } else {
            world.clock.advance(DAY * 6);
            rounds.look().await;
            assert_eq!(world.keys().await, ["a"], "it has not stood its time");
            world.clock.advance(DAY);
        }
        rounds.look().await;
        assert!(world.keys().await.is_empty(), "{wait:?} {confirmed}");
        // The next process knows it too.
        assert!(world.rounds_after_restart(wait).clock.look().is_some());
    }
}

/// With a wait of zero only the confirmation ends it; a weekend is no jump.
#[tokio::test]
async fn waiting_may_have_no_end_and_a_weekend_needs_none() {
    let world = World::new().await;
    world.rounds().look().await;
    world.clock.advance(DAY * 2);
    assert!(world.rounds_after_restart(Duration::ZERO).clock.look().is_some());
    world.clock.advance(DAY * 14);
    let rounds = world.rounds_after_restart(Duration::ZERO);
    for _ in 0..100 {
        world.clock.advance(DAY);
        assert!(rounds.clock.look().is_none());
    }
}

#[tokio::test]
async fn no_lock_ends_by_a_jump_or_by_waiting() {
    let world = World::new().await;
    world.volume.set_versioning("bucket", Versioning::Enabled).await.unwrap();
    world.volume.set_object_lock("bucket", None).await.unwrap();
    let rounds = world.rounds();
    let version = world.put("a", 3, None).await;
    let until = Timestamp(world.env.clock.now().0 + i64::try_from((DAY * 30).as_nanos()).unwrap());
    let retention = Retention { mode: RetentionMode::Compliance, until };
    world.volume.set_retention(("bucket", "a", version), Some(retention), false).await.unwrap();
    let remove = async || {
        let request = DeleteRequest { version, ..DeleteRequest::of("a") };
        world.volume.delete_object("bucket", &request).await.map(drop)
    };
    // At once, before anything has read the clock.
    world.set_clock(4000);
    assert!(matches!(remove().await, Err(Error::Locked)));
    let shorter = world.volume.set_retention(("bucket", "a", version), None, false).await;
    assert!(matches!(shorter, Err(Error::Locked)));
    // Expiry trusts the clock in the end, which ends no lock.
    for _ in 0..29 {
        rounds.clock.look();
        assert!(matches!(remove().await, Err(Error::Locked)));
        world.clock.advance(DAY);
    }
    assert!(rounds.clock.look().is_some());
    let status = rounds.clock.status();
    assert!(
        status["believed"] == false && status["ahead_of_locks_seconds"].as_u64().unwrap() > 3900 * 86_400,
        "{status}"
    );
    // The real time of the lock has passed, and the clock is right again.
    world.clock.advance(DAY * 2);
    rounds.clock.look();
    remove().await.unwrap();
}

/// A lock of one day set while the clock is back lasts a day.
#[tokio::test]
async fn a_clock_that_went_back_shortens_no_lock() {
    let world = World::new().await;
    let rounds = world.rounds();
    let default = DefaultRetention { mode: RetentionMode::Governance, period: RetentionPeriod::Days(1) };
    world.volume.set_versioning("bucket", Versioning::Enabled).await.unwrap();
    world.volume.set_object_lock("bucket", Some(default)).await.unwrap();
    world.set_clock(-4000);
    rounds.clock.look();
    let version = world.put("a", 3, None).await;
    world.set_clock(4000);
    rounds.clock.look();
    let request = DeleteRequest { version, ..DeleteRequest::of("a") };
    assert!(matches!(world.volume.delete_object("bucket", &request).await, Err(Error::Locked)));
}
