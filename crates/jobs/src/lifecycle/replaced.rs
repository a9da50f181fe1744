//! The part of a pass that examines versions: noncurrent ones, and delete markers with no version below them.
//!
//! Why:        they are not in a listing of objects but in one of versions: by key, the newest version first. A version
//!             became noncurrent when the next newer one was created.
//! Invariants: P1 to P3 of `pass`.
//!             P4 a lone delete marker is removed in the same pass as the last version below it.

use margay_env::Timestamp;
use margay_s3::lifecycle::Subject;
use margay_volume::{DueVersion, Error, ListVersionsRequest, VersionId, VersionItem, Versioning, VersionsAfter};

use super::pass::{PAGE_ITEMS, PAGE_PAUSE, Pass};

/// A line of the listing.
#[derive(Clone, Debug)]
struct Listed {
    key: String,
    id: VersionId,
    is_latest: bool,
    modified: Timestamp,
    /// In bytes; `None`: a delete marker.
    size: Option<u64>,
}

/// State of the key that the listing has reached.
#[derive(Debug, Default)]
struct Key {
    name: String,
    /// When the next newer version was created.
    newer_modified: Timestamp,
    /// Noncurrent versions so far.
    replaced: usize,
    /// The delete marker on top, while every version below it is due.
    marker: Option<Listed>,
}

impl Pass<'_> {
    pub(super) async fn versions(&mut self) -> Result<(), Error> {
        if self.volume.versioning(self.bucket).await? == Versioning::Never {
            return Ok(());
        }
        let mut at = Key::default();
        let mut after: Option<(String, VersionId)> = None;
        loop {
            let mut page = Vec::new();
            let request = ListVersionsRequest {
                bucket: self.bucket,
                prefix: "",
                delimiter: None,
                after: after.as_ref().map(|(key, id)| VersionsAfter::Version(key, *id)),
                max: PAGE_ITEMS,
            };
            let next = self.volume.list_versions(&request, &mut |item| page.extend(Listed::of(item))).await?.next;
            for listed in page {
                if listed.key != at.name {
                    let marker = std::mem::take(&mut at).marker;
                    self.marker(marker).await?;
                    at.name.clone_from(&listed.key);
                }
                self.look_at(&mut at, listed).await?;
            }
            match next {
                Some((key, Some(id))) => after = Some((key, id)),
                _ => return self.marker(at.marker).await,
            }
            tokio::time::sleep(PAGE_PAUSE).await;
        }
    }

    async fn look_at(&mut self, at: &mut Key, listed: Listed) -> Result<(), Error> {
        let replaced = std::mem::replace(&mut at.newer_modified, listed.modified);
        if listed.is_latest {
            at.marker = Some(listed).filter(|listed| listed.size.is_none());
            return Ok(());
        }
        let newer = at.replaced;
        at.replaced += 1;
        let gone = self.is_due(&listed, replaced, newer).await? && self.expire(&listed, DueVersion::Replaced).await?;
        if !gone {
            at.marker = None;
        }
        Ok(())
    }

    async fn marker(&mut self, marker: Option<Listed>) -> Result<(), Error> {
        let Some(marker) = marker else { return Ok(()) };
        let end = self.rules.lone_marker(&marker.key, marker.modified, self.days);
        if end.is_some_and(|end| end.at <= self.now) {
            self.expire(&marker, DueVersion::LoneMarker).await?;
        }
        Ok(())
    }

    async fn is_due(&self, listed: &Listed, replaced: Timestamp, newer: usize) -> Result<bool, Error> {
        let Listed { key, id, modified, size, .. } = listed;
        // A delete marker has no tags.
        let none: &[(String, String)] = &[];
        let subject =
            Subject { key, size: size.unwrap_or(0), modified: *modified, tags: size.is_none().then_some(none) };
        let end = |subject: &Subject<'_>| {
            self.rules.noncurrent(subject, replaced, newer, self.days).filter(|end| end.at <= self.now)
        };
        let Some(found) = end(&subject) else { return Ok(false) };
        if found.rule.filter.tags.is_empty() || size.is_none() {
            return Ok(true);
        }
        let info = match self.volume.head_version(self.bucket, key, Some(*id), &Default::default()).await {
            Ok(info) => info,
            Err(Error::NoSuchVersion | Error::NoSuchKey) => return Ok(false),
            Err(error) => return Err(error),
        };
        let tags = margay_s3::lifecycle::tags(&info.documents);
        Ok(end(&Subject { tags: Some(&tags), ..subject }).is_some())
    }

    /// Returns whether the version is gone.
    async fn expire(&mut self, listed: &Listed, due: DueVersion) -> Result<bool, Error> {
        self.pace.next(&*self.env.clock).await;
        let judged = (listed.key.as_str(), listed.id, listed.modified);
        let removed = self.volume.expire_version(self.bucket, judged, due, self.lease).await;
        self.count(removed, &self.counters.versions)
    }
}

impl Listed {
    fn of(item: VersionItem<'_>) -> Option<Listed> {
        let (key, id, is_latest, modified, size) = match item {
            VersionItem::Version { key, version, is_latest, size, modified, .. } => {
                (key, version, is_latest, modified, Some(size))
            }
            VersionItem::DeleteMarker { key, version, is_latest, modified } => {
                (key, version, is_latest, modified, None)
            }
            VersionItem::Prefix(_) => return None,
        };
        Some(Listed { key: key.to_owned(), id, is_latest, modified, size })
    }
}
