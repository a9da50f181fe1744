//! A bucket's object lock: enabling it, and the default retention of new versions.

use margay_rows::kinds::Setting;
use margay_rows::object_lock::DefaultRetention;
use margay_rows::{Ino, key};

use crate::api::{Error, Versioning};
use crate::bucket::settings::draft_setting;
use crate::draft::{Draft, Seen};
use crate::driver::{Decided, RequestRows, View};
use crate::error::Refused;
use crate::open::Volume;

impl View<'_> {
    /// `Err(NoObjectLock)` when it is disabled; otherwise the default retention.
    pub async fn object_lock(self, bucket: &str) -> Result<Option<DefaultRetention>, Error> {
        self.read(|volume, seen| volume.object_lock_now(bucket, seen)).await
    }
}

impl Volume {
    /// `Err(NoObjectLock)` when it is disabled; otherwise the default retention.
    pub async fn object_lock(&self, bucket: &str) -> Result<Option<DefaultRetention>, Error> {
        self.view(&RequestRows::default()).object_lock(bucket).await
    }

    pub(crate) fn object_lock_now(&self, bucket: &str, seen: &mut Seen) -> Result<Option<DefaultRetention>, Error> {
        let (row, _) = self.bucket_row(bucket, seen)?;
        if !row.object_lock {
            return Err(Error::NoObjectLock);
        }
        self.default_retention(&row, seen)
    }

    /// Enables object lock permanently; versioning must be enabled.
    pub async fn set_object_lock(&self, bucket: &str, default: Option<DefaultRetention>) -> Result<(), Error> {
        let done = self.decide(Seen::default(), |seen| self.try_set_object_lock(bucket, default, seen)).await;
        self.answer(self.with_new_state(done)).await
    }

    fn try_set_object_lock(
        &self,
        bucket: &str,
        default: Option<DefaultRetention>,
        seen: &mut Seen,
    ) -> Result<Decided<Ino>, Refused> {
        let (mut row, version) = self.bucket_row(bucket, seen)?;
        if row.versioning != Versioning::Enabled {
            return Err(Error::KeepsNoVersions.into());
        }
        let mut draft = Draft::default();
        draft.assert_version(key::bucket(bucket), version);
        if row.settings.contains(Setting::ObjectLock) {
            self.delete_rows(&mut draft, &key::setting(row.root, Setting::ObjectLock))?;
        }
        row.object_lock = true;
        row.settings.insert(Setting::ObjectLock);
        draft_setting(&mut draft, row.root, Setting::ObjectLock, &DefaultRetention::encode(default))?;
        draft.put(key::bucket(bucket), row.encode());
        self.finish(draft, row.root)
    }
}
