//! What each work of administration does.
//!
//! Not here:   who may ask for it (`table`, `remote`), the streams (`top`, `watch`).

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::{NotDone, WorkAnswer, bad_wish};
use crate::backup::{self, BackupWish};
use crate::buckets::{self, QuotaChange};
use crate::disks;
use crate::dump::{self, DumpWish};
use crate::fsck;
use crate::inventory as pages;
use crate::mounts::MountWish;
use crate::mounts::options::MountChoice;
use crate::places;
use crate::recover as mending;
use crate::server::Server;
use crate::wiring::Storage;
use crate::works::Work;

/// How long an unmount waits for programs that use the mount, at most: other works on mounts wait as long.
const UNMOUNT_WAIT_MAX: Duration = Duration::from_secs(600);

type Outcome = Result<WorkAnswer, NotDone>;

fn value(value: Value) -> Outcome {
    Ok(WorkAnswer::Value(value))
}

/// A text of the wish.
fn text(wish: &Value, name: &str) -> Result<String, NotDone> {
    wish[name].as_str().map(str::to_owned).ok_or_else(|| bad_wish(format!("the request lacks {name}")))
}

/// Runs what waits for disks on a thread for that.
async fn blocking<T: Send + 'static, E: From<String> + Send + 'static>(
    work: impl FnOnce() -> Result<T, E> + Send + 'static,
) -> Result<T, E> {
    tokio::task::spawn_blocking(work).await.map_err(|error| E::from(format!("it broke off: {error}")))?
}

/// Of a work on this object.
fn of_object(bucket: &str, name: &str, error: margay_volume::Error) -> NotDone {
    let text = format!("{bucket}/{name}: {error}");
    match NotDone::from(error) {
        NotDone::Absent(_) => NotDone::Absent(text),
        NotDone::Unanswered(_) => NotDone::Unanswered(text),
        _ => NotDone::Failed(text),
    }
}

pub(super) async fn status(server: &Arc<Server>, _: Value) -> Outcome {
    value(server.status())
}

pub(super) async fn clock(server: &Arc<Server>, _: Value) -> Outcome {
    value(server.expiry.clock.status())
}

pub(super) async fn confirm_clock(server: &Arc<Server>, _: Value) -> Outcome {
    value(server.expiry.clock.confirm())
}

pub(super) async fn buckets(server: &Arc<Server>, _: Value) -> Outcome {
    value(buckets::list(&server.storage.volume).await?)
}

pub(super) async fn quota(server: &Arc<Server>, wish: Value) -> Outcome {
    let (bucket, change) = QuotaChange::from_json(&wish).map_err(bad_wish)?;
    value(buckets::change_quota(&server.storage.volume, &bucket, change).await?)
}

/// One page of a bucket's objects.
pub(super) async fn inventory(server: &Arc<Server>, wish: Value) -> Outcome {
    let bucket = text(&wish, "bucket")?;
    let prefix = wish["prefix"].as_str().unwrap_or_default();
    value(pages::page(&server.storage.volume, &bucket, prefix, wish["after"].as_str()).await?)
}

pub(super) async fn locate(server: &Arc<Server>, wish: Value) -> Outcome {
    value(places_of(&server.storage, &wish).await?)
}

/// The copies of an object, checked and mended.
pub(super) async fn recover(server: &Arc<Server>, wish: Value) -> Outcome {
    let (bucket, name) = (text(&wish, "bucket")?, text(&wish, "key")?);
    let storage = Arc::clone(&server.storage);
    let mend = move || mending::object(&storage, &bucket, &name).map_err(|error| of_object(&bucket, &name, error));
    value(blocking(mend).await?)
}

pub(super) async fn mounts(server: &Arc<Server>, _: Value) -> Outcome {
    value(server.mounts.status())
}

pub(super) async fn scrub(server: &Arc<Server>, _: Value) -> Outcome {
    let done = Work::Scrub.run(Arc::clone(&server.storage), Some(server.scrub_rate_max)).await?;
    let checks = Arc::clone(&server.checks);
    value(
        blocking(move || {
            checks.scrubbed(&done);
            Ok::<_, NotDone>(done)
        })
        .await?,
    )
}

pub(super) async fn compact(server: &Arc<Server>, _: Value) -> Outcome {
    value(Work::Compact.run(Arc::clone(&server.storage), None).await?)
}

pub(super) async fn fsck(server: &Arc<Server>, wish: Value) -> Outcome {
    let report = fsck_of(&server.storage, &wish).await?;
    let checks = Arc::clone(&server.checks);
    value(
        blocking(move || {
            checks.checked(&report);
            Ok::<_, NotDone>(report)
        })
        .await?,
    )
}

pub(super) async fn identities(server: &Arc<Server>, wish: Value) -> Outcome {
    let wanted = serde_json::from_value(wish).map_err(|error| bad_wish(format!("that is no order: {error}")))?;
    value(server.identities.answer(wanted).await?)
}

pub(super) async fn mount(server: &Arc<Server>, wish: Value) -> Outcome {
    let path = text(&wish, "path")?;
    let choice = MountChoice::parse(&text(&wish, "options")?).map_err(bad_wish)?;
    server.mount(MountWish::new(&text(&wish, "bucket")?, Path::new(&path), choice)?, wish["create"] == true).await?;
    value(json!({ "mounted": path }))
}

pub(super) async fn unmount(server: &Arc<Server>, wish: Value) -> Outcome {
    let path = text(&wish, "path")?;
    let wait = Duration::from_secs(wish["seconds"].as_u64().unwrap_or(0)).min(UNMOUNT_WAIT_MAX);
    let server = Arc::clone(server);
    let busy = blocking(move || server.mounts.unmount(Path::new(&path), wait)).await?;
    value(json!({ "calm": busy.is_none(), "users": busy }))
}

/// Adds or removes a disk.
pub(super) async fn disk(server: &Arc<Server>, wish: Value) -> Outcome {
    let server = Arc::clone(server);
    value(blocking(move || disks::change(server.storage.disks(), &wish)).await?)
}

pub(super) async fn backup(server: &Arc<Server>, wish: Value) -> Outcome {
    value(backup::make_of_running(Arc::clone(&server.storage), BackupWish::from_json(&wish).map_err(bad_wish)?).await?)
}

pub(super) async fn dump(server: &Arc<Server>, wish: Value) -> Outcome {
    Ok(WorkAnswer::Stream(dump::answer(&server.storage, DumpWish::from_json(&wish))))
}

/// A check while requests go on.
pub async fn fsck_of(storage: &Arc<Storage>, wish: &Value) -> Result<Value, String> {
    let shown_max = usize::try_from(wish["show"].as_u64().unwrap_or_default()).unwrap_or(usize::MAX);
    let storage = Arc::clone(storage);
    blocking(move || fsck::check(&storage, shown_max)).await
}

/// Where the bytes of an object are.
pub async fn places_of(storage: &Arc<Storage>, wish: &Value) -> Result<Value, NotDone> {
    let (bucket, name) = (text(wish, "bucket")?, text(wish, "key")?);
    let engine = storage.rows.engine();
    blocking(move || places::find(&*engine, &bucket, &name).map_err(|error| of_object(&bucket, &name, error))).await
}
