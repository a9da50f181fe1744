//! Whether a bucket's policy grants public access.
//!
//! Why: `BlockPublicPolicy`, `RestrictPublicBuckets` and `GetBucketPolicyStatus` need AWS's definition: an allow for
//!      everybody that no condition restricts to fixed values.

use crate::document::Policy;
use crate::statement::Listed;

/// Keys that make an allow non-public when a condition gives them fixed values (in normal form).
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
    /// Whether a statement allows anything to everybody.
    pub fn is_public(&self) -> bool {
        self.statements.iter().any(|statement| {
            let everybody = match &statement.principals {
                Some(Listed::These(principals)) => principals.has_everybody(),
                // Everybody except the listed ones.
                Some(Listed::AllBut(_)) => true,
                None => false,
            };
            let confined = statement.conditions.iter().any(|condition| condition.confines(CONFINING));
            statement.allows && everybody && !confined
        })
    }
}
