//! Kept states of files: what is sent of them, and when they go.
//!
//! Invariants: K1 the row of a kept state goes in the batch that notes its object; its bytes go later, at the latest when the
//!                next process begins (`Tracked::tidy_kept`).
//!             K2 where somebody else has changed the object there is no order to keep: what is here now is sent alone.
//! Not here:   when a state is kept (tracked::epochs).

use http::header::{HeaderName, HeaderValue};
use margay_client::upstream::{Metadata, WRITE_ID};
use margay_meta::Write;
use margay_rows::record::UpstreamKept;
use margay_rows::{Ino, key};

use super::Sender;
use super::request::Unsent;
use crate::plan::PlannedRequest;
use crate::tracked::{File, KEPT, commit, dirty_write, entering, kept_name};

/// Drafts that kept states go, and gives the names of their bytes.
pub(super) fn draft_gone(ino: Ino, gone: &[UpstreamKept], writes: &mut Vec<Write>) -> Vec<String> {
    writes.extend(gone.iter().map(|kept| Write::Delete { key: key::upstream_kept(ino, kept.changed) }));
    gone.iter().filter(|kept| kept.has_bytes).map(|kept| kept_name(ino, kept)).collect()
}

impl Sender {
    /// The kept state that a request brings, if it brings one.
    pub(super) fn kept_of(&self, request: &PlannedRequest) -> Option<UpstreamKept> {
        let files = self.tracked.files.lock();
        let kept = files.table.get(Ino(request.file))?.kept.first()?;
        let is_same = (kept.changed, kept.content, kept.attributes)
            == (request.changed, request.content, request.attributes)
            && kept.key == request.key;
        is_same.then(|| kept.clone())
    }

    /// Metadata of a kept state, with the write id of this request.
    pub(super) fn metadata_of_kept(&self, request: &PlannedRequest, kept: &UpstreamKept) -> Result<Metadata, Unsent> {
        let damaged = || Unsent::Local("a kept header is damaged".to_owned());
        let headers = kept.headers.iter().map(|(name, value)| {
            let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| damaged())?;
            let id = self.write_id(request);
            let value = if name == WRITE_ID { id.as_bytes() } else { value };
            Ok((name, HeaderValue::from_bytes(value).map_err(|_| damaged())?))
        });
        headers.collect()
    }

    /// The kept states of a file are not sent any more.
    pub(super) fn forget_kept_of(&self, file: u64) {
        let mut writes = Vec::new();
        let names = {
            let mut files = self.tracked.files.lock();
            let ino = Ino(file);
            let gone = files.table.edit(ino, File::give_up_kept).unwrap_or_default();
            let Some(last) = gone.last() else { return };
            tracing::warn!(key = last.key, "its order is lost: what is here now is sent alone");
            writes.extend(files.table.get(ino).map(|file| dirty_write(ino, file)));
            let names = draft_gone(ino, &gone, &mut writes);
            if let Err(error) = commit(&*self.tracked.below, writes) {
                tracing::error!(%error, "kept states could not be removed");
            }
            names
        };
        self.drop_bytes(&names);
    }

    pub(super) fn drop_bytes(&self, names: &[String]) {
        for name in names {
            if let Err(error) = entering(|| self.volume.let_go(KEPT, name, &[])) {
                tracing::warn!(%error, name, "bytes that were kept go at the next start");
            }
        }
    }
}
