//! The places where keys may be, in the order of AWS's own tools.
//!
//! Why:        whoever has keys for another S3 program has them for this one.
//! Invariants: P1 a place that is named and does not work is an error: another identity is never taken instead.
//!             P2 if there are no keys, the error names every place.
//! Not here:   keeping and renewing keys (the folder's `mod.rs`).

use std::time::Duration;

use margay_env::Env;

use super::keys::{Credentials, Keys};
use super::profile::Profile;
use super::variables::Variables;
use super::web_identity::WebIdentity;
use super::{Missing, container, instance, process};

/// A file is read again after this time, so that new keys in it are taken.
const FILE_LOOK_EVERY: Duration = Duration::from_secs(1);

/// Where to look.
#[derive(Clone, Debug)]
pub struct Places {
    pub variables: Variables,
    /// A profile that the user named for this command: its keys come before those of the environment.
    pub profile: Option<String>,
}

/// Keys, and when to look again even if they do not end.
#[derive(Debug)]
pub(super) struct Finding {
    pub(super) keys: Keys,
    pub(super) look_after: Option<Duration>,
}

impl Finding {
    fn of(keys: Keys) -> Finding {
        Finding { keys, look_after: None }
    }
}

impl Places {
    /// The error is one line.
    pub(super) async fn find(&self, env: &Env) -> Result<Finding, Missing> {
        let (variables, is_named) = (&self.variables, self.profile.is_some());
        let mut looked = Vec::new();
        if is_named {
            looked.push("not the environment, since a profile was named".to_owned());
        } else if let Some(keys) = of_environment(variables)? {
            return Ok(Finding::of(keys));
        } else {
            looked.push("the environment (no AWS_ACCESS_KEY_ID)".to_owned());
        }
        let profile = Profile::load(env, variables, self.profile.as_deref())?;
        match WebIdentity::of(variables, &profile, is_named) {
            Some(identity) => {
                let told = |why| format!("the web identity cannot be used at {}: {why}", identity.endpoint);
                return identity.keys(env).await.map(Finding::of).map_err(|missing| missing.told(told));
            }
            None => looked.push("a web identity (no AWS_WEB_IDENTITY_TOKEN_FILE and AWS_ROLE_ARN)".to_owned()),
        }
        if let Some(finding) = of_profile(&profile).await? {
            return Ok(finding);
        }
        looked.extend(profile.looked);
        match container::url(variables) {
            Some(url) => {
                let told = |why| format!("no keys from the container's server {url}: {why}");
                let keys = container::keys(env, variables, &url).await;
                return keys.map(Finding::of).map_err(|missing| missing.told(told));
            }
            None => {
                looked.push("a container's server (no AWS_CONTAINER_CREDENTIALS_RELATIVE_URI or _FULL_URI)".to_owned())
            }
        }
        // Without an answer it is not known whether this machine gets its keys there.
        let mut is_late = false;
        match instance::url(variables) {
            Some(url) => match instance::keys(&url).await {
                Ok(keys) => return Ok(Finding::of(keys)),
                Err(missing) => {
                    is_late = missing.is_late;
                    looked.push(format!("the metadata of the machine at {url} ({})", missing.why));
                }
            },
            None => looked.push("not the metadata of the machine (AWS_EC2_METADATA_DISABLED)".to_owned()),
        }
        Err(Missing { why: format!("no keys were found; looked at: {}", looked.join("; ")), is_late })
    }
}

fn of_environment(variables: &Variables) -> Result<Option<Keys>, String> {
    match (variables.get("AWS_ACCESS_KEY_ID"), variables.get("AWS_SECRET_ACCESS_KEY")) {
        (Some(access_key), Some(secret_key)) => {
            let pair = Credentials { access_key: access_key.to_owned(), secret_key: secret_key.to_owned() };
            Ok(Some(Keys::permanent(pair, variables.get("AWS_SESSION_TOKEN").map(str::to_owned))))
        }
        (None, None) => Ok(None),
        (Some(_), None) => {
            Err("AWS_ACCESS_KEY_ID is set and AWS_SECRET_ACCESS_KEY is not: set both, or none".to_owned())
        }
        (None, Some(_)) => {
            Err("AWS_SECRET_ACCESS_KEY is set and AWS_ACCESS_KEY_ID is not: set both, or none".to_owned())
        }
    }
}

async fn of_profile(profile: &Profile) -> Result<Option<Finding>, Missing> {
    let name = &profile.name;
    for section in [&profile.credentials, &profile.config] {
        let setting = |name: &str| section.get(name).filter(|value| !value.is_empty()).cloned();
        match (setting("aws_access_key_id"), setting("aws_secret_access_key")) {
            (Some(access_key), Some(secret_key)) => {
                let keys = Keys::permanent(Credentials { access_key, secret_key }, setting("aws_session_token"));
                return Ok(Some(Finding { keys, look_after: Some(FILE_LOOK_EVERY) }));
            }
            (None, None) => {}
            _ => {
                let why = format!(
                    "the profile {name} has half a pair of keys: it needs aws_access_key_id and aws_secret_access_key"
                );
                return Err(why.into());
            }
        }
        if let Some(command) = setting("credential_process") {
            let told = |why| format!("the credential_process of the profile {name} {why}");
            return process::run(&command).await.map(Finding::of).map(Some).map_err(|missing| missing.told(told));
        }
    }
    let unknown = ["role_arn", "sso_session", "sso_start_url"].into_iter().find(|word| profile.get(word).is_some());
    match unknown {
        Some(word) => Err(Missing::from(format!(
            "the profile {name} has {word}, which margay cannot use: get keys by credential_process, such as \
             `aws configure export-credentials --profile {name}`"
        ))),
        None => Ok(None),
    }
}
