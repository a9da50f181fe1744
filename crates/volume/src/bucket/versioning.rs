//! A bucket's versioning state: reading and changing it.
//!
//! Invariants: V1 it is in the bucket's row, whose version every change of an object asserts; so a change is made under
//!                exactly one state.
//!             V2 a bucket that once had versioning never returns to `Never`.

use margay_meta::Cursor;
use margay_rows::{Ino, key};

use crate::api::{Error, Versioning};
use crate::draft::{Draft, Seen};
use crate::driver::{Decided, RequestRows, View};
use crate::error::Refused;
use crate::open::Volume;

impl View<'_> {
    pub async fn versioning(self, bucket: &str) -> Result<Versioning, Error> {
        self.read(|volume, seen| Ok(volume.bucket_row(bucket, seen)?.0.versioning)).await
    }
}

impl Volume {
    pub async fn versioning(&self, bucket: &str) -> Result<Versioning, Error> {
        self.view(&RequestRows::default()).versioning(bucket).await
    }

    /// `Versioning::Never` is refused.
    pub async fn set_versioning(&self, bucket: &str, versioning: Versioning) -> Result<(), Error> {
        let done = self.decide(Seen::default(), |seen| self.try_set_versioning(bucket, versioning, seen)).await;
        self.answer(self.with_new_state(done)).await
    }

    /// Makes this process's mounts use the new state at once, even if they commit nothing.
    pub(crate) fn with_new_state(&self, done: Result<(Ino, Cursor), Error>) -> Result<((), Cursor), Error> {
        let (root, seq) = done?;
        self.bucket_facts.forget(root);
        Ok(((), seq))
    }

    fn try_set_versioning(
        &self,
        bucket: &str,
        versioning: Versioning,
        seen: &mut Seen,
    ) -> Result<Decided<Ino>, Refused> {
        let (mut row, version) = self.bucket_row(bucket, seen)?;
        if versioning == Versioning::Never || row.object_lock && versioning != Versioning::Enabled {
            return Err(Error::KeepsVersions.into());
        }
        row.versioning = versioning;
        let mut draft = Draft::default();
        draft.assert_version(key::bucket(bucket), version);
        draft.put(key::bucket(bucket), row.encode());
        self.finish(draft, row.root)
    }
}
