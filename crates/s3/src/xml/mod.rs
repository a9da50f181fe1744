//! XML parsing and writing.
//!
//! Why: responses are written directly as bytes, and requests are walked without building a tree, so the cost of both
//!      is proportional to their size.

pub mod read;
pub(crate) mod write;
