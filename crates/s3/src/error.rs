//! Maps every cause to an S3 error code, status and message: the only such table.
//!
//! Why:        clients decide by the code alone whether to retry, give up, or create the bucket.
//! Invariants: T1 every cause has exactly one code; internal causes are logged with their source and never shown.
//! Not here:   when an operation fails (op), the error enums of signatures and bodies (auth, body).

use std::borrow::Cow;
use std::fmt::Write as _;

use bytes::{Bytes, BytesMut};
use http::StatusCode;
use margay_iam::registry::ChangeError;
use margay_select as select;
use margay_volume as volume;

use crate::auth;
use crate::body;
use crate::form::FormError;
use crate::time::http_date;
use crate::xml::read::Malformed;
use crate::xml::write::Writer;

macro_rules! codes {
    ($($name:ident $status:literal $message:literal;)*) => {
        /// S3 error codes that this door returns.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Code { $($name),* }

        impl Code {
            /// The text of `<Code>`.
            pub fn name(self) -> &'static str {
                match self { $(Code::$name => stringify!($name)),* }
            }
            pub fn status(self) -> StatusCode {
                let status = match self { $(Code::$name => $status),* };
                StatusCode::from_u16(status).expect("the table holds valid statuses")
            }
            fn message(self) -> &'static str {
                match self { $(Code::$name => $message),* }
            }
        }
    };
}

