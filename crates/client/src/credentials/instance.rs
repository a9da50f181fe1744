//! Keys of the role of a virtual machine, from its metadata server.
//!
//! Invariants: I1 the session token of version 2 is always used: without it a request that somebody forged could read the
//!                keys.
//!             I2 a machine without such a server is told so within a second.
//! Not here:   other metadata.

use std::time::Duration;

use http::Method;

use super::Missing;
use super::http::Question;
use super::keys::Keys;
use super::variables::Variables;

const ADDRESS: &str = "http://169.254.169.254";
const ADDRESS_IPV6: &str = "http://[fd00:ec2::254]";
/// How long the session token is valid.
const TOKEN_SECONDS: u32 = 300;
/// Most machines have no such server, and a person waits.
const FIRST_TIME_MAX: Duration = Duration::from_secs(1);
/// Once it has answered.
const NEXT_TIME_MAX: Duration = Duration::from_secs(5);
const ROLES: &str = "latest/meta-data/iam/security-credentials/";

/// URL of the server, unless it is not to be asked.
pub(super) fn url(variables: &Variables) -> Option<String> {
    if variables.is_true("AWS_EC2_METADATA_DISABLED") {
        return None;
    }
    let is_ipv6 =
        variables.get("AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE").is_some_and(|mode| mode.eq_ignore_ascii_case("ipv6"));
    let usual = if is_ipv6 { ADDRESS_IPV6 } else { ADDRESS };
    let url = variables.get("AWS_EC2_METADATA_SERVICE_ENDPOINT").unwrap_or(usual);
    Some(url.trim_end_matches('/').to_owned())
}

pub(super) async fn keys(url: &str) -> Result<Keys, Missing> {
    let wish = ("x-aws-ec2-metadata-token-ttl-seconds", TOKEN_SECONDS.to_string());
    let question = Question {
        method: Method::PUT,
        headers: vec![wish],
        ..Question::get(format!("{url}/latest/api/token"), FIRST_TIME_MAX)
    };
    let token = text(&question.ask().await?.success()?);
    let get = async |path: &str| {
        let mut question = Question::get(format!("{url}/{path}"), NEXT_TIME_MAX);
        question.headers.push(("x-aws-ec2-metadata-token", token.clone()));
        question.ask().await
    };
    let roles = get(ROLES).await?;
    if roles.status == 404 {
        return Err("this machine has no role".to_owned().into());
    }
    let roles = text(&roles.success()?);
    let role = roles.lines().next().unwrap_or_default().trim();
    if role.is_empty() {
        return Err("this machine has no role".to_owned().into());
    }
    Ok(Keys::from_json(&get(&format!("{ROLES}{role}")).await?.success()?, "Token")?)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim().to_owned()
}
