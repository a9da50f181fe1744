//! What the console asks of the server that it is part of.
//!
//! Not here: the answers (the binary).

use std::net::IpAddr;
use std::pin::Pin;

use margay_iam::registry::Identity;
use serde_json::Value;

/// The right to the pages of the server.
pub(crate) const STATUS: [&str; 2] = ["admin:Status", "arn:aws:margay:::server"];

/// A caller whose rights are asked for: who, and from where.
#[derive(Clone, Copy, Debug)]
pub struct Who<'w> {
    pub identity: &'w Identity,
    pub peer: IpAddr,
}

/// Whether each of some questions is allowed; the error is one line.
pub type Rights<'r> = Pin<Box<dyn Future<Output = Result<Vec<bool>, String>> + Send + 'r>>;

/// The pages of a server; `metrics` and `status` are called only for those who may.
pub trait Pages: Send + Sync + std::fmt::Debug {
    /// The page that Prometheus reads.
    fn metrics(&self) -> Pin<Box<dyn Future<Output = String> + Send + '_>>;

    /// What `margay status` shows.
    fn status(&self) -> Value;

    /// Whether a caller may do what `[{"action": "s3:GetObject", "resource": "bucket/key"}]` names, by the server's own decision.
    fn may<'r>(&'r self, who: Who<'r>, questions: &'r Value) -> Rights<'r>;
}
