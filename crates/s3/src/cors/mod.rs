//! Cross-origin resource sharing (CORS): a bucket's rules, preflights, and headers of responses.
//!
//! Why:        a browser passes a response to a page of another origin only when the response allows it; the bucket's
//!             rules decide.
//! Invariants: R1 rules match as at AWS: the first whose origin, method and headers all match.
//! Not here:   authorization: a response that a browser may read can still be a refusal (auth).

mod answer;
mod rules;

pub(crate) use self::answer::{decorate, preflight};
pub(crate) use self::rules::Rules;
