//! Parses the request's document: the statement, the formats of the object and of the result.
//!
//! Invariants: R1 a missing element has AWS's default; an unknown element is an error that names it.

use margay_select::{Compression, CsvInput, CsvOutput, Dialect, Header, InputFormat, OutputFormat, Request};

use crate::error::{Code, S3Error};
use crate::xml::read::{Malformed, walk};

/// Maximum length of a delimiter, in characters.
const DELIMITER_CHARS_MAX: usize = 2;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ScanRange {
    pub start: Option<u64>,
    pub end: Option<u64>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct SelectRequest {
    pub request: Request,
    pub shows_progress: bool,
    pub range: Option<ScanRange>,
}

/// The partly parsed document.
#[derive(Default)]
struct Draft {
    expression: Option<String>,
    expression_type: Option<String>,
    compression: Compression,
    csv_input: CsvInput,
    /// Quotes are doubled unless the document names an escape.
    escape_is_given: bool,
    csv_output: CsvOutput,
    output_escape_is_given: bool,
    json_delimiter: Option<String>,
    /// Elements that are present.
    from_csv: bool,
    from_json: bool,
    is_document: bool,
    to_csv: bool,
    to_json: bool,
    shows_progress: bool,
    range: Option<ScanRange>,
}

/// `now`: seconds since 1970.
pub(super) fn parse(document: &[u8], dialect: Dialect, now: i64) -> Result<SelectRequest, S3Error> {
    let mut draft = Draft::default();
    let mut refusal = None;
    walk(document, &mut |path, text| {
        // The root has two names in AWS's documentation.
        let Some((root, path)) = path.split_once('/') else { return Ok(()) };
        if !matches!(root, "SelectObjectContentRequest" | "SelectRequest") {
            return Err(Malformed::because("an unknown element"));
        }
        if refusal.is_none() {
            refusal = draft.take(path, text).err();
        }
        Ok(())
    })?;
    match refusal {
        Some(refusal) => Err(refusal),
        None => draft.finish(dialect, now),
    }
}

impl Draft {
    /// One element with its text.
    fn take(&mut self, path: &str, text: &str) -> Result<(), S3Error> {
        match path {
            "Expression" => self.expression = Some(text.to_owned()),
            "ExpressionType" => self.expression_type = Some(text.to_owned()),
            "RequestProgress" | "InputSerialization" | "OutputSerialization" => {}
            "RequestProgress/Enabled" => self.shows_progress = flag(text)?,
            "ScanRange" => {
                self.range.get_or_insert_default();
            }
            "ScanRange/Start" => self.range.get_or_insert_default().start = Some(offset(text)?),
            "ScanRange/End" => self.range.get_or_insert_default().end = Some(offset(text)?),
            "InputSerialization/CompressionType" => self.compression = compression(text)?,
            "InputSerialization/CSV" => self.from_csv = true,
            "InputSerialization/JSON" => self.from_json = true,
            "InputSerialization/JSON/Type" => match text.to_ascii_uppercase().as_str() {
                "DOCUMENT" => self.is_document = true,
                "LINES" => {}
                _ => {
                    return Err(refused(
                        Code::InvalidJsonType,
                        "The JsonType is invalid. Only DOCUMENT and LINES are supported.",
                    ));
                }
            },
            "InputSerialization/Parquet" => return Err(S3Error::not_implemented("input in Parquet")),
            "OutputSerialization/CSV" => self.to_csv = true,
            "OutputSerialization/JSON" => self.to_json = true,
            "OutputSerialization/JSON/RecordDelimiter" => self.json_delimiter = Some(text.to_owned()),
            _ => match (path.strip_prefix("InputSerialization/CSV/"), path.strip_prefix("OutputSerialization/CSV/")) {
                (Some(element), _) => return self.take_input(element, text),
                (_, Some(element)) => return self.take_output(element, text),
                _ => return Err(S3Error::not_implemented(&format!("element {path}"))),
            },
        }
        Ok(())
    }

    fn take_input(&mut self, element: &str, text: &str) -> Result<(), S3Error> {
        let format = &mut self.csv_input;
        match element {
            "FileHeaderInfo" => {
                format.header = match text.to_ascii_uppercase().as_str() {
                    "NONE" => Header::None,
                    "IGNORE" => Header::Ignore,
                    "USE" => Header::Use,
                    _ => {
                        let message = "The FileHeaderInfo is invalid. Only NONE, USE, and IGNORE are supported.";
                        return Err(refused(Code::InvalidFileHeaderInfo, message));
                    }
                };
            }
            "RecordDelimiter" => format.record_delimiter = delimiter(element, text)?,
            "FieldDelimiter" => format.field_delimiter = delimiter(element, text)?,
            "QuoteCharacter" => format.quote = character(element, text)?,
            "QuoteEscapeCharacter" => {
                format.escape = character(element, text)?;
                self.escape_is_given = true;
            }
            "Comments" => format.comment = character(element, text)?,
            "AllowQuotedRecordDelimiter" => format.quoted_record_delimiters = flag(text)?,
            _ => return Err(S3Error::not_implemented(&format!("element InputSerialization/CSV/{element}"))),
        }
        Ok(())
    }

    fn take_output(&mut self, element: &str, text: &str) -> Result<(), S3Error> {
        let format = &mut self.csv_output;
        match element {
            "QuoteFields" => {
                format.quote_always = match text.to_ascii_uppercase().as_str() {
                    "ALWAYS" => true,
                    "ASNEEDED" => false,
                    _ => {
                        let message = "The QuoteFields is invalid. Only ALWAYS and ASNEEDED are supported.";
                        return Err(refused(Code::InvalidQuoteFields, message));
                    }
                };
            }
            "RecordDelimiter" => format.record_delimiter = delimiter(element, text)?,
            "FieldDelimiter" => format.field_delimiter = delimiter(element, text)?,
            "QuoteCharacter" => format.quote = text_of(character(element, text)?),
            "QuoteEscapeCharacter" => {
                format.escape = text_of(character(element, text)?);
                self.output_escape_is_given = true;
            }
            _ => return Err(S3Error::not_implemented(&format!("element OutputSerialization/CSV/{element}"))),
        }
        Ok(())
    }

    fn finish(mut self, dialect: Dialect, now: i64) -> Result<SelectRequest, S3Error> {
        let missing = |what: &str| refused(Code::MissingRequiredParameter, &format!("The request has no {what}"));
        if !self.expression_type.as_deref().ok_or_else(|| missing("ExpressionType"))?.eq_ignore_ascii_case("SQL") {
            let message = "The ExpressionType is invalid. Only SQL expressions are supported.";
            return Err(refused(Code::InvalidExpressionType, message));
        }
        let expression = self.expression.take().ok_or_else(|| missing("Expression"))?;
        if !self.escape_is_given {
            self.csv_input.escape = self.csv_input.quote;
        }
        if !self.output_escape_is_given {
            self.csv_output.escape.clone_from(&self.csv_output.quote);
        }
        let conflict =
            || refused(Code::ObjectSerializationConflict, "There is more than one format where one is wanted");
        let input = match (self.from_csv, self.from_json) {
            (true, false) => InputFormat::Csv(self.csv_input),
            (false, true) => InputFormat::Json,
            (false, false) => return Err(missing("format in InputSerialization")),
            (true, true) => return Err(conflict()),
        };
        let output = match (self.to_csv, self.to_json) {
            (true, false) => OutputFormat::Csv(self.csv_output),
            (false, true) => {
                OutputFormat::Json { record_delimiter: self.json_delimiter.unwrap_or_else(|| "\n".to_owned()) }
            }
            (false, false) => return Err(missing("format in OutputSerialization")),
            (true, true) => return Err(conflict()),
        };
        if self.range.is_some() && self.is_document {
            let message = "A scan range is for records on lines, not for one JSON document";
            return Err(refused(Code::UnsupportedScanRangeInput, message));
        }
        let request = Request { expression, compression: self.compression, input, output, dialect, now };
        Ok(SelectRequest { request, shows_progress: self.shows_progress, range: self.range })
    }
}

fn refused(code: Code, message: &str) -> S3Error {
    S3Error::new(code, message.to_owned())
}

fn flag(text: &str) -> Result<bool, S3Error> {
    match text.trim().to_ascii_lowercase().as_str() {
        "true" | "1" => Ok(true),
        "false" | "0" | "" => Ok(false),
        _ => Err(Malformed::because("neither true nor false").into()),
    }
}

fn offset(text: &str) -> Result<u64, S3Error> {
    text.trim().parse().map_err(|_| refused(Code::InvalidScanRange, "A scan range is of whole numbers from 0"))
}

fn compression(text: &str) -> Result<Compression, S3Error> {
    match text.to_ascii_uppercase().as_str() {
        "NONE" | "" => Ok(Compression::None),
        "GZIP" => Ok(Compression::Gzip),
        "BZIP2" => Err(S3Error::not_implemented("CompressionType BZIP2")),
        _ => {
            let message = "The file is not in a supported compression format. Only GZIP and BZIP2 are supported.";
            Err(refused(Code::InvalidCompressionFormat, message))
        }
    }
}

fn delimiter(element: &str, text: &str) -> Result<String, S3Error> {
    if (1..=DELIMITER_CHARS_MAX).contains(&text.chars().count()) {
        return Ok(text.to_owned());
    }
    let message = format!("{element} has one or two characters");
    Err(refused(Code::InvalidRequestParameter, &message))
}

/// One ASCII character, or none.
fn character(element: &str, text: &str) -> Result<Option<u8>, S3Error> {
    match text.as_bytes() {
        [] => Ok(None),
        [byte] if byte.is_ascii() => Ok(Some(*byte)),
        _ => Err(refused(Code::InvalidRequestParameter, &format!("{element} is one character of ASCII"))),
    }
}

fn text_of(character: Option<u8>) -> String {
    character.map(|byte| char::from(byte).to_string()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(inner: &str) -> Result<SelectRequest, Code> {
        let document = format!(
            "<SelectObjectContentRequest xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Expression>select 1 from \
             s3object where a &lt; 2</Expression>{inner}</SelectObjectContentRequest>"
        );
        parse(document.as_bytes(), Dialect::Aws, 7).map_err(|error| error.code)
    }

    const SQL: &str = "<ExpressionType>SQL</ExpressionType>";

    #[test]
    fn what_is_left_out_has_its_default() {
        let plain = read(&format!(
            "{SQL}<InputSerialization><CSV/></InputSerialization><OutputSerialization><JSON/></OutputSerialization>"
        ));
        let plain = plain.unwrap();
        assert_eq!(plain.request.input, InputFormat::Csv(CsvInput::default()));
        assert_eq!(plain.request.output, OutputFormat::Json { record_delimiter: "\n".to_owned() });
        assert_eq!(plain.request.expression, "select 1 from s3object where a < 2");
        assert_eq!((plain.shows_progress, plain.range, plain.request.now), (false, None, 7));
        let full = read(&format!(
            "{SQL}<RequestProgress><Enabled>true</Enabled></RequestProgress><ScanRange><Start>1</Start></ScanRange>\
             <InputSerialization><CompressionType>GZIP</CompressionType><CSV><FileHeaderInfo>USE</FileHeaderInfo>\
             <RecordDelimiter>\r\n</RecordDelimiter><FieldDelimiter>\t</FieldDelimiter><QuoteCharacter>'</QuoteCharacter>\
             <Comments>#</Comments></CSV></InputSerialization><OutputSerialization><CSV>\
             <QuoteFields>ALWAYS</QuoteFields><QuoteCharacter/></CSV></OutputSerialization>"
        ));
        let full = full.unwrap();
        let InputFormat::Csv(format) = full.request.input else { panic!("CSV was asked for") };
        assert_eq!((format.record_delimiter.as_str(), format.field_delimiter.as_str()), ("\r\n", "\t"));
        assert_eq!((format.quote, format.escape, format.comment), (Some(b'\''), Some(b'\''), Some(b'#')));
        assert_eq!((full.shows_progress, full.request.compression), (true, Compression::Gzip));
        assert_eq!(full.range, Some(ScanRange { start: Some(1), end: None }));
    }

    #[test]
    fn what_cannot_be_has_a_code_of_its_own() {
        let csv = "<InputSerialization><CSV/></InputSerialization>";
        let out = "<OutputSerialization><CSV/></OutputSerialization>";
        let input = |inner: &str| format!("{SQL}<InputSerialization>{inner}</InputSerialization>{out}");
        for (inner, code) in [
            (format!("{csv}{out}"), Code::MissingRequiredParameter),
            (format!("<ExpressionType>XQ</ExpressionType>{csv}{out}"), Code::InvalidExpressionType),
            (format!("{SQL}{csv}"), Code::MissingRequiredParameter),
            (format!("{SQL}{csv}{out}<Other/>"), Code::NotImplemented),
            (input(""), Code::MissingRequiredParameter),
            (input("<CSV/><JSON/>"), Code::ObjectSerializationConflict),
            (input("<Parquet/>"), Code::NotImplemented),
            (input("<CompressionType>BZIP2</CompressionType><CSV/>"), Code::NotImplemented),
            (input("<CompressionType>ZIP</CompressionType><CSV/>"), Code::InvalidCompressionFormat),
            (input("<CSV><FileHeaderInfo>X</FileHeaderInfo></CSV>"), Code::InvalidFileHeaderInfo),
            (input("<CSV><FieldDelimiter/></CSV>"), Code::InvalidRequestParameter),
            (input("<CSV><QuoteCharacter>ab</QuoteCharacter></CSV>"), Code::InvalidRequestParameter),
            (input("<JSON><Type>X</Type></JSON>"), Code::InvalidJsonType),
            (input("<JSON><Type>DOCUMENT</Type></JSON>") + "<ScanRange/>", Code::UnsupportedScanRangeInput),
            (format!("{SQL}{csv}{out}<ScanRange><End>-1</End></ScanRange>"), Code::InvalidScanRange),
        ] {
            assert_eq!(read(&inner).map_err(|found| found.name()), Err(code.name()), "{inner}");
        }
        assert_eq!(parse(b"<Other><X/></Other>", Dialect::Aws, 7).unwrap_err().code, Code::MalformedXML);
    }
}
