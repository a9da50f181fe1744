//! Entry points of the fuzz targets: a statement, and a statement with an object, as arbitrary bytes.

use crate::csv::{CsvInput, CsvOutput, Header};
use crate::error::Error;
use crate::input::{Compression, InputFormat};
use crate::selection::{OutputFormat, Request, Selection, Step};
use crate::{Dialect, RECORD_BYTES_MAX};

/// Any text parses or gives an error.
pub fn statement(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let _ = crate::parser::parse(text);
}

/// The result does not depend on how the object is split. The first line is the statement, its first byte selects the
/// formats.
pub fn object(bytes: &[u8]) {
    let Some((&formats, rest)) = bytes.split_first() else { return };
    let end = rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
    let Ok(expression) = std::str::from_utf8(&rest[..end]) else { return };
    let object = rest.get(end + 1..).unwrap_or_default();
    let request = request(formats, expression);
    let (result, error) = run(&request, object, object.len().max(1));
    for size in [1, 7] {
        let (other, other_error) = run(&request, object, size);
        assert_eq!(other_error.is_some(), error.is_some(), "a result does not depend on the pieces of the object");
        // Of damaged GZIP, the readable part does depend on it.
        if error.is_none() || request.compression == Compression::None {
            assert_eq!((other, other_error), (result.clone(), error.clone()));
        }
    }
}

fn request(formats: u8, expression: &str) -> Request {
    let bit = |index: u8| formats >> index & 1 == 1;
    let header = [Header::None, Header::Ignore, Header::Use, Header::None][usize::from(formats >> 1 & 3)];
    let escape = if bit(3) { b'\\' } else { b'"' };
    let csv = CsvInput { header, escape: Some(escape), quoted_record_delimiters: bit(4), ..CsvInput::default() };
    let json = OutputFormat::Json { record_delimiter: "\n".to_owned() };
    Request {
        expression: expression.to_owned(),
        compression: if bit(5) { Compression::Gzip } else { Compression::None },
        input: if bit(0) { InputFormat::Json } else { InputFormat::Csv(csv) },
        output: if bit(6) { json } else { OutputFormat::Csv(CsvOutput::default()) },
        dialect: if bit(7) { Dialect::Ceph } else { Dialect::Aws },
        now: 1_000_000_000,
    }
}

/// The result, and the error that may end it.
fn run(request: &Request, object: &[u8], size: usize) -> (String, Option<Error>) {
    let mut all = String::new();
    let mut selection = match Selection::new(request.clone()) {
        Ok(selection) => selection,
        Err(error) => return (all, Some(error)),
    };
    let mut pieces = object.chunks(size);
    loop {
        let mut out = String::new();
        let step = selection.step(&mut out);
        assert!(step.is_err() || out.len() <= 2 * RECORD_BYTES_MAX, "a step is bounded");
        all.push_str(&out);
        match step {
            Ok(Step::Output) => {}
            Ok(Step::Done) => return (all, None),
            Ok(Step::Input) => match pieces.next() {
                Some(piece) => selection.push(piece),
                None => selection.end(),
            },
            Err(error) => return (all, Some(error)),
        }
    }
}
