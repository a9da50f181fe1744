//! A bucket's access settings, parsed.
//!
//! Why:        a request by a user costs the bucket's row, instead of five documents and a policy to parse.
//! Invariants: R1 if a setting cannot be decoded, only root may use the bucket.
//! Not here:   the cache (margay-volume's facts of buckets).

use std::sync::Arc;

use bytes::Bytes;
use margay_iam::acl::Acl;
use margay_iam::registry::ROOT_ACCOUNT;
use margay_iam::{Kind, Policy};
use margay_volume::{BucketFact, BucketInfo, Error, Setting, View};

use super::ownership::Ownership;
use super::public_access_block::PublicAccessBlock;

#[derive(Debug)]
pub(crate) struct BucketRules {
    /// Id of the owning account.
    pub owner: String,
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
    /// The current rules of a bucket.
    pub(crate) async fn of(view: View<'_>, bucket: &str) -> Result<Arc<BucketRules>, Error> {
        view.bucket_fact(bucket).await
    }

    pub(crate) fn ownership(&self) -> Ownership {
        self.ownership.unwrap_or(Ownership::ObjectWriter)
    }

    /// Whether access control lists are enabled.
    pub(crate) fn has_lists(&self) -> bool {
        self.ownership() != Ownership::BucketOwnerEnforced
    }
}

/// The account in a bucket's row; root's buckets have none there.
fn owner_id(owner: &str) -> &str {
    if owner.is_empty() { ROOT_ACCOUNT } else { owner }
}

/// Settings that affect authorization.
const READ: [Setting; 5] =
    [Setting::Policy, Setting::PublicAccessBlock, Setting::OwnershipControls, Setting::Tagging, Setting::Acl];

impl BucketFact for BucketRules {
    const SETTINGS: &'static [Setting] = &READ;

    fn parse(info: &BucketInfo, documents: &[(Setting, Bytes)]) -> BucketRules {
        let mut rules = BucketRules {
            owner: info.owner.clone(),
            policy: None,
            damaged: false,
            block: PublicAccessBlock::default(),
            ownership: None,
            acl: None,
            tags: Vec::new(),
        };
        for (setting, document) in documents {
            match setting {
                Setting::Policy => match Policy::parse_stored(Kind::Bucket, document) {
                    Ok(policy) => rules.policy = Some(policy.owned_by(owner_id(&rules.owner))),
                    Err(error) => {
                        let bucket = &info.name;
                        tracing::error!(bucket, %error, "the bucket's policy cannot be read: only root may use it");
                        rules.damaged = true;
                    }
                },
                Setting::PublicAccessBlock => rules.block = PublicAccessBlock::decode(document),
                Setting::OwnershipControls => rules.ownership = Some(Ownership::decode(document)),
                Setting::Tagging => rules.tags = super::tags(document),
                _ => rules.acl = super::acl_document::decode(document),
            }
        }
        rules
    }
}
