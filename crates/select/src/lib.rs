//! S3 Select: runs an SQL statement over one CSV or JSON object, record by record.
//!
//! Why:        a client fetches only the records that it wants.
//! Layout:     `lexer` and `parser` build the tree of `ast`, `bind` resolves names; `input` with `csv::reader` and
//!             `json::reader` turns bytes into records; `evaluate` and `aggregate` compute values, `writer` writes
//!             them; `selection` joins all.
//! Invariants: S1 no I/O, no clock, no threads.
//!             S2 no input makes it panic, recurse without bound or hold more than a few records.
//! Not here:   requests, authorization and framing of the response (the S3 door).

mod aggregate;
mod ast;
mod bind;
mod csv;
mod error;
mod evaluate;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod input;
mod json;
mod lexer;
mod like;
mod parser;
mod scan_range;
mod selection;
mod timestamp;
mod timestamp_pattern;
mod value;
mod writer;

pub use aggregate::HELD_BYTES_MAX;
pub use csv::{CsvInput, CsvOutput, Header};
pub use error::{Error, Kind};
pub use evaluate::{MADE_BYTES_MAX, WORK_MAX};
pub use input::{Compression, InputFormat};
pub use lexer::EXPRESSION_BYTES_MAX;
pub use like::PATTERN_CHARS_MAX;
pub use parser::{DEPTH_MAX, RESULT_COLUMNS_MAX};
pub use selection::{OutputFormat, Request, Selection, Step};

/// Maximum size of a record of an object or of a result, in bytes.
pub const RECORD_BYTES_MAX: usize = 1 << 20;
/// Maximum number of fields of a CSV record, and of keys of a JSON object.
pub const COLUMNS_MAX: usize = 16_384;

/// Whose dialect a statement is in, where they differ; docs/s3.md lists the differences.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dialect {
    #[default]
    Aws,
    Ceph,
}
