//! The names of condition keys.
//!
//! Why:      the meaning of a policy depends on whether a key without a value is absent (known) or not understood
//!           (unknown).
//! Not here: the values (the door).

/// Keys that every request either has or knows to be absent, in lower case.
const KNOWN: &[&str] = &[
    "aws:currenttime",
    "aws:epochtime",
    "aws:principalaccount",
    "aws:principalarn",
    "aws:principaltype",
    "aws:referer",
    "aws:requestedregion",
    "aws:securetransport",
    "aws:sourceip",
    "aws:tokenissuetime",
    "aws:useragent",
    "aws:userid",
    "aws:username",
    "s3:authtype",
    "s3:delimiter",
    "s3:if-match",
    "s3:if-none-match",
    "s3:locationconstraint",
    "s3:max-keys",
    "s3:object-lock-legal-hold",
    "s3:object-lock-mode",
    "s3:object-lock-remaining-retention-days",
    "s3:object-lock-retain-until-date",
    "s3:prefix",
    "s3:requestobjecttagkeys",
    "s3:resourceaccount",
    "s3:signatureage",
    "s3:signatureversion",
    "s3:tlsversion",
    "s3:versionid",
    "s3:x-amz-acl",
    "s3:x-amz-content-sha256",
    "s3:x-amz-copy-source",
    "s3:x-amz-grant-full-control",
    "s3:x-amz-grant-read",
    "s3:x-amz-grant-read-acp",
    "s3:x-amz-grant-write",
    "s3:x-amz-grant-write-acp",
    "s3:x-amz-metadata-directive",
    "s3:x-amz-object-ownership",
    "s3:x-amz-server-side-encryption",
    "s3:x-amz-server-side-encryption-aws-kms-key-id",
    "s3:x-amz-server-side-encryption-customer-algorithm",
    "s3:x-amz-storage-class",
    "s3:x-amz-website-redirect-location",
    "sts:authentication",
    "sts:externalid",
    "sts:rolesessionname",
];

/// Prefixes of keys that end in a name chosen by the user.
const KNOWN_BEGINNINGS: &[&str] = &[
    "aws:principaltag/",
    "aws:resourcetag/",
    "s3:buckettag/",
    "s3:existingobjecttag/",
    "s3:requestobjecttag/",
    "s3:resourcetag/",
];

/// The form in which keys are compared: lower case, except after a `/` (the name of a tag).
pub fn normal(key: &str) -> String {
    match key.split_once('/') {
        Some((kind, name)) => format!("{}/{name}", kind.to_ascii_lowercase()),
        None => key.to_ascii_lowercase(),
    }
}

/// Whether a key (in normal form) is known. Keys of an identity provider (`PROVIDER:aud`) are not in the list; the door
/// resolves them itself.
pub fn is_known(key: &str) -> bool {
    KNOWN.binary_search(&key).is_ok()
        || KNOWN_BEGINNINGS.iter().any(|beginning| key.len() > beginning.len() && key.starts_with(beginning))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_sorted_and_found() {
        assert!(KNOWN.is_sorted());
        assert!(is_known("s3:prefix") && is_known("s3:existingobjecttag/Team"));
        assert!(!is_known("s3:existingobjecttag/") && !is_known("aws:sourcevpc") && !is_known("S3:Prefix"));
        assert_eq!(normal("S3:ExistingObjectTag/Team"), "s3:existingobjecttag/Team");
    }
}
