//! The signature of a browser form's policy, in Version 4 or 2.
//!
//! Why:        the browser has no key; the author of the form signed a policy for it.
//! Invariants: F1 the signature covers only the policy, so a field is trusted only as far as the policy names it.
//! Not here:   the policy itself (the crate's `form`).

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::claim::CredentialText;
use super::date::AmzDate;
use super::v4::check_token;
use super::{AuthError, Credential, CredentialSource, Credentials, Mismatch, Sender, Verifier, Version, hex, v2};

impl Verifier {
    /// Authenticates a form; `field` returns its fields by their lower-case names.
    pub(crate) fn verify_form<'f>(
        &self,
        field: impl Fn(&str) -> Option<&'f str>,
        credentials: &dyn Credentials,
    ) -> Result<Sender, AuthError> {
        let is_v4 = ["x-amz-algorithm", "x-amz-credential", "x-amz-signature"].iter().any(|name| field(name).is_some());
        let is_v2 = ["awsaccesskeyid", "signature"].iter().any(|name| field(name).is_some());
        let need = |name: &'static str| field(name).ok_or(AuthError::FormFieldMissing(name));
        match (is_v4, is_v2) {
            (false, false) if field("policy").is_none() => Ok(Sender::Anonymous),
            (true, true) => Err(AuthError::TwoMechanisms),
            (true, false) => self.verify_form_v4(need("policy")?, need, field("x-amz-security-token"), credentials),
            (false, _) if !self.options.version_2 => Err(AuthError::SignatureV2),
            (false, _) => verify_form_v2(need("policy")?, need, field("x-amz-security-token"), credentials),
        }
    }

    fn verify_form_v4<'f>(
        &self,
        policy: &str,
        need: impl Fn(&'static str) -> Result<&'f str, AuthError>,
        token: Option<&str>,
        credentials: &dyn Credentials,
    ) -> Result<Sender, AuthError> {
        let malformed = |reason| AuthError::Malformed { given: CredentialSource::Form, reason };
        if need("x-amz-algorithm")? != "AWS4-HMAC-SHA256" {
            return Err(malformed("X-Amz-Algorithm only supports \"AWS4-HMAC-SHA256\""));
        }
        let text = CredentialText::parse(need("x-amz-credential")?, CredentialSource::Form, self.options.service)?;
        let date = AmzDate::parse(need("x-amz-date")?.as_bytes())
            .ok_or(malformed("X-Amz-Date must be in the ISO8601 Long Format \"yyyyMMdd'T'HHmmss'Z'\""))?;
        text.check_day(&date, CredentialSource::Form)?;
        let given = need("x-amz-signature")?;
        let signature = hex::decode(given.as_bytes()).ok_or(malformed("X-Amz-Signature must be 64 hex digits"))?;
        let credential = known(text.access_key, token, credentials)?;
        let (key, is_new) = self.signing_key(text.access_key, &credential.secret, date.day(), text.region);
        if !key.verifies(policy.as_bytes(), &signature) {
            return Err(mismatch(text.access_key, given, policy));
        }
        if is_new {
            self.keys.put(text.access_key, &credential.secret, &key);
        }
        Ok(Sender::Key { access_key: text.access_key.to_owned(), version: Version::V4, given: CredentialSource::Form })
    }
}

fn verify_form_v2<'f>(
    policy: &str,
    need: impl Fn(&'static str) -> Result<&'f str, AuthError>,
    token: Option<&str>,
    credentials: &dyn Credentials,
) -> Result<Sender, AuthError> {
    let (access_key, given) = (need("awsaccesskeyid")?, need("signature")?);
    let credential = known(access_key, token, credentials)?;
    let signature = STANDARD.decode(given.trim()).unwrap_or_default();
    if !v2::verifies(&v2::key(&credential.secret), policy.as_bytes(), &signature) {
        return Err(mismatch(access_key, given, policy));
    }
    Ok(Sender::Key { access_key: access_key.to_owned(), version: Version::V2, given: CredentialSource::Form })
}

fn known(access_key: &str, token: Option<&str>, credentials: &dyn Credentials) -> Result<Credential, AuthError> {
    let credential = credentials.find(access_key).ok_or_else(|| AuthError::UnknownAccessKey(access_key.to_owned()))?;
    check_token(credential.session_token.as_deref(), token)?;
    Ok(credential)
}

fn mismatch(access_key: &str, given: &str, policy: &str) -> AuthError {
    AuthError::Mismatch(Box::new(Mismatch {
        access_key: access_key.to_owned(),
        signature_provided: given.to_owned(),
        string_to_sign: policy.to_owned(),
        canonical_request: None,
    }))
}
