//! What an operator may set about the S3 door.

use crate::auth;
use crate::body::DecoderOptions;

/// Settings of the door.
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
    pub auth: auth::Options,
    pub decoder: DecoderOptions,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            region: "us-east-1".to_owned(),
            domains: Vec::new(),
            owner_id: "margay".to_owned(),
            owner_name: "margay".to_owned(),
            account_id: "000000000000".to_owned(),
            auth: auth::Options::default(),
            decoder: DecoderOptions::default(),
        }
    }
}
