//! Operations on buckets: create, head, list, delete, usage.
//!
//! Why:        a bucket is only a name for a root directory, so one file suffices.
//! Invariants: B1 a bucket's row is removed only when nothing is below its root, asserted as empty ranges.
//! Not here:   which names are valid (the S3 door).

mod object_lock;
mod quota;
mod rename;
mod settings;
mod versioning;

use std::ops::ControlFlow;

use margay_meta::Guard;
use margay_rows::Ino;
use margay_rows::key::{self, Counted};
use margay_rows::record::{Bucket, DirectoryEntry, DirectoryRecord, Entry};

use crate::api::{BucketInfo, Error, NewBucket, Usage, Versioning};
use crate::bucket::settings::draft_setting;
use crate::draft::{Draft, Seen};
use crate::driver::{Decided, RequestRows, View};
use crate::error::Refused;
use crate::open::Volume;

impl View<'_> {
    pub async fn head_bucket(self, bucket: &str) -> Result<BucketInfo, Error> {
        self.read(|volume, seen| volume.bucket_info(bucket, seen)).await
    }
}

impl Volume {
    pub async fn create_bucket(&self, name: &str) -> Result<BucketInfo, Error> {
        self.create_bucket_with(name, &NewBucket::default()).await
    }

    /// With an owner and settings from the beginning.
    pub async fn create_bucket_with(&self, name: &str, new: &NewBucket) -> Result<BucketInfo, Error> {
        self.check_room()?;
        let done = self.decide_committed(Seen::default(), |seen| self.try_create_bucket(name, new, seen)).await;
        let done = done.map(|(bucket, done)| {
            let done = done.expect("a bucket is made by a commit");
            (bucket.info(name, done.version), done.cursor)
        });
        self.answer(done).await
    }

    fn try_create_bucket(&self, name: &str, new: &NewBucket, seen: &mut Seen) -> Result<Decided<Bucket>, Refused> {
        if self.get(&key::bucket(name), seen)?.is_some() {
            return Err(Error::BucketExists.into());
        }
        let root = self.new_ino()?;
        let created = self.now();
        let settings = new.settings.keys().copied().collect();
        let (object_lock, owner) = (new.object_lock, new.owner.clone());
        let versioning = if object_lock { Versioning::Enabled } else { Versioning::Never };
        let bucket = Bucket { root, created, versioning, object_lock, settings, owner };
        let record = DirectoryRecord { parent: Ino(0), sort_name: name.to_owned() };
        let mut draft = Draft::default();
        draft.assert_absent(key::bucket(name));
        draft.put(key::bucket(name), bucket.encode());
        draft.put(key::directory(root), record.encode());
        for (setting, document) in &new.settings {
            draft_setting(&mut draft, root, *setting, document)?;
        }
        self.finish(draft, bucket)
    }

    pub async fn head_bucket(&self, name: &str) -> Result<BucketInfo, Error> {
        self.view(&RequestRows::default()).head_bucket(name).await
    }

    pub(crate) fn bucket_info(&self, name: &str, seen: &mut Seen) -> Result<BucketInfo, Error> {
        let (bucket, version) = self.bucket_row(name, seen)?;
        Ok(bucket.info(name, version))
    }

    /// By name; `after` exclusive.
    pub async fn list_buckets(&self, prefix: &str, after: Option<&str>, max: usize) -> Result<Vec<BucketInfo>, Error> {
        let rows = RequestRows::default();
        self.view(&rows).read(|volume, seen| volume.list_buckets_now(prefix, after, max, seen)).await
    }

    fn list_buckets_now(
        &self,
        prefix: &str,
        after: Option<&str>,
        max: usize,
        seen: &mut Seen,
    ) -> Result<Vec<BucketInfo>, Error> {
        let mut buckets = Vec::new();
        let mut range = key::buckets();
        range.0 = key::bucket(prefix);
        if let Some(after) = after {
            range.0 = range.0.max(key::after(key::bucket(after)));
        }
        if max > 0 {
            self.scan(&range, seen, |row| {
                let name = key::parse_bucket(row.key)?;
                if !name.starts_with(prefix) {
                    return Ok(ControlFlow::Break(()));
                }
                buckets.push(Bucket::decode(row.value)?.info(name, row.version));
                Ok(if buckets.len() < max { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
            })?;
        }
        Ok(buckets)
    }

    /// Refused while the bucket contains an object, a version, an explicit directory or an unfinished upload.
    pub async fn delete_bucket(&self, name: &str) -> Result<(), Error> {
        let done = self.decide(Seen::default(), |seen| self.try_delete_bucket(name, seen)).await;
        self.answer(done).await
    }

    fn try_delete_bucket(&self, name: &str, seen: &mut Seen) -> Result<Decided<()>, Refused> {
        let (bucket, version) = self.bucket_row(name, seen)?;
        let held = [key::entries(bucket.root), key::versions(bucket.root), key::uploads(bucket.root, "")];
        for range in &held {
            let mut empty = true;
            self.scan(range, seen, |_| {
                empty = false;
                Ok(ControlFlow::Break(()))
            })?;
            if !empty {
                return Err(Error::BucketNotEmpty.into());
            }
        }
        let mut draft = Draft::default();
        draft.assert_version(key::bucket(name), version);
        // S3 asserts the bucket's row, a mount the record of the root: both go.
        held.into_iter().for_each(|range| draft.assert_empty(range, Guard::Written));
        draft.delete(key::bucket(name));
        let attributes = self.get(&key::inode(bucket.root), seen)?;
        draft.assert_unchanged(key::inode(bucket.root), attributes.as_ref().map(|row| row.version));
        let root = match attributes.map(|row| Entry::decode(&row.value)).transpose()? {
            Some(Entry::Directory(root)) => root,
            Some(Entry::File(_) | Entry::Link(_)) => {
                return Err(Error::Corrupt("a file has the number of a root".to_owned()).into());
            }
            None => DirectoryEntry::implicit(bucket.root),
        };
        draft.delete(key::inode(bucket.root));
        self.release_directory(&mut draft, &root)?;
        if !bucket.settings.is_empty() {
            self.delete_rows(&mut draft, &key::settings(bucket.root))?;
        }
        for what in [Counted::Objects, Counted::Bytes, Counted::Versions] {
            draft.delete(key::usage(bucket.root, what));
        }
        self.finish(draft, ())
    }

    /// Objects, other versions and the bytes of both, without explicit directories and unfinished uploads.
    pub async fn usage(&self, bucket: &str) -> Result<Usage, Error> {
        let rows = RequestRows::default();
        self.view(&rows).read(|volume, seen| volume.usage_now(bucket, seen)).await
    }

    fn usage_now(&self, bucket: &str, seen: &mut Seen) -> Result<Usage, Error> {
        let root = self.bucket_row(bucket, seen)?.0.root;
        Ok(Usage {
            objects: self.objects(root, seen)?,
            bytes: self.counter(&key::usage(root, Counted::Bytes), seen)?,
            versions: self.counter(&key::usage(root, Counted::Versions), seen)?,
        })
    }

    /// Objects of the bucket with this root.
    pub(crate) fn objects(&self, root: Ino, seen: &mut Seen) -> Result<u64, Error> {
        self.counter(&key::usage(root, Counted::Objects), seen)
    }
}
