//! XML in and out.
//!
//! Why: answers are written straight into bytes, and requests are walked without building a tree, so both cost
//!      what their bytes cost.

pub(crate) mod read;
pub(crate) mod write;
