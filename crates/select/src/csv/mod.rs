//! CSV as a request describes it: its delimiters, quotes and comments.
//!
//! Layout:   `reader` finds records and fields.
//! Not here: writing those of a result (`writer`).

pub(crate) mod reader;

/// What the first record is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Header {
    /// A record as any other.
    #[default]
    None,
    /// Names that are not used.
    Ignore,
    /// The names of the columns.
    Use,
}

/// How the object is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CsvInput {
    pub header: Header,
    /// Not empty.
    pub record_delimiter: String,
    /// Not empty.
    pub field_delimiter: String,
    pub quote: Option<u8>,
    /// Before a quote that stands for itself; the quote itself if it is doubled.
    pub escape: Option<u8>,
    /// Records that begin with it are passed over.
    pub comment: Option<u8>,
    /// A record goes on behind a delimiter in quotes.
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

/// How the result is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CsvOutput {
    pub record_delimiter: String,
    pub field_delimiter: String,
    pub quote: String,
    pub escape: String,
    /// Every field is in quotes, not only those that need them.
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
