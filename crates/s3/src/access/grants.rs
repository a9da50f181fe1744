//! Access lists requested by headers: `x-amz-acl` or `x-amz-grant-*`.

use http::HeaderMap;
use margay_iam::acl::{Acl, Canned, GRANTS_MAX, Grant, Grantee, Permission};

use super::acl_document::Named;
use crate::error::{Code, S3Error};
use crate::identities::Identities;

const HEADERS: [(&str, Permission); 5] = [
    ("x-amz-grant-full-control", Permission::FullControl),
    ("x-amz-grant-read", Permission::Read),
    ("x-amz-grant-read-acp", Permission::ReadAcp),
    ("x-amz-grant-write", Permission::Write),
    ("x-amz-grant-write-acp", Permission::WriteAcp),
];

/// The list that the headers request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    Canned(Canned),
    Grants(Vec<Grant>),
}

impl Wish {
    /// The resulting list.
    pub(crate) fn into_acl(self, owner: &str, bucket_owner: &str) -> Acl {
        match self {
            Wish::Canned(canned) => Acl::canned(canned, owner, bucket_owner),
            Wish::Grants(grants) => Acl { owner: owner.to_owned(), grants },
        }
    }
}

/// Parses the headers; `None` when there are none.
pub(crate) fn wish(headers: &HeaderMap, identities: &dyn Identities) -> Result<Option<Wish>, S3Error> {
    let given = HEADERS.iter().any(|(name, _)| headers.contains_key(*name));
    // An empty value means no list (`route::beyond`).
    match (headers.get("x-amz-acl").filter(|name| !name.is_empty()), given) {
        (None, false) => Ok(None),
        (Some(_), true) => {
            Err(S3Error::invalid_request("Specifying both Canned ACLs and Header Grants is not allowed"))
        }
        (Some(name), false) => {
            let name = String::from_utf8_lossy(name.as_bytes());
            let canned = Canned::of_name(&name).ok_or_else(|| S3Error::argument("x-amz-acl", &name, ""))?;
            Ok(Some(Wish::Canned(canned)))
        }
        (None, true) => {
            let mut grants = Vec::new();
            for (name, permission) in HEADERS {
                for value in headers.get_all(name) {
                    let text = value.to_str().map_err(|_| Code::InvalidArgument)?;
                    for grantee in parse(name, text, identities)? {
                        grants.push(Grant { grantee, permission });
                    }
                }
            }
            if grants.len() > GRANTS_MAX {
                return Err(S3Error::invalid_request("more than 100 grants"));
            }
            Ok(Some(Wish::Grants(grants)))
        }
    }
}

/// Parses `id="...", uri="...", emailAddress="..."`; the quotes are optional.
fn parse(name: &str, text: &str, identities: &dyn Identities) -> Result<Vec<Grantee>, S3Error> {
    let mut grantees = Vec::new();
    for part in text.split(',').map(str::trim) {
        let wrong = || S3Error::argument(name, text, "Argument format not recognized");
        let (kind, value) = part.split_once('=').ok_or_else(wrong)?;
        let value = value.trim().trim_matches('"').to_owned();
        let named = match kind.trim() {
            "id" => Named::Id(value),
            "uri" => Named::Uri(value),
            "emailAddress" => Named::Email(value),
            _ => return Err(wrong()),
        };
        grantees.push(named.find(identities)?);
    }
    Ok(grantees)
}