codes! {
    AccessControlListNotSupported 400 "The bucket does not allow ACLs";
    AccessDenied 403 "Access Denied";
    AccessForbidden 403 "CORSResponse: CORS is not enabled for this bucket.";
    AuthorizationHeaderMalformed 400 "The authorization header is malformed.";
    AuthorizationQueryParametersError 400 "The query string authentication parameters are malformed.";
    BadDigest 400 "The Content-MD5 or checksum you specified did not match what we received.";
    BadRequest 400 "Bad Request";
    BucketAlreadyExists 409 "The requested bucket name is not available.";
    BucketAlreadyOwnedByYou 409 "Your previous request to create the named bucket succeeded and you already own it.";
    BucketNotEmpty 409 "The bucket you tried to delete is not empty";
    CastFailed 400 "Attempt to convert from one data type to another using CAST failed in the SQL expression.";
    ConditionalRequestConflict 409 "A conflicting operation occurred during the conditional request; try again.";
    DeleteConflict 409 "What is to be deleted is still in use.";
    EntityAlreadyExists 409 "There is one with this name already.";
    EntityTooLarge 400 "Your proposed upload exceeds the maximum allowed size";
    EntityTooSmall 400 "Your proposed upload is smaller than the minimum allowed size";
    EvaluatorInvalidArguments 400 "Incorrect arguments of a function call in the SQL expression.";
    EvaluatorInvalidTimestampFormatPattern 400 "Time stamp format pattern contains invalid symbols in the SQL expression.";
    ExpiredToken 400 "The provided token has expired.";
    ExpiredTokenException 400 "The token of the identity provider has expired.";
    ExpressionTooLong 400 "The SQL expression is too long: The maximum byte-length for the SQL expression is 256 KB.";
    IDPCommunicationError 400 "The keys of the identity provider are not to be had at the moment.";
    IllegalLocationConstraintException 400 "The specified location constraint is not the region of this server.";
    IllegalVersioningConfigurationException 400 "The versioning configuration specified in the request is invalid.";
    IncompleteBody 400 "You did not provide the number of bytes specified by the Content-Length HTTP header";
    IncorrectNumberOfFilesInPostRequest 400 "POST requires exactly one file upload per request.";
    IntegerOverflow 400 "Integer overflow or underflow in the SQL expression.";
    InternalError 500 "We encountered an internal error. Please try again.";
    InvalidAccessKeyId 403 "The AWS Access Key Id you provided does not exist in our records.";
    InvalidAction 400 "There is no such action.";
    InvalidArgument 400 "Invalid Argument";
    InvalidBucketAclWithObjectOwnership 400 "Bucket cannot have ACLs set with ObjectOwnership's BucketOwnerEnforced setting";
    InvalidBucketState 409 "The request is not valid with the current state of the bucket.";
    InvalidBucketName 400 "The specified bucket is not valid.";
    InvalidClientTokenId 403 "The security token included in the request is invalid.";
    InvalidCompressionFormat 400 "The file is not in a supported compression format.";
    InvalidDigest 400 "The Content-MD5 you specified is not valid.";
    InvalidEncryptionAlgorithmError 400 "The encryption request you specified is not valid. The valid value is AES256.";
    InvalidExpressionType 400 "The ExpressionType is invalid. Only SQL expressions are supported.";
    InvalidFileHeaderInfo 400 "The FileHeaderInfo is invalid.";
    InvalidInput 400 "The request has a value that cannot be.";
    InvalidIdentityToken 400 "The token of the identity provider is not accepted.";
    InvalidJsonType 400 "The JsonType is invalid.";
    InvalidPart 400 "One or more of the specified parts could not be found. The part might not have been uploaded, or the specified entity tag might not have matched the part's entity tag.";
    InvalidPartNumber 416 "The requested partnumber is not satisfiable";
    InvalidPartOrder 400 "The list of parts was not in ascending order. Parts list must be specified in order by part number.";
    InvalidPolicyDocument 400 "The content of the form does not meet the conditions specified in the policy document.";
    InvalidQuoteFields 400 "The QuoteFields is invalid.";
    InvalidRange 416 "The requested range is not satisfiable";
    InvalidRequest 400 "Invalid Request";
    InvalidRequestParameter 400 "The value of a parameter in the SelectRequest element is invalid.";
    InvalidScanRange 400 "The value of a parameter in ScanRange is invalid.";
    InvalidTag 400 "The tag provided was not a valid tag.";
    InvalidTargetBucketForLogging 400 "The target bucket for logging does not exist";
    InvalidRetentionPeriod 400 "Default retention period must be a positive integer value.";
    InvalidTextEncoding 400 "Invalid encoding type. Only UTF-8 encoding is supported.";
    InvalidToken 400 "The provided token is malformed or otherwise not valid.";
    InvalidURI 400 "Couldn't parse the specified URI.";
    InvalidWriteOffset 400 "The write offset value that you specified does not match the current object size.";
    JSONParsingError 400 "A record of the JSON file cannot be read.";
    KeyTooLongError 400 "Your key is too long";
    LexerInvalidChar 400 "The SQL expression contains an invalid character.";
    LexerInvalidLiteral 400 "The SQL expression contains an invalid literal.";
    LimitExceeded 409 "There may not be more.";
    MalformedPOSTRequest 400 "The body of your POST request is not well-formed multipart/form-data.";
    MalformedPolicy 400 "Policies must be valid JSON in the form of a policy.";
    MalformedPolicyDocument 400 "The policy is not in the form of a policy.";
    MalformedTrailerError 400 "The request contained trailing data that was not well-formed or did not conform to our published schema.";
    MalformedXML 400 "The XML you provided was not well-formed or did not validate against our published schema";
    MaxMessageLengthExceeded 400 "Your request was too big.";
    MaxPostPreDataLengthExceededError 400 "Your POST request fields preceding the upload file were too large.";
    MetadataTooLarge 400 "Your metadata headers exceed the maximum allowed metadata size";
    MethodNotAllowed 405 "The specified method is not allowed against this resource.";
    MissingAuthenticationToken 403 "Request is missing Authentication Token";
    MissingContentLength 411 "You must provide the Content-Length HTTP header.";
    MissingRequiredParameter 400 "The SelectRequest entity is missing a required parameter.";
    MissingSecurityHeader 400 "Your request was missing a required header";
    NoSuchBucket 404 "The specified bucket does not exist";
    NoSuchBucketPolicy 404 "The bucket policy does not exist";
    NoSuchCORSConfiguration 404 "The CORS configuration does not exist";
    NoSuchEntity 404 "There is no such user, group, role, policy, key or provider.";
    NoSuchKey 404 "The specified key does not exist.";
    NoSuchLifecycleConfiguration 404 "The lifecycle configuration does not exist";
    NoSuchObjectLockConfiguration 404 "The specified object does not have an ObjectLock configuration";
    NoSuchPublicAccessBlockConfiguration 404 "The public access block configuration was not found";
    NoSuchTagSet 404 "The TagSet does not exist";
    NoSuchUpload 404 "The specified upload does not exist. The upload ID may be invalid, or the upload may have been aborted or completed.";
    NoSuchVersion 404 "The specified version does not exist.";
    NoSuchWebsiteConfiguration 404 "The specified bucket does not have a website configuration";
    NotImplemented 501 "A header, query parameter or operation you used implies functionality that is not implemented.";
    NotModified 304 "Not Modified";
    ObjectLockConfigurationNotFoundError 404 "Object Lock configuration does not exist for this bucket";
    ObjectSerializationConflict 400 "The SelectRequest entity has more than one format where one is wanted.";
    OverMaxColumn 400 "The number of columns is greater than the maximum allowed.";
    OverMaxRecordSize 400 "The length of a record is greater than the maximum allowed of 1 MB.";
    OwnershipControlsNotFoundError 404 "The bucket ownership controls were not found";
    PackedPolicyTooLarge 400 "The policy of the session is too long.";
    ParseUnexpectedToken 400 "The SQL expression contains an unexpected token.";
    PolicyTooLarge 400 "The policy is too long.";
    PreconditionFailed 412 "At least one of the pre-conditions you specified did not hold";
    ProcessingTimeError 400 "The SQL expression does not fit the object.";
    QuotaExceeded 403 "The bucket would hold more than its quota allows; delete objects or ask for more.";
    ReplicationConfigurationNotFoundError 404 "The replication configuration was not found";
    RequestHeaderSectionTooLarge 400 "Your request header and metadata exceed the maximum allowed size.";
    RequestTimeTooSkewed 403 "The difference between the request time and the server's time is too large.";
    RequestTimeout 400 "Your socket connection to the server was not read from or written to within the timeout period.";
    ServerSideEncryptionConfigurationNotFoundError 404 "The server side encryption configuration was not found";
    ServiceUnavailable 503 "The server is not able to take this request now; see its log.";
    SignatureDoesNotMatch 403 "The request signature we calculated does not match the signature you provided. Check your key and signing method.";
    SlowDown 503 "Please reduce your request rate.";
    StorageFull 507 "The server's disk is full: it keeps limits.reserve_bytes free. Delete objects or add space.";
    TooManyParts 400 "You have attempted to add more parts than the maximum of 10000 that are allowed for this object.";
    TruncatedInput 400 "Object decompression or parsing failed: the object is cut off.";
    UnexpectedContent 400 "This request does not support content";
    UnresolvableGrantByEmailAddress 400 "The e-mail address you provided does not match any account on record.";
    UnsupportedFunction 400 "Encountered an unsupported SQL function.";
    UnsupportedScanRangeInput 400 "Scan range queries are not supported on this type of object.";
    UnsupportedSqlStructure 400 "Encountered an unsupported SQL structure.";
    UnsupportedSyntax 400 "Encountered invalid syntax.";
    ValidationError 400 "A parameter is missing or has a wrong value.";
    UserKeyMustBeSpecified 400 "The bucket POST must contain the specified field name. If it is specified, check the order of the fields.";
    XAmzContentSHA256Mismatch 400 "The provided 'x-amz-content-sha256' header does not match what was computed.";
}

