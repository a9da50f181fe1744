//! What other programs told with the object of a directory before this mount knew of it.
//!
//! Why:        the object gets new metadata as a whole when the directory's attributes change here.
//! Invariants: A1 user metadata of an object that was never listed here becomes attributes of the directory, before the object is
//!                written.
//! Not here:   metadata that was listed (xattrs), content (marker).

use margay_client::upstream::Described;
use margay_rows::Ino;

use super::Sender;
use super::marker::is_marker;
use super::request::Unsent;
use crate::attributes::write_id_of;
use crate::packed::is_of_users;
use crate::plan::PlannedRequest;
use crate::runtime::alone;
use crate::xattrs;

/// What most directories have, for attributes that depend on it; none of those is taken.
const RIGHTS: u32 = 0o755;

impl Sender {
    /// Somebody else's object is under the key of a directory (A1).
    pub(super) async fn adopt(&self, request: &PlannedRequest, there: &Described) -> Result<(), Unsent> {
        let ino = Ino(request.file);
        // An earlier state of it is not what somebody else says.
        if !is_marker(request) || write_id_of(there).starts_with(&self.file_id(ino)) {
            return Ok(());
        }
        let mut found = xattrs::of_object(&there.headers, RIGHTS, true);
        found.retain(|(name, _)| is_of_users(name));
        if found.is_empty() {
            return Ok(());
        }
        let path = self.tracked.files.lock().paths.local(&request.key).to_owned();
        let adopted = alone(self.volume.adopt_attributes(&self.bucket, &path, ino, &found)).await;
        adopted.map_err(|error| Unsent::Local(error.to_string()))
    }
}
