//! Runs one statement over one object: bytes in, result records out.
//!
//! Why:        the caller decides when to push bytes and when to take the result, so neither accumulates.
//! Invariants: S1 one step adds records until `OUTPUT_BYTES` are there or `STEP_WORK` is done; no result record is
//!                longer than `RECORD_BYTES_MAX`.
//!             S2 the result does not depend on how the input is split.
//!             S3 the result has whole records only, even when an error ends it.
//! Not here:   reading the object, framing of the response (the S3 door).

use crate::aggregate::{Running, check_held};
use crate::ast::{Columns, Query};
use crate::bind::{Names, bind};
use crate::csv::reader as csv;
use crate::csv::{CsvInput, CsvOutput, Header};
use crate::error::{Error, Kind};
use crate::evaluate::{Record, Scope};
use crate::input::{Compression, InputFormat, Reader, Source};
use crate::json::{Json, reader as json};
use crate::parser::parse;
use crate::scan_range::ScanRange;
use crate::timestamp::Timestamp;
use crate::value::Value;
use crate::writer::{csv as csv_writer, json as json_writer};
use crate::{Dialect, RECORD_BYTES_MAX};

/// A step ends when its result has this many bytes.
const OUTPUT_BYTES: usize = 128 << 10;
/// A step ends after this many visited characters and values, so that the caller can cancel in between.
const STEP_WORK: usize = 1 << 24;

/// The format of the result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OutputFormat {
    Csv(CsvOutput),
    Json { record_delimiter: String },
}

/// A selection's statement and formats.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    pub expression: String,
    pub compression: Compression,
    pub input: InputFormat,
    pub output: OutputFormat,
    pub dialect: Dialect,
    /// The value of `UTCNOW()`, in seconds since 1970.
    pub now: i64,
}

/// Why a step ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It needs more bytes of the object.
    Input,
    /// Part of the result may be ready; take it, then continue.
    Output,
    /// The result is complete.
    Done,
}

#[derive(Debug)]
pub struct Selection {
    query: Query,
    /// Names have been resolved.
    bound: bool,
    header: Option<Vec<String>>,
    input: InputFormat,
    output: OutputFormat,
    dialect: Dialect,
    now: Timestamp,
    source: Source,
    reader: Reader,
    running: Vec<Running>,
    /// Result records so far.
    written: u64,
    /// Work of the current step.
    work: usize,
}

impl Selection {
    /// Parses the statement. Names are resolved too, unless the object's header defines them.
    pub fn new(request: Request) -> Result<Selection, Error> {
        let Request { expression, compression, input, mut output, dialect, now } = request;
        let query = parse(&expression)?;
        if let (Dialect::Ceph, OutputFormat::Json { record_delimiter }) = (dialect, &output) {
            output =
                OutputFormat::Csv(CsvOutput { record_delimiter: record_delimiter.clone(), ..CsvOutput::default() });
        }
        let reader = match &input {
            InputFormat::Csv(format) => Reader::Csv(csv::Reader::new(format.clone(), dialect == Dialect::Ceph)),
            InputFormat::Json => Reader::Json(json::Reader::new(query.from.clone())),
        };
        let now = Timestamp::from_seconds(now)
            .ok_or_else(|| Error::new(Kind::InvalidArguments, "The clock of the server is out of range"))?;
        let running = query.aggregates.iter().map(|aggregate| Running::new(aggregate.function)).collect();
        let source = Source::new(compression);
        let (bound, header, written, work) = (false, None, 0, 0);
        let mut selection =
            Selection { query, bound, header, input, output, dialect, now, source, reader, running, written, work };
        if !selection.needs_header() {
            selection.bind()?;
        }
        Ok(selection)
    }

    /// The first record must be read before any other.
    pub fn needs_header(&self) -> bool {
        let has_header = matches!(&self.input, InputFormat::Csv(format) if format.header != Header::None);
        has_header && !self.bound
    }