/// The error that answers a failed request.
#[derive(Debug)]
pub struct S3Error {
    pub code: Code,
    pub message: Cow<'static, str>,
    /// Further elements of the XML, as AWS has them for some codes (`BucketName`, `ArgumentName`, ...).
    pub details: Vec<(&'static str, String)>,
    /// Headers: the ETag of a 304, the range of a 416, the delete marker of a 404.
    pub headers: Vec<(http::HeaderName, String)>,
}

impl S3Error {
    pub fn new(code: Code, message: impl Into<Cow<'static, str>>) -> S3Error {
        S3Error { code, message: message.into(), details: Vec::new(), headers: Vec::new() }
    }

    pub(crate) fn with(mut self, element: &'static str, value: impl Into<String>) -> S3Error {
        self.details.push((element, value.into()));
        self
    }

    pub(crate) fn header(mut self, name: http::HeaderName, value: String) -> S3Error {
        self.headers.push((name, value));
        self
    }

    /// An invalid value of the named header or query parameter.
    pub(crate) fn argument(name: &str, value: &str, message: impl Into<Cow<'static, str>>) -> S3Error {
        S3Error::new(Code::InvalidArgument, message).with("ArgumentName", name).with("ArgumentValue", value)
    }

    /// 501, naming what is not implemented: an operation, a header, a query parameter or a value.
    pub(crate) fn not_implemented(what: &str) -> S3Error {
        S3Error::new(Code::NotImplemented, format!("{what} is not implemented by this server")).with("Feature", what)
    }

    pub(crate) fn invalid_request(message: impl Into<Cow<'static, str>>) -> S3Error {
        S3Error::new(Code::InvalidRequest, message)
    }

    /// An error that only the operator can understand: it is logged, and the client gets the code.
    pub(crate) fn internal(cause: &dyn std::fmt::Display) -> S3Error {
        tracing::error!(%cause, "a request failed inside the server");
        Code::InternalError.into()
    }

