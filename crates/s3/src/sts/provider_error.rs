//! Why what an identity provider sent is refused.
//!
//! Not here: what the caller is told (sts).

/// Why a token or a set of keys is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProviderError {
    #[error("the key set is not in the form of a JWKS with RSA or P-256 keys")]
    KeySet,
    #[error("the token is not in the form of a JWT, or of an algorithm that is not known")]
    Form,
    #[error("no provider is configured for the token's issuer")]
    Issuer,
    #[error("the provider's keys are not to be had")]
    NoKeys,
    #[error("the provider has no such key, or it is of another algorithm than the token says")]
    Key,
    #[error("the token's signature is wrong")]
    Signature,
    #[error("the token is for another audience")]
    Audience,
    #[error("the token has expired")]
    Expired,
    #[error("the token is not valid yet")]
    NotYet,
}
