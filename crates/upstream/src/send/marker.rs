//! The object of a directory.
//!
//! Why:        other programs make such objects with content, and a change of a directory's attributes gives its object new metadata
//!             as a whole.
//! Invariants: M1 content stays: the object is copied onto itself, and what describes the content (its type) goes along.
//! Not here:   user metadata of others (xattrs, adopt).

use margay_client::ClientError;
use margay_client::upstream::Metadata;
use margay_rows::Ino;

use super::Sender;
use crate::attributes::is_plain;
use crate::plan::PlannedRequest;
use crate::tracked::MARKER;

pub(super) fn is_marker(request: &PlannedRequest) -> bool {
    request.content == MARKER && request.key.ends_with('/')
}

impl Sender {
    /// Of a marker with content, which a copy takes from this key, the headers that describe it take the place of those of an
    /// empty one (M1).
    pub(super) async fn keep_description(
        &self,
        request: &PlannedRequest,
        from: &str,
        metadata: &mut Metadata,
    ) -> Result<(), ClientError> {
        let has_content = {
            let files = self.tracked.files.lock();
            let object = files.table.get(Ino(request.file)).and_then(|file| file.object.as_ref());
            object.is_some_and(|object| object.size > 0)
        };
        if !is_marker(request) || !has_content {
            return Ok(());
        }
        // The copy tells of one that is gone.
        let Some(there) = self.upstream.describe(from).await? else { return Ok(()) };
        metadata.retain(|(name, _)| !is_plain(name.as_str()));
        let plain = there.headers.iter().filter(|(name, _)| is_plain(name.as_str()));
        metadata.extend(plain.map(|(name, value)| (name.clone(), value.clone())));
        Ok(())
    }
}
