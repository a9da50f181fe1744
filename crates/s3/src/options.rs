//! What an operator may set about the S3 door.

use std::time::Duration;

use crate::auth;

/// Settings of the door; times are spans.
#[derive(Clone, Debug)]
pub struct Options {
    /// What `GetBucketLocation` and `x-amz-bucket-region` say.
    pub region: String,
    /// Names under which buckets are subdomains (virtual-host style), without a port.
    pub domains: Vec<String>,
    /// The owner of everything, as ACLs and listings show it.
    pub owner_id: String,
    pub owner_name: String,
    /// What `x-amz-expected-bucket-owner` must be.
    pub account_id: String,
    /// Longest wait for the next bytes of a request's body.
    pub body_idle_max: Duration,
    pub auth: auth::Options,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            region: "us-east-1".to_owned(),
            domains: Vec::new(),
            owner_id: "margay".to_owned(),
            owner_name: "margay".to_owned(),
            account_id: "000000000000".to_owned(),
            body_idle_max: Duration::from_secs(30),
            auth: auth::Options::default(),
        }
    }
}
