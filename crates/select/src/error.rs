//! Why a selection is refused or ends early.
//!
//! Why: one kind for each thing that a client is told apart by; the words say what was wrong with which text or record.
//! Not here: the S3 code of each kind (the S3 door).

/// What went wrong; the names are those of AWS's list of errors of SelectObjectContent, as far as it has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A value cannot be turned into the type that the expression asks for.
    CastFailed,
    /// A function or operator got what it cannot work with.
    InvalidArguments,
    ExpressionTooLong,
    IntegerOverflow,
    /// The object is not compressed as the request says.
    InvalidCompression,
    /// A record is not UTF-8.
    InvalidText,
    /// A record is no JSON.
    JsonParsing,
    /// A character that no token begins with.
    LexerCharacter,
    /// A number or text that does not end or is too large.
    LexerLiteral,
    TooManyColumns,
    RecordTooLong,
    UnexpectedToken,
    /// A name that the object does not have, or has twice.
    Processing,
    TruncatedInput,
    /// A pattern of `to_string` that nothing is known of.
    TimestampPattern,
    UnsupportedFunction,
    /// A statement whose parts do not go together.
    UnsupportedStructure,
    UnsupportedSyntax,
}

/// A kind and what a person should read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    pub kind: Kind,
    pub message: String,
}

impl Error {
    pub(crate) fn new(kind: Kind, message: impl Into<String>) -> Error {
        Error { kind, message: message.into() }
    }
}
