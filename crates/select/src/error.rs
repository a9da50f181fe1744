//! Errors of a selection.
//!
//! Why: one kind for each case that a client can distinguish; the message names the offending text or record.
//! Not here: the S3 code of each kind (the S3 door).

/// Kinds of errors, named as in AWS's list of SelectObjectContent errors, where it has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A value cannot be converted to the requested type.
    CastFailed,
    /// Invalid arguments of a function or operator.
    InvalidArguments,
    ExpressionTooLong,
    IntegerOverflow,
    /// The object is not compressed as the request says.
    InvalidCompression,
    /// A record is not UTF-8.
    InvalidText,
    /// A record is not valid JSON.
    JsonParsing,
    /// A character that begins no token.
    LexerCharacter,
    /// A number or text that is unterminated or too large.
    LexerLiteral,
    TooManyColumns,
    RecordTooLong,
    UnexpectedToken,
    /// An unknown or ambiguous name.
    Processing,
    TruncatedInput,
    /// An unknown letter in a pattern of `to_string`.
    TimestampPattern,
    UnsupportedFunction,
    /// A statement whose parts cannot be combined.
    UnsupportedStructure,
    UnsupportedSyntax,
}

/// A kind and a message for people.
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
