//! A bucket's access settings, cached until the bucket changes.
//!
//! Why:        a request by a user costs one lookup of the bucket's row, instead of four documents and a policy to
//!             parse.
//! Invariants: R1 cached rules are used only for the bucket generation at which they were read.
//!             R2 if a setting cannot be decoded, only root may use the bucket.  R3 at most `BUCKETS_MAX` buckets are
//!                cached.
//! Locking:    one mutex, held for one map operation.

use std::collections::HashMap;
use std::sync::Arc;

use margay_iam::acl::Acl;
use margay_iam::registry::ROOT_ACCOUNT;
use margay_iam::{Kind, Policy};
use margay_volume::{BucketInfo, Error, Setting, View};
use parking_lot::Mutex;

use super::ownership::Ownership;
use super::public_access_block::PublicAccessBlock;

/// Buckets whose rules are cached.
pub(crate) const BUCKETS_MAX: usize = 4096;

#[derive(Debug)]
pub(crate) struct BucketRules {
    /// Id of the owning account.
    pub owner: String,
    generation: u64,
    pub policy: Option<Policy>,
    /// A setting cannot be decoded.
    pub damaged: bool,
    pub block: PublicAccessBlock,
    /// `None`: not set.
    pub ownership: Option<Ownership>,
    /// `None`: private.
    pub acl: Option<Acl>,
    /// Tags of the bucket.
    pub tags: Vec<(String, String)>,
}

impl BucketRules {
    pub(crate) fn ownership(&self) -> Ownership {
        self.ownership.unwrap_or(Ownership::ObjectWriter)
    }

    /// Whether access control lists are enabled.
    pub(crate) fn has_lists(&self) -> bool {
        self.ownership() != Ownership::BucketOwnerEnforced
    }
}

#[derive(Debug, Default)]
pub(crate) struct RulesCache {
    held: Mutex<HashMap<String, Arc<BucketRules>>>,
}

impl RulesCache {
    /// The current rules of a bucket.
    pub(crate) async fn of(&self, view: View<'_>, bucket: &str) -> Result<Arc<BucketRules>, Error> {
        let info = view.head_bucket(bucket).await?;
        if let Some(held) = self.held.lock().get(bucket)
            && held.generation == info.generation
        {
            return Ok(Arc::clone(held));
        }
        let rules = Arc::new(read(view, info).await?);
        let mut held = self.held.lock();
        if held.len() >= BUCKETS_MAX {
            held.clear();
        }
        held.insert(bucket.to_owned(), Arc::clone(&rules));
        Ok(rules)
    }
}

/// The account in a bucket's row; root's buckets have none there.
fn owner_id(owner: &str) -> &str {
    if owner.is_empty() { ROOT_ACCOUNT } else { owner }
}

/// Settings that affect authorization.
const READ: [Setting; 5] =
    [Setting::Policy, Setting::PublicAccessBlock, Setting::OwnershipControls, Setting::Tagging, Setting::Acl];

async fn read(view: View<'_>, info: BucketInfo) -> Result<BucketRules, Error> {
    let mut rules = BucketRules {
        owner: info.owner,
        // The settings below may be newer than this generation; then the next request reads them again.
        generation: info.generation,
        policy: None,
        damaged: false,
        block: PublicAccessBlock::default(),
        ownership: None,
        acl: None,
        tags: Vec::new(),
    };
    for setting in READ {
        if !info.settings.contains(setting) {
            continue;
        }
        let Some(document) = view.bucket_setting(&info.name, setting).await? else { continue };
        match setting {
            Setting::Policy => match Policy::parse_stored(Kind::Bucket, &document) {
                Ok(policy) => rules.policy = Some(policy.owned_by(owner_id(&rules.owner))),
                Err(error) => {
                    tracing::error!(bucket = info.name, %error, "the bucket's policy cannot be read: only root may use it");
                    rules.damaged = true;
                }
            },
            Setting::PublicAccessBlock => rules.block = PublicAccessBlock::decode(&document),
            Setting::OwnershipControls => rules.ownership = Some(Ownership::decode(&document)),
            Setting::Tagging => rules.tags = super::tags(&document),
            _ => rules.acl = super::acl_document::decode(&document),
        }
    }
    Ok(rules)
}
