//! The actions of S3 and STS.
//!
//! Why:      AWS refuses a policy that names an unknown action, and so does this.
//! Not here: which request is which action (the S3 door).

/// Sorted by name, in lower case, without the service's prefix.
const S3: &[&str] = &[
    "abortmultipartupload",
    "bypassgovernanceretention",
    "createbucket",
    "deletebucket",
    "deletebucketpolicy",
    "deletebucketwebsite",
    "deleteobject",
    "deleteobjecttagging",
    "deleteobjectversion",
    "deleteobjectversiontagging",
    "getaccelerateconfiguration",
    "getaccountpublicaccessblock",
    "getanalyticsconfiguration",
    "getbucketacl",
    "getbucketcors",
    "getbucketlocation",
    "getbucketlogging",
    "getbucketnotification",
    "getbucketobjectlockconfiguration",
    "getbucketownershipcontrols",
    "getbucketpolicy",
    "getbucketpolicystatus",
    "getbucketpublicaccessblock",
    "getbucketrequestpayment",
    "getbuckettagging",
    "getbucketversioning",
    "getbucketwebsite",
    "getencryptionconfiguration",
    "getintelligenttieringconfiguration",
    "getinventoryconfiguration",
    "getlifecycleconfiguration",
    "getmetricsconfiguration",
    "getobject",
    "getobjectacl",
    "getobjectattributes",
    "getobjectlegalhold",
    "getobjectretention",
    "getobjecttagging",
    "getobjecttorrent",
    "getobjectversion",
    "getobjectversionacl",
    "getobjectversionattributes",
    "getobjectversionforreplication",
    "getobjectversiontagging",
    "getobjectversiontorrent",
    "getreplicationconfiguration",
    "listallmybuckets",
    "listbucket",
    "listbucketmultipartuploads",
    "listbucketversions",
    "listmultipartuploadparts",
    "objectowneroverridetobucketowner",
    "putaccelerateconfiguration",
    "putaccountpublicaccessblock",
    "putanalyticsconfiguration",
    "putbucketacl",
    "putbucketcors",
    "putbucketlogging",
    "putbucketnotification",
    "putbucketobjectlockconfiguration",
    "putbucketownershipcontrols",
    "putbucketpolicy",
    "putbucketpublicaccessblock",
    "putbucketrequestpayment",
    "putbuckettagging",
    "putbucketversioning",
    "putbucketwebsite",
    "putencryptionconfiguration",
    "putintelligenttieringconfiguration",
    "putinventoryconfiguration",
    "putlifecycleconfiguration",
    "putmetricsconfiguration",
    "putobject",
    "putobjectacl",
    "putobjectlegalhold",
    "putobjectretention",
    "putobjecttagging",
    "putobjectversionacl",
    "putobjectversiontagging",
    "putreplicationconfiguration",
    "renameobject",
    "replicatedelete",
    "replicateobject",
    "replicatetags",
    "restoreobject",
];

const STS: &[&str] = &["assumerole", "assumerolewithwebidentity", "getcalleridentity", "getsessiontoken", "tagsession"];

/// Whether this is a known action, such as `s3:GetObject`.
pub fn is_action(name: &str) -> bool {
    let Some((service, action)) = name.split_once(':') else { return false };
    let action = action.to_ascii_lowercase();
    match service.to_ascii_lowercase().as_str() {
        "s3" => S3.binary_search(&action.as_str()).is_ok(),
        "sts" => STS.binary_search(&action.as_str()).is_ok(),
        _ => false,
    }
}

/// Whether a policy may name it: an action of S3 or STS, a pattern that matches one, or any action of another service,
/// which has no effect here.
pub(crate) fn is_action_pattern(text: &str) -> bool {
    if text == "*" {
        return true;
    }
    let Some((service, action)) = text.split_once(':') else { return false };
    let is_service = !service.is_empty() && service.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    let ours = service.eq_ignore_ascii_case("s3") || service.eq_ignore_ascii_case("sts");
    is_service && !action.is_empty() && (!ours || action.contains(['*', '?']) || is_action(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actions_are_sorted_and_found() {
        assert!(S3.is_sorted() && STS.is_sorted());
        for good in ["*", "s3:*", "s3:Get*", "S3:getobject", "sts:AssumeRole", "iam:GetUser", "s3-object-lambda:X"] {
            assert!(is_action_pattern(good), "{good}");
        }
        for bad in ["", "GetObject", "s3:", "s3:GetObjekt", ":GetObject", "s*:GetObject", "sts:Assume"] {
            assert!(!is_action_pattern(bad), "{bad}");
        }
    }
}
