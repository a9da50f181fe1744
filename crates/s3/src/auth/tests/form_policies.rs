//! Signatures of forms: AWS's published example, and what must not pass.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::*;

/// "Example: Browser-Based Upload using HTTP POST (Using AWS Signature Version 4)": the policy as printed, with CRLF.
const POLICY: &str = concat!(
    "{ \"expiration\": \"2015-12-30T12:00:00.000Z\",\r\n",
    "  \"conditions\": [\r\n",
    "    {\"bucket\": \"sigv4examplebucket\"},\r\n",
    "    [\"starts-with\", \"$key\", \"user/user1/\"],\r\n",
    "    {\"acl\": \"public-read\"},\r\n",
    "    {\"success_action_redirect\": \"http://sigv4examplebucket.s3.amazonaws.com/successful_upload.html\"},\r\n",
    "    [\"starts-with\", \"$Content-Type\", \"image/\"],\r\n",
    "    {\"x-amz-meta-uuid\": \"14365123651274\"},\r\n",
    "    {\"x-amz-server-side-encryption\": \"AES256\"},\r\n",
    "    [\"starts-with\", \"$x-amz-meta-tag\", \"\"],\r\n",
    "\r\n",
    "    {\"x-amz-credential\": \"AKIAIOSFODNN7EXAMPLE/20151229/us-east-1/s3/aws4_request\"},\r\n",
    "    {\"x-amz-algorithm\": \"AWS4-HMAC-SHA256\"},\r\n",
    "    {\"x-amz-date\": \"20151229T000000Z\" }\r\n",
    "  ]\r\n",
    "}",
);
const SIGNATURE: &str = "8afdbf4008c03f22c2cd3cdb72e4afbb1f6a588f3255ac628749a66d7f09699e";

fn published() -> Vec<(&'static str, String)> {
    vec![
        ("policy", STANDARD.encode(POLICY)),
        ("x-amz-algorithm", "AWS4-HMAC-SHA256".to_owned()),
        ("x-amz-credential", format!("{ACCESS_KEY}/20151229/us-east-1/s3/aws4_request")),
        ("x-amz-date", "20151229T000000Z".to_owned()),
        ("x-amz-signature", SIGNATURE.to_owned()),
    ]
}

fn signed_v2(policy: &str) -> Vec<(&'static str, String)> {
    let signature = ring::hmac::sign(&v2::key(&Secret::new(SECRET)), policy.as_bytes());
    vec![
        ("policy", policy.to_owned()),
        ("awsaccesskeyid", ACCESS_KEY.to_owned()),
        ("signature", STANDARD.encode(signature)),
    ]
}

fn verify(fields: &[(&'static str, String)]) -> Result<Sender, AuthError> {
    let find = |name: &str| fields.iter().find(|(own, _)| *own == name).map(|(_, value)| value.as_str());
    Verifier::new(Options::default()).verify_form(find, &Keys)
}

fn sender(version: Version) -> Sender {
    Sender::Key { access_key: ACCESS_KEY.to_owned(), version, given: CredentialSource::Form }
}

#[test]
fn published_form() {
    assert_eq!(verify(&published()), Ok(sender(Version::V4)));
}

#[test]
fn both_versions_cover_the_policy() {
    assert_eq!(verify(&signed_v2("e30=")), Ok(sender(Version::V2)));
    for fields in [published(), signed_v2("e30=")] {
        let mut changed = fields.clone();
        changed[0].1.insert(0, 'A');
        assert_eq!(verify(&changed).unwrap_err().code(), Code::SignatureDoesNotMatch);
        let signature = fields.len() - 1;
        for given in 0..fields[signature].1.len() - 1 {
            let mut changed = fields.clone();
            let mut bytes = std::mem::take(&mut changed[signature].1).into_bytes();
            bytes[given] = if bytes[given] == b'0' { b'1' } else { b'0' };
            changed[signature].1 = String::from_utf8(bytes).unwrap();
            assert_eq!(verify(&changed).unwrap_err().code(), Code::SignatureDoesNotMatch, "{given}");
        }
    }
}

#[test]
fn nothing_may_be_missing() {
    assert_eq!(verify(&[]), Ok(Sender::Anonymous));
    for fields in [published(), signed_v2("e30=")] {
        for missing in 0..fields.len() {
            let mut fields = fields.clone();
            let (name, _) = fields.remove(missing);
            let error = verify(&fields).unwrap_err();
            assert_eq!(error.code(), Code::InvalidArgument, "{name}");
        }
    }
    let both = [published(), signed_v2("e30=")].concat();
    assert_eq!(verify(&both).unwrap_err(), AuthError::TwoMechanisms);
}

#[test]
fn malformed_fields() {
    let with = |name: &str, value: &str| {
        let mut fields = published();
        for field in &mut fields {
            if field.0 == name {
                field.1 = value.to_owned();
            }
        }
        verify(&fields).unwrap_err().code()
    };
    assert_eq!(with("x-amz-algorithm", "AWS4-HMAC-SHA1"), Code::InvalidArgument);
    assert_eq!(with("x-amz-date", "2015-12-29"), Code::InvalidArgument);
    assert_eq!(with("x-amz-date", "20151230T000000Z"), Code::InvalidArgument);
    assert_eq!(with("x-amz-credential", "x"), Code::InvalidArgument);
    assert_eq!(with("x-amz-signature", "x"), Code::InvalidArgument);
    assert_eq!(with("x-amz-credential", "NOBODY/20151229/us-east-1/s3/aws4_request"), Code::InvalidAccessKeyId);
    let other_region = format!("{ACCESS_KEY}/20151229/eu-west-1/s3/aws4_request");
    assert_eq!(with("x-amz-credential", &other_region), Code::SignatureDoesNotMatch);
    let mut token = published();
    token.push(("x-amz-security-token", "t".to_owned()));
    assert_eq!(verify(&token).unwrap_err().code(), Code::InvalidToken);
    let off = Verifier::new(Options { version_2: false, ..Options::default() });
    let fields = signed_v2("e30=");
    let find = |name: &str| fields.iter().find(|(own, _)| *own == name).map(|(_, value)| value.as_str());
    assert_eq!(off.verify_form(find, &Keys).unwrap_err(), AuthError::SignatureV2);
}