    /// The XML document that AWS gives for errors.
    pub(crate) fn xml(&self, resource: &str, request_id: &str, host_id: &str) -> Bytes {
        let mut out = BytesMut::with_capacity(512);
        let mut writer = Writer::new(&mut out);
        writer.document();
        writer.open("Error");
        writer.text("Code", self.code.name());
        writer.text("Message", &self.message);
        for (element, value) in &self.details {
            writer.text(element, value);
        }
        writer.text("Resource", resource);
        writer.text("RequestId", request_id);
        writer.text("HostId", host_id);
        writer.close("Error");
        out.freeze()
    }
}

impl From<Code> for S3Error {
    fn from(code: Code) -> S3Error {
        S3Error::new(code, code.message())
    }
}

/// Errors of the IAM API.
impl From<ChangeError> for S3Error {
    fn from(error: ChangeError) -> S3Error {
        let code = match &error {
            ChangeError::Absent(..) => Code::NoSuchEntity,
            ChangeError::Ambiguous { .. } | ChangeError::Present(..) => Code::EntityAlreadyExists,
            ChangeError::InUse(_) => Code::DeleteConflict,
            ChangeError::Limit(_) => Code::LimitExceeded,
            ChangeError::Name(..) | ChangeError::Value(_) => Code::ValidationError,
            ChangeError::Policy(_) => Code::MalformedPolicyDocument,
        };
        S3Error::new(code, error.to_string())
    }
}

/// Errors of S3 Select.
impl From<select::Error> for S3Error {
    fn from(error: select::Error) -> S3Error {
        use select::Kind as K;
        let code = match error.kind {
            K::CastFailed => Code::CastFailed,
            K::InvalidArguments => Code::EvaluatorInvalidArguments,
            K::ExpressionTooLong => Code::ExpressionTooLong,
            K::IntegerOverflow => Code::IntegerOverflow,
            K::InvalidCompression => Code::InvalidCompressionFormat,
            K::InvalidText => Code::InvalidTextEncoding,
            K::JsonParsing => Code::JSONParsingError,
            K::LexerCharacter => Code::LexerInvalidChar,
            K::LexerLiteral => Code::LexerInvalidLiteral,
            K::TooManyColumns => Code::OverMaxColumn,
            K::RecordTooLong => Code::OverMaxRecordSize,
            K::UnexpectedToken => Code::ParseUnexpectedToken,
            K::Processing => Code::ProcessingTimeError,
            K::TruncatedInput => Code::TruncatedInput,
            K::TimestampPattern => Code::EvaluatorInvalidTimestampFormatPattern,
            K::UnsupportedFunction => Code::UnsupportedFunction,
            K::UnsupportedStructure => Code::UnsupportedSqlStructure,
            K::UnsupportedSyntax => Code::UnsupportedSyntax,
        };
        S3Error::new(code, error.message)
    }
}

impl From<Malformed> for S3Error {
    fn from(error: Malformed) -> S3Error {
        S3Error::new(Code::MalformedXML, format!("{}: {error}", Code::MalformedXML.message()))
    }
}

impl std::fmt::Display for S3Error {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}: {}", self.code.name(), self.message)
    }
}

impl std::error::Error for S3Error {}

/// ENAMETOOLONG of Linux.
const NAME_TOO_LONG: i32 = 36;

fn unanswered(error: &volume::Error) -> S3Error {
    tracing::warn!(%error, "a request was given up: no answer in time");
    let message = match error {
        volume::Error::OutcomeUnknown => "Whether the change was made is unknown; read before trying again.".to_owned(),
        volume::Error::Io(why) => format!("The store that has the bytes did not answer in time: {why}."),
        volume::Error::StoreUnavailable(why) => format!("Nothing was changed: {why}."),
        volume::Error::Unavailable(why) => format!("No answer in time, and nothing was changed: {why}."),
        _ => "The metadata did not answer in time; nothing was changed.".to_owned(),
    };
    S3Error::new(Code::ServiceUnavailable, message)
}

