//! CSV formats of a request: delimiters, quotes and comments.
//!
//! Layout:   `reader` finds records and fields.
//! Not here: writing the result (`writer`).

pub(crate) mod reader;

/// The role of the first record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Header {
    /// An ordinary record.
    #[default]
    None,
    /// Column names that are skipped.
    Ignore,
    /// The names of the columns.
    Use,
}

/// The input format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CsvInput {
    pub header: Header,
    /// Not empty.
    pub record_delimiter: String,
    /// Not empty.
    pub field_delimiter: String,
    pub quote: Option<u8>,
    /// The character that escapes a quote; equal to the quote if quotes are doubled.
    pub escape: Option<u8>,
    /// Records that begin with it are skipped.
    pub comment: Option<u8>,
    /// A quoted record delimiter does not end a record.
    pub quoted_record_delimiters: bool,
}

impl Default for CsvInput {
    fn default() -> CsvInput {
        CsvInput {
            header: Header::None,
            record_delimiter: "\n".to_owned(),
            field_delimiter: ",".to_owned(),
            quote: Some(b'"'),
            escape: Some(b'"'),
            comment: None,
            quoted_record_delimiters: false,
        }
    }
}

/// The output format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CsvOutput {
    pub record_delimiter: String,
    pub field_delimiter: String,
    pub quote: String,
    pub escape: String,
    /// Quote every field, not only where needed.
    pub quote_always: bool,
}

impl Default for CsvOutput {
    fn default() -> CsvOutput {
        CsvOutput {
            record_delimiter: "\n".to_owned(),
            field_delimiter: ",".to_owned(),
            quote: "\"".to_owned(),
            escape: "\"".to_owned(),
            quote_always: false,
        }
    }
}
