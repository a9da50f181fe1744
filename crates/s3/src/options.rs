//! Options of the S3 door.

use margay_iam::registry::ROOT_ACCOUNT;
pub use margay_select::Dialect;

use crate::auth;
use crate::body::DecoderOptions;

/// Settings of the door.
#[derive(Clone, Debug)]
pub struct Options {
    /// The region in `GetBucketLocation` and `x-amz-bucket-region`.
    pub region: String,
    /// Names under which buckets are subdomains (virtual-host style), without a port.
    pub domains: Vec<String>,
    /// Names under which subdomains are the buckets' websites, without a port.
    pub website_domains: Vec<String>,
    /// The account of the root keys: its canonical id, the name that listings show, and its id of twelve digits.
    pub owner_id: String,
    pub owner_name: String,
    pub account_id: String,
    /// Whether clients connect over TLS (`aws:SecureTransport`).
    pub secure: bool,
    /// Whether clients may send keys of their own (SSE-C): not on connections that others can read.
    pub customer_keys: bool,
    /// Valid last parts of notification ARNs.
    pub notification_targets: Vec<String>,
    /// The SQL dialect of SelectObjectContent.
    pub select_dialect: Dialect,
    /// The name of the only bucket, which is another store's: other buckets of the volume are not shown, and what that store
    /// does not get is refused.
    pub only_bucket: Option<String>,
    pub auth: auth::Options,
    pub decoder: DecoderOptions,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            region: "us-east-1".to_owned(),
            domains: Vec::new(),
            website_domains: Vec::new(),
            owner_id: "margay".to_owned(),
            owner_name: "margay".to_owned(),
            account_id: ROOT_ACCOUNT.to_owned(),
            secure: false,
            customer_keys: false,
            notification_targets: Vec::new(),
            select_dialect: Dialect::Aws,
            only_bucket: None,
            auth: auth::Options::default(),
            decoder: DecoderOptions::default(),
        }
    }
}
