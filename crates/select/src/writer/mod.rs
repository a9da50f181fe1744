//! Records of a result, in the format that is asked for.

pub(crate) mod csv;
pub(crate) mod json;
