//! Access control lists as stored with buckets and objects, and as XML.
//!
//! Invariants: L1 a stored list that cannot be decoded grants nothing.

use margay_iam::acl::{Acl, GRANTS_MAX, Grantee, Permission};

use crate::error::{Code, S3Error};
use crate::identities::{AccountName, Identities};
use crate::xml::read::{Malformed, walk};
use crate::xml::write::Writer;

pub(crate) fn encode(acl: &Acl) -> Vec<u8> {
    serde_json::to_vec(acl).expect("a list holds nothing but text")
}

pub(crate) fn decode(bytes: &[u8]) -> Option<Acl> {
    serde_json::from_slice(bytes)
        .inspect_err(|error| tracing::error!(%error, "a stored access list cannot be read"))
        .ok()
}

/// Writes an account as an element.
pub(crate) fn write_owner(writer: &mut Writer<'_>, element: &str, canonical_id: &str, identities: &dyn Identities) {
    writer.open(element);
    write_account(writer, canonical_id, identities);
    writer.close(element);
}

fn write_account(writer: &mut Writer<'_>, canonical_id: &str, identities: &dyn Identities) {
    writer.text("ID", canonical_id);
    let account = identities.account(AccountName::CanonicalId(canonical_id));
    writer.optional("DisplayName", account.as_ref().map(|account| account.display_name.as_str()));
}

/// The answer of GetBucketAcl and GetObjectAcl.
pub(crate) fn write(writer: &mut Writer<'_>, acl: &Acl, identities: &dyn Identities) {
    writer.root("AccessControlPolicy");
    write_owner(writer, "Owner", &acl.owner, identities);
    writer.open("AccessControlList");
    // Groups first, so that public grants are seen at once. The order has no meaning.
    let (groups, accounts): (Vec<_>, Vec<_>) = acl.grants.iter().partition(|grant| grant.grantee.uri().is_some());
    for grant in groups.into_iter().chain(accounts) {
        writer.open("Grant");
        let kind = if grant.grantee.uri().is_some() { "Group" } else { "CanonicalUser" };
        writer.raw("<Grantee xmlns:xsi=\"http://www.w3.org/2001/XMLSchema-instance\" xsi:type=\"");
        writer.raw(kind);
        writer.raw("\">");
        match (&grant.grantee, grant.grantee.uri()) {
            (Grantee::Account(id), _) => write_account(writer, id, identities),
            (_, uri) => writer.optional("URI", uri),
        }
        writer.close("Grantee");
        writer.text("Permission", grant.permission.name());
        writer.close("Grant");
    }
    writer.close("AccessControlList");
    writer.close("AccessControlPolicy");
}

/// A grantee as named in a document or header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Named {
    Id(String),
    Email(String),
    Uri(String),
}

impl Named {
    /// Resolves the account or group.
    pub(crate) fn find(self, identities: &dyn Identities) -> Result<Grantee, S3Error> {
        match self {
            Named::Id(id) => match identities.account(AccountName::CanonicalId(&id)) {
                Some(account) => Ok(Grantee::Account(account.canonical_id.clone())),
                None => Err(S3Error::argument("id", &id, "Invalid id")),
            },
            Named::Email(email) => match identities.account(AccountName::Email(&email)) {
                Some(account) => Ok(Grantee::Account(account.canonical_id.clone())),
                None => Err(Code::UnresolvableGrantByEmailAddress.into()),
            },
            Named::Uri(uri) => Grantee::of_uri(&uri).ok_or_else(|| S3Error::argument("uri", &uri, "Invalid group uri")),
        }
    }
}

/// A list as parsed from a document.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct AclDocument {
    pub(crate) owner: Option<String>,
    pub(crate) grants: Vec<(Named, Permission)>,
}

/// Parses the document of PutBucketAcl and PutObjectAcl.
pub(crate) fn parse(document: &[u8]) -> Result<AclDocument, S3Error> {
    const GRANT: &str = "AccessControlPolicy/AccessControlList/Grant";
    let mut read = AclDocument::default();
    let (mut grantee, mut permission, mut list) = (None, None, false);
    walk(document, &mut |path, text| {
        let text = text.trim().to_owned();
        match path.strip_prefix(GRANT) {
            Some("/Grantee/ID") => grantee = Some(Named::Id(text)),
            Some("/Grantee/EmailAddress") => grantee = Some(Named::Email(text)),
            Some("/Grantee/URI") => grantee = Some(Named::Uri(text)),
            Some("/Grantee/DisplayName" | "/Grantee") => {}
            Some("/Permission") => {
                let known = Permission::of_name(&text);
                permission = Some(known.ok_or_else(|| Malformed::because("an unknown permission"))?);
            }
            Some("") => {
                let (Some(grantee), Some(permission)) = (grantee.take(), permission.take()) else {
                    return Err(Malformed::because("a grant without a grantee or a permission"));
                };
                read.grants.push((grantee, permission));
                if read.grants.len() > GRANTS_MAX {
                    return Err(Malformed::because("more than 100 grants"));
                }
            }
            Some(_) => return Err(Malformed::because("an unknown element")),
            None => match path {
                "AccessControlPolicy/Owner/ID" => read.owner = Some(text),
                "AccessControlPolicy/AccessControlList" => list = true,
                "AccessControlPolicy" | "AccessControlPolicy/Owner" | "AccessControlPolicy/Owner/DisplayName" => {}
                _ => return Err(Malformed::because("an unknown element")),
            },
        }
        Ok(())
    })?;
    if list { Ok(read) } else { Err(Malformed::because("no AccessControlList").into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents() {
        let document = |grants: &str| {
            format!(
                "<AccessControlPolicy><Owner><ID>o</ID></Owner><AccessControlList>{grants}</AccessControlList></AccessControlPolicy>"
            )
        };
        let grant = |who: &str, what: &str| {
            format!(
                "<Grant><Grantee xmlns:xsi=\"x\" xsi:type=\"CanonicalUser\">{who}</Grantee><Permission>{what}</Permission></Grant>"
            )
        };
        let text =
            document(&(grant("<ID>a</ID><DisplayName>n</DisplayName>", "READ") + &grant("<URI>u</URI>", "WRITE_ACP")));
        let read = parse(text.as_bytes()).unwrap();
        assert_eq!(read.owner.as_deref(), Some("o"));
        let wanted =
            [(Named::Id("a".to_owned()), Permission::Read), (Named::Uri("u".to_owned()), Permission::WriteAcp)];
        assert_eq!(read.grants, wanted);
        assert_eq!(parse(document("").as_bytes()).unwrap().grants, []);
        let many = grant("<ID>a</ID>", "READ").repeat(101);
        for bad in [
            "<AccessControlPolicy/>".to_owned(),
            document(&grant("<ID>a</ID>", "EVERYTHING")),
            document(&grant("", "READ")),
            document("<Grant><Permission>READ</Permission></Grant>"),
            document("<Grant><Grantee><ID>a</ID></Grantee></Grant>"),
            document(&many),
            "<Other><AccessControlList/></Other>".to_owned(),
        ] {
            assert_eq!(parse(bad.as_bytes()).unwrap_err().code, Code::MalformedXML, "{bad}");
        }
    }
}
