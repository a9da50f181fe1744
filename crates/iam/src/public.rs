//! Whether a bucket's policy lets the public in.
//!
//! Why: `BlockPublicPolicy`, `RestrictPublicBuckets` and `GetBucketPolicyStatus` need AWS's definition: an allow for
//!      everybody that no condition ties to fixed values.

use crate::document::Policy;
use crate::statement::Listed;

/// Keys that tie an allow to somebody when they have fixed values (in normal form).
const CONFINING: &[&str] = &[
    "aws:principalaccount",
    "aws:principalarn",
    "aws:principalorgid",
    "aws:sourceaccount",
    "aws:sourcearn",
    "aws:sourceip",
    "aws:sourceowner",
    "aws:sourcevpc",
    "aws:sourcevpce",
    "aws:userid",
    "aws:username",
    "s3:dataaccesspointaccount",
    "s3:dataaccesspointarn",
];

impl Policy {
    /// Whether a statement allows something to everybody.
    pub fn is_public(&self) -> bool {
        self.statements.iter().any(|statement| {
            let everybody = match &statement.principals {
                Some(Listed::These(principals)) => principals.has_everybody(),
                // Everybody but some.
                Some(Listed::AllBut(_)) => true,
                None => false,
            };
            let confined = statement.conditions.iter().any(|condition| condition.confines(CONFINING));
            statement.allows && everybody && !confined
        })
    }
}
