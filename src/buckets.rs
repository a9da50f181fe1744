//! Commands on buckets: listing them with their usage, and their quotas.
//!
//! Why:        they work alike on the running server (through its control socket) and on a directory at rest.
//! Invariants: K1 usage is read from counters that every change maintains, so a query costs next to nothing.
//! Not here:   enforcing a quota (margay-volume), output (`cli`).

use margay_env::Timestamp;
use margay_volume::{Error, Quota, Volume};
use serde_json::{Value, json};

use crate::exit::Failure;

/// Buckets read at a time.
const PAGE_BUCKETS: usize = 1000;

/// Makes a bucket unless it is there; says whether it did.
pub async fn make(volume: &Volume, name: &str) -> Result<bool, Failure> {
    // On a full disk no bucket can be made, but a server must still start to remove files.
    if volume.head_bucket(name).await.is_ok() {
        return Ok(false);
    }
    match volume.create_bucket(name).await {
        Ok(_) => Ok(true),
        // Another server of the volume was faster.
        Err(Error::BucketExists) => Ok(false),
        Err(error) => Err(Failure::failed(format!("the bucket {name} cannot be made: {error}"))),
    }
}

/// Objects, bytes and limits of every bucket, by name.
pub async fn list(volume: &Volume) -> Result<Value, Error> {
    let mut rows = Vec::new();
    let mut after: Option<String> = None;
    loop {
        let page = volume.list_buckets("", after.as_deref(), PAGE_BUCKETS).await?;
        for bucket in &page {
            match row(volume, &bucket.name, bucket.created).await {
                // Removed since the page was read.
                Err(Error::NoSuchBucket) => {}
                row => rows.push(row?),
            }
        }
        match page.last() {
            Some(last) if page.len() == PAGE_BUCKETS => after = Some(last.name.clone()),
            _ => return Ok(json!({ "buckets": rows })),
        }
    }
}

/// Usage and limits of one bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketUse {
    pub name: String,
    pub objects: u64,
    pub bytes: u64,
    pub objects_max: Option<u64>,
    pub bytes_max: Option<u64>,
}

/// The first buckets by name, at most `most` (up to 1000).
pub async fn first(volume: &Volume, most: usize) -> Result<Vec<BucketUse>, Error> {
    let mut all = Vec::new();
    for bucket in volume.list_buckets("", None, most.min(PAGE_BUCKETS)).await? {
        let (usage, quota) = match (volume.usage(&bucket.name).await, volume.quota(&bucket.name).await) {
            // Removed since the page was read.
            (Err(Error::NoSuchBucket), _) | (_, Err(Error::NoSuchBucket)) => continue,
            (usage, quota) => (usage?, quota?),
        };
        all.push(BucketUse {
            name: bucket.name.clone(),
            objects: usage.objects,
            bytes: usage.bytes,
            objects_max: quota.objects,
            bytes_max: quota.bytes,
        });
    }
    Ok(all)
}

async fn row(volume: &Volume, name: &str, created: Timestamp) -> Result<Value, Error> {
    let (usage, quota) = (volume.usage(name).await?, volume.quota(name).await?);
    Ok(json!({
        "bucket": name,
        "created": created.seconds(),
        "objects": usage.objects,
        "bytes": usage.bytes,
        "objects_max": quota.objects,
        "bytes_max": quota.bytes,
    }))
}

/// A change of a quota: absent fields stay unchanged, null removes a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuotaChange {
    pub objects: Option<Option<u64>>,
    pub bytes: Option<Option<u64>>,
}

impl QuotaChange {
    pub fn to_json(self, bucket: &str) -> Value {
        let mut value = json!({ "bucket": bucket });
        for (name, change) in [("objects_max", self.objects), ("bytes_max", self.bytes)] {
            if let Some(most) = change {
                value[name] = json!(most);
            }
        }
        value
    }

    /// The bucket, and the change.
    pub fn from_json(value: &Value) -> Result<(String, QuotaChange), String> {
        let bucket = value["bucket"].as_str().ok_or("the request lacks bucket")?;
        let field = |name: &str| match value.get(name) {
            None => Ok(None),
            Some(Value::Null) => Ok(Some(None)),
            Some(most) => most.as_u64().map(|most| Some(Some(most))).ok_or_else(|| format!("{name} is no number")),
        };
        Ok((bucket.to_owned(), QuotaChange { objects: field("objects_max")?, bytes: field("bytes_max")? }))
    }
}

/// Changes a quota; returns the bucket's usage and limits.
pub async fn change_quota(volume: &Volume, bucket: &str, change: QuotaChange) -> Result<Value, Error> {
    let old = volume.quota(bucket).await?;
    let new = Quota { objects: change.objects.unwrap_or(old.objects), bytes: change.bytes.unwrap_or(old.bytes) };
    if new != old {
        volume.set_quota(bucket, new).await?;
    }
    row(volume, bucket, volume.head_bucket(bucket).await?.created).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_of_quotas_travel_as_json() {
        for objects in [None, Some(None), Some(Some(7))] {
            for bytes in [None, Some(None), Some(Some(u64::MAX))] {
                let change = QuotaChange { objects, bytes };
                assert_eq!(QuotaChange::from_json(&change.to_json("b")), Ok(("b".to_owned(), change)));
            }
        }
        assert!(QuotaChange::from_json(&json!({})).is_err());
        assert!(QuotaChange::from_json(&json!({ "bucket": "b", "bytes_max": "many" })).is_err());
    }
}
