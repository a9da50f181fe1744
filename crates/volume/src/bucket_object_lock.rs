//! Object lock of a bucket: turned on, and what its objects get by default.

use margay_rows::kinds::Setting;
use margay_rows::object_lock::DefaultRetention;
use margay_rows::{Ino, key};

use crate::api::{Error, Versioning};
use crate::bucket_settings::draft_setting;
use crate::draft::Draft;
use crate::driver::Decided;
use crate::error::Refused;
use crate::open::Volume;
use crate::request::{RequestRows, View};
use crate::seen::Seen;

impl View<'_> {
    /// `Err(NoObjectLock)` when the bucket has none; else its default.
    pub async fn object_lock(self, bucket: &str) -> Result<Option<DefaultRetention>, Error> {
        self.read(|volume, seen| volume.object_lock_now(bucket, seen)).await
    }
}

impl Volume {
    /// `Err(NoObjectLock)` when the bucket has none; else its default.
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

    /// Turns object lock on, which stays; needs versioning enabled.
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
