//! The access list of an object or bucket that a request creates or changes.
//!
//! Invariants: N1 where ownership is enforced, no list is accepted.
//!             N2 a list equal to the default is not stored.
//! Not here:   who may set a list (mod), its forms (acl_document, grants).

use std::sync::Arc;

use margay_iam::acl::{Acl, Canned, Grantee, Permission};
use margay_iam::registry::Account;
use margay_volume::{Document, Documents};

use super::Ask;
use super::acl_document::{self, AclDocument};
use super::grants::{Wish, wish};
use super::ownership::Ownership;
use super::rules::BucketRules;
use crate::error::{Code, S3Error};

/// The list of a new object; `None` for the default: the bucket owner's, private.
async fn of_new_object(call: &Ask<'_>) -> Result<Option<Acl>, S3Error> {
    let access = call.access;
    let wish = wish(call.headers, &*access.identities)?;
    // Root writes on behalf of the bucket's owner, so without a requested list nothing is looked up.
    if wish.is_none() && call.asker.is_root() {
        return Ok(None);
    }
    let rules = BucketRules::of(call.view(), call.bucket()).await?;
    let bucket_owner = access.owner(&rules.owner);
    let writer = match call.asker.identity {
        Some(identity) if !identity.is_root() => Arc::clone(&identity.account),
        _ => Arc::clone(&bucket_owner),
    };
    let gives_all = matches!(wish, Some(Wish::Canned(Canned::BucketOwnerFullControl)));
    let owner = match rules.ownership() {
        Ownership::BucketOwnerEnforced if wish.as_ref().is_none_or(|wish| is_harmless(wish, &bucket_owner)) => {
            return Ok(None);
        }
        Ownership::BucketOwnerEnforced => return Err(Code::AccessControlListNotSupported.into()),
        Ownership::BucketOwnerPreferred if gives_all => &bucket_owner,
        Ownership::BucketOwnerPreferred | Ownership::ObjectWriter => &writer,
    };
    let wish = wish.unwrap_or(Wish::Canned(Canned::Private));
    let acl = wish.into_acl(&owner.canonical_id, &bucket_owner.canonical_id);
    check_public(&acl, &rules)?;
    Ok((acl != Acl::private(&bucket_owner.canonical_id)).then_some(acl))
}

/// Adds the list of a new object to its documents, if it needs one.
pub(crate) async fn store(call: &Ask<'_>, documents: &mut Documents) -> Result<(), S3Error> {
    if let Some(acl) = of_new_object(call).await? {
        documents.insert(Document::Acl, acl_document::encode(&acl).into());
    }
    Ok(())
}

/// With ACLs disabled, only bucket-owner-full-control is accepted (it changes nothing).
fn is_harmless(wish: &Wish, bucket_owner: &Account) -> bool {
    match wish {
        Wish::Canned(canned) => *canned == Canned::BucketOwnerFullControl,
        Wish::Grants(grants) => {
            let own = Grantee::Account(bucket_owner.canonical_id.clone());
            grants.iter().all(|grant| grant.grantee == own && grant.permission == Permission::FullControl)
        }
    }
}

/// Refuses a public list where that is blocked.
pub(crate) fn check_public(acl: &Acl, rules: &BucketRules) -> Result<(), S3Error> {
    if rules.block.block_acls && acl.is_public() {
        return Err(S3Error::new(Code::AccessDenied, "Access Denied: BlockPublicAcls is set on the bucket"));
    }
    Ok(())
}

/// The list that a request sets, from its headers or document. `owner` owns the bucket or object.
pub(crate) fn set(call: &Ask<'_>, document: &[u8], owner: &str, bucket_owner: &str) -> Result<Acl, S3Error> {
    let identities = &*call.access.identities;
    let wish = wish(call.headers, identities)?;
    match (wish, document.is_empty()) {
        (Some(wish), true) => Ok(wish.into_acl(owner, bucket_owner)),
        (Some(_), false) => {
            Err(S3Error::new(Code::UnexpectedContent, "This request does not support content besides ACL headers"))
        }
        (None, true) => Err(S3Error::new(
            Code::MissingSecurityHeader,
            "Your request was missing a required header: x-amz-acl, x-amz-grant-* or a document",
        )),
        (None, false) => {
            let AclDocument { owner: named, grants } = acl_document::parse(document)?;
            // Nobody can give a thing away by its list.
            if named.is_some_and(|named| named != owner) {
                return Err(Code::AccessDenied.into());
            }
            let grants = grants
                .into_iter()
                .map(|(named, permission)| Ok(margay_iam::acl::Grant { grantee: named.find(identities)?, permission }));
            Ok(Acl { owner: owner.to_owned(), grants: grants.collect::<Result<_, S3Error>>()? })
        }
    }
}
