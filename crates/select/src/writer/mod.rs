//! Writes result records in the requested format.

pub(crate) mod csv;
pub(crate) mod json;
