//! Keys from the server beside a container: ECS, EKS pod identities, and programs that imitate them.
//!
//! Invariants: C1 the authorization is sent to hosts of this machine only, or over https.
//! Not here:   instance metadata (`instance`).

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::Uri;
use margay_env::{Env, files};

use super::Missing;
use super::http::Question;
use super::keys::Keys;
use super::variables::Variables;

/// The server of ECS.
const ECS: &str = "http://169.254.170.2";
/// Addresses besides the loopback that plain http may go to: ECS, and EKS.
const LINK_LOCAL: [&str; 3] = ["169.254.170.2", "169.254.170.23", "fd00:ec2::23"];
const CONTAINER_TIME_MAX: Duration = Duration::from_secs(5);
/// Maximum size of an authorization, in bytes.
const TOKEN_BYTES_MAX: u64 = 64 << 10;

/// The URL, if the environment names one.
pub(super) fn url(variables: &Variables) -> Option<String> {
    let relative = variables.get("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI").map(|path| format!("{ECS}{path}"));
    relative.or_else(|| variables.get("AWS_CONTAINER_CREDENTIALS_FULL_URI").map(str::to_owned))
}

pub(super) async fn keys(env: &Env, variables: &Variables, url: &str) -> Result<Keys, Missing> {
    if !is_allowed(url) {
        return Err("plain http is for this machine's own addresses only".to_owned().into());
    }
    let mut question = Question::get(url.to_owned(), CONTAINER_TIME_MAX);
    let ca = variables.get("AWS_CA_BUNDLE").map(PathBuf::from);
    question.ca = ca.as_deref();
    let token = match variables.get("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE") {
        // It is replaced before it ends, so it is read each time.
        Some(file) => {
            let bytes =
                files::read(env, Path::new(file), TOKEN_BYTES_MAX).map_err(|error| format!("{file}: {error}"))?;
            Some(String::from_utf8_lossy(&bytes).trim().to_owned())
        }
        None => variables.get("AWS_CONTAINER_AUTHORIZATION_TOKEN").map(str::to_owned),
    };
    question.headers.extend(token.map(|token| ("authorization", token)));
    Ok(Keys::from_json(&question.ask().await?.success()?, "Token")?)
}

fn is_allowed(url: &str) -> bool {
    let Ok(uri) = url.parse::<Uri>() else { return false };
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
    let is_near = || {
        let address = host.parse::<IpAddr>();
        host == "localhost" || LINK_LOCAL.contains(&host) || address.is_ok_and(|address| address.is_loopback())
    };
    uri.scheme_str() == Some("https") || is_near()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_authorization_does_not_leave_the_machine_in_plain_text() {
        for near in ["https://far.example/x", "http://127.0.0.1:1/x", "http://[::1]/", "http://169.254.170.23/v1"] {
            assert!(is_allowed(near), "{near}");
        }
        for far in ["http://far.example/x", "http://10.0.0.1/", "", "http://169.254.170.2.far.example/"] {
            assert!(!is_allowed(far), "{far}");
        }
    }
}
