//! Keys for a token of an identity provider: AssumeRoleWithWebIdentity of STS.
//!
//! Why:        a pod of Kubernetes, or a job of a build server, has such a token in a file and no keys.
//! Invariants: W1 the file is read for each request: its owner replaces it before the token ends.
//! Not here:   assuming a role with other keys.

use std::path::{Path, PathBuf};
use std::time::Duration;

use http::Method;
use margay_env::{Env, files};
use margay_s3::xml::read::walk;

use super::Missing;
use super::http::Question;
use super::keys::{Credentials, Keys, time};
use super::profile::{Profile, REGION_DEFAULT};
use super::variables::Variables;
use crate::encode::encode_into;
use crate::xml;

/// Maximum size of a token, in bytes.
const TOKEN_BYTES_MAX: u64 = 64 << 10;
/// For the whole request.
const STS_TIME_MAX: Duration = Duration::from_secs(10);

/// What the request needs.
#[derive(Debug)]
pub(super) struct WebIdentity {
    token_file: PathBuf,
    role: String,
    session: String,
    /// URL of STS.
    pub(super) endpoint: String,
    ca: Option<PathBuf>,
}

impl WebIdentity {
    /// `None`: neither environment nor profile name a token and a role.
    pub(super) fn of(variables: &Variables, profile: &Profile, is_named: bool) -> Option<WebIdentity> {
        let variable = |name: &str| variables.get(name).filter(|_| !is_named);
        let of_profile = || Some((profile.get("web_identity_token_file")?, profile.get("role_arn")?));
        let of_environment = variable("AWS_WEB_IDENTITY_TOKEN_FILE").zip(variable("AWS_ROLE_ARN"));
        let (token_file, role) = of_environment.or_else(of_profile)?;
        let session = variable("AWS_ROLE_SESSION_NAME").or_else(|| profile.get("role_session_name"));
        let region = variables.first(&["AWS_REGION", "AWS_DEFAULT_REGION"]).or_else(|| profile.get("region"));
        let endpoint =
            variables.first(&["AWS_ENDPOINT_URL_STS", "AWS_ENDPOINT_URL"]).or_else(|| profile.endpoint("sts"));
        let usual = || format!("https://sts.{}.amazonaws.com", region.unwrap_or(REGION_DEFAULT));
        Some(WebIdentity {
            token_file: PathBuf::from(token_file),
            role: role.to_owned(),
            session: session.unwrap_or("margay").to_owned(),
            endpoint: endpoint.map_or_else(usual, str::to_owned),
            ca: variables.get("AWS_CA_BUNDLE").or_else(|| profile.get("ca_bundle")).map(PathBuf::from),
        })
    }

    pub(super) async fn keys(&self, env: &Env) -> Result<Keys, Missing> {
        let token = files::read(env, &self.token_file, TOKEN_BYTES_MAX);
        let token = token.map_err(|error| format!("{}: {error}", self.token_file.display()))?;
        let token = String::from_utf8_lossy(&token);
        let mut body = "Action=AssumeRoleWithWebIdentity&Version=2011-06-15".to_owned();
        let parameters =
            [("RoleArn", self.role.as_str()), ("RoleSessionName", &self.session), ("WebIdentityToken", token.trim())];
        for (name, value) in parameters {
            body.push_str(&format!("&{name}="));
            encode_into(&mut body, value, false);
        }
        let question = Question {
            method: Method::POST,
            url: format!("{}/", self.endpoint.trim_end_matches('/')),
            headers: vec![("content-type", "application/x-www-form-urlencoded".to_owned())],
            body,
            ca: self.ca.as_deref().map(Path::new),
            time_max: STS_TIME_MAX,
        };
        let reply = question.ask().await?;
        if reply.status != 200 {
            let (code, message) = xml::parse_error(&reply.body);
            let why = format!("it answered {} {code} {message}", reply.status).trim_end().to_owned();
            return Err(Missing { why, is_late: reply.is_late() });
        }
        Ok(parse(&reply.body)?)
    }
}

fn parse(document: &[u8]) -> Result<Keys, String> {
    let mut pair = Credentials { access_key: String::new(), secret_key: String::new() };
    let (mut token, mut expires) = (None, None);
    let walked = walk(document, &mut |path, text| {
        if let Some((_, name)) = path.split_once("AssumeRoleWithWebIdentityResult/Credentials/") {
            match name {
                "AccessKeyId" => pair.access_key = text.to_owned(),
                "SecretAccessKey" => pair.secret_key = text.to_owned(),
                "SessionToken" => token = Some(text.to_owned()),
                "Expiration" => expires = Some(text.to_owned()),
                _ => {}
            }
        }
        Ok(())
    });
    walked.map_err(|malformed| format!("an answer that is no XML: {malformed}"))?;
    if pair.access_key.is_empty() || pair.secret_key.is_empty() {
        return Err("an answer without keys".to_owned());
    }
    let expires = expires.map(|text| time(&text)).transpose()?;
    Ok(Keys { expires, ..Keys::permanent(pair, token) })
}