impl From<volume::Error> for S3Error {
    fn from(error: volume::Error) -> S3Error {
        use volume::Error as E;
        match error {
            E::NoSuchBucket => Code::NoSuchBucket.into(),
            E::BucketExists => Code::BucketAlreadyOwnedByYou.into(),
            E::BucketNotEmpty => Code::BucketNotEmpty.into(),
            E::NoSuchKey => Code::NoSuchKey.into(),
            E::NoSuchVersion => Code::NoSuchVersion.into(),
            E::Deleted(version) => about_marker(Code::NoSuchKey.into(), version),
            E::DeleteMarker { version, modified } => about_marker(Code::MethodNotAllowed.into(), version)
                .header(http::header::ALLOW, "DELETE".to_owned())
                .header(http::header::LAST_MODIFIED, http_date(modified)),
            E::KeepsVersions => Code::InvalidBucketState.into(),
            E::KeepsNoVersions => S3Error::new(
                Code::InvalidBucketState,
                "Versioning must be 'Enabled' on the bucket to apply a Object Lock configuration",
            ),
            E::NoObjectLock => S3Error::invalid_request("Bucket is missing Object Lock Configuration"),
            E::Locked => S3Error::new(Code::AccessDenied, "Access Denied because object protected by object lock."),
            E::RetentionOver => S3Error::new(Code::InvalidArgument, "The retain until date must be in the future!"),
            E::NoSuchUpload => Code::NoSuchUpload.into(),
            E::InvalidPart(number) => S3Error::from(Code::InvalidPart).with("PartNumber", number.to_string()),
            E::InvalidPartOrder => Code::InvalidPartOrder.into(),
            E::PartTooSmall(number) => S3Error::from(Code::EntityTooSmall)
                .with("PartNumber", number.to_string())
                .with("MinSizeAllowed", volume::PART_BYTES_MIN.to_string()),
            E::KeyTooLong => key_too_long(),
            E::TooLarge => Code::EntityTooLarge.into(),
            E::PreconditionFailed => Code::PreconditionFailed.into(),
            E::NotModified => Code::NotModified.into(),
            E::WrongLength => Code::IncompleteBody.into(),
            E::WrongOffset(size) => S3Error::from(Code::InvalidWriteOffset).with("ObjectSize", size.to_string()),
            E::TooManyParts => Code::TooManyParts.into(),
            E::InvalidRange => Code::InvalidRange.into(),
            E::QuotaExceeded => Code::QuotaExceeded.into(),
            E::Full => Code::StorageFull.into(),
            E::KeyRequired => S3Error::invalid_request(
                "The object was stored using a form of Server Side Encryption. The correct parameters must be provided \
                 to retrieve the object.",
            ),
            E::KeyNotApplicable => {
                S3Error::invalid_request("The encryption parameters are not applicable to this object.")
            }
            E::WrongKey => Code::AccessDenied.into(),
            E::NoMasterKey => S3Error::new(
                Code::ServiceUnavailable,
                "The server lacks the key for this object's encryption; see its log.",
            ),
            E::NoNamedKey => {
                S3Error::new(Code::InvalidArgument, "The server has no key of the id that the request names.")
            }
            E::NotShareable => S3Error::internal(&"a copy was not made by reading and writing"),
            E::ReadOnly(cause) => {
                tracing::error!(%cause, "a write was refused: the volume is read-only");
                S3Error::new(Code::ServiceUnavailable, "The server takes no writes after a storage fault; see its log.")
            }
            E::Busy => Code::SlowDown.into(),
            E::Fenced | E::LeaseLost => S3Error::new(
                Code::ServiceUnavailable,
                "Another server of this volume took this one for dead; it begins anew.",
            ),
            E::Unavailable(_) | E::StoreUnavailable(_) | E::OutcomeUnknown => unanswered(&error),
            E::Unread => S3Error::internal(&"rows were not read"),
            E::Corrupt(cause) => S3Error::internal(&format_args!("damaged data: {cause}")),
            // A key that fits here and not in the other store that gets it, with what that puts before it.
            E::Io(cause) if cause.raw_os_error() == Some(NAME_TOO_LONG) => key_too_long(),
            // Bytes that are in another store, which does not answer.
            E::Io(ref cause) if cause.kind() == std::io::ErrorKind::TimedOut => unanswered(&error),
            E::Io(cause) => S3Error::internal(&format_args!("storage: {cause}")),
        }
    }
}

impl From<auth::AuthError> for S3Error {
    fn from(error: auth::AuthError) -> S3Error {
        let mut refusal = S3Error::new(error.code().into(), error.to_string());
        refusal.details = error.details();
        refusal
    }
}

