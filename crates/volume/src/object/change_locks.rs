//! Changes the retention and the legal hold of a version.
//!
//! Invariants: L1 an active retention may be extended. Only governance mode may be shortened, changed or removed, and
//!                only by a caller who may bypass it. This is evaluated on the current locks, in the commit that
//!                changes them.

use bytes::Bytes;
use margay_rows::kinds::{Document, Documents};
use margay_rows::object_lock::{Retention, RetentionMode, encode_legal_hold};

use crate::api::{Error, ObjectName};
use crate::open::Volume;

impl Volume {
    /// `None` removes the retention.
    pub async fn set_retention(
        &self,
        name: ObjectName<'_>,
        retention: Option<Retention>,
        bypass_governance: bool,
    ) -> Result<(), Error> {
        self.object_lock(name.0).await?;
        let (now, lock_now) = (self.now(), self.lock_time.now(&*self.env.clock));
        if retention.is_some_and(|retention| retention.until <= now) {
            return Err(Error::RetentionOver);
        }
        self.change_documents_of(name, |mut documents: Documents| {
            let old = documents.get(&Document::Retention).map(|old| Retention::decode(old)).transpose()?;
            if let Some(old) = old.filter(|old| old.until > lock_now) {
                let grows = retention.is_some_and(|new| new.mode == old.mode && new.until >= old.until);
                let yields = old.mode == RetentionMode::Governance && bypass_governance;
                if !grows && !yields {
                    return Err(Error::Locked);
                }
            }
            put(&mut documents, Document::Retention, retention.map(|retention| retention.encode()));
            Ok(documents)
        })
        .await
    }

    pub async fn set_legal_hold(&self, name: ObjectName<'_>, on: bool) -> Result<(), Error> {
        self.object_lock(name.0).await?;
        self.change_documents_of(name, |mut documents: Documents| {
            put(&mut documents, Document::LegalHold, Some(encode_legal_hold(on)));
            Ok(documents)
        })
        .await
    }
}

fn put(documents: &mut Documents, kind: Document, document: Option<Bytes>) {
    match document {
        Some(document) => documents.insert(kind, document),
        None => documents.remove(&kind),
    };
}
