//! Built-in policies, with the ARNs and the meaning of AWS's managed policies.
//!
//! Why:      scripts attach `arn:aws:iam::aws:policy/AmazonS3ReadOnlyAccess` and expect it to exist.
//! Not here: rights that AWS's policies grant for other services.

use super::Named;

/// The word in place of the account in their ARNs.
pub const ACCOUNT: &str = "aws";

/// Name and document, sorted by name.
pub const MANAGED: &[(&str, &str)] = &[
    ("AdministratorAccess", r#"{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"*","Resource":"*"}]}"#),
    (
        "AmazonS3FullAccess",
        r#"{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"s3:*","Resource":"*"}]}"#,
    ),
    (
        "AmazonS3ReadOnlyAccess",
        r#"{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":["s3:Get*","s3:List*"],"Resource":"*"}]}"#,
    ),
    ("IAMFullAccess", r#"{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"iam:*","Resource":"*"}]}"#),
    (
        "IAMReadOnlyAccess",
        r#"{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":["iam:Get*","iam:List*"],"Resource":"*"}]}"#,
    ),
];

/// The ARN of one of them.
pub fn arn(name: &str) -> String {
    format!("arn:aws:iam::{ACCOUNT}:policy/{name}")
}

/// The name of the policy with this ARN.
pub fn name_of(arn: &str) -> Option<&'static str> {
    find(&Named::from(arn)).filter(|(name, _)| self::arn(name) == arn).map(|(name, _)| name)
}

pub(super) fn find(named: &Named) -> Option<(&'static str, &'static str)> {
    let found = MANAGED.iter().find(|(name, _)| named.account.as_deref() == Some(ACCOUNT) && *name == named.name);
    found.copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::{Kind, Policy};

    #[test]
    fn all_can_be_read_and_found() {
        assert!(MANAGED.is_sorted_by_key(|(name, _)| *name));
        for (name, document) in MANAGED {
            assert!(Policy::parse(Kind::Identity, document.as_bytes()).is_ok(), "{name}");
            assert_eq!(name_of(&arn(name)), Some(*name));
        }
        for arn in
            ["AdministratorAccess", "arn:aws:iam::000000000000:policy/AdministratorAccess", "arn:aws:iam::aws:policy/x"]
        {
            assert_eq!(name_of(arn), None, "{arn}");
        }
    }
}