impl From<body::BodyError> for S3Error {
    fn from(error: body::BodyError) -> S3Error {
        // A form's file is received as a body of its own.
        let error = match error {
            body::BodyError::Transport(cause) => match cause.downcast::<FormError>() {
                Ok(refused) => return (*refused).into(),
                Err(cause) => body::BodyError::Transport(cause),
            },
            other => other,
        };
        S3Error::new(error.code().into(), error.to_string())
    }
}

impl From<body::DigestError> for S3Error {
    fn from(error: body::DigestError) -> S3Error {
        let mut refusal = S3Error::new(error.code().into(), error.to_string());
        refusal.details = error.details();
        refusal
    }
}

impl From<FormError> for S3Error {
    fn from(error: FormError) -> S3Error {
        let code = match &error {
            FormError::NotMultipart => {
                return S3Error::from(Code::PreconditionFailed).with("Condition", error.to_string());
            }
            FormError::Malformed(_) => Code::MalformedPOSTRequest,
            FormError::FieldsTooLarge | FormError::TooManyFields => Code::MaxPostPreDataLengthExceededError,
            FormError::FieldTwice(_) | FormError::BadHeader(_) => Code::InvalidArgument,
            FormError::NoFile => Code::IncorrectNumberOfFilesInPostRequest,
            FormError::NoKey => Code::UserKeyMustBeSpecified,
            FormError::BadPolicy(_) => Code::InvalidPolicyDocument,
            FormError::AgainstPolicy(_) => Code::AccessDenied,
            FormError::FileTooLarge { .. } => Code::EntityTooLarge,
            FormError::FileTooSmall { .. } => Code::EntityTooSmall,
            FormError::Transport(error) if body::timed_out(error.as_ref()) => Code::RequestTimeout,
            FormError::Incomplete | FormError::Transport(_) => Code::IncompleteBody,
        };
        let refusal = S3Error::new(code, error.to_string());
        match error {
            FormError::FileTooLarge { max } => refusal.with("MaxSizeAllowed", max.to_string()),
            FormError::FileTooSmall { size, min } => {
                refusal.with("ProposedSize", size.to_string()).with("MinSizeAllowed", min.to_string())
            }
            _ => refusal,
        }
    }
}

impl From<auth::Code> for Code {
    fn from(code: auth::Code) -> Code {
        match code {
            auth::Code::AccessDenied => Code::AccessDenied,
            auth::Code::AuthorizationHeaderMalformed => Code::AuthorizationHeaderMalformed,
            auth::Code::AuthorizationQueryParametersError => Code::AuthorizationQueryParametersError,
            auth::Code::BadDigest => Code::BadDigest,
            auth::Code::IncompleteBody => Code::IncompleteBody,
            auth::Code::InvalidAccessKeyId => Code::InvalidAccessKeyId,
            auth::Code::InvalidArgument => Code::InvalidArgument,
            auth::Code::InvalidDigest => Code::InvalidDigest,
            auth::Code::InvalidRequest => Code::InvalidRequest,
            auth::Code::InvalidToken => Code::InvalidToken,
            auth::Code::MalformedTrailerError => Code::MalformedTrailerError,
            auth::Code::MissingContentLength => Code::MissingContentLength,
            auth::Code::NotImplemented => Code::NotImplemented,
            auth::Code::RequestTimeout => Code::RequestTimeout,
            auth::Code::RequestTimeTooSkewed => Code::RequestTimeTooSkewed,
            auth::Code::SignatureDoesNotMatch => Code::SignatureDoesNotMatch,
            auth::Code::XAmzContentSHA256Mismatch => Code::XAmzContentSHA256Mismatch,
        }
    }
}

/// Adds that a delete marker is the reason why the object does not exist.
fn about_marker(error: S3Error, version: volume::VersionId) -> S3Error {
    error
        .header(http::HeaderName::from_static("x-amz-delete-marker"), "true".to_owned())
        .header(http::HeaderName::from_static("x-amz-version-id"), version.to_string())
}

/// A malformed version id; `name` is the parameter or header that contained it.
pub(crate) fn invalid_version(name: &str, text: &str) -> S3Error {
    S3Error::argument(name, text, "Invalid version id specified")
}

pub(crate) fn key_too_long() -> S3Error {
    S3Error::from(Code::KeyTooLongError).with("MaxSizeAllowed", volume::KEY_BYTES_MAX.to_string())
}

/// An id of a request: 16 upper-case hexadecimal digits.
pub(crate) fn request_id(random: u64) -> String {
    let mut id = String::with_capacity(16);
    write!(id, "{random:016X}").expect("a String takes every write");
    id
}