    /// From now on only records that begin within these bytes are selected. The next byte pushed is the one at `start`,
    /// or, unless that is 0, the one a delimiter's length before it.
    pub fn restrict(&mut self, start: u64, end: u64) {
        let delimiter = self.delimiter().to_owned();
        self.source.restrict(ScanRange::new(&delimiter, start, end));
        match &self.input {
            InputFormat::Csv(format) => {
                self.reader = Reader::Csv(csv::Reader::new(format.clone(), self.dialect == Dialect::Ceph));
            }
            InputFormat::Json => {}
        }
    }

    /// The object's record delimiter.
    pub fn delimiter(&self) -> &str {
        match &self.input {
            InputFormat::Csv(format) => &format.record_delimiter,
            InputFormat::Json => "\n",
        }
    }

    /// Adds more bytes of the object.
    pub fn push(&mut self, bytes: &[u8]) {
        self.source.push(bytes);
    }

    /// No more bytes follow.
    pub fn end(&mut self) {
        self.source.end();
    }

    /// Decompressed bytes processed.
    pub fn processed(&self) -> u64 {
        self.source.processed()
    }

    /// Continues; appends available result records to `out`, even before an error.
    pub fn step(&mut self, out: &mut String) -> Result<Step, Error> {
        self.work = 0;
        loop {
            if out.len() >= OUTPUT_BYTES || self.work >= STEP_WORK {
                return Ok(Step::Output);
            }
            if self.query.limit.is_some_and(|limit| self.written >= limit) {
                return Ok(Step::Done);
            }
            let last = self.source.is_over();
            if self.read(last, out)? {
                continue;
            }
            if last {
                self.finish(out)?;
                return Ok(Step::Done);
            }
            if !self.source.feed(&mut self.reader)? && !self.source.is_over() {
                return Ok(Step::Input);
            }
        }
    }

    /// Reads only the header of an object whose records are read elsewhere; returns whether it is complete.
    pub fn read_header(&mut self) -> Result<bool, Error> {
        while self.needs_header() {
            let last = self.source.is_over();
            if self.read(last, &mut String::new())? {
                continue;
            }
            if last {
                break;
            }
            if !self.source.feed(&mut self.reader)? && !self.source.is_over() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn bind(&mut self) -> Result<(), Error> {
        let is_json = matches!(self.input, InputFormat::Json);
        let names = Names { dialect: self.dialect, is_json, header: self.header.as_deref() };
        bind(&mut self.query, &names)?;
        self.bound = true;
        Ok(())
    }

    /// Reads one record, if available.
    fn read(&mut self, last: bool, out: &mut String) -> Result<bool, Error> {
        let needs_header = self.needs_header();
        let Selection { reader, query, header, running, written, work, .. } = self;
        let writer = Writer { output: &self.output, dialect: self.dialect, header: header.as_deref() };
        let at = (self.dialect, self.now);
        match reader {
            Reader::Json(reader) => {
                let Some(record) = reader.next(last)? else { return Ok(false) };
                *work += select(query, Record::Json(&record), running, written, &writer, at, out)?;
            }
            Reader::Csv(reader) => {
                let Some(record) = reader.next(last)? else { return Ok(false) };
                if !needs_header {
                    *work += select(query, Record::Csv(record), running, written, &writer, at, out)?;
                    return Ok(true);
                }
                let is_used = matches!(&self.input, InputFormat::Csv(CsvInput { header: Header::Use, .. }));
                if is_used {
                    *header = Some(names_of(record)?);
                }
                self.bind()?;
            }
        }
        Ok(true)
    }

    /// Writes the record of aggregates, if there are any.
    fn finish(&mut self, out: &mut String) -> Result<(), Error> {
        if self.needs_header() {
            // An object without records.
            self.bind()?;
        }
        if self.query.aggregates.is_empty() {
            return Ok(());
        }
        let totals: Vec<Value<'static>> = std::mem::take(&mut self.running).into_iter().map(Running::total).collect();
        let writer = Writer { output: &self.output, dialect: self.dialect, header: None };
        let record = Record::Totals(&totals);
        let scope = Scope::new(record, self.query.columns.as_slice(), self.dialect, self.now);
        writer.write(&self.query, &scope, out)
    }
}

fn names_of(record: &csv::Record) -> Result<Vec<String>, Error> {
    let mut names = Vec::with_capacity(record.len());
    for index in 0..record.len() {
        names.push(record.field(index)?.unwrap_or_default().to_owned());
    }
    Ok(names)
}

/// Adds a record to the result or the aggregates, if it matches; returns the work done.
fn select<'r>(
    query: &'r Query,
    record: Record<'r>,
    running: &mut [Running],
    written: &mut u64,
    writer: &Writer<'_>,
    (dialect, now): (Dialect, Timestamp),
    out: &mut String,
) -> Result<usize, Error> {
    let scope = Scope::new(record, query.columns.as_slice(), dialect, now);
    if let Some(filter) = &query.filter
        && scope.truth(filter)? != Some(true)
    {
        return Ok(scope.work());
    }
    if running.is_empty() {
        writer.write(query, &scope, out)?;
        *written += 1;
        return Ok(scope.work());
    }
    for (aggregate, running) in query.aggregates.iter().zip(&mut *running) {
        let value = aggregate.argument.as_ref().map(|argument| scope.evaluate(argument)).transpose()?;
        running.add(value.unwrap_or(Value::Bool(true)))?;
    }
    check_held(running)?;
    Ok(scope.work())
}

struct Writer<'w> {
    output: &'w OutputFormat,
    dialect: Dialect,
    header: Option<&'w [String]>,
}

