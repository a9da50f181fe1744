//! Gives a bucket another name.
//!
//! Why:        the cache of a far bucket is a volume with one bucket, whose name is that which S3 clients of it see.
//! Invariants: N1 only before the volume is used: what is cached of a bucket is found by its name.
//! Not here:   which names are valid (the S3 door).

use margay_rows::Ino;
use margay_rows::key;
use margay_rows::record::DirectoryRecord;

use crate::api::Error;
use crate::draft::{Draft, Seen};
use crate::driver::Decided;
use crate::error::Refused;
use crate::open::Volume;

impl Volume {
    /// `BucketExists` if there is one with the new name.
    pub async fn rename_bucket(&self, old: &str, new: &str) -> Result<(), Error> {
        let done = self.decide(Seen::default(), |seen| self.try_rename_bucket(old, new, seen)).await;
        self.answer(done).await
    }

    fn try_rename_bucket(&self, old: &str, new: &str, seen: &mut Seen) -> Result<Decided<()>, Refused> {
        let (bucket, version) = self.bucket_row(old, seen)?;
        if self.get(&key::bucket(new), seen)?.is_some() {
            return Err(Error::BucketExists.into());
        }
        let record = DirectoryRecord { parent: Ino(0), sort_name: new.to_owned() };
        let mut draft = Draft::default();
        draft.assert_version(key::bucket(old), version);
        draft.assert_absent(key::bucket(new));
        draft.delete(key::bucket(old));
        draft.put(key::bucket(new), bucket.encode());
        draft.put(key::directory(bucket.root), record.encode());
        self.finish(draft, ())
    }
}
