//! S3 Select: an SQL statement over one CSV or JSON object, record by record.
//!
//! Why:        a client fetches the records that it wants, not the object.
//! Layout:     `lexer` and `parser` make the tree of `ast`, `bind` looks names up; `input` with `csv::reader` and
//!             `json::reader` makes records of bytes; `evaluate` and `aggregate` work out values, `writer` writes
//!             them; `selection` joins all.
//! Invariants: no I/O, no clock, no threads.  Nothing that a client sends makes it panic, recurse without bound or hold
//!             more than a few records.
//! Not here:   requests, rights and the frames of the answer (the S3 door).

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

/// Longest record of an object or of a result, in bytes.
pub const RECORD_BYTES_MAX: usize = 1 << 20;
/// Most fields of a record of CSV, and keys of an object in JSON.
pub const COLUMNS_MAX: usize = 16_384;

/// Whose statements are understood, where they differ; docs/s3.md has the list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dialect {
    #[default]
    Aws,
    Ceph,
}