impl Writer<'_> {
    /// Writes a whole record, or nothing on an error.
    fn write<'r>(&self, query: &'r Query, scope: &Scope<'r>, out: &mut String) -> Result<(), Error> {
        let start = out.len();
        let written = match self.output {
            OutputFormat::Csv(format) => self.write_csv(query, scope, format, out),
            OutputFormat::Json { record_delimiter } => self.write_json(query, scope, record_delimiter, out),
        };
        if written.is_err() {
            out.truncate(start);
        }
        written
    }

    fn write_csv<'r>(
        &self,
        query: &'r Query,
        scope: &Scope<'r>,
        format: &CsvOutput,
        out: &mut String,
    ) -> Result<(), Error> {
        let mut row = csv_writer::Row::begin(out, format);
        each(query, scope, self.header, &mut |_, value| {
            if value.is_nothing() && self.dialect == Dialect::Ceph {
                row.value("null");
            } else {
                row.value(&value.into_text());
            }
            row.len()
        })?;
        row.end();
        Ok(())
    }

    fn write_json<'r>(
        &self,
        query: &'r Query,
        scope: &Scope<'r>,
        record_delimiter: &str,
        out: &mut String,
    ) -> Result<(), Error> {
        let mut row = json_writer::Row::begin(out);
        each(query, scope, self.header, &mut |name, value| {
            row.value(name, &value);
            row.len()
        })?;
        row.end(record_delimiter);
        Ok(())
    }
}

/// Calls `each` for names and values of a result record; `each` returns the record's current size.
fn each<'r>(
    query: &'r Query,
    scope: &Scope<'r>,
    header: Option<&[String]>,
    each: &mut dyn FnMut(&str, Value<'r>) -> usize,
) -> Result<(), Error> {
    let mut value = |name: &str, value: Value<'r>| {
        if each(name, value) <= RECORD_BYTES_MAX {
            return Ok(());
        }
        Err(Error::new(Kind::RecordTooLong, "A record of the result is longer than 1 MiB"))
    };
    match (&query.columns, scope.record) {
        (Columns::Some(columns), _) => {
            for (index, column) in columns.iter().enumerate() {
                value(&column.name, scope.column(index)?)?;
            }
        }
        (Columns::All, Record::Csv(fields)) => {
            for index in 0..fields.len() {
                let field = Value::Text(fields.field(index)?.unwrap_or_default().into());
                match header.and_then(|header| header.get(index)) {
                    Some(name) => value(name, field)?,
                    None => value(&format!("_{}", index + 1), field)?,
                }
            }
        }
        (Columns::All, Record::Json(Json::Object(members))) => {
            for (key, member) in members {
                value(key, Value::of_json(member))?;
            }
        }
        (Columns::All, Record::Json(json)) => value("_1", Value::of_json(json))?,
        (Columns::All, Record::Totals(_)) => {}
    }
    Ok(())
}
