//! Access control lists: grants of five permissions to accounts and to groups of them.
//!
//! Why:        older clients and tools share objects with them; a decision treats them as one more source.
//! Invariants: L1 the owner may always read and write the list itself.  L2 a list has at most `GRANTS_MAX` grants.
//! Not here:   the XML and the headers (the S3 door).

use serde::{Deserialize, Serialize};

/// Maximum number of grants in a list.
pub const GRANTS_MAX: usize = 100;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Permission {
    #[serde(rename = "FULL_CONTROL")]
    FullControl,
    #[serde(rename = "READ")]
    Read,
    #[serde(rename = "READ_ACP")]
    ReadAcp,
    #[serde(rename = "WRITE")]
    Write,
    #[serde(rename = "WRITE_ACP")]
    WriteAcp,
}

impl Permission {
    pub const ALL: [Permission; 5] =
        [Permission::FullControl, Permission::Read, Permission::ReadAcp, Permission::Write, Permission::WriteAcp];

    /// The permission's name in XML.
    pub fn name(self) -> &'static str {
        match self {
            Permission::FullControl => "FULL_CONTROL",
            Permission::Read => "READ",
            Permission::ReadAcp => "READ_ACP",
            Permission::Write => "WRITE",
            Permission::WriteAcp => "WRITE_ACP",
        }
    }

    pub fn of_name(name: &str) -> Option<Permission> {
        Permission::ALL.into_iter().find(|permission| permission.name() == name)
    }

    fn covers(self, wanted: Permission) -> bool {
        self == Permission::FullControl || self == wanted
    }
}

/// The receiver of a grant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Grantee {
    /// The canonical id of an account.
    Account(String),
    /// Everybody, authenticated or not (AllUsers).
    Everyone,
    /// Every authenticated caller (AuthenticatedUsers).
    Authenticated,
    /// AWS's service that delivers logs.
    LogDelivery,
}

const GROUPS: [(&str, Grantee); 3] = [
    ("http://acs.amazonaws.com/groups/global/AllUsers", Grantee::Everyone),
    ("http://acs.amazonaws.com/groups/global/AuthenticatedUsers", Grantee::Authenticated),
    ("http://acs.amazonaws.com/groups/s3/LogDelivery", Grantee::LogDelivery),
];

impl Grantee {
    /// The URI of a group.
    pub fn uri(&self) -> Option<&'static str> {
        GROUPS.iter().find(|(_, group)| group == self).map(|(uri, _)| *uri)
    }

    pub fn of_uri(uri: &str) -> Option<Grantee> {
        GROUPS.iter().find(|(own, _)| *own == uri).map(|(_, group)| group.clone())
    }

    fn is_public(&self) -> bool {
        matches!(self, Grantee::Everyone | Grantee::Authenticated)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    pub grantee: Grantee,
    pub permission: Permission,
}

/// The owner of a bucket or object, and the grants to others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Acl {
    /// The canonical id of the owning account.
    pub owner: String,
    pub grants: Vec<Grant>,
}

/// The canned ACLs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Canned {
    Private,
    PublicRead,
    PublicReadWrite,
    AuthenticatedRead,
    AwsExecRead,
    BucketOwnerRead,
    BucketOwnerFullControl,
    LogDeliveryWrite,
}

impl Canned {
    pub fn of_name(name: &str) -> Option<Canned> {
        Some(match name {
            "private" => Canned::Private,
            "public-read" => Canned::PublicRead,
            "public-read-write" => Canned::PublicReadWrite,
            "authenticated-read" => Canned::AuthenticatedRead,
            "aws-exec-read" => Canned::AwsExecRead,
            "bucket-owner-read" => Canned::BucketOwnerRead,
            "bucket-owner-full-control" => Canned::BucketOwnerFullControl,
            "log-delivery-write" => Canned::LogDeliveryWrite,
            _ => return None,
        })
    }
}

/// The caller whose grants are looked up: the account's canonical id, or `None` for an anonymous request.
pub type Grantees<'a> = Option<&'a str>;

impl Acl {
    /// The list that a canned ACL stands for. `bucket_owner` owns the bucket that contains the object.
    pub fn canned(canned: Canned, owner: &str, bucket_owner: &str) -> Acl {
        let account = |id: &str| Grantee::Account(id.to_owned());
        let mut grants = vec![Grant { grantee: account(owner), permission: Permission::FullControl }];
        let mut give = |grantee: Grantee, permissions: &[Permission]| {
            grants.extend(
                permissions.iter().map(|permission| Grant { grantee: grantee.clone(), permission: *permission }),
            );
        };
        match canned {
            Canned::PublicRead => give(Grantee::Everyone, &[Permission::Read]),
            Canned::PublicReadWrite => give(Grantee::Everyone, &[Permission::Read, Permission::Write]),
            Canned::AuthenticatedRead => give(Grantee::Authenticated, &[Permission::Read]),
            Canned::LogDeliveryWrite => give(Grantee::LogDelivery, &[Permission::Write, Permission::ReadAcp]),
            Canned::BucketOwnerRead if bucket_owner != owner => give(account(bucket_owner), &[Permission::Read]),
            Canned::BucketOwnerFullControl if bucket_owner != owner => {
                give(account(bucket_owner), &[Permission::FullControl]);
            }
            // AWS's own services read nothing here.
            Canned::Private | Canned::AwsExecRead | Canned::BucketOwnerRead | Canned::BucketOwnerFullControl => {}
        }
        Acl { owner: owner.to_owned(), grants }
    }

    pub fn private(owner: &str) -> Acl {
        Acl::canned(Canned::Private, owner, owner)
    }

    /// Whether a caller has a permission. With `ignore_public`, grants to AllUsers do not count.
    pub fn allows(&self, somebody: Grantees<'_>, wanted: Permission, ignore_public: bool) -> bool {
        let own_list = matches!(wanted, Permission::ReadAcp | Permission::WriteAcp);
        if own_list && somebody == Some(self.owner.as_str()) {
            return true;
        }
        self.grants.iter().any(|grant| {
            let meant = match &grant.grantee {
                Grantee::Account(id) => somebody == Some(id.as_str()),
                Grantee::Everyone => !ignore_public,
                Grantee::Authenticated => !ignore_public && somebody.is_some(),
                Grantee::LogDelivery => false,
            };
            meant && grant.permission.covers(wanted)
        })
    }

    /// Whether anything is granted to AllUsers or AuthenticatedUsers.
    pub fn is_public(&self) -> bool {
        self.grants.iter().any(|grant| grant.grantee.is_public())
    }
}
